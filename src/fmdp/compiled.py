"""Compiled functions: Numba's `njit`, kept on disk between runs where there is a place for it.

Numba keeps what it has compiled beside the source, or else in the user's cache directory, and
refuses to begin where it can write to neither: a read-only installation in a container without a
home.  There everything is compiled again in every run, which is slow and nothing else; it is said
once, in one line.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numba

_said = False


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
