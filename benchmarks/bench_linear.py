"""The approximate linear program: how its cost grows, what it loses, what a re-plan costs.

    python -m benchmarks.bench_linear growth [--out FILE.json] [--figure FILE.png]
    python -m benchmarks.bench_linear gaps
    python -m benchmarks.bench_linear replan
    python -m benchmarks.bench_linear neighbours
    python -m benchmarks.bench_linear relatives
    python -m benchmarks.bench_linear unshared
    python -m benchmarks.bench_linear split

`growth` plans circles and multi-agent networks of growing size, each in a process of its own so
that its peak memory is its own; imports and compilation are apart.  `gaps` compares the bound, the
gain of the greedy policy and the optimum where all three can be computed.  `replan` re-solves
circle:7 with the tables of a learner, as PSRL and DORL do in every episode.  `neighbours`: what
larger scopes bring on larger circles; `relatives`: policy iteration and Bellman error beside the
linear program; `unshared`: circles on which no two actions share a table; `split`: how far the
relaxed targets are off.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

FAMILIES = {
    "circle, singles": ("circle:{n},dynamics=talebi,reward=mean", "singles"),
    "circle of machines that all differ, singles": ("differ:{n}", "singles"),
    "circle, pairs": ("circle:{n},dynamics=talebi,reward=mean", "pairs"),
    "multi-agent circle, local": ("machines:{n}", "local"),
}
SIZES = {
    "circle, singles": (10, 20, 40, 100, 200, 400, 700, 1000),
    "circle of machines that all differ, singles": (10, 20, 40, 100, 200, 400, 700, 1000),
    "circle, pairs": (10, 20, 40, 100, 200),
    "multi-agent circle, local": (5, 10, 20, 40, 100, 200),
}
GAP_PROBLEMS = (
    "circle:7,dynamics=guestrin,reward=mean",
    "three-leg:7,dynamics=guestrin,reward=mean",
    "circle:7,dynamics=talebi,reward=mean",
    "circle:7,reward=mean",
    "machines:3",
)


def model_of(name: str) -> Any:
    """A problem by its id; in `differ:n`, a talebi circle, every machine has its own numbers."""
    import numpy as np

    from fmdp.model import FactoredMDP
    from fmdp.problems import problem

    if not name.startswith("differ:"):
        return problem(name)
    n = int(name.removeprefix("differ:"))
    alike = problem(f"circle:{n},dynamics=talebi,reward=mean")
    rng = np.random.Generator(np.random.PCG64(0))
    tables = []
    for i, table in enumerate(alike.transitions):
        works = table[:, 1].reshape(-1, n + 1).copy()  # [parents' values, action]
        left = np.clip(works[:, (i + 1) % (n + 1)] * rng.uniform(0.8, 1.05, len(works)), 0, 1)
        restarted = np.clip(works[:, i] * rng.uniform(0.9, 1.02, len(works)), 0, 1)
        works[:] = left[:, None]
        works[:, i] = restarted
        tables.append(np.stack([1 - works, works], axis=2).reshape(-1, 2))
    return FactoredMDP(alike.structure, tables, alike.rewards, name=name)


def consecutive(n: int, width: int) -> tuple[tuple[int, ...], ...]:
    """Joint indicators over `width` neighbours on a ring, one scope a machine."""
    return tuple(tuple(sorted({(i + k) % n for k in range(width)})) for i in range(n))


def run_one(name: str, basis: str) -> None:
    from fmdp.planning.alp import ALP

    ALP(basis=basis).plan(model_of("machines:2" if basis == "local" else "circle:3"))
    model = model_of(name)
    started = time.perf_counter()
    found = ALP(basis=basis).plan(model)
    print(
        json.dumps(
            {
                "seconds": time.perf_counter() - started,
                "status": found.status.value,
                "objective": found.objective,
                "gain_upper": found.gain_upper,
                "rounds": found.iterations,
                "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
            }
        )
    )


def growth() -> dict[str, Any]:
    results: dict[str, Any] = {}
    for family, (pattern, basis) in FAMILIES.items():
        results[family] = {}
        for n in SIZES[family]:
            command = [
                sys.executable,
                "-m",
                "benchmarks.bench_linear",
                "one",
                pattern.format(n=n),
                basis,
            ]
            done = subprocess.run(command, capture_output=True, check=True)
            row = json.loads(done.stdout)
            results[family][n] = row
            print(
                f"{family:44s} n={n:5d}  {row['seconds']:8.3f} s  "
                f"{row['peak_bytes'] / (1 << 20):6.0f} MB  {row['rounds']:5d} rounds  "
                f"bound {row['gain_upper']:.6f}  {row['status']}",
                flush=True,
            )
    return results


def draw(results: dict[str, Any], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    plt.rcParams.update({"font.size": 11})
    looks = (
        ("#0072B2", "o", "-"),
        ("#D55E00", "s", "--"),
        ("#009E73", "^", ":"),
        ("#CC79A7", "D", "-."),
    )
    figure, axes = plt.subplots(1, 2, figsize=(10, 4.6), layout="constrained")
    for (family, rows), (colour, marker, line) in zip(results.items(), looks, strict=True):
        sizes = sorted(int(n) for n in rows)
        by_size = {int(n): row for n, row in rows.items()}
        for axis, key, unit in ((axes[0], "seconds", 1.0), (axes[1], "peak_bytes", 1 << 20)):
            axis.plot(
                sizes,
                [by_size[n][key] / unit for n in sizes],
                color=colour,
                marker=marker,
                linestyle=line,
                label=family,
                markersize=5,
            )
    for axis, title in ((axes[0], "seconds to solve"), (axes[1], "peak memory, MB")):
        axis.set_xscale("log")
        axis.set_yscale("log")
        axis.set_xlabel("machines n")
        axis.set_title(title, fontsize=11)
        axis.grid(visible=True, which="major", color="#dddddd", linewidth=0.7)
        axis.spines[["top", "right"]].set_visible(False)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=2, frameon=False, fontsize=10)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150, metadata={"Software": None})


def gaps() -> None:
    from fmdp.planning.alp import ALP
    from fmdp.planning.choice import plan
    from fmdp.planning.exact.planner import Exact

    kinds: dict[str, dict[str, Any]] = {
        "singles": {},
        "singles, ties first": {"ties": "first"},
        "singles, ties last": {"ties": "last"},
        "singles, average": {"criterion": "average"},
        "indicators": {"basis": "indicators"},
        "pairs": {"basis": "pairs"},
        "pairs, ties first": {"basis": "pairs", "ties": "first"},
        "pairs, average": {"basis": "pairs", "criterion": "average"},
        "local": {"basis": "local"},
    }
    for name in GAP_PROBLEMS:
        model = model_of(name)
        best = Exact(tolerance=1e-8).plan(model).gain
        assert best is not None
        print(f"{name}: optimal gain {best:.6f}")
        wider = {}
        if name.startswith("circle:7,dynamics=guestrin"):
            for width, criterion in ((3, "discounted"), (4, "discounted"), (4, "average")):
                settings = {"basis": consecutive(7, width), "criterion": criterion}
                wider[f"{width} neighbours, {criterion}"] = settings
        for kind, settings in {**kinds, **wider}.items():
            found = plan(model, ALP(**settings))
            assert found.gain_upper is not None
            assert found.policy_gain is not None
            print(
                f"    {kind:26s} bound {found.gain_upper:.5f} ({found.gain_upper / best - 1:+.1%})"
                f"   policy {found.policy_gain:.5f} ({found.policy_gain / best - 1:+.2%})",
                flush=True,
            )


def replan(plans: int = 300) -> None:
    from fmdp.learning.dorl import DORL
    from fmdp.learning.psrl import PSRL
    from fmdp.planning.alp import ALP
    from fmdp.problems import problem
    from fmdp.simulation import simulate

    model = problem("circle:7")
    for learner_of in (PSRL, DORL):
        # The paper's episodes: many plans, each after few steps.
        learner = learner_of(planner=ALP(basis="singles"), episodes="arithmetic")
        simulate(model, learner, steps=50, seed=1)
        started = time.process_time()
        run = simulate(model, learner, steps=2_000, seed=0)
        assert run.planner_calls is not None
        spent = (time.process_time() - started) / run.planner_calls
        print(
            f"{learner.name}: {1e3 * spent:.2f} ms of processor time for each of "
            f"{run.planner_calls} plans and the steps between"
        )


def neighbours() -> None:
    from fmdp.planning.alp import ALP
    from fmdp.planning.choice import plan
    from fmdp.planning.exact.planner import Exact

    for n in (8, 9, 10, 11, 12):
        model = model_of(f"circle:{n},dynamics=guestrin,reward=mean")
        best = Exact().plan(model).gain
        assert best is not None
        for criterion, discount in (("discounted", 0.95), ("discounted", 0.99), ("average", 0.95)):
            losses = []
            for basis in ("singles", *(consecutive(n, width) for width in (3, 4, 5))):
                found = plan(model, ALP(basis=basis, criterion=criterion, discount=discount))
                assert found.policy_gain is not None
                losses.append(f"{1 - found.policy_gain / best:6.2%}")
            print(
                f"n={n:3d} {criterion} {discount}  policy's loss, singles and 3 to 5 neighbours: "
                f"{'  '.join(losses)}",
                flush=True,
            )


def relatives() -> None:
    from fmdp.planning.alp import ALP, chains
    from fmdp.planning.alp.bellman import BellmanError
    from fmdp.planning.alp.policy_iteration import PolicyIteration
    from fmdp.planning.choice import plan
    from fmdp.planning.exact.planner import Exact

    for name in GAP_PROBLEMS[:3]:
        model = model_of(name)
        best = Exact().plan(model).gain
        assert best is not None
        for label, basis in (
            ("singles", "singles"),
            ("pairs", "pairs"),
            ("3 neighbours", chains(model.structure, 3)),
        ):
            losses = []
            for planner in (one(basis=basis) for one in (ALP, PolicyIteration, BellmanError)):
                found = plan(model, planner)
                assert found.policy_gain is not None
                losses.append(f"{planner.name} {1 - found.policy_gain / best:.2%}")
            print(f"{name:40s} {label:13s} {'   '.join(losses)}", flush=True)


def unshared() -> None:
    from fmdp.planning.alp import ALP

    ALP(basis="singles").plan(model_of("circle:70"))
    for n in (40, 100, 200, 400):
        model = model_of(f"circle:{n},reward=mean")
        started = time.process_time()
        found = ALP(basis="singles").plan(model)
        print(
            f"circle:{n},reward=mean  {time.process_time() - started:8.2f} s of processor time  "
            f"{found.iterations} rounds  bound {found.gain_upper:.6f}  {found.status.value}",
            flush=True,
        )


def split(models: int = 40) -> tuple[float, float]:
    """By what share the relaxed objective is too high: on average, and at worst."""
    import numpy as np

    from fmdp.model import OptimisticTables
    from fmdp.planning.alp import ALP

    rng = np.random.Generator(np.random.PCG64(0))
    excess = []
    for seed in range(models):
        model = model_of(f"random:5,parents=2,actions=2,seed={seed}")
        lower = tuple(table * rng.uniform(size=(len(table), 1)) for table in model.transitions)
        free = tuple(1.0 - table.sum(axis=1) for table in lower)
        tables = OptimisticTables(model.structure, lower, free, model.rewards)
        joint, apart = (
            ALP(basis="pairs", targets=targets).prepare(model.structure).solve(tables).objective
            for targets in ("joint", "split")
        )
        assert joint is not None
        assert apart is not None
        excess.append(apart / joint - 1.0)
    mean, worst = float(np.mean(excess)), float(max(excess))
    print(f"split targets: {mean:.1%} too high on average, {worst:.1%} at worst")
    return mean, worst


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    growing = commands.add_parser("growth")
    growing.add_argument("--out", type=Path)
    growing.add_argument("--figure", type=Path)
    plain: dict[str, Callable[[], object]] = {
        "gaps": gaps,
        "replan": replan,
        "neighbours": neighbours,
        "relatives": relatives,
        "unshared": unshared,
        "split": split,
    }
    for name in plain:
        commands.add_parser(name)
    one = commands.add_parser("one")
    one.add_argument("problem")
    one.add_argument("basis")
    given = parser.parse_args()
    if given.command == "one":
        run_one(given.problem, given.basis)
    elif given.command in plain:
        plain[given.command]()
    else:
        results = growth()
        if given.out:
            given.out.write_text(json.dumps(results, indent=1) + "\n")
        if given.figure:
            draw(results, given.figure)


if __name__ == "__main__":
    main()
