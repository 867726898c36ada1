"""Summaries of policies on counts: means over parts of the summaries over joint states."""

from __future__ import annotations

import numpy as np
import pytest

import fmdp
from fmdp.errors import InvalidParameter
from fmdp.planning.occupancy.law import NotCertified
from fmdp.planning.occupancy.records import Summary
from fmdp.planning.occupancy.summary import summarise
from fmdp.planning.policies.counts import CountPolicy, as_table
from fmdp.problems import problem
from fmdp.testing.exchangeable import exchangeable_model


def names_in(label: str, names: tuple[str, ...], groups: list[list[str]]) -> list[str]:
    """Return the variables or factors that a label of a summary stands for."""
    if " to " not in label:
        return [label]
    first, last = label.split(" to ")
    fitting = [group for group in groups if group[0] == first and group[-1] == last]
    return fitting[0] if fitting else [n for n in names if n.split("_")[0] == first.split("_")[0]]


def assert_means_agree(model: fmdp.FactoredMDP, policy: CountPolicy) -> Summary:
    s = model.structure
    on_counts = summarise(model, policy)
    by_states = summarise(model, as_table(policy, s))
    groups = [
        [s.names[part[slot]] for part in variables]
        for group in policy.moves.groups
        for variables in (group.states, group.actions)
        for slot in range(len(variables[0]))
    ]
    assert on_counts.gain == pytest.approx(by_states.gain, abs=1e-6)
    for ours, theirs, bounds in (
        (on_counts.states, by_states.states, on_counts.bounds["states"]),
        (on_counts.actions, by_states.actions, on_counts.bounds["actions"]),
    ):
        covered = []
        for label, shares in ours.items():
            names = names_in(label, s.names, groups)
            covered += names
            for value, share in shares.items():
                low, high = bounds[label][value]
                assert low <= share <= high
                if value in theirs[names[0]]:  # values that address parts have labels
                    mean = np.mean([theirs[name][value] for name in names])
                    assert low - 1e-9 <= mean <= high + 1e-9
        assert sorted(covered) == sorted(theirs)
    return on_counts


@pytest.mark.parametrize("seed", range(12))
def test_random_models(seed: int) -> None:
    model = exchangeable_model(np.random.default_rng(seed), most_states=150, sparse=0.0)
    policy = fmdp.plan(model, "counts").policy
    assert isinstance(policy, CountPolicy)
    assert_means_agree(model, policy)


def test_names_and_numbers_of_a_star() -> None:
    model = problem("star:5,dynamics=guestrin")
    policy = fmdp.plan(model, "counts").policy
    assert isinstance(policy, CountPolicy)
    summary = assert_means_agree(model, policy)
    assert list(summary.states) == ["machine_0", "machine_1 to machine_4"]
    assert list(summary.factors) == ["working_0", "working_1 to working_4"]
    assert list(summary.actions["restart"]) == ["1 to 4", "0", "none"]
    assert sum(summary.actions["restart"].values()) == pytest.approx(1.0)
    by_states = summarise(model, as_table(policy, model.structure))
    for label, first in (("1 to 4", 1), ("0", 0)):
        values = [str(first)] if label == "0" else [str(i) for i in range(1, 5)]
        total = sum(by_states.actions["restart"][value] for value in values)
        assert summary.actions["restart"][label] == pytest.approx(total, abs=1e-6)
    total = sum(by_states.factors[f"working_{i}"] for i in range(1, 5))
    assert summary.factors["working_1 to working_4"] == pytest.approx(total, abs=1e-6)


def test_a_hundred_components() -> None:
    model = problem("maintenance:100,levels=2,k=90,crew=10,wear=0.05")
    plan = fmdp.plan(model, "counts")
    summary = plan.summary()
    assert summary.gain == pytest.approx(plan.gain, abs=1e-4)
    inspected = fmdp.inspect(model, plan.policy)
    assert inspected.kind == "exact"
    assert inspected.states == summary.states
    shares = summary.states["wear_0 to wear_99"]
    # In the long run as many are replaced as fail: wear * (share working) of all.
    replaced = summary.actions["action_0 to action_99"]["replace"]
    after = shares["0"] + replaced
    assert replaced == pytest.approx(0.05 * after, rel=1e-3)


def test_what_is_not_known_from_counts() -> None:
    model = problem("star:5,dynamics=guestrin")
    plan = fmdp.plan(model, "counts")
    with pytest.raises(InvalidParameter, match="event 'down' is not counted for a policy on"):
        plan.summary(events={"down": "machine_1=down"})
    stuck = problem("maintenance:3,levels=2,crew=0,wear=0")
    policy = fmdp.plan(stuck, "counts").policy
    assert policy is not None
    with pytest.raises(NotCertified, match="depend on the initial state"):
        summarise(stuck, policy)
