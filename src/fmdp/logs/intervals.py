"""Intervals that hold with a stated probability, whatever policy collected the log.

    Clopper & Pearson 1934: k of n draws were v. With B the inverse of the beta distribution,
        B(d/2; k, n - k + 1) <= P(v) <= 1 - B(d/2; n - k, k + 1)        with probability 1 - d.
    Hoeffding 1963, Maurer & Pontil 2009, rewards in [0, 1] with sample variance V, each side:
        |R - mean| <= sqrt(log(2/d) / 2n),
        |R - mean| <= sqrt(2 V log(4/d) / n) + 7 log(4/d) / (3 (n - 1)).

The number of visits of a row depends on the outcomes of earlier visits, because the policy acted on
them; for a random n, an interval for a fixed n need not hold. But the n-th visit of a row is the
n-th draw of its distribution, so a union over all n suffices: the shares d/(n (n + 1)) sum to d.
Where the numbers of visits were fixed beforehand (a simulator asked about chosen states), every n
has the whole of d. A second union, with equal shares of rho, covers everything that is estimated:
all intervals hold together with probability at least 1 - rho, under any policy. A variable of two
values is one event per row, of r > 2 values r events, of one value none; rows that are alike count
as one.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv

from fmdp._base.portable_math import log

Floats = NDArray[np.float64]

_OUTWARDS = 1e-9
"""Relative margin, larger than the error of the inverse beta distribution."""


def shares(visits: Floats, share: float) -> Floats:
    """Return d/(n (n + 1)) for n visits; d/2 without a visit."""
    n = np.maximum(visits, 1.0)
    per_number: Floats = share / (n * (n + 1.0))
    return per_number


def proportion_interval(hits: Floats, visits: Floats, failure: Floats) -> tuple[Floats, Floats]:
    """Return Clopper and Pearson's interval for probabilities; [0, 1] without a visit."""
    k, n, d = np.broadcast_arrays(hits, visits, failure)
    missed = n - k
    with np.errstate(all="ignore"):
        lower = np.where(k > 0, betaincinv(np.maximum(k, 1), missed + 1.0, d / 2.0), 0.0)
        spared = np.where(missed > 0, betaincinv(np.maximum(missed, 1), k + 1.0, d / 2.0), 0.0)
    lower = np.maximum(lower * (1.0 - _OUTWARDS), 0.0)
    upper = np.minimum(1.0 - spared * (1.0 - _OUTWARDS), 1.0)
    return np.where(n > 0, lower, 0.0), np.where(n > 0, upper, 1.0)


def mean_width(visits: Floats, variance: Floats, failure: Floats) -> Floats:
    """Return half the width of a two-sided interval for the mean of draws in [0, 1].

    The better of Hoeffding's and the empirical Bernstein bound, each with half of `failure`;
    `variance` is the sample variance (with n - 1). The width is 1 without a visit.
    """
    n = np.maximum(visits, 1.0)
    hoeffding = np.sqrt(log(4.0 / failure) / (2.0 * n))
    log_term = log(8.0 / failure)
    with np.errstate(divide="ignore"):
        bernstein = np.sqrt(2.0 * variance * log_term / n) + 7.0 * log_term / (3.0 * (n - 1.0))
    width: Floats = np.minimum(np.minimum(hoeffding, bernstein), 1.0)
    return np.where(visits > 0, width, 1.0)
