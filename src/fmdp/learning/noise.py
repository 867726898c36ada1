"""Variance of the reward noise from sums of rewards alone: the method of batch means.

Statistics keep the number of visits and the sum of the rewards of an entry. At B points in time
they define B batches of n_b visits and sums s_b, whose means differ by the noise alone:

    E sum_b n_b (s_b / n_b - s / N)^2 = (B - 1) sigma^2,
    sum_b n_b (s_b / n_b - s / N)^2 = sum_b s_b^2 / n_b - s^2 / N.

One more batch is assumed. Its variance is a share of that of a coin on the ends of the range, the
largest for a reward with that mean. The share is 1 for an entry whose rewards were all at one end
of the range: a coin may have given them. Other entries have the share of their reward factor,
because noise belongs to factors: the sum of the spreads above over all its entries, divided by what
coins would have given,

    (1/4 + sum_e spread_e) / (1/4 + sum_e (B_e - 1) m_e (1 - m_e)),    at most 1,

where m_e is the mean reward of the entry. So without data the noise is as large as possible, and if
the rewards of a factor repeat, one visit to any other of its entries is enough. All numbers are in
units of the range, from its lower end.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from fmdp.learning.statistics import Floats, Statistics
from fmdp.model import Structure
from fmdp.model.entries import Index

PRIOR_SPREAD = 0.25
"""Spread that is assumed for every reward factor: that of one batch of a fair coin."""
END_COIN = 1e-9
"""Variance of a coin up to which its mean counts as an end of the range, which it may miss by
rounding."""


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


def noise_shares(batches: Batches, factors: Index) -> Floats:
    """Return the assumed variance of the noise of every entry, as a share of a coin's.

    `factors` has the reward factor of every entry.
    """
    mean = batches.batched_sums / np.maximum(batches.batched_visits, 1.0)
    coin = mean * (1.0 - mean)
    inside = coin > END_COIN
    of_coins = np.where(inside, coin * np.maximum(batches.batches - 1.0, 0.0), 0.0)
    spread = PRIOR_SPREAD + np.bincount(factors, _spreads(batches))
    of_factor = np.minimum(spread / (PRIOR_SPREAD + np.bincount(factors, of_coins)), 1.0)
    shares: Floats = np.where(inside, of_factor[factors], 1.0)
    return shares


def noise_variance(batches: Batches, mean: Floats, shares: Floats | float = 1.0) -> Floats:
    """Return sigma^2 of every entry, at most a coin's.

    `mean` is an estimate of its mean, and `shares` are those of `noise_shares`.
    """
    coin = mean * (1.0 - mean)
    variance = (shares * coin + _spreads(batches)) / np.maximum(batches.batches, 1.0)
    bounded: Floats = np.minimum(variance, coin)
    return bounded


@lru_cache(maxsize=8)  # used in every plan
def reward_factors(structure: Structure) -> Index:
    """Return the (first) factor of every reward entry."""
    factors: Index = np.zeros(structure.n_reward_classes, dtype=np.int64)
    for k in reversed(range(structure.l)):
        factors[structure.reward_classes_of(k)] = k
    return factors


def _spreads(batches: Batches) -> Floats:
    """Return sum_b n_b (s_b / n_b - s / N)^2 of every entry."""
    visits, sums = batches.batched_visits, batches.batched_sums
    spreads: Floats = np.maximum(batches.squares - sums**2 / np.maximum(visits, 1.0), 0.0)
    return spreads
