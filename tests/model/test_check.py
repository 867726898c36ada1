"""Findings about models: each kind by hand, and none for a clean model."""

from __future__ import annotations

from typing import Any

import numpy as np

import fmdp
from fmdp.model import FactoredMDP, Intervals


def kinds(model: FactoredMDP) -> list[tuple[str, str]]:
    return [(finding.kind, finding.where) for finding in model.check()]


def pump(**more: Any) -> FactoredMDP:
    """A clean model: a pump that a crew repairs."""
    given: dict[str, Any] = {
        "states": {"pump": ["good", "bad"]},
        "actions": {"crew": ["rest", "fix"]},
        "parents": {"pump": ["pump", "crew"]},
        "transition": lambda n, v: (
            "good" if v["crew"] == "fix" else "bad" if v["pump"] == "bad" else [0.9, 0.1]
        ),
        "reward": {"flow": (["pump"], lambda v: v["pump"] == "good")},
        "costs": {"wages": (["crew"], lambda v: 0.5 * (v["crew"] == "fix"))},
    }
    return FactoredMDP.from_functions(**(given | more))


def test_a_clean_model() -> None:
    assert pump().check() == []


def test_a_parent_that_is_never_read() -> None:
    model = pump(
        reward={"flow": (["pump", "crew"], lambda v: v["pump"] == "good")},
    )
    (finding,) = model.check()
    assert (finding.kind, finding.where) == ("unread_parent", "flow")
    assert str(finding) == (
        'the reward factor "flow" does not depend on "crew", which its scope has'
    )


def test_intervals_count_as_reading() -> None:
    model = pump(reward={"flow": (["pump", "crew"], lambda v: v["pump"] == "good")})
    s = model.structure
    lower = model.rewards[0].copy()
    lower[0] -= 0.25  # only the interval depends on the crew
    same = model.transitions
    ends = Intervals(same, same, (lower, model.rewards[1]), model.rewards)
    wide = s.with_ranges([(-1.0, 1.0), s.reward_ranges[1]])
    assert FactoredMDP(wide, same, model.rewards, intervals=ends).check() == []


def test_absorbing_and_unreachable_values() -> None:
    model = pump(
        states={"pump": ["good", "bad", "gone"]},
        transition=lambda n, v: (
            "gone" if v["pump"] == "gone" else "good" if v["crew"] == "fix" else [0.5, 0.5, 0]
        ),
    )
    assert kinds(model) == [("absorbing_value", "pump"), ("unreachable_value", "pump")]
    texts = [finding.text for finding in model.check()]
    assert texts[0] == '"pump" never leaves "gone", whatever is done'
    assert texts[1] == '"pump" is never "gone" when it starts in the initial state'
    # What an interval makes possible is reached.
    zeros = np.zeros_like(model.transitions[0])
    ends = Intervals((zeros,), (zeros + 1,), model.rewards, model.rewards)
    wide = FactoredMDP(model.structure, model.transitions, model.rewards, intervals=ends)
    assert wide.check() == []


def test_a_variable_that_never_changes_or_matters() -> None:
    model = pump(
        states={"pump": ["good", "bad"], "site": ["north", "south"]},
        parents={"pump": ["pump", "crew"], "site": ["site"]},
        transition=lambda n, v: (
            v["site"] if n == "site" else "good" if v["crew"] == "fix" else [0.5, 0.5]
        ),
    )
    assert kinds(model) == [
        ("unread_parent", "pump"),  # the next value does not depend on the last one
        ("absorbing_value", "site"),
        ("unreachable_value", "site"),
        ("without_effect", "site"),
    ]
    assert '"site" never changes' in model.check()[1].text


def test_equal_factors_and_alike_ones() -> None:
    states = {"left": 2, "right": 2}
    given: dict[str, Any] = {
        "states": states,
        "actions": {"crew": ["rest", "left", "right"]},
        "parents": {name: [name, "crew"] for name in states},
        "transition": lambda n, v: 0 if v["crew"] != "rest" else [0.5, 0.5] if not v[n] else 1,
        "reward": {f"of {n}": ([n], lambda v, n=n: v[n]) for n in states},
    }
    equal = FactoredMDP.from_functions(**given)
    assert kinds(equal) == [
        ("equal_factors", "left"),
        ("equal_factors", "of left"),
        ("equal_actions", "crew"),
    ]
    assert '"left" and "right" of the action variable "crew"' in equal.check()[2].text
    alike = FactoredMDP.from_functions(
        **given,
        alike=lambda n, v: (v[n], v["crew"]),
        reward_alike=lambda n, v: tuple(v.values()),
    )
    assert kinds(alike) == [("equal_actions", "crew")]


def test_a_constraint_makes_a_difference() -> None:
    model = pump(
        actions={"crew": ["rest", "fix", "also"]},
        transition=lambda n, v: "bad" if v["crew"] == "rest" and v["pump"] == "bad" else [0.9, 0.1],
        costs={"wages": (["crew"], lambda v: 0.5 * (v["crew"] != "rest"))},
    )
    assert kinds(model) == [("equal_actions", "crew")]
    ruled = model.with_constraints(fmdp.forbid(model, {"crew": "also", "pump": "good"}))
    assert ruled.check() == []


def test_constant_rewards_and_idle_actions() -> None:
    model = pump(
        costs={"rent": (["crew"], lambda v: 2)},
        parents={"pump": ["pump"]},
        transition=lambda n, v: [0.5, 0.5] if v["pump"] == "good" else "good",
    )
    assert kinds(model) == [("constant_reward", "rent"), ("without_effect", "crew")]
    assert "is constant (-2)" in model.check()[0].text


def test_a_derived_variable_carries_effects() -> None:
    model = fmdp.FactoredMDP.from_functions(
        states={"left": ["up", "down"], "right": ["up", "down"]},
        actions={"crew": ["rest", "left", "right"]},
        parents={"left": ["left", "crew"], "right": ["right", "crew"]},
        transition=lambda n, v: "up" if v["crew"] == n else [0.5, 0.5] if v[n] == "up" else "down",
        derived={"number": fmdp.Count(["left", "right"], "down")},
        reward={"few": (["number"], lambda v: v["number"] == 0)},
    )
    assert kinds(model) == []
