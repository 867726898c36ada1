"""Recurrent classes of a policy's chain, and the gain of each.

The support of the chain is written out as a sparse graph; its strongly connected sets that are
never left are the recurrent classes. Only zeros and non-zeros of the tables decide them. Inside a
class the policy has one gain, which lies between the least and the largest R + P h - h over the
class, for any h. All classes are iterated together, h <- h + tau (R + P h - h), and a class of a
few thousand states that mixes slowly is solved directly. The gain of a transient state is the mean
of the gains of the classes in which it ends, P^n g: the operator P is monotone, so from lower
bounds it stays below and from upper bounds above.

Cost: time and memory in proportion to the entries of the chain, known before any is written.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fmdp._base.deadlines import Deadline, TimeUp
from fmdp.elimination.rounding import rounding_allowance
from fmdp.model import FactoredMDP
from fmdp.model.spaces import project_some
from fmdp.planning.status import Progress, Status
from fmdp.planning.tabular.end_components import strongly_connected
from fmdp.planning.tabular.linear_systems import SPARSE_STATES
from fmdp.planning.tabular.model import Floats, Indices, Mask, Successors, write_out_pairs
from fmdp.planning.tabular.policy_iteration import optimal_gain

if TYPE_CHECKING:  # SciPy's sparse matrices take long to load
    from scipy.sparse import csr_array

MOST_ENTRIES = 1 << 25
"""Entries up to which a chain is written out: about a gigabyte while it is built."""
_BYTES_PER_ENTRY = 48
"""Memory for an entry, with what is computed from it while the chain is built."""
_ENTRIES_AT_ONCE = 1 << 20
"""Entries that are written between two checks of the deadline."""
_DAMPING = 0.75
"""Weight tau of a sweep; below 1 no class is periodic."""
_PATIENCE = 256
"""Sweeps after which small classes that have not converged are solved directly, once."""


@dataclass(frozen=True, eq=False)
class Chain:
    """The chain of a policy, written out."""

    matrix: csr_array
    """[S, S]; entries whose product of probabilities underflows to 0 are kept."""
    pairs: Indices
    """[S]: state * actions + action."""


def chain_entries(model: FactoredMDP, actions: NDArray[np.integer[Any]]) -> Floats:
    """Return the number of successors of every state under a policy, as floats: [S]."""
    structure = model.structure
    pairs = np.arange(structure.n_states) * structure.n_actions + actions
    entries = np.ones(len(pairs))
    for scope, table in zip(structure.transition_scopes, model.transitions, strict=True):
        entries *= np.count_nonzero(table, axis=1)[project_some(structure.sizes, scope, pairs)]
    return entries


def most_entries(memory_limit: int | None) -> int:
    """Return the entries that may be written out under a memory limit in bytes."""
    if memory_limit is None:
        return MOST_ENTRIES
    return min(MOST_ENTRIES, memory_limit // _BYTES_PER_ENTRY)


def write_chain(
    model: FactoredMDP, actions: NDArray[np.integer[Any]], entries: Floats, deadline: Deadline
) -> Chain:
    """Return the chain of a policy, given the number of successors of every state."""
    from scipy.sparse import csr_array

    structure = model.structure
    n_states = structure.n_states
    pairs = np.arange(n_states) * structure.n_actions + actions
    starts = np.concatenate([[0], np.cumsum(entries)]).astype(np.int64)
    columns = np.empty(starts[-1], dtype=np.int32)
    weights = np.empty(starts[-1])
    cuts = np.searchsorted(starts, np.arange(0, int(starts[-1]), _ENTRIES_AT_ONCE), side="right")
    borders = np.unique(np.concatenate([cuts - 1, [n_states]]))
    for first, end in zip(borders[:-1].tolist(), borders[1:].tolist(), strict=True):
        deadline.check()
        some = slice(starts[first], starts[end])
        columns[some], weights[some] = _rows(model, pairs[first:end])
    return Chain(csr_array((weights, columns, starts), shape=(n_states, n_states)), pairs)


def _rows(model: FactoredMDP, pairs: Indices) -> tuple[Indices, Floats]:
    """Return the successors of the pairs, one pair after the other, and their probabilities."""
    structure = model.structure
    origin = np.arange(len(pairs))
    target, weight = np.zeros_like(origin), np.ones(len(origin))
    for scope, size, table in zip(
        structure.transition_scopes, structure.state_sizes, model.transitions, strict=True
    ):
        rows = table[project_some(structure.sizes, scope, pairs)][origin]  # [entries, S_i]
        entry, value = np.nonzero(rows)
        weight = weight[entry] * rows[entry, value]
        target = target[entry] * size + value
        origin = origin[entry]
    return target, weight


def recurrent_classes(matrix: csr_array) -> tuple[int, Indices]:
    """Return the number of recurrent classes and the class of each state, -1 if it is transient."""
    n = matrix.shape[0]
    origin = np.repeat(np.arange(n), np.diff(matrix.indptr))
    target = matrix.indices.astype(np.int64)
    count, label = strongly_connected(n, origin, target)
    closed = np.ones(count, dtype=np.bool_)
    closed[label[origin[label[origin] != label[target]]]] = False
    numbers = np.where(closed, np.cumsum(closed) - 1, -1)
    return int(closed.sum()), numbers[label]


@dataclass(eq=False)
class ClassGains:
    """Bounds on the gain of every class, which tighten while `solve` runs and always hold."""

    lower: Floats  # [classes]
    upper: Floats  # [classes]
    label: Indices
    """[S]: the class, -1 for a transient state."""
    start: tuple[float, float]
    """Bounds on the gain from the initial state."""
    sweeps: int = 0
    status: Status = Status.CONVERGED
    """Whether all gains are within the tolerance, or what stopped the work."""

    @property
    def sizes(self) -> Indices:
        """Return the number of states of every class."""
        return np.bincount(self.label[self.label >= 0], minlength=len(self.lower))


@dataclass(frozen=True, eq=False)
class ClassSolver:
    """The gains of all classes of one chain."""

    model: FactoredMDP
    chain: Chain
    label: Indices
    count: int
    tolerance: float
    max_sweeps: int
    deadline: Deadline
    progress: Progress | None = None

    def solve(self, initial: int) -> ClassGains:
        """Return the gains of all classes, and that of the initial state.

        The deadline and Ctrl-C end the work; the bounds so far hold.
        """
        least, most = self.model.structure.reward_bounds
        unknown = np.full(self.count, least), np.full(self.count, most)
        gains = ClassGains(*unknown, self.label, (least, most))
        try:
            self._iterate(gains)
            if self.label[initial] < 0:
                self._absorb(gains, initial)
        except TimeUp:
            gains.status = Status.TIME_LIMIT
        except KeyboardInterrupt:
            gains.status = Status.INTERRUPTED
        if self.label[initial] >= 0:
            of_start = self.label[initial]
            gains.start = float(gains.lower[of_start]), float(gains.upper[of_start])
        return gains

    def _iterate(self, gains: ClassGains) -> None:
        """Iterate all classes until each has converged. If the slowest stalls, small classes are
        solved directly, and the others are iterated without patience."""
        unsolved = self._sweeps(gains, np.arange(self.count), patient=False)
        if len(unsolved) and gains.sweeps < self.max_sweeps:
            unsolved = self._directly(gains, unsolved)
            if len(unsolved):
                unsolved = self._sweeps(gains, unsolved, patient=True)
        if len(unsolved):
            gains.status = Status.ITERATION_LIMIT

    def _sweeps(self, gains: ClassGains, classes: Indices, *, patient: bool) -> Indices:
        """Iterate some classes together from 0; return those that have not converged.

        Without patience the work ends when the widest bounds have not halved in `_PATIENCE` sweeps.
        """
        states = np.flatnonzero(np.isin(self.label, classes))
        states = states[np.argsort(self.label[states], kind="stable")]
        matrix = self.chain.matrix[states][:, states]
        reward, size, roundings = self._rewards(states, matrix)
        numbers = np.searchsorted(classes, self.label[states])
        first = np.searchsorted(numbers, np.arange(len(classes)))
        h = np.zeros(len(states))
        unsolved, widest_before = classes, np.inf
        for sweep in range(1, self.max_sweeps - gains.sweeps + 1):
            self.deadline.check()
            moved = reward + matrix @ h - h
            slack = rounding_allowance(float(np.abs(h).max()) + size, roundings)
            low, high = np.minimum.reduceat(moved, first), np.maximum.reduceat(moved, first)
            gains.lower[classes] = np.maximum(gains.lower[classes], low - slack)
            gains.upper[classes] = np.minimum(gains.upper[classes], high + slack)
            gains.sweeps += 1
            gap = gains.upper[classes] - gains.lower[classes]
            widest = float(gap.max())
            if self.progress is not None:
                self._report(gains, widest)
            # Half of the tolerance is left to absorption. Where rounding is all that keeps bounds
            # apart, further sweeps are of no use.
            unsolved = classes[(gap > 0.5 * self.tolerance) & (high - low > 2.0 * slack)]
            if not len(unsolved):
                break
            if not patient and sweep % _PATIENCE == 0:
                if widest > 0.5 * widest_before:
                    break
                widest_before = widest
            h += _DAMPING * (moved - 0.5 * (low + high)[numbers])
        return unsolved

    def _report(self, gains: ClassGains, widest: float) -> None:
        assert self.progress is not None
        self.progress(
            {
                "what": f"{self.count:,} recurrent classes",
                "sweeps": gains.sweeps,
                "gain_lower": float(gains.lower.min()),
                "gain_upper": float(gains.upper.max()),
                "gap": widest,
                "tolerance": self.tolerance,
            }
        )

    def _rewards(self, states: Indices, matrix: csr_array) -> tuple[Floats, float, int]:
        """Return the rewards of some states, their largest size, and the roundings of a sweep."""
        structure = self.model.structure
        reward = np.zeros(len(states))
        for scope, means in zip(structure.reward_scopes, self.model.rewards, strict=True):
            reward += means[project_some(structure.sizes, scope, self.chain.pairs[states])]
        # As those of a tabular backup, whose sums have one term per state.
        roundings = (
            _widest_row(matrix) + sum(structure.state_sizes) + 2 * structure.m + 2 * structure.l + 6
        )
        return reward, structure.reward_size, roundings

    def _directly(self, gains: ClassGains, classes: Indices) -> Indices:
        """Solve the classes of up to `SPARSE_STATES` states; return the others."""
        lists = Successors(self.model)
        left = []
        for number in classes.tolist():
            self.deadline.check()
            states = np.flatnonzero(self.label == number)
            small = len(states) <= SPARSE_STATES and len(states) * lists.width <= MOST_ENTRIES
            bounds = self._solved(lists, states) if small else None
            if bounds is not None:
                gains.lower[number] = max(gains.lower[number], bounds[0])
                gains.upper[number] = min(gains.upper[number], bounds[1])
            else:
                left.append(number)
        return np.array(left, dtype=np.int64)

    def _solved(self, lists: Successors, states: Indices) -> tuple[float, float] | None:
        rows = write_out_pairs(self.model, lists, self.chain.pairs[states])
        local = np.zeros(self.model.structure.n_states, dtype=np.int64)
        local[states] = np.arange(len(states))
        part = replace(rows, successors=local[rows.successors])
        everything: Mask = np.ones((len(states), 1), dtype=np.bool_)
        solution = optimal_gain(part, everything[:, 0], everything, self.deadline)
        return None if solution is None else (solution.lower, solution.upper)

    def _absorb(self, gains: ClassGains, initial: int) -> None:
        """Bound the gain of a transient initial state by the classes in which it ends."""
        from scipy.sparse.csgraph import breadth_first_order

        reached = np.sort(
            breadth_first_order(self.chain.matrix, initial, return_predecessors=False)
        )
        labels = self.label[reached]
        met = np.unique(labels[labels >= 0])
        least, most = float(gains.lower[met].min()), float(gains.upper[met].max())
        transient = reached[labels < 0]
        rows = self.chain.matrix[transient]
        inside, ends = rows[:, transient], rows[:, reached[labels >= 0]]
        low, high = (ends @ bound[labels[labels >= 0]] for bound in (gains.lower, gains.upper))
        roundings = _widest_row(rows) + 2 * self.model.structure.m + 8
        roundings += sum(self.model.structure.state_sizes)
        slack = rounding_allowance(max(abs(least), abs(most)), roundings)
        lower, upper = np.full(len(transient), least), np.full(len(transient), most)
        at = int(np.searchsorted(transient, initial))
        while upper[at] - lower[at] > self.tolerance and gains.sweeps < self.max_sweeps:
            self.deadline.check()
            new_lower = np.maximum(lower, low + inside @ lower - slack)
            new_upper = np.minimum(upper, high + inside @ upper + slack)
            if np.array_equal(new_lower, lower) and np.array_equal(new_upper, upper):
                break  # rounding keeps the bounds apart
            lower, upper = new_lower, new_upper
            gains.sweeps += 1
            gains.start = float(lower[at]), float(upper[at])
            if self.progress is not None:
                self._report(gains, gains.start[1] - gains.start[0])
        gains.start = float(lower[at]), float(upper[at])


def _widest_row(matrix: csr_array) -> int:
    return int(np.diff(matrix.indptr).max(initial=1))
