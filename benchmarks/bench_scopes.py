"""Learning without known scopes: steps until the true scopes are found, and regret, against the
same learner that knows the scopes and one that takes all variables as parents.

    python -m benchmarks.bench_scopes [--seeds 5] [--steps 5000] [--panels machines,random,...]
                                      [--out FILE.json] [--figure FILE.png] [--redraw]

Panels: `machines` (circles of 4 to 10 machines with strong and weak edges), `random` (random models
with 1 to 3 parents and bounds of 1 to 3), `rivals` (all learners on four machines) and `growth`
(steps until found and seconds per run with the number of variables and the bound). Everything is
gap regret with exact plans, in one process with one thread. Results are written after every cell,
and cells that the file has are not run again.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("FMDP_THREADS", "1")

import numpy as np

import fmdp
from fmdp.simulation import reference_for

HERE = Path(__file__).resolve().parent.parent / "docs" / "figures"
ALL = "default, all parents"
UNKNOWN = "default,scopes=unknown"
MOST_VARIABLES_FOR_ALL = 6
"""Largest number of variables for which all of them are taken as parents."""

Cell = tuple[str, str, str]
"""Panel, problem, learner."""


def cells() -> Iterator[Cell]:
    for n in (4, 6, 8, 10):
        for problem in (f"circle:{n},dynamics=guestrin", f"circle:{n}"):
            for learner in ("default", UNKNOWN, "psrl", "psrl,scopes=unknown"):
                yield "machines", problem, learner
            if n <= MOST_VARIABLES_FOR_ALL:
                yield "machines", problem, ALL
    for parents in (1, 2, 3):
        problem = f"random:6,parents={parents},seed=1"
        yield "random", problem, "default"
        yield "random", problem, ALL
        for bound in range(parents, 4):
            yield "random", problem, f"{UNKNOWN},parents={bound}"
    rivals = (
        "dbn-ucrl",
        "slf-ucrl",
        "slf-ucrl,test=intervals",
        "slf-ucrl,c=0.03",
        "dbn-ucrl,c=0.03",
    )
    for learner in (*rivals, "frmax,m=100", "slf-rmax,m=100", "lse-rmax,m=100"):
        yield "rivals", "circle:4,dynamics=guestrin", learner
    for parents in (1, 2, 3):
        for n in (4, 6, 8, 10, 12):
            yield "growth", f"circle:{n},dynamics=guestrin", f"{UNKNOWN},parents={parents}"


def with_all_parents(model: fmdp.FactoredMDP) -> fmdp.FactoredMDP:
    """Return the same model, with all variables in every transition scope."""
    s = model.structure
    everything = tuple(range(len(s.sizes)))
    wide = s.with_factors([everything] * s.m, s.reward_scopes, s.reward_ranges, s.reward_names)
    tables = []
    for table, scope, size in zip(
        model.transitions, s.transition_scopes, s.state_sizes, strict=True
    ):
        missing = tuple(v for v in everything if v not in scope)
        shaped = np.expand_dims(table.reshape(*s.scope_sizes(scope), size), missing)
        tables.append(np.broadcast_to(shaped, (*s.sizes, size)).reshape(-1, size))
    return fmdp.FactoredMDP(wide, tables, model.rewards, initial_state=model.initial_state)


def found_at(agent: Any, true: Sequence[tuple[int, ...]]) -> int | None:
    """Return the step from which on the scopes are the true ones; None if they are not."""
    statistics = agent.statistics
    if statistics.structure.transition_scopes != tuple(true):
        return None
    return max((step for step, _, _ in getattr(statistics, "changes", ())), default=0)


def measure(cell: Cell, seeds: int, steps: int) -> dict[str, Any]:
    _, problem, learner = cell
    model = fmdp.problem(problem)
    true = model.structure.transition_scopes
    # Gaps are those of the original model: the padded one has the same states and laws.
    reference = reference_for(model)
    acted_in = with_all_parents(model) if learner == ALL else model
    runs = []
    for seed in range(seeds):
        started = time.process_time()
        player = "default" if learner == ALL else learner
        run = fmdp.simulate(acted_in, player, steps, seed, reference=reference)
        statistics: Any = run.agent.statistics
        scopes = statistics.structure.transition_scopes
        runs.append(
            {
                "gap_regret": run.gap_regret,
                "seconds": round(time.process_time() - started, 2),
                "found": found_at(run.agent, true),
                "right": sum(a == b for a, b in zip(scopes, true, strict=True)),
                "preparations": getattr(statistics, "preparations", None),
            }
        )
    return {"steps": steps, "variables": model.structure.m, "runs": runs}


def median(values: Sequence[float]) -> float:
    return float(np.median(values))


def run(panels: Sequence[str], seeds: int, steps: int, out: Path) -> dict[str, Any]:
    results: dict[str, Any] = json.loads(out.read_text()) if out.exists() else {}
    for cell in cells():
        key = " | ".join(cell)
        if cell[0] not in panels or key in results:
            continue
        results[key] = measure(cell, seeds, steps)
        out.write_text(json.dumps(results, indent=1) + "\n")
        print(line(key, results[key]), flush=True)
    return results


def line(key: str, result: dict[str, Any]) -> str:
    runs = result["runs"]
    found = [one["found"] for one in runs if one["found"] is not None]
    at = f"{median(found):,.0f}" if found else "-"
    return (
        f"{key}: gap regret {median([one['gap_regret'] for one in runs]):.0f}, found in "
        f"{len(found)} of {len(runs)} runs at step {at}, right "
        f"{median([one['right'] for one in runs]):.0f} of {result['variables']}, "
        f"{median([one['seconds'] for one in runs]):.1f} s"
    )


def draw(results: dict[str, Any], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11.0, 3.6), layout="constrained")
    regret, found, seconds = figure.subplots(1, 3)
    styles = {"default": ("C0", "o", "known scopes"), UNKNOWN: ("C1", "s", "unknown scopes")}
    styles[ALL] = ("C2", "^", "all variables as parents")
    for learner, (colour, marker, label) in styles.items():
        points = []
        for n in (4, 6, 8, 10):
            result = results.get(f"machines | circle:{n},dynamics=guestrin | {learner}")
            if result is not None:
                points.append((n, [one["gap_regret"] for one in result["runs"]]))
        if points:
            x = [n for n, _ in points]
            regret.plot(x, [median(y) for _, y in points], colour, marker=marker, label=label)
            low, high = [min(y) for _, y in points], [max(y) for _, y in points]
            regret.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0)
    for parents in (1, 2, 3):
        steps, times, x = [], [], []
        for n in (4, 6, 8, 10, 12):
            key = f"growth | circle:{n},dynamics=guestrin | {UNKNOWN},parents={parents}"
            runs = results.get(key, {"runs": []})["runs"]
            if runs:
                x.append(n)
                at = [one["found"] for one in runs if one["found"] is not None]
                steps.append(median(at) if 2 * len(at) > len(runs) else np.nan)
                times.append(median([one["seconds"] for one in runs]))
        label = f"at most {parents} parent{'s' if parents > 1 else ''}"
        if parents > 1:  # with one parent the true scopes are no candidates
            found.plot(x, steps, f"C{2 + parents}", marker="o", label=label)
        seconds.plot(x, times, f"C{2 + parents}", marker="o", label=label)
    for axes, title in (
        (regret, "gap regret after 5,000 steps"),
        (found, "steps until all scopes are right"),
        (seconds, "processor seconds per run"),
    ):
        axes.set_title(title, fontsize="medium")
        axes.set_xlabel("machines in the circle")
        if axes is regret:
            axes.set_yscale("log")
        else:
            axes.set_ylim(bottom=0)
        axes.legend(fontsize="small")
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=5000)
    parser.add_argument("--panels", default="machines,random,rivals,growth")
    parser.add_argument("--out", type=Path, default=HERE / "unknown-scopes.json")
    parser.add_argument("--figure", type=Path, default=HERE / "unknown-scopes.png")
    parser.add_argument("--redraw", action="store_true", help="draw the stored results only")
    given = parser.parse_args()
    panels = [] if given.redraw else given.panels.split(",")
    draw(run(panels, given.seeds, given.steps, given.out), given.figure)


if __name__ == "__main__":
    main()
