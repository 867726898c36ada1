"""Deadlines on the clock of `time.monotonic`, for work that is cut off when its time is up."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

Look = Callable[[], object]
"""A callback that long preparations call now and then; it raises `TimeUp` past a deadline."""


class TimeUp(Exception):
    """A deadline passed inside a sweep or a preparation, whose results are incomplete."""


def nothing() -> None:
    """Do nothing: the default callback, without a deadline."""


@dataclass(frozen=True)
class Deadline:
    """A point in time on the clock of time.monotonic, or none.

    Attributes
    ----------
    at : float or None
        When the time is up; None is never.
    """

    at: float | None = None

    @classmethod
    def after(cls, seconds: float | None) -> Deadline:
        """Return the deadline that many seconds from now; None is no deadline."""
        return cls(None if seconds is None else time.monotonic() + seconds)

    def expired(self) -> bool:
        return self.at is not None and time.monotonic() >= self.at

    def check(self) -> None:
        """Raise TimeUp if the deadline has passed."""
        if self.expired():
            raise TimeUp

    def remaining(self) -> float | None:
        """Return the seconds that are left, at least 0; None without a deadline."""
        return None if self.at is None else max(self.at - time.monotonic(), 0.0)


NEVER = Deadline()
"""No deadline."""


def check_clock(deadline: float | None) -> None:
    """Raise `TimeUp` if the deadline, on the clock of `time.monotonic`, has passed."""
    Deadline(deadline).check()
