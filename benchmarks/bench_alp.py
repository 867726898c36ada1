"""Approximate plans against another build of fmdp, what a growing basis brings, and circles of 40.

    python -m benchmarks.bench_alp --beside PYTHON [--largest 400]      against another build, by
                                                        its Python; one thread each, by turns
    python -m benchmarks.bench_alp --one PROBLEM        this build alone: time, rounds, objective
    python -m benchmarks.bench_alp --auto               the bound and the policy of `basis=auto`
    python -m benchmarks.bench_alp --forty              circles of 40: bound and simulated policy

`--beside` plans with singles, so that both builds solve the same program; objectives must agree.
`--auto` compares with the exact planner; `--forty` has no exact gain, and simulates the policy with
a confidence interval as `fmdp evaluate` does.  Times are processor time; imports, compilation and
the evaluation of policies are apart.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fmdp.planning.plan import Plan

BESIDE = (
    "circle:40",
    "circle:100",
    "circle:200",
    "circle:400",
    "circle:100,dynamics=talebi",
    "machines:20",
)
AUTO = (
    "circle:7,dynamics=guestrin,reward=mean",
    "three-leg:7,dynamics=guestrin,reward=mean",
    "circle:7,dynamics=talebi,reward=mean",
    "circle:7,reward=mean",
    "machines:3",
    "circle:10,dynamics=guestrin,reward=mean",
)
FORTY = (
    "circle:40,dynamics=guestrin,reward=mean",
    "circle:40,dynamics=talebi,reward=mean",
    "circle:40,reward=mean",
)
_ONCE = """
import sys, time
from fmdp.planning.alp import ALP
from fmdp.problems import problem
basis = "local" if sys.argv[1].startswith("machines") else "singles"
for small in ("circle:70", "machines:2"):
    ALP(basis=basis).plan(problem(small))
model = problem(sys.argv[1])
started = time.process_time()
found = ALP(basis=basis).plan(model)
print(time.process_time() - started, found.iterations, repr(found.objective), found.status.value)
"""


def once(python: str, name: str) -> tuple[float, int, float, str]:
    """Processor time, rounds, objective and status of one plan by that Python."""
    done = subprocess.run(
        [python, "-c", _ONCE, name],
        capture_output=True,
        check=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
    )
    seconds, rounds, objective, status = done.stdout.split()
    return float(seconds), int(rounds), float(objective), status


def beside(other: str, largest: int) -> None:
    print("| problem | that build: s, rounds | this one | ratio |\n|---|---|---|---|")
    for name in BESIDE:
        if int(name.partition(":")[2].partition(",")[0]) > largest:
            continue
        before, many, theirs, _ = once(other, name)
        now, few, ours, status = once(sys.executable, name)
        if status == "converged" and abs(ours - theirs) > 1e-5 * abs(theirs):
            raise AssertionError(f"{name}: objectives {theirs} and {ours}")
        print(
            f"| `{name}` | {before:.3g}, {many} | {now:.3g}, {few} | {before / now:.1f} |",
            flush=True,
        )


def most_weights(found: Plan) -> int:
    """Of the largest program that was solved: equal machines share theirs."""
    return max(step["weights"] for step in found.stats["grown"])


def auto() -> None:
    import fmdp
    from fmdp.planning.choice import plan
    from fmdp.problems import problem

    plan(problem("circle:3"), "alp")
    print("| problem | weights | bound | policy | seconds | ended by |\n|---|---|---|---|---|---|")
    for name in AUTO:
        model = problem(name)
        best = plan(model, fmdp.Exact()).gain
        assert best is not None
        started = time.process_time()
        found = plan(model, fmdp.ALP())
        seconds = time.process_time() - started
        assert found.gain_upper is not None
        assert found.policy_gain is not None
        print(
            f"| `{name}` | {most_weights(found)} | {found.gain_upper / best - 1:+.2%} | "
            f"{found.policy_gain / best - 1:+.2%} | {seconds:.1f} | {found.stats['grown_until']} |",
            flush=True,
        )


def forty(steps: int = 1_000_000) -> None:
    import fmdp
    from fmdp.problems import problem
    from fmdp.simulation.evaluate import evaluate_by_simulation

    fmdp.plan(problem("circle:3"), "alp")
    print("| problem | weights | bound | policy, simulated | below the bound | seconds |")
    print("|---|---|---|---|---|---|")
    for name in FORTY:
        model = problem(name)
        started = time.process_time()
        found = fmdp.ALP().plan(model)
        seconds = time.process_time() - started
        assert found.policy is not None
        assert found.gain_upper is not None
        gained = evaluate_by_simulation(model, found.policy, steps=steps)
        assert gained.gain is not None, f"{name}: {gained.status.message}"
        assert gained.gain_lower is not None
        assert gained.gain_upper is not None
        half = 0.5 * (gained.gain_upper - gained.gain_lower)
        print(
            f"| `{name}` | {most_weights(found)} | {found.gain_upper:.4f} | "
            f"{gained.gain:.4f} ± {half:.4f} | "
            f"{1 - gained.gain / found.gain_upper:.1%} | {seconds:.1f} |",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--beside", metavar="PYTHON", help="the Python of another build of fmdp")
    parser.add_argument("--largest", type=int, default=400, help="machines, with --beside")
    parser.add_argument("--one", metavar="PROBLEM", help="this build alone")
    parser.add_argument("--auto", action="store_true", help="what a growing basis brings")
    parser.add_argument("--forty", action="store_true", help="circles of 40")
    given = parser.parse_args()
    if given.beside:
        beside(given.beside, given.largest)
    if given.one:
        seconds, rounds, objective, status = once(sys.executable, given.one)
        print(f"{given.one}: {seconds:.1f} s, {rounds} rounds, objective {objective!r}, {status}")
    if given.auto:
        auto()
    if given.forty:
        forty()


if __name__ == "__main__":
    main()
