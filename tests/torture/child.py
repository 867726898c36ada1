"""A child process with limits, forked from this one so that it need not import anything again."""

from __future__ import annotations

import json
import os
import resource
import signal
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

WAITING = 10
"""So many times its processor time may go by on the clock."""
MEMORY_BYTES = 2 << 30
"""What a child may take beyond what it was born with."""


@dataclass(frozen=True)
class Ended:
    """How a child ended: by itself with a result, by an exception, or by a signal."""

    result: Any = None
    error: str | None = None
    """The traceback of an exception that it should not have let through."""
    signal: int | None = None
    late: bool = False
    """It had to be killed because its time was over."""

    @property
    def bad(self) -> str | None:
        if self.late:
            return "took too long"
        if self.error is not None:
            return self.error
        return None if self.signal is None else f"died of signal {self.signal}"


def run(
    action: Callable[[], Any], *, kill_after: float | None = None, seconds: float = 120.0
) -> Ended:
    """Do it in a child; `kill_after` seconds it is killed, if it still lives. `seconds` are those
    of the processor, since a machine may have much else to do; endless waiting is found out too."""
    with tempfile.NamedTemporaryFile() as told:
        pid = os.fork()
        if pid == 0:
            _be_the_child(action, Path(told.name), seconds)
        started = time.monotonic()
        most = WAITING * seconds if kill_after is None else kill_after
        while True:
            found, status = os.waitpid(pid, os.WNOHANG)
            if found:
                break
            if time.monotonic() - started >= most:
                os.kill(pid, signal.SIGKILL)
                _, status = os.waitpid(pid, 0)
                return Ended(signal=signal.SIGKILL, late=kill_after is None)
            time.sleep(0.002)
        if os.WIFSIGNALED(status):
            number = os.WTERMSIG(status)
            return Ended(signal=number, late=number == signal.SIGXCPU)
        return Ended(**json.loads(Path(told.name).read_text() or '{"error": "said nothing"}'))


def _be_the_child(action: Callable[[], Any], told: Path, seconds: float) -> None:
    status = 1
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + MEMORY_BYTES
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        used = resource.getrusage(resource.RUSAGE_SELF)
        ends = int(used.ru_utime + used.ru_stime + seconds) + 1
        resource.setrlimit(resource.RLIMIT_CPU, (ends, ends + 60))
        silence = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silence, 1)
        os.dup2(silence, 2)
        told.write_text(json.dumps({"result": action()}))
        status = 0
    except BaseException:
        told.write_text(json.dumps({"error": traceback.format_exc()}))
    finally:
        os._exit(status)
