"""How results leave the program: one JSON object, or small tables for people.

With `--json` exactly one object goes to standard output. JSON has no infinity, so it is the
string "inf"; a NaN anywhere is a bug and fails loudly. Integers are written exactly.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any

from fmdp.errors import printable
from fmdp.numerals import interval_text as interval_text
from fmdp.numerals import known_number as known_number
from fmdp.numerals import numbers_text as numbers_text
from fmdp.numerals import seconds_text as seconds_text
from fmdp.numerals import short_number as short_number

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.text import Text

# Wide enough that no table is cut where there is no terminal to be wider than.
_WIDTH_OF_A_FILE = 200


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


def say(line: str) -> None:
    """One line on standard error, for what is neither a result nor a failure."""
    print(f"fmdp: {printable(line)}", file=sys.stderr)


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
