"""Memory of long runs (learners of 10^6 to 10^8 steps, recorded runs) and of large exact plans.

    python -m benchmarks.bench_memory [--problem circle:4] [--most 8]
    python -m benchmarks.bench_memory --plans [--machines 20]

Each run has its own process, which reports the most memory that it has held. What a learner keeps
does not grow with its steps. A recording takes what `TooLarge` predicts, and what does not fit is
refused. About two minutes on one core.

With --plans, the predicted memory of exact plans is compared with the growth of the process while
it plans, and rings that are too large to run here are predicted. Linux only.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import resource
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import fmdp
from fmdp._base.memory import describe_bytes
from fmdp.elimination.backup import backup_for
from fmdp.errors import TooLarge
from fmdp.planning.exact.acceleration import differences_that_fit
from fmdp.planning.exact.report import report_bytes

LEARNERS = ("psrl", "dorl", "random")
UNBOUNDED = 10**13
"""Steps that no machine can keep."""


RING = ",dynamics=guestrin,reward=mean"
PLANS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("circle:14", "circle:20", {}),
    ("circle:14", "circle:20", {"threads": 1}),
    (f"circle:14{RING}", f"circle:20{RING}", {"threads": 1}),
    (f"circle:14{RING}", f"circle:20{RING}", {"memory_limit": 80_000_000}),
    (f"circle:14{RING}", f"circle:20{RING}", {"vectors": "disk"}),
    ("star:14", "star:20", {}),
    ("grid:14", "grid:20", {}),
    ("machines:4", "machines:6", {}),
    ("random:14,parents=3,actions=5", "random:19,parents=3,actions=5", {}),
    ("maintenance:4,levels=8,k=4", "maintenance:7,levels=7,k=2", {}),
    ("circle:14", "circle:20", {"criterion": "discounted"}),
    ("circle:14", "circle:20", {"criterion": "finite", "horizon": 20}),
)
"""A small problem that loads the compiled code, the problem, and settings of the exact planner."""
SAMPLE_SECONDS = 0.02
"""Time between two looks at the memory of a plan."""


def measure_plan(small: str, problem: str, settings: dict[str, Any]) -> dict[str, Any]:
    """Plan in this process; return predicted and measured bytes, without those of the imports.

    Measured is anonymous memory: pages of files on disk can be written back at any time.
    """
    planner = fmdp.Exact(**settings)
    planner.plan(fmdp.problem(small))
    model = fmdp.problem(problem)
    gc.collect()
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    before = most = anonymous_bytes()
    done = threading.Event()

    def watch() -> None:
        nonlocal most
        while not done.wait(SAMPLE_SECONDS):
            most = max(most, anonymous_bytes())

    watcher = threading.Thread(target=watch)
    watcher.start()
    started = time.process_time()
    plan = planner.plan(model)
    seconds = time.process_time() - started
    done.set()
    watcher.join()
    return {
        "states": model.structure.n_states,
        "predicted": plan.stats["memory_bytes"],
        "measured": most - before,
        "disk": plan.stats.get("disk_bytes", 0),
        "differences": plan.stats.get("accelerated", 0),
        "sweeps": plan.iterations,
        "seconds": seconds,
        "status": plan.status.value,
        "bounds": (plan.gain_lower, plan.gain_upper),
    }


def anonymous_bytes() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon"))


def compare_plans(machines: int) -> None:
    """Print predicted and measured memory of plans, and predictions of large rings."""
    rings: list[tuple[str, str, dict[str, Any]]] = [
        (f"circle:14{RING}", f"circle:{n}{RING}", {}) for n in range(21, machines + 1)
    ]
    print(f"{'problem':40} {'states':>12} {'predicted':>10} {'measured':>10} {'ratio':>6}")
    for small, problem, settings in (*PLANS, *rings):
        found = in_a_child("--one-plan", small, problem, json.dumps(settings))
        predicted, measured = (int(found[key]) for key in ("predicted", "measured"))
        words = " ".join(f"{name}={value}" for name, value in settings.items())
        print(
            f"{problem:40} {found['states']:12,} {describe_bytes(predicted):>10} "
            f"{describe_bytes(measured):>10} {predicted / measured:6.2f} {words}",
            flush=True,
        )
    for n in (24, 26, 28):
        print(f"circle:{n}{RING}: {prediction(f'circle:{n}{RING}')}")


def prediction(problem: str) -> str:
    """Return the memory of an average-reward plan of a ring, whose bias is unique, by its limit."""
    model = fmdp.problem(problem)
    texts = []
    for bytes_per_state in (32, 64, 96, 128, 160, 192):
        limit = bytes_per_state * model.structure.n_states
        least = report_bytes("average", model.structure)
        backup = backup_for(model, memory_limit=limit, state_bytes=least)
        kept = max(0, differences_that_fit(backup, 2 * 8))
        texts.append(f"{describe_bytes(limit)}: {kept}, {backup.predicted_seconds:.3g} s a sweep")
    return "kept differences under a limit of " + "; ".join(texts)


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


def in_a_child(*words: str) -> dict[str, Any]:
    ran = subprocess.run(
        [sys.executable, "-m", "benchmarks.bench_memory", *words],
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, Any] = json.loads(ran.stdout)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--problem", default="circle:4")
    parser.add_argument("--most", type=int, default=8, help="the longest run has 10^MOST steps")
    parser.add_argument("--one", nargs=4, metavar=("PROBLEM", "LEARNER", "STEPS", "RECORD"))
    parser.add_argument("--plans", action="store_true", help="memory of exact plans")
    parser.add_argument("--machines", type=int, default=20, help="largest ring of --plans")
    parser.add_argument("--one-plan", nargs=3, metavar=("SMALL", "PROBLEM", "SETTINGS"))
    given = parser.parse_args()
    if given.one_plan:
        small, problem, settings = given.one_plan
        print(json.dumps(measure_plan(small, problem, json.loads(settings))))
        return
    if given.plans:
        compare_plans(given.machines)
        return
    if given.one:
        problem, learner, steps, record = given.one
        print(json.dumps(measure(problem, learner, int(steps), record)))
        return
    print(f"{given.problem:32} {'steps':>12} {'plans':>7} {'seconds':>8} {'before':>9} {'peak':>9}")
    cases = [(learner, 10**k, "") for learner in LEARNERS for k in range(6, given.most + 1)]
    cases += [("psrl", 10**k, how) for how in ("record", "folder") for k in range(6, given.most)]
    for learner, steps, record in cases:
        found = in_a_child("--one", given.problem, learner, str(steps), record)
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
