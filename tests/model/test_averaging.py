"""Averaged tables of almost exchangeable parts: by hand, and the error against dense models."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from numpy.typing import NDArray

import fmdp
from fmdp.errors import InvalidParameter
from fmdp.model.averaging import PartsOf, addressing_values, averaged

Floats = NDArray[np.float64]


def perturbed(model: fmdp.FactoredMDP, seed: int, size: float) -> fmdp.FactoredMDP:
    """Return the model with every row moved towards a random one, and random rewards added."""
    generator = np.random.default_rng(seed)
    transitions = [
        (1 - size) * table + size * generator.dirichlet(np.ones(table.shape[1]), len(table))
        for table in model.transitions
    ]
    rewards = [table + size * generator.uniform(-1, 1, table.shape) for table in model.rewards]
    structure = model.structure.with_ranges([(-9.0, 9.0)] * model.structure.l)
    return fmdp.FactoredMDP(structure, transitions, rewards)


def backup(model: fmdp.FactoredMDP, h: Floats) -> Floats:
    """Return R + P h for every state and action, [S, A]."""
    s = model.structure
    result = []
    for state in itertools.product(*map(range, s.state_sizes)):
        for action in itertools.product(*map(range, s.action_sizes)):
            law = np.ones(1)
            for i in range(s.m):
                law = np.multiply.outer(law, model.transition_row(i, state, action)).reshape(-1)
            result.append(model.expected_reward(state, action) + law @ h)
    return np.array(result).reshape(s.n_states, s.n_actions)


CASES = [
    ("machines:2,topology=none", PartsOf(((0, 1, 4), (2, 3, 5)))),
    ("star:3,dynamics=guestrin", PartsOf(((1,), (2,)), 3, (1, 2))),
]


@pytest.mark.parametrize(("name", "parts"), CASES)
@pytest.mark.parametrize("seed", range(3))
def test_the_error_bounds_every_difference(name: str, parts: PartsOf, seed: int) -> None:
    model = perturbed(fmdp.problem(name), seed, 0.1)
    result = averaged(model, [parts])
    s = model.structure
    h = np.random.default_rng(seed).normal(size=s.state_sizes)
    changes = [float(np.ptp(h, axis=i).max()) for i in range(s.m)]
    low, high = result.error(changes)
    difference = backup(model, h.reshape(-1)) - backup(result.model, h.reshape(-1))
    assert low <= difference.min() < 0 < difference.max() <= high
    # The bound is not vacuous: it is within a small factor of the largest difference.
    assert high < 10 * difference.max()


def test_exchangeable_parts_stay_as_they_are() -> None:
    for name, parts in CASES:
        assert parts is not None
        model = fmdp.problem(name)
        result = averaged(model, [parts])
        for mean, table in zip(result.model.transitions, model.transitions, strict=True):
            np.testing.assert_allclose(mean, table, rtol=0, atol=1e-15)
        assert result.error([1.0] * model.structure.m) == pytest.approx((0, 0), abs=1e-14)


def test_means_by_hand() -> None:
    """Two machines that fail with .1 and .3, and are repaired by the value of one action."""
    tables = []
    for i, failure in enumerate((0.1, 0.3)):
        table = np.zeros((2, 3, 2))
        table[0, :] = (1 - failure, failure)
        table[1, :] = (0.0, 1.0)
        table[:, 1 + i] = (1.0, 0.0)
        tables.append(((i, 2), table.reshape(6, 2)))
    model = fmdp.FactoredMDP.from_factors(
        (2, 2),
        (3,),
        tables,
        [((0,), (1.0, 0.0)), ((1,), (2.0, 0.0)), ((2,), (0.0, -1.0, -2.0))],
        reward_ranges=[(0.0, 2.0), (0.0, 2.0), (-2.0, 0.0)],
    )
    assert addressing_values(model, [(0,), (1,)], 2) == (1, 2)
    result = averaged(model, [PartsOf(((0,), (1,)), 2, (1, 2))])
    for i in range(2):
        mean = result.model.transitions[i].reshape(2, 3, 2)
        np.testing.assert_allclose(mean[0, 0], (0.8, 0.2))
        np.testing.assert_allclose(mean[0, 2 - i], (0.8, 0.2))
        np.testing.assert_allclose(mean[0, 1 + i], (1.0, 0.0))
        np.testing.assert_allclose(result.model.rewards[i], (1.5, 0.0))
    np.testing.assert_allclose(result.model.rewards[2], (0.0, -1.5, -1.5))
    np.testing.assert_allclose(result.transition_distances, (0.1, 0.1))
    np.testing.assert_allclose(result.error((2.0, 3.0)), (-0.5 - 0.5 - 0.5, 0.5 + 0.5 + 0.5))


def test_parts_with_other_scopes_are_refused() -> None:
    model = fmdp.problem("star:3,dynamics=guestrin")
    with pytest.raises(InvalidParameter, match="has no counterpart in the part of"):
        averaged(model, [PartsOf(((0,), (1,)))])
