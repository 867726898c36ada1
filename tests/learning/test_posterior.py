"""PSRL's sampler against the exact moments and laws of its posterior."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from fmdp import FactoredMDP, Statistics, Structure
from fmdp.learning.posterior import (
    dirichlet_parameters,
    reward_posterior,
    sample_model,
    sample_rewards,
    sample_rows,
)
from fmdp.model.entries import entries_of

DRAWS = 20_000
Z = 4.5  # standard errors; about 1e-5 a comparison

STRUCTURE = Structure(
    state_sizes=(3, 2),
    action_sizes=(2,),
    transition_scopes=((2,), ()),
    reward_scopes=((0,), (1,)),
    reward_ranges=((0.0, 1.0), (-2.0, 2.0)),
)


def generator(seed: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(seed))


@pytest.mark.parametrize(
    "parameters",
    [
        (1.0, 1.0, 1.0, 30.0, 1.5, 0.5, 2.0, 5.0),
        (0.01, 0.01, 0.01, 13.34, 0.01, 0.01, 0.01, 1.3),
        (0.001, 0.001, 0.001, 0.001, 0.002, 0.003, 0.001, 0.001),
    ],
)
def test_moments_of_the_rows(parameters: tuple[float, ...]) -> None:
    entries = entries_of(STRUCTURE)
    alpha = np.array(parameters)
    rng = generator(1)
    draws = np.array([sample_rows(alpha, entries, rng) for _ in range(DRAWS)])
    totals = np.add.reduceat(alpha, entries.first_cell[:-1])[entries.cell_entry]
    mean = alpha / totals
    variance = mean * (1 - mean) / (totals + 1)
    assert np.all(np.abs(draws.mean(axis=0) - mean) < Z * np.sqrt(variance / DRAWS))
    squares = ((draws - mean) ** 2).mean(axis=0)
    spread = ((draws - mean) ** 2).std(axis=0)
    assert np.all(np.abs(squares - variance) < Z * spread / np.sqrt(DRAWS) + 1e-12)


def test_a_row_of_two_values_is_beta() -> None:
    entries = entries_of(STRUCTURE)
    rng = generator(2)
    alpha = np.array([1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.3, 2.5])
    draws = [sample_rows(alpha, entries, rng)[6] for _ in range(2000)]
    assert stats.kstest(draws, stats.beta(0.3, 2.5).cdf).pvalue > 1e-4
    # The test can tell: another law of the same mean is refused.
    assert stats.kstest(draws, stats.beta(0.6, 5.0).cdf).pvalue < 1e-4


def test_rows_do_not_underflow_where_gammas_do() -> None:
    entries = entries_of(STRUCTURE)
    alpha = np.full(entries.n_cells, 0.001)
    rng = generator(3)
    rows = np.array([sample_rows(alpha, entries, rng) for _ in range(500)])
    sums = np.add.reduceat(rows, entries.first_cell[:-1], axis=1)
    assert np.abs(sums - 1).max() < 1e-12
    # What it guards against: plain gammas leave rows without any mass.
    gammas = rng.standard_gamma(np.full((500, 2), 0.001))
    assert (gammas.sum(axis=1) == 0).mean() > 0.1


def some_statistics() -> Statistics:
    statistics = Statistics(STRUCTURE)
    for after in ((0, 1), (2, 1), (2, 0)):
        statistics.record((0, 1), (1,), (1.0, -0.5), after)
    return statistics


def test_parameters_by_hand() -> None:
    parameters = dirichlet_parameters(some_statistics(), c=0.5, prior=0.01)
    assert parameters == pytest.approx([0.01] * 3 + [2.01, 0.01, 4.01] + [2.01, 4.01])


def test_reward_posterior_by_hand() -> None:
    means, deviations = reward_posterior(some_statistics(), c=0.75)
    # Entries: factor 0 (s0 = 0, 1, 2), then factor 1 (s1 = 0, 1).
    assert means == pytest.approx([1.0, 0.5, 0.5, 0.0, -0.5])
    unseen, seen = 0.75**0.5, 0.5
    assert deviations == pytest.approx([seen, unseen, unseen, 4 * unseen, 4 * seen])


def test_sampled_rewards_are_clipped_normals() -> None:
    statistics = some_statistics()
    rng = generator(4)
    draws = np.array([sample_rewards(statistics, 0.03, rng) for _ in range(DRAWS)])
    assert draws[:, :3].min() >= 0.0
    assert draws[:, :3].max() <= 1.0
    # Factor 1, entry 1: N(-.5, .03 / 3 * 16), deviation .4; clipping at -2 is 3.75 deviations off.
    assert abs(draws[:, 4].mean() + 0.5) < Z * 0.4 / DRAWS**0.5
    assert abs(draws[:, 4].std() - 0.4) < Z * 0.4 / (2 * DRAWS) ** 0.5 + 0.001


def test_a_sample_is_a_model() -> None:
    statistics = some_statistics()
    rng = generator(5)
    for prior in (1e-9, 1e-3, 1.0):
        model = sample_model(statistics, 0.75, prior, rng)
        # The checking constructor finds nothing to change, to the last bit.
        assert FactoredMDP(STRUCTURE, model.transitions, model.rewards) == model
        assert not any(table.flags.writeable for table in model.transitions + model.rewards)
