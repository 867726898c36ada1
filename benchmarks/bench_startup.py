"""Start-up: processor time of whole commands in fresh processes.

Nearly all of the time of a small plan is imports. Every command is run once to fill the caches and
then repeatedly, all commands in turn, so that a busy machine slows them alike. Printed are the
median of user plus system time, its ratio to a bare start of Python, to an import of NumPy and to
one of Numba, and the minimum and the median of the wall-clock time.

    python -m benchmarks.bench_startup [--repeats 15] [--only "fmdp plan circle:4"]
    python -m benchmarks.bench_startup --beside PYTHON    also by another build of fmdp, through the
                                                          Python that has it installed
    python -m benchmarks.bench_startup --empty [...]      also the first run on an empty cache of
                                                          compiled code, once per command
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
LEARN = ["-m", "fmdp", "learn", "circle:4", "--steps", "1000", "--json"]
COMMANDS = {
    "import fmdp": ["-c", "import fmdp"],
    "fmdp --help": ["-m", "fmdp", "--help"],
    "fmdp list": ["-m", "fmdp", "list"],
    "fmdp plan circle:4": ["-m", "fmdp", "plan", "circle:4", "--json"],
    "fmdp plan circle:7": ["-m", "fmdp", "plan", "circle:7", "--json"],
    "fmdp plan circle:12": ["-m", "fmdp", "plan", "circle:12", "--json"],
    "fmdp learn circle:4": LEARN,
    "... --learner psrl": [*LEARN, "--learner", "psrl"],
}


def seconds_of(python: str, arguments: list[str], **settings: str) -> tuple[float, float]:
    """Return the user plus system time of one process, and its wall-clock time."""
    # Bytecode is written, as in any installation.
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = time.perf_counter()
    subprocess.run([python, *arguments], check=True, capture_output=True, env=env | settings)
    wall = time.perf_counter() - started
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, wall


class Took(NamedTuple):
    """Times of one command by one Python: median processor time, least and median wall clock."""

    processor: float
    wall_least: float
    wall: float


def measured(pythons: list[str], repeats: int) -> dict[tuple[str, str], Took]:
    """Return the times of every command by every Python, of the yardsticks by the first one."""
    asked = [(name, pythons[0]) for name in YARDSTICKS]
    asked += [(name, python) for name in COMMANDS for python in pythons]
    every = YARDSTICKS | COMMANDS
    times: dict[tuple[str, str], list[tuple[float, float]]] = {key: [] for key in asked}
    for turn in range(repeats + 1):  # the first fills the caches
        for name, python in asked:
            took = seconds_of(python, every[name])
            if turn >= 1:
                times[name, python].append(took)
    medians = {}
    for key, runs in times.items():
        processor, wall = zip(*runs, strict=True)
        medians[key] = Took(statistics.median(processor), min(wall), statistics.median(wall))
    return medians


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
    times = measured(pythons, given.repeats)
    first = pythons[0]
    units = [times[name, first].processor for name in YARDSTICKS]
    titles = ("processor", "pythons", "numpys", "numbas", "wall >=", "wall")
    beside = ("beside", "ratio", "wall >=", "ratio") if given.beside else ()
    print(f"{'':22}" + "".join(f"{title:>10}" for title in (*titles, *beside)))
    for name in (*YARDSTICKS, *COMMANDS):
        took = times[name, first]
        line = f"{name:22}{took.processor:10.3f}"
        line += "".join(f"{took.processor / unit:10.2f}" for unit in units)
        line += f"{took.wall_least:10.3f}{took.wall:10.3f}"
        if given.beside and name in COMMANDS:
            other = times[name, given.beside]
            line += f"{other.processor:10.3f}{took.processor / other.processor:10.2f}"
            line += f"{other.wall_least:10.3f}{took.wall_least / other.wall_least:10.2f}"
        print(line)
    if given.empty:
        for name in COMMANDS:
            for python in pythons:
                with tempfile.TemporaryDirectory() as folder:
                    processor, _ = seconds_of(python, COMMANDS[name], NUMBA_CACHE_DIR=folder)
                print(f"{name}, empty cache: {processor:.2f} s of processor time by {python}")


if __name__ == "__main__":
    main()
