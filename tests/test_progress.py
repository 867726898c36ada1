"""Progress: what `progress=` may be, what is shown where, and that compilation is said."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from numba.core import event

import fmdp
from fmdp._base import progress as module
from fmdp._base.progress import (
    line_of,
    line_of_parts,
    line_of_run,
    reporting,
    showing,
)
from fmdp.errors import InvalidParameter
from fmdp.measures import measure
from fmdp.simulation import evaluate_by_simulation

MODEL = fmdp.problem("jao:2")


class Recorded:
    """A display that keeps what it is told."""

    def __init__(self) -> None:
        self.news: list[Any] = []
        self.lines: list[str] = []
        self.compiled: list[bool] = []
        self.closed = 0

    def of(self, what: str, line_of: Callable[[Any, float], str], first_after: float) -> Recorded:
        self.what, self.line_of = what, line_of
        return self

    def tell(self, news: Any) -> None:
        self.news.append(news)
        self.lines.append(self.line_of(news, 1.0))

    def compiling(self, under_way: bool) -> None:
        self.compiled.append(under_way)

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> Recorded:
    display = Recorded()
    monkeypatch.setattr(module, "_display", display.of)
    monkeypatch.setattr(module, "_SAID_AFTER_SECONDS", 1e6)
    return display


def until(happened: Callable[[], bool]) -> None:
    """Waits for another thread; a machine under load may take its time."""
    for _ in range(600):
        if happened():
            return
        time.sleep(0.05)
    raise AssertionError("it did not happen")


# ---- what progress= may be ----------------------------------------------------------------------


def test_true_shows_a_callable_is_called_and_none_is_silence(recorded: Recorded) -> None:
    told: list[Any] = []
    for silent in (None, False):
        with reporting(silent, "work", "it") as report:
            assert report is None
    with reporting(told.append, "work", "it") as report:
        assert report is not None
        report(1)
    assert told == [1]
    assert recorded.closed == 0
    with reporting(True, "work", "it", lambda news, seconds: f"at {news}") as report:
        assert report is not None
        report(2)
    assert (recorded.what, recorded.lines, recorded.closed) == ("work", ["at 2"], 1)
    with (
        pytest.raises(InvalidParameter, match="'progress' of it must be True"),
        reporting(
            "yes",
            "work",
            "it",  # type: ignore[arg-type]
        ),
    ):
        pass


@pytest.mark.parametrize(
    ("call", "what", "line"),
    [
        (lambda p: fmdp.plan(MODEL, fmdp.Exact(), progress=p), "planning jao:2", "gain in ["),
        (lambda p: fmdp.plan(MODEL, fmdp.ALP(), progress=p), "planning jao:2", ""),
        (
            lambda p: fmdp.simulate(MODEL, "dorl", 200, progress=p),
            "dorl on jao:2",
            "regret ",
        ),
        (
            lambda p: fmdp.evaluate(MODEL, lambda _: (0, 0), progress=p),
            "evaluating a policy of jao:2",
            None,  # so few states are solved at once
        ),
        (lambda p: measure(MODEL, progress=p), "measuring jao:2", "planning: "),
    ],
)
def test_true_shows_what_the_work_reports(
    recorded: Recorded, call: Callable[[Any], Any], what: str, line: str | None
) -> None:
    call(True)
    assert recorded.what == what
    assert recorded.closed == 1
    assert line is None or any(said.startswith(line) for said in recorded.lines)


def test_a_display_is_closed_when_the_work_fails(recorded: Recorded) -> None:
    def fail(state: Any) -> Any:
        raise ZeroDivisionError

    with pytest.raises(InvalidParameter, match="the function fails: ZeroDivisionError"):
        fmdp.simulate(MODEL, fail, 5, progress=True)
    assert recorded.closed == 1


def test_an_evaluation_by_simulation_reports_its_steps() -> None:
    told: list[Any] = []
    plan = fmdp.plan(MODEL)
    assert plan.policy is not None
    found = evaluate_by_simulation(MODEL, plan.policy, steps=10_000, progress=told.append)
    assert told[-1] == {"step": found.iterations, "steps": found.iterations}
    assert 9_000 < found.iterations <= 10_000
    assert [news["step"] for news in told] == sorted(news["step"] for news in told)
    assert max(b["step"] - a["step"] for a, b in pairwise(told)) <= 1024
    assert found.gain == evaluate_by_simulation(MODEL, plan.policy, steps=10_000).gain


# ---- what is shown ------------------------------------------------------------------------------


def test_the_lines() -> None:
    assert line_of({"step": 5, "steps": 10}, 1.2) == "step 5 of 10, 1 s"
    assert line_of_parts((3, 16, "hitting times"), 4.0) == "hitting times 3 of 16, 4 s"
    assert line_of_parts((0, 1, "planning"), 4.0) == "planning, 4 s"
    plan = {"sweeps": 3, "gap": 0.2, "tolerance": 0.1}
    assert line_of_run(plan, 2.0).startswith("the optimal gain first: sweep 3")


def test_the_share_that_is_done() -> None:
    share = module._Share()
    assert share.of({"sweeps": 1}) is None
    assert share.of({"gap": 1.0, "tolerance": 1e-6}) == 0.0
    assert share.of({"gap": 1e-3, "tolerance": 1e-6}) == pytest.approx(0.5)
    assert share.of({"gap": 1e-9, "tolerance": 1e-6}) == 0.999
    assert share.of({"gap": float("inf"), "tolerance": 1e-6}) is None
    assert share.of({"step": 25, "steps": 100}) == 0.25
    assert share.of((32, 128, "bounding")) == 0.25


def test_work_that_says_nothing_is_told_all_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    """`fmdp evaluate` was silent for as long as a policy was being asked."""
    said = ""

    def told() -> bool:
        nonlocal said
        said += capsys.readouterr().err
        return said.count("\n") >= 2

    with showing("work", first_line_after=0.01, compiles=False):
        until(told)
    assert re.fullmatch(r"(work: \d+ s\n)+", said)


TERMINAL = """
import time, warnings
from fmdp._base.progress import showing
with showing("work", compiles=False) as report:
    report({"sweeps": 7, "gap": 0.1, "tolerance": 0.01})
    time.sleep(1.95)
