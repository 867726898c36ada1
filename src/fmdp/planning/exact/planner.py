"""The planner `exact`: value iteration on the elimination engine, with certified bounds.

Average reward: stops when max(L h - h) - min(L h - h) <= tolerance; the optimal gain and the gain
of the returned policy lie between them (Puterman 2014, theorem 8.5.6).  Discounted: stops when
MacQueen's bounds on V* are within the tolerance.  Both are phases of solver.py.  Finite: H backups
(finite.py).  Joint actions are enumerated, since moving the maximum over an action variable inside
the elimination would give only an upper bound; actions that act before chance does are handled one
component at a time, exactly (elimination/effects.py).

Optimistic tables use the same sweep: `nested` targets as the nested backup, `vertex` targets as the
extended FMDP, whose joint actions include a target for every variable (a factor |S| more).  Bounds
of nested plans bound the gain of the nested operator, which is never below that of the vertex one.

Cost: `Layout.multiply_adds` per sweep.
"""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fmdp._base.settings import setting
from fmdp.elimination.alignment import aligned
from fmdp.elimination.backup import Backup, TimeUp, backup_for
from fmdp.elimination.ties import Ties
from fmdp.model import FactoredMDP, Structure
from fmdp.model.factored import check_model
from fmdp.model.structure import check_structure
from fmdp.planning.exact.acceleration import PREFERRED_KEPT
from fmdp.planning.exact.finite import refuse_stages, solve_finite
from fmdp.planning.exact.interval_sets import refuse_without_intervals
from fmdp.planning.exact.intervals import solve_intervals
from fmdp.planning.exact.phases import exact_problem
from fmdp.planning.exact.recurrence import PROOF_BYTES
from fmdp.planning.exact.report import report, report_bytes
from fmdp.planning.exact.small import tabular_backup
from fmdp.planning.exact.solver import Limits, solve
from fmdp.planning.expanded import PreparedExpanded, plan_expanded
from fmdp.planning.joining import parts_to_plan
from fmdp.planning.limits import tolerance_of
from fmdp.planning.parts import PreparedParts, plan_parts
from fmdp.planning.plan import Plan, Planner, of_model
from fmdp.planning.prepared import (
    PreparedOnEngine,
    limits_of,
    unprepared,
    with_tolerance,
)
from fmdp.planning.settings import (
    ExactCriteria,
    Limited,
    OnEngine,
    TieBreaking,
)
from fmdp.planning.status import Progress, Tables


class Exact(ExactCriteria, Limited, TieBreaking, OnEngine, Planner):
    """Relative value iteration by elimination, with certified bounds on the optimal gain.

    For models whose states fit into memory. docs/exact.md says how, and what it costs.
    """

    summary = "relative value iteration by elimination; certified bounds on the optimal gain"
    gives_marginals = True
    takes_ties = True

    intervals: str = setting(
        "nominal",
        "what to plan for where a model has intervals: its own numbers, the worst case inside them "
        "or the best",
        choices=("nominal", "robust", "optimistic"),
        only_with=("criterion", ("average",)),
        unkeyed=("nominal",),
    )

    vectors: str = setting(
        "memory",
        "where the vectors of accelerated sweeps are kept: in memory, or in temporary files, which "
        "takes longer and gives the same plan",
        choices=("memory", "disk"),
        only_with=("criterion", ("average", "discounted")),
        unkeyed=("memory",),
    )

    def prepare(self, structure: Structure) -> PreparedExact | PreparedParts | PreparedExpanded:
        check_structure(structure, "prepare")
        if structure.derived:
            return PreparedExpanded(self, structure)
        # With intervals, `solve` refuses the tables of a learner, which have none.
        if self.intervals != "nominal" or not self._by_parts(structure):
            return PreparedExact(self, structure)
        return PreparedParts(
            self, structure, tolerance_of(self.tolerance, structure), PreparedExact
        )

    def _by_parts(self, structure: Structure) -> bool:
        """Return whether the model is planned part by part.

        Policies for a horizon are not split.  Neither are sets of models with alike rows: the
        worst row of one part must then be the row of another one as well.
        """
        tied = self.intervals != "nominal" and structure.alike is not None
        return self.criterion != "finite" and not tied and bool(parts_to_plan(structure))

    def plan(self, model: FactoredMDP, *, progress: Progress | None = None) -> Plan:
        # Equal tables of different actions share their work.
        check_model(model, "plan")
        if model.structure.derived:
            return plan_expanded(self, model, progress)
        if self._by_parts(model.structure):
            tolerance = tolerance_of(self.tolerance, model.structure)
            return of_model(plan_parts(self, model, tolerance, progress), model, self)
        started = time.perf_counter()
        if self.intervals != "nominal":
            known = refuse_without_intervals(self, model)
            return solve_intervals(self, known, describe=True, progress=progress, started=started)
        if self.criterion == "finite":
            refuse_stages(self, model.structure)
        limits = limits_of(self, model.structure, started)
        try:
            backup = tabular_backup(model, self.memory_limit) or backup_for(
                model,
                memory_limit=self.memory_limit,
                state_bytes=report_bytes(self.criterion, model.structure),
                preferred_bytes=self._preferred_bytes(),
                threads=self.threads,
                deadline=limits.deadline,
            )
        except (TimeUp, KeyboardInterrupt) as error:
            return unprepared_exact(self, model.structure, error, started)
        if self.criterion == "finite":
            refuse_stages(self, model.structure, backup.predicted_bytes)
        h = aligned(backup.n_states)
        plan = _solve(
            self,
            backup,
            model,
            h,
            cold=True,
            describe=True,
            limits=limits,
            progress=progress,
            started=started,
        )
        return of_model(plan, model, self)

    def _preferred_bytes(self) -> tuple[int, ...]:
        """Return the bytes per state that are left to sweeps with acceleration if they can be."""
        if self.criterion == "finite" or self.vectors == "disk":
            return ()
        return tuple(2 * 8 + PROOF_BYTES + 2 * 8 + 2 * 4 * kept for kept in PREFERRED_KEPT)


