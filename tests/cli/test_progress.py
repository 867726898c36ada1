"""Progress: what a planner reports as one line, and how seldom a log hears of it."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from fmdp._base import progress as module
from fmdp._base.progress import line_of
from fmdp.cli.progress import progress


def test_the_line() -> None:
    news = {"sweeps": 1200, "gain_lower": 2.9, "gain_upper": 3.1, "gap": 0.2, "tolerance": 1e-6}
    assert line_of(news, 4.4) == "gain in [2.9, 3.1], sweep 1,200, gap 0.2 of 1e-06, 4 s"
    assert line_of({"rounds": 3, "gain_upper": 3.1}, 0) == "gain at most 3.1, round 3, 0 s"
    assert line_of({}, 5) == "5 s"


def test_an_hour_in_a_log_is_a_dozen_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def clock() -> Iterator[float]:
        yield from range(3602)

    ticks = clock()
    monkeypatch.setattr(module.time, "perf_counter", lambda: next(ticks))
    monkeypatch.setattr("fmdp.cli.progress._FIRST_LINE_AFTER_SECONDS", 10.0)
    assert not sys.stderr.isatty()
    with progress("planning x") as report:
        for sweep in range(3600):
            report({"sweeps": sweep})
    captured = capsys.readouterr()
    assert captured.out == ""
    lines = captured.err.splitlines()
    # one at 10 s, then at least 1.6 times later each: 1 + floor(log(360) / log(1.6)) = 13
    assert 10 <= len(lines) <= 13
    assert lines[0] == "planning x: sweep 9, 10 s"
