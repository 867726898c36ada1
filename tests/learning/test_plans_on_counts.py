"""Learners that plan on counts: alike rows make parts exchangeable in every model they plan for."""

from __future__ import annotations

import numpy as np
import pytest

import fmdp
from fmdp.learning.planning_budget import planner_for_learning
from fmdp.model.exchangeable.finding import exchangeable_by_alike
from fmdp.planning.counts.planner import Counts
from fmdp.planning.spans import marginals
from fmdp.simulation.regret import reference_for


@pytest.mark.parametrize(
    ("problem", "parts"),
    [
        ("star:8,dynamics=guestrin,alike=machines", 7),
        ("star:8,dynamics=guestrin", None),
        ("circle:8,dynamics=guestrin,alike=machines", None),
        ("fleet:6,types=2,alike=types", 3),
    ],
)
def test_alike_rows_make_parts_exchangeable(problem: str, parts: int | None) -> None:
    found = exchangeable_by_alike(fmdp.problem(problem).structure)
    assert parts == (None if found is None else found.groups[0].n_parts)


def test_counts_are_chosen_for_learners_that_plan_for_models() -> None:
    structure = fmdp.problem("star:30,dynamics=guestrin,alike=machines").structure
    assert planner_for_learning(structure, for_models=True).planner.name == "counts"
    assert planner_for_learning(structure).planner.name == "alp"
    apart = fmdp.problem("star:30,dynamics=guestrin").structure
    assert planner_for_learning(apart, for_models=True).planner.name == "alp"


@pytest.mark.parametrize(
    "problem", ["star:7,dynamics=guestrin", "maintenance:4,levels=3,k=2,crew=2"]
)
def test_marginals_are_means_over_joint_states(problem: str) -> None:
    model = fmdp.problem(problem)
    plan = Counts(tolerance=1e-10).prepare(model.structure).solve(model, marginals=True)
    assert plan.bias is not None
    assert plan.marginals is not None
    expected = marginals(plan.bias, model.structure.state_sizes)
    for mean, other in zip(plan.marginals, expected, strict=True):
        np.testing.assert_allclose(mean - mean[0], other - other[0], atol=1e-9)


@pytest.mark.parametrize("learner", ["psrl", "default"])
def test_a_run_plans_on_counts_and_its_regret_is_exact(learner: str) -> None:
    model = fmdp.problem("star:24,dynamics=guestrin,alike=machines")
    reference = reference_for(model)
    assert reference.gain_kind == "exact"
    assert reference.gain == pytest.approx(fmdp.plan(model, "counts").gain, abs=1e-5)
    run = fmdp.simulate(model, learner, 300, 1, reference=reference)
    assert run.steps == 300
    again = fmdp.simulate(model, learner, 300, 1, reference=reference)
    assert run.regret == again.regret
