"""The elimination backup equals the dense one, for every layout that the engine can choose."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fmdp
from fmdp.elimination import kernels, layout
from fmdp.elimination.action_classes import (
    FlatTables,
    action_classes,
    number_rows,
    number_slices,
)
from fmdp.elimination.backup import Backup, backup_for
from fmdp.elimination.layout import choose_layout, make_layout
from fmdp.elimination.order import elimination_order
from fmdp.errors import TooLarge
from fmdp.model import FactoredMDP, OptimisticTables, Structure
from fmdp.problems import problem
from fmdp.testing import oracles, strategies


@given(st.data())
@settings(max_examples=120)
def test_backup_greedy_and_policy_step_equal_the_dense_ones(data: st.DataObject) -> None:
    model = data.draw(strategies.models())
    h = data.draw(strategies.values(model.structure))
    actions = data.draw(strategies.policies(model.structure))
    discount = data.draw(st.sampled_from((1.0, 0.9, 0.0)))
    flat = oracles.dense(model)
    q = oracles.action_values(flat, h, discount)
    scale = 1.0 + np.abs(h).max()
    prepared = Backup(model.structure)
    prepared.load(model)
    for backup in (prepared, backup_for(model)):
        np.testing.assert_allclose(backup.apply(h, discount), q.max(axis=0), atol=1e-12 * scale)
        np.testing.assert_allclose(backup.action_values(h, discount), q.T, atol=1e-12 * scale)
        value, greedy = backup.greedy(h, discount)
        states = np.arange(len(h))
        np.testing.assert_allclose(q[greedy, states], q.max(axis=0), atol=1e-8 * scale)
        np.testing.assert_allclose(value, q.max(axis=0), atol=1e-12 * scale)
        np.testing.assert_allclose(
            backup.for_policy(h, actions, discount), q[actions, states], atol=1e-12 * scale
        )


@given(st.data())
@settings(max_examples=80)
def test_every_choice_of_groups_and_branches_gives_the_same_backup(data: st.DataObject) -> None:
    """Conditioning and growing, fused and single steps: only the price differs."""
    model = data.draw(strategies.models(strategies.structures(min_variables=2)))
    structure = model.structure
    h = data.draw(strategies.values(structure))
    expected = oracles.bellman(oracles.dense(model), h)
    order = tuple(data.draw(st.permutations(range(structure.m))))
    limit = data.draw(st.sampled_from((1, 4, 8, 64)))
    last_limit = data.draw(st.sampled_from((1, 4, 8, 64)))
    branch = data.draw(st.lists(st.sampled_from(range(structure.m)), unique=True))
    layout = make_layout(
        structure,
        order,
        action_classes(structure),
        nested=False,
        limit=limit,
        last_limit=last_limit,
        branch=tuple(branch),
    )
    backup = Backup(structure, layout=layout)
    backup.load(model)
    np.testing.assert_allclose(backup.apply(h), expected, atol=1e-12 * (1 + np.abs(h).max()))


@given(st.data())
@settings(max_examples=60)
def test_nested_backup_equals_the_recursive_definition(data: st.DataObject) -> None:
    structure = data.draw(strategies.structures(max_states=24, max_actions=4))
    tables = data.draw(strategies.optimistic_tables(structure))
    h = data.draw(strategies.values(structure))
    backup = backup_for(tables)
    expected = oracles.nested_values(tables, h, backup.layout.order).max(axis=0)
    np.testing.assert_allclose(backup.apply(h), expected, atol=1e-12 * (1 + np.abs(h).max()))
    prepared = Backup(structure, nested=True)
    prepared.load(tables)
    assert prepared.layout.order == backup.layout.order  # a function of the structure alone
    np.testing.assert_allclose(prepared.apply(h), expected, atol=1e-12 * (1 + np.abs(h).max()))


@given(st.data())
@settings(max_examples=60)
def test_nested_is_never_below_vertex_and_zero_widths_are_the_model(data: st.DataObject) -> None:
    structure = data.draw(strategies.structures(max_states=16, max_actions=3))
    tables = data.draw(strategies.optimistic_tables(structure))
    h = data.draw(strategies.values(structure))
    slack = 1e-11 * (1 + np.abs(h).max())
    nested = backup_for(tables).apply(h)
    vertex = backup_for(tables.extended()).apply(h)
    np.testing.assert_allclose(vertex, oracles.vertex_values(tables, h).max(axis=0), atol=slack)
    assert (nested >= vertex - slack).all()
    model = data.draw(strategies.models(structure))
    plain = backup_for(model).apply(h)
    known = backup_for(OptimisticTables.from_model(model)).apply(h)
    np.testing.assert_allclose(known, plain, atol=slack)


@given(st.data())
@settings(max_examples=40)
def test_backup_commutes_with_constants_and_is_monotone(data: st.DataObject) -> None:
    model = data.draw(strategies.models())
    h = data.draw(strategies.values(model.structure))
    backup = backup_for(model)
    scale = 1 + np.abs(h).max()
    np.testing.assert_allclose(backup.apply(h + 3.0), backup.apply(h) + 3.0, atol=1e-12 * scale)
    more = h + np.abs(np.random.default_rng(0).normal(size=h.shape))
    assert (backup.apply(more) >= backup.apply(h) - 1e-12 * scale).all()


def test_large_variables_and_long_scopes() -> None:
    """Twenty values, five parents, a table of the whole state in the reward."""
    rng = np.random.default_rng(5)
    structure = Structure(
        state_sizes=(20, 2, 3, 2, 7),
        action_sizes=(2, 3),
        transition_scopes=((0, 4, 5), (0, 1, 2, 3, 4, 6), (2, 3), (3, 5, 6), ()),
        reward_scopes=((0, 1, 2, 3, 4, 5), (), (6,)),
        reward_ranges=((0.0, 1.0),) * 3,
    )
    model = FactoredMDP(
        structure,
        [
            rng.dirichlet(np.ones(size), rows)
            for rows, size in zip(structure.transition_rows, structure.state_sizes, strict=True)
        ],
        [rng.random(rows) for rows in structure.reward_rows],
    )
    h = rng.normal(size=structure.n_states)
    expected = oracles.bellman(oracles.dense(model), h)
    np.testing.assert_allclose(backup_for(model).apply(h), expected, atol=1e-12)


@pytest.mark.parametrize("name", ["circle:13", "bi-ring:13,dynamics=guestrin", "grid:13"])
def test_threads_do_not_change_a_bit(name: str) -> None:
    model = problem(name)
    h = np.random.default_rng(1).normal(size=model.structure.n_states)
    one = backup_for(model, threads=1)
    results = [one.greedy(h, ties="random")]
    for threads in (2, 3):
        other = Backup(model.structure, share_for=model, threads=threads, layout=one.layout)
        results.append(other.greedy(h, ties="random"))
    for value, actions in results[1:]:
        assert np.array_equal(value, results[0][0])
        assert np.array_equal(actions, results[0][1])


def test_actions_with_equal_tables_share_their_steps() -> None:
    """Restarting machine i changes one factor: of n + 1 chains only the ends are walked anew."""
    model = problem("circle:8,dynamics=guestrin")
    structure = model.structure
    order = elimination_order(structure)
    one_by_one = {"nested": False, "limit": 1, "last_limit": 1, "branch": ()}
    apart = make_layout(structure, order, action_classes(structure), **one_by_one)
    tables = FlatTables(
        np.concatenate([table.reshape(-1) for table in model.transitions]),
        np.zeros(0),
        np.concatenate(model.rewards),
    )
    shared = make_layout(structure, order, action_classes(structure, tables), **one_by_one)
    assert sum(apart.node_counts) == 9 * 8
    assert shared.node_counts == tuple(range(2, 10))  # "nothing yet" and one a restart so far


def test_rows_are_numbered_by_first_appearance() -> None:
    rows = np.array([[2.0, 0.0], [1.0, 0.0], [2.0, -0.0], [3.0, 0.0], [1.0, 0.0]])
    numbers, first = number_rows(rows)
    assert numbers.tolist() == [0, 1, 0, 2, 1]
    assert first.tolist() == [0, 1, 3]
    slices, shown = number_slices(rows.T.reshape(1, 2, 5))  # two slices of five numbers
    assert slices.tolist() == [0, 1]
    assert shown.tolist() == [0, 1]


def test_a_plan_searches_its_layout_once() -> None:
    """The choice of the planner, the plan and the evaluation of its policy ask for the same."""
    layout._candidates.cache_clear()
    fmdp.plan(problem("circle:11"))
    searches = layout._candidates.cache_info()
    assert (searches.misses, searches.hits) == (1, 2)
    # Equal tables make other classes of actions: one search by structure, one by tables.
    fmdp.plan(problem("circle:11,dynamics=guestrin"))
    searches = layout._candidates.cache_info()
    assert searches.misses == 2


def test_order_prices() -> None:
    """Chains need no open variable; a ring needs one; a ring of both neighbours two."""
    for name, most in (
        ("three-leg:9", 0),
        ("tree:9", 0),
        ("star:9", 0),
        ("circle:9", 1),
        ("bi-ring:9", 2),
        ("grid:9", 0),
    ):
        structure = problem(name).structure
        order = elimination_order(structure)
        open_at_once = 0
        for end in range(1, structure.m + 1):
            done = set(order[:end])
            needed = set(itertools.chain(*(structure.state_scope(i) for i in done)))
            open_at_once = max(open_at_once, len(needed - done))
        assert open_at_once == most, name


def test_a_tight_memory_limit_trades_time_for_memory_and_then_refuses() -> None:
    structure = problem("bi-ring:12").structure
    free = choose_layout(structure)
    leanest = choose_layout(structure, memory_limit=0)
    assert leanest.memory(1) < free.memory(1)
    tight = choose_layout(structure, memory_limit=(leanest.memory(1) + free.memory(1)) // 2)
    assert tight.memory(1) <= (leanest.memory(1) + free.memory(1)) // 2
    assert tight.seconds(1) >= free.seconds(1)
    model = problem("bi-ring:12")
    h = np.random.default_rng(0).normal(size=structure.n_states)
    lean = Backup(structure, layout=leanest)
    lean.load(model)
    np.testing.assert_allclose(lean.apply(h), backup_for(model).apply(h), atol=1e-12)
    with pytest.raises(TooLarge, match="4,096 states") as refusal:
        Backup(structure, memory_limit=1 << 16)
    assert refusal.value.needed_bytes > refusal.value.limit_bytes == 1 << 16


def test_what_cannot_fit_is_refused_before_anything_is_made() -> None:
    structure = problem("circle:200,dynamics=talebi").structure
    with pytest.raises(TooLarge, match=r"about 10\^60 states"):
        Backup(structure)


def test_predicted_memory_covers_what_is_allocated() -> None:
    for name in ("circle:12", "bi-ring:10", "random:6,values=4,parents=3", "riverswim:3"):
        structure = problem(name).structure
        for backup in (Backup(structure), Backup(structure, shape=kernels.BOX)):
            assert _allocated(backup) <= backup.predicted_bytes
    ring = problem("circle:20,dynamics=guestrin")
    in_parts = Backup(ring.structure, share_for=ring, threads=1)
    assert in_parts.rotations
    assert _allocated(in_parts) <= in_parts.predicted_bytes


def test_parts_with_leaves_of_other_sizes_share_buffers() -> None:
    """A whole with more branches than its parts has smaller leaves; nothing else changes."""
    ring = problem("circle:20,dynamics=guestrin")
    usual = Backup(ring.structure, share_for=ring, threads=1)
    branches = len(usual.layout.branch) + 2
    lean = replace(usual.layout, branch=usual.layout.axes[:branches])
    other = Backup(ring.structure, share_for=ring, threads=1, layout=lean)
    assert other.layout.leaf_size < min(part.layout.leaf_size for part in other.rotations)
    h = np.random.default_rng(0).normal(size=usual.n_states)
    slack = usual.tie_slack(float(np.abs(h).max()))
    results = []
    for backup in (usual, other):
        value = np.empty_like(h)
        backup.sweep(h, value)
        actions = backup.greedy_actions(h, value.copy(), "first", 0, slack)
        assert actions.min() >= 0
        results.append((value.tobytes(), actions.tobytes()))
    assert results[0] == results[1]


def _allocated(backup: Backup) -> int:
    arrays = [*getattr(backup, "_turned", ())]
    arrays += [array for workspace in backup._whole.workspaces for array in workspace]
    for part in (backup._whole, *backup._parts):
        program = part.program
        arrays += [program.row_sources.at, program.reward_sources.at, *program.steps]
    return sum(array.nbytes for array in arrays) + 3 * 8 * backup.n_states


@given(st.data())
@settings(max_examples=80)
def test_actions_that_read_alike_rows_share_for_any_tables(data: st.DataObject) -> None:
    """By structure, without the tables; equal to the dense backup, plain and nested."""
    structure = data.draw(strategies.structures(alike=True, max_actions=8))
    model = data.draw(strategies.models(structure))
    h = data.draw(strategies.values(structure))
    scale = 1.0 + np.abs(h).max()
    backup = Backup(structure)
    backup.load(model)
    q = oracles.action_values(oracles.dense(model), h, 1.0)
    np.testing.assert_allclose(backup.apply(h), q.max(axis=0), atol=1e-12 * scale)
    np.testing.assert_allclose(backup.action_values(h), q.T, atol=1e-12 * scale)
    tables = data.draw(strategies.optimistic_tables(structure))
    nested = Backup(structure, nested=True)
    nested.load(tables)
    expected = oracles.nested_values(tables, h, nested.layout.order).max(axis=0)
    np.testing.assert_allclose(nested.apply(h), expected, atol=1e-12 * scale)


def test_joint_actions_that_read_the_same_classes_are_one_class() -> None:
    """A machine tells its own restart from all others; without knowing rows are alike, every
    action from every other."""
    told = problem("circle:5,dynamics=guestrin,alike=rows").structure
    assert [len(set(row)) for row in action_classes(told).transitions.tolist()] == [2] * 5
    untold = problem("circle:5,dynamics=guestrin").structure
    assert [len(set(row)) for row in action_classes(untold).transitions.tolist()] == [6] * 5
    assert Backup(told).layout.multiply_adds < Backup(untold).layout.multiply_adds
