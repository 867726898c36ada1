"""The planner `counts`: exact plans for models with exchangeable parts, on counts.

The model is replaced by its quotient (quotient.py), and the phases of the exact planner run on the
backup of the quotient (backup.py): value iteration, the proof of a unique bias, and, where the
quotient can be written out, policy iteration and the last digits of the bias. The backup of the
model maps functions of the counts to functions of the counts, and on these it is the backup of the
quotient. So bounds on the gain, values and biases of the quotient are those of the model, and a
move is an action of the model in every state (docs/counts.md).

A model without exchangeable parts is planned by `exact`.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from fmdp._base.deadlines import TimeUp
from fmdp._base.parameters import Parameter
from fmdp._base.settings import setting
from fmdp.elimination.alignment import aligned
from fmdp.errors import InvalidParameter, TooLarge
from fmdp.model import FactoredMDP, Structure
from fmdp.model.averaging import first_difference
from fmdp.model.exchangeable.finding import exchangeable_parts
from fmdp.model.exchangeable.parts import Exchangeable
from fmdp.model.factored import check_model
from fmdp.model.structure import check_structure
from fmdp.planning.counts.averaged import plan_averaged
from fmdp.planning.counts.backup import CountBackup
from fmdp.planning.counts.quotient import Quotient
from fmdp.planning.counts.spans import (
    factored_spans_on_counts,
    marginals_on_counts,
    over_joint_states,
)
from fmdp.planning.exact import iteration, phases, solver
from fmdp.planning.exact.direct import average_solution_of_table, discounted_solution_of_table
from fmdp.planning.exact.finite import refuse_stages, solve_finite
from fmdp.planning.exact.operators import OptimalOperator, PolicyOperator
from fmdp.planning.exact.planner import Exact
from fmdp.planning.exact.recurrence import always_reached
from fmdp.planning.exact.report import report
from fmdp.planning.exact.solver import Phase, PhaseFunction, PolicySolution, State
from fmdp.planning.plan import Plan, Planner, of_model
from fmdp.planning.policies.counts import CountPolicy, TimedCountPolicy, as_table
from fmdp.planning.policies.policy import MOST_NUMBERED, Policy, TablePolicy
from fmdp.planning.policies.timed import TimedPolicy
from fmdp.planning.prepared import limits_of, unprepared
from fmdp.planning.settings import (
    ExactCriteria,
    Limited,
    TieBreaking,
)
from fmdp.planning.spans import marginals as marginals_of
from fmdp.planning.status import Progress, Status, Tables
from fmdp.planning.tabular.gains import optimal_gains
from fmdp.planning.tabular.model import TabularModel, entries_within

Vector = NDArray[np.float64]

BIAS_STATES = 1 << 20
"""Most joint states over which a plan reports the bias, and a policy with a horizon as tables."""
_POLISHED_PAIRS = 1 << 22
"""Most (state, move, next state) triples of a quotient that is written out."""


_EVALUATION_SWEEPS = 2000
"""Most sweeps of the evaluation of a policy whose gain is not known from the plan."""


@dataclass(frozen=True)
class NamesOfParts(Parameter):
    """Groups of names of state variables; as text: pump_0 pump_1+valve_0 valve_1 valve_2."""

    kind = "names"

    @property
    def allowed(self) -> str:
        return "names of state variables, groups joined by +"

    def _read(self, text: str) -> Any:
        return tuple(tuple(group.split()) for group in text.split("+"))

    def _accept(self, value: Any) -> tuple[tuple[str, ...], ...]:
        if not isinstance(value, list | tuple):
            raise ValueError
        for group in value:
            if not isinstance(group, list | tuple) or len(group) < 2:
                raise ValueError
            if not all(isinstance(name, str) and name for name in group):
                raise ValueError
        return tuple(map(tuple, value))

    def _write(self, value: Any) -> str:
        return "+".join(" ".join(group) for group in value)


class Counts(ExactCriteria, Limited, TieBreaking, Planner):
    """Exact plans for models with exchangeable parts, on counts, with certified bounds.

    The states are how many parts are in each local state. docs/counts.md says which models have
    exchangeable parts, and what it costs. Any other model is planned by `exact`.
    """

    summary = "exact plans on counts of exchangeable parts; certified bounds on the optimal gain"
    takes_derived = True
    gives_marginals = True

    groups: tuple[tuple[str, ...], ...] | None = setting(
        None,
        "groups of state variables, one per part, that must be exchangeable; found by default",
        kind=NamesOfParts,
    )

    average: bool = setting(
        False,
        "plan for the mean of the tables of parts that differ; the bounds include the error",
        unkeyed=(False,),
    )

    targets = "nested"
    threads = None

    def check(self) -> None:
        if self.average and self.criterion != "average":
            raise InvalidParameter(
                f"the 'average' parameter of {self.owner()} needs criterion=average, for which the "
                f"error of averaging is certified; got criterion={self.criterion}"
            )
        super().check()

    def prepare(self, structure: Structure) -> PreparedCounts:
        check_structure(structure, "prepare")
        return PreparedCounts(self)

    def plan(self, model: FactoredMDP, *, progress: Progress | None = None) -> Plan:
        check_model(model, "plan")
        if self.average:
            planner = replace(self, average=False, groups=None)
            plan = plan_averaged(planner, model, self.groups, progress)
            return replace(plan, settings=self)
        parts, reasons = exchangeable_parts(model, self.groups)
        if parts is None:
            return self._plan_by_states(model, reasons, progress)
        return of_model(self._plan_on_counts(model, parts, progress), model, self)

    @property
    def by_states(self) -> Exact:
        """The exact planner with the same settings."""
        return Exact(**{name: getattr(self, name) for name in _SETTINGS_OF_EXACT})

    def _plan_by_states(
        self, model: FactoredMDP, reasons: Sequence[str], progress: Progress | None
    ) -> Plan:
        """Return the plan of the exact planner, which says why there are no counts."""
        different = list(reasons[:1]) or [
            f"{difference} (average=true plans for their mean)"
            for difference in [first_difference(model)]
            if difference is not None
        ]
        reason = "; ".join(["no exchangeable parts", *different])
        try:
            plan = self.by_states.plan(model, progress=progress)
        except TooLarge as error:
            error.args = (f"{reason}; {error}",)
            raise
        stats = {**plan.stats, "planner_reason": reason}
        return replace(plan, planner=self.name, stats=stats, settings=self)

    def _plan_on_counts(
        self, model: FactoredMDP, parts: Exchangeable, progress: Progress | None
    ) -> Plan:
        started = time.perf_counter()
        limits = limits_of(self, model.structure, started)
        try:
            quotient = Quotient(parts, memory_limit=self.memory_limit, deadline=limits.deadline)
        except (TimeUp, KeyboardInterrupt) as error:
            plan = unprepared(self, model.structure, error, started)
            if self.criterion != "finite":
                return plan
            return replace(plan, gain=None, gain_lower=None, gain_upper=None)
        backup = CountBackup(quotient)
        if self.criterion == "finite":
            plan = self._finite(model, backup, limits, progress, started)
        else:
            plan = self._iterated(model, backup, limits, progress, started)
        stats = {**plan.stats, "counts": quotient.n_states, "moves": len(quotient.moves)}
        stats["groups"] = [
            [[model.structure.state_names[v] for v in part] for part in group.states]
            for group in parts.groups
        ]
        return replace(plan, stats=stats, seconds=time.perf_counter() - started)

    def _finite(
        self,
        model: FactoredMDP,
        backup: CountBackup,
        limits: solver.Limits,
        progress: Progress | None,
        started: float,
    ) -> Plan:
        settings, tables = cast(Exact, self), cast(Tables, _Quotiented(backup.quotient, model))
        refuse_stages(settings, backup.structure, backup.predicted_bytes)
        plan = solve_finite(
            settings,
            backup,
            tables,
            limits,
            describe=True,
            progress=progress,
            started=started,
            ties=self.tie_breaking,
        )
        policy: Policy | None = None
        if isinstance(plan.policy, TimedPolicy):
            policy = _timed(plan.policy, backup.quotient, model.structure)
        return _of_joint_states(replace(plan, policy=policy), backup.quotient, model.structure)

    def _iterated(
        self,
        model: FactoredMDP,
        backup: CountBackup,
        limits: solver.Limits,
        progress: Progress | None,
        started: float,
    ) -> Plan:
        discount = 1.0 if self.discount is None else self.discount
        problem = _problem(self, backup, model, limits, discount, progress)
        h = aligned(backup.n_states)
        h[:] = 0.0
        state = solver.solve(problem, problem.first_state(h, unique=discount != 1.0))
        plan = report(problem, state, self.name, started)
        if plan.bias is None:  # the policy is greedy for other values
            plan = replace(plan, stats={**plan.stats, "values_on_counts": state.h})
        if plan.policy is None:
            return _of_joint_states(plan, backup.quotient, model.structure)
        assert isinstance(plan.policy, TablePolicy)
        moves = plan.policy.actions
        plan = _with_policy_gain(plan, problem, moves.astype(np.int64))
        policy = CountPolicy(backup.quotient.count_moves, moves, model.structure.naming)
        return _of_joint_states(replace(plan, policy=policy), backup.quotient, model.structure)


_SETTINGS_OF_EXACT = (
    *("tolerance", "criterion", "horizon", "discount", "ties", "tie_seed"),
    *("max_iterations", "max_seconds", "memory_limit"),
)


class PreparedCounts:
    """The planner for any tables of a structure: parts are found anew for each model."""

    def __init__(self, settings: Counts) -> None:
        self.settings = settings

    def solve(
        self, tables: Tables, *, progress: Progress | None = None, marginals: bool = False
    ) -> Plan:
        """Plan with these tables, which must be a model; `marginals` sets `Plan.marginals`."""
        if not isinstance(tables, FactoredMDP):
            raise InvalidParameter("planner counts plans for models, not for optimistic tables")
        plan = replace(self.settings.plan(tables, progress=progress), model=None)
        return replace(plan, marginals=self._marginals(plan, tables)) if marginals else plan

    def _marginals(self, plan: Plan, model: FactoredMDP) -> tuple[Vector, ...] | None:
        if isinstance(plan.policy, CountPolicy):
            h = plan.stats.get("bias_on_counts", plan.stats.get("values_on_counts"))
            return marginals_on_counts(h, plan.policy.moves.space)
        if plan.bias is not None:
            return marginals_of(plan.bias, model.structure.state_sizes)
        exact = self.settings.by_states.prepare(model.structure)
        return exact.solve(model, marginals=True).marginals

    def warm_state(self) -> dict[str, NDArray[Any]]:
        return {}

    def restore_warm_state(self, state: Any) -> None:
        """There is no warm state."""


class _Quotiented:
    """What the exact planner's phases ask of a model, for a quotient."""

    def __init__(self, quotient: Quotient, model: FactoredMDP) -> None:
        self.structure = quotient.structure
        self.initial_state = (quotient.space.state_of(model.initial_state),)


