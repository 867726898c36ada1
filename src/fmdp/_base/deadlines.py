"""Deadlines: one object, passed down and asked by all work that is cut off when time is up."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass


class TimeUp(Exception):
    """A deadline passed inside a sweep or a preparation, whose results are incomplete."""


@dataclass(frozen=True)
class Deadline:
    """A point in time on a clock, or none.

    Attributes
    ----------
    at : float or None
        When the time is up; None is never.
    clock : callable
        Returns the time in seconds.
    """

    at: float | None = None
    clock: Callable[[], float] = time.perf_counter

    @classmethod
    def after(
        cls,
        seconds: float | None,
        started: float | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> Deadline:
        """Return the deadline that many seconds after `started`, by default now; None is never."""
        if seconds is None:
            return NEVER
        return cls(seconds + (clock() if started is None else started), clock)

    def expired(self) -> bool:
        return self.at is not None and self.clock() >= self.at

    def check(self) -> None:
        """Raise TimeUp if the deadline has passed."""
        if self.expired():
            raise TimeUp

    def remaining(self) -> float | None:
        """Return the seconds that are left, at least 0; None without a deadline."""
        return None if self.at is None else max(self.at - self.clock(), 0.0)


NEVER = Deadline()
"""No deadline."""
