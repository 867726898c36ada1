"""What counts as equal: the one tie rule of policies that are greedy for a sum of functions.

Actions are tied if their values differ by at most

    1e-9 + 1e-12 * (sum over the functions of |value|),

in the unit of the forms (the largest range of a reward factor). The first term is a difference
that nobody wants to be told apart, the second what rounding in the sum and in the solver's weights
can have done (weights that the symmetry of a model makes equal come out equal to a few parts in
1e13). The size of the values must not enter with more than that. Under a discount near 1, or where
a model has several classes, values grow like 1 / (1 - g), while what one action is worth over
another does not.
"""

from __future__ import annotations

from fmdp._base.compiled import njit
from fmdp.elimination.ties import TIE_TOLERANCE

TIE_ROUNDING = 1e-12


@njit(nogil=True)
def tie_slack(size: float) -> float:
    """How much worse than the best a tied action may be; size = sum of |value| of the functions."""
    return float(TIE_TOLERANCE + TIE_ROUNDING * size)
