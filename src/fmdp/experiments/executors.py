"""Executors of runs: this process, worker processes of this machine, or a Dask cluster.

All three are used like `concurrent.futures`: `submit` returns a future, and a future whose worker
died raises one of `lost`; `rebuild` then restarts the workers.

Worker processes are spawned, never forked (a fork after a parallel kernel kills the pool), ignore
Ctrl-C, which the driver handles, and use one thread each. They watch a pipe whose other end only
the driver holds and exit when it closes, so no worker outlives its sweep, even if the driver is
killed.

This module imports nothing heavy: a worker imports it before its number of threads is set.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import signal
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any, TypeVar

from fmdp._base.interrupts import held
from fmdp.errors import FmdpError, InvalidParameter

T = TypeVar("T")
A = TypeVar("A")

ONE_THREAD = {
    "FMDP_THREADS": "1",
    "NUMBA_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}
_SECONDS_TO_CONNECT = 10.0

_THREAD = threading.local()


def is_cancelled() -> bool:
    """Return whether the result of this thread is no longer wanted."""
    event: threading.Event | None = getattr(_THREAD, "cancelled", None)
    return event is not None and event.is_set()


class Workers(ABC):
    """Workers that make runs. A context manager: leaving it ends all workers."""

    lost: tuple[type[BaseException], ...] = ()
    """Exceptions of a future whose worker died."""
    all_fall_together = False
    """True if the death of one worker ends all futures."""

    @property
    @abstractmethod
    def size(self) -> int:
        """Number of runs made at a time."""

    @property
    def spare(self) -> int:
        """Number of additional tasks to submit, so that no worker waits for the next one."""
        return 0

    @abstractmethod
    def submit(self, function: Callable[[A], T], argument: A) -> Future[T]: ...

    def check(self) -> None:  # noqa: B027 - most have nothing to check
        """Raise FmdpError if no future can end any more."""

    @abstractmethod
    def rebuild(self) -> None:
        """Restart the workers after a future was lost; all futures have ended by then."""

    @abstractmethod
    def close(self, *, at_once: bool) -> None:
        """End the workers, at once or after their current runs."""

    def __enter__(self) -> Workers:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close(at_once=kind is not None)


class InThisProcess(Workers):
    """Makes one run after another in a thread of this process.

    A separate thread, so that Ctrl-C reaches the driver and not the middle of a plan. A cancelled
    run (`is_cancelled`) ends soon after, so that the program can exit without waiting for it.
    """

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(1)
        self._cancelled = threading.Event()

    @property
    def size(self) -> int:
        return 1

    def submit(self, function: Callable[[A], T], argument: A) -> Future[T]:
        def called() -> T:
            _THREAD.cancelled = self._cancelled
            return function(argument)

        return self._executor.submit(called)

    def rebuild(self) -> None:
        pass

    def close(self, *, at_once: bool) -> None:
        if at_once:
            self._cancelled.set()
        self._executor.shutdown(wait=not at_once, cancel_futures=True)


class Processes(Workers):
    """Spawned worker processes on this machine."""

    lost = (BrokenProcessPool,)
    all_fall_together = True

    def __init__(self, workers: int | None = None) -> None:
        """Start this many workers on demand; by default one per usable core."""
        if workers is not None and workers < 1:
            raise InvalidParameter(f"the number of workers must be at least 1; got {workers}")
        if workers is None:
            from fmdp.elimination.backup import usable_cores

            workers = usable_cores()
        self._size = workers
        self._executor: Executor | None = None
        self._lifeline: tuple[Connection, Connection] | None = None

    @property
    def size(self) -> int:
        return self._size

    @property
    def spare(self) -> int:
        return 1

    def submit(self, function: Callable[[A], T], argument: A) -> Future[T]:
        if self._executor is None:
            context = get_context("spawn")
            self._lifeline = context.Pipe(duplex=False)
            self._executor = ProcessPoolExecutor(
                self._size, context, initializer=_begin_work, initargs=(self._lifeline[0],)
            )
        # Submitting may start a process, which inherits the environment and the signal mask.
        # A signal in the middle would leave a half-started pool.
        try:
            with held(), _environment(ONE_THREAD), _interrupts_blocked(), _main_hidden():
                return self._executor.submit(function, argument)
        except OSError as error:
            raise FmdpError(
                f"worker processes cannot be started: {error.strerror or error}"
            ) from None

    def rebuild(self) -> None:
        self.close(at_once=True)

    def close(self, *, at_once: bool) -> None:
        executor, lifeline = self._executor, self._lifeline
        self._executor = self._lifeline = None
        if executor is None or lifeline is None:
            return
        reader, writer = lifeline
        # Interrupts wait until the workers have ended: a worker that is still starting would
        # otherwise print a traceback.
        with held(shut=at_once):
            if at_once:
                writer.close()
            executor.shutdown(wait=True, cancel_futures=True)
            writer.close()
            reader.close()


class Dask(Workers):
    """An existing Dask cluster, by the address of its scheduler.

    Dask sends the runs of a dead worker to another one a few times before a future is lost. Workers
    must have the same version of fmdp, which each run checks.
    """

    def __init__(self, address: str) -> None:
        distributed = needs("distributed", "dask")
        # `check` reports a lost scheduler in one line, so Dask and Tornado need not log it.
        for name in ("distributed", "distributed.client", "tornado.application"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
        self.lost = (distributed.scheduler.KilledWorker,)
        self._address = address
        try:
            self._client = distributed.Client(address, timeout=_SECONDS_TO_CONNECT)
        except Exception as error:  # each transport has its own (TLS without keys: TypeError)
            line = " ".join(str(error).split()) or type(error).__name__
            raise InvalidParameter(
                f"--dask must be the address of a Dask scheduler, like tcp://host:8786; "
                f"got {address!r}: {line}"
            ) from None
        self._executor: Executor = self._client.get_executor(pure=False)

    @property
    def size(self) -> int:
        # Workers may come and go; without any, tasks wait for the first one.
        with self._or_gone():
            threads: int = sum(self._client.nthreads().values())
        return max(1, threads)

    @property
    def spare(self) -> int:
        return self.size

    def submit(self, function: Callable[[A], T], argument: A) -> Future[T]:
        with self._or_gone():
            return self._executor.submit(_on_one_thread, function, argument)

    def rebuild(self) -> None:
        pass  # Dask starts its workers itself

    def check(self) -> None:
        with self._or_gone():
            if self._client.status != "running":
                raise OSError

    @contextlib.contextmanager
    def _or_gone(self) -> Iterator[None]:
        try:
            yield
        except OSError:
            raise FmdpError(
                f"the Dask scheduler at {self._address} is gone; what is done is stored, and the "
                f"same command goes on when there is one"
            ) from None

    def close(self, *, at_once: bool) -> None:
        if self._client.status == "running":
            self._executor.shutdown(wait=not at_once)  # without waiting, Dask cancels
        self._client.close()


def needs(module: str, extra: str) -> Any:
    """Import an optional dependency, or raise FmdpError naming the extra that has it."""
    try:
        return importlib.import_module(module)
    except ImportError:
        raise FmdpError(
            f"this needs {module}, which is not installed; pip install 'fmdp[{extra}]'"
        ) from None


def _on_one_thread(function: Callable[[A], T], argument: A) -> T:
    """Call the function on one thread in a process that already runs."""
    os.environ["FMDP_THREADS"] = "1"
    return function(argument)


def _begin_work(lifeline: Connection) -> None:
    """Initialise a worker process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # for systems without signal masks
    threading.Thread(target=_end_with, args=(lifeline,), daemon=True).start()


def _end_with(lifeline: Connection) -> None:
    with contextlib.suppress(EOFError, OSError):
        lifeline.recv()  # returns when the other end closes; nothing is ever sent
    os._exit(0)


@contextlib.contextmanager
def _environment(settings: dict[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextlib.contextmanager
def _main_hidden() -> Iterator[None]:
    """Keep processes started meanwhile from importing the user's script.

    A script without a `__main__` guard would start another sweep. Tasks need only modules.
    """
    main = sys.modules.get("__main__")
    hidden = {name: getattr(main, name) for name in ("__file__", "__spec__") if hasattr(main, name)}
    for name in hidden:
        setattr(main, name, None) if name == "__spec__" else delattr(main, name)
    try:
        yield
    finally:
        for name, value in hidden.items():
            setattr(main, name, value)


@contextlib.contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Block Ctrl-C; processes started meanwhile inherit the mask and never receive it."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
