"""Balls of the divergence in the nested backup: against oracles, grids and by hand."""

from __future__ import annotations

import math
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fmdp.elimination import kernels
from fmdp.elimination.backup import Backup, backup_for
from fmdp.errors import InvalidModel, InvalidParameter
from fmdp.model import OptimisticTables, Structure
from fmdp.model.divergence import bernoulli_divergence, box_around, largest_within
from fmdp.planning.exact.planner import Exact
from fmdp.planning.projected import Projected
from fmdp.testing import oracles, strategies

ROW = Structure((4,), (1,), ((),), ())
PAIR = Structure((2,), (1,), ((),), ())


def value(centre: list[float], radius: float, x: list[float], *, worst: bool = False) -> float:
    structure = Structure((len(x),), (1,), ((),), ())
    tables = OptimisticTables.from_balls(structure, [[centre]], [radius], [], distance="kl")
    return float(backup_for(tables, worst=worst).apply(np.array(x))[0])


@given(st.data())
@settings(max_examples=60)
def test_the_backup_equals_the_recursion_over_optimal_rows(data: st.DataObject) -> None:
    """The oracle returns what a member of the ball attains, and the backup never less: equal
    numbers prove both."""
    structure = data.draw(
        strategies.structures(max_variables=2, max_values=4, max_states=8, max_actions=2)
    )
    truth = data.draw(strategies.models(structure))
    rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
    radius = [
        rng.choice([0.0, 1e-4, 0.1, 1.0, 5.0, 40.0], size=rows)
        for rows in structure.transition_rows
    ]
    tables = OptimisticTables.from_balls(
        structure, truth.transitions, radius, truth.rewards, distance="kl"
    )
    h = data.draw(strategies.values(structure))
    size = 1.0 + np.abs(h).max()
    for worst in (False, True):
        shared = backup_for(tables, worst=worst)
        prepared = Backup(structure, shape=kernels.DIVERGENCE, worst=worst)
        prepared.load(tables)
        q = oracles.nested_box_values(tables, h, shared.layout.order, worst=worst)
        np.testing.assert_allclose(shared.apply(h), q.max(axis=0), atol=1e-9 * size)
        assert prepared.apply(h).tobytes() == shared.apply(h).tobytes()
        box = OptimisticTables(structure, tables.lower, tables.free, tables.rewards, tables.upper)
        sign = -1.0 if worst else 1.0
        around = backup_for(box, worst=worst).apply(h)
        assert (sign * around >= sign * shared.apply(h) - 1e-9 * size).all()


@pytest.mark.parametrize("radius", [0.01, 0.3, 2.0])
@pytest.mark.parametrize("centre", [(0.2, 0.3, 0.5), (0.6, 0.4, 0.0), (0.0, 0.9, 0.1)])
@pytest.mark.parametrize("worst", [False, True])
def test_no_row_of_a_fine_grid_is_better_and_one_is_as_good(
    centre: tuple[float, ...], radius: float, worst: bool
) -> None:
    p, x, sign = np.array(centre), np.array([1.0, -2.0, 4.0]), -1.0 if worst else 1.0
    parts = 600
    first, second = np.meshgrid(np.arange(parts + 1), np.arange(parts + 1), indexing="ij")
    rows = np.stack([first, second, parts - first - second], axis=-1)[first + second <= parts]
    rows, seen = rows / parts, p > 0
    with np.errstate(divide="ignore"):
        apart = (p[seen] * np.log(p[seen] / rows[:, seen])).sum(axis=1)
    best = (sign * (rows[apart <= radius] @ x)).max()
    found = sign * value(list(centre), radius, x.tolist(), worst=worst)
    assert best <= found + 1e-12
    assert best >= found - 12 / parts  # two steps of the grid, values that are 6 apart


def test_two_values_by_hand() -> None:
    """p-hat = 1: kl(1, q) = log(1 / q), so q >= e^-r. p-hat = 0 likewise."""
    assert value([1.0, 0.0], 0.5, [0.0, 1.0]) == pytest.approx(1 - math.exp(-0.5))
    assert value([1.0, 0.0], 0.5, [0.0, 1.0], worst=True) == pytest.approx(0.0, abs=1e-12)
    assert value([0.0, 1.0], 2.0, [3.0, 1.0]) == pytest.approx(3 - 2 * math.exp(-2.0))


