"""Compiled functions: Numba's `njit`, kept on disk between runs where there is a place for it.

Numba keeps what it has compiled beside the source, or else in the user's cache directory, and
refuses to begin where it can write to neither: a read-only installation in a container without a
home.  There everything is compiled again in every run, which is slow and nothing else; it is said
once, in one line.

LLVM hands over the machine code of a function by a call back into Python, where an exception is
thrown away: a Ctrl-C in it was lost, and the function with it ("no compiled object yet").  Signals
wait while one function's code is made.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import numba
from numba.core import event

from fmdp.interrupts import Held, held

_said = False


class _SignalsWait(event.Listener):
    """Between the events of Numba's pass that makes the code; one may be inside another."""

    def __init__(self) -> None:
        self._here = threading.local()

    def on_start(self, event: Any) -> None:
        if _makes_code(event):
            waiting = held()
            waiting.__enter__()
            self._inside().append(waiting)

    def on_end(self, event: Any) -> None:
        if _makes_code(event) and self._inside():
            self._inside().pop().__exit__(None, None, None)

    def _inside(self) -> list[AbstractContextManager[Held]]:
        if not hasattr(self._here, "stack"):
            self._here.stack = []
        stack: list[AbstractContextManager[Held]] = self._here.stack
        return stack


def _makes_code(event: Any) -> bool:
    """The pass native_lowering, and its like for parallel loops."""
    return "lowering" in event.data["name"].partition(" ")[0]


event.register("numba:run_pass", _SignalsWait())  # type: ignore[no-untyped-call]


def njit(**flags: Any) -> Callable[[Callable[..., Any]], Any]:
    """`numba.njit(cache=True, ...)`, without the cache where it has no place."""

    def decorate(function: Callable[..., Any]) -> Any:
        try:
            return numba.njit(cache=True, **flags)(function)
        except RuntimeError as error:
            if "no locator available" not in str(error):
                raise
            _say_once()
            return numba.njit(**flags)(function)

    return decorate


def _say_once() -> None:
    from multiprocessing import parent_process

    global _said
    if not _said and parent_process() is None:  # the workers of a sweep have nothing to add
        print(
            "fmdp: compiled code cannot be kept, and is compiled in every run: neither the "
            "installation nor a cache directory is writable (NUMBA_CACHE_DIR names another)",
            file=sys.stderr,
        )
    _said = True
