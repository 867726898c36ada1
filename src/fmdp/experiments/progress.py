"""Progress of a sweep, and the line that shows it."""

from __future__ import annotations

from dataclasses import dataclass

from fmdp.errors import printable


@dataclass(frozen=True)
class SweepProgress:
    """State of a running sweep. `done` and `failed` count all runs of the spec, old and new."""

    total: int
    done: int
    failed: int
    running: int
    seconds: float
    seconds_left: float | None
    leader: str | None
    """Label of the learner with the lowest mean rank of its median regret so far."""


def progress_line(state: SweepProgress, seconds: float) -> str:
    """Return a line such as "12/80 done, 2 running, 0 failed, 3 min 5 s left, ahead: DORL"."""
    parts = [
        f"{state.done}/{state.total} done",
        f"{state.running} running",
        f"{state.failed} failed",
    ]
    if state.seconds_left is not None:
        parts.append(f"{duration(state.seconds_left)} left")
    if state.leader is not None:
        parts.append(f"ahead: {printable(state.leader)}")
    return ", ".join(parts)


def duration(seconds: float) -> str:
    """Return "42 s", "3 min 5 s" or "2 h 10 min"."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
