"""Theorems 12 and 13 of docs/theory.md, and the coin against the clock with its exact numbers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fmdp import Intervals
from fmdp.elimination.backup import backup_for
from fmdp.model import Alike, FactoredMDP, OptimisticTables, Structure
from fmdp.planning.exact.planner import Exact
from fmdp.planning.plan import Status
from fmdp.testing import oracles, strategies

SMALL = strategies.structures(max_variables=3, max_values=3, max_states=9, max_actions=3)


@given(st.data())
@settings(max_examples=40)
def test_nested_minima_and_maxima_enclose_every_member(data: st.DataObject) -> None:
    """Theorem 12, for the rewards of the member: theirs are between the ends by definition."""
    tables, truth = data.draw(strategies.box_pairs(SMALL))
    own = OptimisticTables(tables.structure, tables.lower, tables.free, truth.rewards, tables.upper)
    h = data.draw(strategies.values(tables.structure))
    q = oracles.action_values(oracles.dense(truth), h).T
    slack = 1e-9 * (1.0 + np.abs(h).max())
    assert (backup_for(own, worst=True).action_values(h) <= q + slack).all()
    assert (backup_for(own).action_values(h) >= q - slack).all()


@given(st.data())
@settings(max_examples=40)
def test_backups_of_boxes_are_monotone_and_commute_with_constants(data: st.DataObject) -> None:
    tables, _ = data.draw(strategies.box_pairs(SMALL))
    h = data.draw(strategies.values(tables.structure))
    more = np.abs(data.draw(strategies.values(tables.structure)))
    for worst in (False, True):
        backup = backup_for(tables, worst=worst)
        assert (backup.apply(h + more) >= backup.apply(h) - 1e-7).all()
        np.testing.assert_allclose(backup.apply(h + 3.5), backup.apply(h) + 3.5, atol=1e-7)


@given(st.data())
@settings(max_examples=40)
def test_the_greedy_policy_keeps_its_promise_against_a_nature_that_moves(
    data: st.DataObject,
) -> None:
    """Theorem 13: n steps against nature's best answer in every step and state, which is more than
    a member a step can do, pay at least n c - sp(h)."""
    tables, _ = data.draw(strategies.box_pairs(SMALL))
    h = data.draw(strategies.values(tables.structure))
    value, actions = backup_for(tables, worst=True).greedy(h)
    promise = float((value - h).min())
    states = np.arange(tables.structure.n_states)
    worth = np.zeros(tables.structure.n_states)
    slack = 1e-6 * (1.0 + np.abs(h).max())
    for n in range(1, 7):
        worth = oracles.box_values(tables, worth, worst=True)[actions, states]
        assert (worth >= n * promise - np.ptp(h) - n * slack).all()


def coin_and_clock() -> FactoredMDP:
    """Variables: the coin, thrown anew in every step, and the clock."""
    structure = Structure((2, 2), (1,), ((), (1,)), ((0, 1),))
    coin = np.array([[0.5, 0.5]])
    clock = np.array([[0.0, 1.0], [1.0, 0.0]])
    pay = np.array([1.0, 0.0, 0.0, 1.0])
    ends = (coin - 0.25, clock), (coin + 0.25, clock)
    return FactoredMDP(structure, [coin, clock], [pay], intervals=Intervals(*ends, (pay,), (pay,)))


def test_the_coin_against_the_clock() -> None:
    model = coin_and_clock()
    for heads in (0.25, 0.4, 0.75):
        member = FactoredMDP(
            model.structure, [[[1 - heads, heads]], model.transitions[1]], model.rewards
        )
        assert Exact().plan(member).gain == pytest.approx(0.5, abs=1e-6)
    robust = Exact(intervals="robust").plan(model)
    assert robust.status is Status.RELAXATION_LIMIT
    assert robust.gain_lower == pytest.approx(0.25, abs=1e-6)
    assert robust.gain_upper == pytest.approx(0.5, abs=1e-6)
    best = Exact(intervals="optimistic").plan(model)
    assert best.gain_lower == pytest.approx(0.5, abs=1e-6)
    assert best.gain_upper == pytest.approx(0.75, abs=1e-6)


def two_coins(full: bool) -> FactoredMDP:
    """A coin that is known up to a quarter and a fair one, thrown together; pay where they agree.

    In full, every row is used in one state and action alone.
    """
    scope = (0, 1) if full else ()
    structure = Structure((2, 2), (1,), (scope, scope), ((0, 1),))
    coin = np.full((4 if full else 1, 2), 0.5)
    pay = np.array([1.0, 0.0, 0.0, 1.0])
    ends = (coin - 0.25, coin), (coin + 0.25, coin)
    return FactoredMDP(structure, [coin, coin], [pay], intervals=Intervals(*ends, (pay,), (pay,)))


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize(("case", "bounds"), [("robust", (0.25, 0.5)), ("optimistic", (0.5, 0.75))])
def test_rows_of_one_state_each_do_not_make_the_ends_meet(
    full: bool, case: str, bounds: tuple[float, float]
) -> None:
    """One variable does: of several, nature chooses one knowing what the other comes to."""
    plan = Exact(intervals=case).plan(two_coins(full))
    assert plan.status is Status.RELAXATION_LIMIT
    assert (plan.gain_lower, plan.gain_upper) == pytest.approx(bounds, abs=1e-6)


def test_a_class_of_two_factors_keeps_the_ends_apart_though_values_are_sums() -> None:
    """One is paid for and the other costs the same: every member gains 0, whatever its row."""
    structure = Structure(
        (2, 2),
        (1,),
        ((), ()),
        ((0,), (1,)),
        ((0.0, 1.0), (-1.0, 0.0)),
        alike=Alike((np.array([0]), np.array([0])), (np.arange(2), np.arange(2, 4))),
    )
    coin, pay = np.array([[0.5, 0.5]]), (np.array([0.0, 1.0]), np.array([0.0, -1.0]))
    ends = (coin - 0.25, coin - 0.25), (coin + 0.25, coin + 0.25)
    model = FactoredMDP(structure, [coin, coin], pay, intervals=Intervals(*ends, pay, pay))
    plan = Exact(intervals="robust").plan(model)
    assert plan.status is Status.RELAXATION_LIMIT
    assert (plan.gain_lower, plan.gain_upper) == pytest.approx((-0.5, 0.0), abs=1e-6)
