"""The tie rule of policies that are greedy for a sum of functions.

Actions are tied if their values differ by at most

    1e-9 + 1e-12 * (sum over the functions of |value|),

in units of the largest range of a reward factor. The first term is a difference too small to
matter. The second bounds the rounding in the sum and in the solver's weights: weights that are
equal by symmetry come out equal to a few parts in 1e13. The second term must stay small, because
under a discount near 1, or in a model with several recurrent classes, values grow like 1 / (1 - g)
while the differences between actions do not.
"""

from __future__ import annotations

from fmdp._base.compiled import njit
from fmdp.elimination.ties import TIE_TOLERANCE

TIE_ROUNDING = 1e-12
"""Relative tolerance of ties: smaller splits actions that differ by rounding alone, larger merges
actions that differ in value."""


@njit(nogil=True)
def tie_slack(size: float) -> float:
    """Return how much worse than the best a tied action may be, for size = sum of |value|."""
    return float(TIE_TOLERANCE + TIE_ROUNDING * size)
