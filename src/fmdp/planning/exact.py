"""Exact planning: relative value iteration on the elimination engine, with certified bounds.

Average reward: stops when max(L h - h) - min(L h - h) <= tolerance; the optimal gain lies between
them and so does the gain of the returned policy (Puterman 2014, theorem 8.5.6).  Discounted: stops
when MacQueen's bounds on V* are within the tolerance.  Finite: H backups (finite.py).  Joint
actions are enumerated, since moving the maximum over an action variable inside the elimination
would give only an upper bound; where actions act before chance does, they are taken exactly one
component at a time (elimination/effects.py).

Optimistic tables go through the same sweep: `nested` targets as the nested backup, `vertex` targets
as the extended FMDP, whose joint actions include a target for every variable (a factor |S| more).
Bounds of nested plans bound the gain of the nested operator, which is never below the vertex one.

Cost: `Layout.multiply_adds` a sweep; a sweep of a warm re-plan of seven machines takes tens of
microseconds.
"""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmdp.elimination import kernels
from fmdp.elimination.backup import Backup, TimeUp, backup_for, check_clock
from fmdp.elimination.places import aligned
from fmdp.elimination.rounding import rounding_allowance
from fmdp.elimination.ties import TIE_TOLERANCE
from fmdp.errors import InvalidParameter
from fmdp.model import FactoredMDP, Structure
from fmdp.model.factored import check_model
from fmdp.planning import iteration
from fmdp.planning.acceleration import Anderson, acceleration_for
from fmdp.planning.finish import Finish
from fmdp.planning.finite import refuse_stages, solve_finite
from fmdp.planning.improvement import STATES, Improved, improved
from fmdp.planning.intervals import refuse_without_intervals, solve_intervals
from fmdp.planning.plan import Plan, Planner, Progress, Status, Tables, of_model
from fmdp.planning.policy import TablePolicy
from fmdp.planning.polish import polished
from fmdp.planning.prepared import (
    PreparedOnEngine,
    engine_stats,
    limits_of,
    policy_in_time,
    unprepared,
)
from fmdp.planning.recurrence import always_reached, in_every_best_class
from fmdp.planning.settings import (
    DISCOUNT,
    Limited,
    OnEngine,
    TieBreaking,
    criterion_setting,
    discount_setting,
    tolerance_setting,
)
from fmdp.planning.spans import factored_spans, span
from fmdp.settings import setting

PATIENCE = 64
"""Sweeps after which a plan that need not describe its bias is left to policy iteration."""
POLISHED_PAIRS = 1 << 12
"""States x actions up to which a plan that is to be described is solved directly as well."""


