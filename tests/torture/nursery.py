"""Programs that need not start: `fmdp ARGUMENTS` in a process forked from a parent that is warm.

To start Python, import everything and load compiled code takes a second; what is tried takes a
tenth of that. The nursery does it once, and for every order forks a child that becomes the program:
its own directory, environment, standard streams and limits, `sys.argv`, and `main()` at the top of
the stack, so that it ends as programs end, with the exit of the interpreter. What a child cannot
show is how the program starts: `Fresh` is the same in a process of its own.

    with Nursery(place, warm=[["plan", "circle:3"]]) as nursery:
        running = nursery.start(["plan", "circle:8"])
        running.send(signal.SIGINT)
        ended = running.wait(60)
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import resource
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

MEMORY_BYTES = 6 << 30
TESTS = str(Path(__file__).parents[1])


@dataclass(frozen=True)
class Ended:
    """How a program has ended; a status below 0 is a signal."""

    status: int
    output: str
    errors: str
    peak_bytes: int | None = None
    seconds: float = 0.0
    """Of the processor."""

    def wrong(self, *allowed: int) -> str | None:
        """What no program may do: another status, or a traceback."""
        if self.status not in allowed:
            return f"status {self.status}: {self.errors[-500:]}"
        if "Traceback" in self.errors or "Exception ignored" in self.errors:
            return f"a traceback: {self.errors[-1500:]}"
        if self.status == 2 and len(refusals(self.errors)) != 1:
            return f"refused in other than one line: {self.errors[-500:]!r}"
        return None


def refusals(errors: str) -> list[str]:
    return [line for line in errors.splitlines() if line.startswith("fmdp: ")]


class Running(Protocol):
    """A program at work."""

    pid: int

    def send(self, number: int) -> None: ...

    def wait(self, seconds: float) -> Ended | None:
        """None, and it is killed, where it does not end in that time."""


class Nursery:
    """The warm parent, in a process of its own; one child at a time."""

    def __init__(
        self, place: Path, warm: Sequence[Sequence[str]] = (), modules: Sequence[str] = ()
    ) -> None:
        """`warm`: commands that are run once, `modules` what is imported beside what they need."""
        self._folder = Path(tempfile.mkdtemp(prefix="nursery-", dir=place))
        self._parent = subprocess.Popen(
            [sys.executable, "-m", "torture.nursery"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            cwd=self._folder,
            env={**os.environ, **surroundings(), "FMDP_THREADS": "1"},
        )
        self._held = b""
        self._tell({"warm": [list(words) for words in warm], "modules": list(modules)})
        told = self._hear(600)
        if told is None or "warm" not in told:
            raise RuntimeError("the nursery did not get warm")

    def __enter__(self) -> Nursery:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._parent.stdin is not None
        self._parent.stdin.close()
        self._parent.wait(60)

    def _tell(self, order: Mapping[str, Any]) -> None:
        assert self._parent.stdin is not None
        line = json.dumps(order).encode() + b"\n"
        while line:
            line = line[self._parent.stdin.write(line) :]

    def _hear(self, seconds: float) -> dict[str, Any] | None:
        """The next line. Not by `readline`, whose buffer may hold one that `select` knows not of:
        a program that ends at once is told of twice before anybody listens."""
        assert self._parent.stdout is not None
        until = time.monotonic() + seconds
        while b"\n" not in self._held:
            left = max(0.0, until - time.monotonic())
            if not select.select([self._parent.stdout], [], [], left)[0]:
                return None
            data = os.read(self._parent.stdout.fileno(), 1 << 16)
            if not data:
                raise RuntimeError(f"the nursery has ended with {self._parent.wait()}")
            self._held += data
        line, self._held = self._held.split(b"\n", 1)
        found: dict[str, Any] = json.loads(line)
        return found

    def start(
        self,
        arguments: Sequence[str],
        *,
        folder: Path | None = None,
        settings: Mapping[str, str] | None = None,
        memory: int = MEMORY_BYTES,
        to_the_end: bool = True,
    ) -> Forked:
        """The program is inside `main` when this returns, as early as signals are its own. What
        follows `main`, the exit of the interpreter, takes longer than many a command, and is left
        out unless it is to go `to_the_end`."""
        self._tell(
            {
                "arguments": [word.encode("utf-8", "surrogateescape").hex() for word in arguments],
                "folder": str(folder or self._folder),
                "settings": {"FMDP_THREADS": "2", **(settings or {})},
                "memory": memory,
                "to_the_end": to_the_end,
                "out": str(self._folder / "out"),
                "err": str(self._folder / "err"),
            }
        )
        told = self._hear(60)
        assert told is not None
        return Forked(self, told["pid"], self._folder)

    def run(self, arguments: Sequence[str], seconds: float = 600.0, **how: Any) -> Ended | None:
        """To its end."""
        return self.start(arguments, **how).wait(seconds)


class Forked:
    def __init__(self, nursery: Nursery, pid: int, folder: Path) -> None:
        self.pid = pid
        self._nursery = nursery
        self._folder = folder
        self._handle: int | None = None
        with contextlib.suppress(ProcessLookupError):  # it has ended, and been waited for
            self._handle = os.pidfd_open(pid)

    def send(self, number: int) -> None:
        if self._handle is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._handle, number)

    def ends_within(self, seconds: float) -> bool:
        return self._handle is None or bool(select.select([self._handle], [], [], seconds)[0])

    def wait(self, seconds: float) -> Ended | None:
        told = self._nursery._hear(seconds)
        late = told is None
        if late:
            self.send(signal.SIGKILL)
            told = self._nursery._hear(60)
        if self._handle is not None:
            os.close(self._handle)
        assert told is not None
        if late:
            return None
        return Ended(
            told["status"],
            (self._folder / "out").read_text(errors="replace"),
            (self._folder / "err").read_text(errors="replace"),
            told["peak_bytes"],
            told["seconds"],
        )


PROGRAM = """
import sys
from fmdp.cli import main
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "fmdp.cli.signals":
            sys.stderr.write("started\\n")
            sys.stderr.flush()
