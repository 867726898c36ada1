"""Progress of a command, on standard error only (fmdp/progress.py): on a terminal a bar, elsewhere
a plain line after 10 seconds and then ever more seldom."""

from __future__ import annotations

from contextlib import AbstractContextManager

from fmdp._base.progress import LineOf, Report, line_of, showing
from fmdp.errors import printable

_FIRST_LINE_AFTER_SECONDS = 10.0


def progress(
    what: str, line_of: LineOf = line_of, *, compiles: bool = True
) -> AbstractContextManager[Report]:
    """A callback for long work; what it says disappears from a terminal when the work is done."""
    return showing(
        printable(what), line_of, first_line_after=_FIRST_LINE_AFTER_SECONDS, compiles=compiles
    )
