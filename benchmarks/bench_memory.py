"""How much memory long runs take: learners of 10^6 to 10^8 steps, and runs that are recorded.

    python -m benchmarks.bench_memory [--problem circle:4] [--most 8]

Each run in a process of its own, which says the most memory that it has held. What a learner keeps
does not grow with its steps. A recording is what it is, so many bytes a step: it must take what
`TooLarge` says beforehand and no more, and what does not fit is refused. About two minutes on one
core.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import fmdp
from fmdp._base.memory import describe_bytes
from fmdp.errors import TooLarge

LEARNERS = ("psrl", "dorl", "random")
UNBOUNDED = 10**13
"""Steps that no machine can keep."""


def measure(problem: str, learner: str, steps: int, record: str) -> dict[str, float]:
    """In this process: seconds, the most memory, and the bytes of what was recorded."""
    model = fmdp.problem(problem)
    with tempfile.TemporaryDirectory() as folder:
        return _measure(model, learner, steps, record, Path(folder))


def _measure(
    model: fmdp.FactoredMDP, learner: str, steps: int, record: str, folder: Path
) -> dict[str, float]:
    def kept_in(name: str) -> bool | Path:
        return folder / name if record == "folder" else record == "record"

    fmdp.simulate(model, learner, 1000, record=kept_in("warm"))  # compiled, and warm
    before = peak()
    started = time.perf_counter()
    run = fmdp.simulate(model, learner, steps, record=kept_in("run"))
    seconds = time.perf_counter() - started
    kept = run.trajectory
    arrays = () if kept is None else (kept.states, kept.actions, kept.rewards)
    return {
        "seconds": seconds,
        "before": before,
        "peak": peak(),
        "recording": sum(array.nbytes for array in arrays),
        "plans": run.planner_calls or 0,
    }


def peak() -> int:
    held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return held if sys.platform == "darwin" else held * 1024


def in_a_child(*words: str) -> dict[str, float]:
    ran = subprocess.run(
        [sys.executable, "-m", "benchmarks.bench_memory", "--one", *words],
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, float] = json.loads(ran.stdout)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--problem", default="circle:4")
    parser.add_argument("--most", type=int, default=8, help="the longest run has 10^MOST steps")
    parser.add_argument("--one", nargs=4, metavar=("PROBLEM", "LEARNER", "STEPS", "RECORD"))
    given = parser.parse_args()
    if given.one:
        problem, learner, steps, record = given.one
        print(json.dumps(measure(problem, learner, int(steps), record)))
        return
    print(f"{given.problem:32} {'steps':>12} {'plans':>7} {'seconds':>8} {'before':>9} {'peak':>9}")
    cases = [(learner, 10**k, "") for learner in LEARNERS for k in range(6, given.most + 1)]
    cases += [("psrl", 10**k, how) for how in ("record", "folder") for k in range(6, given.most)]
    for learner, steps, record in cases:
        found = in_a_child(given.problem, learner, str(steps), record)
        before, most = (describe_bytes(int(found[key])) for key in ("before", "peak"))
        size = describe_bytes(int(found["recording"]))
        kept = f"  {'on disk' if record == 'folder' else 'of it'}: {size}" if record else ""
        how = {"": "", "record": ", recorded", "folder": ", recorded in a folder"}[record]
        print(
            f"{learner + how:32} {steps:12,} {found['plans']:7.0f} "
            f"{found['seconds']:8.1f} {before:>9} {most:>9}{kept}",
            flush=True,
        )
    try:
        fmdp.simulate(fmdp.problem(given.problem), "psrl", UNBOUNDED, record=True)
    except TooLarge as error:
        print(f"{UNBOUNDED:,} steps: {error}")


if __name__ == "__main__":
    main()
