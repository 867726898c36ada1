"""Statistics of runs: what a set of seeds says, and how sure one may be of it.

A cell is summed up by median, quartiles and worst case: regret has heavy tails, so a mean says
little. How well a median is known is told by the percentile bootstrap. Two learners that ran on
the same seeds shared their luck, so they are compared in pairs: Wilcoxon's signed-rank test, whose
null distribution (every sign of every difference equally likely) is counted exactly, ties included:
W+ is a sum of independent rank_i * Bernoulli(1/2), and its law the product of n polynomials
(1 + z^rank_i) / 2. Many comparisons are corrected by Holm's step-down rule, which keeps the chance
of any false finding below the level whatever the dependence between them.

Costs: bootstrap resamples * log(resamples), once resamples * n for each n; signed-rank n^3 up to
MOST_EXACT pairs, then the normal limit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from scipy.stats import rankdata

from fmdp.errors import InvalidParameter

FloatArray = npt.NDArray[np.float64]

RESAMPLES = 4_999
"""Resamples of a bootstrap: the ends of a 95 % interval are then order statistics 125 and 4,875."""
LEVEL = 0.95
MOST_EXACT = 400
"""Most pairs for which the signed-rank law is counted; the normal limit is good long before."""


@dataclass(frozen=True)
class Summary:
    """Order statistics of the runs of a cell; the worst case is the largest regret."""

    n: int
    median: float
    lower_quartile: float
    upper_quartile: float
    best: float
    worst: float
    mean: float
    interval: tuple[float, float]
    """Bootstrap interval of the median, at LEVEL."""


def summarise(values: npt.ArrayLike, *, seed: int = 0) -> Summary:
    """Median, quartiles, extremes, and the bootstrap interval of the median."""
    array = _finite(values)
    lower, median, upper = np.quantile(array, (0.25, 0.5, 0.75)).tolist()
    return Summary(
        n=array.size,
        median=median,
        lower_quartile=lower,
        upper_quartile=upper,
        best=float(array.min()),
        worst=float(array.max()),
        mean=float(array.mean()),
        interval=bootstrap_median(array, seed=seed),
    )


def bootstrap_median(
    values: npt.ArrayLike,
    *,
    level: float = LEVEL,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> tuple[float, float]:
    """The percentile bootstrap interval of the median (Efron 1979).

    Its ends are the k-th smallest and k-th largest of the medians of the resamples,
    k = (resamples + 1)(1 - level)/2. The same seed gives the same interval on every machine.
    """
    array = np.sort(_finite(values))
    middles = _middles(array.size, resamples, seed)
    medians = np.sort((array[middles[:, 0]] + array[middles[:, 1]]) / 2)
    # 125.00000000000011 is meant to be 125: the level is a decimal number.
    k = max(1, math.floor(round((resamples + 1) * (1 - level) / 2, 6)))
    return float(medians[k - 1]), float(medians[resamples - k])


@lru_cache(maxsize=64)
def _middles(n: int, resamples: int, seed: int) -> npt.NDArray[np.intp]:
    """[resamples, 2]: which of n values in order are the two middle ones of each resample.

    The order of a resample is that of its indices, so one table serves all cells of n runs, and
    equal data have equal intervals. The bit generator is named: NumPy's default may change.
    """
    generator = np.random.Generator(np.random.PCG64(seed))
    indices = np.sort(generator.integers(n, size=(resamples, n), dtype=np.intp), axis=1)
    return indices[:, [(n - 1) // 2, n // 2]]


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


def signed_rank(differences: npt.ArrayLike) -> PairedTest:
    """Are the differences symmetric about zero? (Wilcoxon 1945; zeros are left out.)

    Equal sizes share the mean of their ranks; the law of W+ is counted for those very ranks.
    """
    array = _finite(differences)
    lower, higher = int((array < 0).sum()), int((array > 0).sum())
    nonzero = array[array != 0]
    # Doubled, shared ranks are whole numbers.
    ranks = np.rint(2 * rankdata(np.abs(nonzero))).astype(np.int64)
    statistic = int(ranks[nonzero > 0].sum())
    total = int(ranks.sum())
    exact = nonzero.size <= MOST_EXACT
    if nonzero.size == 0:
        p_value = 1.0
    elif exact:
        law = _law_of_rank_sums(ranks)
        # The law is symmetric about total / 2.
        p_value = min(1.0, 2 * float(law[: min(statistic, total - statistic) + 1].sum()))
    else:
        spread = math.sqrt(float((ranks.astype(np.float64) ** 2).sum()) / 4)
        # One unit of the doubled statistic is half a unit of W+: continuity correction.
        distance = max(0.0, abs(statistic - total / 2) - 1) / spread
        p_value = math.erfc(distance / math.sqrt(2))
    return PairedTest(
        n=array.size,
        lower=lower,
        equal=array.size - lower - higher,
        higher=higher,
        statistic=statistic / 2,
        p_value=p_value,
        exact=exact,
    )


def _law_of_rank_sums(ranks: npt.NDArray[np.int64]) -> FloatArray:
    """P(sum of a random subset of the ranks = w) for w = 0, ..., sum."""
    law = np.zeros(int(ranks.sum()) + 1)
    law[0] = 1.0
    reached = 0
    for rank in ranks.tolist():
        shifted = law[: reached + 1] / 2
        law[: reached + 1] /= 2
        law[rank : rank + reached + 1] += shifted
        reached += rank
    return law


def smallest_p_value(n: int) -> float:
    """The smallest p-value that n pairs can give: all signs alike, 2 of the 2^n patterns."""
    return min(1.0, 2.0 ** (1 - n))


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's (1979) adjusted p-values: the i-th smallest of m times m - i + 1, made monotone."""
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
