"""`make torture`: everything once more, the closing table, and 1 if anything went wrong.

Modules are tried in processes of their own, as many at a time as there are cores (`--jobs`); what
is tried is told by seed and scale alone.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from torture.trial import Trial

HERE = Path(__file__).parent
MODULES = tuple(
    path.stem for path in sorted(HERE.glob("*.py")) if "\ndef rounds(" in path.read_text()
)
LONGEST = ("stores", "signals", "service", "arguments")
"""Begun first, so that the end need not wait for one of them alone."""
MOST_SHOWN = 5


def line(trial: Trial) -> str:
    if trial.skipped:
        return f"{trial.name:64}  skipped: {trial.skipped}"
    return f"{trial.name:64} {trial.tried:8,} {len(trial.failures):8,}"


def tried(name: str, seed: int, scale: float) -> None:
    """In a process of its own: what one module tries, a line of JSON for each."""
    for trial in importlib.import_module(f"torture.{name}").rounds(seed, scale):
        print(json.dumps(dataclasses.asdict(trial)), flush=True)


def in_processes(names: Sequence[str], seed: int, scale: float, jobs: int) -> Iterator[Trial]:
    waiting = queue.SimpleQueue[str]()
    for name in sorted(names, key=lambda name: (*LONGEST, name).index(name)):
        waiting.put(name)
    found = queue.SimpleQueue[Trial | None]()

    def work() -> None:
        while True:
            try:
                name = waiting.get_nowait()
            except queue.Empty:
                found.put(None)
                return
            words = [sys.executable, "-m", "torture", "--module", name]
            with subprocess.Popen(
                [*words, "--seed", str(seed), "--scale", str(scale)],
                stdout=subprocess.PIPE,
                text=True,
            ) as process:
                assert process.stdout is not None
                for one in process.stdout:
                    told = json.loads(one)
                    found.put(Trial(**{**told, "failures": tuple(told["failures"])}))
            if process.returncode != 0:
                found.put(Trial(name, 0, (f"the torture itself: status {process.returncode}",)))

    threads = [threading.Thread(target=work, daemon=True) for _ in range(jobs)]
    for thread in threads:
        thread.start()
    left = jobs
    while left:
        trial = found.get()
        if trial is None:
            left -= 1
        else:
            yield trial


def main() -> int:
    parser = argparse.ArgumentParser(prog="torture", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="another seed tries other things")
    parser.add_argument("--scale", type=float, default=1.0, help="how much is tried")
    parser.add_argument("--only", action="append", default=[], choices=MODULES)
    cores = len(os.sched_getaffinity(0))
    parser.add_argument("--jobs", type=int, default=cores, help="modules at a time")
    parser.add_argument("--module", choices=MODULES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    # A shell starts what is to run in the background with Ctrl-C ignored, and programs keep that:
    # nothing here would ever be interrupted.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if options.module:
        tried(options.module, options.seed, options.scale)
        return 0

    started = time.perf_counter()
    print(f"{'tried':64} {'times':>8} {'failed':>8}", flush=True)
    done = []
    names = options.only or MODULES
    for trial in in_processes(names, options.seed, options.scale, options.jobs):
        print(line(trial), flush=True)
        for failure in trial.failures[:MOST_SHOWN]:
            print(f"{trial.name}: {failure}", file=sys.stderr, flush=True)
        done.append(trial)
    total = Trial("all", sum(t.tried for t in done), tuple(f for t in done for f in t.failures))
    print(line(total))
    print(f"\nseed {options.seed}, scale {options.scale:g}, {time.perf_counter() - started:.0f} s")
    return 1 if total.failures else 0


if __name__ == "__main__":
    sys.exit(main())
