"""Bayesian regret: the mean over seeds that each drew their model from a prior, and its bound.

The bound of Theorem 1 of Xu & Tewari (2020) with its constants (measures/regret_bound.py) covers a
cell if it is PSRL with the exact posterior of its prior: a Dirichlet prior with fixed rewards, c=1,
the same concentration, rewards=known, arithmetic episodes and the exact planner.

A Dirichlet prior has no bounded diameter. With d the largest diameter of n drawn models, the prior
has mass 1 / (n + 1) above d in expectation over the draws, and Corollary 15 of docs/theory.md
charges this mass with the whole range of the reward.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass

from fmdp.errors import FmdpError
from fmdp.experiments.dataset import CellCurves, Dataset, ProblemCells
from fmdp.experiments.store import Store
from fmdp.measures.diameter_search import diameter
from fmdp.measures.regret_bound import psrl_regret_bound
from fmdp.model import Structure

MOST_STATES = 256
"""Most states of a model whose diameter a report computes, some hundredths of a second each."""


@dataclass(frozen=True)
class RegretBound:
    """Theorem 1 for one cell: PSRL with the true prior."""

    label: str
    structure: Structure
    diameter: float
    """The largest of the drawn models."""
    draws: int
    tolerance: float

    @property
    def reward_range(self) -> float:
        """The most that a step can lose."""
        return float(self.structure.reward_range_total)

    def at(self, steps: int) -> float:
        """Return the bound after this many steps."""
        return psrl_regret_bound(
            self.structure,
            self.diameter,
            steps,
            rewards_known=True,
            outside=1 / (self.draws + 1),
            tolerance=self.tolerance,
        )

    @property
    def first_useful(self) -> float:
        """The number of steps, to a factor of 1.01, from which the bound is below what any learner
        can lose; infinite if there is none below 1e18."""
        steps = 1.0
        while self.at(math.ceil(steps)) >= self.reward_range * math.ceil(steps):
            steps *= 1.01
            if steps > 1e18:
                return math.inf
        return steps


def regret_bounds(store: Store, data: Dataset) -> dict[str, RegretBound]:
    """Return the bound of every problem that has one, by the name of the problem."""
    bounds = {}
    for problem in data.problems:
        covered = next((cell for cell in problem.cells if is_covered(problem, cell)), None)
        bound = None if covered is None else _bound(store, covered)
        if bound is not None:
            bounds[problem.name] = bound
    return bounds


def is_covered(problem: ProblemCells, cell: CellCurves) -> bool:
    """Return whether a cell is PSRL with the exact posterior of its prior."""
    prior = {} if problem.prior is None else json.loads(problem.prior)
    settings = cell.parameters
    return (
        prior.get("kind") == "dirichlet"
        and prior.get("rewards") == "fixed"
        and cell.learner == "psrl"
        and settings.get("c") == 1.0
        and settings.get("prior") == prior.get("concentration")
        and settings.get("rewards") == "known"
        and settings.get("episodes") == "arithmetic"
        and cell.planner == "exact"
        and cell.planner_settings.get("criterion") == "average"
    )


def _bound(store: Store, cell: CellCurves) -> RegretBound | None:
    models = [store.model(run.model) for run in cell.runs]
    structure = models[0].structure
    if structure.n_states > MOST_STATES or structure.derived:
        return None
    try:
        diameters = [diameter(model) for model in models]
    except FmdpError:
        return None
    values = [bounds.upper for bounds in diameters if bounds is not None]
    if len(values) < len(models) or not all(map(math.isfinite, values)):
        return None
    tolerance = cell.planner_settings.get("tolerance")
    return RegretBound(cell.label, structure, max(values), len(models), float(tolerance or 0.0))
