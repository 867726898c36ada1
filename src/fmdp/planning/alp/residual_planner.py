"""The loop of approximate policy iteration and of Bellman-error minimisation.

    policy <- decision list of the weights;  weights <- min delta for that policy;  repeat

It has converged when the list does not change. It may instead return to an earlier list, or stay on
a plateau of delta. Then it stops at the iteration limit, or after `PATIENCE` steps without a
smaller delta, with the best weights so far.

Columns of every program: the weights, delta, and c = delta + (1 - g) w_0 (see `decisions.py`), in
units of `BellmanResidual.unit`, with rewards counted from `BellmanResidual.origin`.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmdp._base.deadlines import Deadline
from fmdp.elimination.ties import Ties
from fmdp.errors import InvalidParameter
from fmdp.model import FactoredMDP, Structure
from fmdp.planning.alp import values
from fmdp.planning.alp.alp import ALP
from fmdp.planning.alp.alp_settings import NamedScope
from fmdp.planning.alp.bases import make_basis
from fmdp.planning.alp.cuts import CuttingPlanes
from fmdp.planning.alp.decisions import Advantages, DecisionList
from fmdp.planning.alp.greedy import GreedyExtractor
from fmdp.planning.alp.prepared_alp import TABULATED_ONCE
from fmdp.planning.alp.program import ConstraintFamily, LinearProgram, Monitor
from fmdp.planning.alp.staged_program import ROUNDING, likely_weight
from fmdp.planning.expanded import PreparedExpanded, plan_expanded
from fmdp.planning.limits import tolerance_of
from fmdp.planning.plan import Plan, Planner
from fmdp.planning.settings import (
    Limited,
    TieBreaking,
    basis_setting,
    discount_setting,
    tolerance_setting,
)
from fmdp.planning.status import Progress, Status, Tables

Floats = NDArray[np.float64]
DEFAULT_STEPS = 50
"""Steps without a limit of the user: a guard against cycles of policies."""
PATIENCE = 10
"""Steps without a smaller delta after which to stop: more may leave a plateau, at one program each.
"""


class ResidualPlanner(Limited, TieBreaking, Planner):
    """Base class of planners that alternate between a policy and weights fitted to it."""

    takes_ties = True

    basis: str | tuple[NamedScope, ...] = basis_setting()
    discount: float = discount_setting(meaning="discount of the value")
    tolerance: float | None = tolerance_setting(
        "largest violation that is left, and smallest step that counts"
    )

    @abstractmethod
    def constraints(
        self, search: ResidualSearch, policy: DecisionList
    ) -> tuple[ConstraintFamily, ...]:
        """Return the constraints of one step."""

    def prepare(self, structure: Structure) -> PreparedResidual | PreparedExpanded:
        if structure.derived:
            return PreparedExpanded(self, structure)
        return PreparedResidual(self, structure)

    def plan(self, model: FactoredMDP, *, progress: Progress | None = None) -> Plan:
        if model.structure.derived:
            return plan_expanded(self, model, progress)
        return ResidualSearch(self, model).run(progress)


class PreparedResidual:
    """The settings alone: decision lists depend on the tables, so models share nothing."""

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
    """One run, from the greedy policy of the approximate linear program."""

    def __init__(
        self, settings: ResidualPlanner, model: FactoredMDP, ties: Ties | None = None
    ) -> None:
        self.settings = settings
        self.ties = settings.tie_breaking if ties is None else ties
        self.model = model
        self.basis = make_basis(model.structure, settings.basis)
        self.advantages = Advantages(model, self.basis, settings.memory_limit)

    def run(self, progress: Progress | None) -> Plan:
        started = time.perf_counter()
        settings, advantages = self.settings, self.advantages
        unit = advantages.residual.unit
        tolerance = tolerance_of(settings.tolerance, self.model.structure) / unit
        n = self.basis.size
        deadline = Deadline.after(settings.max_seconds, started)
        start = ALP(
            basis=settings.basis,
            discount=settings.discount,
            tolerance=settings.tolerance,
            max_seconds=settings.max_seconds,
        )
        first = start.plan(self.model)
        if first.status in (Status.INTERRUPTED, Status.TIME_LIMIT):
            return replace(first, planner=settings.name, objective=None)
        weights = first.stats["weights"] / unit
        monitor = Monitor(deadline=deadline)
        cost = np.zeros(n + 2)
        cost[n] = 1.0
        accuracy = max(tolerance * (1.0 - settings.discount), ROUNDING)
        scale = likely_weight(advantages.residual, settings.discount)
        fixed = np.append(self.basis.needless, False)
        errors: list[float] = []
        status = Status.ITERATION_LIMIT
        best = np.append(weights, [np.inf, np.inf])
        policy = advantages.decision_list(weights, settings.discount)
        rounds = 0
        for step in range(settings.max_iterations or DEFAULT_STEPS):
            families = settings.constraints(self, policy)
            charges = (1.0,) * len(families)
            program = LinearProgram(cost, families, charges, accuracy, tolerance, scale, fixed)
            solution = CuttingPlanes().solve(program, monitor)
            rounds += solution.iterations
            if solution.status is not Status.CONVERGED:
                status = solution.status
                break
            weights = solution.x[:n]
            errors.append(solution.objective)
            if solution.objective <= best[n] + tolerance:
                best = solution.x
            if progress is not None:
                progress({"iteration": step + 1, "error": solution.objective * unit})
            following = advantages.decision_list(weights, settings.discount)
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
        settings, residual = self.settings, self.advantages.residual
        unit = residual.unit
        gain_upper = residual.largest(x[:-2], 1.0) * unit
        greedy = GreedyExtractor(residual).policy(
            x[:-2], settings.discount, self.ties.rule, self.ties.seed
        )
        weights, delta, c = x[:-2] * unit, float(x[-2]) * unit, float(x[-1]) * unit
        known = bool(np.isfinite(delta))
        constant = (c - delta + residual.origin * unit) / (1.0 - settings.discount)
        policy = greedy.tabulate_up_to(TABULATED_ONCE)
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
                "induced_width": self.advantages.states.width,
            },
        )
