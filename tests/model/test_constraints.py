"""Constraints: what they forbid, how they are said, and what is refused."""

from __future__ import annotations

import itertools
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fmdp
from fmdp.errors import FmdpError, InvalidModel, InvalidParameter, TooLarge
from fmdp.model import (
    AtMost,
    Budget,
    FactoredMDP,
    Forbidden,
    Structure,
    apart,
    at_most,
    budget,
    constraint_from_rules,
    forbid,
)
from fmdp.model.constraints import (
    allowed_combinations,
    combinations_in,
    forbidden_choices,
    from_plain,
    plain,
)
from fmdp.testing.strategies import constrained, policies, structures

SMALL = constrained(structures(max_states=8, max_variables=3))

PUMPS = Structure(
    state_sizes=(3, 2),
    action_sizes=(3, 3),
    transition_scopes=((0, 2), (1, 3)),
    reward_scopes=(),
    state_names=("pump", "price"),
    action_names=("crew_1", "crew_2"),
    state_values=(("good", "worn", "broken"), ("low", "high")),
    action_values=(("rest", "P1", "P2"), ("rest", "P1", "P2")),
)


def by_words(constraints: Any, x: tuple[int, ...], sizes: tuple[int, ...]) -> bool:
    """Whether x = (state, action) is allowed, from the definitions alone."""
    for c in constraints:
        own = tuple(x[v] for v in c.scope)
        if isinstance(c, AtMost):
            if sum(value != idle for value, idle in zip(own, c.idle, strict=True)) > c.most:
                return False
        elif isinstance(c, Budget):
            if sum(row[value] for value, row in zip(own, c.costs, strict=True)) > c.limit:
                return False
        elif c.table.reshape([sizes[v] for v in c.scope])[own]:
            return False
    return True


@given(st.data())
def test_everything_that_asks_gets_one_answer(data: st.DataObject) -> None:
    s = data.draw(SMALL)
    mask = s.allowed_mask()
    assert mask.shape == (s.n_states, s.n_actions)
    assert mask.any(axis=1).all()
    stands = s.allowed_pairs().reshape(mask.shape) % s.n_actions
    policy = data.draw(policies(s))
    s.check_policy(policy)
    wild = np.random.default_rng(0).integers(s.n_actions, size=s.n_states)
    wrong = forbidden_choices(s.constraints, wild, s.m, s.sizes)
    actions = list(itertools.product(*map(range, s.action_sizes)))
    for i, state in enumerate(itertools.product(*map(range, s.state_sizes))):
        wanted = [by_words(s.constraints, state + action, s.sizes) for action in actions]
        assert mask[i].tolist() == wanted
        assert s.allowed_actions(state).tolist() == [a for a, ok in enumerate(wanted) if ok]
        assert [s.allowed(state, action) for action in actions] == wanted
        listed = combinations_in(s.constraints, state, s.m, s.sizes).tolist()
        assert listed == [list(action) for action, ok in zip(actions, wanted, strict=True) if ok]
        first = wanted.index(True)
        assert stands[i].tolist() == [a if ok else first for a, ok in enumerate(wanted)]
        assert wrong[i] == (not wanted[wild[i]])
        for action, ok in zip(actions, wanted, strict=True):
            if not ok:
                with pytest.raises(InvalidParameter, match="is not allowed in state"):
                    s.check_allowed(state, action)


@given(st.data())
def test_copies_hashes_and_files_keep_them(data: st.DataObject) -> None:
    s = data.draw(SMALL)
    assert pickle.loads(pickle.dumps(s)) == s
    assert hash(pickle.loads(pickle.dumps(s))) == hash(s)
    for constraint in s.constraints:
        assert from_plain(plain(constraint)) == constraint


@given(st.data())
def test_renumbering_keeps_what_is_allowed(data: st.DataObject) -> None:
    s = data.draw(SMALL)
    order = data.draw(st.permutations(range(s.m)))
    new = [order.index(v) for v in range(s.m)] + list(range(s.m, len(s.sizes)))
    sizes = tuple(s.sizes[v] for v in order) + s.action_sizes
    moved = [c.renumbered(new, s.sizes) for c in s.constraints]
    for x in itertools.product(*map(range, s.sizes)):
        y = tuple(x[v] for v in order) + x[s.m :]
        assert by_words(moved, y, sizes) == by_words(s.constraints, x, s.sizes)


