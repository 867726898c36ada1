"""Ctrl-C and SIGTERM where an exception between two instructions would leave something half done.

Python raises KeyboardInterrupt in the main thread wherever it is.  That is right for work that is
thrown away, and wrong while other threads still write into arrays that are used again, or while a
result is being saved: a second Ctrl-C would end the wait for the first.  `held` notes the signals
instead and raises them when it ends; whoever holds them looks at `came` and hurries.

Signals arrive in the main thread alone; in any other, `held` does nothing and costs nothing.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

INTERRUPTS = (signal.SIGINT, signal.SIGTERM)


class Held:
    """What came while signals were held."""

    def __init__(self) -> None:
        self.came: int | None = None
        """The first signal; None as long as there was none."""

    def note(self, number: int, _: FrameType | None) -> None:
        if self.came is None:
            self.came = number


@contextlib.contextmanager
def held() -> Iterator[Held]:
    """Signals that would raise an exception are noted, and raise it when this ends."""
    signals = Held()
    if threading.current_thread() is not threading.main_thread():
        yield signals
        return
    # Where a signal is ignored or kills the process, it goes on to do so.
    before = {number: signal.getsignal(number) for number in INTERRUPTS}
    before = {number: handler for number, handler in before.items() if callable(handler)}
    for number in before:
        signal.signal(number, signals.note)
    try:
        yield signals
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if signals.came is not None:
            signal.raise_signal(signals.came)
