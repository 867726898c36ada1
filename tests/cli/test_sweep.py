"""What `fmdp sweep` says while it works; what it does is in tests/integration."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from fmdp.cli.sweep import print_summary
from fmdp.experiments.progress import SweepProgress, duration, progress_line
from fmdp.experiments.sweep import SweepSummary

NEWS = SweepProgress(
    total=80, done=12, failed=1, running=2, seconds=30.0, seconds_left=185.2, leader="DORL"
)


def test_a_line_of_progress_has_everything_that_is_known() -> None:
    assert (
        progress_line(NEWS, 30.0) == "12/80 done, 2 running, 1 failed, 3 min 5 s left, ahead: DORL"
    )
    nothing = replace(NEWS, done=0, failed=0, seconds_left=None, leader=None)
    assert progress_line(nothing, 0.1) == "0/80 done, 2 running, 0 failed"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.2, "0 s"),
        (59.4, "59 s"),
        (59.6, "1 min 0 s"),
        (3599.9, "1 h 0 min"),
        (7800, "2 h 10 min"),
    ],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_the_summary_shows_the_first_errors_and_how_to_go_on(
    capsys: pytest.CaptureFixture[str],
) -> None:
    trace = "Traceback (most recent call last):\n  ...\nZeroDivisionError: by zero\n"
    errors = {f"circle:4, PSRL, seed {seed}": trace for seed in range(7)}
    print_summary(SweepSummary(20, 13, 7, 5, 61.0, errors, Path("out/runs.sqlite")), retried=False)
    printed = capsys.readouterr().out
    assert "20 runs: 13 done, 7 failed (5 were done before)" in printed
    assert "1 min 1 s" in printed
    assert "circle:4, PSRL, seed 4: ZeroDivisionError: by zero" in printed
    assert "seed 5" not in printed
    assert "and 2 more" in printed
    assert "--retry-failed" in printed
