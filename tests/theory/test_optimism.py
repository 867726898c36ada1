"""Optimism in factored models: what the paper's lemma gets wrong, and what is true instead."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fmdp.elimination.backup import Backup
from fmdp.model import FactoredMDP, OptimisticTables, Structure
from fmdp.testing import oracles
from fmdp.testing.strategies import optimistic_pairs, optimistic_tables, structures, values

SMALL = structures(max_variables=3, max_values=3, max_states=12, max_actions=3)
TINY = structures(max_variables=2, max_values=3, max_states=6, max_actions=2)
ROUNDING = 1e-9


def two_bits() -> tuple[OptimisticTables, np.ndarray]:
    """Two bits without parents: p-hat = (1/4, 3/4), widths 1/4; the truth is (0, 1) in both."""
    structure = Structure((2, 2), (1,), ((), ()), ())
    estimate, width = [[0.25, 0.75]], [[0.25, 0.25]]
    tables = OptimisticTables.from_widths(structure, [estimate] * 2, [width] * 2, [], [])
    h = np.array([1.0, 0.0, 0.0, 0.99])  # h(0,0) = 1, h(1,1) = .99
    return tables, h


def test_the_printed_lemma_is_false() -> None:
    """Lemma `lem:opt` sends every factor to s* = argmax h = (0, 0): .4975, where the truth has .99.

    The truth (0, 1) is above p-minus = (0, 1/2) in both factors, and within 1/4 of p-hat.
    """
    tables, h = two_bits()
    assert tables.lower[0].tolist() == [[0.0, 0.5]]
    truth = FactoredMDP(tables.structure, [[[0, 1]], [[0, 1]]], [])
    true_value = oracles.bellman(oracles.dense(truth), h)[0]
    x = (0, 0, 0)  # state (0, 0), the only action
    printed_target = np.unravel_index(int(h.argmax()), (2, 2))
    assert printed_target == (0, 0)
    assert true_value == 0.99
    assert oracles.next_law(tables, x, (0, 0)) @ h == 0.4975  # 1/4 + .99/4


def test_some_target_is_optimistic_there() -> None:
    tables, h = two_bits()
    assert oracles.next_law(tables, (0, 0, 0), (1, 1)) @ h == 0.99
    assert oracles.vertex_values(tables, h) == pytest.approx(np.full((1, 4), 0.99))


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_the_truth_is_a_mixture_of_joint_targets(data: st.DataObject) -> None:
    """P_i = sum_t w_i(t) P_i^{t+}, so P = sum over joint targets of prod_i w_i(t_i) P^{t+}."""
    tables, truth = data.draw(optimistic_pairs(SMALL))
    structure = tables.structure
    x = tuple(data.draw(st.integers(0, size - 1)) for size in structure.sizes)
    weights = []
    for i, scope in enumerate(structure.transition_scopes):
        row = oracles.scope_row(structure, scope, x)
        spare, free = truth.transitions[i][row] - tables.lower[i][row], tables.free[i][row]
        size = structure.state_sizes[i]
        weights.append(spare / free if free > 1e-12 else np.full(size, 1 / size))
    law = np.zeros(structure.n_states)
    for target in oracles.assignments(structure.state_sizes):
        share = np.prod([weights[i][t] for i, t in enumerate(target)])
        law += share * oracles.next_law(tables, x, target)
    mdp = oracles.dense(truth)
    state = int(np.ravel_multi_index(x[: structure.m], structure.state_sizes))
    action = int(np.ravel_multi_index(x[structure.m :], structure.action_sizes))
    assert law == pytest.approx(mdp.transitions[action, state], abs=1e-9)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_repaired_lemma(data: st.DataObject) -> None:
    """For every h, state and action some joint target is worth at least as much as the truth."""
    tables, truth = data.draw(optimistic_pairs(SMALL))
    h = data.draw(values(tables.structure))
    true_values = oracles.action_values(oracles.dense(truth), h)
    assert (
        oracles.vertex_values(tables, h) >= true_values - ROUNDING * (1 + np.abs(h).max())
    ).all()


@settings(max_examples=40, deadline=None)
@given(optimistic_pairs(TINY))
def test_the_extended_model_gains_at_least_as_much(
    pair: tuple[OptimisticTables, FactoredMDP],
) -> None:
    tables, truth = pair
    optimistic = oracles.optimal(oracles.extended(tables)).gain
    assert (optimistic >= oracles.optimal(oracles.dense(truth)).gain - 1e-8).all()


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_nested_targets_are_a_relaxation(data: st.DataObject) -> None:
    """Whatever the elimination order: never below the best joint target."""
    tables = data.draw(optimistic_tables(SMALL))
    h = data.draw(values(tables.structure))
    vertex = oracles.vertex_values(tables, h)
    for order in itertools.permutations(range(tables.structure.m)):
        nested = oracles.nested_values(tables, h, order)
        assert (nested >= vertex - ROUNDING * (1 + np.abs(h).max())).all()


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_nested_targets_are_exact_for_additive_functions(data: st.DataObject) -> None:
    tables = data.draw(optimistic_tables(SMALL))
    h = data.draw(values(tables.structure, additive=True))
    vertex = oracles.vertex_values(tables, h)
    for order in itertools.permutations(range(tables.structure.m)):
        nested = oracles.nested_values(tables, h, order)
        assert nested == pytest.approx(vertex, abs=1e-9 * (1 + np.abs(h).max()))


def test_nested_targets_depend_on_the_order() -> None:
    """The first bit is a fair coin, all the mass of the second is free, h rewards agreement.

    If the second is eliminated first, its target may look at the coin and always agree: 1. If it
    is eliminated last, or for joint targets, it cannot: 1/2.
    """
    structure = Structure((2, 2), (1,), ((), ()), ())
    lower, free = ([[0.5, 0.5]], [[0.0, 0.0]]), ([0.0], [1.0])
    tables = OptimisticTables(
        structure, tuple(map(np.array, lower)), tuple(map(np.array, free)), ()
    )
    h = np.array([1.0, 0, 0, 1])
    assert oracles.vertex_values(tables, h)[0, 0] == 0.5
    assert oracles.nested_values(tables, h, (0, 1))[0, 0] == 0.5
    assert oracles.nested_values(tables, h, (1, 0))[0, 0] == 1.0


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_the_engine_computes_nested_targets_in_its_order(data: st.DataObject) -> None:
    tables = data.draw(optimistic_tables(SMALL))
    h = data.draw(values(tables.structure))
    backup = Backup(tables.structure, nested=True)
    backup.load(tables)
    expected = oracles.nested_values(tables, h, backup.layout.order).max(axis=0)
    assert backup.apply(h) == pytest.approx(expected, abs=1e-9 * (1 + np.abs(h).max()))
