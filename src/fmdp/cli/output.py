"""How results leave the program: one JSON object, or small tables for people.

With `--json` exactly one object goes to standard output. JSON has no infinity, so it is the
string "inf"; a NaN anywhere is a bug and fails loudly. Integers are written exactly.

A terminal or a pipe may not know all characters that are printed (ASCII, cp1252): lines and arrows
are then drawn with ASCII's, one for one so that nothing moves, and anything else is escaped.
"""

from __future__ import annotations

import codecs
import json
import math
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from io import BufferedWriter, FileIO, TextIOWrapper
from typing import TYPE_CHECKING, Any, TextIO

from fmdp._base.numerals import interval_text as interval_text
from fmdp._base.numerals import known_number as known_number
from fmdp._base.numerals import numbers_text as numbers_text
from fmdp._base.numerals import rounded_number as rounded_number
from fmdp._base.numerals import seconds_text as seconds_text
from fmdp._base.numerals import short_number as short_number
from fmdp._base.numerals import upper_text as upper_text
from fmdp.errors import FileProblem, printable

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.text import Text

# Wide enough that no table is cut where there is no terminal to be wider than.
_WIDTH_OF_A_FILE = 200

_IN_ASCII = {
    **dict.fromkeys("─━═╌╍", "-"),
    **dict.fromkeys("│┃║", "|"),
    **dict.fromkeys("┬├└┴┼┌┐┘┤╭╮╰╯", "+"),
    "→": ">",
    "↔": "=",
    "…": "~",
    "×": "x",
    "–": "-",
}


def prepare_streams() -> bool:
    """Make standard output and standard error such that whatever is printed can be; False where
    there is no standard output."""
    if sys.stderr is None:
        # Python has none where it was closed; the descriptor is taken before a store gets it.
        sys.stderr = _nowhere(2)
    if sys.stdout is None:
        sys.stdout = _nowhere(1)
        return False
    codecs.register_error("fmdp.ascii", _in_ascii)
    if sys.stdout is sys.__stdout__ and isinstance(sys.stdout, TextIOWrapper):
        raw = _Output(sys.stdout.fileno(), "wb", closefd=False)
        sys.stdout = TextIOWrapper(
            raw if isinstance(sys.stdout.buffer, FileIO) else BufferedWriter(raw),  # python -u
            encoding=sys.stdout.encoding,
            errors="fmdp.ascii",
            line_buffering=sys.stdout.line_buffering,
            write_through=sys.stdout.write_through,
        )
    elif isinstance(sys.stdout, TextIOWrapper):  # a test's, or a notebook's
        sys.stdout.reconfigure(errors="fmdp.ascii")
    return True


class ReaderGone(BrokenPipeError):
    """Nobody reads standard output any more; other pipes that break are other things."""


class _Output(FileIO):
    """Standard output, whose failure (a full disk) is an error of the user's kind, and told once:
    what is still in the buffers then goes nowhere."""

    failed = False

    def write(self, data: Any) -> int:
        if self.failed:
            return len(data)
        try:
            return super().write(data)
        except BrokenPipeError as error:
            raise ReaderGone(*error.args) from None
        except OSError as error:
            self.failed = True
            raise FileProblem(f"cannot write to standard output: {error.strerror}") from None


def _nowhere(descriptor: int) -> TextIO:
    stream = open(os.devnull, "w")  # noqa: SIM115, PTH123 - it is for the rest of the program
    if stream.fileno() != descriptor:
        os.dup2(stream.fileno(), descriptor)
    return stream


def _in_ascii(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end]
    return "".join(_IN_ASCII.get(one) or _escaped(one) for one in text), error.end


def _escaped(character: str) -> str:
    return character.encode("ascii", "backslashreplace").decode("ascii")


def print_json(result: Mapping[str, Any]) -> None:
    # The number of states is exact, however long. Python's limit on the digits of an integer is
    # there for input; it is lifted for this one line of output.
    limit = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(0)
    try:
        text = json.dumps(plain(result), allow_nan=False)
    finally:
        sys.set_int_max_str_digits(limit)
    print(text)


def plain(value: Any) -> Any:
    """The value in JSON's own types; arrays and NumPy scalars become lists and numbers."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, Enum):
        return plain(value.value)
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, str) or value is None:
        return value
    if isinstance(value, Iterable):
        return [plain(item) for item in value]
    if isinstance(value, float) and math.isinf(value):
        return "inf" if value > 0 else "-inf"
    return value


def console(*, stderr: bool = False) -> Console:
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else _WIDTH_OF_A_FILE
    return Console(file=stream, width=width, highlight=False, markup=False)


def print_people(*parts: RenderableType) -> None:
    """Print tables for people, a blank line between two; no cell's text is read as markup."""
    out = console()
    for number, part in enumerate(parts):
        with out.capture() as captured:
            out.print(part)
        # Rich fills every line of a table up to its width.
        lines = [line.rstrip() for line in captured.get().splitlines()]
        print("\n".join(["", *lines] if number else lines))


def table(
    columns: Sequence[str], rows: Iterable[Sequence[str]], *, right: Sequence[str] = ()
) -> RenderableType:
    """A table with a rule under its header; the columns named in `right` are right-aligned."""
    from rich import box
    from rich.table import Table

    result = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for column in columns:
        result.add_column(_text(column), justify="right" if column in right else "left")
    for row in rows:
        result.add_row(*map(_text, row))
    return result


def columns(rows: Iterable[tuple[str, str]]) -> RenderableType:
    """A name and what it is, side by side; the second column wraps within itself."""
    from rich.table import Table

    result = Table.grid(padding=(0, 2))
    for name, value in rows:
        result.add_row(_text(name, style="bold", no_wrap=True), _text(value))
    return result


def _text(words: str, **looks: Any) -> Text:
    """Text for a cell: neither markup nor a command to the terminal, whatever it says."""
    from rich.text import Text

    return Text("\n".join(map(printable, words.split("\n"))), **looks)
