"""Sweeps of many processes: parent, workers, and a Dask cluster's workers, nannies and scheduler.

Whoever is killed, and whenever: no process is left behind, and the same command again ends with the
store that one process makes which nobody disturbs.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from torture import stores
from torture.nursery import Fresh, Nursery, surroundings
from torture.trial import SHORT, Trial

SECONDS = 600.0
LEARNT = ("--learner", "psrl", "--steps", "30")
LOCAL, HUNG, ON_DASK = 60, 60, 9
"""At scale 1."""


def rounds(seed: int, scale: float) -> Iterator[Trial]:
    if scale < SHORT:
        return  # tests/integration kills workers of both kinds
    chance = random.Random(f"sweeps {seed}")
    with tempfile.TemporaryDirectory(prefix="fmdp-torture-") as text:
        place = Path(text)
        spec = place / "spec.toml"
        spec.write_text(stores.SPEC.replace("NAME", "tortured"))
        stores.sweep(place / "sound")
        reference = stores.everything(place / "sound")
        # Not a sweep: its children would share what multiprocessing keeps for a process.
        modules = ["fmdp.experiments.executors", "fmdp.experiments.sweep"]
        with Nursery(place, [["learn", "circle:2", *LEARNT]], modules) as nursery:
            number = round(LOCAL * scale)
            if number:
                yield locally(chance, number, nursery, place, reference)
            number = round(HUNG * scale)
            if number:
                yield hung(chance, number, nursery, place, reference)
            number = round(ON_DASK * scale)
            if number:
                yield on_dask(chance, number, place, reference)


def descendants(pid: int) -> list[int]:
    """Processes that this one has started, and theirs."""
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*"):
        with contextlib.suppress(OSError):
            for child in (task / "children").read_text().split():
                found += [int(child), *descendants(int(child))]
    return found


def is_worker(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


def alive(pid: int) -> bool:
    with contextlib.suppress(OSError, IndexError):
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    return False


def left_over(pids: Sequence[int], seconds: float = 120.0) -> list[int]:
    """Those that still live after a while; none is to be spared."""
    until = time.monotonic() + seconds
    while (left := [pid for pid in pids if alive(pid)]) and time.monotonic() < until:
        time.sleep(0.02)
    for pid in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return left


def differs(store: Path, reference: stores.Found) -> str | None:
    """What is wrong with a store when the sweep is gone on with, here and undisturbed."""
    from torture import child

    ended = child.run(lambda: [stores.sweep(store), stores.everything(store)])
    if ended.bad:
        return ended.bad
    if ended.result[1] != reference:
        return f"the store differs from one that was never disturbed ({store})"
    if stores.litter(store):
        return f"left behind: {stores.litter(store)}"
    return None


# ---- worker processes ----------------------------------------------------------------------------


def locally(
    chance: random.Random, number: int, nursery: Nursery, place: Path, reference: stores.Found
) -> Trial:
    failures = []
    for _ in range(number):
        store = place / "local"
        shutil.rmtree(store, ignore_errors=True)
        whom = chance.choice(["parent", "worker", "workers", "parent, Ctrl-C", "parent, twice"])
        wrong = one_locally(chance, whom, nursery, place, store) or differs(store, reference)
        if wrong:
            failures.append(f"{whom}: {wrong}")
    return Trial("a sweep of processes: parent or workers killed, signals", number, tuple(failures))


def one_locally(
    chance: random.Random, whom: str, nursery: Nursery, place: Path, store: Path
) -> str | None:
    words = ["sweep", str(place / "spec.toml"), "--out", str(store), "--workers", "2"]
    running = nursery.start(words)
    time.sleep(chance.random() * 4.0)
    below = descendants(running.pid) if alive(running.pid) else []
    workers = [pid for pid in below if is_worker(pid)]
    allowed = [0]
    if whom == "parent":
        running.send(signal.SIGKILL)
        allowed = [0, -signal.SIGKILL]
    elif whom.startswith("parent"):
        for _ in range(1 + (whom == "parent, twice")):
            running.send(chance.choice([signal.SIGINT, signal.SIGTERM]))
            time.sleep(0.2 * chance.random() ** 3)
        allowed = [0, 130, 143]
    else:
        for pid in workers if whom == "workers" else workers[:1]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    ended = running.wait(SECONDS)
    if ended is None:
        return f"did not end within {SECONDS:.0f} s"
    left = left_over(below)
    return ended.wrong(*allowed) or (f"{len(left)} processes were left behind" if left else None)


FORKING = """
import os, time

forked = False

def rule(state):
    global forked
    if not forked:
        forked = True
        if os.fork() == 0:  # it has a copy of all pipes of the worker
            time.sleep(60)  # longer than the sweep may take to end
            os._exit(0)
    time.sleep(SECONDS)
    return 0
