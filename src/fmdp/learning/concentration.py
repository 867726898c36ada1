"""Bounds that hold for every number of samples at once: one formula a function.

For n samples of a law on [0, 1] with mean p and sample mean p-hat, each holds for all n >= 1 (or 2)
with probability at least 1 - delta, for one side:

* peeling (Maillard 2019; Talebi, Jonsson & Maillard 2021): Bernstein's inequality on slices of the
  time axis that grow by a factor eta = 1.12, with
      beta_n(delta) = eta log(log(n) log(eta n) / (delta log^2 eta)),   n >= 2;
* Laplace (Peña, Lai & Shao 2008; Abbasi-Yadkori et al. 2011): a sub-Gaussian martingale mixed over
  its parameter, sigma sqrt(2 (1 + 1/n) log(sqrt(n + 1) / delta) / n), sigma = 1/2 for [0, 1].

Nothing here depends on a horizon or on t.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

ETA = 1.12


def peeling_term(visits: ArrayLike, delta: ArrayLike) -> Floats:
    """beta_n(delta); a count below 2 is taken as 2. Broadcasts."""
    n = np.maximum(2.0, np.asarray(visits, dtype=np.float64))
    peeled = np.log(n) * np.log(ETA * n) / (np.asarray(delta) * np.log(ETA) ** 2)
    term: Floats = ETA * np.log(peeled)
    return term


def empirical_bernstein_width(estimate: ArrayLike, visits: ArrayLike, peeling: ArrayLike) -> Floats:
    """sqrt(2 p-hat (1 - p-hat) beta / n) + 7 beta / (3 n); broadcasts, n at least 1."""
    p, rate = np.asarray(estimate), np.asarray(peeling) / np.maximum(1, np.asarray(visits))
    width: Floats = np.sqrt(2.0 * p * (1.0 - p) * rate) + 7.0 / 3.0 * rate
    return width


def laplace_width(visits: ArrayLike, delta: ArrayLike) -> Floats:
    """sqrt((1 + 1/n) log(sqrt(n + 1) / delta) / (2 n)), infinite for n = 0; broadcasts."""
    n = np.asarray(visits, dtype=np.float64)
    seen = np.maximum(1.0, n)
    log_term = np.log(np.sqrt(seen + 1.0) / np.asarray(delta))
    width: Floats = np.sqrt((1.0 + 1.0 / seen) * log_term / (2.0 * seen))
    return np.where(n > 0, width, np.inf)


def bernoulli_proxy(p: ArrayLike) -> Floats:
    """g(p) = (1/2 - p) / log(1/p - 1), the sub-Gaussian variance of a Bernoulli variable (Kearns &
    Saul 1998): 1/4 at 1/2, 0 at 0 and 1."""
    q = np.asarray(p, dtype=np.float64)
    inside = (q > 0.0) & (q < 1.0) & (np.abs(q - 0.5) > 1e-6)
    safe = np.where(inside, q, 0.25)
    proxy = (0.5 - safe) / np.log(1.0 / safe - 1.0)
    return np.where(inside, proxy, np.where(np.abs(q - 0.5) <= 1e-6, 0.25, 0.0))


def upper_proxy(p: ArrayLike) -> Floats:
    """That of deviations from below: g(p) for p < 1/2, and p (1 - p) above."""
    q = np.asarray(p, dtype=np.float64)
    return np.where(q < 0.5, bernoulli_proxy(q), q * (1.0 - q))


def bernoulli_ends(
    estimate: Floats, visits: Floats, delta: float, c: float = 1.0
) -> tuple[Floats, Floats]:
    """The least and the largest q with |p-hat - q| at most c times the smaller of

        sqrt(2 q (1 - q) beta_n / n) + beta_n / (3 n),
        sqrt(2 g(q) (1 + 1/n) log(2 sqrt(n + 1) / delta) / n),

    g the proxy of the side on which q lies (Bourel, Maillard & Talebi 2020). q minus either bound
    is convex on its side of p-hat, so that there is one crossing: it is found by bisection to
    2^-40, and the outer end of the last bracket is taken. 0 and 1 where n = 0.
    """
    n = np.maximum(1.0, visits)
    m = np.maximum(2.0, n)  # of the peeling term, which begins at 2
    peeling = peeling_term(m, delta) / m
    laplace = 2.0 * (1.0 + 1.0 / n) * np.log(2.0 * np.sqrt(n + 1.0) / delta) / n
    ends = []
    for outer, proxy in ((0.0, bernoulli_proxy), (1.0, upper_proxy)):
        inside, outside = estimate.copy(), np.full_like(estimate, outer)
        for halved in range(41):
            # First the end itself, which may be inside; then halves.
            q = 0.5 * (inside + outside) if halved else outside
            bernstein = np.sqrt(2.0 * q * (1.0 - q) * peeling) + peeling / 3.0
            width = c * np.minimum(bernstein, np.sqrt(proxy(q) * laplace))
            within = np.abs(estimate - q) <= width
            inside, outside = np.where(within, q, inside), np.where(within, outside, q)
        ends.append(np.where(visits > 0, outside, outer))
    return ends[0], ends[1]
