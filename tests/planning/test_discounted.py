"""Discounts near 1: policy iteration in the place of millions of sweeps, and honest precision."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import fmdp
from fmdp.planning.tabular.model import write_out
from fmdp.planning.tabular.policy_iteration import optimal_discounted


def absorbing() -> fmdp.FactoredMDP:
    """Two states that are never left and pay 0 and 1."""
    return fmdp.FactoredMDP.from_factors(
        [2], [1], [([0, 1], np.eye(2).reshape(2, 1, 2))], [([0], [0.0, 1.0])]
    )


def two_classes(seed: int = 0) -> fmdp.FactoredMDP:
    """Two closed classes of four states with two actions."""
    draw = np.random.default_rng(seed)
    moves = np.zeros((8, 2, 8))
    for first in (0, 4):
        moves[first : first + 4, :, first : first + 4] = draw.dirichlet(np.ones(4), size=(4, 2))
    return fmdp.FactoredMDP.from_factors(
        [8], [2], [([0, 1], moves)], [([0, 1], draw.random((8, 2)))]
    )


def planned(model: fmdp.FactoredMDP, discount: float, **settings: Any) -> fmdp.Plan:
    return fmdp.plan(model, fmdp.Exact(criterion="discounted", discount=discount, **settings))


@pytest.mark.parametrize("discount", [0.999, 0.99999, 0.9999999])
def test_absorbing_states_converge_at_once(discount: float) -> None:
    """The mean of 0 and 1 / (1 - discount)."""
    plan = planned(absorbing(), discount)
    true = Fraction(1, 2) / (1 - Fraction(discount))
    assert plan.status is fmdp.Status.CONVERGED
    assert plan.iterations < 1000
    lower, upper = plan.stats["objective_bounds"]
    assert Fraction(lower) <= true <= Fraction(upper)
    assert upper - lower <= 1e-6
    assert plan.objective == pytest.approx(float(true), rel=1e-13)


@pytest.mark.parametrize("make", [absorbing, two_classes, lambda: fmdp.problem("circle:4")])
def test_what_rounding_keeps_from_the_tolerance_is_said(make: Any) -> None:
    plan = planned(make(), 1.0 - 1e-12)
    assert plan.status is fmdp.Status.PRECISION_LIMIT
    assert plan.iterations < 1000
    lower, upper = plan.stats["objective_bounds"]
    assert lower <= plan.objective <= upper
    assert 1e-6 < upper - lower < 1e-2 * plan.objective
    assert "rounding keeps" in plan.status.message


def test_rounding_ends_the_sweeps_of_a_model_that_is_not_written_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Values are kept small, so a discount that was out of reach converges; beyond, it is said."""
    monkeypatch.setattr("fmdp.planning.tabular.linear_systems.SPARSE_STATES", 1)
    model = fmdp.problem("circle:4")
    reached = planned(model, 1.0 - 1e-7, tolerance=1e-5)
    assert reached.status is fmdp.Status.CONVERGED
    assert reached.iterations < 100
    beyond = planned(model, 1.0 - 1e-12)
    assert beyond.status is fmdp.Status.PRECISION_LIMIT
    assert beyond.iterations < 1000
    lower, upper = beyond.stats["objective_bounds"]
    assert lower <= beyond.objective <= upper


def test_a_plan_that_was_stopped_has_bounds_and_no_objective() -> None:
    plan = planned(two_classes(), 0.99999, max_iterations=2)
    assert plan.status is fmdp.Status.ITERATION_LIMIT
    assert plan.objective is None
    lower, upper = plan.stats["objective_bounds"]
    known = planned(two_classes(), 0.99999)
    assert lower <= known.objective <= upper


@pytest.mark.parametrize("discount", [0.3, 0.9, 0.999])
def test_policy_iteration_finds_the_best_values(discount: float) -> None:
    """Against value iteration that is run until nothing changes."""
    model = two_classes(3)
    flat = write_out(model)
    assert flat is not None
    found = optimal_discounted(flat, discount, np.zeros(8, dtype=np.int64))
    assert found is not None
    transitions = model.transitions[0].reshape(8, 2, 8)
    values = np.zeros(8)
    for _ in range(40_000):
        values = (flat.rewards + discount * transitions @ values).max(axis=1)
    middle = 0.5 * (found.lower + found.upper) / (1.0 - discount)
    np.testing.assert_allclose(found.values + middle, values, atol=1e-9)
    assert found.upper - found.lower < 1e-13
