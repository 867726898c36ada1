"""Learners: steps a second.

    python -m benchmarks.bench_learning [--seeds 5] [--planners exact,alp] [--out FILE.json]

10,000 steps on circle:7, and the simulator alone under a fixed policy. One process, one thread,
processor time; compilation is not counted. What learners come to is made by docs_numbers.py.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("FMDP_THREADS", "1")

import numpy as np

import fmdp
from fmdp.planning.playing import ActionTable, Stretch
from fmdp.planning.registry import PLANNERS
from fmdp.simulation import Environment, reference_for


def planner(name: str) -> Any:
    return PLANNERS.read(name)


def speed(seeds: int, planners: Sequence[str]) -> dict[str, Any]:
    model = fmdp.problem("circle:7")
    reference = reference_for(model)
    results: dict[str, Any] = {}
    for name in planners:
        for learner in (fmdp.PSRL, fmdp.DORL, fmdp.FRmax):
            made = learner(planner=planner(name))
            fmdp.simulate(model, made, 50)
            seconds = []
            for seed in range(seeds):
                # Processor time: what a core of its own would take, also on a busy machine.
                started = time.process_time()
                run = fmdp.simulate(model, made, 10_000, seed, reference=reference)
                seconds.append(time.process_time() - started)
            calls = run.planner_calls
            results[f"{learner.name}, {name}"] = {"seconds": seconds, "plans": calls}
            print(
                f"{learner.name:6} {name:6} {calls:5} plans  best {min(seconds):6.3f} s  "
                f"median {np.median(seconds):6.3f} s  {10_000 / min(seconds):9,.0f} steps/s"
            )
    policy = fmdp.plan(model).policy
    assert isinstance(policy, fmdp.TablePolicy)
    table = ActionTable(policy, model.structure)
    environment = Environment(model, np.random.Generator(np.random.PCG64(0)))
    best = np.inf
    for _ in range(seeds):
        started, taken = time.process_time(), 0
        while taken < 1_000_000:
            taken += environment.play(Stretch(environment.ready(), table))[0]
        best = min(best, time.process_time() - started)
    results["simulator steps a second"] = 1e6 / best
    print(f"simulator, fixed policy: {1e6 / best:,.0f} steps/s")
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--planners", default="exact,alp")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    results = speed(given.seeds, given.planners.split(","))
    if given.out:
        given.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
