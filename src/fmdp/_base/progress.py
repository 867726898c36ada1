"""Progress of long work on standard error: the bar of `progress=True` and the command line.

Long work reports through a callback, and this module provides one that shows the reports. On a
terminal and in a notebook it draws a bar with the time, which disappears when the work is done. In
a notebook the bar is one output that is replaced, and needs no widgets. Otherwise it prints plain
lines, the first after some seconds and then at growing intervals, so that a log of an hour's work
has a dozen lines and a short run has none. A thread updates the time while no reports arrive. After
one second of compilation by Numba (not loading from its cache) it says "compiling (first run
only)".

Rich is imported only when something is shown, and nowhere else below `cli`.
"""

from __future__ import annotations

import math
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from html import escape
from typing import Any

from fmdp._base.interrupts import held
from fmdp._base.parameters import quoted
from fmdp.errors import InvalidParameter

Report = Callable[[Any], None]
"""A callback that receives the state of long work at intervals."""
PartsReport = Callable[[int, int, str], None]
"""A callback for work of several parts, such as `measure`: (done, total, current part)."""
LineOf = Callable[[Any, float], str]
"""A function from a report and the seconds so far to a line of text."""

FIRST_LINE_AFTER_SECONDS = 2.0
"""Time of the first plain line, if progress was requested."""
COMPILING = "compiling (first run only)"
_SAID_AFTER_SECONDS = 1.0
"""Time of compilation before it is mentioned."""
_GROWTH = 1.6
"""Ratio of the times of consecutive plain lines."""
_SECONDS_BETWEEN_REWRITES = 0.1
"""Interval between updates of a bar."""
_NOTEBOOK_BAR_AFTER_SECONDS = 0.5
"""Time before a notebook shows a bar: the empty output of shorter work would remain."""
_NEARLY = 0.999
"""Largest share shown: a full bar would look finished, and other work may follow."""
_NARROWEST = 20
"""Columns of the description on a narrow terminal."""


def line_of(report: Mapping[str, Any], seconds: float) -> str:
    """Return "gain in [2.9, 3.1], sweep 120, gap 0.2 of 1e-06, 4 s" from a planner's report. The
    most important part comes first, because a narrow terminal cuts the end."""
    parts = [report["what"]] if report.get("what") is not None else []
    lower, upper = report.get("gain_lower"), report.get("gain_upper")
    if lower is not None and upper is not None:
        parts.append(f"gain in [{lower:.7g}, {upper:.7g}]")
    elif upper is not None:
        parts.append(f"gain at most {upper:.7g}")
    for key, word in (("sweeps", "sweep"), ("rounds", "round"), ("iterations", "iteration")):
        if report.get(key) is not None:
            parts.append(f"{word} {report[key]:,}")
            break
    if report.get("step") is not None and report.get("steps") is not None:
        parts.append(f"step {report['step']:,} of {report['steps']:,}")
    if report.get("gap") is not None and report.get("tolerance") is not None:
        parts.append(f"gap {report['gap']:.2g} of {report['tolerance']:.2g}")
    parts.append(f"{seconds:.0f} s")
    return ", ".join(parts)


def line_of_run(report: Mapping[str, Any], seconds: float) -> str:
    """Return "regret 3.4, step 120 of 1,000, episode 7, 15 s left" from a simulation's report.
    Before the first step the reports are those of the planner of the reference."""
    if "step" not in report:
        return f"the optimal gain first: {line_of(report, seconds)}"
    spent = report["seconds"]
    left = spent * (report["steps"] - report["step"]) / max(1, report["step"])
    step = f"step {report['step']:,} of {report['steps']:,}"
    episode = "" if report["episode"] is None else f", episode {report['episode']:,}"
    regret = "" if report["regret"] is None else f"regret {report['regret']:.4g}, "
    return f"{regret}{step}{episode}, {left:.0f} s left"


def line_of_parts(report: tuple[int, int, str], seconds: float) -> str:
    """Return "hitting times 3 of 16, 4 s" from a report (done, total, text) of `measure`."""
    done, total, text = report
    share = f" {done:,} of {total:,}" if total > 1 else ""
    return f"{text}{share}, {seconds:.0f} s"


