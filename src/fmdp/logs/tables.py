"""Readers of logs: CSV files, Parquet files, data frames or records, as blocks of columns.

A CSV file is read as a stream, in constant memory. Every problem is one line with its place: line
and column of a file, row of a frame, number of a record. steps.py interprets the columns.

Bad cells are collected (`Problems`): a refusal lists the first dozen, and a log that is read with
`skip` loses the steps that need them.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any, TextIO

from fmdp._base.archives import reason
from fmdp._base.parameters import quoted
from fmdp.errors import FileProblem, InvalidParameter
from fmdp.model.io.files import path_of
from fmdp.simulation.frames import needs_pandas

MOST_COLUMNS = 1 << 16
CELLS = 1 << 20
"""Most cells of a block, which has at most `ROWS` rows."""
ROWS = 4096
MOST_CHARACTERS = 1 << 24
"""Most characters of a row of a CSV file."""
_WHAT = "a log: a CSV file with a header, or a Parquet file (.parquet)"


MOST_LISTED = 12
"""Most bad cells that a refusal lists."""


@dataclass(frozen=True)
class BadCell:
    """A cell, or with column None a row, of a log that cannot be used."""

    where: int
    """Line, row or record number."""
    column: str | None
    value: str
    why: str


class Problems:
    """Bad cells of a log, in the order of its rows; each is counted once."""

    def __init__(self, table: str, place: str, skip: bool) -> None:
        self._table, self._place = table, place
        self.skip = skip
        self.rows: set[int] = set()
        """Numbers of the rows with a bad cell."""
        self._cells: dict[tuple[int, str | None], BadCell] = {}

    def add(self, where: int, column: str | None, value: Any, why: str) -> None:
        """Note a bad cell."""
        self.rows.add(where)
        if (where, None) in self._cells:
            return  # the row as a whole is bad
        self._cells.setdefault((where, column), BadCell(where, column, _shown(value), why))

    def cells(self) -> tuple[BadCell, ...]:
        """Return all bad cells, by row."""
        return tuple(sorted(self._cells.values(), key=lambda cell: cell.where))

    def refuse(self) -> None:
        """Raise InvalidParameter if there is a bad cell that is not to be skipped.

        The message explains the first one and lists up to a dozen.
        """
        if self.skip or not self._cells:
            return
        first, *others = self.cells()
        more = [f"{self.place(cell)} ({cell.value})" for cell in others[: MOST_LISTED - 1]]
        also = f" (also bad: {'; '.join(more)}" if more else ""
        if len(others) >= MOST_LISTED:
            also += f"; and more, {len(others) + 1:,} so far"
        raise InvalidParameter(
            f"{self._table}, {self.place(first)}: {first.why}{also}{')' if also else ''}"
        )

    def place(self, cell: BadCell) -> str:
        """Return where a bad cell is: its row and column."""
        column = "" if cell.column is None else f", column {quoted(cell.column)}"
        return f"{self._place} {cell.where}{column}"


def _shown(value: Any) -> str:
    text = "" if value is None else str(value)
    return repr(text if len(text) <= 40 else f"{text[:37]}...")


@dataclass(frozen=True)
class Block:
    """Consecutive rows, column by column."""

    columns: tuple[list[Any], ...]
    where: Sequence[int]
    """Line, row or record number of each row."""
    begins: Sequence[bool] | None = None
    """Whether a new stream begins at each row; None if nowhere."""


@dataclass(frozen=True)
class Table:
    """A log that is read once, from front to back."""

    name: str
    """Name in messages: that of its file."""
    columns: tuple[str, ...]
    place: str
    """Noun for a row: line, row or record."""
    blocks: Callable[[], Iterator[Block]]
    problems: Problems

    def at(self, where: int, column: str | None = None) -> str:
        """Return the beginning of an error message."""
        return f"{self.name}, {self.place} {where}" + (
            "" if column is None else f", column {quoted(column)}"
        )


def table_of(log: Any, *, skip: bool = False) -> Table:
    """Return the table of a path, a data frame or an iterable of mappings.

    With `skip`, bad cells are noted in its `problems`, and not refused.
    """
    if isinstance(log, str | os.PathLike):
        path = path_of(log, "a log")
        return _parquet(path, skip) if path.suffix in (".parquet", ".pq") else _csv(path, skip)
    if hasattr(log, "columns") and hasattr(log, "iloc"):
        return _frame(log, "the frame", skip)
    try:
        records = None if isinstance(log, Mapping) else iter(log)
    except TypeError:
        records = None
    if records is not None:
        return _records(records, skip)
    raise InvalidParameter(
        f"a log must be the path of a CSV or Parquet file, a data frame, or an iterable of "
        f"mappings; got {quoted(log)}"
    )


def _checked(columns: Sequence[Any], name: str) -> tuple[str, ...]:
    if len(columns) > MOST_COLUMNS:
        raise InvalidParameter(
            f"{name}: has {len(columns)} columns; at most {MOST_COLUMNS} are read"
        )
    seen: set[str] = set()
    for column in columns:
        if not isinstance(column, str) or not column:
            raise InvalidParameter(
                f"{name}: the name of a column is {quoted(column)}; must be text"
            )
        if column in seen:
            raise InvalidParameter(f"{name}: column {quoted(column)} is there twice")
        seen.add(column)
    return tuple(columns)


# ---- CSV -----------------------------------------------------------------------------------------


def _csv(path: Path, skip: bool) -> Table:
    name = str(path)
    problems = Problems(name, "line", skip)
    rows = _csv_rows(path)
    try:
        _, header = next(rows)
    except StopIteration:
        raise FileProblem(f"{name}: is empty; must be {_WHAT}") from None
    columns = _checked([column.strip() for column in header], name)

    def blocks() -> Iterator[Block]:
        while taken := list(islice(rows, min(ROWS, 1 + CELLS // len(columns)))):
            for line, row in taken:
                if len(row) != len(columns):
                    need = f"must have {len(columns)}, one per column"
                    problems.add(line, None, ",".join(row), f"has {len(row)} values; {need}")
                    row[:] = [""] * len(columns)
            yield Block(
                tuple([row[place] for _, row in taken] for place in range(len(columns))),
                [line for line, _ in taken],
            )

    return Table(name, columns, "line", blocks, problems)


class _Lines:
    """The lines of a file; raises csv.Error for a row of too many characters.

    A row may have several lines; its reader resets `left` after each row.
    """

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self.left = MOST_CHARACTERS

    def __iter__(self) -> _Lines:
        return self

    def __next__(self) -> str:
        line = self._file.readline(self.left + 1)
        self.left -= len(line)
        if self.left < 0:
            raise csv.Error(f"a row has more than {MOST_CHARACTERS} characters")
        if not line:
            raise StopIteration
        return line


def _csv_rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield (line, values) of every row that is not blank, the header first."""
    line = 0
    try:
        if path.exists() and not path.is_file():
            raise FileProblem(f"{path}: is no regular file; must be {_WHAT}")
        with path.open(encoding="utf-8-sig", newline="") as file:
            lines = _Lines(file)
            first = next(lines, "")
            delimiter = next((sign for sign in ",;\t" if sign in first), ",")
            reader = csv.reader(chain([first], lines), delimiter=delimiter, strict=True)
            for row in reader:
                line, lines.left = reader.line_num, MOST_CHARACTERS
                if row:
                    yield line, row
    except FileNotFoundError:
        raise FileProblem(f"{path}: no such file; must be {_WHAT}") from None
    except UnicodeDecodeError:
        raise FileProblem(
            f"{path}, after line {line}: is not UTF-8 text; must be {_WHAT}"
        ) from None
    except csv.Error as error:
        raise FileProblem(f"{path}, line {line + 1}: is not CSV: {error}") from None
    except (OSError, ValueError) as error:
        raise FileProblem(f"{path}: cannot be read ({reason(error)})") from None


