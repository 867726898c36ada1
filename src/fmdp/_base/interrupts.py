"""Deferred Ctrl-C and SIGTERM, where an exception would leave something half done.

Python raises KeyboardInterrupt in the main thread at any instruction. That is right for work that
is thrown away, and wrong while other threads write into arrays that are used again, or while a
result is saved: a second Ctrl-C would end the wait for the first. `held` notes the signals instead
and raises them when it ends; meanwhile the caller polls `came` and stops early. Work of many short
steps holds signals with `shut` False and sets it only while a step is half done, because changing
handlers would take longer than the step.

Signals arrive in the main thread only; in other threads `held` does nothing.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType

INTERRUPTS = (signal.SIGINT, signal.SIGTERM)
Handler = Callable[[int, FrameType | None], object]


class Held:
    """Signals that are held, and the first one that came."""

    def __init__(self, shut: bool) -> None:
        self.came: int | None = None
        """The first pending signal, or None."""
        self.shut = shut
        """True if signals wait, False if they are handled at once."""
        self.before: dict[signal.Signals, Handler] = {}
        """The original handlers."""

    def note(self, number: int, frame: FrameType | None) -> None:
        if not self.shut:
            self.before[signal.Signals(number)](number, frame)
        elif self.came is None:
            self.came = number

    def let_through(self) -> None:
        """Handle signals at once from now on. A pending one is handled first, while others still
        wait."""
        if self.came is not None:
            number, self.came = self.came, None
            self.before[signal.Signals(number)](number, None)
        self.shut = False


@contextlib.contextmanager
def held(*, shut: bool = True) -> Iterator[Held]:
    """Defer signals that would raise an exception until this context ends."""
    signals = Held(shut)
    if threading.current_thread() is not threading.main_thread():
        yield signals
        return
    # Signals that are ignored or kill the process keep their handlers.
    handlers = {number: signal.getsignal(number) for number in INTERRUPTS}
    before = {number: handler for number, handler in handlers.items() if callable(handler)}
    signals.before.update(before)
    for number in before:
        signal.signal(number, signals.note)
    try:
        yield signals
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if signals.came is not None:
            signal.raise_signal(signals.came)