class Exact(Limited, TieBreaking, OnEngine, Planner):
    """Relative value iteration by elimination, with certified bounds on the optimal gain.

    For models whose states fit into memory. docs/exact.md says how, and what it costs.
    """

    summary = "relative value iteration by elimination; certified bounds on the optimal gain"
    gives_marginals = True

    tolerance: float | None = tolerance_setting()
    criterion: str = criterion_setting("average", ("average", "discounted", "finite"))
    horizon: int | None = setting(
        None,
        "steps of the finite criterion, which has to have it",
        low=1,
        high=2**53,
        only_with=("criterion", ("finite",)),
    )
    discount: float | None = discount_setting(
        None,
        f"of the discounted criterion, then {DISCOUNT}, and of the finite one, which has none",
        only_with=("criterion", ("discounted", "finite")),
    )

    intervals: str = setting(
        "nominal",
        "what to plan for where a model has intervals: its own numbers, the worst case inside them "
        "or the best",
        choices=("nominal", "robust", "optimistic"),
        only_with=("criterion", ("average",)),
    )

    def check(self) -> None:
        if self.criterion == "discounted" and self.discount is None:
            object.__setattr__(self, "discount", DISCOUNT)
        if self.criterion == "finite" and self.horizon is None:
            raise InvalidParameter(
                f"the 'horizon' parameter of {self.owner()} (steps to plan for) must be given with "
                f"criterion=finite: an integer >= 1"
            )

    def prepare(self, structure: Structure) -> PreparedExact:
        return PreparedExact(self, structure)

    def plan(self, model: FactoredMDP, *, progress: Progress | None = None) -> Plan:
        # Equal tables of different actions share their work.
        check_model(model, "plan")
        started = time.perf_counter()
        if self.intervals != "nominal":
            known = refuse_without_intervals(self, model)
            return solve_intervals(self, known, describe=True, progress=progress, started=started)
        if self.criterion == "finite":
            refuse_stages(self, model.structure)
        limits = limits_of(self, model.structure, started)
        try:
            backup = backup_for(
                model,
                memory_limit=self.memory_limit,
                threads=self.threads,
                deadline=limits.deadline,
            )
        except (TimeUp, KeyboardInterrupt) as error:
            return self._unprepared(model.structure, error, started)
        if self.criterion == "finite":
            refuse_stages(self, model.structure, backup.predicted_bytes)
        h = aligned(backup.n_states)
        found = _solve(
            self, backup, model, h, cold=True, describe=True, progress=progress, started=started
        )
        return of_model(found, model, self)

    def _unprepared(
        self, structure: Structure, error: TimeUp | KeyboardInterrupt, started: float
    ) -> Plan:
        found = unprepared(self, structure, error, started)
        if self.criterion != "finite":
            return found
        return replace(found, gain=None, gain_lower=None, gain_upper=None)


class PreparedExact(PreparedOnEngine):
    """The exact planner of one structure; keeps its h between calls and starts from it."""

    def __init__(self, settings: Exact, structure: Structure) -> None:
        super().__init__(settings, structure)
        self.settings = settings
        self._room_for: set[int] = set()  # predicted bytes of the backups beside which stages fit

    def solve(
        self,
        tables: Tables,
        *,
        describe: bool = False,
        marginals: bool = False,
        progress: Progress | None = None,
    ) -> Plan:
        """Plan with these tables.  `describe` adds the bias in C order and its spans, `marginals`
        those of what the policy is greedy for."""
        started = time.perf_counter()
        if self.settings.intervals != "nominal":
            model = refuse_without_intervals(self.settings, tables)
            return solve_intervals(
                self.settings, model, describe=describe, progress=progress, started=started
            )
        limits = limits_of(self.settings, self.structure, started)
        try:
            _, backup, h, cold = self._load(tables, limits.deadline)
        except (TimeUp, KeyboardInterrupt) as error:
            return self.settings._unprepared(self.structure, error, started)
        # Once: what is free is read from files, which takes longer than a small plan.
        if self.settings.criterion == "finite" and backup.predicted_bytes not in self._room_for:
            refuse_stages(self.settings, self.structure, backup.predicted_bytes)
            self._room_for.add(backup.predicted_bytes)
        found = _solve(
            self.settings,
            backup,
            tables,
            h,
            cold=cold,
            # Over a horizon no vector stays warm: the values of the first step are asked for.
            describe=describe or (marginals and self.settings.criterion == "finite"),
            progress=progress,
            started=started,
        )
        if not marginals:
            return found
        values = found.bias if self.settings.criterion == "finite" else backup.to_canonical(h)
        return found if values is None else self._with_marginals(found, values)


