"""Learning in fleets: regret against the number of parts, beside that of the plan for the truth.

    python -m benchmarks.bench_fleet_learning [--seeds 5] [--steps 3000]     run, store, draw, write
    python -m benchmarks.bench_fleet_learning --write      figure and table from the stored numbers

Fleets of 10 to 1,000 parts of five types, with the rows of one type declared alike. Regret is
measured against the certified bound of the planner `coupled`, which no policy reaches: it grows
with the steps even for the policy that is planned for the true model. So the oracle plays that
policy on the same seeds, and what a learner loses beyond it is the cost of learning. One process,
one thread, processor times. The numbers go to docs/figures/fleet-learning.json; the figure, and the
table between the marks in docs/fleets.md, are made from them alone.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

PARTS = (10, 30, 100, 300, 1000)
LEARNERS = {"oracle": "planned for the truth", "default": "default learner", "psrl": "PSRL"}
DOCS = Path(__file__).resolve().parent.parent / "docs"
NUMBERS = DOCS / "figures" / "fleet-learning.json"
FIGURE = DOCS / "figures" / "fleet-learning.png"
PAGE = DOCS / "fleets.md"
MARKS = ("<!-- fleet learning -->\n", "<!-- fleet learning ends -->\n")


def run(parts: Sequence[int], seeds: int, steps: int) -> dict[str, Any]:
    """Return the final regret of every run, the bounds and the times."""
    os.environ.setdefault("FMDP_THREADS", "1")  # fmdp reads it when it is imported
    import fmdp
    from fmdp.simulation import Reference

    makers = {"oracle": fmdp.Oracle, "default": fmdp.Default, "psrl": fmdp.PSRL}
    fleets: dict[str, Any] = {}
    for n in parts:
        model = fmdp.problem(f"fleet:{n},types=5,alike=types")
        plan = fmdp.plan(model, "coupled,simulated_steps=0")
        assert plan.gain_upper is not None
        reference = Reference(plan.gain_upper, "upper_bound", gaps=None, seconds=plan.seconds)
        fleet: dict[str, Any] = {"bound": plan.gain_upper, "learners": {}}
        for name in LEARNERS:
            learner = makers[name](planner="coupled")
            fmdp.simulate(model, learner, 2, 0, reference=reference)  # compiles
            started = time.process_time()
            runs = [
                fmdp.simulate(model, learner, steps, seed, reference=reference)
                for seed in range(seeds)
            ]
            fleet["learners"][name] = {
                "regret": [round(float(done.regret), 2) for done in runs],
                "plans": float(np.mean([done.planner_calls for done in runs])),
                "seconds": round((time.process_time() - started) / seeds, 2),
            }
            print(n, name, fleet["learners"][name], flush=True)
        fleets[str(n)] = fleet
    return {"seeds": seeds, "steps": steps, "fleets": fleets}


# ---- figure and table ---------------------------------------------------------------------------


def losses(numbers: Mapping[str, Any], name: str) -> tuple[Any, Any]:
    """Return two arrays [fleet, seed]: the loss per step in percent of the bound, for all runs of
    a learner, and the regret beyond that of the oracle on the same seed."""
    fleets = numbers["fleets"].values()
    regret = np.array([fleet["learners"][name]["regret"] for fleet in fleets])
    oracle = np.array([fleet["learners"]["oracle"]["regret"] for fleet in fleets])
    bound = np.array([fleet["bound"] for fleet in fleets])
    return 100.0 * regret / (numbers["steps"] * bound[:, None]), regret - oracle


def table(numbers: Mapping[str, Any]) -> str:
    """Return the table of the page: medians over the seeds, and times per run."""
    fleets = numbers["fleets"]
    lines = [
        "| parts | " + " | ".join(f"{int(n):,}" for n in fleets) + " |",
        "|---" * (len(fleets) + 1) + "|",
        "| certified bound on the gain | "
        + " | ".join(f"{fleet['bound']:.4g}" for fleet in fleets.values())
        + " |",
    ]
    for name, label in LEARNERS.items():
        percent = np.median(losses(numbers, name)[0], axis=1)
        lines.append(
            f"| {label}: % of the bound | " + " | ".join(map("{:.2g}".format, percent)) + " |"
        )
    for name in ("default", "psrl"):
        extra = np.median(losses(numbers, name)[1], axis=1)
        cells = " | ".join(f"{value:,.0f}" for value in extra)
        lines.append(f"| {LEARNERS[name]}: cost of learning | {cells} |")
    for name, label in LEARNERS.items():
        runs = [fleet["learners"][name] for fleet in fleets.values()]
        lines.append(
            f"| {label}: time | " + " | ".join(f"{r['seconds']:.2g} s" for r in runs) + " |"
        )
    return "\n".join(lines) + "\n"


def draw(numbers: Mapping[str, Any], path: Path) -> None:
    """Left: loss in percent of the bound against the parts; right: what learning costs."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    from fmdp.reports.style import BLACK, COLOURS, DASHES, DOTS, MARKERS

    looks = {
        "oracle": (BLACK[0], DOTS, MARKERS[2]),
        "default": (COLOURS[0][0], DASHES[0], MARKERS[0]),
        "psrl": (COLOURS[1][0], DASHES[1], MARKERS[1]),
    }
    plt.rcParams.update({"font.size": 13, "axes.spines.top": False, "axes.spines.right": False})
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.4))
    parts = [int(n) for n in numbers["fleets"]]
    for name, label in LEARNERS.items():
        colour, dash, marker = looks[name]
        for axis, values in zip((left, right), losses(numbers, name), strict=True):
            if axis is right and name == "oracle":
                continue
            line = {"color": colour, "marker": marker, "label": label, "linewidth": 2}
            axis.plot(parts, np.median(values, axis=1), dashes=dash or (None, None), **line)
            lowest, highest = values.min(axis=1), values.max(axis=1)
            axis.fill_between(parts, lowest, highest, color=colour, alpha=0.15, linewidth=0)
    for axis in (left, right):
        axis.set_xscale("log")
        axis.set_xticks(parts, [f"{n:,}" for n in parts])
        axis.minorticks_off()
        axis.set_xlabel("parts")
        axis.set_ylim(bottom=0)
        axis.grid(alpha=0.25)
    left.set_title("loss, % of the certified bound", loc="left", fontsize=13)
    right.set_title("cost of learning, total reward", loc="left", fontsize=13)
    left.legend(frameon=False)
    figure.tight_layout()
    figure.savefig(path, dpi=150)
    plt.close(figure)


def with_table(page: str, numbers: Mapping[str, Any]) -> str:
    """Return the page with the table of these numbers between the marks."""
    before, rest = page.split(MARKS[0])
    _, after = rest.split(MARKS[1])
    return before + MARKS[0] + table(numbers) + MARKS[1] + after


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=3_000)
    parser.add_argument("--write", action="store_true", help="use the stored numbers")
    asked = parser.parse_args()
    if not asked.write:
        numbers = run(PARTS, asked.seeds, asked.steps)
        NUMBERS.write_text(json.dumps(numbers, indent=1) + "\n", encoding="utf-8")
    numbers = json.loads(NUMBERS.read_text(encoding="utf-8"))
    draw(numbers, FIGURE)
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8"), numbers), encoding="utf-8")


if __name__ == "__main__":
    main()
