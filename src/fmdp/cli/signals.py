"""Ctrl-C and SIGTERM of the program: the same ending, told apart by the exit status.

Both raise KeyboardInterrupt, which planning and learning turn into what is known so far; 130 is
the status after Ctrl-C and 143 after SIGTERM, as a shell has them for a program that died of the
signal.  Once the program is ending, signals are noted and raise nothing: a traceback from the exit
of the interpreter would be the answer to the second Ctrl-C of an impatient user.

This module is read before any other of the command line and imports next to nothing.
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
    """Ctrl-C or SIGTERM. A class of its own: if KeyboardInterrupt itself passes through code that
    is compiled from a text, as dataclasses are, `python -m fmdp` ends by a SIGINT of Python's own,
    whatever status is asked for (`unhandled_keyboard_interrupt` in pythonrun.c)."""


class Signals:
    """What one run of the program does about signals."""

    def __init__(self, *, whole_program: bool) -> None:
        """`whole_program`: nothing follows but the end of the interpreter."""
        self.over = False
        self._whole_program = whole_program
        self._terminated = False
        self._sent_again = False
        """A signal that came at a bad moment is on its way once more; others are that one."""
        self._before: dict[signal.Signals, Any] = {}
        self._hook = sys.unraisablehook

    def listen(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        for number in _SIGNALS:
            handler = signal.getsignal(number)
            # `nohup` and shells that start programs in the background ignore a signal on purpose.
            if handler is not signal.SIG_IGN:
                self._before[number] = handler
                signal.signal(number, self._raise)
        sys.unraisablehook = self._unraisable

    def leave(self) -> None:
        """A program goes on to ignore them; a caller in Python gets back what was there."""
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_IGN if self._whole_program else handler)
        if not self._whole_program:
            sys.unraisablehook = self._hook

    def _raise(self, number: int, frame: FrameType | None) -> None:
        if self.over:
            return
        self._terminated = self._terminated or number == signal.SIGTERM
        while frame is not None:
            if frame.f_code is Signals._unraisable.__code__:
                self._send_again()  # from the hook it would be printed and lost
                break
            frame = frame.f_back
        if not self._sent_again:
            raise Heard

    def _unraisable(self, what: Any) -> None:
        """A signal that came inside a destructor or a callback from C would be printed and lost:
        it is sent again, when this, which is such a callback itself, has ended."""
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

    def say(self, interrupt: KeyboardInterrupt) -> int:
        """One line, which may come with the interrupt."""
        say(str(interrupt) or "interrupted")
        return INTERRUPTED

    def status(self, status: int) -> int:
        return TERMINATED if status == INTERRUPTED and self._terminated else status


def say(line: str) -> None:
    """One line on standard error, if that can still be written to."""
    try:
        print(f"fmdp: {printable(line)}", file=sys.stderr, flush=True)
    except OSError:
        into_nothing(2)


def into_nothing(descriptor: int) -> None:
    """What is still in a buffer for this descriptor goes nowhere, and the interpreter that flushes
    it at its exit has nothing to complain about."""
    with contextlib.suppress(OSError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, descriptor)
        os.close(nowhere)
