"""How results leave the program: one JSON object, or small tables for people.

With `--json` exactly one object goes to standard output. JSON has no infinity, so it is the
string "inf"; a NaN anywhere is a bug and fails loudly. Integers are written exactly.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, Context
from enum import Enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

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
    from rich.text import Text

    result = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for column in columns:
        result.add_column(Text(column), justify="right" if column in right else "left")
    for row in rows:
        result.add_row(*(Text(cell) for cell in row))
    return result


def columns(rows: Iterable[tuple[str, str]]) -> RenderableType:
    """A name and what it is, side by side; the second column wraps within itself."""
    from rich.table import Table
    from rich.text import Text

    result = Table.grid(padding=(0, 2))
    for name, value in rows:
        result.add_row(Text(name, style="bold", no_wrap=True), Text(value))
    return result


def short_number(value: float | str | None, digits: int = 7) -> str:
    if value is None:
        return "-"
    if isinstance(value, str):
        return value
    return "infinite" if math.isinf(value) else f"{value:.{digits}g}"


def known_number(value: float, lower: float | None, upper: float | None) -> str:
    """A number with no more digits than are known: the shortest that lies between its bounds.

    0.428622 rather than 0.428621987 where the bounds are 1e-6 apart, and never one outside them.
    """
    if lower is not None and upper is not None and lower < upper:
        for digits in range(1, 17):
            shown = f"{value:.{digits}g}"
            if lower <= float(shown) <= upper:
                return shown
    return short_number(value, 9)


def interval_text(lower: float, upper: float) -> str:
    """ "0.4286219 to 0.4286228": rounded outwards, so that what is printed still holds, with two
    digits of the width and at least nine in all."""
    digits = 9
    size, width = max(abs(lower), abs(upper)), upper - lower
    if width > 0.0 and math.isfinite(size):
        digits = min(17, max(digits, 2 + math.ceil(math.log10(size / width))))

    def outwards(value: float, rounding: str) -> str:
        if not math.isfinite(value):
            return short_number(value)
        rounded = Context(prec=digits, rounding=rounding).create_decimal_from_float(value)
        return f"{rounded.normalize():.{digits}g}"

    return f"{outwards(lower, ROUND_FLOOR)} to {outwards(upper, ROUND_CEILING)}"


def numbers_text(values: Sequence[float], digits: int = 4) -> str:
    """Many numbers on one line, with the middle left out of a long list."""
    shown = [short_number(value, digits) for value in values]
    return ", ".join(shown if len(shown) <= 12 else [*shown[:6], "...", *shown[-5:]])


def seconds_text(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"
