"""Worker threads for independent pieces of a sweep, with signals and a deadline."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fmdp._base.deadlines import Deadline, TimeUp
from fmdp._base.interrupts import held
from fmdp.elimination import tuning
from fmdp.errors import InvalidParameter

if TYPE_CHECKING:  # loaded at run time by large models alone
    from concurrent.futures import Future, ThreadPoolExecutor

Share = tuple[int, int, int]
"""The number of a thread, and the first and end piece that it works on."""


def usable_cores() -> int:
    """Return the number of cores this process may use; FMDP_THREADS overrides it. Worker processes
    set FMDP_THREADS to 1."""
    setting = os.environ.get("FMDP_THREADS", "").strip()
    if setting:
        if not setting.isdecimal() or int(setting) < 1:
            raise InvalidParameter(
                f"the environment variable FMDP_THREADS must be an integer >= 1; got {setting!r}"
            )
        return int(setting)
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


def run_in_pool(
    work: Callable[[Share], object],
    pieces: int,
    threads: int,
    stop: NDArray[np.int64],
    deadline: Deadline,
) -> None:
    """Run `work` on all pieces in a pool of threads; raise TimeUp past the deadline. On a signal or
    past the deadline `stop[0]` is set, which running kernels poll. No thread is at work any more
    when this returns or raises."""
    from concurrent.futures import wait

    workers = min(threads, pieces)
    shares = min(pieces, tuning.PIECES_PER_THREAD * workers)
    bounds = [pieces * share // shares for share in range(shares + 1)]
    left = deque(range(shares))

    def worker(thread: int) -> None:
        while left:
            try:
                share = left.popleft()
            except IndexError:  # another thread was faster
                return
            work((thread, bounds[share], bounds[share + 1]))

    started: list[Future[None]] = []
    late = False
    # The buffers are used again, so signals wait until no thread writes into them any more.
    with held() as signals:
        try:
            for thread in range(workers):
                started.append(_pool(threads).submit(worker, thread))
            while wait(started, tuning.POLL_SECONDS).not_done:
                late = deadline.expired()
                if late or signals.came is not None:
                    break
        finally:
            stop[0] = 1
            left.clear()
            wait(started)
    if late:
        raise TimeUp
    for future in started:
        future.result()


_POOLS: dict[tuple[int, int], ThreadPoolExecutor] = {}


def _pool(threads: int) -> ThreadPoolExecutor:
    """Return the pool of this process for a number of threads; starting one per sweep is slow."""
    key = (os.getpid(), threads)
    if key not in _POOLS:
        from concurrent.futures import ThreadPoolExecutor

        _POOLS[key] = ThreadPoolExecutor(threads, thread_name_prefix="fmdp-sweep")
    return _POOLS[key]
