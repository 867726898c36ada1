"""Handling of Ctrl-C and SIGTERM, which differ only in the exit status.

Both raise KeyboardInterrupt, upon which planning and learning return what is known so far. The
status is 130 after Ctrl-C and 143 after SIGTERM, as shells report for a program killed by the
signal. While the program exits, further signals are ignored: a second Ctrl-C would otherwise print
a traceback of the interpreter's shutdown.

This module is imported before the rest of the command line and imports very little itself.
"""

from __future__ import annotations

import _thread
import contextlib
import os
import signal
import sys
import threading
import time
from types import FrameType
from typing import Any

from fmdp.errors import printable

INTERRUPTED = 130
TERMINATED = 143

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_SOON_SECONDS = 0.002


class Heard(KeyboardInterrupt):
    """Ctrl-C or SIGTERM.

    If KeyboardInterrupt itself passes through code that is compiled from text, as in dataclasses,
    `python -m fmdp` kills itself by SIGINT, whatever the status
    (`unhandled_keyboard_interrupt` in pythonrun.c); a subclass avoids that.
    """


class Signals:
    """Signal handlers during one run of the program."""

    def __init__(self, *, whole_program: bool) -> None:
        """`whole_program`: the interpreter exits afterwards."""
        self.over = False
        self._whole_program = whole_program
        self._terminated = False
        self.came = False
        """A signal was raised. A library in C may lose the exception, and the work then goes on."""
        self._sent_again = False
        """A signal is about to be sent again; signals that arrive meanwhile count as that one."""
        self._before: dict[signal.Signals, Any] = {}
        self._hook = sys.unraisablehook

    def listen(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        for number in _SIGNALS:
            handler = signal.getsignal(number)
            # `nohup`, and shells for background programs, set a signal to be ignored.
            if handler is not signal.SIG_IGN:
                self._before[number] = handler
                signal.signal(number, self._raise)
        sys.unraisablehook = self._unraisable

    def leave(self) -> None:
        """Ignore signals until the program exits, or restore the handlers of a Python caller."""
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_IGN if self._whole_program else handler)
        if not self._whole_program:
            sys.unraisablehook = self._hook

    def _raise(self, number: int, frame: FrameType | None) -> None:
        if self.over:
            return
        self.came = True
        self._terminated = self._terminated or number == signal.SIGTERM
        while frame is not None:
            if frame.f_code is Signals._unraisable.__code__:
                self._send_again()  # an exception in the hook would be printed and lost
                break
            frame = frame.f_back
        if not self._sent_again:
            raise Heard

    def _unraisable(self, what: Any) -> None:
        """Send a signal again that arrived inside a destructor or a callback from C.

        Python would print it and go on. It is sent after this hook, itself a callback, has ended.
        """
        if not issubclass(what.exc_type, KeyboardInterrupt):
            self._hook(what)
        elif not self.over:
            self._send_again()

    def _send_again(self) -> None:
        if self._sent_again:
            return
        self._sent_again = True
        _thread.start_new_thread(self._send_soon, ())

    def _send_soon(self) -> None:
        time.sleep(_SOON_SECONDS)
        self._sent_again = False
        if not self.over:
            _thread.interrupt_main(signal.SIGTERM if self._terminated else signal.SIGINT)

    def report(self, interrupt: KeyboardInterrupt | None = None) -> int:
        """Print the message of the interrupt, or "interrupted", and return the status."""
        say(str(interrupt or "") or "interrupted")
        return INTERRUPTED

    def status(self, status: int) -> int:
        return TERMINATED if status == INTERRUPTED and self._terminated else status


MOST_CHARACTERS = 2000
"""Most characters of an error message, which may quote names of any length from a file."""


def say(line: str) -> None:
    """Print one line to standard error, if that can still be written to."""
    if len(line) > MOST_CHARACTERS:
        line = f"{line[:MOST_CHARACTERS]}..."
    try:
        print(f"fmdp: {printable(line)}", file=sys.stderr, flush=True)
    except OSError:
        discard_output(2)


def discard_output(descriptor: int) -> None:
    """Redirect a descriptor to the null device, so that flushing it at exit cannot fail."""
    with contextlib.suppress(OSError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, descriptor)
        os.close(null)
