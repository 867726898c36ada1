"""Deadlines on the clock of `time.monotonic`, for work that is cut off when its time is up."""

from __future__ import annotations

import time
from collections.abc import Callable

Look = Callable[[], object]
"""A callback that long preparations call now and then; it raises `TimeUp` past a deadline."""


class TimeUp(Exception):
    """A deadline passed inside a sweep or a preparation, whose results are incomplete."""


def nothing() -> None:
    """Do nothing: the default callback, without a deadline."""


def check_clock(deadline: float | None) -> None:
    """Raise `TimeUp` if the deadline, on the clock of `time.monotonic`, has passed."""
    if deadline is not None and time.monotonic() >= deadline:
        raise TimeUp
