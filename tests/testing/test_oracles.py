"""The oracles against hand-made numbers, against each other, and against definitions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from fmdp.errors import TooLarge
from fmdp.model import FactoredMDP, OptimisticTables, Structure
from fmdp.testing import oracles
from fmdp.testing.strategies import models, optimistic_tables, policies, structures, values

SMALL = structures(max_variables=3, max_values=3, max_states=8, max_actions=3)
TINY = structures(max_variables=2, max_values=3, max_states=5, max_actions=3)


def two_by_two() -> FactoredMDP:
    """Two binary variables; the second copies the first unless the action says to negate it."""
    structure = Structure(
        state_sizes=(2, 2),
        action_sizes=(2,),
        transition_scopes=((), (0, 2)),
        reward_scopes=((0,), (1, 2)),
        reward_ranges=((0, 1), (0, 4)),
    )
    first = [[0.25, 0.75]]
    second = [[1, 0], [0.5, 0.5], [0, 1], [0, 1]]  # rows (s0, a): (0,0), (0,1), (1,0), (1,1)
    return FactoredMDP(structure, [first, second], [[0, 1], [0, 2, 3, 4]])


def test_dense_tables_by_hand() -> None:
    mdp = oracles.dense(two_by_two())
    assert mdp.transitions.shape == (2, 4, 4)
    # State (0, 1) with action 1: first ~ (1/4, 3/4), second ~ (1/2, 1/2).
    assert mdp.transitions[1, 1] == pytest.approx([0.125, 0.125, 0.375, 0.375])
    # State (1, 0) with action 0: the second is surely 1.
    assert mdp.transitions[0, 2] == pytest.approx([0, 0.25, 0, 0.75])
    # Rewards of (s0, s1): s0 from the first factor, row (s1, a) of the second.
    assert mdp.rewards.tolist() == [[0, 3, 1, 4], [2, 4, 3, 5]]
    assert oracles.bellman(mdp, np.array([0.0, 0, 0, 8])).tolist() == [5, 7, 9, 11]
    assert oracles.bellman(mdp, np.array([0.0, 0, 0, 8]), discount=0.5).tolist() == [3.5, 5.5, 6, 8]


def test_dense_refuses_what_does_not_fit() -> None:
    structure = Structure((2,) * 14, (1,), ((),) * 14, ())
    with pytest.raises(TooLarge):
        oracles.dense(FactoredMDP(structure, [[[0.5, 0.5]]] * 14, []))


def chain(rows: list[list[float]], rewards: list[float]) -> oracles.DenseMDP:
    return oracles.DenseMDP(np.array([rows], dtype=float), np.array([rewards], dtype=float))


def test_gain_and_bias_of_a_periodic_chain() -> None:
    mdp = chain([[0, 1], [1, 0]], [0, 1])
    assert oracles.policy_gain(mdp, [0, 0]) == pytest.approx([0.5, 0.5])
    # h(1) - h(0) = 1 - 1/2, and P* h = 0 centres it.
    assert oracles.policy_bias(mdp, [0, 0]) == pytest.approx([-0.25, 0.25])


def test_gain_of_a_chain_with_two_classes_is_one_number_for_each_state() -> None:
    # State 0 goes to the absorbing states 1 and 2 with 1/3 and 2/3.
    mdp = chain([[0, 1 / 3, 2 / 3], [0, 1, 0], [0, 0, 1]], [7, 3, 6])
    assert oracles.policy_gain(mdp, [0, 0, 0]) == pytest.approx([5, 3, 6])
    assert oracles.policy_bias(mdp, [0, 0, 0]) == pytest.approx([2, 0, 0])


def test_hitting_times_by_hand() -> None:
    # 0 -> 1 with 1/2 else stay; 1 -> 2 surely; 2 absorbs.
    rows = np.array([[0.5, 0.5, 0], [0, 0, 1], [0, 0, 1.0]])
    assert oracles.hitting_times(rows, 2) == pytest.approx([3, 1, 0])
    assert oracles.hitting_times(rows, 1).tolist() == [2, 0, np.inf]
    # From 0 the chain may be absorbed in 2 and never see 1.
    rows = np.array([[0, 0.5, 0.5], [0, 1, 0], [0, 0, 1.0]])
    assert oracles.hitting_times(rows, 1).tolist() == [np.inf, 0, np.inf]


def test_shortest_times_avoid_the_trap() -> None:
    # Action 0 risks the trap 2; action 1 is slow and sure.
    fast = [[0, 0.9, 0.1], [1, 0, 0], [0, 0, 1]]
    slow = [[0.75, 0.25, 0], [1, 0, 0], [0, 0, 1]]
    mdp = oracles.DenseMDP(np.array([fast, slow]), np.zeros((2, 3)))
    assert oracles.shortest_times(mdp, 1) == pytest.approx([4, 0, np.inf])
    assert oracles.diameter(mdp) == np.inf


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_the_best_gain_is_the_best_of_all_policies(data: st.DataObject) -> None:
    mdp = oracles.dense(data.draw(models(TINY)))
    assume(mdp.n_actions**mdp.n_states <= 300)
    gains = [oracles.policy_gain(mdp, policy) for policy in oracles.all_policies(mdp)]
    best = oracles.optimal(mdp)
    assert best.gain == pytest.approx(np.max(gains, axis=0), abs=1e-9)
    assert oracles.policy_gain(mdp, best.policy) == pytest.approx(best.gain, abs=1e-12)


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_the_best_gain_solves_the_multichain_linear_program(data: st.DataObject) -> None:
    """min sum g  s.t.  g >= P_a g,  g + h >= R_a + P_a h  (Puterman 1994, 9.3)."""
    mdp = oracles.dense(data.draw(models(SMALL)))
    n = mdp.n_states
    identity = np.eye(n)
    rows, right = [], []
    for chain_of_action, rewards in zip(mdp.transitions, mdp.rewards, strict=True):
        rows.append(np.hstack([chain_of_action - identity, np.zeros((n, n))]))
        right.append(np.zeros(n))
        rows.append(np.hstack([-identity, chain_of_action - identity]))
        right.append(-rewards)
    cost = np.concatenate([np.ones(n), np.zeros(n)])
    solution = linprog(cost, np.vstack(rows), np.concatenate(right), bounds=(None, None))
    assert solution.status == 0
    assert oracles.optimal(mdp).gain.sum() == pytest.approx(solution.fun, abs=1e-5)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_gain_and_bias_satisfy_their_equations(data: st.DataObject) -> None:
    model = data.draw(models(SMALL))
    mdp = oracles.dense(model)
    policy = data.draw(policies(model.structure))
    matrix, rewards = oracles.policy_chain(mdp, policy)
    gain, bias = oracles.policy_gain(mdp, policy), oracles.policy_bias(mdp, policy)
    scale = 1e-9 * (1 + np.abs(bias).max())
    assert matrix @ gain == pytest.approx(gain, abs=1e-9)
    assert rewards - gain + matrix @ bias == pytest.approx(bias, abs=scale)
    # The average over many steps tends to the gain: its error is at most 2 |h| / T.
    steps = 64
    total = np.zeros(mdp.n_states)
    for _ in range(steps):
        total = rewards + matrix @ total
    assert total / steps == pytest.approx(gain, abs=1e-9 + 2 * np.abs(bias).max() / steps)


@settings(max_examples=40, deadline=None)
@given(models(SMALL))
def test_damped_value_iteration_encloses_every_gain(model: FactoredMDP) -> None:
    mdp = oracles.dense(model)
    gain = oracles.optimal(mdp).gain
    _, lower, upper = oracles.damped_value_iteration(mdp, sweeps=200)
    assert lower - 1e-9 <= gain.min()
    assert gain.max() <= upper + 1e-9


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_shortest_times_are_those_of_the_best_policy(data: st.DataObject) -> None:
    mdp = oracles.dense(data.draw(models(TINY)))
    assume(mdp.n_actions**mdp.n_states <= 300)
    target = data.draw(st.integers(0, mdp.n_states - 1))
    chains = [oracles.policy_chain(mdp, policy)[0] for policy in oracles.all_policies(mdp)]
    every = np.array([oracles.hitting_times(rows, target) for rows in chains])
    assert oracles.shortest_times(mdp, target) == pytest.approx(every.min(axis=0), rel=1e-8)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_hitting_times_satisfy_their_equation(data: st.DataObject) -> None:
    model = data.draw(models(SMALL))
    mdp = oracles.dense(model)
    matrix, _ = oracles.policy_chain(mdp, data.draw(policies(model.structure)))
    target = data.draw(st.integers(0, mdp.n_states - 1))
    times = oracles.hitting_times(matrix, target)
    finite = np.isfinite(times)
    away = finite & (np.arange(mdp.n_states) != target)
    assert not matrix[np.ix_(away, ~finite)].any()
    again = 1 + matrix @ np.where(finite, times, 0.0)
    assert again[away] == pytest.approx(times[away], rel=1e-8)
    # A finite time means that the target is surely reached: P(T > t) tends to 0 like a power.
    missed = np.linalg.matrix_power(matrix * (np.arange(len(matrix)) != target), 2**40)
    assert missed[away].sum(axis=1) == pytest.approx(0, abs=1e-3)
    assert (missed[~finite].sum(axis=1) > 1e-6).all()


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_target_oracles_agree_with_the_extended_mdp(data: st.DataObject) -> None:
    tables: OptimisticTables = data.draw(optimistic_tables(SMALL))
    h = data.draw(values(tables.structure))
    mdp = oracles.extended(tables)
    shape = (tables.structure.n_actions, tables.structure.n_states, tables.structure.n_states)
    by_target = oracles.action_values(mdp, h, 0.9).reshape(shape)  # [A, targets, S]
    vertex = oracles.vertex_values(tables, h, 0.9)
    assert vertex == pytest.approx(by_target.max(axis=1))
    # With one variable there is nothing to nest.
    if tables.structure.m == 1:
        assert oracles.nested_values(tables, h, (0,), 0.9) == pytest.approx(vertex)


@settings(max_examples=30, deadline=None)
@given(optimistic_tables(SMALL))
def test_the_library_extends_as_the_oracle_does(tables: OptimisticTables) -> None:
    ours, theirs = oracles.extended(tables), oracles.dense(tables.extended())
    assert theirs.transitions == pytest.approx(ours.transitions)
    assert theirs.rewards == pytest.approx(ours.rewards)