class _Share:
    """Completed share of the work in [0, 1), from its reports; None if they do not tell. Steps
    count linearly. The gap of an iteration shrinks geometrically, so its logarithm counts."""

    def __init__(self) -> None:
        self._first_gap: float | None = None

    def of(self, report: Any) -> float | None:
        done = self._done(report)
        return None if done is None else min(_NEARLY, max(0.0, done))

    def _done(self, report: Any) -> float | None:
        if isinstance(report, tuple) and len(report) == 3 and report[1] > 1:
            return float(report[0] / report[1])
        if not isinstance(report, Mapping):
            return None
        if report.get("step") is not None and report.get("steps"):
            return float(report["step"] / report["steps"])
        gap, tolerance = report.get("gap"), report.get("tolerance")
        if gap is None or tolerance is None or not (0.0 < gap < math.inf and tolerance > 0.0):
            return None
        if self._first_gap is None:
            self._first_gap = max(gap, 2.0 * tolerance)
        return math.log(self._first_gap / gap) / math.log(self._first_gap / tolerance)


class _Display(ABC):
    """Base class of the displays; a thread updates them while the work does not report."""

    def __init__(self, what: str, line_of: LineOf, first_after: float) -> None:
        self._what, self._line_of = what, line_of
        self._started = time.perf_counter()
        self._due = first_after
        self._report: Any = None
        self._under_way = False
        self._over = threading.Event()
        self._clock = threading.Thread(target=self._tick, args=(first_after,), daemon=True)

    @abstractmethod
    def _show(self) -> float:
        """Show the latest report; return the seconds until it is to be shown again."""

    def tell(self, report: Any) -> None:
        self._report = report
        self._show()

    def compiling(self, under_way: bool) -> None:
        self._under_way = under_way
        self._show()

    def close(self) -> None:
        self._over.set()
        self._clock.join()

    def _tick(self, pause: float) -> None:
        while not self._over.wait(pause):
            pause = self._show()

    def _seconds(self) -> float:
        return time.perf_counter() - self._started

    def _line(self, seconds: float) -> str:
        if self._under_way:
            return f"{COMPILING}, {seconds:.0f} s"
        return f"{seconds:.0f} s" if self._report is None else self._line_of(self._report, seconds)


class _Lines(_Display):
    """Plain lines at growing intervals."""

    def __init__(self, what: str, line_of: LineOf, first_after: float) -> None:
        super().__init__(what, line_of, first_after)
        self._compiled = False
        self._lock = threading.Lock()
        self._clock.start()

    def compiling(self, under_way: bool) -> None:
        self._under_way = under_way
        if under_way and not self._compiled:
            self._compiled = True
            self._print(COMPILING)

    def _show(self) -> float:
        with self._lock:
            seconds = self._seconds()
            if seconds >= self._due:
                self._due = seconds * _GROWTH
                self._print(self._line(seconds))
            return max(0.1, self._due - seconds)

    def _print(self, text: str) -> None:
        with suppress(OSError):  # a full disk must not end the work
            print(f"{self._what}: {text}", file=sys.stderr, flush=True)


class _Bar(_Display):
    """A bar that is redrawn, with the time beside it."""

    def __init__(self, what: str, line_of: LineOf, console: Any) -> None:
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn

        self._width = console.width
        # A long id is cut at its end to leave columns for the text beside the bar.
        most = max(_NARROWEST, self._width // 3)
        what = what if len(what) <= most else f"{what[: most - 3]}..."
        super().__init__(what, line_of, first_after=1.0)
        self._due = 0.0
        self._share = _Share()
        self._shown = Progress(
            SpinnerColumn("line"),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=12),
            TextColumn("{task.fields[report]}", markup=False),
            console=console,
            transient=True,
        )
        self._task = self._shown.add_task(what, total=None, report="")
        self._shown.start()
        self._clock.start()

    def tell(self, report: Any) -> None:
        self._report = report
        seconds = self._seconds()
        if seconds >= self._due:
            self._due = seconds + _SECONDS_BETWEEN_REWRITES
            self._show()

    def close(self) -> None:
        super().close()
        self._shown.stop()

    def _show(self) -> float:
        share = self._share.of(self._report)
        change: dict[str, Any] = {} if share is None else {"total": 1.0, "completed": share}
        # The spinner, the bar and the blanks between them take 17 columns of the one line.
        columns = max(0, self._width - 18 - len(self._what))
        self._shown.update(self._task, report=self._line(self._seconds())[:columns], **change)
        return 1.0