"""


def on_a_terminal(script: str) -> str:
    """What a script writes to standard error where that is a terminal, without its escapes."""
    pty = pytest.importorskip("pty")
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    with subprocess.Popen([sys.executable, "-c", script], stderr=theirs, env=environment):
        os.close(theirs)
        written = b""
        for piece in _pieces(ours):
            written += piece
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", written.decode())


def _pieces(descriptor: int) -> Iterator[bytes]:
    with open(descriptor, "rb", buffering=0) as stream:
        while True:
            try:
                piece = stream.read(1 << 16)
            except OSError:  # the other end is closed
                return
            if not piece:
                return
            yield piece


def test_a_terminal_has_a_bar_that_moves() -> None:
    shown = on_a_terminal(TERMINAL)
    assert "work" in shown
    assert "sweep 7, gap 0.1 of 0.01, 0 s" in shown
    assert "sweep 7, gap 0.1 of 0.01, 1 s" in shown  # though the work has said nothing since
    assert {"- work", "\\ work", "| work", "/ work"} <= {
        line.strip()[:6] for line in re.split(r"[\r\n]+", shown)
    }


class Notebook:
    """Stands for IPython in a kernel: keeps what one output shows, one after the other."""

    kernel = True

    def __init__(self) -> None:
        self.outputs: list[list[Any]] = []

    def get_ipython(self) -> Notebook:
        return self

    def display(self, content: Any, *, raw: bool, display_id: bool) -> Notebook:
        assert raw
        assert display_id
        self.outputs.append([content])
        return self

    def update(self, content: Any, *, raw: bool) -> None:
        assert raw
        self.outputs[-1].append(content)


@pytest.mark.parametrize("after", [0.0, 60.0], ids=["long work", "short work"])
def test_a_notebook_has_one_bar_that_disappears(
    after: float, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    notebook = Notebook()
    monkeypatch.setitem(sys.modules, "IPython", notebook)
    monkeypatch.setitem(sys.modules, "IPython.display", notebook)
    monkeypatch.setattr(module, "_NOTEBOOK_BAR_AFTER_SECONDS", after)
    monkeypatch.setattr(module, "_SECONDS_BETWEEN_REWRITES", 0.0)
    with showing("a < b", compiles=False) as report:
        report({"step": 1, "steps": 4})
        report({"step": 2, "steps": 4})
    assert capsys.readouterr() == ("", "")
    if after:
        assert notebook.outputs == []
        return
    (shown,) = notebook.outputs
    bar = '<progress value="0.500"></progress> a &lt; b: step 2 of 4, 0 s'
    assert {"text/html": bar, "text/plain": "a < b: step 2 of 4, 0 s"} in shown
    assert shown[-1] == {"text/html": "", "text/plain": ""}


def test_ipython_in_a_terminal_is_no_notebook(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=object))
    with showing("work", first_line_after=0.0, compiles=False) as report:
        report({"sweeps": 7})
    assert re.match(r"work: (sweep 7, )?0 s\n", capsys.readouterr().err)


# ---- compilation --------------------------------------------------------------------------------


def test_compilation_is_said_from_a_second_on(
    recorded: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_SAID_AFTER_SECONDS", 0.01)
    with showing("work"):
        with event.trigger_event("numba:compile"), event.trigger_event("numba:compile"):
            until(lambda: bool(recorded.compiled))
        assert recorded.compiled == [True, False]
        with event.trigger_event("numba:compile"):  # more of the same, and at once
            until(lambda: len(recorded.compiled) == 3)
    assert recorded.compiled == [True, False, True, False]
    with event.trigger_event("numba:compile"):  # nobody listens any more
        pass
    assert recorded.compiled == [True, False, True, False]


def test_a_short_compilation_is_not_worth_a_word(recorded: Recorded) -> None:
    with showing("work"), event.trigger_event("numba:compile"):
        pass
    assert recorded.compiled == []


def test_it_is_one_line_in_a_log(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "_SAID_AFTER_SECONDS", 0.0)
    said = ""

    def told() -> bool:
        nonlocal said
        said += capsys.readouterr().err
        return bool(said)

    with showing("work", first_line_after=1e6):
        with event.trigger_event("numba:compile"):
            until(told)
        with event.trigger_event("numba:compile"):
            pass
    assert said + capsys.readouterr().err == "work: compiling (first run only)\n"


@pytest.mark.slow
def test_an_empty_cache_is_said_and_a_full_one_is_not(tmp_path: Path) -> None:
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-m", "fmdp", "plan", "circle:10", "--json"]
    cold, warm = (
        subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        for _ in range(2)
    )
    assert cold.stderr.startswith("planning circle:10: compiling (first run only)\n")
    assert "compiling" not in warm.stderr
    assert cold.stdout.count("\n") == warm.stdout.count("\n") == 1
