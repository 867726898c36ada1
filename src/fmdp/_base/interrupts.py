"""Ctrl-C and SIGTERM where an exception between two instructions would leave something half done.

Python raises KeyboardInterrupt in the main thread wherever it is.  That is right for work that is
thrown away, and wrong while other threads still write into arrays that are used again, or while a
result is being saved: a second Ctrl-C would end the wait for the first.  `held` notes the signals
instead and raises them when it ends; whoever holds them looks at `came` and hurries.  Work of many
short steps holds them open, and shut while a step is half done: to change handlers would take
longer than the step.

Signals arrive in the main thread alone; in any other, `held` does nothing and costs nothing.
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
    """What came while signals were held."""

    def __init__(self, shut: bool) -> None:
        self.came: int | None = None
        """The first signal that waits; None as long as there was none."""
        self.shut = shut
        """Whether signals wait, or do what they would have done."""
        self.before: dict[signal.Signals, Handler] = {}
        """What they would have done."""

    def note(self, number: int, frame: FrameType | None) -> None:
        if not self.shut:
            self.before[signal.Signals(number)](number, frame)
        elif self.came is None:
            self.came = number

    def let_through(self) -> None:
        """Open; a signal that waits comes now, and while its exception is on its way no other."""
        if self.came is not None:
            number, self.came = self.came, None
            self.before[signal.Signals(number)](number, None)
        self.shut = False


@contextlib.contextmanager
def held(*, shut: bool = True) -> Iterator[Held]:
    """Signals that would raise an exception are noted, and raise it when this ends."""
    signals = Held(shut)
    if threading.current_thread() is not threading.main_thread():
        yield signals
        return
    # Where a signal is ignored or kills the process, it goes on to do so.
    found = {number: signal.getsignal(number) for number in INTERRUPTS}
    before = {number: handler for number, handler in found.items() if callable(handler)}
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
