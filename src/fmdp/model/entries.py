"""Entries: the classes of rows of a structure, numbered for flat arrays.

Entries 0, 1, ... are the classes of transition rows (alike.py), followed by those of reward rows.
If no rows are alike, every row is an entry: the rows of transition table 0, of table 1, ..., then
those of the reward tables. A transition entry has one cell per value of its variable; cells are
numbered in the same order. Counts and samples of a factored MDP are then a few flat arrays, which
compiled code fills and array expressions read. An entry that rows of several factors share may be
counted several times in a step, once for each of them.

Tables for planners have every row: `split_cells` and the like write them out by one gather each.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from fmdp._base.compiled import njit
from fmdp.model.spaces import strides
from fmdp.model.structure import Structure

Index = NDArray[np.int64]
Kind = TypeVar("Kind", bound=np.generic)


class Entries(NamedTuple):
    """Offsets of scopes, rows, entries and cells: a tuple of arrays for compiled code."""

    sizes: Index
    """Sizes of all variables, states then actions."""
    scope_start: Index
    """Offsets in scope_variables of the scope of each factor, transitions then rewards."""
    scope_variables: Index
    scope_strides: Index
    first_row: Index
    """[factors + 1]: offsets of the rows of the factors in an array of all rows."""
    entry_of_row: Index
    """[rows]: the entry of every row; empty if no rows are alike and row r is entry r."""
    first_cell: Index
    """[transition entries + 1]: offsets of the cells of the entries."""
    cell_entry: Index
    """[cells]: the entry of every cell."""
    derived_sizes: Index
    """Sizes of the derived variables."""
    derived_scope_start: Index
    """Offsets in the next two arrays of the scope of each derived variable."""
    derived_scope_variables: Index
    derived_scope_strides: Index
    derived_start: Index
    """Offset of each derived variable's table in the one of the next two arrays that holds it."""
    derived_values: Index
    """The values of deterministic derived variables, by row."""
    derived_sums: NDArray[np.float64]
    """Cumulative probabilities of drawn variables, [rows, values] each, the last one infinite."""

    @property
    def n_entries(self) -> int:
        if len(self.entry_of_row):
            return int(self.entry_of_row.max()) + 1
        return int(self.first_row[-1])

    @property
    def n_transition_entries(self) -> int:
        return len(self.first_cell) - 1

    @property
    def n_cells(self) -> int:
        return len(self.cell_entry)


def _none() -> Index:
    return np.zeros(0, dtype=np.int64)


_NO_SUMS: NDArray[np.float64] = np.zeros(0)


class Counts(NamedTuple):
    """Counts of a stream of experience; empty arrays if nothing is counted."""

    cells: Index
    """[cells]: N(x, s')."""
    visits: Index
    """[entries]: N(x) of transition entries, then of reward entries."""
    reward_sums: NDArray[np.float64]
    """[reward entries]: sums of the observed rewards."""


def no_counts(entries: Entries) -> Counts:
    """Return counts of zero."""
    return Counts(
        cells=np.zeros(entries.n_cells, dtype=np.int64),
        visits=np.zeros(entries.n_entries, dtype=np.int64),
        reward_sums=np.zeros(entries.n_entries - entries.n_transition_entries),
    )


NOT_COUNTED = Counts(_none(), _none(), np.zeros(0))
"""For steps that are not counted."""
NOT_JOINED = Entries._make([*(_none() for _ in Entries._fields[:-1]), _NO_SUMS])
"""For steps that are counted factor by factor."""
NO_LIMITS: Index = _none()
"""For steps without a limit on counts."""