@dataclass(frozen=True, eq=False, kw_only=True)
class _CountProblem(phases.ExactProblem):
    """A plan on counts: policy iteration works on the quotient written out, if that is small."""

    @cached_property
    def table(self) -> TabularModel | None:
        backup = cast(CountBackup, self.backup)
        entries = entries_within(self.settings.memory_limit)
        return backup.written_out(min(entries, _POLISHED_PAIRS))


def _problem(
    settings: Counts,
    backup: CountBackup,
    model: FactoredMDP,
    limits: solver.Limits,
    discount: float,
    progress: Progress | None,
) -> _CountProblem:
    average = discount == 1.0
    allowed: dict[Phase, PhaseFunction] = dict(solver.VALUE_ITERATION)
    allowed[Phase.START] = _start
    allowed[Phase.PROVE_UNIQUE] = phases.prove_unique
    allowed[Phase.POLICY_ITERATION] = _policy_iteration
    if average and backup.quotient.n_pairs <= phases.POLISHED_PAIRS:
        allowed[Phase.POLISH] = _polish
        allowed[Phase.EXTEND] = phases.extend
    return _CountProblem(
        operator=OptimalOperator(backup),
        limits=limits,
        phases=allowed,
        discount=discount,
        dampings=(1.0, solver.DAMPING) if average else (1.0,),
        reserve=phases.tie_reserve(model.structure, limits) if average else 0.0,
        progress=progress,
        settings=settings,
        tables=cast(Tables, _Quotiented(backup.quotient, model)),
        ties=settings.tie_breaking,
        describe=True,
    )


