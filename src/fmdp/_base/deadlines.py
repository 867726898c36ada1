"""Deadlines: one object, passed down and asked by all work that is cut off when time is up."""

from __future__ import annotations

import time
from dataclasses import dataclass


class TimeUp(Exception):
    """A deadline passed inside a sweep or a preparation, whose results are incomplete."""


@dataclass(frozen=True)
class Deadline:
    """A point in time on the clock of time.perf_counter, or none.

    Attributes
    ----------
    at : float or None
        When the time is up; None is never.
    """

    at: float | None = None

    @classmethod
    def after(cls, seconds: float | None, started: float | None = None) -> Deadline:
        """Return the deadline that many seconds after `started`, by default now; None is never."""
        if seconds is None:
            return NEVER
        return cls(seconds + (time.perf_counter() if started is None else started))

    def expired(self) -> bool:
        return self.at is not None and time.perf_counter() >= self.at

    def check(self) -> None:
        """Raise TimeUp if the deadline has passed."""
        if self.expired():
            raise TimeUp

    def remaining(self) -> float | None:
        """Return the seconds that are left, at least 0; None without a deadline."""
        return None if self.at is None else max(self.at - time.perf_counter(), 0.0)


NEVER = Deadline()
"""No deadline."""
