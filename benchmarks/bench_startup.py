"""Start-up: the processor time of whole commands in fresh processes, as ratios in one run.

Nearly all of the time of a small plan is imports and the loading of compiled code. Every command is
run once to fill the caches and then again and again, all of them by turns, so that a busy machine
slows them alike; told is the median of user and system time, how many bare starts of Python,
imports of NumPy and imports of Numba that is, and the least and the median of the time on the wall.

    python -m benchmarks.bench_startup [--repeats 15] [--only "fmdp plan circle:4"]
    python -m benchmarks.bench_startup --beside PYTHON    against another build of fmdp, by that
                                                          build's Python
    python -m benchmarks.bench_startup --empty [...]      the first run ever as well, with an empty
                                                          cache: some ten seconds each
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from typing import NamedTuple

YARDSTICKS = {
    "python -c pass": ["-c", "pass"],
    "import numpy": ["-c", "import numpy"],
    "import numba": ["-c", "import numba"],
}
COMMANDS = {
    "import fmdp": ["-c", "import fmdp"],
    "fmdp --help": ["-m", "fmdp", "--help"],
    "fmdp list": ["-m", "fmdp", "list"],
    "fmdp plan circle:4": ["-m", "fmdp", "plan", "circle:4", "--json"],
    "fmdp plan circle:7": ["-m", "fmdp", "plan", "circle:7", "--json"],
    "fmdp plan circle:12": ["-m", "fmdp", "plan", "circle:12", "--json"],
    "fmdp learn circle:4": [
        *("-m", "fmdp", "learn", "circle:4", "--learner", "psrl"),
        *("--steps", "2000", "--json"),
    ],
}
FIRST = "fmdp plan circle:4"


def seconds_of(python: str, arguments: list[str], **settings: str) -> tuple[float, float]:
    """User and system time of one process, and the time on the wall."""
    # Bytecode is kept, as in any installation.
    env = {name: own for name, own in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = time.perf_counter()
    subprocess.run([python, *arguments], check=True, capture_output=True, env=env | settings)
    wall = time.perf_counter() - started
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, wall


class Took(NamedTuple):
    """Of one command by one Python."""

    processor: float
    wall_least: float
    wall: float


def measured(pythons: list[str], repeats: int) -> dict[tuple[str, str], Took]:
    """Every command by every Python; the yardsticks by the first alone."""
    asked = [(name, pythons[0]) for name in YARDSTICKS]
    asked += [(name, python) for name in COMMANDS for python in pythons]
    every = YARDSTICKS | COMMANDS
    times: dict[tuple[str, str], list[tuple[float, float]]] = {one: [] for one in asked}
    for turn in range(repeats + 2):  # the first fills Numba's cache, the second what is kept of it
        for name, python in asked:
            took = seconds_of(python, every[name])
            if turn >= 2:
                times[name, python].append(took)
    found = {}
    for one, own in times.items():
        processor, wall = zip(*own, strict=True)
        found[one] = Took(statistics.median(processor), min(wall), statistics.median(wall))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--beside", metavar="PYTHON")
    parser.add_argument("--empty", action="store_true")
    parser.add_argument("--only", choices=COMMANDS, help="this command alone")
    given = parser.parse_args()
    if given.only:
        for name in COMMANDS.keys() - {given.only}:
            del COMMANDS[name]
    pythons = [sys.executable] + ([given.beside] if given.beside else [])
    found = measured(pythons, given.repeats)
    own = pythons[0]
    units = [found[name, own].processor for name in YARDSTICKS]
    titles = ("processor", "pythons", "numpys", "numbas", "wall >=", "wall")
    beside = ("beside", "ratio", "wall >=", "ratio") if given.beside else ()
    print(f"{'':22}" + "".join(f"{title:>10}" for title in (*titles, *beside)))
    for name in (*YARDSTICKS, *COMMANDS):
        took = found[name, own]
        line = f"{name:22}{took.processor:10.3f}"
        line += "".join(f"{took.processor / unit:10.2f}" for unit in units)
        line += f"{took.wall_least:10.3f}{took.wall:10.3f}"
        if given.beside and name in COMMANDS:
            other = found[name, given.beside]
            line += f"{other.processor:10.3f}{took.processor / other.processor:10.2f}"
            line += f"{other.wall_least:10.3f}{took.wall_least / other.wall_least:10.2f}"
        print(line)
    if given.empty:
        for python in pythons:
            with tempfile.TemporaryDirectory() as folder:
                took, _ = seconds_of(python, COMMANDS[FIRST], NUMBA_CACHE_DIR=folder)
            print(f"{FIRST}, empty cache: {took:.2f} s by {python}")


if __name__ == "__main__":
    main()