def _start(problem: _CountProblem, state: State) -> State:
    """Turn acceleration on, and look for a joint state that every policy reaches."""
    model = cast(CountBackup, problem.backup).quotient.parts.model
    unique = state.unique or always_reached(model, problem.limits.deadline) is not None
    return solver.start(problem, state._replace(unique=unique))


def _policy_iteration(problem: _CountProblem, state: State) -> State:
    """Solve by policies what the sweeps cannot, if the quotient can be written out."""
    return solver.after_policy_iteration(problem, state, _by_policies(problem, state, False))


def _by_policies(problem: _CountProblem, state: State, converged: bool) -> PolicySolution | None:
    table = problem.table
    if table is None:
        return None
    backup, limits = problem.backup, problem.limits
    if problem.discount != 1.0:
        if problem.discount == 0.0:
            return None
        return discounted_solution_of_table(
            table, backup, state.h, problem.discount, limits.deadline
        )
    return average_solution_of_table(
        table,
        backup,
        state.h,
        limits.tolerance,
        problem.structure.reward_unit,
        problem.ties,
        deadline=limits.deadline,
        converged=converged,
    )


def _polish(problem: _CountProblem, state: State) -> State:
    """Solve for the bias to its last digits where the quotient is written out and it is unique."""
    if not state.policies_tried:
        state = phases.with_solution(problem, state, _by_policies(problem, state, True))
    if state.solved_by_policies or state.accelerated or state.unique:
        return state._replace(phase=Phase.DONE)
    return state._replace(phase=Phase.EXTEND, bias=state.h)


