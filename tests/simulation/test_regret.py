"""Gaps against dense algebra, and what ties gap regret to realised regret."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings

import fmdp
from fmdp import FactoredMDP
from fmdp.planning.choice import Chosen
from fmdp.simulation import Simulation, reference_for, simulate
from fmdp.simulation import regret as regret_module
from fmdp.simulation.loop import checkpoints
from fmdp.simulation.regret import gap_table
from fmdp.testing import oracles, strategies


@settings(max_examples=40, deadline=None)
@given(model=strategies.models())
def test_the_gap_table_is_the_dense_one(model: FactoredMDP) -> None:
    rng = np.random.default_rng(0)
    bias = rng.normal(size=model.structure.n_states)
    values = oracles.action_values(oracles.dense(model), bias).T  # [S, A]
    gaps = gap_table(model, bias)
    np.testing.assert_allclose(gaps, values.max(axis=1, keepdims=True) - values, atol=1e-10)
    assert gaps.min() == 0.0
    assert (gaps.min(axis=1) == 0.0).all()


def test_gain_is_exact_where_it_can_be() -> None:
    reference = reference_for(fmdp.problem("circle:3"))
    assert reference.gain == pytest.approx(2.9330007, abs=1e-6)
    assert reference.gain_kind == "exact"
    assert reference.gaps is not None
    assert reference.gaps.shape == (8, 4)


def test_a_large_model_has_no_gaps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regret_module, "MOST_GAPS", 31)
    model = fmdp.problem("circle:3")
    run = simulate(model, fmdp.DORL(), 20)
    assert run.gap_regret is None
    assert run.gap_curve is None
    assert run.gain_kind == "exact"


def test_a_gain_that_depends_on_the_state() -> None:
    """Two closed halves, paying 1 and 0; the start lies in the one that pays nothing."""
    stay = FactoredMDP.from_factors([2], [2], [((0,), np.eye(2))], [((0,), [0.0, 1.0])])
    reference = reference_for(stay)
    assert reference.gain == pytest.approx(0.0, abs=1e-6)
    assert reference.gaps is None
    run = simulate(stay, fmdp.DORL(), 50)
    assert run.regret == pytest.approx(0.0, abs=1e-6)


def test_a_large_model_has_the_least_of_its_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    model = fmdp.problem("circle:40,dynamics=guestrin")
    singles = fmdp.ALP(basis="singles").plan(model).gain_upper
    reference = reference_for(model)
    assert singles is not None
    assert reference.gain_kind == "upper_bound"
    assert reference.gain < 0.5 * singles
    assert reference_for(model).gain == reference.gain
    for bound in (np.inf, singles + 1.0):
        monkeypatch.setattr(fmdp.ALP, "least_gain_upper", lambda *given, bound=bound: bound)
        assert reference_for(model).gain == singles


def test_the_bound_is_not_below_the_gain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Models that can be planned exactly, with the reference of a large model."""
    planner = fmdp.ALP()
    monkeypatch.setattr(regret_module, "default_planner", lambda model: planner)
    monkeypatch.setattr(regret_module, "choose_planner_of", lambda model: Chosen(planner, None))
    for name in ("circle:8,dynamics=guestrin", "circle:6", "machines:2", "random:5", "grid:9"):
        model = fmdp.problem(name)
        least = fmdp.plan(model).gain_lower
        assert least is not None
        assert reference_for(model).gain >= least


def test_gap_and_realised_regret_have_one_expectation() -> None:
    """E sum(gain - r) = E sum(gap) + E h(s_{T+1}) - h(s_1), for any learner."""
    model = fmdp.problem("jao:2")
    reference = reference_for(model)
    bias = fmdp.plan(model, fmdp.Exact(tolerance=1e-10)).bias
    assert bias is not None
    differences = []
    for seed in range(300):
        simulation = Simulation(model, fmdp.Random(), seed, reference=reference)
        simulation.run(30)
        run = simulation.result()
        assert run.gap_regret is not None
        end = np.ravel_multi_index(simulation.environment.state, model.structure.state_sizes)
        differences.append(run.regret - run.gap_regret - (bias[end] - bias[0]))
    error = np.std(differences) / len(differences) ** 0.5
    assert abs(np.mean(differences)) < 4.5 * error


def test_the_oracle_has_no_gap() -> None:
    model = fmdp.problem("circle:4")
    run = simulate(model, fmdp.Oracle(), 2000, seed=1)
    assert run.gap_regret == pytest.approx(0.0, abs=1e-3)
    assert run.planner_calls == 1


def test_regret_is_what_it_says() -> None:
    model = fmdp.problem("circle:3")
    run = simulate(model, fmdp.Random(), 1000, seed=7)
    assert run.regret == pytest.approx(1000 * run.gain - run.total_reward)
    assert run.curve[-1] == (1000, run.regret)
    assert run.gap_curve is not None
    assert run.gap_curve[-1] == (1000, run.gap_regret)
    gaps = [gap for _, gap in run.gap_curve]
    assert gaps == sorted(gaps)


def test_checkpoints_are_log_spaced_and_end_at_the_end() -> None:
    assert checkpoints(1) == (1,)
    assert checkpoints(10, points_per_decade=4) == (1, 2, 3, 6, 10)
    marks = checkpoints(12_345)
    assert marks[-1] == 12_345
    assert len(marks) == len(set(marks))
    assert all(a < b for a, b in itertools.pairwise(marks))
