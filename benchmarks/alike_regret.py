"""What knowing alike rows is worth: regret of PSRL, DORL and FSRL on guestrin circles of 7 and 20
machines, with alike = none, rows, machines.

    python -m benchmarks.alike_regret [--seeds 5] [--steps 10000] [--panels small,large]
                                      [--figure FILE] [--out FILE.json] [--redraw FILE.json]

On 7 machines every learner plans exactly, and gap regret is drawn: it has the expectation of the
regret up to sp(h) and no noise of the rewards. On 20 machines (2^20 states) a learner plans
hundreds of times by linear programming with the basis `pairs`, and realised regret against the
optimal gain is drawn; what the same planner loses when it is told the model is the line to compare
with. FSRL plans under span budgets over all states, minutes a plan there: it is left out. One
process, one thread; what is done is written down after every run. About a quarter of an hour, of
which the exact gain of the large circle takes three minutes and DORL without alike rows half of the
rest.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("FMDP_THREADS", "1")

import numpy as np

import fmdp
from fmdp.simulation import Reference, reference_for

ALIKE = ("none", "rows", "machines")
PANELS: Mapping[str, tuple[str, str, tuple[str, ...]]] = {
    "small": ("circle:7,dynamics=guestrin,reward=mean", "exact", ("psrl", "dorl", "fsrl")),
    "large": ("circle:20,dynamics=guestrin,reward=mean", "alp,basis=pairs", ("psrl", "dorl")),
}
"""The problem, the planner, and the learners that can afford it."""
HERE = Path(__file__).resolve().parent.parent / "docs" / "figures"


def reference_of(name: str, panel: str) -> tuple[Reference, dict[str, Any]]:
    """What regret is measured against, and what is to be said about it."""
    model = fmdp.problem(name)
    if panel == "small":
        found = reference_for(model)
        return found, {"gain": found.gain}
    plan = fmdp.Exact(tolerance=1e-4).plan(model)
    assert plan.gain is not None
    reference = Reference(gain=plan.gain, gain_kind="exact", gaps=None, seconds=plan.seconds)
    return reference, {"gain": plan.gain, "gain_seconds": round(plan.seconds, 1)}


def learner_of(name: str, planner: str) -> fmdp.Learner:
    kinds = {"psrl": fmdp.PSRL, "dorl": fmdp.DORL, "fsrl": fmdp.FSRL}
    return kinds[name]() if name == "fsrl" else kinds[name](planner=planner)


def run(panels: Sequence[str], seeds: int, steps: int, out: Path) -> dict[str, Any]:
    """Curves of all runs, one panel a problem."""
    results: dict[str, Any] = {"seeds": seeds, "steps": steps, "panels": {}}
    for panel in panels:
        problem, planner, learners = PANELS[panel]
        reference, told = reference_of(problem, panel)
        rows: dict[str, Any] = {}
        results["panels"][panel] = {
            "problem": problem,
            "planner": planner,
            "regret": "gap" if panel == "small" else "realised",
            **told,
            "learners": rows,
        }
        if panel == "large":
            model = fmdp.problem(problem)
            policy = fmdp.ALP(basis="pairs").plan(model).policy
            assert policy is not None
            rows["oracle"] = {"none": measured(model, policy, reference, seeds, steps)}
        # Cheap ones first: what is cut off is then what costs most.
        for alike in reversed(ALIKE):
            model = fmdp.problem(f"{problem},alike={alike}")
            for name in learners:
                found = measured(model, learner_of(name, planner), reference, seeds, steps)
                rows.setdefault(name, {})[alike] = found
                print(
                    f"{problem} {name:5} alike={alike:9} median {found['median'][-1]:8.1f}, worst "
                    f"{found['worst'][-1]:8.1f}, {found['plans']:.0f} plans, "
                    f"{found['seconds']:.1f} s a run",
                    flush=True,
                )
                out.write_text(json.dumps(results) + "\n")
    return results


def measured(
    model: fmdp.FactoredMDP, player: Any, reference: Reference, seeds: int, steps: int
) -> dict[str, Any]:
    """Median and worst regret over seeds at log-spaced steps, with what a run cost."""
    curves, plans = [], []
    started = time.process_time()
    for seed in range(seeds):
        done = fmdp.simulate(model, player, steps, seed, reference=reference)
        curve = done.curve if done.gap_curve is None else done.gap_curve
        marks = [t for t, _ in curve]
        curves.append([regret for _, regret in curve])
        plans.append(done.planner_calls or 0)
    structure = model.structure
    return {
        "t": marks,
        "median": np.round(np.median(curves, axis=0), 3).tolist(),
        "best": np.round(np.min(curves, axis=0), 3).tolist(),
        "worst": np.round(np.max(curves, axis=0), 3).tolist(),
        "plans": float(np.mean(plans)),
        "seconds": round((time.process_time() - started) / seeds, 2),
        "L": structure.max_scope_size,
        "classes": structure.n_transition_classes + structure.n_reward_classes,
    }


# ---- the figure ---------------------------------------------------------------------------------

# Okabe & Ito: colour, dash.
STYLES = {"none": ("#D55E00", "-"), "rows": ("#0072B2", "--"), "machines": ("#009E73", "-.")}
NAMES = {"psrl": "PSRL", "dorl": "DORL", "fsrl": "FSRL"}


def draw(results: Mapping[str, Any], path: Path) -> None:
    """Regret against t: a row of panels a problem, a panel a learner, a line a kind of alike."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    plt.rcParams.update({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False})
    panels = results["panels"]
    figure, axes = plt.subplots(
        len(panels), 3, figsize=(10.5, 3.3 * len(panels)), squeeze=False, sharex=True
    )
    for row, panel in zip(axes, panels.values(), strict=True):
        learners = {name: own for name, own in panel["learners"].items() if name in NAMES}
        machines = panel["problem"].partition(",")[0].partition(":")[2]
        for axis, name in zip(row, NAMES, strict=True):
            if name not in learners:
                axis.set_axis_off()
                axis.text(
                    0.5,
                    0.5,
                    f"{NAMES[name]} plans over all $2^{{{machines}}}$ states:\nminutes a plan",
                    ha="center",
                    va="center",
                    transform=axis.transAxes,
                    color="#555555",
                )
                continue
            for alike in ALIKE:
                if alike not in learners[name]:
                    continue
                found = learners[name][alike]
                t = np.array(found["t"])
                late = t >= 10
                colour, dash = STYLES[alike]
                label = f"alike={alike}: L = {found['L']}, {found['classes']:,} rows to learn"
                axis.plot(t[late], np.array(found["median"])[late], dash, color=colour, label=label)
                axis.fill_between(
                    t[late],
                    np.array(found["best"])[late],
                    np.array(found["worst"])[late],
                    color=colour,
                    alpha=0.15,
                    linewidth=0,
                )
            oracle = panel["learners"].get("oracle")
            if oracle is not None:
                found = oracle["none"]
                t = np.array(found["t"])
                axis.plot(
                    t[t >= 10],
                    np.array(found["median"])[t >= 10],
                    ":",
                    color="#333333",
                    label="the same planner, told the model",
                )
            axis.set_xscale("log")
            axis.set_title(f"{NAMES[name]}, {machines} machines", fontsize=10)
            axis.legend(fontsize=7, frameon=False, loc="upper left")
            axis.set_ylim(bottom=0)
        row[0].set_ylabel(f"{panel['regret']} regret")
    for axis in axes[-1]:
        axis.set_xlabel("steps")
    for axis in axes[0]:
        axis.tick_params(labelbottom=True)
    figure.tight_layout()
    figure.savefig(path, dpi=150)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--panels", default=",".join(PANELS))
    parser.add_argument("--figure", type=Path, default=HERE / "alike-regret.png")
    parser.add_argument("--out", type=Path, default=HERE / "alike-regret.json")
    parser.add_argument("--redraw", type=Path, help="draw the figure of these numbers")
    asked = parser.parse_args()
    if asked.redraw is not None:
        results = json.loads(asked.redraw.read_text())
    else:
        results = run(asked.panels.split(","), asked.seeds, asked.steps, asked.out)
    draw(results, asked.figure)
    print(f"figure in {asked.figure}")


if __name__ == "__main__":
    main()
