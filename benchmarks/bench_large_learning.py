"""Learners on problems far beyond exact plans: regret against a certified bound.

Random actions, learners whose basis grows, those that keep `singles`, and the learner's last
planner with the true tables. A learner whose basis did not grow is not run again with `singles`:
the run would be the same, step by step.

    python -m benchmarks.bench_large_learning [--problems A;B] [--players A;B] [--steps 10000]
        [--seeds 3] [--out FILE.json] [--redraw]

One process, one thread; seconds are of the processor. Results are written after every run, beside
those that the file has already.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

os.environ.setdefault("FMDP_THREADS", "1")

import numpy as np

import fmdp
from fmdp.simulation.regret import Reference

HERE = Path(__file__).resolve().parent.parent / "docs" / "figures"
GUESTRIN = "circle:100,dynamics=guestrin,alike=machines"
PROBLEMS = ("fleet:1000,types=5,alike=types", "grid:36", "circle:100", GUESTRIN)
SEARCHED_BOUNDS = (GUESTRIN,)
"""Problems whose bound is that of a basis that grows: that of `singles` is five times the gain."""
STATED = "true model"
"""The player that follows a plan made with the true tables, by the last planner of `default`."""
SINGLES = "alp,basis=singles"
PLAYERS: dict[str, Any] = {
    "random": fmdp.Random(),
    "default": fmdp.Default(),
    STATED: None,
    "psrl": fmdp.PSRL(),
    "default, singles": fmdp.Default(planner=SINGLES),
    "psrl, singles": fmdp.PSRL(planner=SINGLES),
}
"""What is run, by name; `STATED` is made from the run of `default` before it."""


def reference_of(name: str, model: fmdp.FactoredMDP) -> Reference:
    """Return the certified bound to measure regret against."""
    if name not in SEARCHED_BOUNDS:
        return fmdp.reference_for(model)
    bound = fmdp.plan(model, fmdp.ALP()).gain_upper
    assert bound is not None
    return Reference(bound, "upper_bound", None, 0.0)


def measured(
    model: fmdp.FactoredMDP, player: Any, reference: Any, steps: int, seed: int
) -> tuple[dict[str, Any], Any]:
    """Return the regret curve of one run and what it cost, and its agent."""
    started = time.process_time()
    run = fmdp.simulate(model, player, steps, seed, reference=reference)
    growth = getattr(run.agent, "basis_growth", None)
    row = {
        "t": [t for t, _ in run.curve],
        "regret": [round(regret, 3) for _, regret in run.curve],
        "reward_per_step": reference.gain - run.curve[-1][1] / run.curve[-1][0],
        "plans": run.planner_calls or 0,
        "basis": None if growth is None else growth.summary(run.agent.planner.basis),
        "seconds": round(time.process_time() - started, 1),
    }
    return row, run.agent


def same_run(players: Mapping[str, Any], player: str, seed: int) -> dict[str, Any] | None:
    """Return the row of the learner without `singles`, if its basis did not grow."""
    learner, singles, _ = player.partition(", singles")
    rows = players.get(learner, [])
    if not singles or len(rows) <= seed or (rows[seed]["basis"] or {}).get("changes"):
        return None
    return {**rows[seed], "seconds": 0.0}


def run_problem(name: str, players: list[str], steps: int, seeds: int, out: Path) -> None:
    """Add the runs of one problem to the file `out`."""
    model = fmdp.problem(name)
    reference = reference_of(name, model)
    print(f"{name}: gain at most {reference.gain:.4f}", flush=True)
    results: dict[str, Any] = json.loads(out.read_text()) if out.exists() else {}
    panel = results.setdefault(name, {"players": {}})
    panel |= {"bound": reference.gain, "steps": steps}
    for seed in range(seeds):
        planner: Any = None
        for player in players:
            learner = PLAYERS[player]
            if player == STATED:
                learner = fmdp.Oracle(planner=planner)
            row = same_run(panel["players"], player, seed)
            if row is None:
                row, agent = measured(model, learner, reference, steps, seed)
                planner = getattr(agent, "planner", None) or planner
            rows = panel["players"].setdefault(player, [])
            rows[seed:] = [row, *rows[seed + 1 :]]
            print(
                f"  seed {seed} {player:18} {row['reward_per_step']:9.4f} per step, "
                f"{row['plans']:5} plans, {row['seconds']:7.1f} s, {row['basis']}",
                flush=True,
            )
            out.write_text(json.dumps(results) + "\n")


# ---- the figure ---------------------------------------------------------------------------------

# Okabe & Ito: colour, dash.
STYLES = {
    "random": ("#555555", ":"),
    STATED: ("#009E73", "-."),
    "default, singles": ("#CC79A7", (0, (5, 1, 1, 1, 1, 1))),
    "psrl": ("#0072B2", "--"),
    "default": ("#D55E00", "-"),
}
NAMES = {
    "random": "random actions",
    STATED: "same planner, true model",
    "default, singles": "default, singles",
    "psrl": "PSRL",
    "default": "default learner",
}


def draw(results: Mapping[str, Any], path: Path) -> None:
    """Draw regret per step so far, as a share of the bound, mean over the seeds: one panel per
    problem."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.ticker import PercentFormatter

    plt.rcParams.update({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False})
    drawn = [problem for problem in PROBLEMS if problem in results]
    figure, axes = plt.subplots(1, len(drawn), figsize=(3.4 * len(drawn), 3.6), squeeze=False)
    for axis, problem in zip(axes[0], drawn, strict=True):
        panel = results[problem]
        for player, (colour, dash) in STYLES.items():
            rows = panel["players"].get(player)
            if rows is None:
                continue
            t = np.array(rows[0]["t"], dtype=float)
            late = t >= 50
            regret = np.mean([row["regret"] for row in rows], axis=0)
            share = regret[late] / t[late] / panel["bound"]
            axis.plot(t[late], share, linestyle=dash, color=colour, label=NAMES[player])
        axis.set(xscale="log", xlabel="steps")
        axis.set_title(problem.replace(",", ",\n", 1), fontsize=9)
        axis.set_ylim(bottom=0)
        axis.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes[0][0].set_ylabel("regret per step, share of the bound")
    handles, labels = axes[0][-1].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncols=len(labels), frameon=False)
    figure.tight_layout(rect=(0, 0.08, 1, 1))
    figure.savefig(path, dpi=150)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--problems", default=";".join(PROBLEMS), help="separated by semicolons")
    parser.add_argument("--players", default=";".join(PLAYERS), help="separated by semicolons")
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=HERE / "large-learning.json")
    parser.add_argument("--figure", type=Path, default=HERE / "large-learning.png")
    parser.add_argument("--redraw", action="store_true", help="only draw the figure of --out")
    asked = parser.parse_args()
    if not asked.redraw:
        for name in asked.problems.split(";"):
            run_problem(name, asked.players.split(";"), asked.steps, asked.seeds, asked.out)
    draw(json.loads(asked.out.read_text()), asked.figure)


if __name__ == "__main__":
    main()