"""
FORKING_SPEC = """
steps = 20
seeds = 4
problems = ["circle:2"]
learners = ["random", { rule = "forking:rule" }]
"""
SECONDS_TO_END = 15.0
"""From a signal to the end; far more than usual, since the machine may have much else to do."""


def hung(
    chance: random.Random, number: int, nursery: Nursery, place: Path, reference: stores.Found
) -> Trial:
    """Workers that are stopped, or whose children hold their pipes, when a signal comes."""
    (place / "forking.toml").write_text(FORKING_SPEC)
    failures = []
    for _ in range(number):
        store = place / "hung"
        shutil.rmtree(store, ignore_errors=True)
        forking = chance.random() < 0.5
        pause = chance.choice([0.0, 0.005, 600.0])
        (place / "forking.py").write_text(FORKING.replace("SECONDS", str(pause)))
        spec = place / ("forking.toml" if forking else "spec.toml")
        wrong = one_hung(chance, nursery, spec, store, stopping=chance.random() < 0.7)
        if not wrong and not forking:
            wrong = differs(store, reference)
        if wrong:
            failures.append(f"{spec.stem}, pause {pause}: {wrong}")
    return Trial("a sweep whose workers are stopped or fork, signals", number, tuple(failures))


def one_hung(
    chance: random.Random, nursery: Nursery, spec: Path, store: Path, *, stopping: bool
) -> str | None:
    running = nursery.start(["sweep", str(spec), "--out", str(store), "--workers", "2"])
    time.sleep(chance.random() * 4.0)
    below = descendants(running.pid) if alive(running.pid) else []
    workers = [pid for pid in below if is_worker(pid) and running.pid == parent(pid)]
    if stopping:
        for pid in chance.sample(workers, chance.randint(0, len(workers))):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
    stored = runs_in(store)
    running.send(chance.choice([signal.SIGINT, signal.SIGTERM]))
    ended = running.wait(SECONDS_TO_END)
    if ended is None:
        wrong: str | None = f"did not end within {SECONDS_TO_END:.0f} s of the signal"
    else:
        wrong = ended.wrong(0, 1, 130, 143)
    left = left_over(workers, 10.0)
    left_over(below, 0.0)  # the children of the rule are its own
    if not wrong and left:
        wrong = f"{len(left)} workers were left behind"
    if not wrong and runs_in(store) < stored:
        wrong = f"{stored} runs were stored, and then {runs_in(store)}"
    return wrong


def parent(pid: int) -> int:
    with contextlib.suppress(OSError, IndexError):
        return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
    return 0


# ---- Dask ----------------------------------------------------------------------------------------


class Cluster:
    """A scheduler and two workers with their nannies, started as a user starts them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        file = folder / "scheduler.json"
        place = ["--scheduler-file", str(file), "--host", "127.0.0.1"]
        # Without a dashboard the port of its web server would still be a fixed one.
        place += ["--dashboard-address", "127.0.0.1:0"]
        self.scheduler = self._start("scheduler", *place, "--port", "0")
        self.address = ""
        until = time.monotonic() + 60
        while not self.address and time.monotonic() < until:
            time.sleep(0.02)
            with contextlib.suppress(OSError, ValueError):  # not there yet, or half of it
                self.address = json.loads(file.read_text())["address"]
        self.nannies = [
            self._start("worker", *place, "--nthreads", "1", "--local-directory", str(folder / n))
            for n in ("one", "two")
        ]

    def _start(self, what: str, *options: str) -> subprocess.Popen[bytes]:
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", f"distributed.cli.dask_{what}", *options],
                stdout=log,
                stderr=log,
                env={**os.environ, **surroundings(), "FMDP_THREADS": "1"},
            )

    def workers(self) -> list[int]:
        return [pid for nanny in self.nannies for pid in descendants(nanny.pid) if is_worker(pid)]

    def close(self) -> None:
        below = self.workers()
        for process in (*self.nannies, self.scheduler):
            process.kill()
            process.wait()
        left_over(below, 0.0)


def on_dask(chance: random.Random, number: int, place: Path, reference: stores.Found) -> Trial:
    name = "a sweep on Dask: worker, nanny or scheduler killed"
    try:
        import distributed  # noqa: F401
    except ImportError:
        return Trial(name, 0, skipped="the extra `dask` is not installed")
    failures = []
    for which in range(number):
        store = place / "dask"
        shutil.rmtree(store, ignore_errors=True)
        whom = ("worker", "nanny", "scheduler")[which % 3]
        cluster = Cluster(place / f"cluster-{which}")
        try:
            wrong = one_on_dask(chance, whom, cluster, place, store)
        finally:
            cluster.close()
        wrong = wrong or differs(store, reference)
        if wrong:
            failures.append(f"{whom}: {wrong}")
    return Trial(name, number, tuple(failures))


def runs_in(store: Path) -> int:
    with contextlib.suppress(sqlite3.Error):
        file = f"file:{store / stores.FILE_NAME}?mode=ro"
        with contextlib.closing(sqlite3.connect(file, uri=True)) as raw:
            return int(raw.execute("SELECT count(*) FROM runs").fetchone()[0])
    return 0


def one_on_dask(
    chance: random.Random, whom: str, cluster: Cluster, place: Path, store: Path
) -> str | None:
    words = ["sweep", str(place / "spec.toml"), "--out", str(store), "--dask", cluster.address]
    running = Fresh(words)
    # Most of the time goes by before the first run, most of what can be lost after it.
    until = time.monotonic() + (chance.random() * 5.0 if chance.random() < 0.3 else 60.0)
    while time.monotonic() < until and not runs_in(store):
        time.sleep(0.01)
    time.sleep(0.5 * chance.random())
    if whom == "scheduler":
        cluster.scheduler.kill()
    elif whom == "nanny":
        cluster.nannies[0].kill()
    else:
        for pid in cluster.workers()[:1]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    ended = running.wait(SECONDS)
    if ended is None:
        return f"did not end within {SECONDS:.0f} s"
    return ended.wrong(0, 2) if whom == "scheduler" else ended.wrong(0)