def entries_of(structure: Structure) -> Entries:
    """Return the numbering of a structure."""
    scopes = [*structure.transition_scopes, *structure.reward_scopes]
    steps = [strides(structure.scope_sizes(scope)) for scope in scopes]
    rows = [*structure.transition_rows, *structure.reward_rows]
    values = np.repeat(structure.state_sizes, structure.transition_rows)
    entry_of_row = _none()
    if structure.alike is not None:
        alike = structure.alike
        rewards = [classes + alike.n_transitions for classes in alike.rewards]
        entry_of_row = np.concatenate([*alike.transitions, *rewards])
        values = values[first_rows(structure).transitions]
    return Entries(
        sizes=_whole(structure.sizes),
        scope_start=_whole(np.cumsum([0, *(len(scope) for scope in scopes)])),
        scope_variables=_whole([v for scope in scopes for v in scope]),
        scope_strides=_whole([step for scope in steps for step in scope]),
        first_row=_whole(np.cumsum([0, *rows])),
        entry_of_row=entry_of_row,
        first_cell=_whole(np.cumsum([0, *values])),
        cell_entry=np.repeat(np.arange(len(values), dtype=np.int64), values),
        **_derived_arrays(structure),
    )


def _derived_arrays(structure: Structure) -> dict[str, NDArray[Any]]:
    """Return the derived variables as the last fields of `Entries`."""
    scopes = [variable.scope for variable in structure.derived]
    steps = [strides(structure.scope_sizes(scope)) for scope in scopes]
    values: list[Index] = [_none()]
    sums: list[NDArray[np.float64]] = [_NO_SUMS]
    starts = []
    for variable in structure.derived:
        tables = values if variable.deterministic else sums
        starts.append(sum(map(len, tables)))
        if variable.deterministic:
            values.append(variable.table)
        else:
            sums.append(cumulative(variable.table).reshape(-1))
    return {
        "derived_sizes": _whole([variable.size for variable in structure.derived]),
        "derived_scope_start": _whole(np.cumsum([0, *(len(scope) for scope in scopes)])),
        "derived_scope_variables": _whole([v for scope in scopes for v in scope]),
        "derived_scope_strides": _whole([step for scope in steps for step in scope]),
        "derived_start": _whole(starts),
        "derived_values": np.concatenate(values),
        "derived_sums": np.concatenate(sums),
    }


