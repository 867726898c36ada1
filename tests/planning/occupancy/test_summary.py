"""Summaries against brute force, their events, and what they refuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fmdp
from fmdp.model.spaces import decode
from fmdp.planning.tabular.model import policy_matrix
from fmdp.testing.strategies import models, policies


@settings(max_examples=40)
@given(st.data())
def test_shares_and_means_by_brute_force(data: st.DataObject) -> None:
    model = data.draw(models())
    s = model.structure
    actions = data.draw(policies(s))
    summary = fmdp.inspect(model, fmdp.TablePolicy(s.state_sizes, s.action_sizes, actions))
    assert summary.kind == "exact"
    evaluation = fmdp.evaluate(model, fmdp.TablePolicy(s.state_sizes, s.action_sizes, actions))
    if evaluation.gain is not None:
        assert summary.gain == pytest.approx(evaluation.gain, abs=1e-5 * s.reward_size + 1e-12)
    for by_value in [*summary.states.values(), *summary.actions.values()]:
        assert sum(by_value.values()) == pytest.approx(1.0, abs=1e-12)
    visited = {tuple(v.state.values()): v for v in summary.most_visited}
    for place in range(s.n_states):
        names = tuple(s.name_state(decode(place, s.state_sizes)).values())
        if names in visited:
            action = s.name_action(decode(int(actions[place]), s.action_sizes))
            assert visited[names].action == action


@pytest.fixture(scope="module")
def circle() -> tuple[fmdp.FactoredMDP, Any]:
    model = fmdp.problem("circle:3")
    return model, fmdp.plan(model)


def test_events_by_hand(circle: tuple[fmdp.FactoredMDP, Any]) -> None:
    model, plan = circle
    summary = plan.summary(
        events={
            "down": "machine_0=down",
            "two": lambda v: [v[f"machine_{i}"] for i in range(3)].count("down") >= 2,
            "always": "machine_0 >= down",
            "never": "machine_0=down and machine_0=working",
        }
    )
    actions = plan.policy.actions.astype(np.int64)
    matrix = policy_matrix(model, actions)
    mu = np.linalg.lstsq(
        np.vstack([matrix.T - np.eye(8), np.ones(8)]), np.array([0.0] * 8 + [1.0])
    )[0]
    states = np.array([decode(k, (2, 2, 2)) for k in range(8)])
    assert model.structure.state_values[0][0] == "down"
    for name, marked in (("down", states[:, 0] == 0), ("two", (states == 0).sum(axis=1) >= 2)):
        event = summary.events[name]
        share = mu[marked].sum()
        ends = mu[marked] @ matrix[np.ix_(marked, ~marked)].sum(axis=1)
        assert event.share == pytest.approx(share, abs=1e-12)
        assert event.return_time == pytest.approx(1 / share)
        assert event.duration == pytest.approx(share / ends)
        assert event.duration is not None
    assert summary.events["always"].duration == np.inf
    assert summary.events["never"] == type(summary.events["down"])(0.0, np.inf, None)


def test_runner_up_and_gap_are_those_of_explain(circle: tuple[fmdp.FactoredMDP, Any]) -> None:
    _, plan = circle
    visited = plan.summary().most_visited[0]
    explanation = plan.explain(visited.state)
    assert visited.runner_up == explanation.runner_up.action
    assert visited.gap == pytest.approx(explanation.runner_up.gap, abs=1e-5)


@pytest.mark.parametrize(
    ("event", "message"),
    [
        ("machine_9=down", "machine_9"),
        ("machine_0=broken", "broken"),
        ("machine_0", "no condition"),
        (3, "must be a condition"),
    ],
)
def test_bad_events(circle: tuple[fmdp.FactoredMDP, Any], event: Any, message: str) -> None:
    model, plan = circle
    with pytest.raises(fmdp.FmdpError, match=message):
        fmdp.inspect(model, plan.policy, events={"bad": event})


def test_a_function_that_fails_is_named(circle: tuple[fmdp.FactoredMDP, Any]) -> None:
    model, plan = circle
    with pytest.raises(fmdp.errors.InvalidParameter, match=r"event 'bad': .*reads 'machine_9'"):
        fmdp.inspect(model, plan.policy, events={"bad": lambda values: values["machine_9"]})


def test_the_text_has_gain_shares_and_events(circle: tuple[fmdp.FactoredMDP, Any]) -> None:
    _, plan = circle
    summary = plan.summary(events={"down": "machine_0=down"})
    lines = str(summary).splitlines()
    share = 100 * summary.events["down"].share
    assert f"  gain {summary.gain:.6g}" in lines
    assert any(line.startswith("  state machine_0: down ") for line in lines)
    assert lines[-1] == f"  event down: {share:.2f} %"


def test_policies_that_have_no_law(circle: tuple[fmdp.FactoredMDP, Any]) -> None:
    model, plan = circle
    with pytest.raises(fmdp.FmdpError, match="state sizes"):
        fmdp.inspect(fmdp.problem("circle:4"), plan.policy)
    timed = fmdp.plan(model, fmdp.Exact(criterion="finite", horizon=3)).policy
    with pytest.raises(fmdp.FmdpError, match="horizon"):
        fmdp.inspect(model, timed)
    with pytest.raises(fmdp.FmdpError, match="at random"):
        fmdp.inspect(model, fmdp.ExploringPolicy(plan.policy, 0.1))  # type: ignore[arg-type]


def test_a_simulation_covers_the_exact_shares() -> None:
    model = fmdp.problem("circle:4")
    policy = fmdp.plan(model).policy
    assert policy is not None
    exact = fmdp.inspect(model, policy)
    simulated = fmdp.inspect(model, policy, memory_limit=1)
    assert simulated.kind == "exact"  # small chains are written out whatever the limit
    from fmdp.simulation.inspect import _Simulated

    simulated = _Simulated(model, policy, {}, 100_000, 1, None).summary(5)
    for name, by_value in simulated.states.items():
        for value, share in by_value.items():
            low, high = simulated.bounds["states"][name][value]
            assert low <= exact.states[name][value] <= high
            assert low <= share <= high
    assert simulated.most_visited[0].state == exact.most_visited[0].state


def test_a_policy_that_randomises(circle: tuple[fmdp.FactoredMDP, Any]) -> None:
    model, plan = circle
    state = (0, 0, 1)
    mixed = fmdp.MixedPolicy(plan.policy, {state: {(0,): 0.25, (1,): 0.75}})
    summary = fmdp.inspect(model, mixed, events={"first": "restart=0 and machine_1=down"})
    matrix = policy_matrix(model, plan.policy.actions.astype(np.int64))
    place = 1
    for action, weight in ((0, 0.25), (1, 0.75)):
        other = plan.policy.actions.astype(np.int64)
        other[place] = action
        row = policy_matrix(model, other)[place]
        matrix[place] = weight * row + (matrix[place] if action else 0.0)
    mu = np.linalg.lstsq(
        np.vstack([matrix.T - np.eye(8), np.ones(8)]), np.array([0.0] * 8 + [1.0])
    )[0]
    down = sum(mu[k] for k in range(8) if decode(k, (2, 2, 2))[1] == 0)
    assert summary.states["machine_1"]["down"] == pytest.approx(down, abs=1e-12)
    assert sum(summary.actions["restart"].values()) == pytest.approx(1.0)
    assert summary.gain == pytest.approx(fmdp.evaluate(model, mixed).gain, abs=1e-6)
    assert summary.events["first"].share >= 0.25 * mu[place] - 1e-12


def counted() -> fmdp.FactoredMDP:
    """Two machines, a derived count of those that are down, and two quantities."""
    return fmdp.FactoredMDP.from_functions(
        states={"a": ["up", "down"], "b": ["up", "down"]},
        actions={"do": ["wait", "fix"]},
        parents={"a": ["a", "do"], "b": ["b", "do", "n"]},
        transition=lambda name, v: (
            {"up": 0.8, "down": 0.2} if v[name] == "up" or v["do"] == "fix" else "down"
        ),
        reward={"both": (["a", "b"], lambda v: float(v["a"] == v["b"] == "up"))},
        derived={"n": fmdp.Count(["a", "b"], "down")},
        quantities={
            "fixes": (["do"], lambda v: v["do"] == "fix"),
            "down": (["n"], lambda v: 3.0 * v["n"]),
        },
    )


def test_quantities_are_means_over_the_shares() -> None:
    """The mean of an indicator is a share, and that of a count the sum of the shares of its parts,
    exact and simulated."""
    from fmdp.simulation.inspect import _Simulated

    model = counted()
    policy = fmdp.plan(model).policy
    exact = fmdp.inspect(model, policy)
    down = 3 * (exact.states["a"]["down"] + exact.states["b"]["down"])
    assert exact.quantities["fixes"] == pytest.approx(exact.actions["do"]["fix"])
    assert exact.quantities["down"] == pytest.approx(down)
    low, high = exact.bounds["quantities"]["down"]
    assert low <= down <= high
    assert exact.gain == pytest.approx(sum(exact.factors.values()))  # quantities pay nothing
    assert exact.to_dict()["quantities"] == exact.quantities
    assert "mean of down: " in str(exact)
    simulated = _Simulated(model, policy, {}, 50_000, 1, None).summary(5)
    assert simulated.quantities.keys() == exact.quantities.keys()
    for name, value in exact.quantities.items():
        low, high = simulated.bounds["quantities"][name]
        assert low <= value <= high


@pytest.mark.parametrize(
    ("name", "kind"),
    [("n", "a derived variable"), ("a", "a state variable"), ("do", "an action variable")],
)
def test_a_limit_on_a_variable_says_what_to_define(name: str, kind: str) -> None:
    with pytest.raises(fmdp.FmdpError, match=rf"\({name} is {kind}: define a quantity of it\)"):
        fmdp.plan(counted(), limits={name: ("<=", 0.5)})
