"""The self-test: whether this installation computes what is known, in seconds.

Every check holds a number against one that does not come from this machine (a gain from the
literature's instances), or against a second way to the same number (the same run again; cuts and
the factored program). What fails is told in one line, whatever it raised: a broken library under
fmdp is what the self-test is for, which is why each check imports what it needs by itself.
Cost: about two seconds where the kernels are compiled.
"""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

KNOWN_GAINS = {"three-leg:4": 3.9200237, "circle:3": 2.9330007}
"""Of the instances of Xu and Tewari's experiments; seven digits behind the point."""
_STEPS = 300


class CheckFailed(Exception):
    """Something was computed, and it is not what it has to be."""


@dataclass(frozen=True)
class Outcome:
    """One check, done."""

    name: str
    ok: bool
    said: str
    """What was found, or what went wrong, in one line."""
    seconds: float


def check_exact() -> str:
    """Exact planning on the compiled engine, against known gains."""
    from fmdp.planning.choice import plan
    from fmdp.planning.exact.planner import Exact
    from fmdp.problems import problem

    worst = 0.0
    for name, known in KNOWN_GAINS.items():
        found = plan(problem(name), Exact()).gain
        if found is None or abs(found - known) > 1e-6:
            raise CheckFailed(f"the gain of {name} is {found}; it has to be {known}")
        worst = max(worst, abs(found - known))
    return f"the gains of {' and '.join(KNOWN_GAINS)} to {worst:.0e}"


def check_approximate() -> str:
    """Linear programs by HiGHS: two ways to one optimum, and a bound that holds."""
    from fmdp.planning.alp import ALP
    from fmdp.planning.choice import plan
    from fmdp.problems import problem

    objectives, bounds = [], []
    for method in ("cuts", "factored"):
        found = plan(problem("circle:3"), ALP(method=method))
        if found.objective is None or found.gain_upper is None:
            raise CheckFailed(f"no solution of circle:3 with method={method}: {found.status}")
        objectives.append(found.objective)
        bounds.append(found.gain_upper)
    if not math.isclose(*objectives, rel_tol=1e-6):
        raise CheckFailed(f"cuts and the factored program end with {objectives}")
    if min(bounds) < KNOWN_GAINS["circle:3"] - 1e-6:
        raise CheckFailed(f"{min(bounds)} is no upper bound on the gain of circle:3")
    return f"cuts and the factored program agree: {objectives[0]:.6f}"


def check_learning() -> str:
    """A learner, twice with one seed: the same to the last bit."""
    from fmdp.learning.psrl import PSRL
    from fmdp.problems import problem
    from fmdp.simulation import simulate

    model = problem("circle:3")
    runs = [simulate(model, PSRL(), steps=_STEPS, seed=0) for _ in range(2)]
    if runs[0].curve != runs[1].curve or runs[0].gap_curve != runs[1].gap_curve:
        raise CheckFailed(f"one seed, two regrets: {runs[0].regret} and {runs[1].regret}")
    return f"{_STEPS} steps of PSRL twice: the same regret, {runs[0].regret:.2f}"


def check_store() -> str:
    """A sweep of one run into a store in the folder for temporary files, and its results."""
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
    """Every check in turn; one that fails stops no other."""
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
