"""How noisy rewards are, from their sums alone: the method of batch means.

Statistics keep the number of visits and the sum of the rewards of an entry. Seen at B moments,
they are B batches of n_b visits and sums s_b, whose means differ by the noise alone:

    E sum_b n_b (s_b / n_b - s / N)^2 = (B - 1) sigma^2,
    sum_b n_b (s_b / n_b - s / N)^2 = sum_b s_b^2 / n_b - s^2 / N.

One batch more is taken for granted, with the variance of a coin on the ends of the range, which no
reward with that mean exceeds: before anything is known, the noise is as large as it can be.
All in units of the range, from its lower end.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fmdp.learning.statistics import Statistics

Floats = NDArray[np.float64]


class Batches(NamedTuple):
    """What was seen of every reward entry, batch by batch: each [reward entries]."""

    batches: Floats
    """B."""
    squares: Floats
    """sum_b s_b^2 / n_b."""
    batched_visits: Floats
    """N, when last looked at."""
    batched_sums: Floats
    """s, when last looked at."""


def no_batches(entries: int) -> Batches:
    """Nothing seen yet."""
    return Batches(*(np.zeros(entries) for _ in Batches._fields))


def scaled_sums(statistics: Statistics) -> Floats:
    """The sum of the rewards of every entry, in units of the range, from its lower end."""
    lo, hi, visits = statistics.reward_lo, statistics.reward_hi, statistics.reward_visits
    size = np.where(hi > lo, hi - lo, 1.0)
    scaled: Floats = np.clip((statistics.reward_sums - visits * lo) / size, 0.0, visits)
    return scaled


def with_batch(batches: Batches, statistics: Statistics) -> Batches:
    """What came since the last look is one batch more."""
    visits = statistics.reward_visits.astype(np.float64)
    sums = scaled_sums(statistics)
    came = np.maximum(visits - batches.batched_visits, 0.0)
    seen = came > 0
    square = np.divide(
        (sums - batches.batched_sums) ** 2, came, out=np.zeros(len(came)), where=seen
    )
    return Batches(batches.batches + seen, batches.squares + square, visits, sums)


def noise_variance(batches: Batches, mean: Floats) -> Floats:
    """sigma^2 of every entry, of which `mean` is an estimate of the mean; at most a coin's."""
    coin = mean * (1.0 - mean)
    visits, sums = batches.batched_visits, batches.batched_sums
    spread = batches.squares - sums**2 / np.maximum(visits, 1.0)
    variance = (coin + np.maximum(spread, 0.0)) / np.maximum(batches.batches, 1.0)
    found: Floats = np.minimum(variance, coin)
    return found