sys.meta_path.insert(0, Finder())
sys.exit(main())
"""
"""It says that it has started where `main` imports its first module: the first line at which a
signal is fmdp's own. Before that, in these lines too, the answer is Python's."""


class Fresh:
    """The program in a process of its own, inside `main`."""

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        folder: Path | None = None,
        settings: Mapping[str, str] | None = None,
        memory: int = MEMORY_BYTES,
    ) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            cwd=folder,
            preexec_fn=lambda: limit(memory),
            env={**os.environ, **surroundings(), "FMDP_THREADS": "2", **(settings or {})},
        )
        self.pid = self._process.pid
        assert self._process.stderr is not None
        self._process.stderr.readline()

    def send(self, number: int) -> None:
        self._process.send_signal(number)

    def wait(self, seconds: float) -> Ended | None:
        try:
            output, errors = self._process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()
            return None
        return Ended(self._process.returncode, output, errors)


def surroundings() -> dict[str, str]:
    """The environment in which a child of any kind finds these modules, and few threads."""
    path = [TESTS, os.environ.get("PYTHONPATH", "")]
    return {
        "PYTHONPATH": os.pathsep.join(word for word in path if word),
        "PYTHONUNBUFFERED": "",
        "OPENBLAS_NUM_THREADS": "1",
    }


def limit(memory: int) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


# ---- in the nursery ------------------------------------------------------------------------------


def _warm() -> None:
    """Load what commands need, compiled code too: each command once, its output thrown away."""
    import warnings

    from fmdp.cli import main

    warnings.simplefilter("ignore")
    order = json.loads(sys.stdin.readline())
    for module in order["modules"]:
        importlib.import_module(module)
    for words in order["warm"]:
        with (
            Path(os.devnull).open("w") as nowhere,
            contextlib.redirect_stdout(nowhere),
            contextlib.redirect_stderr(nowhere),
        ):
            status = main(words)
        if status not in (0, 1):
            raise RuntimeError(f"{words}: status {status}")
    gc.freeze()  # or the collector of every child copies all of it, to look at it once
    print(json.dumps({"warm": True}), flush=True)


def _orders() -> Iterator[dict[str, Any]]:
    """In the children, one each; the parent never gets anything from it."""
    for line in sys.stdin:
        started, start = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(started)
            yield {**json.loads(line), "start": start}
        os.close(start)
        os.read(started, 1)
        os.close(started)
        print(json.dumps({"pid": pid}), flush=True)
        _, status, usage = os.wait4(pid, 0)
        ended = {
            "status": os.waitstatus_to_exitcode(status),
            "peak_bytes": usage.ru_maxrss << 10,
            "seconds": usage.ru_utime + usage.ru_stime,
        }
        print(json.dumps(ended), flush=True)


def _become(order: Mapping[str, Any]) -> None:
    nowhere = os.open(os.devnull, os.O_RDONLY)
    out = os.open(order["out"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    err = os.open(order["err"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for here, there in ((nowhere, 0), (out, 1), (err, 2)):
        os.dup2(here, there)
        os.close(here)
    os.chdir(order["folder"])
    os.environ.update(order["settings"])
    sys.argv = ["fmdp", *(os.fsdecode(bytes.fromhex(word)) for word in order["arguments"])]
    limit(order["memory"])
    _say_when_it_starts(order["start"])


def _say_when_it_starts(start: int) -> None:
    """From inside `main`, as `Fresh` does: at the first thing that it calls."""
    from fmdp.cli import signals

    real = signals.Signals

    def first(*, whole_program: bool) -> signals.Signals:
        signals.Signals = real  # type: ignore[misc]
        os.write(start, b"!")
        os.close(start)
        return real(whole_program=whole_program)

    signals.Signals = first  # type: ignore[assignment, misc]


if __name__ == "__main__":
    _warm()
    for own in _orders():
        _become(own)
        from fmdp.cli import main

        status = main()
        if own["to_the_end"]:
            sys.exit(status)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
