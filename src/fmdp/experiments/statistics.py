"""Confidence intervals, Wilcoxon's signed-rank test and Holm's correction for runs of cells.

The interval of the median is made of two order statistics of the sample:

    [x_(k), x_(n+1-k)],   k the largest integer with 2 P(Binomial(n, 1/2) < k) <= 1 - level.

It assumes only that the runs are independent and identically distributed. It covers the median with
probability at least `level`, and with exactly 1 - 2 P(Binomial(n, 1/2) < k) for a continuous
distribution. At 95 % there is no such k below n = 6, and then there is no interval.

The interval of the mean is Student's t interval, mean +- t_(n-1) s / sqrt(n). It is exact for
normal data. Regret is skewed, and there it covers less than 95 %: docs/reports.md has measured
coverages. It was chosen because up to 20 runs the percentile and the BCa bootstrap cover at most
.01 more and up to .17 less, and because it needs no random numbers. No interval without further
assumptions can cover a mean that is dominated by runs too rare to be in the sample.

Two learners that ran on the same seeds met the same random numbers of the environment, so they are
compared in pairs, by Wilcoxon's signed-rank test. Under its null hypothesis every sign of every
difference is equally likely, and W+ is a sum of independent rank_i * Bernoulli(1/2): its
distribution is the product of the n polynomials (1 + z^rank_i) / 2, counted exactly, ties included.
scipy.stats.wilcoxon is not used: with ties it is exact only up to 13 pairs, where it enumerates all
2^n signs. Regrets are sums of thousands of rounded numbers, so two differences that are equal in
exact arithmetic seldom have equal floats; `signed_rank` therefore takes the resolution of the
differences and treats as tied what lies within it. Cost: n^3 up to MOST_EXACT pairs, beyond that
the normal limit.

Several comparisons are corrected by Holm's step-down rule, which bounds the probability of any
false finding in a family by the level, whatever the dependence between the comparisons.

Quantiles come from scipy.special, because importing scipy.stats takes 0.3 s longer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr, stdtrit

from fmdp.errors import InvalidParameter

FloatArray = npt.NDArray[np.float64]
Interval = tuple[float, float]

LEVEL = 0.95
"""Confidence level of every interval of a report."""
TOO_SMALL = "n too small"
"""Text in place of a missing interval."""
MOST_EXACT = 400
"""Largest number of pairs for which the null distribution is counted exactly."""


def median_interval(values: Sequence[float], level: float = LEVEL) -> Interval | None:
    """Return the order-statistic interval of the median, or None if n is too small for one."""
    ordered = sorted(values)
    k = interval_rank(len(ordered), level)
    return None if k == 0 else (ordered[k - 1], ordered[-k])


def mean_interval(values: Sequence[float], level: float = LEVEL) -> Interval | None:
    """Return Student's t interval of the mean, or None if there are fewer than two values."""
    n = len(values)
    if n < 2:
        return None
    mean = mean_of(values)
    spread = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (n - 1))
    half = float(stdtrit(n - 1, (1 + level) / 2)) * spread / math.sqrt(n)
    return mean - half, mean + half


def mean_of(values: Sequence[float]) -> float:
    """Return the mean; the sum is exact, so the order of the values does not matter."""
    return math.fsum(values) / len(values)


@lru_cache(maxsize=1024)
def interval_rank(n: int, level: float = LEVEL) -> int:
    """Return k of the interval [x_(k), x_(n+1-k)] of the median; 0 if n is too small."""
    # Of the 2^n outcomes of n fair coins, this many may have fewer than k heads.
    allowed = (1 - Fraction(str(level))) * 2**n / 2
    outcomes = accumulate(math.comb(n, heads) for heads in range(n + 1))
    return next(k for k, count in enumerate(outcomes) if count > allowed)


def median_coverage(n: int) -> float | None:
    """Return the exact coverage of `median_interval` for continuous data; None if there is none."""
    k = interval_rank(n)
    missed = 2 * sum(math.comb(n, heads) for heads in range(k))
    return None if k == 0 else float(1 - Fraction(missed, 2**n))


@dataclass(frozen=True)
class SampleSummary:
    """Order statistics and mean of a sample of regrets or differences."""

    n: int
    median: float
    lower_quartile: float
    upper_quartile: float
    best: float
    worst: float
    """The largest value."""
    mean: float
    interval: Interval | None
    """Interval of the median, from order statistics; None if n is too small."""
    mean_interval: Interval | None
    """Student's t interval of the mean; None for a single run."""


def summarise(values: npt.ArrayLike) -> SampleSummary:
    """Compute median, quartiles, extremes, mean, and the intervals of median and mean."""
    array = _finite(values)
    lower, median, upper = np.quantile(array, (0.25, 0.5, 0.75)).tolist()
    numbers = array.tolist()
    return SampleSummary(
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
    """Number of pairs, including those without a difference."""
    lower: int
    equal: int
    higher: int
    """Numbers of pairs with a negative, zero and positive difference."""
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
    ranks = _doubled_ranks(levels[levels > 0])
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
    """Number the sizes in increasing order, ties with one number; 0 is the number of zero.

    Neighbours in the order are tied if they differ by at most the resolution. A fixed grid would
    separate two equal sizes that happen to lie on both sides of one of its lines.
    """
    order = np.argsort(sizes, kind="stable")
    rises = np.diff(sizes[order], prepend=0.0) > resolution
    levels = np.empty(sizes.size, dtype=np.intp)
    levels[order] = np.cumsum(rises)
    return levels


def _doubled_ranks(levels: npt.NDArray[np.intp]) -> npt.NDArray[np.int64]:
    """Return twice the mean rank of each level, which is an integer."""
    _, places, counts = np.unique(levels, return_inverse=True, return_counts=True)
    doubled: npt.NDArray[np.int64] = (2 * np.cumsum(counts) - counts + 1)[places]
    return doubled


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
    return float(2 * ndtr(-distance))


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
