"""Intervals of median and mean: by hand, against binomial sums, SciPy, and simulated coverage."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from fmdp.experiments.statistics import (
    interval_rank,
    mean_interval,
    mean_of,
    median_coverage,
    median_interval,
)

DRAWS = 20_000


@pytest.mark.parametrize(
    ("n", "rank"), [(1, 0), (5, 0), (6, 1), (8, 1), (9, 2), (10, 2), (12, 3), (20, 6), (50, 18)]
)
def test_ranks_of_textbook_tables(n: int, rank: int) -> None:
    assert interval_rank(n) == rank


@pytest.mark.parametrize("n", range(1, 60))
def test_the_rank_is_the_largest_that_keeps_the_level(n: int) -> None:
    def miss(k: int) -> float:
        return 2 * sum(math.comb(n, i) for i in range(k)) / 2**n

    k = interval_rank(n)
    assert miss(k) <= 0.05 < miss(k + 1)
    coverage = median_coverage(n)
    assert (coverage is None) == (n < 6)
    assert coverage is None or coverage == pytest.approx(1 - miss(k), rel=1e-12)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=40))
def test_the_median_interval_is_that_of_scipy(values: list[float]) -> None:
    theirs = scipy.stats.quantile_test(values, p=0.5).confidence_interval(0.95)
    found = median_interval(values)
    assert (found is None) == math.isnan(theirs.low)
    assert found is None or found == (theirs.low, theirs.high)


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=40))
def test_the_mean_interval_is_that_of_scipy(values: list[float]) -> None:
    spread = np.std(values, ddof=1) / math.sqrt(len(values))
    half = scipy.stats.t.ppf(0.975, len(values) - 1) * spread
    scale = max(map(abs, values))
    found = mean_interval(values)
    assert found == pytest.approx(
        (np.mean(values) - half, np.mean(values) + half), abs=1e-9 * scale
    )


def test_the_mean_interval_by_hand() -> None:
    # Mean 5, s = 2, n = 4, t_(3, .975) = 3.1824463.
    values = [5 - math.sqrt(6), 5.0, 5.0, 5 + math.sqrt(6)]
    assert mean_interval(values) == pytest.approx((5 - 3.1824463, 5 + 3.1824463), rel=1e-7)
    assert mean_interval([1.0]) is None


def test_the_mean_does_not_depend_on_the_order() -> None:
    values = [0.1, 1e16, 0.3, -1e16, 0.7]
    assert mean_of(values) == mean_of(values[::-1]) == pytest.approx(1.1 / 5)


def coverage_of_median(n: int, level: float) -> float:
    samples = np.random.Generator(np.random.PCG64(n)).exponential(size=(DRAWS, n))
    ends = [median_interval(sample, level) for sample in samples.tolist()]
    return float(np.mean([end is not None and end[0] <= math.log(2) <= end[1] for end in ends]))


@pytest.mark.parametrize("n", [6, 10, 20])
def test_the_median_is_covered_as_often_as_said(n: int) -> None:
    """Four standard errors of the simulated coverage; the control has a smaller level."""
    expected = median_coverage(n)
    assert expected is not None
    error = 4 * math.sqrt(expected * (1 - expected) / DRAWS)
    assert abs(coverage_of_median(n, 0.95) - expected) <= error
    assert abs(coverage_of_median(n, 0.6) - expected) > error


def test_the_mean_of_normal_data_is_covered_as_often_as_said() -> None:
    samples = np.random.Generator(np.random.PCG64(1)).normal(size=(DRAWS, 5)).tolist()

    def coverage(level: float) -> float:
        ends = [mean_interval(sample, level) for sample in samples]
        return float(np.mean([end is not None and end[0] <= 0 <= end[1] for end in ends]))

    error = 4 * math.sqrt(0.95 * 0.05 / DRAWS)
    assert abs(coverage(0.95) - 0.95) <= error
    assert abs(coverage(0.9) - 0.95) > error