def test_a_value_that_was_never_seen_by_hand() -> None:
    """All of p-hat is at worth 1, the unseen value is worth 5: its mass is 1 - e^-r. With half of
    p-hat at 1 and half at 3 the loss against 5 is the geometric mean of 4 and 2, times e^-r."""
    assert value([1.0, 0.0, 0.0], 0.25, [1.0, 0.0, 5.0]) == pytest.approx(5 - 4 * math.exp(-0.25))
    expected = 5 - math.sqrt(8.0) * math.exp(-1.0)
    assert value([0.5, 0.5, 0.0], 1.0, [1.0, 3.0, 5.0]) == pytest.approx(expected)


def test_the_ends_of_the_radius() -> None:
    row, x = [0.1, 0.2, 0.3, 0.4], [0.0, 1.0, 2.0, 3.0]
    assert value(row, 0.0, x) == pytest.approx(2.0)
    assert value(row, math.inf, x) == 3.0
    assert value(row, math.inf, x, worst=True) == 0.0
    assert value([0.0] * 4, 0.1, x) == 3.0  # nothing was seen
    assert value(row, 700.0, x) == pytest.approx(3.0)
    small = value(row, 1e-10, x)  # mean + sqrt(2 r variance), the variance is 1
    assert small == pytest.approx(2.0 + math.sqrt(2e-10), abs=1e-9)
    assert value(row, 0.3, [2.0] * 4) == 2.0


def test_bernoulli_divergence_and_its_inverse() -> None:
    p, q = np.array([0.5, 0.0, 1.0, 0.3, 0.2]), np.array([0.25, 0.5, 0.5, 0.3, 1.0])
    expected = [0.5 * math.log(2) + 0.5 * math.log(2 / 3), math.log(2), math.log(2), 0.0, math.inf]
    assert bernoulli_divergence(p, q) == pytest.approx(expected)
    ends = largest_within(np.array([0.0, 0.3, 1.0]), np.array([0.7, 0.2, 0.1]))
    assert ends[0] == pytest.approx(1 - math.exp(-0.7))
    assert bernoulli_divergence(np.array([0.3]), ends[1:2]) == pytest.approx([0.2])
    assert ends[2] == 1.0


@given(st.integers(0, 10_000))
@settings(max_examples=40)
def test_the_box_is_around_the_ball(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for size in (2, 4):
        p, q = rng.dirichlet(np.ones(size), size=2)
        radius = float((p * np.log(p / q)).sum())
        lower, upper = box_around(p[None], np.array([radius + 1e-12]))
        assert (lower[0] <= q + 1e-9).all()
        assert (q <= upper[0] + 1e-9).all()
        assert (lower <= p).all()
        assert (p <= upper).all()


def test_threads_and_one_thread_give_the_same_bits() -> None:
    sizes = (3, 2, 4, 3, 2, 4, 3, 5)
    scopes = tuple(tuple(sorted({i, (i + 1) % 8, 8})) for i in range(8))
    structure = Structure(sizes, (2,), scopes, ((0, 8),))
    rng = np.random.default_rng(0)
    rows = [
        rng.dirichlet(np.ones(size), size=n)
        for n, size in zip(structure.transition_rows, sizes, strict=True)
    ]
    radius = [rng.exponential(0.3, size=n) for n in structure.transition_rows]
    rewards = (rng.random(structure.reward_rows[0]),)
    tables = OptimisticTables.from_balls(structure, rows, radius, rewards, distance="kl")
    h = rng.normal(size=structure.n_states)
    shape = kernels.DIVERGENCE
    one, two = (Backup(structure, shape=shape, share_for=tables, threads=n) for n in (1, 2))
    assert one.apply(h).tobytes() == two.apply(h).tobytes()


def test_what_does_not_fit_is_refused() -> None:
    row = [[[0.1, 0.2, 0.3, 0.4]]]
    with pytest.raises(InvalidModel, match="distance of balls is 'l2'; must be l1 or kl"):
        OptimisticTables.from_balls(ROW, row, [0.6], [], distance="l2")
    made = OptimisticTables.from_balls(ROW, row, [0.6], [], distance="kl")
    assert pickle.loads(pickle.dumps(made)).distance == "kl"
    with pytest.raises(RuntimeError, match="of the shape that it was prepared for"):
        Backup(ROW, shape=kernels.BALL).load(made)
    with pytest.raises(InvalidModel, match="only targets=nested takes boxes"):
        Exact(targets="vertex").prepare(ROW).solve(made)
    with pytest.raises(InvalidParameter, match="takes L1 balls"):
        Projected().prepare(ROW).solve(made, mitigation=np.ones((4, 1)), distances=np.zeros((4, 4)))