# ---- frames and records --------------------------------------------------------------------------


def _parquet(path: Path, skip: bool) -> Table:
    pandas = needs_pandas()
    try:
        frame = pandas.read_parquet(path)
    except FileNotFoundError:
        raise FileProblem(f"{path}: no such file; must be {_WHAT}") from None
    except ImportError:
        raise FileProblem(
            f"{path}: pandas reads Parquet with pyarrow or fastparquet, and neither is installed"
        ) from None
    except Exception as error:  # engines raise their own exceptions
        raise FileProblem(f"{path}: cannot be read ({' '.join(str(error).split())})") from None
    return _frame(frame, str(path), skip)


def _frame(frame: Any, name: str, skip: bool) -> Table:
    columns = _checked(list(frame.columns), name)

    def blocks() -> Iterator[Block]:
        for start in range(0, len(frame), ROWS):
            part = frame.iloc[start : start + ROWS]
            yield Block(
                tuple(part[column].tolist() for column in columns),
                range(start, start + len(part)),
            )

    return Table(name, columns, "row", blocks, Problems(name, "row", skip))


def _records(source: Iterator[Any], skip: bool) -> Table:
    first = next(source, None)
    if first is None:
        raise InvalidParameter("the records: there is none; must be one mapping per step")
    if not isinstance(first, Mapping):
        raise InvalidParameter(
            f"the records: must be mappings from columns to values; got {quoted(first)}"
        )
    columns = _checked(list(first), "the records")

    def blocks() -> Iterator[Block]:
        numbered = enumerate(chain([first], source))
        while taken := list(islice(numbered, ROWS)):
            for number, record in taken:
                if not isinstance(record, Mapping) or record.keys() != first.keys():
                    raise InvalidParameter(
                        f"the records, record {number}: must have the columns "
                        f"{', '.join(columns)}; got {quoted(record)}"
                    )
            yield Block(
                tuple([record[column] for _, record in taken] for column in columns),
                [number for number, _ in taken],
            )

    problems = Problems("the records", "record", skip)
    return Table("the records", columns, "record", blocks, problems)
