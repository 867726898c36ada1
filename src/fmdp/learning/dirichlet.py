"""Probabilities of counts under Dirichlet laws, compiled."""

from __future__ import annotations

import math

from fmdp._base.compiled import njit
from fmdp.learning.statistics import Floats

FACTORS = 40
"""Largest number of factors of a rising factorial that are multiplied; more could overflow."""
SERIES = 16.0
"""From here on four terms of Stirling's series give log Gamma to the last digit."""


@njit(nogil=True)
def log_likelihood(counts: Floats, parameters: Floats) -> float:
    """Return the log Dirichlet-multinomial probability of a sequence with these counts."""
    total = visits = 0.0
    for v in range(counts.shape[0]):
        total += parameters[v]
        visits += counts[v]
    likelihood = -log_rising(total, visits)
    for v in range(counts.shape[0]):
        likelihood += log_rising(parameters[v], counts[v])
    return float(likelihood)


@njit(nogil=True)
def log_rising(start: float, count: float) -> float:
    """Return log of start (start + 1) ... (start + count - 1), or of Gamma(start + count) /
    Gamma(start) if the count is not a whole number."""
    product = 1.0
    if count <= FACTORS and count == int(count):
        for j in range(int(count)):
            product *= start + j
        return math.log(product)
    end = start + count
    while start < SERIES:
        product *= start
        start += 1.0
    while end < SERIES:  # only where counts are faded
        product /= end
        end += 1.0
    return float(math.log(product) + _log_gamma(end) - _log_gamma(start))


@njit(nogil=True)
def _log_gamma(x: float) -> float:
    """Return log Gamma(x) - log(2 pi) / 2 by Stirling's series; 16 digits from SERIES on."""
    y = 1.0 / (x * x)
    series = (1.0 / 12.0 - y * (1.0 / 360.0 - y * (1.0 / 1260.0 - y / 1680.0))) / x
    return (x - 0.5) * math.log(x) - x + series
