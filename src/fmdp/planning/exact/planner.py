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

from fmdp._base.settings import setting
from fmdp.elimination.alignment import aligned
from fmdp.elimination.backup import Backup, TimeUp, backup_for, check_clock
from fmdp.elimination.rounding import rounding_allowance
from fmdp.elimination.ties import TIE_TOLERANCE, Ties
from fmdp.errors import InvalidParameter
from fmdp.model import FactoredMDP, Structure
from fmdp.model.factored import check_model
from fmdp.model.structure import check_structure
from fmdp.planning.exact import iteration
from fmdp.planning.exact.acceleration import Anderson, acceleration_for
from fmdp.planning.exact.finish import Finish
from fmdp.planning.exact.finite import refuse_stages, solve_finite
from fmdp.planning.exact.improvement import STATES, Improved, improved
from fmdp.planning.exact.interval_sets import refuse_without_intervals
from fmdp.planning.exact.intervals import solve_intervals
from fmdp.planning.exact.polish import polished, settled
from fmdp.planning.exact.recurrence import always_reached, in_every_best_class
from fmdp.planning.exact.small import tabular_backup
from fmdp.planning.joining import parts_to_plan
from fmdp.planning.limits import tolerance_of
from fmdp.planning.parts import PreparedParts, plan_parts
from fmdp.planning.plan import Plan, Planner, of_model
from fmdp.planning.policies.policy import TablePolicy
from fmdp.planning.prepared import (
    PreparedOnEngine,
    engine_stats,
    limits_of,
    policy_in_time,
    unprepared,
    with_tolerance,
)
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
from fmdp.planning.status import Progress, Status, Tables, middle_of_bounds

PATIENCE = 64
"""Sweeps after which a plan that need not describe its bias is left to policy iteration."""
_KNOWN = 1e-2
"""Estimated error of a span, relative to it, above which it is not told."""
POLISHED_PAIRS = 1 << 12
"""States x actions up to which a plan that is to be described is solved directly as well."""


