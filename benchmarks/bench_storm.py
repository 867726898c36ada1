"""Storm and fmdp on one question: the best long-run average of circles of machines.

Each answer comes from a process of its own, so that its memory is its own: processor time from the
model in hand to the gain (Storm's with and without reading the file and writing out the states),
and the peak of resident memory above what the process had when its imports were done. fmdp has
compiled its kernels beforehand, as it has on every machine after the first plan; its time is the
least of three plans, its memory that of the first. Storm, which is compiled, answers once.

    python -m benchmarks.bench_storm [--sizes 6 8 10] [--out FILE.json]    (the extra `storm`)
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

PROBLEM = "circle:{n},dynamics=guestrin,reward=mean"


def peak_megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def by_fmdp(n: int) -> dict[str, Any]:
    import fmdp

    planner = fmdp.Exact(threads=1)
    planner.plan(fmdp.problem(PROBLEM.format(n=3)))  # compiles, or loads what was compiled
    model = fmdp.problem(PROBLEM.format(n=n))
    before = peak_megabytes()
    plan = planner.plan(model)
    megabytes = peak_megabytes() - before
    times = []
    for _ in range(3):
        started = time.process_time()
        planner.plan(model)
        times.append(time.process_time() - started)
    return {
        "gain": plan.gain,
        "bounds": plan.gain_bounds,
        "seconds": min(times),
        "megabytes": megabytes,
    }


def by_storm(n: int) -> dict[str, Any]:
    import stormpy

    import fmdp
    from fmdp.interop import prism

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.prism"
        prism.save(fmdp.problem(PROBLEM.format(n=n)), path)
        before, started = peak_megabytes(), time.process_time()
        program = stormpy.parse_prism_program(str(path))
        question = stormpy.parse_properties('R{"reward"}max=? [ LRA ]', program)
        sparse = stormpy.build_model(program, question)
        built = time.process_time()
        answer = stormpy.model_checking(sparse, question[0])
        done = time.process_time()
    return {
        "gain": float(answer.get_value(sparse.initial_states[0])),
        "seconds": done - started,
        "solving_seconds": done - built,
        "megabytes": peak_megabytes() - before,
    }


def alone(who: str, n: int) -> dict[str, Any]:
    """The answer of one side, from a process of its own."""
    words = [sys.executable, "-m", "benchmarks.bench_storm", "--one", who, "--sizes", str(n)]
    environment = os.environ | {"NUMBA_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    made = subprocess.run(words, check=True, capture_output=True, text=True, env=environment)
    found: dict[str, Any] = json.loads(made.stdout.splitlines()[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[6, 8, 10])
    parser.add_argument("--one", choices=["fmdp", "storm"], help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    if given.one:
        print(json.dumps({"fmdp": by_fmdp, "storm": by_storm}[given.one](given.sizes[0])))
        return
    rows = []
    print("machines  states   gain (Storm)   fmdp          Storm, solving     MB fmdp  MB Storm")
    for n in given.sizes:
        ours, theirs = alone("fmdp", n), alone("storm", n)
        rows.append({"machines": n, "fmdp": ours, "storm": theirs})
        print(
            f"{n:8} {2**n:7}   {theirs['gain']:.8f}   {ours['seconds'] * 1e3:7.1f} ms   "
            f"{theirs['seconds']:7.2f} s {theirs['solving_seconds']:7.2f} s   "
            f"{ours['megabytes']:7.1f}  {theirs['megabytes']:8.1f}"
        )
    if given.out:
        given.out.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
