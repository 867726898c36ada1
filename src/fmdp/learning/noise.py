"""Variance of the reward noise from sums of rewards alone: the method of batch means.

Statistics keep the number of visits and the sum of the rewards of an entry. At B points in time
they define B batches of n_b visits and sums s_b, whose means differ by the noise alone:

    E sum_b n_b (s_b / n_b - s / N)^2 = (B - 1) sigma^2,
    sum_b n_b (s_b / n_b - s / N)^2 = sum_b s_b^2 / n_b - s^2 / N.

One more batch is assumed, with the variance of a coin on the ends of the range, the largest for a
reward with that mean: without data the noise is as large as possible. All numbers are in units of
the range, from its lower end.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fmdp.learning.statistics import Floats, Statistics


class Batches(NamedTuple):
    """Batches of every reward entry: each field [reward entries]."""

    batches: Floats
    """B."""
    squares: Floats
    """sum_b s_b^2 / n_b."""
    batched_visits: Floats
    """N at the last batch."""
    batched_sums: Floats
    """s at the last batch."""


def no_batches(entries: int) -> Batches:
    """Return empty batches."""
    return Batches(*(np.zeros(entries) for _ in Batches._fields))


def scaled_sums(statistics: Statistics) -> Floats:
    """Return the sum of the rewards of every entry, in units of the range, from its lower end."""
    lo, hi, visits = statistics.reward_lo, statistics.reward_hi, statistics.reward_visits
    size = np.where(hi > lo, hi - lo, 1.0)
    scaled: Floats = np.clip((statistics.reward_sums - visits * lo) / size, 0.0, visits)
    return scaled


def with_batch(batches: Batches, statistics: Statistics) -> Batches:
    """Return the batches with one more: the visits since the last one."""
    visits = statistics.reward_visits.astype(np.float64)
    sums = scaled_sums(statistics)
    new_visits = np.maximum(visits - batches.batched_visits, 0.0)
    seen = new_visits > 0
    square = np.divide(
        (sums - batches.batched_sums) ** 2, new_visits, out=np.zeros(len(seen)), where=seen
    )
    return Batches(batches.batches + seen, batches.squares + square, visits, sums)


def noise_variance(batches: Batches, mean: Floats) -> Floats:
    """Return sigma^2 of every entry, at most a coin's; `mean` is an estimate of its mean."""
    coin = mean * (1.0 - mean)
    visits, sums = batches.batched_visits, batches.batched_sums
    spread = batches.squares - sums**2 / np.maximum(visits, 1.0)
    variance = (coin + np.maximum(spread, 0.0)) / np.maximum(batches.batches, 1.0)
    bounded: Floats = np.minimum(variance, coin)
    return bounded
