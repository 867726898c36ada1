"""Learners: steps a second, the paper's table, growth of the regret, and where a span budget helps.

    python -m benchmarks.bench_learning speed  [--seeds 5]
    python -m benchmarks.bench_learning table  [--seeds 20] [--planners exact,alp]
    python -m benchmarks.bench_learning slopes [--seeds 20] [--figure FILE]
    python -m benchmarks.bench_learning span   [--seeds 20] [--figure FILE]

`--out FILE.json` keeps the numbers, `--redraw FILE.json` draws a figure from them again. One
process, one thread; speed is processor time. Compilation is not counted.

speed: 10,000 steps on circle:7, and the simulator alone under a fixed policy. table: medians and
quartiles of realised regret and gap regret at T = 10,000. slopes: gap regret up to T = 100,000 with
the exact planner, and the slope of log regret against log T over the last decade. span: DORL, FSRL
and PSRL on products whose diameter grows or is infinite while the factored span stays small.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("FMDP_THREADS", "1")

import numpy as np

import fmdp
from fmdp.learning.episodes import NO_LIMITS
from fmdp.learning.learner import Learner, Offer
from fmdp.model import FactoredMDP, product
from fmdp.planning.registry import planner_kind
from fmdp.simulation import Environment, reference_for

XU = ("circle:4", "circle:7", "three-leg:4", "three-leg:7")
GUESTRIN = "circle:7,dynamics=guestrin,reward=mean"
KNOWN_AFTER = {"circle:4": 300, "circle:7": 500, "three-leg:4": 500, "three-leg:7": 500}

Make = Callable[[FactoredMDP], Learner]


def planner(name: str) -> Any:
    return planner_kind(name).make({})


def quartiles(numbers: Sequence[float]) -> list[float]:
    return [float(q) for q in np.quantile(numbers, (0.25, 0.5, 0.75))]


# ---- speed --------------------------------------------------------------------------------------


def speed(seeds: int, planners: Sequence[str]) -> dict[str, Any]:
    model = fmdp.problem("circle:7")
    reference = reference_for(model)
    results: dict[str, Any] = {}
    for name in planners:
        for learner in (fmdp.PSRL, fmdp.DORL, fmdp.FRmax):
            fmdp.simulate(model, learner(model.structure, planner=planner(name)), 50)
            seconds = []
            for seed in range(seeds):
                made = learner(model.structure, planner=planner(name))
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
    environment = Environment(model, np.random.Generator(np.random.PCG64(0)))
    best = np.inf
    for _ in range(seeds):
        started, taken = time.process_time(), 0
        while taken < 1_000_000:
            offer = Offer(policy.actions, True, environment.ready(), NO_LIMITS, None)
            taken += environment.play(offer)[0]
        best = min(best, time.process_time() - started)
    results["simulator steps a second"] = 1e6 / best
    print(f"simulator, fixed policy: {1e6 / best:,.0f} steps/s")
    return results


# ---- the paper's table --------------------------------------------------------------------------


def table_learners(problem: str, name: str) -> dict[str, Make]:
    known = KNOWN_AFTER.get(problem, 300)
    return {
        "psrl c=.75": lambda model: fmdp.PSRL(model.structure, planner=planner(name)),
        "dorl c=.03": lambda model: fmdp.DORL(model.structure, planner=planner(name)),
        "dorl c=.003": lambda model: fmdp.DORL(model.structure, c=0.003, planner=planner(name)),
        "frmax m=300": lambda model: fmdp.FRmax(model.structure, planner=planner(name)),
        f"frmax m={known} (paper)": lambda model: fmdp.FRmax(
            model.structure, m=known, planner=planner(name)
        ),
    }


def table(seeds: int, planners: Sequence[str], steps: int = 10_000) -> dict[str, Any]:
    results: dict[str, Any] = {}
    for problem in (*XU, GUESTRIN):
        model = fmdp.problem(problem)
        reference = reference_for(model)
        rows: dict[str, Make] = {"oracle": fmdp.Oracle}
        for name in planners:
            rows |= {f"{k}, {name}": v for k, v in table_learners(problem, name).items()}
        rows["fsrl, span"] = lambda model: fmdp.FSRL(model.structure)
        for label, make in rows.items():
            runs = [
                fmdp.simulate(model, make(model), steps, seed, reference=reference)
                for seed in range(seeds)
            ]
            regret = quartiles([run.regret for run in runs])
            gap = quartiles([run.gap_regret for run in runs])  # type: ignore[misc]
            worst = max(run.gap_regret for run in runs)  # type: ignore[type-var]
            results[f"{problem} | {label}"] = {
                "regret": regret,
                "gap_regret": gap,
                "worst_gap_regret": worst,
                "unconverged": float(np.mean([run.unconverged_plans for run in runs])),  # type: ignore[arg-type]
                "seconds": float(np.median([run.seconds for run in runs])),
            }
            print(
                f"{problem:40} {label:28} regret {regret[0]:8.1f} {regret[1]:8.1f} {regret[2]:8.1f}"
                f"  gap {gap[0]:8.1f} {gap[1]:8.1f} {gap[2]:8.1f} worst {worst:8.1f}",
                flush=True,
            )
    return results


# ---- growth with T ------------------------------------------------------------------------------


def slopes(seeds: int, steps: int = 100_000) -> dict[str, Any]:
    results: dict[str, Any] = {}
    for problem in (*XU, GUESTRIN):
        model = fmdp.problem(problem)
        reference = reference_for(model)
        for learner in (fmdp.PSRL, fmdp.DORL, fmdp.FSRL):
            curves = []
            for seed in range(seeds):
                run = fmdp.simulate(
                    model, learner(model.structure), steps, seed, reference=reference
                )
                assert run.gap_curve is not None
                curves.append([gap for _, gap in run.gap_curve])
                marks = [t for t, _ in run.gap_curve]
            median = np.median(curves, axis=0)
            late = np.array(marks) >= steps / 10
            slope = np.polyfit(np.log(np.array(marks)[late]), np.log(median[late]), 1)[0]
            results[f"{problem} | {learner.name}"] = {
                "t": marks,
                "median": median.tolist(),
                "low": np.quantile(curves, 0.25, axis=0).tolist(),
                "high": np.quantile(curves, 0.75, axis=0).tolist(),
                "slope": float(slope),
            }
            print(f"{problem:40} {learner.name:6} slope {slope:.2f}, at T {median[-1]:.0f}")
    return results


# ---- where a span budget helps ------------------------------------------------------------------


def corners(n: int, chance: float = 0.0) -> FactoredMDP:
    """n copies of: stay at home for .5, or try for .4 to reach a corner that is hardly ever reached
    (never, with chance 0), pays .6 and is left again with probability .9. Trying is not worth it:
    the factored spans are 1/9 each, the diameter is 1 / chance and more."""
    one = FactoredMDP.from_factors(
        [2],
        [2],
        [((0, 1), [[1, 0], [1 - chance, chance], [0.9, 0.1], [0.9, 0.1]])],
        [((0, 1), [0.5, 0.4, 0.6, 0.6])],
    )
    return product(*(one for _ in range(n)))


def span_problems() -> dict[str, tuple[FactoredMDP, float]]:
    """Models, and a budget that is enough (m times the largest factored span, rounded up)."""
    return {
        "large-diameter": (fmdp.problem("large-diameter"), 4.0),
        **{f"jao:{n}": (fmdp.problem(f"jao:{n}"), 2.0 * n) for n in (1, 2, 4, 6)},
        **{f"riverswim:{n}": (fmdp.problem(f"riverswim:{n}"), 6.5 * n) for n in (1, 2)},
        **{f"corner never reached, {n}": (corners(n), 0.5 * n) for n in (1, 2, 4)},
        **{f"corner at 1/1000, {n}": (corners(n, 1e-3), 0.5 * n) for n in (1, 2, 4)},
    }


def span(seeds: int, steps: int = 20_000) -> dict[str, Any]:
    results: dict[str, Any] = {}
    for problem, (model, budget) in span_problems().items():
        reference = reference_for(model)
        rows: dict[str, Callable[[], Learner]] = {
            "psrl": lambda s=model.structure: fmdp.PSRL(s),
            "dorl": lambda s=model.structure: fmdp.DORL(s),
            "fsrl, budget given": lambda s=model.structure, q=budget: fmdp.FSRL(s, budget=q),
            "fsrl, no budget": lambda s=model.structure: fmdp.FSRL(s),
        }
        for label, make in rows.items():
            runs = [
                fmdp.simulate(model, make(), steps, seed, reference=reference)
                for seed in range(seeds)
            ]
            curves = [[gap for _, gap in run.gap_curve or ()] for run in runs]
            results[f"{problem} | {label}"] = {
                "t": [t for t, _ in runs[0].curve],
                "median": np.median(curves, axis=0).tolist(),
                "low": np.quantile(curves, 0.25, axis=0).tolist(),
                "high": np.quantile(curves, 0.75, axis=0).tolist(),
            }
            gap = quartiles([run.gap_regret for run in runs])  # type: ignore[misc]
            print(
                f"{problem:24} {label:20} gap regret {gap[0]:8.1f} {gap[1]:8.1f} {gap[2]:8.1f}",
                flush=True,
            )
    return results


# ---- figures ------------------------------------------------------------------------------------

STYLES = {
    "psrl": ("PSRL", "#0072B2", "-"),
    "dorl": ("DORL", "#D55E00", "--"),
    "fsrl": ("FSRL", "#009E73", "-."),
    "fsrl, budget given": ("FSRL, budget given", "#009E73", "-."),
    "fsrl, no budget": ("FSRL, budget doubled", "#CC79A7", ":"),
}


def draw(results: Mapping[str, Any], path: Path, problems: Sequence[str]) -> None:
    """Median gap regret and quartiles against time, one panel a problem."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    plt.rcParams.update({"font.size": 10, "svg.hashsalt": "fmdp"})
    figure, axes = plt.subplots(
        1, len(problems), figsize=(3.4 * len(problems), 3.4), layout="constrained"
    )
    for axis, problem in zip(np.atleast_1d(axes), problems, strict=True):
        for label, (name, colour, line) in STYLES.items():
            row = results.get(f"{problem} | {label}")
            if row is None:
                continue
            if "slope" in row:
                name = f"{name}, slope {row['slope']:.2f}"
            axis.plot(row["t"], row["median"], color=colour, linestyle=line, label=name)
            axis.fill_between(row["t"], row["low"], row["high"], color=colour, alpha=0.15, lw=0)
        axis.set_xscale("log")
        axis.set_yscale("log")
        axis.set_ylim(bottom=1.0)
        axis.set_xlabel("step")
        axis.set_title(problem.replace(",", ",\n", 1), fontsize=10)
        axis.grid(visible=True, which="major", color="#dddddd", linewidth=0.7)
        axis.spines[["top", "right"]].set_visible(False)
        axis.legend(frameon=False, fontsize=8, loc="upper left")
    np.atleast_1d(axes)[0].set_ylabel("gap regret: median, quartiles")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110, metadata={"Software": None} if path.suffix == ".png" else None)


FIGURES = {
    "slopes": (*XU, GUESTRIN),
    "span": ("large-diameter", "jao:6", "riverswim:2", "corner never reached, 4"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", choices=("speed", "table", "slopes", "span"))
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--planners", default="exact,alp")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--figure", type=Path)
    parser.add_argument("--redraw", type=Path, help="draw the figure from an earlier --out file")
    given = parser.parse_args()
    seeds = given.seeds or (5 if given.part == "speed" else 20)
    planners = given.planners.split(",")
    if given.redraw:
        results = json.loads(given.redraw.read_text())
    else:
        results = {
            "speed": lambda: speed(seeds, planners),
            "table": lambda: table(seeds, planners),
            "slopes": lambda: slopes(seeds),
            "span": lambda: span(seeds),
        }[given.part]()
    if given.out:
        given.out.write_text(json.dumps(results, indent=1) + "\n")
    if given.figure and given.part in FIGURES:
        draw(results, given.figure, FIGURES[given.part])


if __name__ == "__main__":
    main()