def unprepared_exact(
    settings: Exact, structure: Structure, error: TimeUp | KeyboardInterrupt, started: float
) -> Plan:
    """Return the plan if the deadline or Ctrl-C came before the first sweep."""
    plan = unprepared(settings, structure, error, started)
    if settings.criterion != "finite":
        return plan
    return replace(plan, gain=None, gain_lower=None, gain_upper=None)


class PreparedExact(PreparedOnEngine):
    """The exact planner of one structure; starts each call from the h of the last one."""

    def __init__(self, settings: Exact, structure: Structure) -> None:
        super().__init__(settings, structure)
        self.settings = settings
        self._stages_fit: set[int] = set()  # predicted bytes of backups beside which they do

    def solve(
        self,
        tables: Tables,
        *,
        describe: bool = False,
        marginals: bool = False,
        ties: Ties | None = None,
        tolerance: float | None = None,
        progress: Progress | None = None,
    ) -> Plan:
        """Plan with these tables.

        `describe` adds the bias in C order and its spans, `marginals` the marginals of the vector
        at which the policy is greedy.  `ties` and `tolerance` replace those of the settings.
        """
        started = time.perf_counter()
        settings = with_tolerance(self.settings, tolerance)
        if settings.intervals != "nominal":
            model = refuse_without_intervals(settings, tables)
            return solve_intervals(
                settings, model, describe=describe, progress=progress, started=started
            )
        limits = limits_of(settings, self.structure, started)
        try:
            _, backup, h, cold = self._load(tables, limits.deadline)
        except (TimeUp, KeyboardInterrupt) as error:
            return unprepared_exact(settings, self.structure, error, started)
        # Checked once: reading the free memory takes longer than a small plan.
        if settings.criterion == "finite" and backup.predicted_bytes not in self._stages_fit:
            refuse_stages(settings, self.structure, backup.predicted_bytes)
            self._stages_fit.add(backup.predicted_bytes)
        plan = _solve(
            settings,
            backup,
            tables,
            h,
            cold=cold,
            # Over a horizon no vector stays warm: marginals are those of the first step's values.
            describe=describe or (marginals and settings.criterion == "finite"),
            limits=limits,
            progress=progress,
            started=started,
            ties=ties,
        )
        if not marginals:
            return plan
        values = plan.bias if settings.criterion == "finite" else backup.to_canonical(h)
        return plan if values is None else self._with_marginals(plan, values)


def _solve(
    settings: Exact,
    backup: Backup,
    tables: Tables,
    h: NDArray[np.float64],
    *,
    cold: bool,
    describe: bool,
    limits: Limits,
    progress: Progress | None,
    started: float,
    ties: Ties | None = None,
) -> Plan:
    """Plan from h, which is changed in place: the phases of solver.py, then the report."""
    ties = settings.tie_breaking if ties is None else ties
    if settings.criterion == "finite":
        return solve_finite(
            settings,
            backup,
            tables,
            limits,
            describe=describe,
            progress=progress,
            started=started,
            ties=ties,
        )
    if cold:
        h[:] = 0.0
    problem = exact_problem(
        settings,
        backup,
        tables,
        limits,
        ties=ties,
        discount=1.0 if settings.discount is None else settings.discount,
        cold=cold,
        describe=describe,
        on_disk=settings.vectors == "disk",
        progress=progress,
    )
    state = solve(problem, problem.first_state(h, unique=problem.discount != 1.0))
    return report(problem, state, settings.name, started)
