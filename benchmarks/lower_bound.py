"""The lower bound's scaling: regret of every learner on JAO products against T, on the worst of
several advantages epsilon of the good action.

    python -m benchmarks.lower_bound [--seeds 10] [--steps 30000] [--copies 1,2,3]
                                     [--figure FILE] [--out FILE.json] [--redraw FILE.json]

For any learner there is an epsilon, of the order of sqrt(delta L / T), on which it loses at least
c sqrt(sp L T) (docs/theory.md, section 7): smaller ones cost nothing, larger ones are soon found
out. So each learner runs on a grid of epsilons, the same runs for all T, and at each T the largest
of the mean gap regrets is drawn, with the proved lower bound (the largest over all epsilons) and
lines that grow like sqrt(T). Gap regret has the expectation of the regret up to sp(h), and no noise
of the rewards. Beside every learner with the paper's settings and episodes, PSRL with a uniform
prior and DORL with c = 1: the paper's are tuned to easier problems, and no theorem covers them. One
process, one thread, less than five minutes.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("FMDP_THREADS", "1")

import numpy as np

import fmdp
from fmdp.learning.registry import LEARNERS
from fmdp.simulation import reference_for
from fmdp.testing.oracles import jao_lower_bound

DELTA = 0.2
ACTIONS = 2
EPSILONS = (0.006, 0.0125, 0.025, 0.05, 0.1, 0.2, 0.4)
VARIANTS: Mapping[str, tuple[str, Mapping[str, float]]] = {
    "psrl, c=1, prior=1": ("psrl", {"c": 1.0, "prior": 1.0}),
    "dorl, c=1": ("dorl", {"c": 1.0}),
}
HERE = Path(__file__).resolve().parent.parent / "docs" / "figures"


def with_papers_episodes(kind: type[fmdp.Learner], settings: Mapping[str, float]) -> fmdp.Learner:
    rules = {one.name: "arithmetic" for one in kind.parameters if one.default == "growing"}
    return kind.make({**settings, **rules})


def run(seeds: int, steps: int, copies: Sequence[int]) -> dict[str, Any]:
    """Mean gap regret at log-spaced steps, for every number of copies, learner and epsilon."""
    panels: dict[str, Any] = {}
    started = time.perf_counter()
    for n in copies:
        rows: dict[str, Any] = {}
        learners = {
            kind.name: with_papers_episodes(kind, {})
            for kind in LEARNERS.own()
            if kind.role != "baseline"
        }
        learners |= {
            label: with_papers_episodes(LEARNERS.find(own), settings)
            for label, (own, settings) in VARIANTS.items()
        }
        for name, learner in learners.items():
            curves, errors = [], []
            for epsilon in EPSILONS:
                model = fmdp.problem(f"jao:{n},delta={DELTA},epsilon={epsilon},actions={ACTIONS}")
                reference = reference_for(model)
                runs = []
                for seed in range(seeds):
                    done = fmdp.simulate(model, learner, steps, seed, reference=reference)
                    assert done.gap_curve is not None
                    marks = [t for t, _ in done.gap_curve]
                    runs.append([gap for _, gap in done.gap_curve])
                curves.append(np.mean(runs, axis=0))
                errors.append(np.std(runs, axis=0) / math.sqrt(seeds))
            worst = np.argmax(curves, axis=0)
            columns = np.arange(len(marks))
            mean = np.array(curves)[worst, columns]
            late = np.array(marks) >= steps / 30
            slope = None
            if mean[-1] > 0:
                logs = np.log(np.array(marks)[late]), np.log(mean[late])
                slope = round(float(np.polyfit(*logs, 1)[0]), 3)
            rows[name] = {
                "worst_mean_gap_regret": np.round(mean, 2).tolist(),
                "standard_error": np.round(np.array(errors)[worst, columns], 2).tolist(),
                "worst_epsilon": [EPSILONS[k] for k in worst],
                "slope": slope,
            }
            print(
                f"jao:{n} {name:18} at T {mean[-1]:8.1f}, slope {slope}, "
                f"{time.perf_counter() - started:.0f} s",
                flush=True,
            )
        panels[str(n)] = {
            "t": marks,
            "lower_bound": [
                round(jao_lower_bound(t, delta=DELTA, actions=ACTIONS, copies=n), 3) for t in marks
            ],
            "learners": rows,
        }
    return {
        "delta": DELTA,
        "actions": ACTIONS,
        "epsilons": EPSILONS,
        "seeds": seeds,
        "steps": steps,
        "copies": panels,
    }


# ---- the figure ---------------------------------------------------------------------------------

# Okabe & Ito: colour, dash, name.
STYLES: Mapping[str, tuple[str, str, str]] = {
    "psrl": ("#0072B2", "-", "PSRL"),
    "dorl": ("#D55E00", "--", "DORL"),
    "fsrl": ("#E69F00", "dotted", "FSRL"),
    "frmax": ("#CC79A7", "-.", "f-Rmax"),
    "random": ("#767676", "dotted", "random actions"),
    "psrl, c=1, prior=1": ("#56B4E9", "-", "PSRL, c = 1, prior 1"),
    "dorl, c=1": ("#009E73", "--", "DORL, c = 1"),
}
SPARE = ("#8C6D31", "#5254A3", "#AD494A", "#637939")


def draw(results: Mapping[str, Any], path: Path) -> None:
    """Worst mean gap regret against T, one panel a number of copies."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    plt.rcParams.update({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False})
    panels = results["copies"]
    figure, axes = plt.subplots(
        1, len(panels), figsize=(4.1 * len(panels), 4.9), layout="constrained", sharey=True
    )
    first = 100
    for axis, (n, panel) in zip(np.atleast_1d(axes), panels.items(), strict=True):
        t = np.array(panel["t"])
        shown = t >= first
        bound = np.array(panel["lower_bound"])
        for guide in 10.0 ** np.arange(-3, 3, 0.5):
            axis.plot(t[shown], guide * np.sqrt(t[shown]), color="#E4E4E4", lw=0.7, zorder=0)
        spare = iter(SPARE)
        for name, row in panel["learners"].items():
            mean = np.array(row["worst_mean_gap_regret"])
            if not mean.any():
                continue  # the oracle, which loses nothing
            colour, line, label = STYLES.get(name) or (next(spare, "#000000"), "-", name)
            error = np.array(row["standard_error"])
            axis.plot(
                t[shown],
                mean[shown],
                color=colour,
                linestyle=line,
                lw=1.8,
                label=f"{label}: {row['slope']:.2f}",
            )
            axis.fill_between(
                t[shown],
                np.maximum(mean - error, 1e-3)[shown],
                (mean + error)[shown],
                color=colour,
                alpha=0.15,
                lw=0,
            )
        axis.plot(t[shown], bound[shown], color="black", lw=2, label="lower bound: 0.50")
        axis.fill_between(t[shown], 1e-3, bound[shown], color="black", alpha=0.06, lw=0)
        axis.set(xscale="log", yscale="log", xlim=(first, t[-1]), xlabel="steps T")
        copies = "one JAO MDP" if n == "1" else f"{n} JAO MDPs side by side"
        axis.set_title(copies, fontsize=10.5)
        axis.set_ylim(0.3, 2e4)
        axis.legend(
            frameon=False,
            fontsize=8,
            ncols=2,
            columnspacing=1.2,
            handlelength=2.4,
            loc="upper center",
            bbox_to_anchor=(0.5, -0.16),
        )
    np.atleast_1d(axes)[0].set_ylabel("mean gap regret on the worst epsilon")
    figure.suptitle(
        "Nobody is below the black line on every epsilon. Grey lines grow like √T; "
        "numbers are slopes of log regret over the last 1.5 decades",
        fontsize=11,
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120, metadata={"Software": None})
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--steps", type=int, default=30_000)
    parser.add_argument("--copies", default="1,2,3")
    parser.add_argument("--figure", type=Path, default=HERE / "lower-bound.png")
    parser.add_argument("--out", type=Path, default=HERE / "lower-bound.json")
    parser.add_argument("--redraw", type=Path, help="draw these numbers again, run nothing")
    chosen = parser.parse_args()
    if chosen.redraw is not None:
        results = json.loads(chosen.redraw.read_text())
    else:
        results = run(chosen.seeds, chosen.steps, [int(n) for n in chosen.copies.split(",")])
        chosen.out.write_text(json.dumps(results) + "\n")
    draw(results, chosen.figure)


if __name__ == "__main__":
    main()
