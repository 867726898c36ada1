"""Exact planning against what else one could write or use: time and memory.

Dense NumPy and QuantEcon's DiscreteDP build the matrix over all pairs of states. `smart` does not:
thirty lines of NumPy for a directed ring alone, blocks of four machines as 16 x 16 products of
BLAS, what actions have in common done once. That is what a clever user would write.

Every measurement is a process of its own, so that its peak memory is its own, and the planners
take turns at each size, so that a busy machine slows them alike.  Clocks start when the problem's
id is read and stop when the plan is there: building the model counts, imports and compilation do
not (other models are planned first, by the same compiled functions).  Dense planners stop where
their matrix would not fit; DiscreteDP has no average reward, so it solves the nearest thing that it
has (discount .999).

    python -m benchmarks.bench_exact [--largest 20] [--out FILE.json] [--figure FILE.png]
    python -m benchmarks.bench_exact --sweeps           how many, accelerated and not
    python -m benchmarks.bench_exact --ring             fmdp and `smart`, one thread each, by turns
    python -m benchmarks.bench_exact --beside PYTHON [PROBLEM ...]
                                                        against another build of fmdp, by that
                                                        build's Python; one thread each, by turns
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
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
    from fmdp.elimination.tuning import PARALLEL_STATES
    from fmdp.planning.exact.planner import Exact
    from fmdp.problems import problem

    for kind in ("circle:2", "circle:9,dynamics=guestrin"):
        Exact().plan(problem(kind))
    if problem(name).structure.n_states >= PARALLEL_STATES:  # code for threads is loaded by itself
        threaded = PROBLEM.format(n=PARALLEL_STATES.bit_length() - 1)
        Exact(max_iterations=1).plan(problem(threaded))
    started, begun = time.perf_counter(), time.process_time()
    found = Exact(tolerance=TOLERANCE).plan(problem(name))
    seconds, processor = time.perf_counter() - started, time.process_time() - begun
    begun = time.process_time()
    Exact(tolerance=TOLERANCE).plan(problem(name))  # the order and the layout are known by now
    return {
        "seconds": seconds,
        "processor_seconds": processor,
        "processor_seconds_again": time.process_time() - begun,
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


def plan_smart(name: str) -> dict[str, Any]:
    """Relative value iteration for a directed ring, matrix-free, the same stopping rule."""
    import numpy as np

    from fmdp.problems import problem

    model = problem(name)
    started, begun = time.perf_counter(), time.process_time()
    n, size = model.structure.m, 16
    blocks = n // 4
    if n % 4:
        raise SystemExit("the smart planner takes rings of a multiple of four machines")
    # factor[i][own, parent, action]: rows; machine i looks at itself and at machine i - 1.
    factor = [
        np.asarray(table)
        .reshape(2, 2, n + 1, 2)
        .transpose((0, 1, 2, 3) if i == 0 else (1, 0, 2, 3))
        for i, table in enumerate(model.transitions)
    ]

    def matrix(block: int, before: int, action: int) -> Any:
        """Rows of four machines at once, [s, s'], given the machine before them."""
        rows = np.ones((size, size))
        for s in range(size):
            bits = [before, *(s >> shift & 1 for shift in (3, 2, 1, 0))]
            row = np.ones(1)
            for j in range(4):
                row = np.outer(row, factor[4 * block + j][bits[j + 1], bits[j], action]).ravel()
            rows[s] = row
        return rows

    idle = [[matrix(k, before, n) for before in (0, 1)] for k in range(blocks)]
    busy = [[matrix(a // 4, before, a) for before in (0, 1)] for a in range(n)]
    rewards = sum(
        np.asarray(table).reshape([2 if v in scope else 1 for v in range(n)])
        for scope, table in zip(model.structure.reward_scopes, model.rewards, strict=True)
    )
    rewards = np.broadcast_to(rewards, (2,) * n).reshape(-1)

    def eliminate(tensor: Any, k: int, both: Any, closing: int) -> Any:
        """Block k from next to current values; the machine before it is known by now."""
        if k == 0:
            return both[closing] @ tensor.reshape(size, -1)
        parts = tensor.reshape(size**k // 2, 2, size, -1)
        done = np.empty_like(parts)
        for before in (0, 1):
            np.matmul(both[before], parts[:, before], out=done[:, before])
        return done

    def sweep(h: Any) -> Any:
        best = np.full(len(h), -np.inf)
        for closing in (0, 1):  # the last machine, which the first one looks at
            own = best.reshape(-1, 2)[:, closing]

            def finish(tensor: Any, k: int, closing: int = closing, own: Any = own) -> None:
                for later in range(k, blocks):
                    tensor = eliminate(tensor, later, idle[later], closing)
                np.maximum(own, tensor.reshape(-1, 2)[:, closing], out=own)

            tensor = h
            for k in range(blocks):
                for a in range(4 * k, 4 * k + 4):
                    finish(eliminate(tensor, k, busy[a], closing), k + 1)
                tensor = eliminate(tensor, k, idle[k], closing)
            finish(tensor, blocks)
        return rewards + best

    h = np.zeros(2**n)
    sweeps, low, high = 0, 0.0, 1.0
    while high - low > TOLERANCE:
        sweeps += 1
        new = sweep(h)
        low, high = (new - h).min(), (new - h).max()
        h = new - new[0]
    return {
        "seconds": time.perf_counter() - started,
        "processor_seconds": time.process_time() - begun,
        "gain": float(0.5 * (low + high)),
        "sweeps": sweeps,
    }


PLANNERS = {
    "fmdp": plan_fmdp,
    "smart": plan_smart,
    "dense": plan_dense,
    "quantecon": plan_quantecon,
}


def dense_bytes(name: str, copies: int) -> int:
    from fmdp.problems import problem

    structure = problem(name).structure
    return copies * 8 * structure.n_actions * structure.n_states**2


def problem_size(name: str) -> int:
    from fmdp.problems import problem

    return problem(name).structure.m


def measure(planner: str, name: str, time_limit: float) -> dict[str, Any] | None:
    """One process; None if it does not fit or does not end."""
    copies = {"fmdp": 0, "smart": 0, "dense": 1, "quantecon": 2}[planner]
    if planner == "smart" and problem_size(name) % 4:
        return None
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
    for n, row in results["circle"].items():
        ratios = [
            f"{row[other]['seconds'] / row['fmdp']['seconds']:.1f} times {other}"
            for other in ("smart", "dense")
            if row["fmdp"] and row[other] and n >= 12
        ]
        if ratios:
            print(f"at n = {n} fmdp is as fast as {', '.join(ratios)}")
    return results


SWEPT = (
    *(f"circle:{n},dynamics=guestrin" for n in (10, 14, 18)),
    "bi-ring:10,dynamics=guestrin",
    "grid:9,dynamics=talebi",
    "star:9,dynamics=ippc",
    "tree:12,dynamics=talebi",
    "riverswim:3",
    "random:10,seed=1",
    "circle:10",
    "circle:16",
    "three-leg:10",
    "machines:3",
)


def sweeps() -> None:
    """A table for the page: sweeps to the default tolerance, accelerated and not."""
    import fmdp
    from fmdp.planning.exact import planner as exact

    print("| problem | states | plain | accelerated |\n|---|---|---|---|")
    accelerated = exact.acceleration_for
    for name in SWEPT:
        model = fmdp.problem(name)
        found = {}
        for kind, made in (("plain", lambda *_: None), ("accelerated", accelerated)):
            exact.acceleration_for = made  # type: ignore[assignment]
            plan = fmdp.Exact().plan(model)
            found[kind] = f"{plan.iterations}"
        told = f"{found['plain']} | {found['accelerated']}"
        print(f"| `{name}` | {model.structure.n_states:,} | {told} |", flush=True)


ONE_THREAD = dict.fromkeys(
    ("FMDP_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"), "1"
)


def ring() -> None:
    """A table for the page: fmdp and the smart planner, processor time, the least of some turns.

    fmdp's first plan for a ring of this size in its process, and the second.
    """
    print("| machines | states | fmdp | again | that ring | ratio |\n|---|---|---|---|---|---|")
    for n, turns in ((12, 9), (16, 5), (20, 2)):
        least: dict[str, float] = {}
        for planner in ("fmdp", "smart") * turns:
            command = [sys.executable, "-m", "benchmarks.bench_exact"]
            command += ["--one", planner, PROBLEM.format(n=n)]
            env = os.environ | ONE_THREAD
            done = subprocess.run(command, capture_output=True, check=True, env=env)
            found = json.loads(done.stdout)
            for key in ("processor_seconds", "processor_seconds_again"):
                if key in found:
                    of = planner + key.removeprefix("processor_seconds")
                    least[of] = min(least.get(of, float("inf")), found[key])
        first, again, other = least["fmdp"], least["fmdp_again"], least["smart"]
        print(
            f"| {n} | {1 << n:,} | {first:.3g} s | {again:.3g} s | {other:.3g} s "
            f"| {other / first:.1f} |",
            flush=True,
        )


BESIDE = (
    *(f"circle:{n},dynamics=guestrin,reward=mean" for n in (12, 16, 20, 24)),
    "circle:20,reward=mean",
    *(f"bi-ring:{n},dynamics=guestrin" for n in (10, 12, 14)),
    "grid:12,dynamics=guestrin",
    "grid:12,dynamics=talebi",
    "random:12,parents=3,actions=5",
    "random:6,values=4,parents=3,actions=5",
    "random:16,seed=1",
    "machines:4",
    "maintenance:5,levels=8,k=4",
    "maintenance:7,levels=5,k=5",
)
SLOW_SWEEPS = {"circle:24,dynamics=guestrin,reward=mean": 112}
"""Not run to the end by the other build, but for three sweeps: how many plain ones it would take,
going by the 135, 130 and 121 of 12, 16 and 20 machines."""
_ONCE = """
import pickle, sys, time
from fmdp.model import FactoredMDP, Structure
from fmdp.planning.exact.planner import Exact
from fmdp.problems import problem
def model(name):
    if not name.endswith(".pickle"):
        return problem(name)
    structure, *tables = pickle.load(open(name, "rb"))
    return FactoredMDP(Structure(*structure), *tables)
def plan(name, most=None):
    return Exact(threads=1, tolerance=1e-6, max_iterations=most).plan(model(name))
# Compiled functions come with Numba or without it: whichever it is in the plan, they are loaded.
warm = ["maintenance:3"] if sys.argv[1].startswith("maintenance") else []
for kind in (*warm, "circle:2", "circle:9,dynamics=guestrin", "random:7", "machines:3"):
    plan(kind)
took = []
for most in [int(own) for own in sys.argv[2:]] or [None]:
    started = time.process_time()
    found = plan(sys.argv[1], most)
    took.append(time.process_time() - started)
print(found.iterations, *took)
"""


def once(python: str, name: str, *most: int) -> tuple[int, list[float]]:
    """Sweeps and processor time of a plan by some build, or of plans of at most so many sweeps."""
    command = [python, "-c", _ONCE, name, *map(str, most)]
    env = os.environ | ONE_THREAD
    done = subprocess.run(command, capture_output=True, check=True, text=True, env=env)
    count, *seconds = done.stdout.split()
    return int(count), [float(own) for own in seconds]


def as_tables(name: str, folder: str) -> str:
    """A file with the tables of a model, for a build that does not know the problem."""
    from fmdp.problems import problem

    model = problem(name)
    s = model.structure
    told = (s.state_sizes, s.action_sizes, s.transition_scopes, s.reward_scopes, s.reward_ranges)
    path = Path(folder) / "model.pickle"
    path.write_bytes(pickle.dumps((told, list(model.transitions), list(model.rewards))))
    return str(path)


def beside(other: str, names: Sequence[str]) -> None:
    """Processor time of this build and another one, by turns, one thread; the better of two, but
    for what takes more than ten seconds."""
    print("| problem | that build: s, sweeps | this one | ratio |\n|---|---|---|---|")
    for name in names or BESIDE:
        with tempfile.TemporaryDirectory() as folder:
            theirs = as_tables(name, folder) if name.startswith("maintenance") else name
            few, (now,) = once(sys.executable, name)
            many = SLOW_SWEEPS.get(name)
            if many is None:
                many, (before,) = once(other, theirs)
            else:
                _, (one, three) = once(other, theirs, 1, 3)
                before = one + (many - 1) * (three - one) / 2
            if before < 10.0:
                now = min(now, *once(sys.executable, name)[1])
                before = min(before, *once(other, theirs)[1])
        print(
            f"| `{name}` | {before:.3g}, {many} | {now:.3g}, {few} | {before / now:.1f} |",
            flush=True,
        )


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
        "smart": ("a clever user's NumPy, for rings", "#CC79A7", "D", "-."),
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
        axis.set_ylabel(title.rpartition(", ")[2] if "," in title else "s")
        axis.set_xticks([n for n in sizes if n % 2 == 0])
        axis.grid(visible=True, which="major", color="#dddddd", linewidth=0.7)
        axis.spines[["top", "right"]].set_visible(False)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=2, frameon=False)
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
    parser.add_argument("--sweeps", action="store_true", help="how many, accelerated and not")
    parser.add_argument("--ring", action="store_true", help="beside the smart planner, by turns")
    parser.add_argument("--beside", metavar="PYTHON", help="the Python of another build of fmdp")
    parser.add_argument("problems", nargs="*", help="with --beside: these alone")
    given = parser.parse_args()
    if given.sweeps:
        sweeps()
        return
    if given.ring:
        ring()
        return
    if given.beside:
        beside(given.beside, given.problems)
        return
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
