"""The constraints on the Bellman residual as rows of a linear program, and their separation.

The constraint is "maximum of the network <= right-hand side". Every row has one pattern: a message
entry is at least the sum of the entries that one joint assignment reads, which are function entries
(linear forms in the weights) and other message entries,

    u[head] - sum over messages read of u[at] - sum over functions read of form[at](w) >= 0.

With a column for every message and a row for every joint assignment these are the constraints that
elimination emits (Guestrin et al. 2003, the factored LP). With columns for the components' maxima
alone, a row is traced down to the functions: it is the constraint of one (state, action), and
constraint generation adds those that are violated (Schuurmans & Patrascu 2002). Rows are stored as
positions in the network's buffer, so that new tables only need new numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fmdp._base.compiled import njit
from fmdp._base.deadlines import NEVER, Deadline
from fmdp.elimination import maxsum
from fmdp.errors import InvalidParameter
from fmdp.model.spaces import starts
from fmdp.planning.alp.bellman_residual import BellmanResidual
from fmdp.planning.alp.highs import N_BASIS_STATUS, Rows, SimplexBasis
from fmdp.planning.alp.residual_kernels import Coefficients
from fmdp.planning.policies.archive import array_in, starts_in

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Columns = NDArray[np.int32]

FIXED = -1
"""Column number of a right-hand side that is a constant."""


@dataclass(frozen=True, eq=False)
class RowPattern:
    """Rows as positions in the buffer of the network."""

    head: Ints  # [rows]: the message entry that is bounded below
    start: Ints  # [rows + 1]
    at: Ints  # the entries that it reads

    def __len__(self) -> int:
        return len(self.head)

    def take(self, keep: NDArray[np.bool_]) -> RowPattern:
        lengths = np.diff(self.start)[keep]
        start = starts(lengths)
        return RowPattern(self.head[keep], start, self.at[np.repeat(keep, np.diff(self.start))])

    def followed_by(self, other: RowPattern) -> RowPattern:
        return RowPattern(
            np.concatenate([self.head, other.head]),
            np.concatenate([self.start, other.start[1:] + self.start[-1]]),
            np.concatenate([self.at, other.at]),
        )


def no_rows() -> RowPattern:
    return RowPattern(np.zeros(0, np.int64), np.zeros(1, np.int64), np.zeros(0, np.int64))


class BellmanConstraints:
    """Constraints "the Bellman residual under `discount` is at most the right-hand side".

    The right-hand side is `coefficient` times column `rhs`, or the number `fixed` if rhs is FIXED.
    The weights are the first columns. Auxiliary columns begin at `first_column`: one for the
    maximum of each component if there are several, then, with `messages`, one for each message.
    """

    def __init__(
        self,
        residual: BellmanResidual,
        discount: float,
        *,
        rhs: int,
        coefficient: float = 1.0,
        fixed: float = 0.0,
        first_column: int,
        messages: bool = False,
    ) -> None:
        self.residual = residual
        self.network = residual.network
        self.discount = discount
        self.rhs = rhs
        self.coefficient = coefficient
        self.fixed = fixed
        network = self.network
        n_functions = network.n_functions
        column = first_column
        self._column: Columns = np.full(network.n_messages, FIXED, dtype=np.int32)
        self._joined = len(network.components) > 1
        self.maxima: list[int] = []
        for first, end in network.closing:
            if self._joined:
                self.maxima.append(column)
                self._column[first - n_functions : end - n_functions] = column
                column += 1
            else:
                self._column[first - n_functions : end - n_functions] = rhs
        self.closing: Ints = np.concatenate(
            [np.arange(first, end) for first, end in network.closing]
        )
        """Positions of the maxima of all components in all their contexts."""
        if messages:
            sent = np.array([kind in ("up", "down") for kind in network.kinds])
            entries = np.flatnonzero(sent[network.schedule.item_block[network.schedule.owner]])
            self._column[entries] = np.arange(column, column + len(entries))
            column += len(entries)
        self.n_columns = column - first_column
        self._most_weights = max((len(columns) for columns in residual.columns), default=0)

    # -- patterns --------------------------------------------------------------------------------

    def emitted(self, deadline: Deadline = NEVER) -> RowPattern:
        """Return every row of the elimination: one for each allowed joint assignment of each
        item."""
        schedule = self.network.schedule
        heads, lengths, reads = [], [], []
        for block, kind in enumerate(self.network.kinds):
            if kind not in ("up", "down", "close"):
                continue
            deadline.check()
            joint = int(schedule.block_joint[block])
            items = slice(int(schedule.block_items[block]), int(schedule.block_items[block + 1]))
            first, end = schedule.block_inputs[block], schedule.block_inputs[block + 1]
            outs = schedule.item_out[items]
            out_map = schedule.maps[_run(schedule.block_out_map[block], joint)]
            heads.append((outs[:, None] + out_map[None, :]).ravel())
            n = len(outs)
            inputs = np.empty((n, joint, end - first), dtype=np.int64)
            for q, at in enumerate(schedule.input_map[first:end]):
                where = schedule.input_at[schedule.item_input[items] + q]
                inputs[:, :, q] = where[:, None] + schedule.maps[_run(at, joint)][None, :]
            reads.append(inputs.ravel())
            lengths.append(np.full(n * joint, end - first))
        start = starts(np.concatenate(lengths))
        pattern = RowPattern(np.concatenate(heads), start, np.concatenate(reads))
        barred = np.isneginf(self.residual.coefficients.constant)
        if not barred.any():
            return pattern
        # A row that reads a forbidden entry, minus infinity, is void.
        of_functions = pattern.at < len(barred)
        reads_barred = np.zeros(len(pattern.at), dtype=np.bool_)
        reads_barred[of_functions] = barred[pattern.at[of_functions]]
        row = np.repeat(np.arange(len(pattern)), np.diff(pattern.start))
        return pattern.take(np.bincount(row, reads_barred, len(pattern)) == 0.0)

    def traced(self, heads: Ints, rivals: int = 0) -> RowPattern:
        """Return the rows of the maximisers of these closing entries, as last evaluated, and of up
        to `rivals` near-maximisers of each."""
        if not len(heads):
            return no_rows()
        network = self.network
        begin = np.full(len(heads), -1, dtype=np.int64)
        if rivals:
            others = [network.rivals(int(head), rivals) for head in heads]
            heads = np.repeat(heads, [1 + len(those) for those in others])
            begin = np.concatenate([np.append(-1, those) for those in others])
        counts = np.empty(len(heads), dtype=np.int64)
        at = np.empty(len(heads) * len(network.functions), dtype=np.int64)
        total = maxsum.trace(network.packed, heads, begin, counts, at)
        return RowPattern(heads, starts(counts), at[:total].copy())

    # -- rows ------------------------------------------------------------------------------------

    def rows(self, pattern: RowPattern) -> Rows:
        """Return these rows for the loaded tables."""
        residual = self.residual
        capacity = len(pattern.at) * max(1, self._most_weights) + len(pattern)
        start = np.empty(len(pattern), dtype=np.int32)
        lower = np.empty(len(pattern))
        index = np.empty(capacity, dtype=np.int32)
        value = np.empty(capacity)
        bound = (self.discount, self._column, self.rhs, self.coefficient, self.fixed)
        used = _rows(
            (pattern.head, pattern.start, pattern.at),
            residual.coefficient_arrays,
            bound,
            residual.basis.size,
            (start, index, value, lower),
        )
        return Rows(lower, start, index[:used], value[:used])

    def joining_row(self) -> Rows | None:
        """Return "right-hand side >= sum of the components' maxima"; None for one component."""
        if not self._joined:
            return None
        index = list(self.maxima)
        value = [-1.0] * len(index)
        lower = 0.0
        if self.rhs == FIXED:
            lower = -self.fixed
        else:
            index.append(self.rhs)
            value.append(self.coefficient)
        return Rows(
            np.array([lower]),
            np.zeros(1, dtype=np.int32),
            np.array(index, dtype=np.int32),
            np.array(value),
        )

    # -- separation ------------------------------------------------------------------------------

    def right_hand_side(self, x: Floats) -> float:
        return self.fixed if self.rhs == FIXED else self.coefficient * float(x[self.rhs])

    def violation(self, x: Floats) -> float:
        """Return the largest violation over all (state, action) at x; updates the closing
        entries."""
        return self.residual.maximum(x, self.discount) - self.right_hand_side(x)

    def violated(self, x: Floats, threshold: float) -> Ints:
        """Return the closing entries that exceed their columns' values by more than their share of
        the threshold. Call `violation` first."""
        if self._joined:
            allowed = x[self._column[self.closing - self.network.n_functions]]
        else:
            allowed = np.full(len(self.closing), self.right_hand_side(x))
        share = threshold / len(self.network.components)
        return self.closing[self.network.buffer[self.closing] > allowed + share]


def restored_pattern(
    arrays: Mapping[str, NDArray[Any]], number: int, family: BellmanConstraints
) -> RowPattern:
    """Return the rows of a constraint family from its saved arrays."""
    n_functions = family.network.n_functions
    at = array_in(arrays, f"at{number}", "i", (None,), 0, n_functions - 1)
    head = array_in(arrays, f"head{number}", "i", (None,))
    start = starts_in(arrays, f"start{number}", len(head), f"at{number}")
    if not np.isin(head, family.closing).all():
        raise InvalidParameter(f"its part 'head{number}' has entries that are no maxima")
    return RowPattern(head, start, at)


def restored_basis(
    arrays: Mapping[str, NDArray[Any]],
    families: Sequence[BellmanConstraints],
    n_weights: int,
    n_rows: int,
) -> SimplexBasis:
    """Return the saved basis of a program with these constraints and `n_rows` rows, joining rows
    not counted."""
    n_columns = n_weights + 1 + sum(family.n_columns for family in families)
    n_rows += sum(family.joining_row() is not None for family in families)
    statuses = []
    for name, length in (("columns", n_columns), ("rows", n_rows)):
        array = arrays.get(name)
        if array is None or array.dtype != np.int8 or array.shape != (length,):
            got = "nothing" if array is None else f"{array.dtype} {array.shape}"
            raise InvalidParameter(f"its part {name!r} must be {length} numbers of int8; got {got}")
        if length and not 0 <= array.min() <= array.max() < N_BASIS_STATUS:
            raise InvalidParameter(f"its part {name!r} must be from 0 to {N_BASIS_STATUS - 1}")
        statuses.append(array)
    return SimplexBasis(*statuses)


def _run(first: Any, length: int) -> slice:
    return slice(int(first), int(first) + length)


class _Bound(NamedTuple):
    """The right-hand side, and the columns of the messages."""

    discount: float
    columns: Columns
    rhs: int
    coefficient: float
    fixed: float


@njit(nogil=True)
def _rows(pattern: Any, coefficients: Any, bound: Any, n_weights: int, rows: Any) -> int:
    """Write the rows of a pattern (head, start, at) as (start, index, value, lower), and return
    their number of entries. Numba dispatches on plain tuples faster than on named ones."""
    head, first, at = pattern
    linear, side = Coefficients(*coefficients), _Bound(*bound)
    first_column, columns, constant = linear.first_column, linear.columns, linear.constant
    expected, current = linear.expected, linear.current
    start, index, value, lower = rows
    n_functions = constant.shape[0]
    total = np.zeros(n_weights)
    touched = np.empty(n_weights, dtype=np.int64)
    seen = np.zeros(n_weights, dtype=np.bool_)
    used = 0
    for r in range(head.shape[0]):
        start[r] = used
        least = 0.0
        n_touched = 0
        for q in range(first[r], first[r + 1]):
            e = at[q]
            if e >= n_functions:
                # A joint assignment reads each message once, so the column is new.
                index[used] = side.columns[e - n_functions]
                value[used] = -1.0
                used += 1
                continue
            f = linear.function[e]
            least += constant[e]
            n_columns = first_column[f + 1] - first_column[f]
            place = linear.first_coefficient[f] + (e - linear.first_entry[f]) * n_columns
            for c in range(n_columns):
                b = columns[first_column[f] + c]
                if not seen[b]:
                    seen[b] = True
                    total[b] = 0.0
                    touched[n_touched] = b
                    n_touched += 1
                total[b] += current[place + c] - side.discount * expected[place + c]
        for t in range(n_touched):
            b = touched[t]
            seen[b] = False
            if total[b] != 0.0:
                index[used] = b
                value[used] = total[b]
                used += 1
        column = side.columns[head[r] - n_functions]
        if column < 0:
            least -= side.fixed
        else:
            index[used] = column
            value[used] = side.coefficient if column == side.rhs else 1.0
            used += 1
        lower[r] = least
    return used
