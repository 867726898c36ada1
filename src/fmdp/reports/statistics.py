"""Statistics of the runs of a cell, and of the paired differences of two cells.

A cell is summarised by median, quartiles, worst run and mean, the median and the mean each with a
95 % interval (experiments/confidence_intervals.py). Two learners that ran on the same seeds met the
same random numbers of the environment, so they are compared in pairs, by Wilcoxon's signed-rank
test. Under its null hypothesis every sign of every difference is equally likely, and W+ is a sum of
independent rank_i * Bernoulli(1/2): its distribution is the product of the n polynomials
(1 + z^rank_i) / 2, counted exactly, ties included. scipy.stats.wilcoxon is not used for this: with
ties it is exact only up to 13 pairs, where it goes through all 2^n signs.

Regrets are sums of thousands of rounded numbers, so two differences that are equal in exact
arithmetic seldom have equal floats. `signed_rank` therefore takes the resolution to which the
differences are known, and treats as tied what lies within it.

Several comparisons are corrected by Holm's step-down rule, which bounds the probability of any
false finding in a family by the level, whatever the dependence between the comparisons.

Cost: signed_rank n^3 up to MOST_EXACT pairs, beyond that the normal limit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.stats import norm, rankdata

from fmdp.errors import InvalidParameter
from fmdp.experiments.confidence_intervals import (
    Interval,
    mean_interval,
    mean_of,
    median_interval,
)

FloatArray = npt.NDArray[np.float64]

MOST_EXACT = 400
"""Largest number of pairs for which the null distribution is counted exactly."""


@dataclass(frozen=True)
class Summary:
    """Order statistics and mean of the runs of a cell; the worst run has the largest regret."""

    n: int
    median: float
    lower_quartile: float
    upper_quartile: float
    best: float
    worst: float
    mean: float
    interval: Interval | None
    """Of the median, from order statistics; None if n is too small."""
    mean_interval: Interval | None
    """Of the mean, Student's t; None for a single run."""


def summarise(values: npt.ArrayLike) -> Summary:
    """Compute median, quartiles, extremes, mean, and the intervals of median and mean."""
    array = _finite(values)
    lower, median, upper = np.quantile(array, (0.25, 0.5, 0.75)).tolist()
    numbers = array.tolist()
    return Summary(
        n=array.size,
        median=median,
        lower_quartile=lower,
        upper_quartile=upper,
        best=min(numbers),
        worst=max(numbers),
        mean=mean_of(numbers),
        interval=median_interval(numbers),
        mean_interval=mean_interval(numbers),
    )


@dataclass(frozen=True)
class PairedTest:
    """Wilcoxon's signed-rank test of paired differences, two-sided."""

    n: int
    """Pairs, those without a difference included."""
    lower: int
    equal: int
    higher: int
    """In how many pairs the difference is negative, zero, positive."""
    statistic: float
    """W+, the sum of the ranks of the positive differences."""
    p_value: float
    exact: bool


def signed_rank(differences: npt.ArrayLike, resolution: float = 0.0) -> PairedTest:
    """Test whether the differences are symmetric about zero (Wilcoxon 1945; zeros are dropped).

    Tied sizes share the mean of their ranks, and the distribution of W+ is counted for those ranks.

    Parameters
    ----------
    differences
        One per pair.
    resolution
        Sizes that lie within it of each other are tied, and within it of zero they are zero.
    """
    array = _finite(differences)
    levels = _levels(np.abs(array), resolution)
    positive, negative = (array > 0) & (levels > 0), (array < 0) & (levels > 0)
    # Mean ranks are multiples of 1/2, so twice a rank is an integer.
    ranks = np.rint(2 * rankdata(levels[levels > 0])).astype(np.int64)
    statistic = int(ranks[positive[levels > 0]].sum())
    exact = ranks.size <= MOST_EXACT
    return PairedTest(
        n=array.size,
        lower=int(negative.sum()),
        equal=int((levels == 0).sum()),
        higher=int(positive.sum()),
        statistic=statistic / 2,
        p_value=_exact_p(ranks, statistic) if exact else _limit_p(ranks, statistic),
        exact=exact,
    )


def _levels(sizes: FloatArray, resolution: float) -> npt.NDArray[np.intp]:
    """Number the sizes from the smallest on, ties with one number; 0 is that of zero.

    Neighbours in the order are tied if they differ by at most the resolution. A fixed grid would
    separate two equal sizes that happen to lie on both sides of one of its lines.
    """
    order = np.argsort(sizes, kind="stable")
    rises = np.diff(sizes[order], prepend=0.0) > resolution
    levels = np.empty(sizes.size, dtype=np.intp)
    levels[order] = np.cumsum(rises)
    return levels


def _exact_p(ranks: npt.NDArray[np.int64], statistic: int) -> float:
    """Return the two-sided p-value; the distribution is symmetric about half the sum of ranks."""
    distribution = _rank_sum_distribution(ranks)
    tail = min(statistic, int(ranks.sum()) - statistic)
    return min(1.0, 2 * float(distribution[: tail + 1].sum()))


def _limit_p(ranks: npt.NDArray[np.int64], statistic: int) -> float:
    """Return the two-sided p-value by the normal limit, with continuity correction."""
    spread = np.sqrt((ranks.astype(np.float64) ** 2).sum()) / 2
    # Ranks are doubled, so one unit here is half a unit of W+.
    distance = max(0.0, abs(statistic - ranks.sum() / 2) - 1) / spread
    return float(2 * norm.sf(distance))


def _rank_sum_distribution(ranks: npt.NDArray[np.int64]) -> FloatArray:
    """Return P(sum of a random subset of the ranks = w) for w = 0, ..., sum of the ranks."""
    distribution = np.zeros(int(ranks.sum()) + 1)
    distribution[0] = 1.0
    reached = 0
    for rank in ranks.tolist():
        shifted = distribution[: reached + 1] / 2
        distribution[: reached + 1] /= 2
        distribution[rank : rank + reached + 1] += shifted
        reached += rank
    return distribution


def smallest_p_value(n: int) -> float:
    """Return the smallest p-value of n pairs: all signs alike, 2 of the 2^n patterns."""
    return min(1.0, 2.0 ** (1 - n))


def holm(p_values: Sequence[float]) -> list[float]:
    """Return Holm's (1979) adjusted p-values: the i-th smallest of m times m - i + 1, monotone."""
    m = len(p_values)
    adjusted = [0.0] * m
    largest = 0.0
    for place, index in enumerate(sorted(range(m), key=lambda i: p_values[i])):
        largest = max(largest, min(1.0, (m - place) * p_values[index]))
        adjusted[index] = largest
    return adjusted


def _finite(values: npt.ArrayLike) -> FloatArray:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or array.size == 0 or not np.isfinite(array).all():
        raise InvalidParameter(
            f"values of shape {list(array.shape)}: must be a list of one or more finite numbers"
        )
    return array
