"""Alike rows: counted by class; structures that are made from others keep the classes."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fmdp.errors import InvalidModel
from fmdp.model import (
    Alike,
    AtMost,
    Effect,
    Effects,
    FactoredMDP,
    Forbidden,
    Intervals,
    OptimisticTables,
    Structure,
    flat_model,
    permute_states,
    product,
)
from fmdp.model.entries import (
    entries_of,
    first_rows,
    locate,
    split_cells,
    split_reward_entries,
    split_transition_entries,
)
from fmdp.testing import oracles
from fmdp.testing.strategies import models, optimistic_tables, structures

ALIKE = structures(alike=True)


def classes(structure: Structure) -> list[list[int]]:
    """The class of every row, transition factors before rewards."""
    return [
        *(structure.transition_classes_of(i).tolist() for i in range(structure.m)),
        *(structure.reward_classes_of(k).tolist() for k in range(structure.l)),
    ]


# ---- entries ------------------------------------------------------------------------------------


@given(ALIKE, st.integers(0, 2**32 - 1))
def test_the_entry_of_a_row_is_its_class(structure: Structure, seed: int) -> None:
    entries = entries_of(structure)
    rng = np.random.default_rng(seed)
    joint = np.array([rng.integers(size) for size in structure.sizes], dtype=np.int64)
    found = np.zeros(structure.m + structure.l, dtype=np.int64)
    locate(entries, joint, found)
    state, action = joint[: structure.m].tolist(), joint[structure.m :].tolist()
    scopes = structure.transition_scopes + structure.reward_scopes
    for f, (scope, own) in enumerate(zip(scopes, classes(structure), strict=True)):
        first = structure.n_transition_classes if f >= structure.m else 0
        assert found[f] == first + own[structure.scope_row(scope, state, action)]
    assert entries.n_transition_entries == structure.n_transition_classes
    assert entries.n_entries == structure.n_transition_classes + structure.n_reward_classes


@given(ALIKE)
def test_tables_have_the_numbers_of_their_classes(structure: Structure) -> None:
    entries = entries_of(structure)
    cells = split_cells(structure, np.arange(entries.n_cells))
    rows = split_transition_entries(structure, np.arange(structure.n_transition_classes))
    rewards = split_reward_entries(structure, np.arange(structure.n_reward_classes))
    for i, size in enumerate(structure.state_sizes):
        own = structure.transition_classes_of(i)
        assert rows[i].tolist() == own.tolist()
        expected = entries.first_cell[own][:, None] + np.arange(size)
        assert np.array_equal(cells[i], expected)
    for k in range(structure.l):
        assert rewards[k].tolist() == structure.reward_classes_of(k).tolist()


@given(ALIKE)
def test_the_first_row_of_a_class_is_of_the_class(structure: Structure) -> None:
    flat = np.concatenate([structure.transition_classes_of(i) for i in range(structure.m)])
    firsts = first_rows(structure).transitions
    assert flat[firsts].tolist() == list(range(structure.n_transition_classes))
    assert all(flat[: int(at)].tolist().count(c) == 0 for c, at in enumerate(firsts))


# ---- classes from keys --------------------------------------------------------------------------

PUMPS = Structure(
    state_sizes=(3, 3),
    action_sizes=(3,),
    transition_scopes=((0, 2), (0, 1, 2)),
    reward_scopes=((0,), (1,)),
    state_names=("p1", "p2"),
    action_names=("crew",),
    state_values=(("new", "worn", "broken"),) * 2,
    action_values=(("p1", "p2", "nowhere"),),
)


def test_classes_by_key_by_hand() -> None:
    def key(name: str, values: Mapping[str, str]) -> object:
        return "repaired" if values["crew"] == name else values[name]

    alike = Alike.by_key(PUMPS, key, lambda name, values: tuple(values.values()))
    # Of p1: for each wear (repaired, this wear, this wear).
    assert alike.transitions[0].tolist() == [0, 1, 1, 0, 2, 2, 0, 3, 3]
    # Of p2, whose rows are over (p1, p2, crew): crew at p1, at p2, nowhere.
    assert alike.transitions[1].tolist() == [1, 0, 1, 2, 0, 2, 3, 0, 3] * 3
    assert [own.tolist() for own in alike.rewards] == [[0, 1, 2], [0, 1, 2]]
    assert replace(PUMPS, alike=alike).max_scope_size == 4
    # Without a key a row is its own.
    assert Alike.by_key(PUMPS).is_trivial
    some = Alike.by_key(PUMPS, lambda name, values: None if name == "p1" else 0)
    assert some.transitions[0].tolist() == list(range(9))
    assert set(some.transitions[1].tolist()) == {9}


def test_a_key_that_cannot_be_compared() -> None:
    with pytest.raises(InvalidModel, match=r'"p1": the key of a class of rows is \[\]; must be'):
        Alike.by_key(PUMPS, lambda name, values: [])


# ---- optimistic tables --------------------------------------------------------------------------


@settings(max_examples=40)
@given(optimistic_tables(structures(alike=True, max_variables=3, max_states=12)))
def test_the_extended_model_knows_what_is_alike(tables: OptimisticTables) -> None:
    extended = tables.extended()
    s, old = extended.structure, tables.structure
    assert (s.alike is None) == (old.alike is None)
    # Through the constructor, which compares the rows of a class.
    assert FactoredMDP(s, extended.transitions, extended.rewards) == extended
    if old.alike is not None:
        for i, size in enumerate(old.state_sizes):
            for target in range(size):
                own = s.transition_classes_of(i).reshape(-1, size)[:, target]
                for one, other in zip(*np.triu_indices(len(own)), strict=True):
                    known = old.alike.transitions[i]
                    assert (own[one] == own[other]) == (known[one] == known[other])


def test_optimistic_rows_of_a_class_must_be_equal() -> None:
    alike = Alike((np.array([0, 0]),), ())
    s = Structure((2,), (1,), ((0,),), (), alike=alike)
    for lower, free in (
        ([[0.5, 0.5], [0.4, 0.5]], [0.0, 0.1]),
        ([[0.5, 0.4], [0.4, 0.5]], [0.1, 0.1]),
    ):
        with pytest.raises(InvalidModel, match="rows of one class must be equal"):
            OptimisticTables(s, (np.array(lower),), (np.array(free),), ())
    with pytest.raises(InvalidModel, match="rows of one class must be equal"):
        OptimisticTables.from_widths(s, [[[0.5, 0.5]] * 2], [[[0.1], [0.2]]], [], [])


# ---- structures from structures -----------------------------------------------------------------


def same_partition(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether two numberings put the same places together."""
    pairs = set(zip(one.tolist(), other.tolist(), strict=True))
    return len(pairs) == len(set(one.tolist())) == len(set(other.tolist()))


