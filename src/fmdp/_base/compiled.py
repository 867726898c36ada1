"""Lazy Numba: `njit` functions that import Numba when the first of them is called.

To import Numba takes longer than to plan for a small model, which needs no compiled function
(planning/exact/small.py). So `njit` returns a `Kernel`, and the first call of any kernel imports
Numba and puts its dispatchers in the place of all kernels.

Compiled code is cached in files (code_cache.py).

LLVM asks for compiled code by a callback into Python, which discards exceptions: a Ctrl-C in it was
lost, and the function with it ("no compiled object yet"). Signals are held back while the code of
one function is made.
"""

from __future__ import annotations

import functools
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Protocol

from fmdp._base.code_cache import CodeCache
from fmdp._base.interrupts import Held, held

_numba: Any = None
_seconds = 0.0
"""Spent on importing Numba, compiling, and loading from its cache."""
_lock = threading.RLock()
_listeners: list[tuple[str, Listener, list[Callable[[], None]]]] = []
_compiling: set[str] = set()
"""Modules with compiled functions, or with parts of them."""


class Deferred:
    """A stand-in for an object of Numba's; `load_numba` replaces it in all modules of fmdp."""

    @property
    def for_numba(self) -> Any:
        raise NotImplementedError


def deferred(name: Deferred) -> Any:
    """Return the stand-in, or the object itself if Numba is loaded."""
    _files(name.__module__)
    if _numba is None:
        return name
    return name.for_numba


class Kernel(Deferred):
    """A function to be compiled."""

    def __init__(self, function: Callable[..., Any], flags: dict[str, Any]) -> None:
        self._function, self._flags = function, flags
        # When the function is defined: the files may be edited before Numba is loaded.
        self._stamp = source_stamp(function)
        functools.update_wrapper(self, function)

    @functools.cached_property
    def for_numba(self) -> Any:
        """Numba's dispatcher."""
        return _dispatcher(self._function, self._flags, self._stamp)

    @property
    def _numba_type_(self) -> Any:
        """The type by which Numba resolves a kernel that a compiled function calls."""
        return self.for_numba._numba_type_

    def __call__(self, *arguments: Any) -> Any:
        load_numba()
        return self.for_numba(*arguments)


def njit(**flags: Any) -> Callable[[Callable[..., Any]], Any]:
    """Return `numba.njit(...)` with a cache, deferred to the first call of a kernel."""

    def decorate(function: Callable[..., Any]) -> Any:
        return deferred(Kernel(function, flags))

    return decorate


class Listener(Protocol):
    """Receives the events of Numba: https://numba.readthedocs.io/en/stable/developer/event_api.html"""

    def on_start(self, event: Any, /) -> None: ...
    def on_end(self, event: Any, /) -> None: ...


@contextmanager
def listening(kind: str, listener: Listener) -> Iterator[None]:
    """Send Numba's events of a kind to the listener. This does not load Numba."""
    if "numba" in sys.modules:
        load_numba()
    with _lock:
        unregister = [] if _numba is None else [_registered(kind, listener)]
        entry = (kind, listener, unregister)
        _listeners.append(entry)
    try:
        yield
    finally:
        with _lock:
            _listeners.remove(entry)
        for stop in unregister:
            stop()


def _registered(kind: str, listener: Listener) -> Callable[[], None]:
    """Register the listener with Numba, and return a function that unregisters it."""
    from numba.core import event

    class Forward(event.Listener):
        def on_start(self, event: Any) -> None:
            listener.on_start(event)

        def on_end(self, event: Any) -> None:
            listener.on_end(event)

    forward = Forward()
    event.register(kind, forward)  # type: ignore[no-untyped-call]
    return lambda: event.unregister(kind, forward)  # type: ignore[no-untyped-call]


def load_numba() -> Any:
    """Import Numba, replace all stand-ins, and return the module."""
    global _numba
    with _lock:
        if _numba is not None:
            return _numba
        global _seconds
        started = time.perf_counter()
        import numba

        _numba = numba
        _registered("numba:run_pass", _HoldSignals())
        # Numba holds this lock while it compiles a function or loads one from its cache.
        _registered("numba:compiler_lock", _Clock())
        for name, module in list(sys.modules.items()):
            if name.partition(".")[0] != "fmdp" or module is None:
                continue
            for attribute, value in list(vars(module).items()):
                if isinstance(value, Deferred):
                    setattr(module, attribute, value.for_numba)
        for kind, listener, unregister in _listeners:
            unregister.append(_registered(kind, listener))
        _seconds += time.perf_counter() - started
        return _numba


def seconds_loading() -> float:
    """Return the time that this process has spent on importing Numba, compiling, and loading
    compiled code from the cache."""
    return _seconds


def _dispatcher(function: Callable[..., Any], flags: dict[str, Any], stamp: str) -> Any:
    dispatcher = load_numba().njit(**flags)(function)
    # Where Numba assigns its own cache for `njit(cache=True)`.
    dispatcher._cache = CodeCache(function, stamp)
    return dispatcher


def source_stamp(function: Callable[..., Any]) -> str:
    """Return the dates and sizes of the files that the compiled code of a function is made of: its
    own, and those of the modules whose compiled functions its module imports."""
    files = _files(function.__module__) | {function.__code__.co_filename}
    return "; ".join(map(_stamp_of_file, sorted(files)))


@functools.cache
def _files(module: str) -> frozenset[str]:
    """Return the files that the compiled functions of a module are made of.

    It is first called where the first function of the module is defined, after its imports.
    """
    definition = sys.modules.get(module)
    if definition is None:
        return frozenset()
    origins = {getattr(value, "__module__", None) for value in list(vars(definition).values())}
    imported = [_files(origin) for origin in _compiling & origins - {module}]
    _compiling.add(module)
    return frozenset({getattr(definition, "__file__", None) or ""}.union(*imported))


@functools.cache
def _stamp_of_file(path: str) -> str:
    try:
        status = Path(path).stat()
    except OSError:
        return ""
    return f"{status.st_mtime_ns} {status.st_size}"


class _Clock:
    """Adds up the time between events, which may be nested; only one thread holds the lock."""

    def __init__(self) -> None:
        self._depth = 0
        self._since = 0.0

    def on_start(self, _: Any) -> None:
        self._depth += 1
        if self._depth == 1:
            self._since = time.perf_counter()

    def on_end(self, _: Any) -> None:
        global _seconds
        self._depth -= 1
        if self._depth == 0:
            _seconds += time.perf_counter() - self._since


class _HoldSignals:
    """Holds signals back between the events of Numba's lowering passes, which may be nested."""

    def __init__(self) -> None:
        self._thread = threading.local()

    def on_start(self, event: Any) -> None:
        if _is_lowering(event):
            waiting = held()
            waiting.__enter__()
            self._entered().append(waiting)

    def on_end(self, event: Any) -> None:
        if _is_lowering(event) and self._entered():
            self._entered().pop().__exit__(None, None, None)

    def _entered(self) -> list[AbstractContextManager[Held]]:
        if not hasattr(self._thread, "stack"):
            self._thread.stack = []
        stack: list[AbstractContextManager[Held]] = self._thread.stack
        return stack


def _is_lowering(event: Any) -> bool:
    """Return whether it is the pass native_lowering, or its counterpart for parallel loops."""
    return "lowering" in event.data["name"].partition(" ")[0]
