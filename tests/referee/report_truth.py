"""The statistics of a report in exact arithmetic: fractions, and all 2^n signs one by one.

Nothing here is shared with fmdp. Square roots and Student's t are the only floats.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Mapping, Sequence
from fractions import Fraction

LEVEL = Fraction(19, 20)

Ends = tuple[Fraction, Fraction] | None


def quantile(values: Sequence[Fraction], share: Fraction) -> Fraction:
    """Return the quantile by linear interpolation between order statistics."""
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = place.numerator // place.denominator
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])


def median(values: Sequence[Fraction]) -> Fraction:
    """Return the median."""
    return quantile(values, Fraction(1, 2))


def mean(values: Sequence[Fraction]) -> Fraction:
    """Return the mean."""
    return sum(values, Fraction(0)) / len(values)


def median_ends(values: Sequence[Fraction]) -> Ends:
    """Return the shortest symmetric pair of order statistics that covers the median with LEVEL."""
    ordered, n = sorted(values), len(values)
    good = [
        k for k in range(1, n // 2 + 1) if coverage(n, k) >= LEVEL
    ]  # the median lies between x_(k) and x_(n+1-k)
    return (ordered[max(good) - 1], ordered[n - max(good)]) if good else None


def coverage(n: int, k: int) -> Fraction:
    """Return the probability that k to n - k of n fair coins show heads."""
    inside = sum(math.comb(n, heads) for heads in range(k, n - k + 1))
    return Fraction(inside, 2**n)


def mean_ends(values: Sequence[Fraction]) -> tuple[float, float] | None:
    """Return Student's t interval of the mean; the variance is exact."""
    n = len(values)
    if n == 1:
        return None
    middle = mean(values)
    variance = sum(((value - middle) ** 2 for value in values), Fraction(0)) / (n - 1)
    half = student_quantile(n - 1) * math.sqrt(variance / n)
    return float(middle) - half, float(middle) + half


def student_quantile(degrees: int) -> float:
    """Return t with P(|T| <= t) = LEVEL, by bisection."""
    low, high = 0.0, 100.0
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if student_within(middle, degrees) < LEVEL else (low, middle)
    return (low + high) / 2


def student_within(t: float, degrees: int) -> float:
    """Return P(|T| <= t), in closed form (Abramowitz & Stegun 26.7.3 and 26.7.4)."""
    angle = math.atan(t / math.sqrt(degrees))
    odd = degrees % 2 == 1
    term, total = (math.cos(angle) if odd else 1.0), 0.0
    for step in range(degrees // 2):
        total += term
        more = (2 * step + 2) / (2 * step + 3) if odd else (2 * step + 1) / (2 * step + 2)
        term *= more * math.cos(angle) ** 2
    inside = math.sin(angle) * total
    return 2 / math.pi * (angle + inside) if odd else inside


def signed_rank(differences: Sequence[Fraction]) -> tuple[Fraction, Fraction]:
    """Return W+ and the two-sided p-value of Wilcoxon's test, over all signs; zeros are dropped."""
    nonzero = [value for value in differences if value != 0]
    sizes = sorted(abs(value) for value in nonzero)
    ranks = []
    for value in nonzero:
        places = [place + 1 for place, size in enumerate(sizes) if size == abs(value)]
        ranks.append(Fraction(sum(places), len(places)))
    plus = sum((rank for rank, value in zip(ranks, nonzero, strict=True) if value > 0), Fraction(0))
    middle = sum(ranks, Fraction(0)) / 2
    extreme = 0
    for signs in itertools.product((False, True), repeat=len(ranks)):
        drawn = sum((rank for rank, sign in zip(ranks, signs, strict=True) if sign), Fraction(0))
        extreme += abs(drawn - middle) >= abs(plus - middle)
    return plus, Fraction(extreme, 2 ** len(ranks))


def holm(p_values: Sequence[Fraction]) -> list[Fraction]:
    """Return the smallest levels at which Holm's rule rejects: no step before may fail."""
    m = len(p_values)

    def step(p: Fraction) -> Fraction:
        return (m - sum(other < p for other in p_values)) * p

    return [
        min(Fraction(1), max(step(other) for other in p_values if other <= p)) for p in p_values
    ]


def families(
    labels: Sequence[str], specs: Sequence[Collection[str]]
) -> dict[tuple[str, str], list[tuple[str, str]]]:
    """Return for every pair of labels the pairs of its question.

    That is the newest spec (the last) that has both, or all pairs if none has.
    """
    pairs = list(itertools.combinations(labels, 2))
    found = {}
    for pair in pairs:
        asking = [spec for spec in specs if set(pair) <= set(spec)]
        asked = set(asking[-1]) if asking else set(labels)
        found[pair] = [other for other in pairs if set(other) <= asked]
    return found


def corrected(
    p_values: Mapping[tuple[str, str], Fraction],
    questions: Mapping[tuple[str, str], Sequence[tuple[str, str]]],
) -> dict[tuple[str, str], Fraction]:
    """Return Holm's adjusted p-value of every pair, within its question."""
    found = {}
    for pair, family in questions.items():
        adjusted = holm([p_values[other] for other in family])
        found[pair] = adjusted[list(family).index(pair)]
    return found
