"""Progress of long work, on standard error: the bar behind `progress=True` and the command line.

Long work reports through a callback; here is one that shows what it is told. On a terminal, or in
a notebook that has ipywidgets, a bar with the time, which disappears when the work is done; else
plain lines, the first after some seconds and then ever more seldom, so that a log of an hour's work
has a dozen lines and a short run has none. A thread keeps the time moving while the work itself is
silent. Numba says when it compiles and does not load from its cache: from one second of that on,
"compiling (first run only)" is said.

Rich is imported here when something is shown, and nowhere else below `cli`.
"""

from __future__ import annotations

import math
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from typing import Any, Protocol

from fmdp._base.interrupts import held
from fmdp._base.parameters import quoted
from fmdp.errors import InvalidParameter

Report = Callable[[Any], None]
"""Called now and then during long work with what is known so far."""
PartsReport = Callable[[int, int, str], None]
"""The same for work of several parts, as `measure` is: (done, total, what is being done)."""
LineOf = Callable[[Any, float], str]
"""A line made of what the work reports and the seconds so far."""

FIRST_LINE_AFTER_SECONDS = 2.0
"""Where somebody has asked to be told."""
COMPILING = "compiling (first run only)"
_SAID_AFTER_SECONDS = 1.0
_GROWTH = 1.6
_SECONDS_BETWEEN_REWRITES = 0.1
_NEARLY = 0.999
_NARROWEST = 20


def line_of(news: Mapping[str, Any], seconds: float) -> str:
    """ "gain in [2.9, 3.1], sweep 120, gap 0.2 of 1e-06, 4 s" from what a planner reports: what
    matters most comes first, since a narrow terminal cuts the end."""
    parts = [news["what"]] if news.get("what") is not None else []
    lower, upper = news.get("gain_lower"), news.get("gain_upper")
    if lower is not None and upper is not None:
        parts.append(f"gain in [{lower:.7g}, {upper:.7g}]")
    elif upper is not None:
        parts.append(f"gain at most {upper:.7g}")
    for key, word in (("sweeps", "sweep"), ("rounds", "round"), ("iterations", "iteration")):
        if news.get(key) is not None:
            parts.append(f"{word} {news[key]:,}")
            break
    if news.get("step") is not None and news.get("steps") is not None:
        parts.append(f"step {news['step']:,} of {news['steps']:,}")
    if news.get("gap") is not None and news.get("tolerance") is not None:
        parts.append(f"gap {news['gap']:.2g} of {news['tolerance']:.2g}")
    parts.append(f"{seconds:.0f} s")
    return ", ".join(parts)


def line_of_run(news: Mapping[str, Any], seconds: float) -> str:
    """ "regret 3.4, step 120 of 1,000, episode 7, 15 s left" from what a simulation reports.

    Before its first step it reports as the planner of its reference does.
    """
    if news.get("regret") is None:
        return f"the optimal gain first: {line_of(news, seconds)}"
    spent = news["seconds"]
    left = spent * (news["steps"] - news["step"]) / max(1, news["step"])
    step = f"step {news['step']:,} of {news['steps']:,}"
    episode = "" if news["episode"] is None else f", episode {news['episode']:,}"
    return f"regret {news['regret']:.4g}, {step}{episode}, {left:.0f} s left"


def line_of_parts(news: tuple[int, int, str], seconds: float) -> str:
    """ "hitting times 3 of 16, 4 s" from what `measure` reports: (done, total, text)."""
    done, total, text = news
    share = f" {done:,} of {total:,}" if total > 1 else ""
    return f"{text}{share}, {seconds:.0f} s"


class _Share:
    """How much of the work is done, in [0, 1], as far as its reports tell; None if they do not.

    Steps count as they are; the gap of an iteration shrinks geometrically, so its logarithm does.
    Less than 1 for ever: a bar that was full once is over, and other work may follow.
    """

    def __init__(self) -> None:
        self._first_gap: float | None = None

    def of(self, news: Any) -> float | None:
        done = self._done(news)
        return None if done is None else min(_NEARLY, max(0.0, done))

    def _done(self, news: Any) -> float | None:
        if isinstance(news, tuple) and len(news) == 3 and news[1] > 1:
            return float(news[0] / news[1])
        if not isinstance(news, Mapping):
            return None
        if news.get("step") is not None and news.get("steps"):
            return float(news["step"] / news["steps"])
        gap, tolerance = news.get("gap"), news.get("tolerance")
        if gap is None or tolerance is None or not (0.0 < gap < math.inf and tolerance > 0.0):
            return None
        if self._first_gap is None:
            self._first_gap = max(gap, 2.0 * tolerance)
        return math.log(self._first_gap / gap) / math.log(self._first_gap / tolerance)


class _Display(Protocol):
    def tell(self, news: Any) -> None: ...

    def compiling(self, under_way: bool) -> None: ...

    def close(self) -> None: ...


