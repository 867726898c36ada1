"""Boxes and balls in the nested backup: against corners, linear programs and the recursion."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fmdp.elimination import kernels
from fmdp.elimination.backup import Backup, backup_for
from fmdp.errors import FmdpError, InvalidModel, InvalidParameter
from fmdp.model import OptimisticTables, Structure
from fmdp.planning.alp import ALP
from fmdp.planning.exact.planner import Exact
from fmdp.testing import oracles, strategies

SMALL = strategies.structures(max_variables=3, max_values=4, max_states=12, max_actions=3)


@given(st.data())
@settings(max_examples=60)
def test_the_backup_of_boxes_equals_the_recursion_over_corners(data: st.DataObject) -> None:
    tables, _ = data.draw(strategies.box_pairs(st.one_of(SMALL, strategies.constrained(SMALL))))
    structure = tables.structure
    h = data.draw(strategies.values(structure))
    worst = data.draw(st.booleans())
    shared = backup_for(tables, worst=worst)
    prepared = Backup(structure, shape=kernels.BOX, worst=worst)
    prepared.load(tables)
    for backup in (shared, prepared):
        q = oracles.nested_box_values(tables, h, backup.layout.order, worst=worst)
        np.testing.assert_allclose(backup.apply(h), q.max(axis=0), atol=1e-9)
        np.testing.assert_allclose(backup.action_values(h), q.T, atol=1e-9)
        value, actions = backup.greedy(h)
        np.testing.assert_allclose(q[actions, np.arange(structure.n_states)], value, atol=1e-6)


@given(st.data())
@settings(max_examples=40)
def test_nested_encloses_the_exact_extremes_and_every_member(data: st.DataObject) -> None:
    tables, truth = data.draw(strategies.box_pairs(SMALL))
    h = data.draw(strategies.values(tables.structure))
    same_rewards = OptimisticTables(
        tables.structure, tables.lower, tables.free, truth.rewards, tables.upper
    )
    member = oracles.bellman(oracles.dense(truth), h)
    slack = 1e-9 * (1.0 + np.abs(h).max())
    for worst, sign in ((False, 1.0), (True, -1.0)):
        nested = backup_for(same_rewards, worst=worst).apply(h)
        exact = oracles.box_values(same_rewards, h, worst=worst).max(axis=0)
        assert (sign * nested >= sign * exact - slack).all()
        assert (sign * exact >= sign * member - slack).all()


@given(st.data())
@settings(max_examples=40)
def test_upper_ends_of_one_are_the_set_without(data: st.DataObject) -> None:
    tables = data.draw(strategies.optimistic_tables())
    h = data.draw(strategies.values(tables.structure))
    ones = tuple(np.ones_like(own) for own in tables.lower)
    boxed = OptimisticTables(tables.structure, tables.lower, tables.free, tables.rewards, ones)
    np.testing.assert_allclose(
        backup_for(boxed).apply(h), backup_for(tables).apply(h), rtol=1e-12, atol=1e-9
    )


@given(st.data())
@settings(max_examples=30)
def test_for_sums_of_single_variables_the_relaxation_is_exact(data: st.DataObject) -> None:
    tables, _ = data.draw(strategies.box_pairs(SMALL))
    h = data.draw(strategies.values(tables.structure, additive=True))
    for worst in (False, True):
        exact = oracles.box_values(tables, h, worst=worst).max(axis=0)
        np.testing.assert_allclose(backup_for(tables, worst=worst).apply(h), exact, atol=1e-8)


ROW = Structure((4,), (1,), ((),), ())


@pytest.mark.parametrize(("worst", "worth"), [(False, 2.2), (True, 1.0)])
def test_pouring_by_hand(worst: bool, worth: float) -> None:
    """Lower .1 each, free .6, upper (.4, .3, .3, .5), worth 0, 1, 2, 3. Best: .4 more to the last
    and .2 to the one before, (.1, .1, .3, .5). Worst: (.4, .3, .2, .1)."""
    lower, upper = np.full((1, 4), 0.1), np.array([[0.4, 0.3, 0.3, 0.5]])
    tables = OptimisticTables(ROW, (lower,), (np.array([0.6]),), (), (upper,))
    value = backup_for(tables, worst=worst).apply(np.arange(4.0))
    np.testing.assert_allclose(value, worth, atol=1e-14)


def test_threads_and_one_thread_give_the_same_bits() -> None:
    sizes = (3, 2, 4, 3, 2, 4, 3, 5)
    scopes = tuple(tuple(sorted({i, (i + 1) % 8, 8})) for i in range(8))
    structure = Structure(sizes, (2,), scopes, ((0, 8),))
    rng = np.random.default_rng(0)
    lower, free, upper = [], [], []
    for rows, size in zip(structure.transition_rows, sizes, strict=True):
        p = rng.dirichlet(np.ones(size), size=rows)
        lower.append(0.5 * p)
        free.append(1.0 - lower[-1].sum(axis=1))
        upper.append(np.minimum(1.0, p + 0.2))
    rewards = (rng.random(structure.reward_rows[0]),)
    tables = OptimisticTables(structure, tuple(lower), tuple(free), rewards, tuple(upper))
    h = rng.normal(size=structure.n_states)
    one, two = (Backup(structure, worst=True, share_for=tables, threads=n) for n in (1, 2))
    assert structure.n_states >= 1 << 12
    assert one.apply(h).tobytes() == two.apply(h).tobytes()


@given(st.data())
@settings(max_examples=25)
def test_the_exact_planner_takes_boxes(data: st.DataObject) -> None:
    """Its bounds hold for the nested operator, whose gain is at least any member's."""
    tables, truth = data.draw(strategies.box_pairs(SMALL))
    top = tuple(
        np.full(rows, hi)
        for rows, (_, hi) in zip(
            tables.structure.reward_rows, tables.structure.reward_ranges, strict=True
        )
    )
    hopeful = OptimisticTables(tables.structure, tables.lower, tables.free, top, tables.upper)
    plan = Exact(max_iterations=2000).prepare(tables.structure).solve(hopeful)
    assert plan.gain_upper is not None
    assert plan.gain_upper >= oracles.optimal(oracles.dense(truth)).gain.max() - 1e-9


