"""A trial of larger bases on one model, for planners that plan again and again.

From the scopes in use, scopes grow where the Bellman error is largest, as under `basis="auto"`
(basis_scopes.py). The program of each larger basis is solved once, and its policy is compared with
that in use: both are simulated on the model from the same uniform states with the same random
numbers, 64 chains each. The larger basis is better if the mean difference of the chains exceeds
three standard errors, and the difference that plans are made to. Pairs of neighbours may be worse
than singles where three neighbours are much better, so a basis that fails is grown once more. A
basis that has grown must still be better than `singles` in the same way, or it is given up: it may
have been chosen on tables that were hardly known.

Costs are predicted from the programs and not measured, so the same model gives the same result on
any machine. The plan with `singles`, by far the cheapest, is not counted.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fmdp.elimination.ties import Ties
from fmdp.errors import TooLarge
from fmdp.model import FactoredMDP, Structure
from fmdp.model.expansion import shared_draws, without_draws
from fmdp.model.structure import Scope
from fmdp.model.symmetry import Symmetry, symmetry_of
from fmdp.planning.alp.alp_settings import ALPSettings
from fmdp.planning.alp.bases import collapsed, make_basis
from fmdp.planning.alp.basis_scopes import first_scopes, grown_scopes
from fmdp.planning.alp.policy_errors import errors_to_explain, simulated_errors
from fmdp.planning.alp.prepared_alp import PreparedALP
from fmdp.planning.plan import Plan
from fmdp.planning.settings import SEARCHED, with_basis, without_search

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

FAILURES = 2
"""Bases in a row that may fail before a trial ends."""
STANDARD_ERRORS = 3.0
"""Standard errors by which the gain of a larger basis must exceed that in use."""
CHAINS, STEPS = 64, 400
"""Chains of a simulation, and their steps: more reduce the noise and cost time."""
SECONDS_PER_VARIABLE = 3e-3
"""Predicted seconds of a simulation per state variable; 1 to 3 ms were measured."""
MEMORY_LIMIT = 1 << 28
"""Bytes of the network of a larger basis. The limit must not depend on the machine."""
SEED = 0


class Outcome(NamedTuple):
    """The result of a trial."""

    scopes: tuple[Scope, ...] | None
    """The larger basis that was better, () for `singles`, or None if the basis stays."""
    plan_seconds: float
    """Predicted seconds of a plan with it; 0 without."""
    seconds: float
    """Predicted seconds of the trial."""
    bases: int
    """Number of larger bases that were compared."""


class _Judged(NamedTuple):
    """A policy, simulated."""

    gains: Floats
    """[chains]: estimates of its gain."""
    states: Ints
    errors: Floats
    """Bellman errors at `states`, which a larger basis should explain."""


def larger_basis(
    settings: ALPSettings,
    model: FactoredMDP,
    plan: Plan,
    *,
    difference: float,
    seconds: float,
    plan_seconds: float,
    ties: Ties | None = None,
) -> Outcome:
    """Return a larger basis with a better policy for this model, if there is one.

    The arguments are those of `ALP.larger_basis`.
    """
    grown = settings.basis != SEARCHED
    simulation = SECONDS_PER_VARIABLE * model.structure.m
    # Larger functions of shared draws cannot be projected.
    if seconds < (3.0 if grown else 2.0) * simulation or shared_draws(model.structure):
        return Outcome(None, 0.0, 0.0, 0)
    trial = _Trial(settings, model, ties, simulation)
    current = judged = trial.judged(plan, without_search(settings).basis)
    if grown:
        singles = trial.singles()
        if singles is not None and not _is_better(current.gains, singles.gains, difference):
            return Outcome((), 0.0, trial.spent, 0)
    scopes = _next_scopes(settings, model.structure, judged, trial.symmetry)
    best, best_seconds, failures = None, 0.0, 0
    while scopes is not None and failures < FAILURES:
        prepared = trial.prepared(scopes, plan_seconds, seconds)
        candidate = None if prepared is None else trial.planned(prepared)
        if prepared is None or candidate is None:
            break
        judged = trial.judged(candidate, scopes)
        if _is_better(judged.gains, current.gains, difference):
            best, best_seconds = scopes, prepared.predicted_seconds()
            current, failures = judged, 0
        else:
            failures += 1
        scopes = grown_scopes(model.structure, scopes, judged.states, judged.errors, trial.symmetry)
    return Outcome(best, best_seconds, trial.spent, trial.bases)


class _Trial:
    """The model of a trial, and what has been spent on it: predicted seconds, and bases."""

    def __init__(
        self, settings: ALPSettings, model: FactoredMDP, ties: Ties | None, simulation: float
    ) -> None:
        expansion = without_draws(model.structure)
        self.settings, self.model, self.ties = settings, model, ties
        self.simulated = model if expansion is None else expansion.tables(model)
        self.symmetry = symmetry_of(model) if model.structure.alike is not None else None
        self.simulation = simulation
        """Predicted seconds of one simulation; that of the plan in use is the first."""
        self.spent, self.bases = simulation, 0

    def prepared(
        self, scopes: tuple[Scope, ...], plan_seconds: float, seconds: float
    ) -> PreparedALP | None:
        """Return a larger basis if a plan with it is cheap enough; then it counts as spent."""
        settings = replace(with_basis(self.settings, scopes), memory_limit=MEMORY_LIMIT)
        try:
            prepared = PreparedALP(settings, self.model.structure)
            prepared = prepared.symmetric(self.model) or prepared
            predicted = prepared.predicted_seconds()
        except TooLarge:
            return None
        spent = self.spent + predicted + self.simulation
        if predicted > plan_seconds or spent > seconds:
            return None
        self.spent, self.bases = spent, self.bases + 1
        return prepared

    def planned(self, prepared: PreparedALP) -> Plan | None:
        """Return the plan for the model; None if a time limit of the settings ended it."""
        plan = prepared.solve(self.model, ties=self.ties)
        plan.status.raise_if_interrupted()
        return None if plan.policy is None else plan

    def singles(self) -> _Judged | None:
        """Simulate the policy of the basis `singles`; return None if a time limit ends its plan."""
        self.spent += self.simulation
        singles = without_search(replace(self.settings, basis=SEARCHED))
        plan = self.planned(PreparedALP(singles, self.model.structure))
        return None if plan is None else self.judged(plan, singles.basis)

    def judged(self, plan: Plan, basis: Any) -> _Judged:
        """Simulate the policy of a plan with this basis."""
        assert plan.policy is not None
        model = self.simulated
        value = collapsed(make_basis(model.structure, basis), plan.stats["weights"])
        weights = np.ones(value.size)
        generator = np.random.Generator(np.random.PCG64(SEED))
        sizes = np.array(model.structure.state_sizes, dtype=np.int64)
        starts = generator.integers(0, sizes, size=(CHAINS, len(sizes)))
        visited, errors = simulated_errors(
            model, plan.policy, value, weights, starts, STEPS, generator
        )
        explained = errors_to_explain(model, plan.policy, value, weights, visited, generator)
        return _Judged(errors.mean(axis=0), *explained)


def _next_scopes(
    settings: ALPSettings, structure: Structure, judged: _Judged, symmetry: Symmetry | None
) -> tuple[Scope, ...] | None:
    """Return the first larger basis: all functions of single variables and groups, if that is
    more than the basis in use, else scopes that grew."""
    scopes: Any = settings.basis
    if scopes == SEARCHED:
        scopes = first_scopes(structure, symmetry)
        if structure.groups or max(structure.state_sizes) > 2:
            return tuple(scopes)
    return grown_scopes(structure, scopes, judged.states, judged.errors, symmetry)


def _is_better(gains: Floats, than: Floats, difference: float) -> bool:
    """Return whether the mean difference of the chains is above noise and `difference`."""
    differences = gains - than
    error = float(differences.std(ddof=1)) / np.sqrt(len(differences))
    return bool(differences.mean() > max(STANDARD_ERRORS * error, difference))