def test_a_cap_on_forty_variables_needs_no_table() -> None:
    cap = AtMost(tuple(range(1, 41)), 2)
    listed = allowed_combinations([cap], 1, (2,) * 41)
    assert len(listed) == 1 + 40 + 40 * 39 // 2
    assert (listed.sum(axis=1) <= 2).all()
    as_numbers = listed @ (1 << np.arange(40)[::-1])
    assert (np.diff(as_numbers) > 0).all()
    with pytest.raises(TooLarge, match="joint actions has more than"):
        cap.forbidden_table((2,) * 41)
    with pytest.raises(TooLarge, match="cannot be listed"):
        allowed_combinations([AtMost((1, 2), 1)], 1, (2,) * 41)
    with pytest.raises(TooLarge, match="cannot be listed"):  # refused before any is made
        allowed_combinations([AtMost(tuple(range(1, 10_001)), 1_500)], 1, (2,) * 10_001)


def test_a_budget_on_forty_variables_needs_no_table() -> None:
    limited = Budget(tuple(range(1, 41)), 1.0, ((0, 0.5),) * 40)
    listed = allowed_combinations([limited], 1, (2,) * 41)
    cap = allowed_combinations([AtMost(tuple(range(1, 41)), 2)], 1, (2,) * 41)
    assert np.array_equal(listed, cap)
    with pytest.raises(TooLarge, match="joint actions has more than"):
        limited.forbidden_table((2,) * 41)


def test_costs_are_compared_as_decimal_numbers() -> None:
    # In binary, 0.1 + 0.1 + 0.1 is above 0.3.
    tenths = Budget((1, 2, 3, 4), 0.3, ((0, 0.1),) * 4)
    assert tenths.most_units == 3
    assert not tenths.forbids((0, 1, 1, 1, 0), (1, 2, 2, 2, 2))
    assert tenths.forbids((0, 1, 1, 1, 1), (1, 2, 2, 2, 2))
    halves = Budget((1, 2), 17.9, ((0, 5, 10), (2.5, 0, 12.5)))
    assert [row.tolist() for row in halves.unit_costs(())] == [[0, 2, 4], [1, 0, 5]]
    assert halves.most_units == 7
    assert halves.cheapest() == (0, 1)


# ---- by name -------------------------------------------------------------------------------------


def forbidden_of(constraint: Any) -> set[tuple[str, ...]]:
    sizes = PUMPS.scope_sizes(constraint.scope)
    table = constraint.forbidden_table(PUMPS.sizes).reshape(sizes)
    return {
        tuple(PUMPS.values[v][i] for v, i in zip(constraint.scope, place, strict=True))
        for place in zip(*map(tuple, table.nonzero()), strict=True)
    }


def test_rules_by_name_and_by_number() -> None:
    one = forbid(PUMPS, {"crew_1": "P1", "crew_2": "P1"}, name="crowd")
    assert one == Forbidden((2, 3), np.arange(9) == 4, "crowd")
    assert forbid(PUMPS, {2: 1, 3: 1}, name="crowd") == one
    assert constraint_from_rules(PUMPS, [{"crew_2": "P1", "crew_1": "P1"}], "crowd") == one
    several = forbid(PUMPS, {"pump": ["good", "worn"], "crew_1": "P1"}, {"crew_1": "P2"})
    assert several.scope == (0, 2)
    assert forbidden_of(several) == {
        ("good", "P1"),
        ("worn", "P1"),
        ("good", "P2"),
        ("worn", "P2"),
        ("broken", "P2"),
    }


def test_apart_and_at_most() -> None:
    crews = apart(PUMPS, ["crew_1", "crew_2"], besides="rest")
    assert forbidden_of(crews) == {("P1", "P1"), ("P2", "P2")}
    assert at_most(PUMPS, 1) == AtMost((2, 3), 1, (0, 0))
    assert at_most(PUMPS, 1, ["crew_2"], idle="P2") == AtMost((3,), 1, (2,))
    assert at_most(PUMPS, 1, idle={"crew_2": "P1"}) == AtMost((2, 3), 1, (0, 1))


