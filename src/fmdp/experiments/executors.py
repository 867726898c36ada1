"""Executors of runs: this process, worker processes of this machine, or a Dask cluster.

All three are used like `concurrent.futures`: `submit` returns a future, and a future whose worker
died raises one of `lost`; `rebuild` then restarts the workers.

Worker processes are spawned, never forked (a fork after a parallel kernel kills the pool), ignore
Ctrl-C, which the driver handles, and use one thread each. They exit when the driver does, so no
worker outlives its sweep, even if the driver is killed. Each has a connection and a thread of the
driver of its own. `concurrent.futures.ProcessPoolExecutor` would wait forever for the rest of a
message whose sender was killed, and for pipes that a child of a worker keeps open.

This module imports nothing heavy: a worker imports it before its number of threads is set.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import logging
import os
import pickle
import queue
import signal
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from fmdp._base.code_cache import cache_directories
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
# Workers are started by `python -c`, which would search for modules in the current folder first.
SURROUNDINGS = {**ONE_THREAD, "PYTHONSAFEPATH": "1"}
_SECONDS_TO_CONNECT = 10.0
_SECONDS_TO_EXIT = 2.0
"""Time for an idle worker to exit before it is killed."""
_TICK_SECONDS = 0.2
_SECONDS_BETWEEN_COUNTS = 1.0
_TASK_SECONDS = 1.0
"""Work of a Dask task: covers the four messages between a result and the next task of a worker, up
to 250 ms each way (docs/how-many-machines.md)."""
_SCHEDULER_SECONDS = 0.01
"""Least time between two tasks of the whole cluster. The scheduler needs 2 ms of it per task."""

_THREAD = threading.local()


def is_cancelled() -> bool:
    """Return whether the result of this thread is no longer wanted."""
    event: threading.Event | None = getattr(_THREAD, "cancelled", None)
    return event is not None and event.is_set()


class Workers(ABC):
    """Workers that make runs. A context manager: leaving it ends all workers."""

    lost: tuple[type[BaseException], ...] = ()
    """Exceptions of a future whose worker died."""

    @property
    @abstractmethod
    def size(self) -> int:
        """Number of runs made at a time."""

    @property
    def spare(self) -> int:
        """Number of additional tasks to submit, so that no worker waits for the next one."""
        return 0

    @property
    def task_seconds(self) -> float:
        """Seconds of work that one task should have, so that handing it over costs little.

        Short runs share a task. They are stored together when it ends, and a worker that dies
        loses all of them. At 0 every run is a task.
        """
        return 0.0

    @abstractmethod
    def submit(self, function: Callable[[A], T], argument: A) -> Future[T]: ...

    def check(self) -> None:  # noqa: B027 - most have nothing to check
        """Raise FmdpError if no future can end any more."""

    @abstractmethod
    def rebuild(self) -> None:
        """Replace workers that died, after a future was lost."""

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


class WorkerDied(Exception):
    """The worker process ended before the run that it was making."""


class Processes(Workers):
    """Spawned worker processes on this machine."""

    lost = (WorkerDied,)

    def __init__(self, workers: int | None = None) -> None:
        """Start this many workers on demand; by default one per usable core."""
        if workers is not None and workers < 1:
            raise InvalidParameter(f"the number of workers must be at least 1; got {workers}")
        if workers is None:
            from fmdp.elimination.backup import usable_cores

            workers = usable_cores()
        self._size = workers
        self._workers: list[_WorkerProcess] = []
        self._tasks: _Tasks = queue.SimpleQueue()
        self._unfinished: set[Future[Any]] = set()

    @property
    def size(self) -> int:
        return self._size

    @property
    def spare(self) -> int:
        return 1

    @property
    def task_seconds(self) -> float:
        return 0.1  # storing runs together saves more than the pipes cost

    def submit(self, function: Callable[[A], T], argument: A) -> Future[T]:
        future: Future[T] = Future()
        self._unfinished.add(future)
        future.add_done_callback(self._unfinished.discard)
        self._tasks.put((future, function, argument))
        self.rebuild()
        return future

    def rebuild(self) -> None:
        self._workers = [worker for worker in self._workers if worker.thread.is_alive()]
        cache_directories(Path(__file__))  # warns here about what each worker would meet
        try:
            while len(self._workers) < min(self._size, len(self._unfinished)):
                safe_path = os.environ.get("PYTHONSAFEPATH")
                # A process inherits the environment and the signal mask. A signal in the middle
                # would leave a half-started one.
                with held(), _environment(SURROUNDINGS), _interrupts_blocked(), _main_hidden():
                    self._workers.append(_WorkerProcess(self._tasks, safe_path))
        except OSError as error:
            raise FmdpError(
                f"worker processes cannot be started: {error.strerror or error}"
            ) from None

    def close(self, *, at_once: bool) -> None:
        workers, tasks = self._workers, self._tasks
        self._workers, self._tasks = [], queue.SimpleQueue()
        # Interrupts wait until the workers have ended, so that none is left behind.
        with held(shut=at_once), contextlib.ExitStack() as stack:
            for worker in workers:
                stack.callback(worker.kill)
            with contextlib.suppress(queue.Empty):
                while (task := tasks.get_nowait()) is not None:
                    task[0].cancel()
            for _ in workers:
                tasks.put(None)
            if not at_once:
                for worker in workers:
                    worker.dismiss()
                until = time.monotonic() + _SECONDS_TO_EXIT
                while any(w.is_alive() for w in workers) and time.monotonic() < until:
                    time.sleep(0.01)


_Tasks = queue.SimpleQueue["tuple[Future[Any], Callable[[Any], Any], Any] | None"]


class _WorkerProcess:
    """A process that makes one run after another, and the thread that hands them over."""

    def __init__(self, tasks: _Tasks, safe_path: str | None) -> None:
        """`safe_path` is the driver's own PYTHONSAFEPATH."""
        context = get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_work, args=(theirs, safe_path))
        with theirs:
            self._process.start()
        atexit.register(self.kill)  # multiprocessing would wait for it
        self.thread = threading.Thread(target=self._hand_over, args=(tasks,), daemon=True)
        self.thread.start()

    def _hand_over(self, tasks: _Tasks) -> None:
        while (task := tasks.get()) is not None:
            future, function, argument = task
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(self._call(function, argument))
            except BaseException as error:
                future.set_exception(error)
                if isinstance(error, WorkerDied):
                    return

    def _call(self, function: Callable[[A], T], argument: A) -> T:
        task = pickle.dumps((function, argument))
        try:
            self._connection.send_bytes(task)
            # The connection does not close if a child of the worker has a copy of it.
            while not self._connection.poll(_TICK_SECONDS):
                if not self._process.is_alive():
                    raise EOFError
            reply = self._connection.recv_bytes()
        except (EOFError, OSError):
            raise WorkerDied from None
        result, error = pickle.loads(reply)
        if error is not None:
            raise error
        return result  # type: ignore[no-any-return]

    def dismiss(self) -> None:
        """Wait for the current run, and let the process exit."""
        self.thread.join()
        self._connection.close()

    def is_alive(self) -> bool:
        return self._process.is_alive()

    def kill(self) -> None:
        atexit.unregister(self.kill)
        self._process.kill()  # unlike SIGTERM, it ends stopped processes too
        self._process.join()


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
        with self._or_gone():
            self._threads: int = sum(self._client.nthreads().values())
        self._counted = time.monotonic()

    @property
    def size(self) -> int:
        # Workers may come and go. They are counted in the background, since the scheduler may be
        # far. Without any, tasks wait for the first one.
        if time.monotonic() - self._counted > _SECONDS_BETWEEN_COUNTS:
            self._counted = time.monotonic()
            self._client.loop.add_callback(self._count_threads)
        return max(1, self._threads)

    async def _count_threads(self) -> None:
        with contextlib.suppress(OSError):  # `check` reports a lost scheduler
            self._threads = sum((await self._client.nthreads(asynchronous=True)).values())

    @property
    def spare(self) -> int:
        return self.size

    @property
    def task_seconds(self) -> float:
        return max(_TASK_SECONDS, _SCHEDULER_SECONDS * self.size)

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


def _work(connection: Connection, safe_path: str | None) -> None:
    """Make runs in a worker process until the driver closes the connection."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # for systems without signal masks
    # The programs that a learner or rule starts search for modules as usual.
    if safe_path is None:
        del os.environ["PYTHONSAFEPATH"]
    threading.Thread(target=_end_with_driver, daemon=True).start()
    with contextlib.suppress(EOFError, OSError):
        while True:
            connection.send_bytes(_reply(connection.recv_bytes()))


def _reply(task: bytes) -> bytes:
    """Return the pickled result and error of a task."""
    try:
        function, argument = pickle.loads(task)
        return pickle.dumps((function(argument), None))
    except BaseException as error:
        try:
            return pickle.dumps((None, error))
        except Exception:
            return pickle.dumps((None, RuntimeError(f"{type(error).__name__}: {error}")))


def _end_with_driver() -> None:
    driver = parent_process()
    assert driver is not None
    driver.join()
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
