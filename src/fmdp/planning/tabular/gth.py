"""GTH elimination: stationary distributions and expected totals of Markov chains.

States are removed one by one (Grassmann, Taksar & Heyman 1985). The probability of leaving a state
is the sum of the rest of its row, never 1 - P(s, s), so only nonnegative numbers are added,
multiplied and divided. The result is exact for a chain whose transition probabilities are each
changed by a few n units of rounding, and its relative error is about 2 n times as large, however
slow the chain is (O'Cinneide 1993).

The functions work on arrays of any numbers: float64, or objects such as `decimal.Decimal`. Cost:
about n^3 / 3 multiplications.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[Any]
"""An array of float64, or of objects that can be added, multiplied and divided."""


def relative_error(n: int, unit: float, roundings: int = 0) -> float:
    """Return a bound on the relative error of the results for n states.

    `unit` is the relative error of one operation, and `roundings` the number of roundings that each
    given probability already carries.
    """
    return unit * n * (8 * n + 2 * roundings + 16)


def stationary_law(chain: Numbers) -> Numbers:
    """Return mu = mu P of an irreducible chain [n, n]."""
    work = chain.copy()
    n = len(work)
    for k in range(n - 1, 0, -1):
        work[:k, k] /= work[k, :k].sum()
        work[:k, :k] += np.outer(work[:k, k], work[k, :k])
    law = work[0].copy()
    law[0] = law[0] * 0 + 1
    for k in range(1, n):
        law[k] = law[:k] @ work[:k, k]
    return np.asarray(law / law.sum())


def expected_totals(inside: Numbers, leaving: Numbers, paid: Numbers) -> Numbers:
    """Return the expected sums of payments until the chain leaves a set of states.

    The solution v of v = paid + P v, v = 0 outside the set. `inside` has the probabilities of
    moving within the set, [n, n], the diagonal not used; `leaving` the probability of leaving it in
    one step, [n]; `paid` the payment per step, at least 0: [n] or, for several kinds of payment,
    [n, k].
    """
    work, leaving, paid = inside.copy(), leaving.copy(), paid.copy()
    n = len(work)
    away = leaving.copy()
    columns = paid.reshape(n, -1)
    for k in range(n - 1, -1, -1):
        away[k] = leaving[k] + work[k, :k].sum()
        share = work[:k, k] / away[k]
        work[:k, :k] += np.outer(share, work[k, :k])
        leaving[:k] += share * leaving[k]
        columns[:k] += np.outer(share, columns[k])
    for k in range(n):
        columns[k] = (columns[k] + work[k, :k] @ columns[:k]) / away[k]
    return columns.reshape(paid.shape)