def test_a_budget_by_name() -> None:
    both = Budget((2, 3), 4, ((0, 1, 3.5), (0, 2, 2)))
    assert budget(PUMPS, 4, {"crew_2": [0, 2, 2], "crew_1": {"P2": 3.5, "P1": 1}}) == both
    assert budget(PUMPS, 4.0, {3: (0, 2, 2), 2: {1: 1, 2: 3.5}}) == both
    assert forbidden_of(both) == {("P2", "P1"), ("P2", "P2")}
    assert forbidden_of(budget(PUMPS, 0, {"crew_1": {"P1": 1e-9}})) == {("P1",)}


def test_a_model_takes_them() -> None:
    model = fmdp.problem("machines:2")
    one = at_most(model, 1, name="one crew")
    bound = model.with_constraints(one)
    assert bound.structure.constraints == (one,)
    assert bound.with_constraints(one).structure.constraints == (one, one)
    assert bound.content_hash != model.content_hash
    assert bound != model
    assert (bound.noise, bound.initial_state, bound.name) == (
        model.noise,
        model.initial_state,
        model.name,
    )
    built = FactoredMDP.from_factors(
        (2,),
        (2,),
        [((0, 1), np.full((2, 2, 2), 0.5))],
        constraints=[Forbidden((1,), [True, False])],
    )
    assert built.structure.allowed_actions((0,)).tolist() == [1]


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: forbid(PUMPS), "has no rule"),
        (lambda: forbid(PUMPS, {}), "rule 0 {} names no action variable"),
        (lambda: forbid(PUMPS, {"pump": "worn"}), "names no action variable"),
        (
            lambda: forbid(PUMPS, {"crew": "P1"}),
            "no variable is called 'crew'; did you mean \"crew_",
        ),
        (
            lambda: forbid(PUMPS, {"crew_1": "P9"}, name="x"),
            'constraint "x", rule 0: "crew_1" has no',
        ),
        (
            lambda: forbid(PUMPS, {"crew_1": 3}),
            '"crew_1" is 3; must be in 0..2, or one of rest, P1, P2',
        ),
        (lambda: forbid(PUMPS, {"crew_1": []}), "has no value; must have at least one"),
        (lambda: forbid(PUMPS, {"crew_1": 1, 2: 1}), '"crew_1" is there twice'),
        (lambda: forbid(PUMPS, ["crew_1"]), "must be a mapping"),
        (lambda: forbid(PUMPS, {True: 1}), "no variable is called True"),
        (lambda: forbid("circle:3", {}), "must be given a Structure"),
        (lambda: apart(PUMPS, ["crew_1"]), "must be two or more different variables"),
        (lambda: apart(PUMPS, ["crew_1", "crew_1"]), "must be two or more different variables"),
        (lambda: apart(PUMPS, ["pump", "crew_1"]), "share no value that an action could avoid"),
        (lambda: apart(PUMPS, ["crew_1", "crew_2"], besides="rst"), 'did you mean "rest"'),
        (lambda: at_most(PUMPS, -1), "must be a whole number, 0 or more"),
        (lambda: at_most(PUMPS, 1.5), "must be a whole number, 0 or more"),
        (lambda: at_most(PUMPS, 1, ["pump"]), '"pump" is a state variable'),
        (lambda: at_most(PUMPS, 1, []), "must be sorted numbers"),
        (lambda: at_most(PUMPS, 1, idle="P9"), 'has no value "P9"'),
        (lambda: at_most(PUMPS, 1, ["crew_1"], idle={"crew_2": 0}), "which is not counted"),
        (lambda: Forbidden((1, 0), [True] * 6), "must be sorted numbers"),
        (lambda: Forbidden((), []), "must be sorted numbers"),
        (lambda: Forbidden((0,), [1, 0]), "must be true or false"),
        (lambda: Forbidden((0,), [True], "a\nb"), "must be a printable string"),
        (lambda: AtMost((2,), 1, (0, 0)), "must be one whole number"),
        (lambda: budget(PUMPS, 1, {}), "costs {} must be a mapping"),
        (lambda: budget(PUMPS, 1, {"pump": [0, 1, 2]}), '"pump" is a state variable'),
        (lambda: budget(PUMPS, 1, {"crew_1": [0, 1]}), '2 costs of "crew_1"; must be 3'),
        (lambda: budget(PUMPS, 1, {"crew_1": {"P9": 1}}), '"crew_1" has no value "P9"'),
        (lambda: budget(PUMPS, 1, {"crew_1": {"P1": 1, 1: 1}}), "is there twice"),
        (
            lambda: budget(PUMPS, 1, {"crew_1": {"P1": -1}}),
            "cost -1 of crew_1=P1; must be a finite",
        ),
        (
            lambda: budget(PUMPS, 1, {"crew_1": {"P1": "a"}}),
            "of crew_1=P1; must be a finite number",
        ),
        (lambda: budget(PUMPS, float("nan"), {"crew_1": {"P1": 1}}), "budget nan: must be a"),
        (lambda: Budget((2,), 1, ((1, float("inf")),)), "must be one finite number"),
        (lambda: Budget((2,), 1, ((0, 1), (0, 1))), "costs of 2 variables; must be 1"),
        (lambda: Budget((2,), 1, ((1e-9, 1e9),)), "its costs have too many digits"),
        (
            lambda: Budget((2, 3), 4, ((3, 2.5), (2, 2)), "fuel"),
            'constraint "fuel": no action meets it: the cheapest costs 4.5; the limit must be',
        ),
    ],
)
def test_what_is_no_constraint_is_refused_in_one_line(make: Any, text: str) -> None:
    with pytest.raises(FmdpError) as caught:
        make()
    assert text in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("constraints", "text"),
    [
        (["no"], "must be a Forbidden, an AtMost or a Budget"),
        ([Budget((2,), 1, ((0, 1),))], "variable 2 with 2 costs; must be an action variable with"),
        ([Budget((1, 2), 1, ((0, 1), (0, 1, 1)))], "variable 1 with 2 costs; must be an action"),
        ([Forbidden((0,), [True, False, False])], "its scope must have an action variable"),
        ([Forbidden((4,), [True, False])], "variable 4 is none; must be in 0..3"),
        ([Forbidden((2,), [True, False])], "has 2 entries; must have 3"),
        ([AtMost((1,), 1)], "its scope must have an action variable"),
        ([AtMost((1, 2), 1)], "variable 1 with idle value 0; must be an action variable"),
        ([AtMost((2,), 1, (3,))], "with idle value 3"),
        (
            [Forbidden((2,), [True] * 3, "all")],
            'no action is allowed in any state: constraint "all" forbids all; every state must',
        ),
        (
            [
                AtMost((2, 3), 0, (), "strike"),
                constraint_from_rules(PUMPS, [{"pump": "broken", "crew_1": "rest"}], "duty"),
            ],
            'allowed where pump=broken: constraint "strike" and constraint "duty" forbid all',
        ),
        (
            [
                constraint_from_rules(PUMPS, [{"price": "high", "crew_1": ["P1", "P2"]}], "save"),
                constraint_from_rules(PUMPS, [{"pump": "worn", "crew_1": "rest"}], "mend"),
            ],
            "no action is allowed where pump=worn, price=high",
        ),
    ],
)
def test_a_structure_refuses_what_leaves_no_action(constraints: Any, text: str) -> None:
    with pytest.raises(InvalidModel) as caught:
        Structure(
            **{
                name: getattr(PUMPS, name)
                for name in ("state_sizes", "action_sizes", "transition_scopes", "reward_scopes")
            },
            **{
                name: getattr(PUMPS, name)
                for name in ("state_names", "action_names", "state_values", "action_values")
            },
            constraints=constraints,
        )
    assert text in str(caught.value)


def test_a_cap_of_nothing_leaves_the_idle_action() -> None:
    model = fmdp.problem("machines:3")
    bound = model.with_constraints(at_most(model, 0))
    assert bound.structure.allowed_mask().sum() == bound.structure.n_states


def test_rules_over_too_many_values_are_refused_before_the_memory_is_spent() -> None:
    wide = Structure((2,) * 30, (2,), ((),) * 30, ())
    with pytest.raises(TooLarge, match="make several of it"):
        forbid(wide, dict.fromkeys(range(31), 1))


def test_constraints_that_share_no_action_are_looked_at_apart() -> None:
    """A hundred rules over a hundred variables: nothing joint is ever made."""
    n = 100
    structure = Structure((2,) * n, (2,) * n, ((),) * n, ())
    rules = [forbid(structure, {i: 0, n + i: 0}, {i: 1, n + i: 1}) for i in range(n)]
    made = Structure((2,) * n, (2,) * n, ((),) * n, (), constraints=tuple(rules))
    assert made.allowed((0,) * n, (1,) * n)
    assert not made.allowed((1,) + (0,) * (n - 1), (1,) * n)