# ---- from the quotient to the model --------------------------------------------------------------


def _with_policy_gain(plan: Plan, problem: _CountProblem, moves: NDArray[np.int64]) -> Plan:
    """Return the plan with the certified gain of its policy from the initial state.

    The lower bound of a converged plan is one of its policy. Under a discount, or if the plan was
    stopped, the policy is evaluated as long as time allows.
    """
    if plan.status is Status.INTERRUPTED or plan.gain_lower is None:
        return plan
    if plan.status is Status.MULTICHAIN:
        bounds = plan.stats["gain_from_initial_state_bounds"]
    elif plan.gain is not None and plan.status in (Status.CONVERGED, Status.PRECISION_LIMIT):
        bounds = (plan.gain_lower, plan.gain_upper)
    else:
        bounds = _gain_of_policy(problem, moves)
    if bounds is None:
        return plan
    stats = {**plan.stats, "policy_gain_bounds": bounds}
    return replace(plan, policy_gain=bounds[0], stats=stats)


def _gain_of_policy(problem: _CountProblem, moves: NDArray[np.int64]) -> tuple[float, float] | None:
    """Return bounds on the gain of a policy from the initial state; None if they do not meet.

    The chain of a small quotient is solved; that of a larger one is iterated.
    """
    limits = problem.limits
    if problem.table is not None:
        gains = optimal_gains(problem.table.chain(moves), limits.deadline)
        (start,) = problem.tables.initial_state  # type: ignore[union-attr]
        return None if gains is None else (float(gains.lower[start]), float(gains.upper[start]))
    h = aligned(problem.backup.n_states)
    h[:] = 0.0
    few = replace(limits, max_sweeps=min(limits.max_sweeps, _EVALUATION_SWEEPS))
    ended = iteration.solve(PolicyOperator(problem.backup, moves), h, few, accelerated=True)
    return (ended.lower, ended.upper) if ended.status is Status.CONVERGED else None


def _of_joint_states(plan: Plan, quotient: Quotient, structure: Structure) -> Plan:
    """Return a plan for the quotient as one for the model: bias, spans, mean value."""
    if plan.bias is None:
        return plan
    space = quotient.space
    known = plan.factored_spans is not None
    spans = factored_spans_on_counts(plan.bias, space) if known else None
    objective, stats = plan.objective, {**plan.stats, "bias_on_counts": plan.bias}
    if objective is not None and "horizon" not in stats:  # the mean over joint states
        low, high = stats["objective_bounds"]
        value = float(plan.bias @ space.weights)
        # The weights are known up to a few roundings per part.
        parts = sum(space.n_parts) * sum(space.n_local)
        noise = 8.0 * (parts + 8) * float(np.finfo(np.float64).eps) * np.abs(plan.bias).max()
        half = 0.5 * (high - low) + float(noise)
        objective, stats["objective_bounds"] = value, (value - half, value + half)
    small = structure.n_states <= BIAS_STATES
    bias = over_joint_states(plan.bias, space) if small else None
    return replace(plan, bias=bias, factored_spans=spans, objective=objective, stats=stats)


def _timed(policy: TimedPolicy, quotient: Quotient, structure: Structure) -> Policy:
    """Return a policy with a horizon for the model: tables over joint states if these are few."""
    stages = [
        CountPolicy(quotient.count_moves, stage.actions, structure.naming)
        for stage in policy.stages
    ]
    numbers = policy.stage_numbers.tolist()
    few = structure.n_states * len(stages) <= BIAS_STATES and structure.n_actions < MOST_NUMBERED
    if not few:
        return TimedCountPolicy([stages[number] for number in numbers], policy.discount)
    tables = [as_table(stage, structure) for stage in stages]
    return TimedPolicy([tables[number] for number in numbers], policy.discount)
