"""Entries: every (factor, x[Z]) pair of a structure under one number, for flat arrays.

Entries 0, 1, ... are the rows of transition table 0, then those of table 1, ..., and after all the
transition factors the rows of the reward tables. A transition entry owns one cell for each value
of its variable; cells are numbered in the same order. What is kept about a factored MDP by counting
or by sampling is then a few flat arrays, which compiled code fills and array expressions read:
`Counts` are those of a stream of experience, filled by `count`.

Finding the entries of one x = (state, action) costs the sum of the scopes' lengths.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from fmdp.compiled import njit
from fmdp.model.spaces import strides
from fmdp.model.structure import Structure

Index = NDArray[np.int64]
Kind = TypeVar("Kind", bound=np.generic)


class Entries(NamedTuple):
    """Where everything is; a plain tuple of arrays, which compiled code takes as it is."""

    sizes: Index
    """Sizes of all variables, states then actions."""
    scope_start: Index
    """Factor f (transitions, then rewards) has the scope positions scope_start[f : f + 2]."""
    scope_variables: Index
    scope_strides: Index
    first_entry: Index
    """[factors + 1]: where the entries of factor f begin."""
    first_cell: Index
    """[transition entries + 1]: where the cells of an entry begin."""
    cell_entry: Index
    """[cells]: the entry that a cell belongs to."""

    @property
    def n_entries(self) -> int:
        return int(self.first_entry[-1])

    @property
    def n_transition_entries(self) -> int:
        return len(self.first_cell) - 1

    @property
    def n_cells(self) -> int:
        return len(self.cell_entry)


def _none() -> Index:
    return np.zeros(0, dtype=np.int64)


class Counts(NamedTuple):
    """What has been seen, in arrays that only grow; empty ones where nothing is to be counted."""

    cells: Index
    """[cells]: N(x, s'), how often a row's variable took each value."""
    visits: Index
    """[entries]: N(x), of transition entries and then of reward entries."""
    reward_sums: NDArray[np.float64]
    """[reward entries]: sums of the observed rewards."""


def no_counts(entries: Entries) -> Counts:
    """Counts before anything is seen."""
    return Counts(
        cells=np.zeros(entries.n_cells, dtype=np.int64),
        visits=np.zeros(entries.n_entries, dtype=np.int64),
        reward_sums=np.zeros(entries.n_entries - entries.n_transition_entries),
    )


NOT_COUNTED = Counts(_none(), _none(), np.zeros(0))
"""For steps that nobody counts."""
NO_LIMITS: Index = _none()
"""For steps that no count ends."""


def entries_of(structure: Structure) -> Entries:
    """The numbering of a structure."""
    scopes = [*structure.transition_scopes, *structure.reward_scopes]
    steps = [strides(structure.scope_sizes(scope)) for scope in scopes]
    rows = [*structure.transition_rows, *structure.reward_rows]
    values = np.repeat(structure.state_sizes, structure.transition_rows)
    return Entries(
        sizes=_whole(structure.sizes),
        scope_start=_whole(np.cumsum([0, *(len(scope) for scope in scopes)])),
        scope_variables=_whole([v for scope in scopes for v in scope]),
        scope_strides=_whole([step for scope in steps for step in scope]),
        first_entry=_whole(np.cumsum([0, *rows])),
        first_cell=_whole(np.cumsum([0, *values])),
        cell_entry=np.repeat(np.arange(len(values), dtype=np.int64), values),
    )


def split_cells(structure: Structure, cells: NDArray[Kind]) -> tuple[NDArray[Kind], ...]:
    """A flat array over the cells as one view [|X[Z_i]|, |S_i|] a transition factor."""
    tables = []
    start = 0
    for rows, size in zip(structure.transition_rows, structure.state_sizes, strict=True):
        tables.append(cells[start : start + rows * size].reshape(rows, size))
        start += rows * size
    return tuple(tables)


def split_rows(rows: Sequence[int], flat: NDArray[Kind]) -> tuple[NDArray[Kind], ...]:
    """A flat array over rows as one view a factor."""
    tables = []
    start = 0
    for n in rows:
        tables.append(flat[start : start + n])
        start += n
    return tuple(tables)


@njit(nogil=True)
def locate(entries, joint, found):  # type: ignore[no-untyped-def]
    """found[f] <- the entry of x[Z_f] for every factor f; joint = x, states then actions."""
    for factor in range(found.shape[0]):
        entry = entries.first_entry[factor]
        for p in range(entries.scope_start[factor], entries.scope_start[factor + 1]):
            entry += entries.scope_strides[p] * joint[entries.scope_variables[p]]
        found[factor] = entry


@njit(nogil=True)
def count(entries, found, next_state, rewards, counts):  # type: ignore[no-untyped-def]
    """Count one step; found = the entries of (state, action), one a factor."""
    m = next_state.shape[0]
    for i in range(m):
        counts.visits[found[i]] += 1
        counts.cells[entries.first_cell[found[i]] + next_state[i]] += 1
    n_transition_entries = entries.first_cell.shape[0] - 1
    for k in range(rewards.shape[0]):
        counts.visits[found[m + k]] += 1
        counts.reward_sums[found[m + k] - n_transition_entries] += rewards[k]


def _whole(numbers: object) -> Index:
    return np.asarray(numbers, dtype=np.int64)