@given(st.data())
@settings(max_examples=40)
def test_the_backup_of_balls_equals_the_recursion_over_linear_programs(
    data: st.DataObject,
) -> None:
    structure = data.draw(
        strategies.structures(max_variables=2, max_values=4, max_states=6, max_actions=2)
    )
    truth = data.draw(strategies.models(structure))
    rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
    radius = [
        rng.choice([0.0, 0.1, 0.7, 1.5, 3.0], size=rows) for rows in structure.transition_rows
    ]
    tables = OptimisticTables.from_balls(structure, truth.transitions, radius, truth.rewards)
    h = data.draw(strategies.values(structure))
    for worst in (False, True):
        shared = backup_for(tables, worst=worst)
        prepared = Backup(structure, shape=kernels.BALL, worst=worst)
        prepared.load(tables)
        q = oracles.nested_box_values(tables, h, shared.layout.order, worst=worst)
        size = 1.0 + np.abs(h).max()
        np.testing.assert_allclose(shared.apply(h), q.max(axis=0), atol=1e-7 * size)
        assert prepared.apply(h).tobytes() == shared.apply(h).tobytes()
        box = OptimisticTables(structure, tables.lower, tables.free, tables.rewards, tables.upper)
        sign = -1.0 if worst else 1.0
        around = backup_for(box, worst=worst).apply(h)
        assert (sign * around >= sign * shared.apply(h) - 1e-9 * size).all()
        if max(structure.state_sizes) <= 2:  # two values: the ball is the box
            np.testing.assert_allclose(around, shared.apply(h), atol=1e-9 * size)


def test_moving_by_hand() -> None:
    """p-hat (.1, .2, .3, .4), radius .6, worth 0 to 3: .3 goes to the last, from the first two; the
    other way, .3 from the last to the first. A radius of 4 is everything."""
    for radius, best, worst in ((0.6, 0.3 * 2 + 0.7 * 3, 0.2 + 0.6 + 0.1 * 3), (4.0, 3.0, 0.0)):
        tables = OptimisticTables.from_balls(ROW, [[[0.1, 0.2, 0.3, 0.4]]], [radius], [])
        h = np.arange(4.0)
        np.testing.assert_allclose(backup_for(tables).apply(h), best, atol=1e-14)
        np.testing.assert_allclose(backup_for(tables, worst=True).apply(h), worst, atol=1e-14)
    unseen = OptimisticTables.from_balls(ROW, [[[0.0, 0.0, 0.0, 0.0]]], [0.1], [])
    np.testing.assert_allclose(backup_for(unseen).apply(np.arange(4.0)), 3.0)


def test_balls_that_are_none_are_refused() -> None:
    row = [[[0.1, 0.2, 0.3, 0.4]]]
    made = OptimisticTables.from_balls(ROW, row, [0.6], [])
    for change, words in (
        ({"radius": (np.array([-0.1]),)}, "radius -0.1 must be at least 0"),
        ({"centre": (np.full((1, 4), 0.2),)}, "must sum to 1 between lower and upper"),
        ({"centre": None}, "a ball has a centre, a radius"),
        ({"upper": None}, "a ball has a centre, a radius"),
        ({"radius": ()}, "0 tables of radii; must be 1"),
    ):
        with pytest.raises(InvalidModel, match=words):
            replace(made, **change)  # type: ignore[arg-type]
    with pytest.raises(InvalidModel, match="all must be at least 0"):
        OptimisticTables.from_balls(ROW, row, [-1.0], [])
    again = pickle.loads(pickle.dumps(made))
    assert again.radius is not None
    assert again.radius[0].tolist() == [0.6]
    backup = Backup(ROW, shape=kernels.BOX)
    with pytest.raises(RuntimeError, match="of the shape that it was prepared for"):
        backup.load(made)


def test_what_cannot_take_boxes_says_so() -> None:
    tables = OptimisticTables(
        ROW, (np.full((1, 4), 0.1),), (np.array([0.6]),), (), (np.full((1, 4), 0.5),)
    )
    with pytest.raises(InvalidModel, match="only targets=nested takes boxes"):
        Exact(targets="vertex").prepare(ROW).solve(tables)
    with pytest.raises(InvalidParameter, match="planner alp takes sets of lower ends and free"):
        ALP().prepare(ROW).solve(tables)


@pytest.mark.parametrize(
    ("upper", "words"),
    [
        ([[0.05, 0.5, 0.5, 0.5]], "must be from lower"),
        ([[0.5, 0.5, 0.5, 1.5]], "to 1 and sum"),
        ([[0.2, 0.2, 0.2, 0.2]], "sum to at least 1"),
        ([[0.5, 0.5, float("nan"), 0.5]], "must be from lower"),
        ([[0.5, 0.5]], "has shape"),
    ],
)
def test_upper_ends_that_are_none_are_refused(upper: list[list[float]], words: str) -> None:
    with pytest.raises(FmdpError, match=words):
        OptimisticTables(ROW, (np.full((1, 4), 0.1),), (np.array([0.6]),), (), (np.array(upper),))
    with pytest.raises(InvalidModel, match="0 upper tables; must be 1"):
        OptimisticTables(ROW, (np.full((1, 4), 0.1),), (np.array([0.6]),), (), ())
