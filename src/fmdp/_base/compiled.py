"""Compiled functions: Numba's `njit`, kept on disk between runs where there is a place for it.

Numba itself is imported when a function is called whose machine code was not kept
(machine_code.py): a small plan, a second time, needs none of it. From then on everything is
Numba's own, as if it had been there from the beginning; so it is where many calls have been made,
since Numba takes less time for a call.

Numba keeps what it has compiled beside the source, or else in the user's cache directory, and
refuses to begin where it can write to neither: a read-only installation in a container without a
home.  There everything is compiled again in every run, which is slow and nothing else; it is said
once, in one line.

LLVM hands over the machine code of a function by a call back into Python, where an exception is
thrown away: a Ctrl-C in it was lost, and the function with it ("no compiled object yet").  Signals
wait while one function's code is made.
"""

from __future__ import annotations

import atexit
import functools
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any, Protocol

from fmdp._base.interrupts import Held, held
from fmdp._base.machine_code import (
    Loaded,
    Source,
    flattened,
    keep,
    load,
    note_compiling,
    source_of,
    stamp_cache,
)

CALLS_WITHOUT_NUMBA = 30_000
"""After which Numba is loaded: they have lost about as much time as that takes."""

_said = False
_calls = 0
_numba: Any = None
_loading = threading.RLock()
_listeners: list[tuple[str, Listener, list[Callable[[], None]]]] = []
_dispatchers: list[tuple[Source, Any]] = []


class Deferred:
    """What stands for something of Numba's as long as it is not loaded; `load_numba` puts the thing
    itself in its place wherever a module of fmdp has it."""

    @property
    def for_numba(self) -> Any:
        raise NotImplementedError


def deferred(name: Deferred) -> Any:
    """The name, or the thing itself where Numba is there already."""
    note_compiling(name.__module__)
    if "numba" not in sys.modules:
        return name
    load_numba()
    return name.for_numba


class Kernel(Deferred):
    """A compiled function."""

    def __init__(self, function: Callable[..., Any], flags: dict[str, Any]) -> None:
        self._function, self._flags = function, flags
        self._source = source_of(function)
        self._code: dict[str, Loaded] = {}
        functools.update_wrapper(self, function)

    @functools.cached_property
    def for_numba(self) -> Any:
        """Numba's own function."""
        return _compiled(self._function, self._flags, self._source)

    @property
    def _numba_type_(self) -> Any:
        """By which Numba knows what a compiled function calls."""
        return self.for_numba._numba_type_

    def __call__(self, *arguments: Any) -> Any:
        if _numba is None and "numba" not in sys.modules:
            found = flattened(arguments)
            if found is not None:
                loaded = self._code.get(found[0])
                if loaded is None:
                    loaded = load(self._source, found[0])
                if loaded is not None:
                    self._code[found[0]] = loaded
                    _count()
                    return loaded.call(found[1])
        load_numba()
        return self.for_numba(*arguments)


def _count() -> None:
    global _calls
    _calls += 1
    if _calls >= CALLS_WITHOUT_NUMBA:
        load_numba()


def njit(**flags: Any) -> Callable[[Callable[..., Any]], Any]:
    """`numba.njit(cache=True, ...)`, without the cache where it has no place."""

    def decorate(function: Callable[..., Any]) -> Any:
        return deferred(Kernel(function, flags))

    return decorate


class Listener(Protocol):
    """Told when something of Numba's begins and ends."""

    def on_start(self, event: Any, /) -> None: ...
    def on_end(self, event: Any, /) -> None: ...


@contextmanager
def listening(kind: str, listener: Listener) -> Iterator[None]:
    """Numba's events of a kind are told; nothing is told, or loaded, as long as it is not there."""
    if "numba" in sys.modules:
        load_numba()
    with _loading:
        heard = [] if _numba is None else [_registered(kind, listener)]
        waiting = (kind, listener, heard)
        _listeners.append(waiting)
    try:
        yield
    finally:
        with _loading:
            _listeners.remove(waiting)
        for stop in heard:
            stop()


def _registered(kind: str, listener: Listener) -> Callable[[], None]:
    """What is returned ends it."""
    from numba.core import event

    class Heard(event.Listener):
        def on_start(self, event: Any) -> None:
            listener.on_start(event)

        def on_end(self, event: Any) -> None:
            listener.on_end(event)

    heard = Heard()
    event.register(kind, heard)  # type: ignore[no-untyped-call]
    return lambda: event.unregister(kind, heard)  # type: ignore[no-untyped-call]


def load_numba() -> Any:
    """Numba, and its functions in the place of all kernels."""
    global _numba
    with _loading:
        if _numba is not None:
            return _numba
        import numba

        _numba = numba
        _registered("numba:run_pass", _SignalsWait())
        for name, module in list(sys.modules.items()):
            if name.partition(".")[0] != "fmdp" or module is None:
                continue
            for own, value in list(vars(module).items()):
                if isinstance(value, Deferred):
                    setattr(module, own, value.for_numba)
        for kind, listener, heard in _listeners:
            heard.append(_registered(kind, listener))
        atexit.register(_keep)
        return _numba


def _compiled(function: Callable[..., Any], flags: dict[str, Any], source: Any) -> Any:
    try:
        dispatcher = load_numba().njit(cache=True, **flags)(function)
    except RuntimeError as error:
        if "no locator available" not in str(error):
            raise
        _say_once()
        return load_numba().njit(**flags)(function)
    stamp_cache(source, dispatcher)
    if "no_cpython_wrapper" not in flags:  # else Python never calls it
        _dispatchers.append((source, dispatcher))
    return dispatcher


def _keep() -> None:
    """At the end of a process that has needed Numba: the next one may not."""
    with held():
        for source, dispatcher in _dispatchers:
            # Numba's inside may change: then nothing is kept, and everything works as before.
            with suppress(Exception):
                keep(source, dispatcher)


class _SignalsWait:
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