class _NotebookBar(_Display):
    """A bar in a notebook: one output, replaced at every update and emptied at the end."""

    def __init__(self, what: str, line_of: LineOf) -> None:
        super().__init__(what, line_of, first_after=1.0)
        self._due = _NOTEBOOK_BAR_AFTER_SECONDS
        self._share = _Share()
        self._handle: Any = None
        self._lock = threading.Lock()
        self._clock.start()

    def tell(self, report: Any) -> None:
        self._report = report
        if self._seconds() >= self._due:
            self._show()

    def close(self) -> None:
        super().close()
        if self._handle is not None:
            self._put({"text/html": "", "text/plain": ""})

    def _show(self) -> float:
        with self._lock:
            seconds = self._seconds()
            self._due = max(_NOTEBOOK_BAR_AFTER_SECONDS, seconds + _SECONDS_BETWEEN_REWRITES)
            if seconds >= _NOTEBOOK_BAR_AFTER_SECONDS:
                share, line = self._share.of(self._report), self._line(seconds)
                value = "" if share is None else f' value="{share:.3f}"'
                bar = f"<progress{value}></progress> {escape(self._what)}: {escape(line)}"
                self._put({"text/html": bar, "text/plain": f"{self._what}: {line}"})
        return 1.0

    def _put(self, content: Mapping[str, str]) -> None:
        if self._handle is None:
            # Not imported: whoever runs a notebook has it, and fmdp does not depend on it.
            display = sys.modules["IPython.display"].display
            self._handle = display(content, raw=True, display_id=True)
        else:
            self._handle.update(content, raw=True)


def _display(what: str, line_of: LineOf, first_after: float) -> _Display:
    if _in_notebook():
        return _NotebookBar(what, line_of)
    if not sys.stderr.isatty():
        return _Lines(what, line_of, first_after)
    from rich.console import Console

    console = Console(file=sys.stderr, highlight=False, markup=False)
    moving = console.is_terminal and not console.is_dumb_terminal
    return _Bar(what, line_of, console) if moving else _Lines(what, line_of, first_after)


def _in_notebook() -> bool:
    """Return whether this runs in a notebook, which displays HTML."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return shell is not None and hasattr(shell, "kernel")


@contextmanager
def showing(
    what: str,
    line_of: LineOf = line_of,
    *,
    first_line_after: float = FIRST_LINE_AFTER_SECONDS,
    compiles: bool = True,
) -> Iterator[Report]:
    """Yield a callback that shows the reports of long work while it runs. `compiles` is False for
    work that does not use Numba, which would otherwise be imported."""
    display: _Display | None = None
    try:
        # A thread is started, and an exception meanwhile would release a lock twice.
        with held():
            display = _display(what, line_of, first_line_after)
        with _compilation_said(display) if compiles else nullcontext():
            yield display.tell
    finally:
        if display is not None:
            display.close()


@contextmanager
def reporting(
    progress: bool | Callable[..., None] | None, what: str, owner: str, line_of: LineOf = line_of
) -> Iterator[Report | None]:
    """Yield the callback for the `progress` argument of a public function. True shows a bar, a
    callable is called, None and False are silent; other values are refused."""
    if progress is None or progress is False:
        yield None
    elif progress is True:
        with showing(what, line_of) as report:
            yield report
    elif callable(progress) and not isinstance(progress, type):
        yield progress
    else:
        raise InvalidParameter(
            f"the 'progress' of {owner} must be True (a bar), a function, or None; "
            f"got {quoted(progress)}"
        )


@contextmanager
def _compilation_said(display: _Display) -> Iterator[None]:
    """Tell the display when Numba compiles, after one second of compilation. Numba emits the event
    when its cache has no entry; loading from the cache emits none."""
    from fmdp._base.compiled import listening

    class Compilation:
        """Time of nested compilations, counted at the outermost one."""

        def __init__(self) -> None:
            self.depth = 0
            self.since = 0.0
            self.spent = 0.0
            self.said = False
            self.lock = threading.Lock()
            self.timer = threading.Timer(0.0, self.say)

        def on_start(self, _: object) -> None:
            self.depth += 1
            if self.depth == 1:
                self.since = time.monotonic()
                left = max(0.0, _SAID_AFTER_SECONDS - self.spent)
                self.timer = threading.Timer(left, self.say)
                self.timer.daemon = True
                self.timer.start()

        def say(self) -> None:
            with self.lock:
                if self.depth > 0:
                    self.said = True
                    display.compiling(True)

        def on_end(self, _: object) -> None:
            with self.lock:
                self.depth -= 1
                if self.depth == 0:
                    self.timer.cancel()
                    self.spent += time.monotonic() - self.since
                    if self.said:
                        display.compiling(False)

    listener = Compilation()
    with listening("numba:compile", listener):
        try:
            yield
        finally:
            listener.timer.cancel()
