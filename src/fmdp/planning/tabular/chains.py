"""The Markov chain of a policy: its matrix, dense or sparse, and exact times to reach a state.

Hitting times solve E = 1 + P E with E(target) = 0. Dense chains: the states are removed block by
block (Grassmann, Taksar & Heyman 1985; Kohlas 1986); with B a block and U what is not yet removed,

    G = (I - P_BB)^-1,  P_UU <- P_UU + P_UB G P_BU,  and the same for the cost and the way out.

The way out (the mass that goes to the target) is carried as a column of its own and a diagonal
1 - P(s, s) is always the sum of the rest of its row, so nothing is ever subtracted: every time is
right to a few units of 1e-16 *relative to itself*, however long it is. A plain linear solve loses
as many digits as the times have. Cost (2/3) S^3, nearly all of it matrix products. Sparse chains:
a sparse factorisation with refinement, used where it reaches the same precision.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fmdp.model import FactoredMDP
from fmdp.model.spaces import project_some, strides

if TYPE_CHECKING:  # SciPy's sparse matrices take their time to load
    from scipy.sparse import csr_array

Matrix = NDArray[np.float64]
Vector = NDArray[np.float64]
Actions = NDArray[np.integer[Any]]

_BLOCK = 48


def policy_matrix(model: FactoredMDP, actions: Actions) -> Matrix:
    """The transition matrix [S, S] under one joint action index for every state."""
    structure = model.structure
    n_states = structure.n_states
    pairs = np.arange(n_states) * structure.n_actions + actions
    matrix = np.ones((n_states, 1))
    for scope, table in zip(structure.transition_scopes, model.transitions, strict=True):
        rows = table[project_some(structure.sizes, scope, pairs)]  # [S, S_i]
        matrix = _joined(np.multiply, matrix, rows)
    return matrix


def _joined(operation: np.ufunc, left: NDArray[Any], right: NDArray[Any]) -> NDArray[Any]:
    """[n, w] and [n, k] -> [n, w * k]: every number of a row with every one of the other's, by a
    pass for each of the k: NumPy is slow where its innermost loop has two steps."""
    found = np.empty((*left.shape, right.shape[1]), dtype=left.dtype)
    for place in range(right.shape[1]):
        operation(left, right[:, place, None], out=found[:, :, place])
    return found.reshape(len(left), -1)


def hitting_times(matrix: Matrix, target: int) -> Vector:
    """Expected steps to the target from every state; it must be reached surely from all.

    Times beyond the range of numbers are inf.
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
            through = _resolvent(block[:, block_columns], away) @ block[:, rest]
            onward.append(through)
            work[:start, rest] += work[:start, block_columns] @ through
            end = start
        totals = np.zeros((0, costs.shape[1]))
        for through in reversed(onward):
            new = through[:, first:] @ totals + through[:, 1:first]
            totals = np.concatenate([totals, new])
    return totals


def _resolvent(inside: Matrix, leaving: Vector) -> Matrix:
    """(I - inside)^-1 for a block whose rows, with `leaving`, sum to 1: no subtraction."""
    inside, leaving = inside.copy(), leaving.copy()
    k = len(inside)
    right = np.eye(k)
    away = np.empty(k)
    for n in range(k - 1, -1, -1):
        away[n] = leaving[n] + inside[n, :n].sum()
        share = inside[:n, n] / away[n]
        inside[:n, :n] += np.outer(share, inside[n, :n])
        leaving[:n] += share * leaving[n]
        right[:n] += np.outer(share, right[n])
    result = np.empty((k, k))
    for n in range(k):
        result[n] = (right[n] + inside[n, :n] @ result[:n]) / away[n]
    return result


class Successors:
    """The rows of P as lists of successors, for models with few of them.

    Factor i has at most k_i successors in any row; a joint row has at most `width` = prod_i k_i,
    and shorter ones are filled up with entries of probability 0.
    """

    def __init__(self, model: FactoredMDP) -> None:
        self.structure = model.structure
        self.steps: list[NDArray[np.int64]] = []  # [rows, k_i], the value times its stride
        self.probabilities: list[Matrix] = []  # [rows, k_i]
        self.width = 1
        for table, stride in zip(
            model.transitions, strides(model.structure.state_sizes), strict=True
        ):
            most = int((table > 0).sum(axis=1).max())
            values = np.argsort(table == 0, axis=1, kind="stable")[:, :most]
            self.steps.append(values * stride)
            self.probabilities.append(np.take_along_axis(table, values, axis=1))
            self.width *= most

    def rows(self, actions: Actions) -> tuple[NDArray[np.int64], Matrix]:
        """Successors and probabilities [S, width] under one joint action index a state."""
        structure = self.structure
        return self.rows_of(np.arange(structure.n_states) * structure.n_actions + actions)[:2]

    def rows_of(
        self, pairs: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], Matrix, NDArray[np.bool_]]:
        """Of state * actions + action: successors, probabilities and support [pairs, width]."""
        structure = self.structure
        columns = np.zeros((len(pairs), 1), dtype=np.int64)
        weights = np.ones((len(pairs), 1))
        possible = np.ones((len(pairs), 1), dtype=np.bool_)
        for scope, steps, own in zip(
            structure.transition_scopes, self.steps, self.probabilities, strict=True
        ):
            row = project_some(structure.sizes, scope, pairs)
            possible = _joined(np.logical_and, possible, (own > 0.0)[row])
            columns = _joined(np.add, columns, steps[row])
            weights = _joined(np.multiply, weights, own[row])
        return columns, weights, possible

    def matrix(self, actions: Actions) -> csr_array:
        """The sparse transition matrix of a policy."""
        from scipy.sparse import csr_array

        columns, weights = self.rows(actions)
        n_states = len(columns)
        starts = np.arange(n_states + 1) * self.width
        matrix = csr_array((weights.ravel(), columns.ravel(), starts), shape=(n_states, n_states))
        matrix.eliminate_zeros()
        return matrix


def sparse_hitting_times(matrix: csr_array, target: int, tolerance: float) -> Vector | None:
    """Compute what `hitting_times` does by sparse factorisation; None if it is not that precise.

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
