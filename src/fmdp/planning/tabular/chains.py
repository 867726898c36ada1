"""Markov chains: expected times to reach a state, and expected costs until absorption.

Hitting times solve E = 1 + P E with E(target) = 0. Dense chains: the states are removed block by
block (Grassmann, Taksar & Heyman 1985; Kohlas 1986). With B a block and U the states that remain,

    G = (I - P_BB)^-1,  P_UU <- P_UU + P_UB G P_BU,  and the same for the costs and the way out.

The way out (the mass that goes to the target) is a separate column, and a diagonal 1 - P(s, s) is
always the sum of the rest of its row. So nothing is ever subtracted: every time is right to a few
units of 1e-16 *relative to itself*, however long it is. A plain linear solve loses as many digits
as the times have. Cost (2/3) S^3, nearly all of it matrix products. Sparse chains: a sparse
factorisation with refinement, used where it reaches the same precision.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fmdp.planning.tabular.gth import expected_totals

if TYPE_CHECKING:  # SciPy's sparse matrices take long to load
    from scipy.sparse import csr_array

Matrix = NDArray[np.float64]
Vector = NDArray[np.float64]

_BLOCK = 48
"""States that are removed at a time."""


def hitting_times(matrix: Matrix, target: int) -> Vector:
    """Return the expected steps to the target from every state.

    The target must be reached almost surely from all.  Times beyond the range of numbers are inf.
    """
    others = np.delete(np.arange(len(matrix)), target)
    steps = np.ones((len(others), 1))
    times = absorbed_costs(matrix[np.ix_(others, others)], matrix[others, target], steps)[:, 0]
    return np.insert(np.nan_to_num(times, nan=np.inf, posinf=np.inf), target, 0.0)


def absorbed_costs(inside: Matrix, leaving: Vector, costs: Matrix) -> Matrix:
    """Return the expected total of each cost until a chain is absorbed: E = costs + inside E.

    `inside` [n, n] are the probabilities between the states that are not absorbing, `leaving` [n]
    those of absorption, and `costs` [n, k] has one column per cost. Every state must be absorbed
    surely. Nothing is subtracted, so the totals of costs that are not negative are right to a few
    units of 1e-16 relative to themselves. Totals beyond the range of numbers are inf or nan.
    """
    n, first = len(inside), 1 + costs.shape[1]
    # Columns: the way out, the costs, then the states: what is left is a slice.
    work = np.empty((n, first + n))
    work[:, 0] = leaving
    work[:, 1:first] = costs
    work[:, first:] = inside
    onward: list[Matrix] = []
    end = n
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        while end > 0:
            start = max(0, end - _BLOCK)
            rest, block_columns = slice(0, first + start), slice(first + start, first + end)
            block = work[start:end]
            away = block[:, 0] + block[:, first : first + start].sum(axis=1)
            inverse = expected_totals(block[:, block_columns], away, np.eye(end - start))
            through = inverse @ block[:, rest]
            onward.append(through)
            work[:start, rest] += work[:start, block_columns] @ through
            end = start
        totals = np.zeros((0, costs.shape[1]))
        for through in reversed(onward):
            new = through[:, first:] @ totals + through[:, 1:first]
            totals = np.concatenate([totals, new])
    return totals


def sparse_hitting_times(matrix: csr_array, target: int, tolerance: float) -> Vector | None:
    """Return the hitting times by sparse factorisation; None if they are not precise enough.

    The residual 1 + P E - E, with what rounding can do to it, bounds the relative error of the
    result. It is summed over differences of E, and the chance of leaving a state is the sum of the
    rest of its row, so that a state that is hardly ever left costs no digits.
    """
    from scipy.sparse import csc_array
    from scipy.sparse.linalg import splu

    n = matrix.shape[0]
    entries = matrix.tocoo()
    moving = (entries.row != entries.col) & (entries.row != target)
    row, column, weight = entries.row[moving], entries.col[moving], entries.data[moving]
    diagonal = np.bincount(row, weight, n)
    diagonal[target] = 1.0
    inside = column != target
    places = np.arange(n)
    system = csc_array(
        (
            np.concatenate([-weight[inside], diagonal]),
            (np.concatenate([row[inside], places]), np.concatenate([column[inside], places])),
        ),
        shape=(n, n),
    )
    try:
        factors = splu(system)
    except RuntimeError:  # exactly singular
        return None
    rounding = (4 + int(np.bincount(row, minlength=n).max())) * float(np.finfo(np.float64).eps)
    times = np.zeros(n)
    for _ in range(5):
        moved = weight * (times[column] - times[row])
        residual = 1.0 + np.bincount(row, moved, n)
        residual[target] = 0.0
        noise = rounding * np.bincount(row, np.abs(moved), n)
        if not np.isfinite(residual).all():
            return None
        if (np.abs(residual) + noise).max() <= tolerance:
            return times
        times += factors.solve(residual)
    return None
