from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from fmdp.errors import InvalidParameter
from fmdp.experiments import statistics
from fmdp.experiments.statistics import holm, signed_rank, smallest_p_value, summarise


def test_summary_of_numbers_counted_by_hand() -> None:
    found = summarise([5.0, 1.0, 2.0, 4.0, 3.0])
    assert (found.n, found.median, found.lower_quartile, found.upper_quartile) == (5, 3, 2, 4)
    assert (found.best, found.worst, found.mean) == (1, 5, 3)


def test_one_run_has_no_interval() -> None:
    found = summarise([7.0])
    assert found.median == found.worst == found.mean == 7.0
    assert found.interval is None
    assert found.mean_interval is None


@pytest.mark.parametrize("values", [[], [1.0, float("nan")], [float("inf")], [[1.0]]])
def test_what_is_no_list_of_numbers_is_refused(values: list[float]) -> None:
    with pytest.raises(InvalidParameter, match="must be a list of one or more finite numbers"):
        summarise(values)


def by_brute_force(differences: Sequence[int]) -> tuple[Fraction, Fraction]:
    """W+ and the two-sided p-value over all 2^n signs, in fractions."""
    nonzero = [d for d in differences if d != 0]
    sizes = sorted(map(abs, nonzero))
    ranks = [
        Fraction(sum(i + 1 for i, s in enumerate(sizes) if s == abs(d)), sizes.count(abs(d)))
        for d in nonzero
    ]
    observed = sum((r for r, d in zip(ranks, nonzero, strict=True) if d > 0), Fraction(0))
    middle = sum(ranks, Fraction(0)) / 2
    patterns = list(itertools.product((0, 1), repeat=len(ranks)))
    sums = [sum(r * sign for r, sign in zip(ranks, signs, strict=True)) for signs in patterns]
    extreme = sum(abs(s - middle) >= abs(observed - middle) for s in sums)
    return observed, Fraction(extreme, len(patterns))


@given(st.lists(st.integers(-4, 4), min_size=1, max_size=9))
def test_signed_rank_against_all_sign_patterns(differences: list[int]) -> None:
    """Small integers: nearly every example has ties and zeros."""
    observed, p_value = by_brute_force(differences)
    found = signed_rank(differences)
    assert found.exact
    assert found.statistic == observed
    assert found.p_value == p_value
    assert (found.lower, found.equal, found.higher) == (
        sum(d < 0 for d in differences),
        differences.count(0),
        sum(d > 0 for d in differences),
    )


@given(
    st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), min_size=1, max_size=9),
    st.sampled_from([0.1, 1 / 3, 0.7, 1e-9, 3e8]),
    st.floats(-1e4, 1e4),
)
def test_rounding_breaks_no_tie_and_makes_no_difference(
    pairs: list[tuple[int, int]], unit: float, offset: float
) -> None:
    """Regrets are an offset minus a sum of rewards: their differences are equal only in exact
    arithmetic. With the resolution of the sums the test is the one of the exact differences."""
    offset *= unit

    def regret(steps: int, backwards: bool) -> float:
        total = math.fsum([unit] * steps) if backwards else sum([unit] * steps)
        return 1000 * offset - total

    differences = [regret(one, False) - regret(two, True) for one, two in pairs]
    exact = [two - one for one, two in pairs]
    observed, p_value = by_brute_force(exact)
    resolution = 4 * 2.0**-53 * 1000 * (1000 * abs(offset) + 1000 * unit)
    found = signed_rank(differences, resolution)
    assert (found.statistic, found.p_value) == (observed, p_value)
    assert found.equal == exact.count(0)


def test_without_a_resolution_rounding_breaks_ties() -> None:
    """The negative control: 0.3 - 0.1 and 0.2 differ in their last bit, and so do the ranks."""
    differences = [0.3 - 0.1, -0.2, 0.4 - 0.2, 0.7 - 0.5, 0.2]
    _, p_value = by_brute_force([1, -1, 1, 1, 1])
    assert signed_rank(differences, 1e-12).p_value == p_value
    assert signed_rank(differences).p_value != p_value


def test_sizes_on_both_sides_of_a_grid_line_are_tied() -> None:
    found = signed_rank([0.5 - 1e-9, -(0.5 + 1e-9), 3.0], 1e-8)
    assert found.p_value == by_brute_force([1, -1, 2])[1]
    assert signed_rank([1e-9, -1e-9, 1.0], 1e-8).equal == 2


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
