"""Structure: derived quantities by hand, content equality, and errors that name the culprit."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from dataclasses import FrozenInstanceError, replace
from typing import Any

import numpy as np
import pytest

from fmdp.errors import InvalidModel, InvalidParameter, UnknownName
from fmdp.model import Structure

SMALL = Structure(
    state_sizes=(2, 3),
    action_sizes=(4, 2),
    transition_scopes=((0, 2), (0, 1, 3)),
    reward_scopes=((1, 2, 3), ()),
    reward_ranges=((0.0, 1.0), (-2.0, 0.5)),
    state_names=("door", "lamp"),
    action_names=("push", "pull"),
    state_values=(("open", "shut"), ("red", "green", "blue")),
)


def test_derived_quantities_by_hand() -> None:
    assert (SMALL.m, SMALL.l) == (2, 2)
    assert SMALL.sizes == (2, 3, 4, 2)
    assert SMALL.names == ("door", "lamp", "push", "pull")
    assert (SMALL.n_states, SMALL.n_actions) == (6, 8)
    assert SMALL.transition_rows == (8, 12)
    assert SMALL.reward_rows == (24, 1)
    assert SMALL.max_scope_size == 24
    assert SMALL.max_state_size == 3
    assert SMALL.reward_range_total == 3.5
    assert SMALL.scope_sizes((1, 3)) == (3, 2)
    assert (SMALL.state_scope(1), SMALL.action_scope(1)) == ((0, 1), (3,))
    assert SMALL.reward_state_scope(0) == (1,)
    assert SMALL.scope_row((0, 1, 3), (1, 2), (0, 1)) == 6 + 4 + 1
    assert SMALL.variable("pull") == 3


def test_defaults() -> None:
    s = Structure((2, 2), (3,), ((), ()), ((), ()))
    assert s.state_names == ("s0", "s1")
    assert s.action_names == ("a0",)
    assert s.reward_names == ("r0", "r1")
    assert s.action_values == (("0", "1", "2"),)
    assert s.reward_ranges == ((0.0, 1.0), (0.0, 1.0))
    assert s.groups == ()


def test_labels_name_variables_and_values() -> None:
    assert SMALL.transition_label(1) == 'transition factor 1 ("lamp")'
    assert SMALL.reward_label(0) == 'reward factor 0 ("r0")'
    assert SMALL.row_label((0, 1, 3), 11) == "row 11 (door=shut, lamp=blue, pull=1)"
    assert SMALL.row_label((), 0) == "row 0 (empty scope)"


def test_counts_are_exact_for_a_thousand_variables() -> None:
    s = Structure((2,) * 1000, (3,), ((),) * 1000, ())
    assert s.n_states == 2**1000


def test_equality_and_hash_are_by_content() -> None:
    as_lists: dict[str, Any] = {
        "state_sizes": [np.int64(2), 3],
        "transition_scopes": [[0, 2], [0, 1, 3]],
    }
    again = replace(SMALL, **as_lists)
    assert again == SMALL
    assert hash(again) == hash(SMALL)
    assert type(again.state_sizes[0]) is int
    assert replace(SMALL, state_names=("door", "light")) != SMALL
    assert copy.deepcopy(SMALL) == SMALL


def test_default_names_equal_the_same_names_written_out() -> None:
    bare = Structure((2,), (2,), ((0,),), ())
    named = Structure((2,), (2,), ((0,),), (), state_names=("s0",), state_values=(("0", "1"),))
    assert bare == named
    assert hash(bare) == hash(named)


def test_value_names_may_be_given_for_some_variables() -> None:
    s = Structure((2, 2), (2,), ((), ()), (), state_values=((), ("down", "up")))
    assert s.state_values == (("0", "1"), ("down", "up"))


def test_groups_are_sets() -> None:
    s = Structure((2,) * 4, (2,), ((),) * 4, (), groups=((3, 1), (2, 0)))
    assert s.groups == ((0, 2), (1, 3))


def test_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        SMALL.state_sizes = (2, 2)  # type: ignore[misc]


def test_a_pickled_structure_hashes_right_in_another_process() -> None:
    """String hashes differ between processes; a cached one must not travel."""
    hash(SMALL)
    code = (
        "import pickle, sys; a = pickle.loads(sys.stdin.buffer.read()); b = a.__reduce__();"
        "assert hash(a) == hash(b[0](*b[1]))"
    )
    subprocess.run(
        [sys.executable, "-c", code],
        input=pickle.dumps(SMALL),
        check=True,
        env={"PYTHONPATH": ":".join(sys.path), "PYTHONHASHSEED": "77"},
    )


GOOD: dict[str, Any] = {
    "state_sizes": (2, 2),
    "action_sizes": (2,),
    "transition_scopes": ((0,), (1,)),
    "reward_scopes": ((0,),),
}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"state_sizes": (2, 0)}, ["state variable 1", "0", "1..16777216"]),
        ({"state_sizes": (2, 2.0)}, ["state variable 1", "2.0", "whole number"]),
        ({"state_sizes": (True, 2)}, ["state variable 0", "True"]),
        ({"state_sizes": (), "transition_scopes": ()}, ["no state variable"]),
        ({"action_sizes": (10**40,)}, ["action variable 0", "about 10^40", "1..16777216"]),
        ({"transition_scopes": (0, 1)}, ['factor 0 ("s0"): scope is 0', "list"]),
        ({"action_sizes": ()}, ["no action variable"]),
        ({"transition_scopes": ((0,),)}, ["1 transition scopes", "2 state variables"]),
        ({"transition_scopes": ((0,), (3,))}, ['factor 1 ("s1")', "variable 3", "0..2"]),
        ({"transition_scopes": ((0,), (-1,))}, ['factor 1 ("s1")', "-1", "0..2"]),
        ({"transition_scopes": ((1, 0), (1,))}, ['factor 0 ("s0")', "(1, 0)", "sorted"]),
        ({"transition_scopes": ((1, 1), (1,))}, ['factor 0 ("s0")', "(1, 1)", "repeats"]),
        ({"reward_scopes": (("0",),)}, ['reward factor 0 ("r0")', "'0'", "0..2"]),
        ({"reward_ranges": ((0, 1), (0, 1))}, ["2 reward ranges", "1 reward factors"]),
        ({"reward_ranges": ((1, 0),)}, ['reward factor 0 ("r0")', "[1.0, 0.0]", "lo <= hi"]),
        ({"reward_ranges": ((0, float("nan")),)}, ['reward factor 0 ("r0")', "nan", "finite"]),
        ({"reward_ranges": ((-1e308, 1e308),)}, ['reward factor 0 ("r0")', "finite"]),
        ({"reward_ranges": ((0, 10**400),)}, ['reward factor 0 ("r0")', "two numbers"]),
        ({"reward_ranges": (3,)}, ['reward factor 0 ("r0")', "3", "two numbers"]),
        ({"state_names": ("x",)}, ["state names", "2 names"]),
        ({"state_names": "xy"}, ["state names", "'xy'"]),
        ({"state_names": ("x", "")}, ["state 1", "''", "non-empty"]),
        ({"state_names": ("x", "y\nz")}, ["state 1", "printable"]),
        ({"state_names": ("x", 3)}, ["state 1", "3"]),
        ({"state_names": ("x", "a0")}, ["variable name", '"a0"', "twice"]),
        ({"reward_names": ("x", "y")}, ["reward names", "1 names"]),
        ({"state_values": (("0", "1"),)}, ["1 state variables", "2"]),
        ({"state_values": (("0", "1"), ("0",))}, ['"s1"', "1 value names", "2"]),
        ({"state_values": (("0", "1"), ("up", "up"))}, ['"s1"', '"up"', "twice"]),
        ({"state_values": (("0", "1"), ("up", ""))}, ['"s1"', "''", "printable"]),
        ({"groups": ((0, 2),)}, ["group 0", "2", "0..1"]),
        ({"groups": ((0,), (1, 0))}, ["group 1", "variable 0", "group 0", "disjoint"]),
        ({"groups": (0,)}, ["group 0 is 0", "list"]),
        ({"groups": ((),)}, ["group 0", "empty"]),
    ],
)
def test_errors_name_the_culprit(change: dict[str, Any], words: list[str]) -> None:
    Structure(**GOOD)
    with pytest.raises(InvalidModel) as caught:
        Structure(**(GOOD | change))
    message = str(caught.value)
    assert "\n" not in message
    for word in words:
        assert word in message


@pytest.mark.parametrize("ranges", [((0, 1.5e308), (0, 1.5e308)), ((0, 1), (-1e301, 0))])
def test_rewards_near_the_end_of_numbers_are_refused(
    ranges: tuple[tuple[float, float], ...],
) -> None:
    with pytest.raises(
        InvalidModel, match=r"rewards of a step may sum to .*; must be at most 1e\+300"
    ):
        Structure((2,), (2,), ((),), ((), ()), reward_ranges=ranges)


def test_states_and_actions_are_checked() -> None:
    assert SMALL.check_state(np.array([1, 2])) == (1, 2)
    with pytest.raises(InvalidParameter, match=r'state \(0, 3\): "lamp" is 3; must be in 0\.\.2'):
        SMALL.check_state(np.array([0, 3]))
    with pytest.raises(InvalidParameter, match=r"action \(0,\) has 1 values; must have 2"):
        SMALL.check_action((0,))
    with pytest.raises(UnknownName, match=r'"lmap".*did you mean "lamp"'):
        SMALL.variable("lmap")
