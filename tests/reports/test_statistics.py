from __future__ import annotations

import itertools

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from fmdp.errors import InvalidParameter
from fmdp.reports import statistics
from fmdp.reports.statistics import (
    bootstrap_median,
    holm,
    signed_rank,
    smallest_p_value,
    summarise,
)


def test_summary_of_numbers_counted_by_hand() -> None:
    found = summarise([5.0, 1.0, 2.0, 4.0, 3.0])
    assert (found.n, found.median, found.lower_quartile, found.upper_quartile) == (5, 3, 2, 4)
    assert (found.best, found.worst, found.mean) == (1, 5, 3)


def test_one_run_is_its_own_summary() -> None:
    found = summarise([7.0])
    assert found.median == found.worst == 7.0
    assert found.interval == (7.0, 7.0)


@pytest.mark.parametrize("values", [[], [1.0, float("nan")], [float("inf")], [[1.0]]])
def test_what_is_no_list_of_numbers_is_refused(values: list[float]) -> None:
    with pytest.raises(InvalidParameter, match="must be a list of one or more finite numbers"):
        summarise(values)


@pytest.mark.parametrize("n", [5, 9, 21])
def test_bootstrap_against_its_exact_law(n: int) -> None:
    """For odd n a resample's median is at most x_(k) iff more than half of its n draws fall among
    the k smallest: P = P(Binomial(n, k/n) >= (n + 1)/2). With x_(k) = k the ends of the interval
    are the quantiles of that law, up to one order statistic of Monte Carlo error."""
    k = np.arange(1, n + 1)
    at_most = scipy.stats.binom.sf((n + 1) // 2 - 1, n, k / n)
    low, high = bootstrap_median(k.astype(float))
    three_errors = 3 * np.sqrt(0.025 * 0.975 / statistics.RESAMPLES)
    assert at_most[int(low) - 1] >= 0.025 - three_errors
    assert low == 1 or at_most[int(low) - 2] <= 0.025 + three_errors
    assert at_most[int(high) - 1] >= 0.975 - three_errors
    assert at_most[int(high) - 2] <= 0.975 + three_errors


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=12))
def test_bootstrap_is_the_median_of_resamples_by_the_book(values: list[float]) -> None:
    generator = np.random.Generator(np.random.PCG64(7))
    resampled = np.sort(values)[generator.integers(len(values), size=(99, len(values)))]
    medians = np.sort(np.median(resampled, axis=1))
    # (99 + 1) * 0.05 / 2 = 2.5: the second smallest and the second largest.
    found = bootstrap_median(values, resamples=99, seed=7)
    assert found == pytest.approx((medians[1], medians[97]))


def test_bootstrap_interval_covers_the_median_as_often_as_it_says() -> None:
    generator = np.random.Generator(np.random.PCG64(3))
    samples = generator.exponential(size=(300, 20))

    def coverage(level: float) -> float:
        ends = [bootstrap_median(sample, level=level, resamples=999) for sample in samples]
        return float(np.mean([low <= np.log(2) <= high for low, high in ends]))

    assert 0.91 <= coverage(0.95) <= 0.99
    assert coverage(0.5) <= 0.7  # the control: this test can fail


def test_bootstrap_is_the_same_every_time_and_whatever_the_order() -> None:
    values = [3.0, 1.0, 8.0, 2.5]
    assert bootstrap_median(values) == bootstrap_median(values[::-1])
    assert bootstrap_median(values, seed=1) == bootstrap_median(values, seed=1)


@given(st.lists(st.integers(-4, 4), min_size=1, max_size=9))
def test_signed_rank_against_all_sign_patterns(differences: list[int]) -> None:
    """Small integers: nearly every example has ties and zeros."""
    nonzero = [d for d in differences if d != 0]
    sizes = sorted(map(abs, nonzero))
    ranks = [np.mean([i + 1 for i, s in enumerate(sizes) if s == abs(d)]) for d in nonzero]
    observed = sum(r for r, d in zip(ranks, nonzero, strict=True) if d > 0)
    sums = [
        sum(r for r, sign in zip(ranks, signs, strict=True) if sign)
        for signs in itertools.product((0, 1), repeat=len(ranks))
    ]
    middle = sum(ranks) / 2
    extreme = [abs(s - middle) >= abs(observed - middle) - 1e-9 for s in sums]
    found = signed_rank(differences)
    assert found.exact
    assert found.statistic == pytest.approx(observed)
    assert found.p_value == pytest.approx(np.mean(extreme))
    assert (found.lower, found.equal, found.higher) == (
        sum(d < 0 for d in differences),
        differences.count(0),
        sum(d > 0 for d in differences),
    )


def test_signed_rank_against_scipy_without_ties() -> None:
    generator = np.random.Generator(np.random.PCG64(0))
    for n in (6, 20, 60):
        differences = generator.normal(0.3, size=n)
        theirs = scipy.stats.wilcoxon(differences, method="exact")
        assert signed_rank(differences).p_value == pytest.approx(theirs.pvalue, rel=1e-10)


def test_the_normal_limit_takes_over_smoothly(monkeypatch: pytest.MonkeyPatch) -> None:
    differences = np.random.Generator(np.random.PCG64(5)).normal(0.1, size=120)
    exact = signed_rank(differences)
    monkeypatch.setattr(statistics, "MOST_EXACT", 10)
    limit = signed_rank(differences)
    assert exact.exact
    assert not limit.exact
    assert limit.p_value == pytest.approx(exact.p_value, rel=0.02)


def test_the_smallest_p_value_is_reached_when_all_signs_agree() -> None:
    assert signed_rank([1.0, 2.0, 3.0, 4.0, 5.0]).p_value == 2 / 2**5 == smallest_p_value(5)
    assert signed_rank([0.0, 0.0]).p_value == 1.0


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5, 0.9]) == [1.0, 1.0]
    assert holm([]) == []


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_rejects_what_the_step_down_rule_rejects(p_values: list[float]) -> None:
    """Rejected at level a: the p-values smaller than the first, in order, with p > a/(m-i+1)."""
    level = 0.05
    rejected = set()
    m = len(p_values)
    for place, index in enumerate(sorted(range(m), key=lambda i: p_values[i])):
        if (m - place) * p_values[index] > level:
            break
        rejected.add(index)
    assert {i for i, p in enumerate(holm(p_values)) if p <= level} == rejected