def _solve(
    settings: Exact,
    backup: Backup,
    tables: Tables,
    h: NDArray[np.float64],
    *,
    cold: bool,
    describe: bool,
    progress: Progress | None,
    started: float,
) -> Plan:
    structure = tables.structure
    discount = 1.0 if settings.discount is None else settings.discount
    limits = limits_of(settings, structure, started)
    if settings.criterion == "finite":
        return solve_finite(
            settings,
            backup,
            tables,
            limits,
            describe=describe,
            progress=progress,
            started=started,
        )
    if cold:
        h[:] = 0.0
    finish: Finish | None = None
    better: Improved | None = None
    model: FactoredMDP | None = None
    # A tie may cost the policy so much.
    room = min(TIE_TOLERANCE * structure.reward_unit, 0.25 * limits.tolerance)

    def rescue(stuck: NDArray[np.float64], converged: bool = False) -> iteration.Rescue | None:
        nonlocal finish, better, model
        model = _model_of(settings, tables)
        if model is None:
            return None
        if not describe:
            better = improved(model, backup, stuck, limits.tolerance - room, limits.deadline)
            if better is not None and better.h is not None:
                return iteration.Rescue(start=better.h)
        finish = Finish(
            model,
            backup,
            limits.tolerance,
            settings.ties,
            settings.tie_seed,
            settings.memory_limit,
            limits.deadline,
        )
        found = finish(stuck, converged=converged)
        if better is None:
            return found
        if found is not None:
            low, high = found.bounds
            if found.differ is not None or high - low <= limits.tolerance:
                return found
        return iteration.Rescue(bounds=better.bounds, discounted=True)

    acceleration: Anderson | None = None
    # Acceleration could change which of several biases is found.
    unique = discount != 1.0

    def accelerate() -> Anderson | None:
        nonlocal acceleration, unique
        if isinstance(tables, FactoredMDP):
            look = partial(check_clock, limits.deadline)
            unique = unique or always_reached(tables, look) is not None
            acceleration = acceleration_for(backup)
        return acceleration

    def settle(found: NDArray[np.float64], lower: float) -> tuple[bool, int]:
        # A state that is worth most is most likely one where things are well, and stay so.
        if unique:
            return True, 0
        return in_every_best_class(backup, found, lower, int(found.argmax()))

    outcome = iteration.solve(
        iteration.OptimalOperator(backup),
        h,
        limits,
        discount=discount,
        cold=cold,
        rescue=rescue if discount == 1.0 else None,
        patience=None if describe or structure.n_states > STATES else PATIENCE,
        room=room if discount == 1.0 else 0.0,
        accelerate=accelerate if describe and cold else None,
        settle=settle,
        progress=progress,
    )
    small = structure.n_states * structure.n_actions <= POLISHED_PAIRS
    if describe and small and discount == 1.0 and outcome.status is Status.CONVERGED and not finish:
        # Bounds that meet say nothing about h: a state that pays a millionth less and is left once
        # in 10^8 steps is missing from it.  Where h is not unique, value iteration's is the one.
        found, only = None, None
        try:
            if outcome.accelerated and isinstance(tables, FactoredMDP):  # it is shown to be unique
                only = polished(
                    tables,
                    backup,
                    outcome,
                    limits.tolerance - room,
                    settings.memory_limit,
                    limits.deadline,
                )
            if only is None:
                found = rescue(outcome.h, converged=True)
        except TimeUp:
            finish = None  # bounds and policy are there; the bias has the digits that it has
        except KeyboardInterrupt:
            finish, outcome = None, replace(outcome, status=Status.INTERRUPTED)
        if only is not None:
            outcome = only
        elif found is not None and found.differ is None:
            low, high = found.bounds
            outcome = replace(outcome, upper=min(outcome.upper, high))
            narrow = outcome.upper - low <= limits.tolerance
            if narrow and found.h is not None and finish is not None and finish.unique_bias:
                outcome = replace(outcome, h=found.h, lower=low, rescued=True)
    stats: dict[str, Any] = {"damping": outcome.damping, **engine_stats(backup)}
    stats["accelerated"] = 0
    if acceleration is not None:
        stats["accelerated"] = acceleration.kept if outcome.accelerated else 0
        stats["memory_bytes"] += acceleration.bytes
    policy: TablePolicy | None
    lower: float | None = outcome.lower
    upper: float | None = outcome.upper
    objective = bias = spans = None
    solved = outcome.status is Status.CONVERGED
    if outcome.status is Status.MULTICHAIN:
        assert finish is not None
        assert finish.gains is not None
        start = getattr(tables, "initial_state", (0,) * structure.m)
        low, high = finish.gain_from(start)
        stats["gain_from_initial_state"] = 0.5 * (low + high)
        stats["gain_from_initial_state_bounds"] = (low, high)
        policy = _policy_of(finish.actions, finish.model, structure)
    elif outcome.status is Status.DISCOUNTED:
        assert better is not None
        assert model is not None
        policy = _policy_of(better.actions, model, structure)
    elif outcome.rescued:
        assert finish is not None
        policy = _policy_of(finish.actions, finish.model, structure)
        solved = solved and finish.solved
    else:
        source = outcome.h if discount == 1.0 else outcome.h * discount
        policy, worth = policy_in_time(settings, backup, structure, outcome, source, limits)
        if discount != 1.0:
            lower = upper = None
            if worth is not None and np.isfinite(outcome.lower):
                scale = discount / (1.0 - discount)
                value = worth + 0.5 * scale * (outcome.lower + outcome.upper)
                lower, upper = _average_bounds(backup, value, policy)
                if outcome.status is Status.CONVERGED:
                    objective = float(value.mean())
                    bias = backup.to_canonical(value) if describe else None
        elif worth is not None:
            # What the policy is sure to gain; L h promises a tie's slack more.
            kernels.residual(outcome.h, worth, backup.extremes)
            size = float(backup.extremes[2]) + structure.reward_size
            low = float(backup.extremes[0]) - rounding_allowance(size, backup.roundings)
            lower = max(low, structure.reward_bounds[0])
    # The h of an iteration that was stopped is not the bias, and one that policy iteration found is
    # the one that value iteration converges to only where there is no other.
    if describe and discount == 1.0 and solved:
        bias = backup.to_canonical(outcome.h)
        bias -= bias.min()
    if bias is not None and (not outcome.rescued or (finish is not None and finish.unique_bias)):
        spans = factored_spans(bias, structure.state_sizes)
    several = outcome.status in (Status.MULTICHAIN, Status.DISCOUNTED)
    one_number = discount == 1.0 and not several
    return Plan(
        planner=settings.name,
        status=outcome.status,
        policy=policy,
        gain=0.5 * (lower + upper) if one_number else None,  # type: ignore[operator]
        gain_lower=lower,
        gain_upper=upper,
        span=None if bias is None or spans is None else span(bias),
        factored_spans=spans,
        objective=objective,
        iterations=outcome.sweeps,
        seconds=time.perf_counter() - started,
        ties=settings.ties,
        bias=bias,
        stats=stats,
    )


