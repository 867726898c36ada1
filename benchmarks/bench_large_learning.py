"""Learners on problems far beyond exact plans: regret against the certified bound, random actions,
and the policy of the same planner with the true tables; and what a growing basis changes.

    python -m benchmarks.bench_large_learning [--part learners|bases] [--problems A;B]
        [--steps 10000] [--seed 0] [--out FILE.json] [--redraw]

Part `learners` runs random actions, the policy planned on the true model, the default learner and
PSRL, and draws the figure. Part `bases` compares the basis `singles`, the default inside learners,
with all functions of a few neighbours each (`fmdp.chains`), and with one that grows once inside the
default learner (`GrownOnce`). The last two take minutes, except for neighbours on the circle.

One process, one thread; seconds are of the processor. Results are written after every run.
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

HERE = Path(__file__).resolve().parent.parent / "docs" / "figures"
PROBLEMS = {
    "learners": "fleet:1000,types=5,alike=types;grid:36;circle:100",
    "bases": "circle:20,dynamics=guestrin,alike=machines;grid:36",
}
NEIGHBOURS = {"circle:20,dynamics=guestrin,alike=machines": 3}
"""Variables in each scope of the larger basis, where it is not 2."""
STATED = "true model"
"""The player that follows a plan made with the true tables."""
GROWN_AT = 1_000
"""Step after which `GrownOnce` grows its basis."""
GAP = 0.1
"""Share of the bound at which growth on the estimated model ends: its tables are not worth more."""


class GrownOnce(fmdp.Default):
    """The default learner, which grows its basis once, on the model estimated so far."""

    summary = "grows the basis once"

    def decide(self, agent: fmdp.Agent) -> fmdp.Decision:
        if agent.steps >= GROWN_AT and "grown" not in agent.memory:
            plan = fmdp.plan(fmdp.estimated_model(agent.statistics), fmdp.ALP(gap=GAP))
            agent.planner = fmdp.ALP(basis=plan.stats["scopes"])
            agent.memory["grown"] = True
        return super().decide(agent)


def players_of(part: str, problem: str, model: fmdp.FactoredMDP) -> dict[str, Any]:
    """Return what is run, by name: learners and policies."""
    if part == "learners":
        learners = (fmdp.Random(), fmdp.Oracle(), fmdp.Default(), fmdp.PSRL())
        return dict(zip(("random", STATED, "default", "psrl"), learners, strict=True))
    wide = fmdp.ALP(basis=fmdp.chains(model.structure, NEIGHBOURS.get(problem, 2)))
    return {
        "random": fmdp.Random(),
        f"{STATED}, singles": fmdp.Oracle(planner="alp,basis=singles"),
        f"{STATED}, neighbours": fmdp.Oracle(planner=wide),
        "default, singles": fmdp.Default(planner="alp,basis=singles"),
        "default, neighbours": fmdp.Default(planner=wide),
        "default, grown once": GrownOnce(planner="alp,basis=singles"),
    }


def measured(
    model: fmdp.FactoredMDP, player: Any, reference: Any, steps: int, seed: int
) -> dict[str, Any]:
    """Return the regret curve of one run and what it cost."""
    started = time.process_time()
    run = fmdp.simulate(model, player, steps, seed, reference=reference)
    return {
        "t": [t for t, _ in run.curve],
        "regret": [round(regret, 3) for _, regret in run.curve],
        "reward_per_step": reference.gain - run.curve[-1][1] / run.curve[-1][0],
        "plans": run.planner_calls or 0,
        "seconds": round(time.process_time() - started, 1),
    }


def run_part(part: str, problems: str, steps: int, seed: int, out: Path) -> None:
    """Add the runs of this part to the file `out`."""
    results: dict[str, Any] = json.loads(out.read_text()) if out.exists() else {}
    for name in problems.split(";"):
        model = fmdp.problem(name)
        reference = fmdp.reference_for(model)
        print(f"{name}: gain at most {reference.gain:.4f}", flush=True)
        rows: dict[str, Any] = {}
        results.setdefault(part, {})[name] = {
            "bound": reference.gain,
            "steps": steps,
            "seed": seed,
            "players": rows,
        }
        for player, learner in players_of(part, name, model).items():
            rows[player] = row = measured(model, learner, reference, steps, seed)
            print(
                f"  {player:24} {row['reward_per_step']:9.4f} per step, {row['plans']:5} plans, "
                f"{row['seconds']:7.1f} s",
                flush=True,
            )
            out.write_text(json.dumps(results) + "\n")


# ---- the figure ---------------------------------------------------------------------------------

# Okabe & Ito: colour, dash.
STYLES = {
    "random": ("#555555", ":"),
    STATED: ("#009E73", "-."),
    "psrl": ("#0072B2", "--"),
    "default": ("#D55E00", "-"),
}
NAMES = {
    "random": "random actions",
    STATED: "same planner, true model",
    "psrl": "PSRL",
    "default": "default learner",
}


def draw(panels: Mapping[str, Any], path: Path) -> None:
    """Draw regret per step so far, as a share of the bound: one panel per problem."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.ticker import PercentFormatter

    plt.rcParams.update({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False})
    figure, axes = plt.subplots(1, len(panels), figsize=(11, 3.6), squeeze=False)
    for axis, (problem, panel) in zip(axes[0], panels.items(), strict=True):
        for player, (colour, dash) in STYLES.items():
            if player not in panel["players"]:
                continue
            row = panel["players"][player]
            t = np.array(row["t"], dtype=float)
            late = t >= 50
            share = np.array(row["regret"])[late] / t[late] / panel["bound"]
            axis.plot(t[late], share, dash, color=colour, label=NAMES[player])
        axis.set(xscale="log", xlabel="steps", title=problem)
        axis.set_ylim(bottom=0)
        axis.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes[0][0].set_ylabel("regret per step, share of the bound")
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncols=len(labels), frameon=False)
    figure.tight_layout(rect=(0, 0.08, 1, 1))
    figure.savefig(path, dpi=150)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--part", choices=tuple(PROBLEMS), default="learners")
    parser.add_argument("--problems", help="separated by semicolons")
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=HERE / "large-learning.json")
    parser.add_argument("--figure", type=Path, default=HERE / "large-learning.png")
    parser.add_argument("--redraw", action="store_true", help="only draw the figure of --out")
    asked = parser.parse_args()
    if not asked.redraw:
        problems = asked.problems or PROBLEMS[asked.part]
        run_part(asked.part, problems, asked.steps, asked.seed, asked.out)
    learners = json.loads(asked.out.read_text()).get("learners")
    if learners:
        draw(learners, asked.figure)


if __name__ == "__main__":
    main()