def cumulative(table: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the cumulative sums of rows of probabilities, infinite from the last possible value
    on."""
    sums: NDArray[np.float64] = np.cumsum(table, axis=1)
    # Rounding may leave the last sum below a uniform; a value of probability 0 must not get it.
    last = table.shape[1] - 1 - np.argmax(table[:, ::-1] > 0.0, axis=1)
    sums[np.arange(table.shape[1]) >= last[:, None]] = np.inf
    return sums


class FirstRows(NamedTuple):
    """The first row of every class, in the concatenated tables."""

    transitions: Index
    """[transition entries]: places among the transition rows."""
    rewards: Index
    """[reward entries]: places among the reward rows."""


def first_rows(structure: Structure) -> FirstRows:
    """Return the first row of every class."""
    return FirstRows(
        *(
            # Numbered by first appearance, so the first rows of classes 0, 1, ... ascend.
            np.unique(np.concatenate([*classes, _none()]), return_index=True)[1].astype(np.int64)
            for classes in (
                [structure.transition_classes_of(i) for i in range(structure.m)],
                [structure.reward_classes_of(k) for k in range(structure.l)],
            )
        )
    )


class _Places(NamedTuple):
    """For every number of the tables its place among the numbers kept by class."""

    cells: Index
    rows: Index
    rewards: Index


@lru_cache(maxsize=8)  # learners write out tables of one structure thousands of times
def _places(structure: Structure) -> _Places:
    assert structure.alike is not None
    first_cell = entries_of(structure).first_cell
    cells = [
        (first_cell[classes][:, None] + np.arange(size)).reshape(-1)
        for classes, size in zip(structure.alike.transitions, structure.state_sizes, strict=True)
    ]
    return _Places(
        np.concatenate(cells),
        np.concatenate(structure.alike.transitions),
        np.concatenate([*structure.alike.rewards, _none()]),
    )


def split_cells(structure: Structure, cells: NDArray[Kind]) -> tuple[NDArray[Kind], ...]:
    """Return an array over the cells as one table [|X[Z_i]|, |S_i|] per transition factor.

    The tables are views of the array if no rows are alike.
    """
    if structure.alike is not None:
        cells = cells[_places(structure).cells]
    shapes = list(zip(structure.transition_rows, structure.state_sizes, strict=True))
    tables = _split([rows * size for rows, size in shapes], cells)
    return tuple(table.reshape(shape) for table, shape in zip(tables, shapes, strict=True))


def split_transition_entries(
    structure: Structure, flat: NDArray[Kind]
) -> tuple[NDArray[Kind], ...]:
    """Return an array over the transition entries as one array [|X[Z_i]|] per factor."""
    if structure.alike is not None:
        flat = flat[_places(structure).rows]
    return _split(structure.transition_rows, flat)


def split_reward_entries(structure: Structure, flat: NDArray[Kind]) -> tuple[NDArray[Kind], ...]:
    """Return an array over the reward entries as one array [|X[Z_k]|] per factor."""
    if structure.alike is not None:
        flat = flat[_places(structure).rewards]
    return _split(structure.reward_rows, flat)


def _split(rows: Sequence[int], flat: NDArray[Kind]) -> tuple[NDArray[Kind], ...]:
    tables = []
    start = 0
    for n in rows:
        tables.append(flat[start : start + n])
        start += n
    return tuple(tables)


@njit(nogil=True)
def derive(entries, joint, columns, uniforms, t):  # type: ignore[no-untyped-def]
    """Return joint = (state, action) followed by the values of the derived variables. Variable j is
    drawn by the uniform of row t in columns[j], unless that is negative or missing."""
    n = joint.shape[0]
    extended = np.empty(n + entries.derived_sizes.shape[0], dtype=np.int64)
    extended[:n] = joint
    for j in range(entries.derived_sizes.shape[0]):
        row = 0
        for p in range(entries.derived_scope_start[j], entries.derived_scope_start[j + 1]):
            row += entries.derived_scope_strides[p] * extended[entries.derived_scope_variables[p]]
        if columns.shape[0] == 0 or columns[j] < 0:
            extended[n + j] = entries.derived_values[entries.derived_start[j] + row]
        else:
            first = entries.derived_start[j] + row * entries.derived_sizes[j]
            value = 0
            while uniforms[t, columns[j]] >= entries.derived_sums[first + value]:
                value += 1
            extended[n + j] = value
    return extended


@njit(nogil=True)
def locate(entries, joint, located):  # type: ignore[no-untyped-def]
    """located[f] <- the entry of x[Z_f] for every factor f; joint = (state, action). Derived
    variables must be deterministic."""
    if entries.derived_sizes.shape[0] > 0:
        joint = derive(entries, joint, entries.derived_sizes[:0], np.zeros((0, 0)), 0)
    locate_all(entries, joint, located)


@njit(nogil=True)
def locate_all(entries, joint, located):  # type: ignore[no-untyped-def]
    """located[f] <- the entry of x[Z_f] for every factor f; joint = x, derived variables too."""
    for factor in range(located.shape[0]):
        row = entries.first_row[factor]
        for p in range(entries.scope_start[factor], entries.scope_start[factor + 1]):
            row += entries.scope_strides[p] * joint[entries.scope_variables[p]]
        located[factor] = entries.entry_of_row[row] if entries.entry_of_row.shape[0] > 0 else row


# Inlined, because passing the tuples in every step would take longer than counting.
@njit(nogil=True, forceinline=True)
def count(entries, located, next_state, rewards, counts):  # type: ignore[no-untyped-def]
    """Count one step; located = the entries of (state, action), one per factor."""
    m = next_state.shape[0]
    for i in range(m):
        counts.visits[located[i]] += 1
        counts.cells[entries.first_cell[located[i]] + next_state[i]] += 1
    n_transition_entries = entries.first_cell.shape[0] - 1
    for k in range(rewards.shape[0]):
        counts.visits[located[m + k]] += 1
        counts.reward_sums[located[m + k] - n_transition_entries] += rewards[k]


def _whole(numbers: object) -> Index:
    return np.asarray(numbers, dtype=np.int64)
