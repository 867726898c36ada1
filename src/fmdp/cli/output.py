"""Output of the commands: one JSON object, or small tables for people.

With `--json` exactly one object goes to standard output; what a user's code prints goes to standard
error. Infinity is the string "inf", which JSON lacks; a NaN anywhere is a bug and raises. Integers
are written exactly.

If the encoding of standard output lacks a character (ASCII, cp1252), lines and arrows are replaced
one for one by ASCII characters, which keeps the alignment, and anything else is escaped.
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
from pathlib import Path
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

# Width of tables in files and pipes; wide enough that no table is wrapped.
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
    """Prepare standard output and standard error for any text.

    Returns False if standard output is closed.
    """
    if sys.stderr is None:
        # It was closed. Occupy its descriptor, which a store would otherwise be given.
        sys.stderr = _nowhere(2)
    if sys.stdout is None:
        sys.stdout = _nowhere(1)
        return False
    codecs.register_error("fmdp.ascii", _in_ascii)
    if sys.stdout is sys.__stdout__ and isinstance(sys.stdout, TextIOWrapper):
        sys.stdout = _text_output(sys.stdout.fileno(), sys.stdout)
    elif isinstance(sys.stdout, TextIOWrapper):  # in a test or a notebook
        sys.stdout.reconfigure(errors="fmdp.ascii")
    return True


def _text_output(descriptor: int, like: TextIOWrapper) -> TextIOWrapper:
    raw = _Output(descriptor, "wb", closefd=False)
    return TextIOWrapper(
        raw if isinstance(like.buffer, FileIO) else BufferedWriter(raw),  # python -u
        encoding=like.encoding,
        errors="fmdp.ascii",
        line_buffering=like.line_buffering,
        write_through=like.write_through,
    )


_reserved: tuple[TextIO, TextIO] | None = None
"""Standard output as it was before `reserve_output`, and the stream of results since then."""


def results() -> TextIO:
    """Return the stream for the one JSON object or the answers of `serve`."""
    return sys.stdout if _reserved is None else _reserved[1]


def reserve_output() -> None:
    """Keep standard output for `results`; everything else that is printed goes to standard error.

    A user's learner, planner or rule may print, also from compiled code or from processes that it
    starts. So descriptor 1 itself becomes a copy of descriptor 2.
    """
    global _reserved
    output = sys.stdout
    output.flush()
    stream = output
    if isinstance(output, TextIOWrapper) and isinstance(_raw(output), _Output):
        stream = _text_output(os.dup(output.fileno()), output)
        os.dup2(2, output.fileno())
    _reserved = (output, stream)
    sys.stdout = sys.stderr


def release_output() -> None:
    """Undo `reserve_output`, for Python programs that call the command line."""
    global _reserved
    if _reserved is None:
        return
    (sys.stdout, stream), _reserved = _reserved, None
    if stream is not sys.stdout:
        os.dup2(stream.fileno(), sys.stdout.fileno())
        os.close(stream.fileno())


def _raw(stream: TextIOWrapper) -> object:
    return getattr(stream.buffer, "raw", stream.buffer)


class ReaderGone(BrokenPipeError):
    """Broken pipe of standard output, as opposed to other pipes."""


class _Output(FileIO):
    """Standard output that reports a failure, such as a full disk, once and then drops the rest."""

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
    stream = open(os.devnull, "w")  # noqa: SIM115, PTH123 - open until the program ends
    if stream.fileno() != descriptor:
        os.dup2(stream.fileno(), descriptor)
    return stream


def _in_ascii(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end]
    return "".join(_IN_ASCII.get(c) or _escaped(c) for c in text), error.end


def _escaped(character: str) -> str:
    return character.encode("ascii", "backslashreplace").decode("ascii")


def print_json(result: Mapping[str, Any]) -> None:
    # The number of states is exact, however long: lift Python's limit on the digits of integers.
    limit = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(0)
    try:
        text = json.dumps(plain(result), allow_nan=False)
    finally:
        sys.set_int_max_str_digits(limit)
    print(text, file=results())


def plain(value: Any) -> Any:
    """Return the value in JSON types; arrays and NumPy scalars become lists and numbers."""
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


def console() -> Console:
    from rich.console import Console

    width = None if sys.stdout.isatty() else _WIDTH_OF_A_FILE
    return Console(file=sys.stdout, width=width, highlight=False, markup=False)


def print_people(*parts: RenderableType) -> None:
    """Print tables with a blank line between two of them; the text of a cell is not markup."""
    out = console()
    for number, part in enumerate(parts):
        with out.capture() as captured:
            out.print(part)
        # Rich pads every line of a table to its width.
        lines = [line.rstrip() for line in captured.get().splitlines()]
        print("\n".join(["", *lines] if number else lines))


MOST_ROWS = 1000
"""Most rows of a table; Rich lays out about 2,000 per second."""


def table(
    columns: Sequence[str], rows: Iterable[Sequence[str]], *, right: Sequence[str] = ()
) -> RenderableType:
    """Return a table with a rule under its header; the columns named in `right` align right."""
    from rich import box
    from rich.table import Table

    result = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for column in columns:
        result.add_column(_text(column), justify="right" if column in right else "left")
    listed = list(rows)
    for row in listed[:MOST_ROWS]:
        result.add_row(*map(_text, row))
    if len(listed) > MOST_ROWS:
        result.add_row(_text(f"... ({len(listed) - MOST_ROWS:,} more)"))
    return result


def columns(rows: Iterable[tuple[str, str]]) -> RenderableType:
    """Return names and values side by side; long values wrap within their column."""
    from rich.table import Table

    result = Table.grid(padding=(0, 2))
    for name, value in rows:
        result.add_row(_text(name, style="bold", no_wrap=True), _text(value))
    return result


def _text(words: str, **looks: Any) -> Text:
    """Return the text of a cell without markup and control characters."""
    from rich.text import Text

    return Text("\n".join(map(printable, words.split("\n"))), **looks)


def refuse_unwritable(target: Path, *inputs: str | Path | None) -> None:
    """Raise FileProblem if the file cannot be written, before hours of work rather than after.

    A temporary file is created in the directory: the disk may be full or read-only, the name too
    long, or the directory not writable. A target that is one of the input files is refused too.
    """
    # Imported here because most commands, `--help` above all, write no file.
    import stat
    from tempfile import TemporaryFile

    try:
        mode = target.stat().st_mode
    except FileNotFoundError:
        mode = None
    except (OSError, ValueError) as error:
        raise FileProblem(f"cannot write {target}: {_reason(error)}") from None
    if mode is not None and not stat.S_ISREG(mode):
        kind = "a directory" if stat.S_ISDIR(mode) else "not a regular file"
        raise FileProblem(f"cannot write {target}: it is {kind}")
    for given in inputs:
        if mode is not None and given is not None and _same_file(Path(given), target):
            raise FileProblem(f"cannot write {target}: it is an input of this command")
    folder = target.parent
    if not folder.is_dir():
        raise FileProblem(f"cannot write {target}: there is no directory {folder}")
    try:
        with TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise FileProblem(
            f"cannot write {target}: the directory {folder} is not writable ({_reason(error)})"
        ) from None


def _reason(error: OSError | ValueError) -> str:
    return getattr(error, "strerror", None) or str(error)


def _same_file(given: Path, target: Path) -> bool:
    try:
        return given.samefile(target)
    except (OSError, ValueError):  # an id, not a path
        return False