@given(models(ALIKE))
def test_models_with_alike_rows_are_pickled_whole(model: FactoredMDP) -> None:
    again = pickle.loads(pickle.dumps(model))
    assert again == model
    assert again.content_hash == model.content_hash
    if model.structure.alike is not None:
        plain = FactoredMDP(
            replace(model.structure, alike=None),
            model.transitions,
            model.rewards,
            model.noise,
            model.initial_state,
            model.name,
        )
        assert plain != model
        assert plain.content_hash != model.content_hash


@given(models(ALIKE), st.data())
def test_a_permutation_keeps_the_classes(model: FactoredMDP, data: st.DataObject) -> None:
    s = model.structure
    order = data.draw(st.permutations(range(s.m)))
    moved = permute_states(model, order)
    back = [order.index(v) for v in range(s.m)]
    assert permute_states(moved, back) == model
    # Row by row: a joint assignment reads rows of the same classes.
    new = [*back, *range(s.m, len(s.sizes))]
    rng = np.random.default_rng(0)
    seen: list[list[int]] = []
    for _ in range(40):
        joint = [int(rng.integers(size)) for size in s.sizes]
        turned = [joint[order[j]] for j in range(s.m)] + joint[s.m :]
        assert [turned[new[v]] for v in range(len(joint))] == joint
        t = moved.structure
        before = [
            int(s.transition_classes_of(i)[s.scope_row(z, joint[: s.m], joint[s.m :])])
            for i, z in enumerate(s.transition_scopes)
        ]
        after = [
            int(t.transition_classes_of(j)[t.scope_row(z, turned[: s.m], turned[s.m :])])
            for j, z in enumerate(t.transition_scopes)
        ]
        seen += [[b, after[back[i]]] for i, b in enumerate(before)]
    pairs = {tuple(pair) for pair in seen}
    assert len({b for b, _ in pairs}) == len({a for _, a in pairs}) == len(pairs)


@given(models(structures(alike=True, max_variables=2, max_states=6, max_actions=3)), models())
def test_a_product_keeps_the_classes_of_its_parts(one: FactoredMDP, two: FactoredMDP) -> None:
    both = product(one, two).structure
    parts = [one.structure, two.structure]
    told = [s.transition_classes_of(i) for s in parts for i in range(s.m)]
    assert both.n_transition_classes == sum(s.n_transition_classes for s in parts)
    assert both.n_reward_classes == sum(s.n_reward_classes for s in parts)
    for i, own in enumerate(told):
        assert same_partition(both.transition_classes_of(i), own)
    first = {c for i in range(parts[0].m) for c in both.transition_classes_of(i).tolist()}
    rest = {c for i in range(parts[0].m, both.m) for c in both.transition_classes_of(i).tolist()}
    assert not first & rest


