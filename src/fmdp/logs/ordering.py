"""Logs in the order of a column of times, with their holes and duplicates.

A time is a number, or an ISO date with or without a time of day. All rows are kept in memory and
sorted, within each stream if a column marks them. Then:

* Rows that are equal in every cell are counted once. Different rows with one time are bad rows.
* The usual step is the most frequent difference between successive times. Where a difference is at
  least one and a half usual steps there is a hole, and a new stream begins: the row after a hole
  does not have the next state of the row before it.
* If no difference accounts for half of all, times are irregular and holes cannot be seen.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from itertools import pairwise
from typing import Any

from fmdp._base.parameters import quoted
from fmdp.errors import InvalidParameter, did_you_mean
from fmdp.logs import tables
from fmdp.logs.steps import MARKS, text_of
from fmdp.logs.tables import Block, Table

_EPOCH = datetime(1970, 1, 1)
_HOLE = 1.5
"""Least number of usual steps between two rows with a hole between them."""
_MOST_PLACES = 3
"""Most places that a note lists."""

Row = tuple[str, float, int, tuple[Any, ...]]
"""Stream, time, line or row number, and cells."""


@dataclass(frozen=True)
class Ordered:
    """A table in the order of its times, and notes on holes and duplicates."""

    table: Table
    notes: tuple[str, ...]


def in_order(table: Table, column: str, ignored: Sequence[str]) -> Ordered:
    """Return the table in the order of a column of times.

    Raises
    ------
    InvalidParameter
        If there is no such column, or it holds something else than times.
    """
    if column not in table.columns:
        raise InvalidParameter(
            f"{table.name}: there is no column {quoted(column)} of times; it has "
            f"{', '.join(table.columns)}{did_you_mean(column, table.columns)}"
        )
    rows = _rows(table, column, ignored)
    table.problems.refuse()
    moved = sum(row[1] > after[1] and row[0] == after[0] for row, after in pairwise(rows))
    rows.sort(key=lambda row: row[:3])
    kept, notes = _without_duplicates(rows, table, column)
    table.problems.refuse()
    begins, holes = _holes(kept, table)
    if moved:
        notes.insert(0, f"{moved:,} rows were earlier than the row before, and were put in order")
    return Ordered(
        replace(table, blocks=lambda: _blocks(kept, begins, len(table.columns))),
        (*notes, *holes),
    )


def _rows(table: Table, column: str, ignored: Sequence[str]) -> list[Row]:
    """Return all rows, with their streams numbered in the order of appearance."""
    at = table.columns.index(column)
    marks = [m for m in MARKS if m in table.columns and m not in (*ignored, column)]
    mark = table.columns.index(marks[0]) if marks else None
    streams: dict[str, str] = {}
    kind: str | None = None
    rows: list[Row] = []
    for block in table.blocks():
        for place, cells in enumerate(zip(*block.columns, strict=True)):
            where = block.where[place]
            if where in table.problems.rows:
                continue
            moment = time_of(cells[at])
            if moment is not None and kind in (None, moment[1]):
                kind = moment[1]
                name = "" if mark is None else text_of(cells[mark])
                stream = streams.setdefault(name, f"{len(streams):020d}")
                rows.append((stream, moment[0], where, cells))
                continue
            expected = "a number, or an ISO date or date and time" if kind is None else kind
            why = f"a time must be {expected}; got {quoted(cells[at])}"
            table.problems.add(where, column, cells[at], why)
    return rows


def time_of(value: Any) -> tuple[float, str] | None:
    """Return a time as a number, and its kind; None if it is no time.

    Dates are seconds since 1970, those with a time zone in UTC.
    """
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        text = value.strip()
        try:
            value = float(text)
        except ValueError:
            try:
                value = datetime.fromisoformat(text)
            except ValueError:
                return None
    if isinstance(value, date) and not isinstance(value, datetime):
        value = datetime(value.year, value.month, value.day)
    if isinstance(value, datetime):
        if value != value:  # a missing date of pandas
            return None
        if value.tzinfo is None:
            return (value - _EPOCH).total_seconds(), "an ISO date without a time zone"
        aware = value - _EPOCH.replace(tzinfo=UTC)
        return aware.total_seconds(), "an ISO date with a time zone"
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return (number, "a number") if math.isfinite(number) else None


def _without_duplicates(rows: list[Row], table: Table, column: str) -> tuple[list[Row], list[str]]:
    """Return sorted rows without duplicates, and a note; different rows of one time are bad."""
    kept: list[Row] = []
    repeated: list[int] = []
    for row in rows:
        if kept and kept[-1][:2] == row[:2]:
            before = kept[-1]
            if list(map(text_of, before[3])) == list(map(text_of, row[3])):
                repeated.append(row[2])
                continue
            cell = row[3][table.columns.index(column)]
            for number, other in ((before[2], row[2]), (row[2], before[2])):
                why = f"{table.place} {other} has the same time, {quoted(cell)}, and other values"
                table.problems.add(number, column, cell, why)
        kept.append(row)
    kept = [row for row in kept if row[2] not in table.problems.rows]
    if not repeated:
        return kept, []
    many = f"{len(repeated):,} rows repeat" if len(repeated) > 1 else "1 row repeats"
    return kept, [f"{many} an earlier row and time, and count once: {_places(repeated, table)}"]


def _places(where: Sequence[int], table: Table) -> str:
    listed = ", ".join(f"{table.place} {number}" for number in where[:_MOST_PLACES])
    return f"{listed}, ..." if len(where) > _MOST_PLACES else listed


def _holes(rows: list[Row], table: Table) -> tuple[list[bool], list[str]]:
    """Return whether a new stream begins at each row because of a hole, and notes."""
    steps = [after[1] - row[1] if row[0] == after[0] else None for row, after in pairwise(rows)]
    counts = Counter(float(f"{step:.9g}") for step in steps if step is not None)
    begins = [False] * len(rows)
    if not counts:
        return begins, []
    usual, number = counts.most_common(1)[0]
    if 2 * number < counts.total():
        note = "the times are irregular, so holes cannot be seen, and successive rows are steps"
        return begins, [note]
    after = []
    for place, step in enumerate(steps, start=1):
        if step is not None and step >= _HOLE * usual:
            begins[place] = True
            after.append(rows[place][2])
    if not after:
        return begins, []
    many = f"{len(after):,} holes" if len(after) > 1 else "1 hole"
    text = f"{many} longer than the usual step of {usual:g}, before {_places(after, table)}"
    return begins, [f"{text}; no step crosses one"]


def _blocks(rows: list[Row], begins: list[bool], columns: int) -> Iterator[Block]:
    for start in range(0, len(rows), tables.ROWS):
        part = rows[start : start + tables.ROWS]
        yield Block(
            tuple([row[3][place] for row in part] for place in range(columns)),
            [row[2] for row in part],
            begins[start : start + tables.ROWS],
        )
