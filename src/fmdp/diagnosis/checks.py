"""The self-test: whether this installation computes known numbers, in seconds.

Every check compares a number with one from another source (a gain from the literature's instances)
or with a second computation (the same run again; cuts and the factored program). A failure is one
line, whatever was raised. Because a broken library is what the self-test is for, each check imports
what it needs by itself. Cost: about two seconds once the kernels are compiled.
"""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

KNOWN_GAINS = {"three-leg:4": 3.9200237, "circle:3": 2.9330007}
"""Gains of instances of Xu and Tewari's experiments, to seven decimal places."""
_STEPS = 300


class CheckFailed(Exception):
    """A computed number is wrong."""


@dataclass(frozen=True)
class Outcome:
    """The outcome of one check."""

    name: str
    ok: bool
    said: str
    """The result or the error, in one line."""
    seconds: float


def check_exact() -> str:
    """Compare exact plans with known gains."""
    from fmdp.planning.choice import plan
    from fmdp.planning.exact.planner import Exact
    from fmdp.problems import problem

    worst = 0.0
    for name, known in KNOWN_GAINS.items():
        result = plan(problem(name), Exact())
        result.status.raise_if_interrupted()
        gain = result.gain
        if gain is None or abs(gain - known) > 1e-6:
            raise CheckFailed(f"the gain of {name} is {gain}; it has to be {known}")
        worst = max(worst, abs(gain - known))
    return f"the gains of {' and '.join(KNOWN_GAINS)} to {worst:.0e}"


def check_approximate() -> str:
    """Compare two linear programs with one optimum, and their bound with the known gain."""
    from fmdp.planning.alp import ALP
    from fmdp.planning.choice import plan
    from fmdp.problems import problem

    objectives, bounds = [], []
    for method in ("cuts", "factored"):
        result = plan(problem("circle:3"), ALP(method=method))
        result.status.raise_if_interrupted()
        if result.objective is None or result.gain_upper is None:
            raise CheckFailed(f"no solution of circle:3 with method={method}: {result.status}")
        objectives.append(result.objective)
        bounds.append(result.gain_upper)
    if not math.isclose(*objectives, rel_tol=1e-6):
        raise CheckFailed(f"cuts and the factored program end with {objectives}")
    if min(bounds) < KNOWN_GAINS["circle:3"] - 1e-6:
        raise CheckFailed(f"{min(bounds)} is no upper bound on the gain of circle:3")
    return f"cuts and the factored program agree: {objectives[0]:.6f}"


def check_learning() -> str:
    """Check that a learner with one seed gives the same run twice, to the last bit."""
    from fmdp.learning.psrl import PSRL
    from fmdp.problems import problem
    from fmdp.simulation import simulate

    model = problem("circle:3")
    runs = [simulate(model, PSRL(), steps=_STEPS, seed=0) for _ in range(2)]
    if any(run.interrupted for run in runs):
        raise KeyboardInterrupt
    if runs[0].curve != runs[1].curve or runs[0].gap_curve != runs[1].gap_curve:
        raise CheckFailed(f"one seed, two regrets: {runs[0].regret} and {runs[1].regret}")
    return f"{_STEPS} steps of PSRL twice: the same regret, {runs[0].regret:.2f}"


def check_store() -> str:
    """Store one run in the folder for temporary files, and read it."""
    from fmdp.experiments.api import sweep

    with tempfile.TemporaryDirectory(prefix="fmdp-doctor-") as folder:
        out = Path(folder) / "runs"
        with sweep(
            "jao:2", "random", seeds=1, steps=10, out=out, workers=0, progress=None
        ) as results:
            seeds = results.runs_table()["seed"].tolist()
    if seeds != [0]:
        raise CheckFailed(f"a store of one run gives back {len(seeds)}")
    return f"one run stored and read in {Path(folder).parent}"


CHECKS: dict[str, Callable[[], str]] = {
    "exact planning": check_exact,
    "linear programs": check_approximate,
    "learning": check_learning,
    "store": check_store,
}


def run_checks() -> Iterator[Outcome]:
    """Run every check; a failure does not stop the others."""
    for name, check in CHECKS.items():
        started = time.perf_counter()
        try:
            ok, said = True, check()
        except CheckFailed as error:
            ok, said = False, str(error)
        except Exception as error:
            ok, said = False, f"{type(error).__name__}: {error}"
        said = " ".join(said.split())
        yield Outcome(name, ok, said, time.perf_counter() - started)
