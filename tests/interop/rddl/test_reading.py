"""What RDDL says, by hand-made domains whose numbers can be checked on paper."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import numpy as np
import pytest

import fmdp
from fmdp.errors import FmdpError, InvalidModel, TooLarge
from fmdp.interop.rddl import Imported, imported
from fmdp.interop.rddl.sources import files_of
from fmdp.model.constraints import AtMost, Forbidden

pytest.importorskip("pyRDDLGym")


def made(
    folder: Path,
    fluents: str,
    laws: str,
    reward: str = "0",
    *,
    types: str = "",
    objects: str = "",
    constants: str = "",
    first: str = "",
    most: str = "1",
    rest: str = "",
) -> Imported:
    """The model of a domain that is written here."""
    (folder / "domain.rddl").write_text(
        f"domain d {{ types {{ {types} }}; pvariables {{ {fluents} }}; cpfs {{ {laws} }}; "
        f"reward = {reward}; {rest} }}\n"
    )
    told = f"objects {{ {objects} }};" if objects else ""
    told += f"non-fluents {{ {constants} }};" if constants else ""
    begin = f"init-state {{ {first} }};" if first else ""
    (folder / "instance.rddl").write_text(
        f"non-fluents n {{ domain = d; {told} }}\n"
        f"instance i {{ domain = d; non-fluents = n; {begin} max-nondef-actions = {most}; "
        f"horizon = 7; discount = 0.9; }}\n"
    )
    return imported(f"{folder}/domain.rddl+{folder}/instance.rddl")


GO = "go : {action-fluent, bool, default = false};"
BIT = "s : {state-fluent, bool, default = false};"


def test_a_bernoulli_by_branches(tmp_path: Path) -> None:
    law = "s' = if (go) then Bernoulli(0.9) else if (s) then Bernoulli(.25) else KronDelta(false);"
    found = made(tmp_path, BIT + GO, law, "s - 0.5*go")
    model = found.model
    assert model.structure.state_names == ("s",)
    assert model.structure.state_values == (("false", "true"),)
    assert model.structure.action_names == ("go",)
    assert found.instance.horizon == 7
    assert found.instance.discount == 0.9
    assert model.transition_row(0, (0,), (0,)).tolist() == [1.0, 0.0]
    assert model.transition_row(0, (1,), (0,)).tolist() == [0.75, 0.25]
    np.testing.assert_allclose(model.transition_row(0, (0,), (1,)), [0.1, 0.9])
    assert model.expected_reward((1,), (1,)) == 0.5
    # The two rows in which the first branch is taken are alike by the text.
    own = model.structure.transition_classes_of(0)
    assert own[1] == own[3]
    assert len(set(own.tolist())) == 3


def test_quantifiers_and_non_fluents_give_the_parents(tmp_path: Path) -> None:
    found = made(
        tmp_path,
        "E(o, o) : {non-fluent, bool, default = false}; P : {non-fluent, real, default = 0.5};"
        "s(o) : {state-fluent, bool, default = true};"
        "go(o) : {action-fluent, bool, default = false};",
        "s'(?x) = if (go(?x)) then KronDelta(true) else "
        "Bernoulli(P * (sum_{?y : o} [E(?y, ?x) ^ s(?y)]) / (1 + sum_{?y : o} E(?y, ?x)));",
        "sum_{?x : o} [s(?x)]",
        types="o : object;",
        objects="o : {a, b, c};",
        constants="E(a, b); E(c, b); P = 0.6;",
    )
    structure = found.model.structure
    assert structure.state_names == ("s___a", "s___b", "s___c")
    assert structure.action_values == (("noop", "go___a", "go___b", "go___c"),)
    # a and c have no parents but the action; b reads a and c, not itself.
    assert structure.transition_scopes == ((3,), (0, 2, 3), (3,))
    row = found.model.transition_row(1, (1, 0, 1), (0,))
    np.testing.assert_allclose(row, [0.6, 0.4])  # 0.6 * 2 / 3
    assert structure.reward_scopes == ((0,), (1,), (2,))


def test_a_group_of_which_one_holds_is_one_variable(tmp_path: Path) -> None:
    found = made(
        tmp_path,
        "NEXT(o, o) : {non-fluent, bool, default = false}; "
        "at(o) : {state-fluent, bool, default = false};" + GO,
        "at'(?x) = if (go) then [if (exists_{?y : o} [NEXT(?y, ?x) ^ at(?y)]) then Bernoulli(0.8) "
        "else KronDelta(false)] else KronDelta(at(?x));",
        "sum_{?x : o} [at(?x) ^ ~go]",
        types="o : object;",
        objects="o : {a, b, c, d};",
        constants="NEXT(a, b); NEXT(b, c); NEXT(c, a);",
        first="at(b);",
    )
    structure = found.model.structure
    assert structure.state_names == ("at",)
    # d is never entered, and nowhere is: with .2 the move fails and nothing holds.
    assert structure.state_values == (("none", "a", "b", "c"),)
    assert found.model.initial_state == (2,)
    np.testing.assert_allclose(found.model.transition_row(0, (2,), (1,)), [0.2, 0, 0, 0.8])
    assert found.fluents((2,)) == {"at___a": 0, "at___b": 1, "at___c": 0, "at___d": 0}
    assert found.state({"at___a": 0, "at___b": 0, "at___c": 1, "at___d": 0}) == (3,)
    with pytest.raises(InvalidModel, match="at___d is True, but it is false"):
        found.state({"at___a": 0, "at___b": 0, "at___c": 1, "at___d": True})


def test_a_group_that_may_hold_twice_stays_as_it_is(tmp_path: Path) -> None:
    # From a the token may go to b and stay at a, by draws of their own: two can hold.
    found = made(
        tmp_path,
        "at(o) : {state-fluent, bool, default = false};" + GO,
        "at'(?x) = if (go ^ exists_{?y : o} [at(?y)]) then Bernoulli(0.5) else KronDelta(at(?x));",
        types="o : object;",
        objects="o : {a, b};",
        first="at(a);",
    )
    assert found.model.structure.state_names == ("at___a", "at___b")


def test_a_fluent_that_never_changes_is_no_variable(tmp_path: Path) -> None:
    fluents = BIT + "k : {state-fluent, bool, default = true};" + GO
    found = made(tmp_path, fluents, "k' = k | s; s' = if (k) then Bernoulli(.5) else s ^ go;")
    assert found.model.structure.state_names == ("s",)
    assert found.fixed == {"k": True}


def test_actions_that_nothing_reads_are_left_out(tmp_path: Path) -> None:
    fluents = BIT + GO + "idle : {action-fluent, bool, default = false};"
    found = made(tmp_path, fluents, "s' = s | go;")
    assert found.model.structure.action_names == ("go",)


def test_whole_numbers_have_the_range_that_they_reach(tmp_path: Path) -> None:
    law = "n' = if (go) then min[n + 2, 7] else if (n > 0) then n - Bernoulli(0.5) else 0;"
    found = made(tmp_path, "n : {state-fluent, int, default = 1};" + GO, law, "n * n")
    structure = found.model.structure
    assert structure.state_values == (tuple(map(str, range(8))),)
    assert found.model.initial_state == (1,)
    row = found.model.transition_row(0, (3,), (0,))
    assert row.tolist() == [0, 0, 0.5, 0.5, 0, 0, 0, 0]
    assert found.model.expected_reward((6,), (0,)) == 36


def test_enumerated_types_discrete_and_switch(tmp_path: Path) -> None:
    found = made(
        tmp_path,
        "c : {state-fluent, color, default = @red};" + GO,
        "c' = switch (c) { case @red : Discrete(color, @red : 0.5, @green : 0.3, @blue : 0.2), "
        "case @green : if (go) then @blue else @green, default : @red };",
        "if (c == @blue) then 3 else 1",
        types="color : {@red, @green, @blue};",
    )
    assert found.model.structure.state_values == (("red", "green", "blue"),)
    rows = [found.model.transition_row(0, (v,), (1,)).tolist() for v in range(3)]
    assert rows == [[0.5, 0.3, 0.2], [0, 0, 1], [1, 0, 0]]
    assert found.model.expected_reward((2,), (0,)) == 3


def test_a_drawn_intermediate_fluent_that_decides_one_variable_is_summed_out(
    tmp_path: Path,
) -> None:
    fluents = "n : {state-fluent, int, default = 0}; z : {interm-fluent, bool};" + GO
    law = "z = Bernoulli(0.25); n' = if (go) then (if (z) then 2 else 0) else (z + z);"
    found = made(tmp_path, fluents, law)
    # z + z is 0 or 2 and never 1: one draw, read twice.
    assert found.model.structure.state_values == (("0", "2"),)
    assert found.model.transition_row(0, (0,), (0,)).tolist() == [0.75, 0.25]


def test_a_drawn_intermediate_fluent_that_decides_two_variables_is_derived(
    tmp_path: Path,
) -> None:
    fluents = (
        "s : {state-fluent, bool, default = false}; t : {state-fluent, bool, default = false};"
        "y : {interm-fluent, bool}; z : {interm-fluent, bool};" + GO
    )
    law = "y = Bernoulli(.5); z = if (y) then go else Bernoulli(.2); s' = y; t' = ~z;"
    model = made(tmp_path, fluents, law, "4 * z + s").model
    assert [variable.name for variable in model.structure.derived] == ["y"]
    flat = fmdp.flatten(model)
    # y is true in half of the steps; then z is go, and otherwise it holds in a fifth of them.
    wait = [0.1, 0.4, 0.0, 0.5]  # (s', t') = (0, 0), (0, 1), (1, 0), (1, 1)
    go = [0.1, 0.4, 0.5, 0.0]
    np.testing.assert_allclose(flat.transitions, [[wait] * 4, [go] * 4])
    np.testing.assert_allclose(flat.rewards, [[0.4, 0.4, 1.4, 1.4], [2.4, 2.4, 3.4, 3.4]])


@pytest.mark.parametrize(
    "law",
    [
        "W(Discrete_{?x : o}(P(?x)))",
        "W(UnnormDiscrete_{?x : o}(10 * P(?x)))",
        "switch (Discrete(o, @a : .2, @b : .5, @c : .3)) { case @b : 2, case @a : 1, default : 3 }",
        "switch (UnnormDiscrete(o, @a : 2, @b : 5, @c : 3)) {case @c : 3, case @a : 1, default:2}",
        (
            "switch (if (go) then Discrete(o, @a : 0.2, @b : 0.5, @c : 0.3) else @b) "
            "{ case @b : 2, case @a : 1, case @c : 3 }"
        ),
    ],
)
def test_a_choice_by_a_draw_draws_once(tmp_path: Path, law: str) -> None:
    found = made(
        tmp_path,
        "W(o) : {non-fluent, int, default = 1}; P(o) : {non-fluent, real, default = 0.2};"
        "n : {state-fluent, int, default = 1};" + GO,
        f"n' = {law};",
        "n * go",
        types="o : {@a, @b, @c};",
        constants="W(@b) = 2; W(@c) = 3; P(@b) = 0.5; P(@c) = 0.3;",
    )
    np.testing.assert_allclose(found.model.transition_row(0, (0,), (1,)), [0.2, 0.5, 0.3])


def test_draws_of_their_own_are_independent(tmp_path: Path) -> None:
    law = "n' = Bernoulli(0.5) + Bernoulli(0.5) + 0 * go;"
    found = made(tmp_path, "n : {state-fluent, int, default = 0};" + GO, law)
    assert found.model.transition_row(0, (0,), (0,)).tolist() == [0.25, 0.5, 0.25]


def test_a_reward_of_the_next_state_is_its_expectation(tmp_path: Path) -> None:
    law = "s' = if (go) then Bernoulli(0.9) else s;"
    found = made(tmp_path, BIT + GO, law, "10 * s' - s")
    assert found.model.expected_reward((1,), (1,)) == pytest.approx(8.0)
    assert found.model.expected_reward((1,), (0,)) == 9.0


def test_a_wide_reward_is_taken_apart(tmp_path: Path) -> None:
    objects = ", ".join(f"x{i}" for i in range(20))
    found = made(
        tmp_path,
        "s(o) : {state-fluent, bool, default = false}; go(o) : {action-fluent, bool, "
        "default = false}; on : {state-fluent, bool, default = false};",
        "s'(?x) = Bernoulli(0.5) | go(?x); on' = ~on;",
        "if (on) then (sum_{?x : o} [s(?x)]) / 2 else -1",
        types="o : object;",
        objects=f"o : {{{objects}}};",
    )
    assert max(found.model.structure.reward_rows) <= 4
    state = (*(1,) * 20, 1)
    assert found.model.expected_reward(state, (0,)) == 10.0
    assert found.model.expected_reward((*(1,) * 20, 0), (0,)) == -1.0


def test_a_state_that_terminates_is_absorbing_and_pays_nothing(tmp_path: Path) -> None:
    law = "n' = if (go) then n + 1 else n;"
    rest = "termination { n >= 2; }; action-preconditions { n < 2 | ~go; };"
    fluents = "n : {state-fluent, int, default = 0};" + GO
    model = made(tmp_path, fluents, law, "3 * go + 1", rest=rest).model
    structure = model.structure
    # Without the end the number would grow for ever; both actions are allowed in the end.
    assert structure.state_values == (("0", "1", "2"),)
    assert model.transition_row(0, (1,), (1,)).tolist() == [0, 0, 1]
    for action in ((0,), (1,)):
        assert structure.allowed((2,), action)
        assert model.transition_row(0, (2,), action).tolist() == [0, 0, 1]
        assert model.expected_reward((2,), action) == 0
    # Five steps: wait three times at a reward of 1, and go twice at a reward of 4.
    assert fmdp.plan(model, fmdp.Exact(criterion="finite", horizon=5)).objective == pytest.approx(
        11.0
    )


def test_a_next_value_that_others_read_is_drawn_once(tmp_path: Path) -> None:
    fluents = BIT + "t : {state-fluent, bool, default = false};" + GO
    law = "s' = if (go) then Bernoulli(.25) else s; t' = s' ^ ~t;"
    model = made(tmp_path, fluents, law, "s' + 2 * t'").model
    assert [variable.name for variable in model.structure.derived] == ["next-s"]
    flat = fmdp.flatten(model)
    # (s', t') is (0, 0) or, with 1/4, (1, not t); the rewards are 0 and 1 + 2 t'.
    np.testing.assert_allclose(flat.transitions[1, 0], [0.75, 0, 0, 0.25])
    np.testing.assert_allclose(flat.transitions[1, 1], [0.75, 0, 0.25, 0])
    np.testing.assert_allclose(flat.rewards[1, :2], [0.75, 0.25])


def test_numbers_that_are_bounded_only_together_have_the_values_of_the_joint_states(
    tmp_path: Path,
) -> None:
    """A knapsack of weight 4 with items of weight 2 and values 1 or 3: by hand, values 0 to 6."""
    fluents = (
        "weight : {state-fluent, int, default = 0}; value : {state-fluent, int, default = 0};"
        "item : {state-fluent, int, default = 1}; coin : {interm-fluent, bool};" + GO
    )
    law = (
        "coin = Bernoulli(0.25); item' = if (coin) then 3 else 1;"
        "weight' = if (go ^ weight < 4) then weight + 2 else weight;"
        "value' = if (go ^ weight < 4) then value + item else value;"
    )
    found = made(tmp_path, fluents, law, "value' - value")
    model = found.model
    assert model.structure.state_names == ("weight", "value", "item")
    assert model.structure.state_values[:2] == (("0", "2", "4"), ("0", "1", "2", "3", "4", "6"))
    first = found.state({"weight": 2, "value": 3, "item": 3})
    assert model.transition_row(1, first, (1,)).tolist() == [0, 0, 0, 0, 0, 1]
    assert model.expected_reward(first, (1,)) == 3
    # Two steps with the first item at once, the other after a draw: 1 + (1/4) 3 + (3/4) 1.
    plan = fmdp.plan(model, fmdp.Exact(criterion="finite", horizon=2))
    assert plan.objective == pytest.approx(2.5)


def test_a_law_that_is_undefined_in_a_state_that_is_reached_is_refused(tmp_path: Path) -> None:
    fluents = "n : {state-fluent, int, default = 0}; m : {state-fluent, int, default = 1};" + GO
    law = "n' = if (m > 0) then n + 1 else 0; m' = if (n < 3) then 1 else 4 / (n - 4);"
    with pytest.raises(InvalidModel, match="is not defined in a state that is reached"):
        made(tmp_path, fluents, law, "n + go")


def test_an_action_that_is_a_whole_number_has_the_range_of_its_preconditions(
    tmp_path: Path,
) -> None:
    fluents = "n : {state-fluent, int, default = 0}; k : {action-fluent, int, default = 0};"
    rest = "action-preconditions { -1 <= k; k < 3; k <= n + 1; };"
    found = made(tmp_path, fluents, "n' = max[min[n + k, 4], 0];", "k * n", rest=rest)
    structure = found.model.structure
    assert structure.action_values == (("-1", "0", "1", "2"),)
    assert not structure.allowed((0,), (3,))
    assert structure.allowed((1,), (3,))
    assert found.action((3,)) == {"k": 2}
    assert found.model.expected_reward((3,), (0,)) == -3


def test_actions_whose_sum_is_at_most_one_are_one_variable(tmp_path: Path) -> None:
    found = made(
        tmp_path,
        "s(o) : {state-fluent, bool, default = false}; up(o) : {action-fluent, bool, default = "
        "false}; down(o) : {action-fluent, bool, default = false};" + GO,
        "s'(?x) = if (up(?x)) then Bernoulli(0.5) else s(?x) ^ ~down(?x) ^ ~go;",
        types="o : object;",
        objects="o : {a, b};",
        most="2",
        rest="action-preconditions { forall_{?x : o} [up(?x) + down(?x) <= 1]; };",
    )
    structure = found.model.structure
    assert structure.action_names == ("action___a", "action___b", "go")
    assert structure.action_values[1] == ("noop", "up___b", "down___b")
    assert found.action((1, 2, 0)) == {"up___a": True, "down___b": True}
    assert structure.allowed((0, 0), (1, 2, 0))
    assert not structure.allowed((0, 0), (1, 2, 1))  # three at once
    assert len(structure.constraints) == 1


def test_a_sum_with_a_number_below_zero_excludes_nothing(tmp_path: Path) -> None:
    found = made(
        tmp_path,
        "n : {state-fluent, int, default = -1}; up : {action-fluent, bool, default = false};" + GO,
        "n' = if (go ^ up) then 0 else -1;",
        most="2",
        rest="action-preconditions { go + up + n <= 1; };",
    )
    s = found.model.structure
    assert s.action_names == ("up", "go")
    assert [s.allowed((n,), (1, 1)) for n in range(2)] == [True, False]


def test_a_sum_over_many_actions_is_a_cap(tmp_path: Path) -> None:
    objects = ", ".join(f"x{i}" for i in range(25))
    found = made(
        tmp_path,
        "s(o) : {state-fluent, bool, default = false};"
        "go(o) : {action-fluent, bool, default = false};",
        "s'(?x) = Bernoulli(0.5) | go(?x);",
        types="o : object;",
        objects=f"o : {{{objects}}};",
        most="pos-inf",
        rest="action-preconditions { (sum_{?x : o} [go(?x)]) < 4; };",
    )
    (cap,) = found.model.structure.constraints
    assert isinstance(cap, AtMost)
    assert (cap.most, cap.actions) == (3, tuple(range(25, 50)))


def test_a_group_may_share_a_draw(tmp_path: Path) -> None:
    found = made(
        tmp_path,
        "at(o) : {state-fluent, bool, default = false}; place : {interm-fluent, o};" + GO,
        "place = Discrete_{?x : o}(0.5); at'(?x) = if (go) then (place == ?x) else at(?x);",
        types="o : object;",
        objects="o : {a, b};",
        first="at(b);",
    )
    assert found.model.structure.state_values == (("a", "b"),)
    assert not found.model.structure.derived
    assert found.model.transition_row(0, (1,), (1,)).tolist() == [0.5, 0.5]


TWO = "a : {action-fluent, bool, default = false}; b : {action-fluent, bool, default = false};"


def test_a_cap_on_actions_is_a_constraint(tmp_path: Path) -> None:
    fluents = BIT + TWO + GO
    found = made(tmp_path, fluents, "s' = (a ^ b) | go | s;", most="2")
    (cap,) = found.model.structure.constraints
    assert isinstance(cap, AtMost)
    assert cap.most == 2
    assert not found.model.structure.allowed((0,), (1, 1, 1))
    assert found.action((1, 0, 1)) == {"a": True, "go": True}


def test_preconditions_of_actions_are_constraints(tmp_path: Path) -> None:
    limits = "action-preconditions { a => s; ~(a ^ b); };"
    found = made(tmp_path, BIT + TWO, "s' = Bernoulli(.5) | (a ^ b);", most="2", rest=limits)
    structure = found.model.structure
    # Never two at once: all actions are one variable.
    assert structure.action_values == (("noop", "a", "b"),)
    (own,) = structure.constraints
    assert isinstance(own, Forbidden)
    assert not structure.allowed((0,), (1,))
    assert structure.allowed((1,), (1,))


@pytest.mark.parametrize(
    ("fluents", "laws", "reward", "rest", "told"),
    [
        (
            "x : {state-fluent, real, default = 0.0};" + GO,
            "x' = x;",
            "0",
            "",
            "state-fluent x is real",
        ),
        (
            BIT + GO + "o : {observ-fluent, bool};",
            "s' = s; o = s;",
            "0",
            "",
            "observ-fluent o: the state is not observed",
        ),
        (BIT + GO, "s' = s;", "0", "termination { go; };", "termination reads go"),
        (
            BIT + GO,
            "s' = s;",
            "0",
            "termination { 3 + s; };",
            "termination is a number; must be true or false",
        ),
        (
            BIT + GO,
            "s' = s;",
            "0",
            "action-preconditions { if (s) then 1 else go; };",
            "action-precondition 1 is a number; must be true or false",
        ),
        (
            BIT + GO,
            "s' = Bernoulli(0.5);",
            "0",
            "state-invariants { s; };",
            "state-invariant 1 does not hold in the first state",
        ),
        (
            BIT + GO,
            "s' = Bernoulli(0.5);",
            "0",
            "action-preconditions { ~s; };",
            "action-precondition 1 speaks of states alone (s)",
        ),
        (
            BIT + "k : {action-fluent, int, default = 0};",
            "s' = k > 2;",
            "0",
            "action-preconditions { k >= 0; };",
            "action-fluent k is a whole number from 0 to inf",
        ),
        (
            BIT + "k : {action-fluent, int, default = 0};",
            "s' = k > 2;",
            "0",
            "action-preconditions { k > 0; k < 3; };",
            "action-fluent k may not be 0, its default",
        ),
        pytest.param(
            "n : {state-fluent, int, default = 0};" + GO,
            "n' = n + go;",
            "0",
            "",
            "n is a number without end",
            marks=pytest.mark.slow,  # lists 65,536 states first
        ),
        (BIT + GO, "s' = Bernoulli(1.5 * s + go);", "0", "", "has the probability"),
        (BIT + GO, "s' = (Poisson(3) > 2);", "0", "", "the law Poisson is not read"),
        (BIT + GO, "s' = cosh[s] > 2;", "0", "", "the function cosh of 1 arguments is not read"),
        (BIT + GO, "s' = other;", "0", "", "other is no fluent"),
        (
            BIT + GO + "t : {state-fluent, bool, default = true};",
            "s' = s;",
            "0",
            "",
            "t has no law",
        ),
        (BIT + "f : {action-fluent, real, default = 0.0};", "s' = s;", "0", "", "f is real"),
        (BIT + GO, "s' = s", "0", "", "is not RDDL"),
    ],
)
def test_what_cannot_be_read_is_refused_by_name(
    tmp_path: Path, fluents: str, laws: str, reward: str, rest: str, told: str
) -> None:
    with pytest.raises(FmdpError, match=re.escape(told)) as refused:
        made(tmp_path, fluents, laws, reward, rest=rest)
    assert "\n" not in str(refused.value)


def test_a_syntax_error_names_the_file_and_its_line(tmp_path: Path) -> None:
    domain, instance = tmp_path / "domain.rddl", tmp_path / "instance.rddl"
    domain.write_text(
        f"domain d {{\n pvariables {{ {BIT}{GO} }};\n cpfs {{ s' = go; }};\n reward = s;\n}}"
    )
    start = "instance i {\n domain = d;\n"
    instance.write_text(f"{start} horizon = -3; }}\n")
    with pytest.raises(FmdpError, match=r"instance\.rddl: line 3 is not RDDL: "):
        fmdp.problem(f"{domain}+{instance}")
    instance.write_text(f"{start} horizon = 3; discount = 1.0; }}\n")
    domain.write_text(domain.read_text().replace("= go;", "= = go;"))
    with pytest.raises(FmdpError, match=r"domain\.rddl: line 3 is not RDDL: "):
        fmdp.problem(f"{domain}+{instance}")


def test_a_probability_out_of_reach_is_not_refused(tmp_path: Path) -> None:
    law = "s' = if (s) then Bernoulli(0.5) else if (go) then Bernoulli(s + 0.5) else s;"
    found = made(tmp_path, BIT + GO, law)
    assert found.model.transition_row(0, (0,), (1,)).tolist() == [0.5, 0.5]


def test_a_table_that_is_too_wide_is_refused_with_its_size(tmp_path: Path) -> None:
    objects = ", ".join(f"x{i}" for i in range(25))
    with pytest.raises(TooLarge, match=r"the next value of t depends on 2\d variables") as refused:
        made(
            tmp_path,
            "s(o) : {state-fluent, bool, default = false}; t : {state-fluent, bool, default=false};"
            "go(o) : {action-fluent, bool, default = false};",
            "s'(?x) = Bernoulli(0.5) | go(?x); t' = forall_{?x : o} [s(?x)];",
            types="o : object;",
            objects=f"o : {{{objects}}};",
        )
    assert refused.value.needed_bytes > refused.value.limit_bytes


def test_a_problem_with_a_domain_for_every_instance_is_found() -> None:
    pytest.importorskip("rddlrepository")
    domain, instance, name = files_of("rddl:wildlife-preserve:12")
    assert name == "rddl:WildlifePreserve_ippc2018:12"
    assert (domain.name, instance.name) == ("domain.rddl", "instance12.rddl")
    assert domain.parent == instance.parent


@pytest.mark.parametrize("most", ["0", "1", "2", "pos-inf"])
def test_a_cap_holds_for_actions_that_exclude_each_other_already(tmp_path: Path, most: str) -> None:
    """Two actions that may not be taken together become one variable; a cap of 0 leaves nothing."""
    fluents = BIT + "go : {action-fluent, bool, default = false};"
    fluents += "stay : {action-fluent, bool, default = false};"
    law = "s' = if (go) then Bernoulli(0.9) else if (stay) then Bernoulli(0.5) else Bernoulli(0.1);"
    exclusive = "action-preconditions { ~(go ^ stay); };"
    found = made(tmp_path, fluents, law, "s", most=most, rest=exclusive)
    s = found.model.structure
    told = [found.action(one) for one in itertools.product(*map(range, s.action_sizes))]
    nothing_else = [] if most == "0" else [{"go": True}, {"stay": True}]
    assert told == [{}, *nothing_else]


def test_a_cap_below_zero_is_refused(tmp_path: Path) -> None:
    law = "s' = if (go) then Bernoulli(0.9) else Bernoulli(0.1);"
    with pytest.raises(FmdpError, match=r"max-nondef-actions|RDDL|rddl"):
        made(tmp_path, BIT + GO, law, "s", most="-1")
