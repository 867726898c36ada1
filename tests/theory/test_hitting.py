"""Times to reach a state: certified bounds, and the diameter under optimism."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fmdp.measures import diameter
from fmdp.model import FactoredMDP, OptimisticTables, Structure
from fmdp.testing import oracles
from fmdp.testing.oracles import DenseMDP
from fmdp.testing.strategies import models, optimistic_pairs, structures

SMALL = structures(max_variables=3, max_values=3, max_states=10, max_actions=3)
TINY = structures(max_variables=2, max_values=3, max_states=6, max_actions=2, max_rewards=0)


def saved(mdp: DenseMDP, v: np.ndarray, target: int) -> np.ndarray:
    """r = v - min_a P_a v on the states other than the target."""
    return np.delete(v - (mdp.transitions @ v).min(axis=0), target)


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_any_vector_bounds_the_times(data: st.DataObject) -> None:
    """v / max r <= E <= v / min r, for every v that is positive except at the target."""
    mdp = oracles.dense(data.draw(models(SMALL, rows=("positive", "quarters", "sparse"))))
    assume(mdp.n_states > 1)
    target = data.draw(st.integers(0, mdp.n_states - 1))
    times = oracles.shortest_times(mdp, target)
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    spread = data.draw(st.sampled_from((0.0, 0.01, 0.3, 2.0)))
    v = np.where(np.isfinite(times), times, 10.0) * np.exp(spread * rng.normal(size=len(times)))
    r = saved(mdp, v, target)
    if r.max() > 0:
        assert (v / r.max() <= times * (1 + 1e-9)).all()
    if r.min() > 1e-9:
        assert (times <= v / r.min() * (1 + 1e-9)).all()


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_the_range_of_r_never_grows(data: st.DataObject) -> None:
    """After v <- min_a P_a v + c, with c in the range of r, the new r is in the old range."""
    mdp = oracles.dense(data.draw(models(SMALL)))
    assume(mdp.n_states > 1)
    target = data.draw(st.integers(0, mdp.n_states - 1))
    v = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1))).random(mdp.n_states) + 0.1
    v[target] = 0.0
    share = data.draw(st.floats(0, 1))
    for _ in range(5):
        r = saved(mdp, v, target)
        v = (mdp.transitions @ v).min(axis=0) + r.min() + share * np.ptp(r)
        v[target] = 0.0
        new = saved(mdp, v, target)
        assert new.min() >= r.min() - 1e-12
        assert new.max() <= r.max() + 1e-12


def detour() -> tuple[OptimisticTables, FactoredMDP]:
    """Two bits, one action. The goal is (0, 0).

    (0, 1): p-hat = (1/4, 3/4) with widths 1/4 in both bits; in truth it goes to (1, 1) surely.
    (1, 1): to the goal surely, and known. (1, 0): to the goal with 1/100, else it stays; known.
    (0, 0): anywhere with 1/4; known.
    """
    structure = Structure((2, 2), (1,), ((0, 1), (0, 1)), ())
    #         (0,0)       (0,1)         (1,0)         (1,1)
    first = [[0.5, 0.5], [0.25, 0.75], [0.01, 0.99], [1, 0]]
    second = [[0.5, 0.5], [0.25, 0.75], [1, 0], [1, 0]]
    widths = [[0, 0], [0.25, 0.25], [0, 0], [0, 0]]
    tables = OptimisticTables.from_widths(structure, [first, second], [widths] * 2, [], [])
    first[1] = second[1] = [0, 1]
    return tables, FactoredMDP(structure, [first, second], [])


def test_the_printed_target_takes_35_steps_where_2_are_needed() -> None:
    """Lemma `lem:diameter` sends every factor to the goal itself.

    From (0, 1) both bits are then fair coins: E = 1 + E/4 + 100/4 + 1/4, so E = 35.
    """
    tables, truth = detour()
    true_times = oracles.shortest_times(oracles.dense(truth), 0)
    assert true_times == pytest.approx([0, 2, 100, 1])
    mdp = oracles.extended(tables)
    printed = mdp.transitions[0]  # the one action with target (0, 0)
    assert printed[1] == pytest.approx([0.25, 0.25, 0.25, 0.25])
    assert oracles.hitting_times(printed, 0)[1] == pytest.approx(35.0)
    # The target (1, 1), which minimises the true expected time, goes there surely.
    assert oracles.shortest_times(mdp, 0)[1] == pytest.approx(2.0)


@settings(max_examples=40, deadline=None)
@given(optimistic_pairs(TINY))
def test_repaired_diameter_lemma(pair: tuple[OptimisticTables, FactoredMDP]) -> None:
    """From every state to every other, the extended model is at least as fast as the truth."""
    tables, truth = pair
    optimistic, true = oracles.extended(tables), oracles.dense(truth)
    for target in range(true.n_states):
        quick = oracles.shortest_times(optimistic, target)
        slow = oracles.shortest_times(true, target)
        assert (quick <= slow * (1 + 1e-8) + 1e-8).all()


@settings(max_examples=20, deadline=None)
@given(optimistic_pairs(TINY))
def test_the_library_sees_the_smaller_diameter(
    pair: tuple[OptimisticTables, FactoredMDP],
) -> None:
    tables, truth = pair
    extended, true = diameter(tables.extended()), diameter(truth)
    assert extended is not None
    assert true is not None
    assert extended.value <= true.value * (1 + 1e-9)


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_nested_targets_are_faster_still(data: st.DataObject) -> None:
    """The times of nested targets are the limit of a sequence that falls from those of joint ones.

    T(E) = 1 + min_a (nested expectation of E), where the free mass goes to the smallest value.
    """
    tables, _ = data.draw(optimistic_pairs(TINY))
    structure = tables.structure
    order = data.draw(st.permutations(range(structure.m)))
    target = data.draw(st.integers(0, structure.n_states - 1))
    times = oracles.shortest_times(oracles.extended(tables), target)
    assume(np.isfinite(times).all())
    for _ in range(6):
        onward = 1 - oracles.nested_values(tables, -times, order).max(axis=0)
        onward[target] = 0.0
        assert (onward <= times * (1 + 1e-9) + 1e-9).all()
        times = onward
