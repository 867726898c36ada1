"""Exact planning against a dense NumPy planner and QuantEcon's DiscreteDP: time and memory.

Every measurement is a process of its own, so that its peak memory is its own, and the planners
take turns at each size, so that a busy machine slows them alike.  Clocks start when the problem's
id is read and stop when the plan is there: building the model counts, imports and compilation do
not (a model of two machines is planned first).  Dense planners stop where their matrix would not
fit; DiscreteDP has no average reward, so it solves the nearest thing that it has (discount .999).

    python -m benchmarks.bench_exact [--largest 20] [--out FILE.json] [--figure FILE.png]
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

PROBLEM = "circle:{n},dynamics=guestrin,reward=mean"
DENSE_BYTES = 10 << 30
TOLERANCE = 1e-6
GENERAL = (
    "bi-ring:12,dynamics=guestrin,reward=mean",
    "grid:12,dynamics=guestrin,reward=mean",
    "star:12,dynamics=guestrin,reward=mean",
    "circle:12,reward=mean",
    "random:12,parents=3,actions=5",
    "random:6,values=4,parents=3,actions=5",
    "riverswim:4",
    "machines:4",
)


def plan_fmdp(name: str) -> dict[str, Any]:
    from fmdp.planning.exact import Exact
    from fmdp.problems import problem

    Exact().plan(problem("circle:2"))
    started = time.perf_counter()
    found = Exact(tolerance=TOLERANCE).plan(problem(name))
    seconds = time.perf_counter() - started
    return {
        "seconds": seconds,
        "gain": found.gain,
        "gap": found.gain_upper - found.gain_lower,
        "sweeps": found.iterations,
        "status": found.status.value,
        "predicted_bytes": found.stats["memory_bytes"],
        "conditioned": len(found.stats["conditioned"]),
    }


def dense_tables(name: str) -> tuple[Any, Any]:
    """P [A, S, S] and R [A, S] by repeated outer products of the factors' rows."""
    import numpy as np

    from fmdp.model.spaces import all_assignments
    from fmdp.problems import problem

    model = problem(name)
    structure = model.structure
    n_states, n_actions = structure.n_states, structure.n_actions
    transitions = np.empty((n_actions, n_states, n_states))
    rewards = np.zeros((n_actions, n_states))
    states = all_assignments(structure.state_sizes)
    actions = all_assignments(structure.action_sizes)
    joint = np.empty((n_states, len(structure.sizes)), dtype=np.int64)
    joint[:, : structure.m] = states

    def rows(scope: tuple[int, ...]) -> Any:
        index = np.zeros(n_states, dtype=np.int64)
        for variable in scope:
            index = index * structure.sizes[variable] + joint[:, variable]
        return index

    for a in range(n_actions):
        joint[:, structure.m :] = actions[a]
        law = np.ones((n_states, 1))
        for i, table in enumerate(model.transitions):
            factor = table[rows(structure.transition_scopes[i])]
            law = (law[:, :, None] * factor[:, None, :]).reshape(n_states, -1)
        transitions[a] = law
        for k, table in enumerate(model.rewards):
            rewards[a] += table[rows(structure.reward_scopes[k])]
    return transitions, rewards


def plan_dense(name: str) -> dict[str, Any]:
    """Relative value iteration with one matrix product an action, the same stopping rule."""
    import numpy as np

    started = time.perf_counter()
    transitions, rewards = dense_tables(name)
    built = time.perf_counter()
    h = np.zeros(rewards.shape[1])
    sweeps, low, high = 0, 0.0, 1.0
    while high - low > TOLERANCE:
        sweeps += 1
        new = (rewards + transitions @ h).max(axis=0)
        low, high = (new - h).min(), (new - h).max()
        h = new - new[0]
    return {
        "seconds": time.perf_counter() - started,
        "seconds_building": built - started,
        "gain": float(0.5 * (low + high)),
        "sweeps": sweeps,
    }


def plan_quantecon(name: str) -> dict[str, Any]:
    """DiscreteDP with a dense Q, modified policy iteration, discount .999."""
    import numpy as np
    from quantecon.markov import DiscreteDP

    DiscreteDP(np.zeros((2, 1)), np.full((2, 1, 2), 0.5), 0.999).solve(
        method="modified_policy_iteration"
    )
    started = time.perf_counter()
    transitions, rewards = dense_tables(name)
    built = time.perf_counter()
    q = np.ascontiguousarray(transitions.transpose(1, 0, 2))
    del transitions
    result = DiscreteDP(np.ascontiguousarray(rewards.T), q, 0.999).solve(
        method="modified_policy_iteration", epsilon=TOLERANCE * 1000
    )
    return {
        "seconds": time.perf_counter() - started,
        "seconds_building": built - started,
        "gain": float(result.v.mean() * 0.001),
        "sweeps": int(result.num_iter),
    }


