"""Learners: steps a second.

    python -m benchmarks.bench_learning [--seeds 5] [--planners exact,alp] [--out FILE.json]
    python -m benchmarks.bench_learning --all      every learner, as the table of docs/learning.md

10,000 steps on circle:7. One process, one thread, processor time; compilation is not counted; the
simulator alone is measured by bench_simulator.py. What learners come to is made by docs_numbers.py.

The public code of DBN-UCRL (Talebi, Jonsson & Maillard 2021), measured once on such a machine on
its circle of seven machines, which is `guestrin`: see PUBLIC. It has no ten machines.
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
from fmdp.experiments.compatibility import incompatibility
from fmdp.learning.registry import LEARNERS
from fmdp.planning.registry import PLANNERS
from fmdp.simulation import reference_for

PUBLIC = {"psrl": 2_800, "dbn-ucrl": 2_000, "ucrl-factored": 570}
"""Steps a second of that code, 10,000 of them."""
OURS, THEIRS = "circle:7", "circle:7,dynamics=guestrin,reward=mean"
LONG_ENOUGH = 20.0
"""Seconds after which a learner is not run with another seed."""


def table_of_all(seeds: int) -> dict[str, Any]:
    """Every learner with its own settings, exact plans: a table for the page."""
    results: dict[str, Any] = {}
    print("| learner | plans | steps/s | plans, `guestrin` | steps/s, `guestrin` | public code |")
    print("|---|---|---|---|---|---|")
    for kind in LEARNERS.own():
        if kind.name in ("oracle", "random", "policy"):
            continue
        refused = incompatibility(LEARNERS.read(kind.name), fmdp.problem(OURS))
        if refused is not None:
            print(f"| {kind.name} | {refused} |||||", flush=True)
            continue
        cells, rate = [], 0.0
        for name in (OURS, THEIRS):
            model = fmdp.problem(name)
            reference = reference_for(model)
            fmdp.simulate(model, kind.name, 50, reference=reference)
            runs: list[fmdp.Run] = []
            while len(runs) < seeds and sum(run.cpu_seconds for run in runs) < LONG_ENOUGH:
                runs.append(fmdp.simulate(model, kind.name, 10_000, len(runs), reference=reference))
            fastest = min(runs, key=lambda run: run.cpu_seconds)
            rate = 10_000 / fastest.cpu_seconds
            cells += [f"{fastest.planner_calls:,}", f"{float(f'{rate:.2g}'):,.0f}"]
            results[f"{kind.name}, {name}"] = {"steps a second": rate, "seeds": len(runs)}
        public = PUBLIC.get(kind.name)
        against = "" if public is None else f"{public:,} (1/{rate / public:.0f})"
        print(f"| {kind.name} | {' | '.join(cells)} | {against} |", flush=True)
    return results


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
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--planners", default="exact,alp")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--all", action="store_true", help="every learner, exact plans")
    given = parser.parse_args()
    results = (
        table_of_all(given.seeds) if given.all else speed(given.seeds, given.planners.split(","))
    )
    if given.out:
        given.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
