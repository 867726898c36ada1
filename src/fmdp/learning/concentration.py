"""Concentration bounds that hold for all numbers of samples at once: one formula per function.

For n samples of a distribution on [0, 1] with mean p and sample mean p-hat, each bound holds on one
side of p for all n >= 1 (or 2) together, with probability at least 1 - delta:

* peeling (Maillard 2019; Talebi, Jonsson & Maillard 2021): Bernstein's inequality on slices of the
  time axis that grow by a factor eta = 1.12, with
      beta_n(delta) = eta log(log(n) log(eta n) / (delta log^2 eta)),   n >= 2;
* Laplace (Peña, Lai & Shao 2008; Abbasi-Yadkori et al. 2011): a sub-Gaussian martingale mixed over
  its parameter, sigma sqrt(2 (1 + 1/n) log(sqrt(n + 1) / delta) / n), sigma = 1/2 for [0, 1].

Nothing here depends on a horizon or on t. tests/referee/confidence_sets.py checks the guarantees
with exact binomials. `public_ucrl3_ends` has no guarantee; it is for comparisons with public code.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fmdp._base.portable_math import log

Floats = NDArray[np.float64]

ETA = 1.12  # growth of the time slices; the value of the papers


def peeling_term(visits: ArrayLike, delta: ArrayLike) -> Floats:
    """Return beta_n(delta); a count below 2 is taken as 2. Broadcasts."""
    n = np.maximum(2.0, np.asarray(visits, dtype=np.float64))
    peeled = log(n) * log(ETA * n) / (np.asarray(delta) * math.log(ETA) ** 2)
    term: Floats = ETA * log(peeled)
    return term


def public_peeling_term(visits: ArrayLike, delta: ArrayLike) -> Floats:
    """Return the peeling term of UCRL3's public code, with log(eta n) log(eta^2 n).

    A count below 1 is taken as 1. Broadcasts.
    """
    n = np.maximum(1.0, np.asarray(visits, dtype=np.float64))
    peeled = log(ETA * n) * log(ETA**2 * n) / (np.asarray(delta) * math.log(ETA) ** 2)
    term: Floats = ETA * log(peeled)
    return term


def empirical_bernstein_width(estimate: ArrayLike, visits: ArrayLike, peeling: ArrayLike) -> Floats:
    """Return sqrt(2 p-hat (1 - p-hat) beta / n) + 7 beta / (3 n); broadcasts, n at least 1."""
    p, rate = np.asarray(estimate), np.asarray(peeling) / np.maximum(1, np.asarray(visits))
    width: Floats = np.sqrt(2.0 * p * (1.0 - p) * rate) + 7.0 / 3.0 * rate
    return width


def laplace_width(visits: ArrayLike, delta: ArrayLike) -> Floats:
    """Return sqrt((1 + 1/n) log(sqrt(n + 1) / delta) / (2 n)), infinite for n = 0; broadcasts."""
    n = np.asarray(visits, dtype=np.float64)
    seen = np.maximum(1.0, n)
    log_term = log(np.sqrt(seen + 1.0) / np.asarray(delta))
    width: Floats = np.sqrt((1.0 + 1.0 / seen) * log_term / (2.0 * seen))
    return np.where(n > 0, width, np.inf)


def bernoulli_proxy(p: ArrayLike) -> Floats:
    """Return g(p) = (1/2 - p) / log(1/p - 1), the sub-Gaussian variance of a Bernoulli variable.

    (Kearns & Saul 1998.) It is 1/4 at 1/2, and 0 at 0 and 1.
    """
    q = np.asarray(p, dtype=np.float64)
    inside = (q > 0.0) & (q < 1.0) & (np.abs(q - 0.5) > 1e-6)
    safe = np.where(inside, q, 0.25)
    proxy = (0.5 - safe) / log(1.0 / safe - 1.0)
    return np.where(inside, proxy, np.where(np.abs(q - 0.5) <= 1e-6, 0.25, 0.0))


def right_tail_proxy(p: ArrayLike) -> Floats:
    """Return the sub-Gaussian variance of p-hat above p: g(p) for p < 1/2, p (1 - p) from there on.

    A Bernoulli variable with p >= 1/2 deviates upwards no more than a Gaussian one with its
    variance (Berend & Kontorovich 2013). Downwards that is false, and g(p) is needed.
    """
    q = np.asarray(p, dtype=np.float64)
    return np.where(q < 0.5, bernoulli_proxy(q), q * (1.0 - q))


def bernstein_width(p: ArrayLike, rate: ArrayLike) -> Floats:
    """Return sqrt(2 p (1 - p) rate) + rate / 3, with rate = beta_n / n; broadcasts."""
    q, b = np.asarray(p), np.asarray(rate)
    width: Floats = np.sqrt(2.0 * q * (1.0 - q) * b) + b / 3.0
    return width


Width = Callable[[Floats], Floats]


def ends_of(estimate: Floats, right_tail: Width, left_tail: Width) -> tuple[Floats, Floats]:
    """Return the least and the largest q that p-hat does not contradict.

    q below p-hat is plausible while p-hat - q <= right_tail(q): a smaller q would mean that p-hat
    is far above its mean. q above p-hat is plausible while q - p-hat <= left_tail(q). Both bounds
    must be concave in q, so each condition has one crossing. It is found by bisection to 2^-40, and
    the outer end of the last bracket is returned.
    """
    ends = []
    for outer, width in ((0.0, right_tail), (1.0, left_tail)):
        inside, outside = estimate.copy(), np.full_like(estimate, outer)
        for halved in range(41):
            # The first candidate is the end of [0, 1] itself, which may be inside.
            q = 0.5 * (inside + outside) if halved else outside
            within = np.abs(estimate - q) <= width(q)
            inside, outside = np.where(within, q, inside), np.where(within, outside, q)
        ends.append(outside)
    return ends[0], ends[1]


def bernoulli_ends(
    estimate: Floats, visits: Floats, delta: float, c: float = 1.0
) -> tuple[Floats, Floats]:
    """Return the least and the largest q with |p-hat - q| at most c times the smaller of

        sqrt(2 q (1 - q) beta_n / n) + beta_n / (3 n),
        sqrt(2 v(q) (1 + 1/n) log(2 sqrt(n + 1) / delta) / n),

    (Bourel, Maillard & Talebi 2020), where v is `right_tail_proxy` for q below p-hat and
    `bernoulli_proxy` for q above it. The ends are 0 and 1 where n = 0.

    Each of the four bounds fails with probability at most delta, and the two of the second line
    with delta / 2: together at most 3 delta, at all n at once.
    """
    n = np.maximum(1.0, visits)
    m = np.maximum(2.0, n)  # the peeling term begins at 2
    peeling = peeling_term(m, delta) / m
    return _two_bounds(estimate, visits, peeling, delta, c, right_tail_proxy, bernoulli_proxy)


def public_ucrl3_ends(
    estimate: Floats, visits: Floats, delta: float, c: float = 1.0
) -> tuple[Floats, Floats]:
    """Return the ends that the public code of UCRL3 computes: *not* a confidence interval.

    It exchanges the two variance proxies of `bernoulli_ends`, so that a p near 1 is excluded far
    more often than delta allows. Where p-hat = 1 the lower end is at least .5^(1/n), which is below
    p with probability 1/2 only. Its beta_n has log(eta n) log(eta^2 n), from n = 1 on.
    """
    n = np.maximum(1.0, visits)
    peeling = public_peeling_term(visits, delta) / n
    lower, upper = _two_bounds(
        estimate, visits, peeling, delta, c, bernoulli_proxy, right_tail_proxy
    )
    always = (visits > 0) & (estimate >= 1.0)
    return np.where(always, np.maximum(lower, 0.5 ** (1.0 / n)), lower), upper


def _two_bounds(
    estimate: Floats,
    visits: Floats,
    peeling: Floats,
    delta: float,
    c: float,
    right_proxy: Width,
    left_proxy: Width,
) -> tuple[Floats, Floats]:
    """Return the ends for the smaller of Bernstein's and Laplace's bound, with these proxies."""
    n = np.maximum(1.0, visits)
    laplace = 2.0 * (1.0 + 1.0 / n) * log(2.0 * np.sqrt(n + 1.0) / delta) / n

    def width(proxy: Width) -> Width:
        return lambda q: c * np.minimum(bernstein_width(q, peeling), np.sqrt(proxy(q) * laplace))

    lower, upper = ends_of(estimate, width(right_proxy), width(left_proxy))
    return np.where(visits > 0, lower, 0.0), np.where(visits > 0, upper, 1.0)
