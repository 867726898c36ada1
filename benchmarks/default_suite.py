"""How the default learner is judged: suites of problems, and learners chosen with hindsight.

    python -m benchmarks.default_suite run SUITE LEARNER... [--seeds 20] [--jobs 1] [--out FOLDER]
    python -m benchmarks.default_suite show SUITE [--seeds 20] [--out FOLDER]

For every problem the median, mean and worst gap regret after 10,000 steps over the seeds is divided
by that of the better of PSRL c=.75 and DORL c=.03 (both exact, with arithmetic episodes), chosen
with hindsight problem by problem and statistic by statistic. Over the problems of a suite:
geometric mean and maximum, with bootstrap intervals over the seeds. `tuning` is for looking at;
`held-back` was looked at twice, `fresh` was made for an earlier change of the learner, which it
decided, `unseen` was run once, when results version 6 was final, and `later` when versions 7 to 10
were. `last` was written down before version 10 was run on it; three forms of that version were run,
and a variant that was dropped.
`unlike` has parts that are not alike (benchmarks/unlike_parts.py).

Runs are stored one JSON file a learner and suite, and only what is missing is run. Set
OMP_NUM_THREADS=1 where processes share a machine.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import fmdp
from benchmarks.unlike_parts import unlike

STEPS = 10_000
BASELINES = ("psrl,c=0.75,episodes=arithmetic", "dorl,c=0.03,episodes=arithmetic")
SUITES: dict[str, tuple[str, ...]] = {
    "tuning": (
        "circle:4",
        "circle:6,dynamics=talebi",
        "circle:7,dynamics=guestrin",
        "three-leg:5",
        "star:5,dynamics=ippc",
        "jao:3",
        "jao:2,delta=0.1,epsilon=0.1,actions=3",
        "riverswim:2",
        "random:4,seed=1",
        "random:3,values=3,seed=2",
    ),
    "held-back": (
        "circle:7",
        "bi-ring:5,dynamics=guestrin",
        "three-leg:6,dynamics=talebi",
        "tree:6",
        "grid:4,dynamics=ippc",
        "jao:3,delta=0.3,epsilon=0.15",
        "jao:2",
        "riverswim:1",
        "random:5,seed=7",
        "random:4,values=3,parents=2,actions=2,seed=5",
        "machines:2",
    ),
    "fresh": (
        "circle:5",
        "tree:5",
        "bi-ring:4",
        "grid:6,dynamics=talebi",
        "star:6,dynamics=guestrin",
        "tree:7,dynamics=ippc",
        "circle:8,dynamics=ippc",
        "jao:4",
        "jao:2,delta=0.3,epsilon=0.2,actions=4",
        "riverswim:3",
        "random:6,seed=11",
        "random:3,values=4,seed=9",
        "machines:3",
    ),
    "unseen": (
        "circle:5,seed=4",
        "star:4,seed=2",
        "grid:4,seed=3",
        "tree:5,dynamics=guestrin",
        "jao:2,delta=0.25,epsilon=0.1",
        "jao:3,delta=0.15,epsilon=0.15",
        "riverswim:1,length=8",
        "coupled-rivers:2,length=4",
        "epidemic:4",
        "maintenance:2",
        "random:4,values=3,seed=31",
    ),
    "later": (
        "star:6,dynamics=talebi",
        "bi-ring:5,seed=9",
        "tree:4,seed=6",
        "jao:2,delta=0.15,epsilon=0.2",
        "jao:3,delta=0.25,epsilon=0.25",
        "riverswim:1,length=10",
        "coupled-rivers:2,length=3",
        "lock:5",
        "epidemic:5",
        "random:5,seed=77",
        "random:3,values=4,parents=2,seed=41",
    ),
    "last": (
        "circle:6,seed=5",
        "three-leg:5,seed=8",
        "star:5,dynamics=guestrin",
        "tree:6,dynamics=talebi",
        "grid:6,dynamics=ippc",
        "jao:3,delta=0.2,epsilon=0.15",
        "jao:2,delta=0.3,epsilon=0.1,actions=4",
        "riverswim:1,length=7",
        "coupled-rivers:2,length=5",
        "epidemic:6,graph=star",
        "maintenance:3",
        "random:4,seed=123",
        "random:3,values=3,parents=2,actions=4,seed=55",
    ),
    "unlike": (
        "exchanged:jao:3",
        "exchanged:jao:2,delta=0.1,epsilon=0.1,actions=3",
        "exchanged:jao:2,delta=0.3,epsilon=0.1,actions=4",
        "exchanged:jao:2,delta=0.15,epsilon=0.2",
        "makes:1",
        "makes:2",
        "makes:3",
        "makes:4",
    ),
}
STATISTICS = {"median": np.median, "mean": np.mean, "worst": np.max}


@cache
def _problem(name: str) -> tuple[fmdp.FactoredMDP, Any]:
    model = unlike(name) or fmdp.problem(name)
    return model, fmdp.reference_for(model)


def _regret(task: tuple[str, str, int]) -> tuple[float, int]:
    learner, name, seed = task
    model, reference = _problem(name)
    run = fmdp.simulate(model, learner, steps=STEPS, seed=seed, reference=reference)
    assert run.gap_regret is not None
    return run.gap_regret, run.planner_calls


class Results:
    """The stored runs of one suite: learner -> problem -> seed -> (gap regret, plans)."""

    def __init__(self, suite: str, folder: Path) -> None:
        self.suite, self.folder = suite, folder
        self.problems = SUITES[suite]

    def path(self, learner: str) -> Path:
        safe = "".join(c if c.isalnum() or c in ".=-" else "_" for c in learner)
        return self.folder / f"{self.suite}-{safe}.json"

    def of(self, learner: str) -> dict[str, dict[str, Any]]:
        path = self.path(learner)
        if not path.exists():
            return {"learner": learner, "runs": {}}  # type: ignore[dict-item]
        found: dict[str, dict[str, Any]] = json.loads(path.read_text())
        return found

    def run(self, learner: str, seeds: Sequence[int], pool: ProcessPoolExecutor | None) -> None:
        stored = self.of(learner)
        runs = stored["runs"]
        for name in self.problems:
            done = runs.setdefault(name, {})
            todo = [seed for seed in seeds if str(seed) not in done]
            tasks = [(learner, name, seed) for seed in todo]
            found: Iterable[tuple[float, int]] = (pool.map if pool else map)(_regret, tasks)
            for seed, one in zip(todo, found, strict=True):
                done[str(seed)] = one
            if todo:
                self.folder.mkdir(parents=True, exist_ok=True)
                self.path(learner).write_text(json.dumps(stored, indent=1))

    def regrets(self, learner: str, seeds: Sequence[int]) -> np.ndarray:
        """[problems, seeds]."""
        runs = self.of(learner)["runs"]
        return np.array([[runs[name][str(k)][0] for k in seeds] for name in self.problems])


def ratios(regret: np.ndarray, baselines: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
    """For each statistic, problem by problem: ours by the better of the baselines."""
    found = {}
    for name, of in STATISTICS.items():
        best = np.min([of(one, axis=1) for one in baselines], axis=0)
        found[name] = of(regret, axis=1) / best
    return found


def summary(
    regret: np.ndarray, baselines: Sequence[np.ndarray], draws: int = 2_000
) -> dict[str, dict[str, tuple[float, float, float]]]:
    """Geometric mean and maximum of the ratios, each with a 90 % bootstrap interval over seeds."""
    generator = np.random.default_rng(0)
    n = regret.shape[1]
    samples = []
    for _ in range(draws):
        # Learners share their luck by seed: seeds are drawn once for all.
        chosen = generator.integers(n, size=n)
        samples.append(ratios(regret[:, chosen], [one[:, chosen] for one in baselines]))
    point = ratios(regret, baselines)
    found: dict[str, dict[str, tuple[float, float, float]]] = {}
    for name in STATISTICS:
        found[name] = {}
        for what, of in (("gm", _geometric_mean), ("max", np.max)):
            drawn = [of(one[name]) for one in samples]
            low, high = np.quantile(drawn, (0.05, 0.95))
            found[name][what] = (float(of(point[name])), float(low), float(high))
    return found


def _geometric_mean(values: np.ndarray) -> float:
    return float(np.exp(np.log(values).mean()))


def show(results: Results, learners: Sequence[str], seeds: Sequence[int], wide: bool) -> None:
    baselines = [results.regrets(one, seeds) for one in BASELINES]
    print(f"{results.suite}, {len(seeds)} seeds: ours / better of {' and '.join(BASELINES)}")
    for learner in learners:
        regret = results.regrets(learner, seeds)
        cells = []
        for name, parts in summary(regret, baselines, draws=500).items():
            gm, top = parts["gm"], parts["max"]
            cells.append(
                f"{name} {gm[0]:.2f} [{gm[1]:.2f}, {gm[2]:.2f}] max {top[0]:.2f} "
                f"[{top[1]:.2f}, {top[2]:.2f}]"
            )
        print(f"{learner:60} " + " | ".join(cells))
        if wide:
            own = ratios(regret, baselines)
            for i, problem in enumerate(results.problems):
                numbers = " ".join(
                    f"{name} {of(regret, axis=1)[i]:8.1f} ({own[name][i]:5.2f})"
                    for name, of in STATISTICS.items()
                )
                print(f"    {problem:48} {numbers}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=("run", "show"))
    parser.add_argument("suite", choices=sorted(SUITES))
    parser.add_argument("learners", nargs="*")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", default="build/default-suite", type=Path)
    parser.add_argument("--wide", action="store_true", help="every problem, too")
    given = parser.parse_args()
    sys.path.insert(0, "")
    results = Results(given.suite, given.out)
    seeds = range(given.seeds)
    learners = list(given.learners)
    pool = ProcessPoolExecutor(given.jobs) if given.jobs > 1 else None
    if given.what == "run":
        for learner in [*BASELINES, *learners]:
            results.run(learner, seeds, pool)
    show(results, learners or list(BASELINES), seeds, given.wide)


if __name__ == "__main__":
    main()