def _model_of(settings: Exact, tables: Tables) -> FactoredMDP | None:
    """What may be planned for by policies where sweeps do not do; nested targets are no model."""
    if isinstance(tables, FactoredMDP):
        return tables
    if settings.targets == "vertex":
        return tables.extended()
    if not any(free.any() for free in tables.free):
        return FactoredMDP.trusted(tables.structure, tables.lower, tables.rewards)
    return None


def _policy_of(
    chosen: NDArray[np.int64] | None, model: FactoredMDP, structure: Structure
) -> TablePolicy:
    assert chosen is not None
    # With vertex targets the joint action is (action, targets), targets fastest.
    actions = chosen // (model.structure.n_actions // structure.n_actions)
    return TablePolicy(structure.state_sizes, structure.action_sizes, actions, structure.naming)


def _average_bounds(
    backup: Backup, value: NDArray[np.float64], policy: TablePolicy | None
) -> tuple[float | None, float]:
    """What the policy gains at least and the optimal gain at most, from any function, here the
    discounted value."""
    out = np.empty_like(value)

    def extremes() -> tuple[float, float]:
        kernels.residual(value, out, backup.extremes)
        size = float(backup.extremes[2]) + backup.structure.reward_size
        slack = rounding_allowance(size, backup.roundings)
        return float(backup.extremes[0]) - slack, float(backup.extremes[1]) + slack

    least, most = backup.structure.reward_bounds
    backup.sweep(value, out)
    upper = min(extremes()[1], most)
    if policy is None:
        return None, upper
    backup.policy_sweep(value, out, policy.actions)
    return max(extremes()[0], least), upper
