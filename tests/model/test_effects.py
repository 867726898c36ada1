"""Models from effects: the tables over (s, a), what is alike in them, and what is refused."""

from __future__ import annotations

import itertools
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fmdp import Any as Any_
from fmdp import Count, expand
from fmdp.errors import InvalidModel, TooLarge
from fmdp.model import Alike, Effect, Effects, FactoredMDP, OptimisticTables, Structure
from fmdp.testing import strategies

LAW = np.array([[0.7, 0.3, 0.0], [0.0, 0.7, 0.3], [0.0, 0.0, 1.0]])
REPAIR = [0, 0, 1, 0, 2, 0]  # [level, action]: leave, or make new


def two(**changes: Any) -> FactoredMDP:
    """Two machines of three levels that may be repaired."""
    given: dict[str, Any] = {
        "state_sizes": (3, 3),
        "action_sizes": (2, 2),
        "effects": [Effect((0,), (2,), np.array(REPAIR)), Effect((1,), (3,), np.array(REPAIR))],
        "transitions": [([0], LAW), ([1], LAW)],
        "rewards": [
            ("cost", [0, 2], [[0, -1], [0, -1], [0, -3]]),
            ("setup", [], [0.0, -0.5]),
            ("before", [0, 1], np.arange(9.0)),
            ("after", [1], [0.0, 0.25, 0.5]),
        ],
    }
    return FactoredMDP.from_effects(**{**given, **changes})


def test_tables_over_states_and_actions_by_hand() -> None:
    model = two()
    s = model.structure
    assert s.transition_scopes == ((0, 2), (1, 3))
    assert s.reward_scopes == ((0, 2), (2, 3), (0, 1), (1, 3))
    np.testing.assert_array_equal(model.transitions[0], LAW[REPAIR])
    np.testing.assert_array_equal(model.rewards[1], [0.0, -0.5, -0.5, -0.5])
    np.testing.assert_array_equal(model.rewards[3], [0.0, 0.0, 0.25, 0.0, 0.5, 0.0])
    assert s.reward_ranges == ((-3.0, 0.0), (-0.5, 0.0), (0.0, 8.0), (0.0, 0.5))
    assert s.alike is not None
    assert s.transition_classes_of(0).tolist() == [0, 0, 1, 0, 2, 0]
    assert s.n_transition_classes == 6
    assert s.max_scope_size == 9
    assert pickle.loads(pickle.dumps(model)) == model


@given(st.data())
@settings(max_examples=60)
def test_rows_are_those_of_what_the_action_leaves(data: st.DataObject) -> None:
    model = data.draw(strategies.effect_models())
    s, effects = model.structure, model.structure.effects
    assert effects is not None
    laws: dict[tuple[int, tuple[int, ...]], np.ndarray] = {}
    for state in itertools.product(*map(range, s.state_sizes)):
        for action in itertools.product(*map(range, s.action_sizes)):
            x, y = state + action, list(state)
            for effect in effects.components:
                own = [x[v] for v in effect.scope]
                left = effect.outcome[np.ravel_multi_index(own, [s.sizes[v] for v in effect.scope])]
                values = np.unravel_index(left, [s.sizes[v] for v in effect.states])
                for v, value in zip(effect.states, values, strict=True):
                    y[v] = int(value)
            for i, scope in enumerate(effects.after_scopes):
                row = model.transition_row(i, state, action)
                told = laws.setdefault((i, tuple(y[v] for v in scope)), row)
                assert np.array_equal(told, row)


def test_rewards_over_derived_variables() -> None:
    worn = Count(["s0", "s1"], 2)
    rewards = [
        ("setup", ["busy"], [0.0, -0.5]),
        ("before", ["worn"], [0.0, -1.0, -4.0]),
    ]
    model = two(rewards=rewards, derived={"busy": Any_(["a0", "a1"], 1), "worn": worn})
    assert model.expected_reward((2, 2), (0, 1)) == -4.5
    expanded = expand(model)
    assert expanded.structure.reward_scopes == ((2, 3), (0, 1))
    np.testing.assert_array_equal(expanded.rewards[0], [0.0, -0.5, -0.5, -0.5])
    assert expanded.structure.effects == model.structure.effects


@pytest.mark.parametrize(
    ("reward", "message"),
    [
        (("before", ["busy"], [0.0, 1.0]), "a function of the state before the action, but"),
        (("setup", ["worn"], [0.0, 1.0, 1.0]), "a function of whether anything is done, but"),
        (("setup", ["odd"], [0.0, 1.0]), "may mean that nothing or that something is done"),
        (("setup", ["number"], [0.0, 1.0, 2.0]), "something is done are of several classes"),
        (("setup", ["a0"], [0.0, 1.0]), "or derived variables alone"),
        (("after", ["worn"], [0.0, 1.0, 2.0]), "must be state variables 0..1"),
        (("cost", ["busy"], [0.0, 1.0]), "must lie inside one component"),
    ],
)
def test_rewards_over_unsuitable_derived_variables_are_refused(reward: Any, message: str) -> None:
    derived = {
        "busy": Any_(["a0", "a1"], 1),
        "number": Count(["a0", "a1"], 1),
        "odd": (["a0", "a1"], lambda v: (v["a0"] + v["a1"]) % 2),
        "worn": Count(["s0", "s1"], 2),
    }
    with pytest.raises(InvalidModel, match=message):
        two(rewards=[reward], derived=derived)