class Exact(Limited, TieBreaking, OnEngine, Planner):
    """Relative value iteration by elimination, with certified bounds on the optimal gain.

    For models whose states fit into memory. docs/exact.md says how, and what it costs.
    """

    summary = "relative value iteration by elimination; certified bounds on the optimal gain"
    gives_marginals = True
    takes_ties = True

    tolerance: float | None = tolerance_setting()
    criterion: str = criterion_setting("average", ("average", "discounted", "finite"))
    horizon: int | None = setting(
        None,
        "steps of the finite criterion, which has to have it",
        low=1,
        high=2**53,
        only_with=("criterion", ("finite",)),
        unkeyed=(None,),
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
        unkeyed=("nominal",),
    )

    def check(self) -> None:
        if self.criterion == "discounted" and self.discount is None:
            object.__setattr__(self, "discount", DISCOUNT)
        if self.criterion == "finite" and self.horizon is None:
            raise InvalidParameter(
                f"the 'horizon' parameter of {self.owner()} (steps to plan for) must be given with "
                f"criterion=finite: an integer >= 1"
            )

    def prepare(self, structure: Structure) -> PreparedExact | PreparedParts:
        check_structure(structure, "prepare")
        # The tables of a learner have no intervals, which solving says.
        if self.intervals != "nominal" or not self._by_parts(structure):
            return PreparedExact(self, structure)
        return PreparedParts(
            self, structure, tolerance_of(self.tolerance, structure), PreparedExact
        )

    def _by_parts(self, structure: Structure) -> bool:
        """Return whether the model is planned part by part.

        A policy over time is not split. Neither are sets of models whose rows are known to be
        alike: what is the worst row of one part must then be the row of another one as well.
        """
        tied = self.intervals != "nominal" and structure.alike is not None
        return self.criterion != "finite" and not tied and bool(parts_to_plan(structure))

    def plan(self, model: FactoredMDP, *, progress: Progress | None = None) -> Plan:
        # Equal tables of different actions share their work.
        check_model(model, "plan")
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
        ties: Ties | None = None,
        tolerance: float | None = None,
        progress: Progress | None = None,
    ) -> Plan:
        """Plan with these tables.

        `describe` adds the bias in C order and its spans, `marginals` the marginals of the vector
        that the policy is greedy for.  `ties` and `tolerance` replace those of the settings.
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
            return settings._unprepared(self.structure, error, started)
        # Once: what is free is read from files, which takes longer than a small plan.
        if settings.criterion == "finite" and backup.predicted_bytes not in self._room_for:
            refuse_stages(settings, self.structure, backup.predicted_bytes)
            self._room_for.add(backup.predicted_bytes)
        found = _solve(
            settings,
            backup,
            tables,
            h,
            cold=cold,
            # Over a horizon no vector stays warm: the values of the first step are asked for.
            describe=describe or (marginals and settings.criterion == "finite"),
            progress=progress,
            started=started,
            ties=ties,
        )
        if not marginals:
            return found
        values = found.bias if settings.criterion == "finite" else backup.to_canonical(h)
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
    ties: Ties | None = None,
) -> Plan:
    structure = tables.structure
    ties = settings.tie_breaking if ties is None else ties
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
            ties=ties,
        )
    if cold:
        h[:] = 0.0
    finish: Finish | None = None
    better: Improved | None = None
    model: FactoredMDP | None = None
    # Tolerance reserved for tie-breaking.
    room = min(TIE_TOLERANCE * structure.reward_unit, 0.25 * limits.tolerance)

    by_policies = partial(_rescue_discounted, settings, tables, backup, discount, limits.deadline)

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
            ties.with_targets(model.structure.n_actions // structure.n_actions),
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
        # Heuristic: argmax h is probably recurrent under the optimal policy.
        if unique:
            return True, 0
        return in_every_best_class(backup, found, lower, int(found.argmax()))

    outcome = iteration.solve(
        iteration.OptimalOperator(backup),
        h,
        limits,
        discount=discount,
        cold=cold,
        dampings=(1.0, iteration.DAMPING) if discount == 1.0 else (1.0,),
        rescue=rescue if discount == 1.0 else by_policies,
        patience=None if describe or structure.n_states > STATES or discount != 1.0 else PATIENCE,
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
    elif outcome.rescued and discount == 1.0:
        assert finish is not None
        policy = _policy_of(finish.actions, finish.model, structure)
        solved = solved and finish.solved
    else:
        source = outcome.h if discount == 1.0 else outcome.h * discount
        policy, worth = policy_in_time(settings, backup, structure, outcome, source, limits, ties)
        if discount != 1.0:
            lower = upper = None
            if worth is not None and np.isfinite(outcome.lower):
                value, stats["objective_bounds"] = _discounted_value(outcome, worth, discount)
                lower, upper = _average_bounds(backup, value, policy)
                if outcome.status in (Status.CONVERGED, Status.PRECISION_LIMIT):
                    objective = float(value.mean())
                if describe and outcome.status is Status.CONVERGED:
                    bias = backup.to_canonical(value)
        elif worth is not None:
            # What the policy is sure to gain; L h promises a tie's slack more.
            backup.residual(outcome.h, worth)
            size = float(backup.extremes[2]) + structure.reward_size
            low = float(backup.extremes[0]) - rounding_allowance(size, backup.roundings)
            lower = max(low, structure.reward_bounds[0])
    # The h of an iteration that was stopped is not the bias, and one that policy iteration found is
    # the one that value iteration converges to only where there is no other.
    if describe and discount == 1.0 and solved:
        found_h = outcome.h
        if not (outcome.rescued or outcome.accelerated or unique):
            # Another bias may solve the equation: h is that of value iteration, and as near to its
            # limit as the sweeps are.
            error = outcome.sweeps * (outcome.upper - outcome.lower)
            if small:
                try:
                    found_h, error = settled(backup, outcome, limits.deadline)
                except KeyboardInterrupt:
                    outcome = replace(outcome, status=Status.INTERRUPTED)
            stats["span_error"] = error
        bias = backup.to_canonical(found_h)
        bias -= bias.min()
    unique_bias = discount != 1.0 or (finish is not None and finish.unique_bias)
    if bias is not None and (not outcome.rescued or unique_bias):
        spans = _known_spans(bias, structure, stats.get("span_error", 0.0))
    several = outcome.status in (Status.MULTICHAIN, Status.DISCOUNTED)
    one_number = discount == 1.0 and not several
    return Plan(
        planner=settings.name,
        status=outcome.status,
        policy=policy,
        gain=middle_of_bounds(lower, upper, structure, limits.tolerance) if one_number else None,
        gain_lower=lower,
        gain_upper=upper,
        span=None if bias is None or spans is None else span(bias),
        factored_spans=spans,
        objective=objective,
        iterations=outcome.sweeps,
        seconds=time.perf_counter() - started,
        ties=ties.name,
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


def _rescue_discounted(
    settings: Exact,
    tables: Tables,
    backup: Backup,
    discount: float,
    deadline: float | None,
    stuck: NDArray[np.float64],
) -> iteration.Rescue | None:
    """Return the values of policy iteration from the policy that is greedy at `stuck`; None where
    the model is too large to be written out."""
    from fmdp.planning.tabular.component import SPARSE_STATES
    from fmdp.planning.tabular.discounted import best_discounted
    from fmdp.planning.tabular.flat import BYTES_AN_ENTRY, ENTRIES, flat_of

    model = _model_of(settings, tables)
    if model is None or discount == 0.0 or model.structure.n_states > SPARSE_STATES:
        return None
    limit = ENTRIES if settings.memory_limit is None else settings.memory_limit // BYTES_AN_ENTRY
    flat = flat_of(model, min(ENTRIES, limit))
    if flat is None:
        return None
    start = flat.advantages(discount * backup.to_canonical(stuck))[0].argmax(axis=1)
    best = best_discounted(flat, discount, start, partial(check_clock, deadline))
    if best is None:
        return None
    bounds = (best.lower / discount, best.upper / discount)
    return iteration.Rescue(bounds=bounds, h=backup.to_internal(best.values))


def _discounted_value(
    outcome: iteration.Ending, worth: NDArray[np.float64], discount: float
) -> tuple[NDArray[np.float64], tuple[float, float]]:
    """Return the middle of MacQueen's bounds on the value of every state, and certified bounds on
    its mean; `worth` is L V."""
    scale = discount / (1.0 - discount)
    base = outcome.h if outcome.rescued else worth
    value = base + 0.5 * scale * (outcome.lower + outcome.upper)
    half = 0.5 * scale * (outcome.upper - outcome.lower) + outcome.slack
    # The mean itself is rounded, too.
    half += len(value) * float(np.finfo(np.float64).eps) * float(np.abs(value).max())
    mean = float(value.mean())
    return value, (mean - half, mean + half)


def _known_spans(
    bias: NDArray[np.float64], structure: Structure, error: float
) -> tuple[float, ...] | None:
    """Return the factored spans of a bias; None where its error is too large to print a span."""
    if error > max(_KNOWN * span(bias), TIE_TOLERANCE * structure.reward_unit):
        return None
    return factored_spans(bias, structure.state_sizes)


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
        backup.residual(value, out)
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
