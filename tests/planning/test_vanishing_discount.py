"""Policy iteration on the engine: models that sweeps take thousands of steps to come to rest in."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fmdp
from fmdp.elimination.backup import backup_of
from fmdp.learning.posterior import sample_model
from fmdp.model import FactoredMDP
from fmdp.planning.exact import phases
from fmdp.planning.exact.vanishing_discount import (
    LOSS,
    VanishingDiscountSolution,
    vanishing_discount_solution,
)
from fmdp.planning.plan import Status
from fmdp.planning.tabular.model import policy_entries, policy_matrix
from fmdp.testing import oracles, strategies

TOLERANCE = 1e-3


def found(model: FactoredMDP, tolerance: float = TOLERANCE) -> VanishingDiscountSolution | None:
    backup = backup_of(model.structure, nested=False)
    backup.load(model)
    return vanishing_discount_solution(model, backup, np.zeros(backup.n_states), tolerance)


def rooms(leaving: float, pay: tuple[float, float] = (1.0, 0.0)) -> FactoredMDP:
    """Two rooms that pay, left with the same small probability whatever is done."""
    stay = [[1.0 - leaving, leaving], [leaving, 1.0 - leaving]]
    return FactoredMDP.from_factors((2,), (1,), [((0,), stay)], [((0,), pay)])


def residual(model: FactoredMDP, h: np.ndarray) -> np.ndarray:
    """L h - h by brute force, h in C order."""
    mdp = oracles.dense(model)
    best: np.ndarray = oracles.action_values(mdp, h).max(axis=0) - h
    return best


@given(strategies.models(), st.data())
def test_entries_are_those_of_the_policys_matrix(model: FactoredMDP, data: st.DataObject) -> None:
    actions = data.draw(strategies.policies(model.structure))
    matrix = np.zeros((model.structure.n_states, model.structure.n_states))
    origin, target, weight = policy_entries(model, actions)
    np.add.at(matrix, (origin, target), weight)
    assert np.allclose(matrix, policy_matrix(model, actions), atol=1e-15)


@given(strategies.models())
def test_what_it_says_is_true(model: FactoredMDP) -> None:
    """An h whose bounds meet, or a policy that is best under the discount: by brute force."""
    tolerance = TOLERANCE * model.structure.reward_unit
    ended = found(model, tolerance)
    assert ended is not None
    mdp = oracles.dense(model)
    best = oracles.optimal(mdp).gain
    if ended.h is not None:
        backup = backup_of(model.structure, nested=False)
        rest = residual(model, backup.to_canonical(ended.h))
        assert rest.max() - rest.min() <= tolerance * 1.001
        assert rest.min() - tolerance <= best.min()
        assert best.max() <= rest.max() + tolerance
        return
    assert ended.actions is not None
    assert best.max() - best.min() > 0.0
    own = oracles.policy_gain(mdp, ended.actions)
    assert np.abs(own - best).max() <= 2.0 * tolerance
    low, high = ended.bounds
    assert low <= best.min()
    assert best.max() <= high


@pytest.mark.parametrize("leaving", [1e-2, 1e-4, 1e-6])
def test_rooms_that_are_hardly_ever_left(leaving: float) -> None:
    """d = h1 - h2 solves d = 1 + (1 - 2 leaving) d: it is 1 / (2 leaving)."""
    ended = found(rooms(leaving))
    assert ended is not None
    assert ended.h is not None
    assert np.ptp(ended.h) == pytest.approx(0.5 / leaving, rel=5 * TOLERANCE)


def test_rooms_that_are_left_once_in_an_age_have_two_gains_for_that_long() -> None:
    ended = found(rooms(1e-28))
    assert ended is not None
    assert ended.h is None
    assert ended.actions is not None
    assert ended.bounds == pytest.approx((0.0, 1.0), abs=1e-5)


def test_a_better_room_is_gone_to_however_long_it_takes() -> None:
    """Staying pays .9 here and 1 there, 3 * 10^5 steps away that cost .9 each: gain 1."""
    way = 1.0 / 3e5
    transitions = np.zeros((2, 2, 2))
    transitions[0, 0] = (1.0, 0.0)
    transitions[0, 1] = (1.0 - way, way)
    transitions[1, :] = (0.0, 1.0)
    rewards = [[0.9, 0.0], [1.0, 1.0]]
    model = FactoredMDP.from_factors((2,), (2,), [((0, 1), transitions)], [((0, 1), rewards)])
    assert way > LOSS
    ended = found(model)
    assert ended is not None
    assert ended.h is not None
    low, high = (f(residual(model, ended.h)) for f in (np.min, np.max))
    assert low == pytest.approx(1.0, abs=2 * TOLERANCE)
    assert high == pytest.approx(1.0, abs=2 * TOLERANCE)


def slow_models(count: int) -> list[FactoredMDP]:
    """What PSRL samples before it has seen anything: nearly deterministic rows."""
    statistics = fmdp.Statistics(fmdp.problem("three-leg:4,dynamics=talebi").structure)
    return [sample_model(statistics, 0.75, 0.01, np.random.default_rng(s)) for s in range(count)]


def test_plans_of_sampled_models_end_with_a_certificate(monkeypatch: pytest.MonkeyPatch) -> None:
    models = slow_models(40)
    bounds = [fmdp.plan(model).gain_bounds for model in models]  # solved directly, state by state
    planner = fmdp.Exact(tolerance=4e-3, max_iterations=200)
    solved = (Status.CONVERGED, Status.MULTICHAIN, Status.DISCOUNTED)

    def statuses() -> list[Status]:
        prepared = planner.prepare(models[0].structure)
        plans: list[Any] = [prepared.solve(model) for model in models]
        for plan, (low, high) in zip(plans, bounds, strict=True):
            assert plan.gain_lower <= high
            assert low <= plan.gain_upper
            if plan.status is Status.CONVERGED:
                assert plan.gain_upper - plan.gain_lower <= 4e-3
        return [plan.status for plan in plans]

    assert all(status in solved for status in statuses())
    # Without it some run to the limit, which is what makes the test one.
    monkeypatch.setattr(phases, "vanishing_discount_solution", lambda *_: None)
    monkeypatch.setattr(phases, "PATIENCE", None)
    assert Status.ITERATION_LIMIT in statuses()


def test_described_plans_keep_value_iterations_bias() -> None:
    """`plan` describes: the bias is that of damped sweeps from 0, not policy iteration's."""
    plan = fmdp.plan(fmdp.problem("large-diameter"))
    assert plan.status is Status.CONVERGED
    assert plan.span == pytest.approx(2.0)


def test_psrl_has_no_plan_without_a_certificate() -> None:
    model = replace(fmdp.problem("circle:7,dynamics=guestrin"), initial_state=(0,) * 7)
    runs = [fmdp.simulate(model, fmdp.PSRL(), steps=300, seed=seed) for seed in range(2)]
    assert [run.unconverged_plans for run in runs] == [0, 0]
