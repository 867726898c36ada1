"""Explanations of policies on counts: the values of the same actions over joint states."""

from __future__ import annotations

import numpy as np
import pytest

import fmdp
from fmdp.errors import InvalidParameter
from fmdp.planning.explain.explain import explain_policy
from fmdp.planning.explain.on_counts import explain_on_counts
from fmdp.planning.policies.counts import CountPolicy, as_table
from fmdp.problems import problem
from fmdp.testing.exchangeable import exchangeable_model


def policy_of(model: fmdp.FactoredMDP) -> CountPolicy:
    policy = fmdp.plan(model, "counts").policy
    assert isinstance(policy, CountPolicy)
    return policy


@pytest.mark.parametrize("seed", range(8))
def test_values_are_those_over_joint_states(seed: int) -> None:
    generator = np.random.default_rng(seed)
    model = exchangeable_model(generator, most_states=150, sparse=0.0)
    policy = policy_of(model)
    table = as_table(policy, model.structure)
    for _ in range(3):
        state = tuple(int(generator.integers(size)) for size in model.structure.state_sizes)
        ours, theirs = explain_policy(model, policy, state), explain_policy(model, table, state)
        values = {tuple(entry.action.items()): entry.value for entry in theirs.values}
        assert ours.action == theirs.action
        assert ours.chosen.value == pytest.approx(theirs.chosen.value, abs=1e-7)
        assert ours.values[0].value == pytest.approx(theirs.values[0].value, abs=1e-7)
        for entry in ours.values:
            assert entry.value == pytest.approx(values[tuple(entry.action.items())], abs=1e-7)
            assert entry.gap == pytest.approx(ours.values[0].value - entry.value, abs=1e-12)


def test_a_state_of_forty_variables() -> None:
    model = problem("star:40,dynamics=guestrin")
    plan = fmdp.plan(model, "counts")
    state = (1, *((i + 1) % 2 for i in range(39)))  # the hub and every other leaf work
    explanation = plan.explain(state)
    assert explanation.action == {"restart": "2"}  # the first leaf that is down
    assert explanation.chosen.value == pytest.approx(plan.gain, abs=1e-5)
    assert {entry.action["restart"] for entry in explanation.values} == {"1", "2", "0", "none"}
    assert "h the bias of the policy" in str(explanation)


def test_several_classes_are_refused() -> None:
    model = problem("maintenance:3,levels=2,crew=0,wear=0")
    with pytest.raises(InvalidParameter, match="bias of this policy on counts is not known"):
        explain_on_counts(model, policy_of(model), (0, 0, 1))