PLANNERS = {"fmdp": plan_fmdp, "dense": plan_dense, "quantecon": plan_quantecon}


def dense_bytes(name: str, copies: int) -> int:
    from fmdp.problems import problem

    structure = problem(name).structure
    return copies * 8 * structure.n_actions * structure.n_states**2


def measure(planner: str, name: str, time_limit: float) -> dict[str, Any] | None:
    """One process; None if it does not fit or does not end."""
    copies = {"fmdp": 0, "dense": 1, "quantecon": 2}[planner]
    if copies and dense_bytes(name, copies) > DENSE_BYTES:
        return None
    command = [sys.executable, "-m", "benchmarks.bench_exact", "--one", planner, name]
    try:
        done = subprocess.run(command, capture_output=True, timeout=time_limit, check=True)
    except subprocess.TimeoutExpired:
        return None
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def run_one(planner: str, name: str) -> None:
    result = PLANNERS[planner](name)
    result["peak_bytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps(result))


def compare(largest: int, time_limit: float) -> dict[str, Any]:
    results: dict[str, Any] = {"circle": {}, "general": {}}
    for n in (4, 6, 8, 10, 11, 12, 13, 14, 16, 18, 20, 22, 24):
        if n > largest:
            break
        name = PROBLEM.format(n=n)
        row = {planner: measure(planner, name, time_limit) for planner in PLANNERS}
        results["circle"][n] = row
        print(f"circle {n:2d}  " + "   ".join(describe(p, r) for p, r in row.items()), flush=True)
    for name in GENERAL:
        row = {planner: measure(planner, name, time_limit) for planner in ("fmdp", "dense")}
        results["general"][name] = row
        print(f"{name:42s} " + "   ".join(describe(p, r) for p, r in row.items()), flush=True)
    twelve = results["circle"].get(12)
    if twelve and twelve["dense"]:
        ratio = twelve["dense"]["seconds"] / twelve["fmdp"]["seconds"]
        print(f"at n = 12 fmdp is {ratio:.0f} times as fast as the dense planner")
    return results


def describe(planner: str, result: dict[str, Any] | None) -> str:
    if result is None:
        return f"{planner}: stops here"
    memory = result["peak_bytes"] / (1 << 20)
    return f"{planner}: {result['seconds']:.3f} s, {memory:.0f} MB, gain {result['gain']:.6f}"


def draw(results: dict[str, Any], path: Path) -> None:
    """Time and memory against the number of machines, both on log axes."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    styles = {
        "fmdp": ("fmdp, exact", "#0072B2", "o", "-"),
        "dense": ("dense NumPy value iteration", "#D55E00", "s", "--"),
        "quantecon": ("QuantEcon DiscreteDP (discount .999)", "#009E73", "^", ":"),
    }
    plt.rcParams.update({"font.size": 11, "svg.hashsalt": "fmdp"})
    figure, axes = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
    sizes = sorted(int(n) for n in results["circle"])
    for planner, (label, colour, marker, line) in styles.items():
        rows = [(n, results["circle"][n][planner]) for n in sizes]
        rows = [(n, row) for n, row in rows if row is not None]
        for axis, key, unit in ((axes[0], "seconds", 1.0), (axes[1], "peak_bytes", 1 << 20)):
            axis.plot(
                [n for n, _ in rows],
                [row[key] / unit for _, row in rows],
                color=colour,
                marker=marker,
                linestyle=line,
                label=label,
                markersize=5,
            )
    for axis, title in ((axes[0], "seconds to plan"), (axes[1], "peak memory, MB")):
        axis.set_yscale("log")
        axis.set_xlabel("machines n  (2$^n$ states, n + 1 actions)")
        axis.set_title(title, fontsize=11)
        axis.set_xticks([n for n in sizes if n % 2 == 0])
        axis.grid(visible=True, which="major", color="#dddddd", linewidth=0.7)
        axis.spines[["top", "right"]].set_visible(False)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=3, frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150, metadata={"Software": None} if path.suffix == ".png" else None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--largest", type=int, default=20)
    parser.add_argument("--time-limit", type=float, default=900.0, help="seconds a plan")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--figure", type=Path)
    parser.add_argument("--redraw", type=Path, help="draw the figure from an earlier --out file")
    parser.add_argument("--one", nargs=2, metavar=("PLANNER", "PROBLEM"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        run_one(*given.one)
        return
    if given.redraw:
        stored = json.loads(given.redraw.read_text())
        results = {**stored, "circle": {int(n): row for n, row in stored["circle"].items()}}
    else:
        results = compare(given.largest, given.time_limit)
    if given.out:
        given.out.write_text(json.dumps(results, indent=1) + "\n")
    if given.figure:
        draw(results, given.figure)


if __name__ == "__main__":
    main()
