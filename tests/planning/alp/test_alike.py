"""The linear planner shares between actions that read alike rows: the plans are the same."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fmdp
from fmdp.model import FactoredMDP, OptimisticTables
from fmdp.planning.alp.bases import make_basis
from fmdp.planning.alp.bellman_residual import BellmanResidual
from fmdp.testing.strategies import models, optimistic_tables, structures

SMALL = structures(
    alike=True, max_states=16, max_action_variables=1, max_actions=5, max_variables=3
)


@given(models(SMALL), st.sampled_from(("singles", "pairs")), st.integers(0, 99))
@settings(max_examples=60)
def test_residuals_are_those_without_sharing(model: FactoredMDP, basis: str, seed: int) -> None:
    alone = replace(model.structure, alike=None)
    plain = FactoredMDP(alone, model.transitions, model.rewards)
    made = make_basis(alone, basis)
    weights = np.random.default_rng(seed).normal(size=made.size)
    found = []
    for one in (model, plain):
        # Told to condition on the action, as the network does by itself in larger models.
        residual = BellmanResidual(one.structure, make_basis(one.structure, basis), context=alone.m)
        residual.load(one)
        found.append(residual.largest(weights, 0.9))
    assert found[0] == pytest.approx(found[1], rel=1e-9, abs=1e-9)


@given(optimistic_tables(SMALL), st.sampled_from(("singles", "pairs")), st.integers(0, 99))
@settings(max_examples=40)
def test_optimistic_residuals_too(tables: OptimisticTables, basis: str, seed: int) -> None:
    alone = replace(tables.structure, alike=None)
    plain = OptimisticTables(alone, tables.lower, tables.free, tables.rewards)
    made = make_basis(alone, basis)
    weights = np.random.default_rng(seed).normal(size=made.size)
    found = []
    for one in (tables, plain):
        residual = BellmanResidual(
            one.structure, make_basis(one.structure, basis), optimistic=True, context=alone.m
        )
        residual.load(one)
        found.append(residual.largest(weights, 0.9))
    assert found[0] == pytest.approx(found[1], rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("method", ["cuts", "factored"])
@pytest.mark.parametrize("dynamics", ["guestrin", "ippc"])
def test_prepared_plans_are_those_without_sharing(method: str, dynamics: str) -> None:
    planner = fmdp.ALP(method=method, basis="pairs")
    plans = []
    for alike in ("none", "rows", "machines"):
        model = fmdp.problem(f"circle:6,dynamics={dynamics},alike={alike}")
        plans.append(planner.prepare(model.structure).solve(model))
    for plan in plans[1:]:
        assert plan.objective == pytest.approx(plans[0].objective, rel=1e-6)


def test_contexts_that_read_alike_rows_are_one_slice() -> None:
    entries = {}
    for alike in ("none", "rows"):
        structure = fmdp.problem(f"circle:12,dynamics=guestrin,alike={alike}").structure
        entries[alike] = BellmanResidual(
            structure, make_basis(structure, "singles")
        ).network.n_functions
    assert entries["rows"] < entries["none"] / 4
