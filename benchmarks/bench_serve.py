"""Latency of `fmdp serve`, and how it starts with a long journal.

    python -m benchmarks.bench_serve [--problem circle:7] [--steps 2000] [--journal 1000000]
    python -m benchmarks.bench_serve --beside PYTHON    also by another build of fmdp, through the
                                                        Python that has it installed
    python -m benchmarks.bench_serve --folder /dev/shm  the time without a disk

A client that waits for every answer asks for an action and reports an observation, in turn: the
median, the 99th percentile and the largest time of each. An observation waits for the disk, whose
own time for a line and a synchronisation is printed first. Builds take turns, 100 steps each, so
that a busy machine slows them alike. Then a server starts on a journal of many observations without
a snapshot: seconds until it answers, its largest memory, and the latency from there on.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
import zlib
from pathlib import Path
from typing import Any

import fmdp

TURN = 100
"""Steps of one build before the next has its turn."""


class Server:
    """One `fmdp serve`, with the client's side of a simulated system."""

    def __init__(self, python: str, problem: str, folder: Path) -> None:
        self.model = fmdp.problem(problem)
        self.luck = random.Random(0)
        self.state = list(self.model.initial_state)
        self.seconds: dict[str, list[float]] = {"act": [], "observe": []}
        words = ["serve", "--model", problem, "--learner", "default", "--dir", str(folder)]
        self.process = subprocess.Popen(
            [python, "-m", "fmdp", *words, "--snapshot-every", str(10**9)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        )

    def ask(self, request: dict[str, Any]) -> Any:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(request).encode() + b"\n")
        answer = json.loads(self.process.stdout.readline())
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer

    def steps(self, count: int) -> None:
        for _ in range(count):
            before = time.perf_counter()
            action = self.ask({"state": self.state})["action"]
            between = time.perf_counter()
            step = observation(self.model, self.luck, self.state, action)
            started = time.perf_counter()
            self.ask({"observe": step})
            self.seconds["observe"].append(time.perf_counter() - started)
            self.seconds["act"].append(between - before)
            self.state = step["next_state"]

    def memory(self) -> int:
        """Return the largest memory so far, in bytes (Linux)."""
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        return 1024 * int(text.partition("VmHWM:")[2].split()[0])

    def end(self) -> None:
        self.process.communicate()


def observation(
    model: fmdp.FactoredMDP, luck: random.Random, state: list[int], action: list[int]
) -> dict[str, Any]:
    after = [luck.randrange(size) for size in model.structure.state_sizes]
    rewards = [luck.choice((low, high)) for low, high in model.structure.reward_ranges]
    return {"state": state, "action": action, "rewards": rewards, "next_state": after}


def write_journal(problem: str, path: Path, count: int) -> None:
    """Write a journal of the first version, which every build reads."""
    model, luck = fmdp.problem(problem), random.Random(1)
    actions = model.structure.action_sizes

    def line(number: int, event: Any) -> bytes:
        text = f"{number} {json.dumps(event, separators=(',', ':'))}".encode()
        return b"%08x %s\n" % (zlib.crc32(text), text)

    with path.open("wb") as file:
        file.write(line(0, {"format": "fmdp-journal", "version": 1}))
        state = list(model.initial_state)
        for number in range(1, count + 1):
            step = observation(model, luck, state, [luck.randrange(size) for size in actions])
            file.write(line(number, {"observe": list(step.values())}))
            state = step["next_state"]


def percentiles(seconds: list[float]) -> str:
    ordered = sorted(seconds)
    chosen = (ordered[len(ordered) // 2], ordered[int(0.99 * len(ordered))], ordered[-1])
    return " ".join(f"{1e3 * value:9.3f}" for value in chosen)


def disk(folder: Path, count: int) -> list[float]:
    seconds = []
    with (folder / "probe").open("wb", buffering=0) as file:
        for _ in range(count):
            started = time.perf_counter()
            file.write(b"x" * 120)
            os.fdatasync(file.fileno())
            seconds.append(time.perf_counter() - started)
    return seconds


def latencies(builds: dict[str, str], problem: str, steps: int, folder: Path) -> None:
    print(f"{'milliseconds':24} {'median':>9} {'99 %':>9} {'largest':>9}")
    print(f"{'the disk alone':24} {percentiles(disk(folder, 500))}", flush=True)
    servers = {name: Server(python, problem, folder / name) for name, python in builds.items()}
    for server in servers.values():
        server.steps(20)
        server.seconds = {"act": [], "observe": []}
    for _ in range(max(1, steps // TURN)):
        for server in servers.values():
            server.steps(TURN)
    for name, server in servers.items():
        for kind, seconds in server.seconds.items():
            print(f"{name + ': ' + kind:24} {percentiles(seconds)}", flush=True)
        server.end()


def long_journals(builds: dict[str, str], problem: str, count: int, folder: Path) -> None:
    print(f"\nwith {count:,} observations in the journal")
    for name, python in builds.items():
        place = folder / f"{name} long"
        Server(python, problem, place).end()
        write_journal(problem, place / "journal-0", count)
        started = time.perf_counter()
        server = Server(python, problem, place)
        known = server.ask({"status": True})["status"]["observed"]
        seconds = time.perf_counter() - started
        assert known == count
        memory = server.memory()
        server.steps(TURN)
        print(f"{name}: {seconds:.1f} s to the first answer, {memory / 1e6:,.0f} MB at most")
        for kind, times in server.seconds.items():
            print(f"{name + ': ' + kind:24} {percentiles(times)}", flush=True)
        server.end()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--problem", default="circle:7")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--journal", type=int, default=1_000_000)
    parser.add_argument("--beside", metavar="PYTHON", help="the Python of another build")
    parser.add_argument("--folder", default=".", help="where the servers keep their state")
    options = parser.parse_args()
    builds = {"now": sys.executable}
    if options.beside:
        builds["beside"] = options.beside
    with tempfile.TemporaryDirectory(dir=options.folder) as text:
        latencies(builds, options.problem, options.steps, Path(text))
        if options.journal:
            long_journals(builds, options.problem, options.journal, Path(text))


if __name__ == "__main__":
    main()
