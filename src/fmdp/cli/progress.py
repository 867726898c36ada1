"""Progress of long work, on standard error only.

On a terminal one line that is rewritten; elsewhere a plain line after 10 seconds and then ever
more seldom, so that a log of an hour's work has a dozen lines and a short run has none.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from fmdp.cli.output import console, short_number

_FIRST_LINE_AFTER_SECONDS = 10.0
_GROWTH = 1.6
_SECONDS_BETWEEN_REWRITES = 0.1
_WIDTH_OF_SPINNER = 3


def line_of(news: Mapping[str, Any], seconds: float) -> str:
    """ "sweep 120, gain in [2.9, 3.1], gap 0.2 of 1e-06, 4 s" from what a planner reports."""
    parts = []
    for key, word in (("sweeps", "sweep"), ("rounds", "round"), ("iterations", "iteration")):
        if news.get(key) is not None:
            parts.append(f"{word} {news[key]:,}")
            break
    if news.get("gap") is not None and news.get("tolerance") is not None:
        parts.append(f"gap {news['gap']:.2g} of {news['tolerance']:.2g}")
    parts.append(f"{seconds:.0f} s")
    lower, upper = news.get("gain_lower"), news.get("gain_upper")
    if lower is not None and upper is not None:
        parts.append(f"gain in [{short_number(lower)}, {short_number(upper)}]")
    elif upper is not None:
        parts.append(f"gain at most {short_number(upper)}")
    return ", ".join(parts)


@contextmanager
def progress(
    what: str, line_of: Callable[[Any, float], str] = line_of
) -> Iterator[Callable[[Any], None]]:
    """A callback for long work; what it says disappears from a terminal when the work is done.

    `line_of` makes a line of what the work reports (as planners do, by default) and the seconds.
    """
    started = time.perf_counter()
    due = 0.0
    if sys.stderr.isatty():
        terminal = console(stderr=True)
        with terminal.status(what, spinner="line") as status:

            def rewrite(news: Any) -> None:
                nonlocal due
                seconds = time.perf_counter() - started
                if seconds >= due:
                    due = seconds + _SECONDS_BETWEEN_REWRITES
                    line = f"{what}: {line_of(news, seconds)}"
                    status.update(line[: terminal.width - _WIDTH_OF_SPINNER])

            yield rewrite
        return
    due = _FIRST_LINE_AFTER_SECONDS

    def write(news: Any) -> None:
        nonlocal due
        seconds = time.perf_counter() - started
        if seconds >= due:
            due = seconds * _GROWTH
            print(f"{what}: {line_of(news, seconds)}", file=sys.stderr, flush=True)

    yield write
