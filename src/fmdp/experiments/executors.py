"""Where runs are done: in this process, in worker processes of this machine, or on a Dask cluster.

All three are used through `concurrent.futures`: `submit` gives a future, and a future whose worker
died raises one of `lost`. `rebuild` then makes the workers anew.

Worker processes are spawned, never forked (a fork after a parallel kernel kills the pool), ignore
Ctrl-C, which is the driver's business, and compute on one thread each. They hang on a lifeline, a
pipe whose other end only the driver holds: when it closes, because the driver says so or because
the driver was killed, they end at once. No worker outlives its sweep.

This module imports nothing heavy: a worker reads it before its number of threads is set.
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


_LET_GO = threading.local()


def let_go() -> bool:
    """Whether nobody waits any more for what this thread is doing."""
    event: threading.Event | None = getattr(_LET_GO, "event", None)
    return event is not None and event.is_set()


class Workers(ABC):
    """Use as a context manager: leaving it, by whatever error, leaves no worker behind."""

    lost: tuple[type[BaseException], ...] = ()
    """What a future raises when its worker died, as opposed to its run failing."""
    all_fall_together = False
    """Whether the death of one worker ends every future."""

    @property
    @abstractmethod
    def size(self) -> int:
        """How many runs are made at a time."""

    @property
    def spare(self) -> int:
        """How many more should be at hand, so that no worker waits for the next to travel."""
        return 0

    @abstractmethod
    def submit(self, function: Callable[[A], T], argument: A) -> Future[T]: ...

    def check(self) -> None:  # noqa: B027 - most have nothing to check
        """FmdpError if no future can end any more."""

    @abstractmethod
    def rebuild(self) -> None:
        """Make the workers anew after a future was lost; all futures have ended by then."""

    @abstractmethod
    def close(self, *, at_once: bool) -> None:
        """Let the workers go; at once, or when what they are doing is done."""

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
    """One run after another, here: for notebooks and comparisons.

    On a thread of its own, so that Ctrl-C reaches the driver and not the middle of a plan. A run
    under way is told (`let_go`) and ends soon after: a program must not wait for it to exit.
    """

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(1)
        self._let_go = threading.Event()

    @property
    def size(self) -> int:
        return 1

    def submit(self, function: Callable[[A], T], argument: A) -> Future[T]:
        def called() -> T:
            _LET_GO.event = self._let_go
            return function(argument)

        return self._executor.submit(called)

    def rebuild(self) -> None:
        pass

    def close(self, *, at_once: bool) -> None:
        if at_once:
            self._let_go.set()
        self._executor.shutdown(wait=not at_once, cancel_futures=True)


class Processes(Workers):
    """Spawned worker processes on this machine."""

    lost = (BrokenProcessPool,)
    all_fall_together = True

    def __init__(self, workers: int | None = None) -> None:
        """As many workers as there are cores that this process may use, or so many."""
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
        # Submitting is what starts a process, which takes over the environment and the mask.
        # A signal in the middle of it would leave a pool that is half there.
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
        # Whoever is impatient waits for them all the same, once they are to go: one that still
        # starts would find nothing of this process, and say so in a traceback of its own.
        with held(shut=at_once):
            if at_once:
                writer.close()
            executor.shutdown(wait=True, cancel_futures=True)
            writer.close()
            reader.close()


class Dask(Workers):
    """An existing Dask cluster, by the address of its scheduler.

    Dask itself sends the runs of a dead worker to another one, a few times; only then a future is
    lost. Workers must have the same fmdp (each run checks).
    """

    def __init__(self, address: str) -> None:
        distributed = needs("distributed", "dask")
        # What Dask, and Tornado for its callbacks, log about a lost scheduler, `check` says in one
        # line.
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
        # Workers may come and go; with none there, what is sent waits for the first.
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
    """An optional dependency, or an error that says which extra has it."""
    try:
        return importlib.import_module(module)
    except ImportError:
        raise FmdpError(
            f"this needs {module}, which is not installed; pip install 'fmdp[{extra}]'"
        ) from None


def _on_one_thread(function: Callable[[A], T], argument: A) -> T:
    """In a process that was there before: what is read when threads are wanted can still be set."""
    os.environ["FMDP_THREADS"] = "1"
    return function(argument)


def _begin_work(lifeline: Connection) -> None:
    """The first thing that a worker process does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # where there is no mask to take over
    threading.Thread(target=_end_with, args=(lifeline,), daemon=True).start()


def _end_with(lifeline: Connection) -> None:
    with contextlib.suppress(EOFError, OSError):
        lifeline.recv()  # nothing is ever sent: it returns when the other end closes
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
    """A process started meanwhile does not run the user's script again, which would start a sweep
    of its own where the script has no guard. What a task needs is in modules."""
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
    """A Ctrl-C meanwhile waits until this ends; a process started meanwhile never gets one."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
