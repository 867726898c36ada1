"""estimated_model: frequencies and means, and a stated guess where nothing was seen."""

from __future__ import annotations

import numpy as np
import pytest

import fmdp
from fmdp import FactoredMDP, Statistics, Structure, estimated_model

# One variable of three values that hangs on the action alone; a reward in [-1, 3] on the state.
STRUCTURE = Structure((3,), (2,), ((1,),), ((0,),), reward_ranges=((-1.0, 3.0),))


def test_by_hand() -> None:
    """Action 0 led to 0, 2, 2, 2; action 1 was never taken. State 0 paid 1 and 2, state 2 paid 3
    twice, state 1 was never left."""
    statistics = Statistics(STRUCTURE)
    for state, reward, after in ((0, 1.0, 0), (0, 2.0, 2), (2, 3.0, 2), (2, 3.0, 2)):
        statistics.record((state,), (0,), (reward,), (after,))
    model = estimated_model(statistics)
    assert model.transitions[0].tolist() == [[0.25, 0.0, 0.75], [1 / 3, 1 / 3, 1 / 3]]
    assert model.rewards[0].tolist() == [1.5, 1.0, 3.0]


def test_before_anything_is_seen_rows_are_uniform_and_rewards_in_the_middle() -> None:
    model = estimated_model(Statistics(STRUCTURE))
    np.testing.assert_array_equal(model.transitions[0], np.full((2, 3), 1 / 3))
    assert model.rewards[0].tolist() == [1.0, 1.0, 1.0]


def test_a_mean_at_the_end_of_its_range_stays_inside() -> None:
    """0.1 ten times sums to 0.9999999999999999, three times 0.1 / 3 to more than 0.1."""
    for top in (0.1, 0.3, 0.7):
        structure = Structure((1,), (1,), ((0,),), ((0,),), reward_ranges=((0.0, top),))
        statistics = Statistics(structure)
        for _ in range(10):
            statistics.record((0,), (0,), (top,), (0,))
            mean = float(estimated_model(statistics).rewards[0][0])
            assert 0.0 <= mean <= top
            assert mean == pytest.approx(top)


def test_it_is_a_model_and_comes_near_the_true_one() -> None:
    model = fmdp.problem("random:3,values=3,actions=2,seed=4,noise=bernoulli")
    run = fmdp.simulate(model, "random", 60_000, 2)
    assert not run.agent.statistics.visits.any()  # who learns nothing counts nothing
    recorded = fmdp.simulate(model, "random", 60_000, 2, record=True).trajectory
    assert recorded is not None
    statistics = Statistics(model.structure)
    for t in range(len(recorded)):
        statistics.record(
            recorded.states[t].tolist(),
            recorded.actions[t].tolist(),
            recorded.rewards[t],
            recorded.states[t + 1].tolist(),
        )
    found = estimated_model(statistics)
    checked = FactoredMDP(found.structure, found.transitions, found.rewards)  # its rows sum to 1
    assert checked.structure == model.structure
    least = statistics.visits.min()
    assert least > 200
    # A frequency of n visits is within 4.5 standard deviations of at most 1 / (2 sqrt n).
    within = 4.5 * 0.5 / np.sqrt(least)
    for estimated, true in zip(found.transitions, model.transitions, strict=True):
        assert np.abs(estimated - true).max() < within
        assert np.abs(estimated - true).max() > 0.0