class _Lines:
    """Plain lines, ever more seldom."""

    def __init__(self, what: str, line_of: LineOf, first_after: float) -> None:
        self._what, self._line_of = what, line_of
        self._started = time.perf_counter()
        self._due = first_after
        self._news: Any = None
        self._under_way = False
        self._compiled = False
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._clock = threading.Thread(target=self._tick, args=(first_after,), daemon=True)
        self._clock.start()

    def tell(self, news: Any) -> None:
        self._news = news
        self._write()

    def compiling(self, under_way: bool) -> None:
        self._under_way = under_way
        if under_way and not self._compiled:
            self._compiled = True
            self._print(COMPILING)

    def close(self) -> None:
        self._over.set()
        self._clock.join()

    def _tick(self, first_after: float) -> None:
        """Writes for work that says nothing; the work's own reports come in between."""
        pause = first_after
        while not self._over.wait(pause):
            pause = max(0.1, self._write())

    def _write(self) -> float:
        """Writes if it is time, and says how many seconds there are until the next time."""
        with self._lock:
            seconds = time.perf_counter() - self._started
            if seconds < self._due:
                return self._due - seconds
            self._due = seconds * _GROWTH
            if self._under_way:
                self._print(f"{COMPILING}, {seconds:.0f} s")
            elif self._news is None:
                self._print(f"{seconds:.0f} s")
            else:
                self._print(self._line_of(self._news, seconds))
            return self._due - seconds

    def _print(self, said: str) -> None:
        with suppress(OSError):  # a full disk under the log is no reason to end the work
            print(f"{self._what}: {said}", file=sys.stderr, flush=True)


class _Bar:
    """A bar that is rewritten, with the time beside it."""

    def __init__(self, what: str, line_of: LineOf, console: Any) -> None:
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn

        self._width = console.width
        # Of a long id the beginning tells; what is said beside the bar needs the room.
        most = max(_NARROWEST, self._width // 3)
        what = what if len(what) <= most else f"{what[: most - 3]}..."
        self._what, self._line_of = what, line_of
        self._share = _Share()
        self._started = time.perf_counter()
        self._due = 0.0
        self._shown = Progress(
            SpinnerColumn("line"),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=12),
            TextColumn("{task.fields[news]}", markup=False),
            console=console,
            transient=True,
        )
        self._task = self._shown.add_task(what, total=None, news="")
        self._news: Any = None
        self._under_way = False
        self._over = threading.Event()
        self._clock = threading.Thread(target=self._tick, daemon=True)
        self._shown.start()
        self._clock.start()

    def tell(self, news: Any) -> None:
        self._news = news
        seconds = time.perf_counter() - self._started
        if seconds >= self._due:
            self._due = seconds + _SECONDS_BETWEEN_REWRITES
            share = self._share.of(news)
            self._update(**({} if share is None else {"total": 1.0, "completed": share}))

    def compiling(self, under_way: bool) -> None:
        self._under_way = under_way
        self._update()

    def close(self) -> None:
        self._over.set()
        self._clock.join()
        self._shown.stop()

    def _tick(self) -> None:
        """The time goes on where the work says nothing."""
        while not self._over.wait(1.0):
            self._update()

    def _update(self, **change: float) -> None:
        seconds = time.perf_counter() - self._started
        if self._under_way:
            line = f"{COMPILING}, {seconds:.0f} s"
        elif self._news is None:
            line = f"{seconds:.0f} s"
        else:
            line = self._line_of(self._news, seconds)
        # The spinner, the bar and the blanks between them take 17 columns; one line is one line.
        room = max(0, self._width - 18 - len(self._what))
        self._shown.update(self._task, news=line[:room], **change)  # type: ignore[arg-type]


def _display(what: str, line_of: LineOf, first_after: float) -> _Display:
    if not sys.stderr.isatty() and "IPython" not in sys.modules:
        return _Lines(what, line_of, first_after)
    from rich.console import Console

    console = Console(file=sys.stderr, highlight=False, markup=False)
    if console.is_jupyter:
        moving = _has_widgets()
    else:
        moving = console.is_terminal and not console.is_dumb_terminal
    return _Bar(what, line_of, console) if moving else _Lines(what, line_of, first_after)


def _has_widgets() -> bool:
    """Rich draws in a notebook with ipywidgets, and warns at every turn without."""
    from importlib.util import find_spec

    return find_spec("ipywidgets") is not None


@contextmanager
def showing(
    what: str,
    line_of: LineOf = line_of,
    *,
    first_line_after: float = FIRST_LINE_AFTER_SECONDS,
    compiles: bool = True,
) -> Iterator[Report]:
    """A callback that shows what long work reports, for as long as the work takes.

    `compiles` is to be False where the work needs no Numba, which would be imported in vain.
    """
    display: _Display | None = None
    try:
        # A thread is started: an exception in the middle would release a lock twice.
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
    """The callback that the `progress` argument of a public function stands for.

    True shows a bar, a callable is called, None and False are silence; anything else is refused.
    """
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
    """Tells the display when Numba compiles, from one second of it on.

    The event is Numba's own and comes where the cache has nothing; loading from the cache is none.
    """
    from fmdp._base.compiled import listening

    class Compilation:
        """Functions that call one another are compiled inside one another: the outermost counts."""

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
