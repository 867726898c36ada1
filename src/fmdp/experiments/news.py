"""How far a sweep is, and one line that says it."""

from __future__ import annotations

from dataclasses import dataclass

from fmdp.errors import printable


@dataclass(frozen=True)
class SweepNews:
    """How far a sweep is. `done` and `failed` count all runs of the spec, stored before or now."""

    total: int
    done: int
    failed: int
    running: int
    seconds: float
    seconds_left: float | None
    leader: str | None
    """Label of the learner that is ahead so far: lowest mean rank of its median regret."""


def line_of(news: SweepNews, seconds: float) -> str:
    """ "12/80 done, 2 running, 0 failed, 3 min 5 s left, ahead: DORL" """
    parts = [f"{news.done}/{news.total} done", f"{news.running} running", f"{news.failed} failed"]
    if news.seconds_left is not None:
        parts.append(f"{duration(news.seconds_left)} left")
    if news.leader is not None:
        parts.append(f"ahead: {printable(news.leader)}")
    return ", ".join(parts)


def duration(seconds: float) -> str:
    """ "42 s", "3 min 5 s", "2 h 10 min" """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
