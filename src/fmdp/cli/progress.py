"""Progress of a command on standard error: a bar on a terminal, elsewhere plain lines.

The first plain line comes after 10 seconds; later ones come at growing intervals.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

from fmdp._base.progress import LineOf, Report, line_of, showing
from fmdp.errors import printable

_FIRST_LINE_AFTER_SECONDS = 10.0


def progress(
    what: str, line_of: LineOf = line_of, *, compiles: bool = True
) -> AbstractContextManager[Report]:
    """Return a context manager that gives a progress callback; a terminal is cleared at the end."""
    return showing(
        printable(what), line_of, first_line_after=_FIRST_LINE_AFTER_SECONDS, compiles=compiles
    )
