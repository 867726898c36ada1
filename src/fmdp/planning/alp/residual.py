"""What approximate policy iteration and Bellman-error minimisation share: the loop.

    policy <- decision list of the weights;  weights <- min delta for that policy;  repeat

It has converged when the same list comes back at once. It may return to an earlier list instead, or
stay on a plateau of delta for ever; then it ends at the iteration limit (or after `PATIENCE` steps
without a smaller delta) with the best weights seen.

Columns of every program: the weights, delta, and c = delta + (1 - g) w_0 (see `decisions.py`), all
in the unit of the forms and from their origin (`Forms.unit`, `Forms.origin`).
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmdp.elimination.ties import Ties
from fmdp.errors import InvalidParameter
from fmdp.model import FactoredMDP, Structure
from fmdp.planning.alp import values
from fmdp.planning.alp.alp import ALP, ROUNDING, TABULATED_ONCE, likely_weight
from fmdp.planning.alp.bases import make_basis
from fmdp.planning.alp.cuts import Cuts
from fmdp.planning.alp.decisions import DecisionList, Decisions
from fmdp.planning.alp.greedy import Extractor
from fmdp.planning.alp.question import Part, Question, Watch
from fmdp.planning.limits import deadline_of, tolerance_of
from fmdp.planning.plan import Plan, Planner
from fmdp.planning.policies.policy import Policy
from fmdp.planning.settings import (
    Limited,
    TieBreaking,
    basis_setting,
    discount_setting,
    tolerance_setting,
)
from fmdp.planning.status import Progress, Status, Tables

NamedScope = tuple[int | str, ...]
Floats = NDArray[np.float64]
DEFAULT_STEPS = 50
PATIENCE = 10


class ResidualPlanner(Limited, TieBreaking, Planner):
    """What the planners have in common that alternate a policy and the weights that fit it."""

    takes_ties = True

    basis: str | tuple[NamedScope, ...] = basis_setting()
    discount: float = discount_setting(meaning="discount of the value")
    tolerance: float | None = tolerance_setting(
        "largest violation that is left, and smallest step that counts"
    )

    @abstractmethod
    def parts(self, search: ResidualSearch, policy: DecisionList) -> tuple[Part, ...]:
        """The constraints of one step."""

    def prepare(self, structure: Structure) -> PreparedResidual:
        return PreparedResidual(self, structure)

    def plan(self, model: FactoredMDP, *, progress: Progress | None = None) -> Plan:
        return ResidualSearch(self, model).run(progress)


class PreparedResidual:
    """Decision lists depend on which actions see equal tables, so every model starts afresh."""

    def __init__(self, settings: ResidualPlanner, structure: Structure) -> None:
        self.settings = settings
        self.structure = structure

    def solve(
        self, tables: Tables, *, ties: Ties | None = None, progress: Progress | None = None
    ) -> Plan:
        """Plan for a model; `ties` replaces the tie breaking of the settings."""
        if not isinstance(tables, FactoredMDP):
            raise InvalidParameter(f"{self.settings.name} plans for models, not optimistic tables")
        return ResidualSearch(self.settings, tables, ties).run(progress)

    def warm_state(self) -> Mapping[str, NDArray[Any]]:
        return {}

    def restore_warm_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        return None


class ResidualSearch:
    """One run: starts from the greedy policy of the approximate linear program."""

    def __init__(
        self, settings: ResidualPlanner, model: FactoredMDP, ties: Ties | None = None
    ) -> None:
        self.settings = settings
        self.ties = settings.tie_breaking if ties is None else ties
        self.model = model
        self.basis = make_basis(model.structure, settings.basis)
        self.decisions = Decisions(model, self.basis, settings.memory_limit)

    def run(self, progress: Progress | None) -> Plan:
        started = time.perf_counter()
        settings, decisions = self.settings, self.decisions
        unit = decisions.forms.unit
        tolerance = tolerance_of(settings.tolerance, self.model.structure) / unit
        n = self.basis.size
        start = ALP(basis=settings.basis, discount=settings.discount, tolerance=settings.tolerance)
        weights = start.plan(self.model).stats["weights"] / unit
        watch = Watch(deadline=deadline_of(settings.max_seconds, time.perf_counter()))
        cost = np.zeros(n + 2)
        cost[n] = 1.0
        accuracy = max(tolerance * (1.0 - settings.discount), ROUNDING)
        scale = likely_weight(decisions.forms, settings.discount)
        fixed = np.append(self.basis.needless, False)
        errors: list[float] = []
        status = Status.ITERATION_LIMIT
        best = np.append(weights, [np.inf, np.inf])
        policy = decisions.decision_list(weights, settings.discount)
        rounds = 0
        for step in range(settings.max_iterations or DEFAULT_STEPS):
            parts = self.settings.parts(self, policy)
            question = Question(cost, parts, (1.0,) * len(parts), accuracy, tolerance, scale, fixed)
            answer = Cuts().solve(question, watch)
            rounds += answer.iterations
            if answer.status is not Status.CONVERGED:
                status = answer.status
                break
            weights = answer.x[:n]
            errors.append(answer.objective)
            if answer.objective <= best[n] + tolerance:
                best = answer.x
            if progress is not None:
                progress({"iteration": step + 1, "error": answer.objective * unit})
            following = decisions.decision_list(weights, settings.discount)
            if following.same_as(policy):
                status = Status.CONVERGED
                break
            if len(errors) > PATIENCE and min(errors[-PATIENCE:]) > (
                min(errors[:-PATIENCE]) - tolerance
            ):
                break
            policy = following
        return self._plan(best, errors, rounds, status, started)

    def _plan(
        self, x: Floats, errors: list[float], rounds: int, status: Status, started: float
    ) -> Plan:
        settings, forms = self.settings, self.decisions.forms
        unit = forms.unit
        gain_upper = forms.largest_residual(x[:-2], 1.0) * unit
        greedy = Extractor(forms).policy(x[:-2], settings.discount, self.ties.rule, self.ties.seed)
        weights, delta, c = x[:-2] * unit, float(x[-2]) * unit, float(x[-1]) * unit
        known = bool(np.isfinite(delta))
        constant = (c - delta + forms.origin * unit) / (1.0 - settings.discount)
        few = self.model.structure.n_states <= TABULATED_ONCE
        policy: Policy = greedy.tabulate() if few else greedy
        return Plan(
            planner=settings.name,
            status=status,
            policy=policy,
            gain=None,
            gain_lower=None,
            gain_upper=gain_upper,
            span=values.span(self.basis, weights, settings.memory_limit),
            factored_spans=values.factored_spans(self.basis, weights, settings.memory_limit),
            objective=delta if known else None,
            iterations=len(errors),
            seconds=time.perf_counter() - started,
            ties=self.ties.name,
            stats={
                "basis": self.basis.name,
                "weights": weights,
                "constant": constant if known else None,
                "errors": tuple(error * unit for error in errors),
                "rounds": rounds,
                "induced_width": self.decisions.states.width,
            },
        )
