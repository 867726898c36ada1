"""Evidence about scopes: the steps of a run, and the counts of every candidate scope.

The learner knows the variables and bounds on the number of parents, not the scopes. A candidate is
a set of at most `parents` state variables and `action_parents` action variables. For every
candidate Z the table N_Z(x, s'_i) of all state variables i is kept, [rows of Z, sum of the sizes],
and filled by one compiled pass over the new steps. The steps themselves are kept in the smallest
type that holds their values, so that any other scope can be counted later.

Memory: 4 bytes for each cell of these tables, and some for the scores. It is predicted, and refused
if it is more than half of the free memory. Measured: 284 MB for 30 machines and three parents,
where 285 MB are predicted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from fmdp._base.compiled import njit
from fmdp._base.memory import available_memory, describe_bytes, describe_count
from fmdp.errors import TooLarge
from fmdp.learning.unknown.scores import CountLogs, score_tables, subsets
from fmdp.model import Structure
from fmdp.model.entries import Index
from fmdp.model.spaces import strides

Floats = NDArray[np.float64]
Scope = tuple[int, ...]
Kind = TypeVar("Kind")

_FIRST_ROOM = 1 << 10
"""Steps that memory is reserved for at first."""
_BYTES_PER_CELL = 4
_BYTES_PER_SET = 300
"""Memory for the names and places of a set."""
_BYTES_PER_CANDIDATE = 64
"""Memory for scores, prior and posterior of a set as the scope of one variable."""


class Evidence:
    """The steps of one run, and the counts of all candidate scopes.

    Parameters
    ----------
    structure
        Names and sizes of the variables; its scopes are not used.
    parents, action_parents
        Largest numbers of state and action variables in a counted set.
    owner
        Name of the learner, for the message if there are too many candidates.
    """

    def __init__(
        self, structure: Structure, parents: int, action_parents: int, owner: str = "a learner"
    ) -> None:
        s = structure
        self.sizes: tuple[int, ...] = s.sizes
        self.m: int = s.m
        _refuse_large(s, parents, action_parents, owner)
        self.sets: tuple[Scope, ...] = tuple(_sets(s, parents, action_parents))
        """The candidates, small ones first."""
        self.place: dict[Scope, int] = {scope: z for z, scope in enumerate(self.sets)}
        self._values = np.array(s.state_sizes, dtype=np.int64)
        self.width = int(self._values.sum())
        self.columns: Index = np.cumsum(self._values) - self._values
        """[m]: the first column of each state variable in a table."""
        rows = [math.prod(s.scope_sizes(scope)) for scope in self.sets]
        self._starts = np.cumsum([0, *rows], dtype=np.int64) * self.width
        self._cells = np.zeros(int(self._starts[-1]), dtype=np.int32)
        self._actions = np.array(
            [math.prod(s.sizes[v] for v in scope if v >= s.m) for scope in self.sets],
            dtype=np.int64,
        )
        self._layout = _layout(self.sets, s)
        kind = np.min_scalar_type(max(self.sizes) - 1)
        self._log: NDArray[Any] = np.zeros((_FIRST_ROOM, len(self.sizes) + s.m), dtype=kind)
        self.steps = 0
        self._counted = 0
        self._size_kinds, self.size_places = np.unique(self._values, return_inverse=True)
        """[m]: the place of the size of each state variable in `logs`."""
        self._logs: CountLogs | None = None
        self._scores: tuple[Floats, Floats] = (np.zeros((0, 0)), np.zeros((0, 0)))
        self._scored = -1
        self._made: dict[str, tuple[object, int, Any]] = {}

    def once(self, name: str, learner: object, make: Callable[[], Kind], steps: int = 0) -> Kind:
        """Return what `make` returns, remembered until `learner` or `steps` differs."""
        known = self._made.get(name)
        if known is None or known[:2] != (learner, steps):
            known = self._made[name] = (learner, steps, make())
        value: Kind = known[2]
        return value

    @property
    def log(self) -> NDArray[Any]:
        """The steps so far: [steps, state variables, action variables, next values], a view."""
        return self._log[: self.steps]

    @property
    def logs(self) -> CountLogs:
        """Logarithms of all counts up to the number of steps, at least."""
        if self._logs is None or len(self._logs.of_row) <= self.steps:
            self._logs = CountLogs.up_to(len(self._log), self._size_kinds.tolist())
        return self._logs

    def append(self, joint: Index, following: Index) -> None:
        """Keep one step: the values of states and actions, and the next values of the states."""
        if self.steps == len(self._log):
            self._log = np.concatenate([self._log, np.zeros_like(self._log)])
        self._log[self.steps, : len(joint)] = joint
        self._log[self.steps, len(joint) :] = following
        self.steps += 1

    def extend(self, log: NDArray[Any]) -> None:
        """Keep further steps, in the form of `log`; the caller has checked them."""
        room = np.zeros((_FIRST_ROOM, log.shape[1]), dtype=self._log.dtype)
        self._log = np.concatenate([self.log, log.astype(self._log.dtype), room])
        self.steps += len(log)

    def table(self, scope: Scope) -> NDArray[np.int32]:
        """Return the counts of all state variables under `scope`, side by side: [rows, values]."""
        z = self.place.get(scope)
        if z is None:
            return self._count_one(scope)
        self._count()
        return self._cells[self._starts[z] : self._starts[z + 1]].reshape(-1, self.width)

    def counts(self, i: int, scope: Scope) -> NDArray[np.int32]:
        """Return the counts of state variable `i` under `scope`: [rows, values]."""
        first = self.columns[i]
        return self.table(scope)[:, first : first + self._values[i]]

    def scores(self) -> tuple[Floats, Floats]:
        """Return log-probabilities and largest log-likelihoods (scores.py): two [sets, m]."""
        self._count()
        if self._scored != self.steps:
            shape = len(self.sets), self.m
            self._scores = np.empty(shape), np.empty(shape)
            logs = (*self.logs, self.size_places)
            score_tables(self._cells, self._starts, self._actions, self._values, logs, self._scores)
            self._scored = self.steps
        return self._scores

    def _count(self) -> None:
        """Add the steps that came since the last call to the tables."""
        new = self._log[self._counted : self.steps]
        if len(new):
            _count_steps(new, self._layout, self._starts, self._values, self._cells)
            self._counted = self.steps

    def _count_one(self, scope: Scope) -> NDArray[np.int32]:
        shape = [self.sizes[v] for v in scope]
        layout = _arrays([scope], [strides(shape)])
        starts = np.array([0, math.prod(shape) * self.width], dtype=np.int64)
        cells = np.zeros(int(starts[-1]), dtype=np.int32)
        _count_steps(self.log, layout, starts, self._values, cells)
        return cells.reshape(-1, self.width)


def _layout(sets: Sequence[Scope], structure: Structure) -> tuple[Index, Index, Index]:
    return _arrays(sets, [strides(structure.scope_sizes(scope)) for scope in sets])


def _arrays(sets: Sequence[Scope], steps: Sequence[Sequence[int]]) -> tuple[Index, Index, Index]:
    """Return offsets, variables and strides of the sets, concatenated."""
    return (
        np.cumsum([0, *map(len, sets)], dtype=np.int64),
        np.array([v for scope in sets for v in scope], dtype=np.int64),
        np.array([step for of_set in steps for step in of_set], dtype=np.int64),
    )


def _sets(structure: Structure, parents: int, action_parents: int) -> Iterator[Scope]:
    """Yield every set of so many state and action variables, small ones first."""
    s = structure
    actions = list(subsets(len(s.action_sizes), action_parents))
    sets = [
        states + tuple(s.m + a for a in chosen)
        for states in subsets(s.m, parents)
        for chosen in actions
    ]
    yield from sorted(sets, key=lambda scope: (len(scope), scope))


def _refuse_large(structure: Structure, parents: int, action_parents: int, owner: str) -> None:
    """Raise TooLarge if the tables of all candidates need more than half of the free memory."""
    s = structure
    rows = sum(_products(s.state_sizes, parents)) * sum(_products(s.action_sizes, action_parents))
    sets = sum(math.comb(s.m, j) for j in range(min(parents, s.m) + 1)) * sum(
        math.comb(len(s.action_sizes), j)
        for j in range(min(action_parents, len(s.action_sizes)) + 1)
    )
    needed = rows * sum(s.state_sizes) * _BYTES_PER_CELL
    needed += sets * (_BYTES_PER_SET + s.m * _BYTES_PER_CANDIDATE)
    limit = available_memory() // 2
    if needed > limit:
        raise TooLarge(
            f"{owner} counts {describe_count(sets)} sets of at most {parents} of {s.m} state "
            f"variables and {action_parents} of {len(s.action_sizes)} action variables, which "
            f"needs {describe_bytes(needed)}; at most {describe_bytes(limit)} are allowed, half "
            f"of the free memory: lower parents or action_parents",
            needed_bytes=needed,
            limit_bytes=limit,
        )


def _products(sizes: Sequence[int], most: int) -> list[int]:
    """Return the sums, over all sets of j = 0, ..., `most` sizes, of their products."""
    sums = [1] + [0] * min(most, len(sizes))
    for size in sizes:
        for j in range(len(sums) - 1, 0, -1):
            sums[j] += size * sums[j - 1]
    return sums


@njit(nogil=True)
def _count_steps(log, layout, starts, values, cells):  # type: ignore[no-untyped-def]
    """Add every step of the log to the table of every set: cells[row of the set, next values]."""
    offsets, variables, steps = layout
    m = values.shape[0]
    n = log.shape[1] - m
    width = 0
    for i in range(m):
        width += values[i]
    # Set by set: the table of one set stays in the cache.
    for z in range(starts.shape[0] - 1):
        for t in range(log.shape[0]):
            row = 0
            for p in range(offsets[z], offsets[z + 1]):
                row += steps[p] * log[t, variables[p]]
            cell = starts[z] + row * width
            for i in range(m):
                cells[cell + log[t, n + i]] += 1
                cell += values[i]