@given(models(structures(alike=True, max_states=12, max_actions=4)))
def test_a_flat_model_keeps_what_is_alike_jointly(model: FactoredMDP) -> None:
    flat = flat_model(model)  # whose constructor compares the rows of a class
    s = model.structure
    if s.alike is None:
        assert flat.structure.alike is None
        return
    joint = [
        tuple(
            int(own[s.scope_row(z, state, action)])
            for z, own in zip(s.transition_scopes, s.alike.transitions, strict=True)
        )
        for state in np.ndindex(*s.state_sizes)
        for action in np.ndindex(*s.action_sizes)
    ]
    numbers = [sorted(set(joint)).index(own) for own in joint]
    assert same_partition(flat.structure.transition_classes_of(0), np.array(numbers))
    np.testing.assert_allclose(
        oracles.dense(flat).transitions, oracles.dense(model).transitions, atol=1e-12
    )


def test_constraints_effects_and_intervals_go_along() -> None:
    """Two machines that a repair makes new; at most one repair; nothing in state (worn, worn)."""
    repair = np.array([0, 0, 1, 0])  # (state, action) -> state afterwards
    table = np.array([[0.7, 0.3], [0.7, 0.3], [0.2, 0.8], [0.7, 0.3]])
    structure = Structure(
        state_sizes=(2, 2),
        action_sizes=(2, 2),
        transition_scopes=((0, 2), (1, 3)),
        reward_scopes=((0, 1),),
        constraints=(
            AtMost((2, 3), 1),
            Forbidden((0, 1, 2), np.array([0, 0, 0, 1, 0, 0, 0, 0], dtype=bool), "keep"),
        ),
        effects=Effects(
            (Effect((0,), (2,), repair), Effect((1,), (3,), repair)),
            ((0,), (1,)),
            ("before",),
            ((),),
        ),
        alike=Alike((np.array([0, 0, 1, 0]),) * 2, (np.arange(4),)),
    )
    lower, upper = np.maximum(table - 0.1, 0), np.minimum(table + 0.1, 1)
    means = np.array([1.0, 0.5, 0.25, 0.0])
    model = FactoredMDP(
        structure,
        (table, table),
        (means,),
        intervals=Intervals((lower,) * 2, (upper,) * 2, (means - 0.0,), (means,)),
    )
    turned = permute_states(model, [1, 0])
    t = turned.structure
    assert t.effects is not None
    assert [(one.states, one.actions) for one in t.effects.components] == [
        ((1,), (2,)),
        ((0,), (3,)),
    ]
    assert turned.intervals is not None
    assert permute_states(turned, [1, 0]) == model
    for a in np.ndindex(2, 2):
        for s in np.ndindex(2, 2):
            assert structure.allowed(s, a) == t.allowed(s[::-1], a)
    both = product(model, turned)
    b = both.structure
    assert b.effects is not None
    assert both.intervals is not None
    assert [one.states for one in b.effects.components] == [(0,), (1,), (3,), (2,)]
    for s in np.ndindex(2, 2, 2, 2):
        for a in np.ndindex(2, 2, 2, 2):
            assert b.allowed(s, a) == (structure.allowed(s[:2], a[:2]) and t.allowed(s[2:], a[2:]))
    plain = FactoredMDP(replace(structure, effects=None, constraints=()), (table, table), (means,))
    assert product(model, plain).structure.effects is None
    flat = flat_model(model).structure
    assert np.array_equal(flat.allowed_mask(), structure.allowed_mask())


def test_effects_over_several_variables_are_permuted_with_their_outcomes() -> None:
    rng = np.random.default_rng(0)
    sizes = (2, 3, 2)
    outcome = rng.integers(12, size=12 * 2)
    effects = Effects((Effect((0, 1, 2), (3,), outcome),), ((0,), (0, 1), (2,)))
    after = [effects.after_rows(own, (*sizes, 2)) for own in effects.after_scopes]
    structure = Structure(
        sizes,
        (2,),
        tuple(effects.full_scope(own) for own in effects.after_scopes),
        (),
        effects=effects,
        alike=Alike(tuple(100 * i + own for i, own in enumerate(after)), ()),
    )
    laws = [rng.dirichlet(np.ones(size), 64) for size in sizes]
    tables = [laws[i][own] for i, own in enumerate(after)]
    model = FactoredMDP(structure, tables, ())
    order = [2, 0, 1]
    turned = permute_states(model, order)
    t = turned.structure
    assert t.effects is not None
    assert t.effects.after_scopes == ((0,), (1,), (1, 2))
    (component,) = t.effects.components
    for state in np.ndindex(*sizes):
        for action in range(2):
            left = np.unravel_index(
                outcome[np.ravel_multi_index((*state, action), (*sizes, 2))], sizes
            )
            moved_state = tuple(state[v] for v in order)
            place = np.ravel_multi_index((*moved_state, action), (*t.state_sizes, 2))
            moved = np.unravel_index(component.outcome[place], t.state_sizes)
            assert tuple(moved) == tuple(left[v] for v in order)
    assert permute_states(turned, [1, 2, 0]) == model