def test_alike_rows_of_the_given_tables_are_kept() -> None:
    machines = Alike((np.arange(3), np.arange(3)), (np.arange(6), np.array([6, 7]),
                     np.arange(8, 17), np.arange(17, 20)))  # fmt: skip
    model = two(alike=machines)
    assert model.structure.n_transition_classes == 3
    assert model.structure.transition_classes_of(1).tolist() == [0, 0, 1, 0, 2, 0]
    with pytest.raises(InvalidModel, match="the tables over what the actions leave have"):
        two(alike=Alike((np.arange(3),), ()))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"effects": [((0,), (2,), REPAIR)]}, r'action variable 3 \("a1"\) is in no component'),
        (
            {"effects": [((0,), (2,), REPAIR), ((0,), (3,), REPAIR)]},
            "variable 0 is in two components",
        ),
        ({"effects": [((0,), (2,), REPAIR[:4])] * 2}, "variable 0 is in two components"),
        (
            {"effects": [((0,), (2,), REPAIR[:4]), ((1,), (3,), REPAIR)]},
            r"effect on states \(0,\) has 4 entries; must have 6",
        ),
        ({"effects": [((0,), (2,), [0.5] * 6), ((1,), (3,), REPAIR)]}, "one index for each"),
        ({"effects": [((), (2,), REPAIR), ((1,), (3,), REPAIR)]}, "must be at least one"),
        ({"effects": [((0,), (2,)), ((1,), (3,), REPAIR)]}, "effect 0 has 2 parts"),
        ({"effects": [((2,), (0,), REPAIR), ((1,), (3,), REPAIR)]}, "must be state variables 0..1"),
        ({"transitions": [([0], LAW)]}, "1 transition factors for 2 state variables"),
        ({"transitions": [([0], LAW[:2]), ([1], LAW)]}, r'factor 0 \("s0"\): the table has shape'),
        ({"transitions": [([0], LAW / 2), ([1], LAW)]}, r"row 0 \(s0=0\): sums to 0.5"),
        ({"transitions": [([2], LAW[:2]), ([1], LAW)]}, r"scope after the action is \(2,\)"),
        ({"rewards": [("costs", [0], [0, 0, 0])]}, 'did you mean "cost"'),
        ({"rewards": [("cost", [0, 1], np.zeros((3, 3)))]}, "must lie inside one component"),
        ({"rewards": [("before", [0, 2], np.zeros((3, 2)))]}, "its scope has variable 2"),
        ({"rewards": [("setup", [2], [0, 0])]}, "an empty scope and two means"),
        ({"rewards": [("setup", [], [0, 1, 1])]}, "an empty scope and two means"),
        ({"rewards": [("after", [0])]}, "reward 0 has 2 parts"),
    ],
)
def test_what_is_no_model_is_refused_by_name(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidModel, match=message) as caught:
        two(**changes)
    assert "\n" not in str(caught.value)


def test_full_tables_are_predicted_and_refused() -> None:
    """An "after" reward over everything has |S| |A| entries; "before" would have |S|."""
    n = 8
    law = np.full((8, 8), 1 / 8)
    with pytest.raises(TooLarge, match=r'reward factor 0 \("r0"\)'):
        FactoredMDP.from_effects(
            (8,) * n,
            (8,) * n,
            [((i,), (n + i,), np.zeros(64, dtype=np.int64)) for i in range(n)],
            [([i], law) for i in range(n)],
            [("after", range(n), np.zeros(8**n))],
        )


def test_classes_finer_than_what_the_actions_leave_are_refused() -> None:
    """A learner's tables would not be functions of y, and the plan by components not theirs."""
    model = two()
    s = model.structure
    with pytest.raises(InvalidModel, match="lead to the same values after the action") as caught:
        s.with_factors(
            s.transition_scopes, s.reward_scopes, s.reward_ranges, s.reward_names, effects=s.effects
        )
    assert 'transition factor 0 ("s0"): row 0 (s0=0, a0=0) and row 1 (s0=0, a0=1)' in str(
        caught.value
    )
    assert s.alike is not None
    rewards = list(s.alike.rewards)
    rewards[1] = np.array([100, 101, 102, 103])
    with pytest.raises(InvalidModel, match="set-up reward, but rows in which something is done"):
        s.with_factors(
            s.transition_scopes, s.reward_scopes, s.reward_ranges, s.reward_names,
            alike=Alike(s.alike.transitions, tuple(rewards)), effects=s.effects,
        )  # fmt: skip


@pytest.mark.parametrize(
    ("scopes", "kinds", "after", "message"),
    [
        (((0,),), (), (), r"scope is \(0,\); must be \(0, 1\)"),
        (((0, 1),), ("cost",), (), "1 kinds for 0 reward factors"),
        (((0, 1),), ("soon",), (), "must be one of before, after, cost, setup"),
        (((0, 1),), ("cost",), ((0,),), "only one of after has such a scope"),
        (((0, 1),), ("cost",), ((), ()), "2 scopes after the action for 1 rewards"),
    ],
)
def test_effects_that_do_not_fit_the_factors_are_refused(
    scopes: Any, kinds: Any, after: Any, message: str
) -> None:
    with pytest.raises(InvalidModel, match=message):
        Structure(
            (2,),
            (2,),
            scopes,
            (),
            effects=Effects((Effect((0,), (1,), np.array([0, 0, 1, 0])),), ((0,),), kinds, after),
            alike=Alike((np.zeros(2 ** len(scopes[0]), dtype=np.int64),), ()),
        )


def test_the_extended_model_has_no_effects() -> None:
    """Its targets are chosen with the action: nothing is left to chance."""
    tables = OptimisticTables.from_model(two())
    assert tables.extended().structure.effects is None
