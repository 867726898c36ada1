"""Rollouts of approximate policies."""

from __future__ import annotations

import numpy as np
import pytest

import fmdp
from fmdp.errors import InvalidParameter
from fmdp.model.spaces import all_assignments, encode
from fmdp.planning.evaluate import evaluate_exactly
from fmdp.problems import problem


def table_of(model: fmdp.FactoredMDP, rollout: fmdp.Rollout) -> fmdp.TablePolicy:
    s = model.structure
    states = all_assignments(s.state_sizes).tolist()
    actions = [encode(rollout(tuple(state)), s.action_sizes) for state in states]
    return fmdp.TablePolicy(s.state_sizes, s.action_sizes, np.array(actions))


def test_a_policy_that_loses_a_fifth_gets_better() -> None:
    """Singles lose a fifth on this circle (docs/approximate.md)."""
    model = problem("circle:7,dynamics=guestrin,reward=mean")
    best = fmdp.plan(model, fmdp.Exact()).gain
    assert best is not None
    plan = fmdp.plan(model, fmdp.ALP(basis="singles"))
    rollout = fmdp.Rollout(plan, horizon=30, runs=32, candidates=7)
    gain = evaluate_exactly(model, table_of(model, rollout)).gain
    assert gain is not None
    assert plan.policy_gain is not None
    assert plan.policy_gain + 0.3 * (best - plan.policy_gain) < gain <= best + 1e-9
    assert plan.policy_gain < best - 1e-3


def test_the_same_state_and_seed_give_the_same_action_in_any_order() -> None:
    model = problem("circle:4,dynamics=guestrin")
    plan = fmdp.plan(model, fmdp.ALP(basis="singles"))
    states = [tuple(state) for state in all_assignments(model.structure.state_sizes).tolist()]
    first, second = fmdp.Rollout(plan, seed=3), fmdp.Rollout(plan, seed=3)
    backwards = [second(state) for state in reversed(states)]
    assert [first(state) for state in states] == backwards[::-1]
    named = dict(zip(model.structure.state_names, states[5], strict=True))
    assert isinstance(first(named), dict)
    assert fmdp.evaluate(model, first).gain is not None


def test_what_is_refused() -> None:
    exact = fmdp.plan(problem("circle:4"), fmdp.Exact())
    with pytest.raises(InvalidParameter, match="ALP"):
        fmdp.Rollout(exact)
    plan = fmdp.plan(problem("circle:4"), fmdp.ALP(basis="singles"))
    with pytest.raises(InvalidParameter, match="'runs'"):
        fmdp.Rollout(plan, runs=1)
    bounded = fmdp.plan(problem("maintenance:3,crew=1"), fmdp.ALP(basis="indicators"))
    with pytest.raises(InvalidParameter, match="constraints"):
        fmdp.Rollout(bounded)
