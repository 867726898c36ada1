"""Evaluation of policies on counts: the same numbers as for the same policies over joint states."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import fmdp
from fmdp.errors import InvalidParameter
from fmdp.planning.policies.counts import CountPolicy, TimedCountPolicy, as_table
from fmdp.planning.status import Status
from fmdp.problems import problem
from fmdp.simulation.evaluate import evaluate_by_simulation
from fmdp.testing.exchangeable import exchangeable_model


def assert_same_evaluation(model: fmdp.FactoredMDP, policy: CountPolicy) -> None:
    on_counts = fmdp.evaluate(model, policy, tolerance=1e-8)
    by_states = fmdp.evaluate(model, as_table(policy, model.structure), tolerance=1e-8)
    assert on_counts.kind == "exact"
    assert on_counts.status == by_states.status
    for name in ("gain", "gain_lower", "gain_upper"):
        ours, theirs = getattr(on_counts, name), getattr(by_states, name)
        assert ours == pytest.approx(theirs, abs=3e-8), name
    assert (on_counts.gain_bounds is None) == (by_states.gain_bounds is None)


@pytest.mark.parametrize("seed", range(25))
def test_random_models(seed: int) -> None:
    model = exchangeable_model(np.random.default_rng(seed), most_states=200)
    policy = fmdp.plan(model, "counts").policy
    assert isinstance(policy, CountPolicy)
    assert_same_evaluation(model, policy)
    # Another policy of the same model: moves of neighbouring counts where these are possible.
    discounted = fmdp.plan(model, "counts,criterion=discounted,discount=0.3").policy
    assert isinstance(discounted, CountPolicy)
    assert_same_evaluation(model, discounted)


def test_a_gain_that_depends_on_the_state() -> None:
    """Without wear and crew every state stays as it is: the penalty is due for ever, or never."""
    model = problem("maintenance:3,levels=2,crew=0,wear=0")
    policy = fmdp.plan(model, "counts").policy
    assert isinstance(policy, CountPolicy)
    evaluation = fmdp.evaluate(model, policy)
    assert evaluation.status is Status.MULTICHAIN
    assert evaluation.gain == pytest.approx(0.0, abs=1e-9)
    assert (evaluation.gain_lower, evaluation.gain_upper) == pytest.approx((-10.0, 0.0))


def test_more_counts_than_are_solved_directly(tmp_path: Path) -> None:
    model = problem("maintenance:20,levels=4,crew=3")
    plan = fmdp.plan(model, "counts")
    assert plan.policy is not None
    plan.policy.save(tmp_path / "policy.fmdp")
    evaluation = fmdp.evaluate(model, tmp_path / "policy.fmdp")
    assert evaluation.status is Status.CONVERGED
    assert evaluation.gain == pytest.approx(plan.gain, abs=2e-5)
    assert evaluation.gain_upper >= plan.gain_lower
    simulated = evaluate_by_simulation(model, plan.policy, steps=200_000)
    assert simulated.kind == "simulated"
    assert simulated.gain == pytest.approx(plan.gain, abs=0.3)


def test_policies_with_a_horizon() -> None:
    model = problem("star:25,dynamics=guestrin")
    plan = fmdp.plan(model, "counts,criterion=finite,horizon=30,discount=0.9")
    assert isinstance(plan.policy, TimedCountPolicy)
    evaluation = fmdp.evaluate(model, plan.policy)
    small = problem("star:6,dynamics=guestrin")
    exact = fmdp.plan(small, "exact,criterion=finite,horizon=30,discount=0.9")
    stages = fmdp.plan(small, "counts,criterion=finite,horizon=30,discount=0.9").policy
    assert exact.policy is not None
    assert fmdp.evaluate(small, stages).value == pytest.approx(
        fmdp.evaluate(small, exact.policy).value, abs=1e-9
    )
    assert evaluation.horizon == 30
    assert evaluation.value is not None
    # All 25 machines work at first; each pays 1 a step, the hub 2.
    assert 1.0 < evaluation.value < 26 / (1 - 0.9)


def test_other_models_are_refused() -> None:
    policy = fmdp.plan(problem("maintenance:4,levels=3,crew=2"), "counts").policy
    assert policy is not None
    with pytest.raises(InvalidParameter, match="is none of the model"):
        fmdp.evaluate(problem("maintenance:4,levels=3,crew=1"), policy)
    with pytest.raises(InvalidParameter, match="state sizes"):
        fmdp.evaluate(problem("maintenance:4,levels=4,crew=2"), policy)


def test_a_policy_on_counts_in_a_model_whose_parts_differ() -> None:
    """It is a policy of that model as well, and is evaluated there by its joint states."""
    policy = fmdp.plan(problem("maintenance:4,levels=3,crew=2"), "counts").policy
    assert isinstance(policy, CountPolicy)
    model = problem("maintenance:4,levels=3,crew=2,load=1")
    evaluation = fmdp.evaluate(model, policy)
    by_states = fmdp.evaluate(model, as_table(policy, model.structure))
    assert evaluation.gain == by_states.gain is not None
    simulated = evaluate_by_simulation(model, policy, steps=20_000)
    assert simulated.gain == pytest.approx(evaluation.gain, abs=0.5)
