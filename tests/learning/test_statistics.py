"""Counts against a recount from the trajectory, by the definitions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fmdp import FactoredMDP, Statistics, Structure
from fmdp.errors import InvalidParameter
from fmdp.simulation import Environment
from fmdp.testing import strategies


@settings(max_examples=40, deadline=None)
@given(model=strategies.models(), seed=st.integers(0, 2**32 - 1))
def test_counts_are_those_of_the_trajectory(model: FactoredMDP, seed: int) -> None:
    s = model.structure
    rng = np.random.default_rng(seed)
    environment = Environment(model, rng)
    statistics = Statistics(s)
    trajectory = []
    for _ in range(30):
        state = environment.state
        action = tuple(int(rng.integers(size)) for size in s.action_sizes)
        rewards, after = environment.step(action)
        statistics.record(state, action, rewards, after)
        trajectory.append((state, action, rewards, after))
    for i, scope in enumerate(s.transition_scopes):
        counts = np.zeros((s.transition_rows[i], s.state_sizes[i]), dtype=np.int64)
        for state, action, _, after in trajectory:
            counts[s.scope_row(scope, state, action), after[i]] += 1
        assert np.array_equal(statistics.transition_counts(i), counts)
    for k, scope in enumerate(s.reward_scopes):
        visits, sums = np.zeros(s.reward_rows[k], dtype=np.int64), np.zeros(s.reward_rows[k])
        for state, action, rewards, _ in trajectory:
            visits[s.scope_row(scope, state, action)] += 1
            sums[s.scope_row(scope, state, action)] += rewards[k]
        assert np.array_equal(statistics.reward_totals(k)[0], visits)
        assert np.array_equal(statistics.reward_totals(k)[1], sums)
    # Every step visits one entry of every factor.
    assert statistics.visits.sum() == 30 * (s.m + s.l)
    assert statistics.cell_counts.sum() == 30 * s.m


STRUCTURE = Structure(
    state_sizes=(2, 3),
    action_sizes=(2,),
    transition_scopes=((0, 2), (1,)),
    reward_scopes=((0,),),
    reward_ranges=((-1.0, 1.0),),
)


def test_estimates_by_hand() -> None:
    statistics = Statistics(STRUCTURE)
    statistics.record((0, 2), (1,), (0.5,), (1, 0))
    statistics.record((0, 0), (1,), (-0.25,), (0, 0))
    statistics.record((0, 0), (1,), (0.5,), (1, 1))
    # Factor 0, entry (s0=0, a=1) = 1: next values 1, 0, 1. Factor 1, entry s1=0: 0, 1; s1=2: 0.
    means = statistics.transition_means()
    assert means[:8].tolist() == [0, 0, 1 / 3, 2 / 3, 0, 0, 0, 0]
    assert means[8:].tolist() == [0.5, 0.5, 0, 0, 0, 0, 1, 0, 0]
    assert statistics.reward_means().tolist() == [0.25, 0]
    assert statistics.transition_visits.tolist() == [0, 3, 0, 0, 2, 0, 1]
    assert statistics.reward_visits.tolist() == [3, 0]


@pytest.mark.parametrize(
    ("step", "said"),
    [
        (((2, 0), (0,), (0.0,), (0, 0)), "state"),
        (((0, 0), (2,), (0.0,), (0, 0)), "action"),
        (((0, 0), (0,), (0.0,), (0, 3)), "next state"),
        (((0, 0), (0,), (1.5,), (0, 0)), 'reward factor 0 ("r0"): observed reward is 1.5'),
        (((0, 0), (0,), (float("nan"),), (0, 0)), "observed reward is nan"),
        (((0, 0), (0,), (), (0, 0)), "rewards must be 1 numbers"),
        (((0, 0), (0,), ("much",), (0, 0)), "rewards must be 1 numbers"),
    ],
)
def test_a_refused_step_leaves_no_trace(step: tuple, said: str) -> None:
    statistics = Statistics(STRUCTURE)
    with pytest.raises(InvalidParameter) as caught:
        statistics.record(*step)
    assert said in str(caught.value)
    assert not statistics.visits.any()
    assert not statistics.cell_counts.any()
