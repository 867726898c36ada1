"""Planning for a model with intervals: the worst and the best case over all models inside.

A model with intervals is a set of models (Givan, Leach & Dean 2000) whose rows and means lie
between two ends.  The guarantee of a policy is the least that it gains in any of them:

    robust      max over policies  of the min over models of the gain
    optimistic  max over policies  of the max over models of the gain

One end comes from the nested operator (elimination/backup.py), in which nature chooses the row of a
factor while its variable is eliminated, knowing the current state and the variables that are not
yet eliminated.  That is at least as much freedom as in any model of the set, stationary or changing
with time, so min(N h - h) is at most the gain of the greedy policy in every one of them.  The other
end comes from one member of the set: max-min is at most the optimal gain of any member, max-max at
least.  The member is nature's choice if every row must be chosen once: against the values of the
last plan, row by row, and again against those of the resulting member (docs/exact.md has the
proofs).

If the two ends do not meet, the status is `relaxation_limit`, and both hold.  They do meet if there
is one variable and each row is used in one state only (a flat model: Givan's), or if values are
sums over variables and no class of alike rows is shared between factors.

Cost: value iteration twice or a few times; a round of the adversary takes sum_i |S_i| sweeps.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fmdp._base.deadlines import Deadline, TimeUp
from fmdp.elimination.backup import Backup, backup_for, backup_of
from fmdp.model import FactoredMDP, OptimisticTables, Structure
from fmdp.model.spaces import all_assignments, strides
from fmdp.planning.exact import iteration
from fmdp.planning.exact.bounds import policy_lower_bound, residual_of
from fmdp.planning.exact.direct import average_solution
from fmdp.planning.exact.interval_sets import tables_of
from fmdp.planning.plan import Plan
from fmdp.planning.policies.policy import TablePolicy
from fmdp.planning.prepared import engine_stats, limits_of, policy_in_time, unprepared
from fmdp.planning.spans import factored_spans, span
from fmdp.planning.status import Progress, Status, middle_of_bounds

if TYPE_CHECKING:
    from fmdp.planning.exact.planner import Exact

Vector = NDArray[np.float64]

ROUNDS = 8
"""Largest number of members that are tried."""
PAIRS = 1 << 22
"""States x joint actions up to which nature looks at every pair; above, at averages of h."""
_SHARE = 0.25
"""Share of the tolerance for each of the two ends."""
_GOING_ON = (Status.CONVERGED, Status.PRECISION_LIMIT, Status.ITERATION_LIMIT)


def poured(lower: Vector, upper: Vector, worth: Vector, *, worst: bool) -> Vector:
    """Return the rows of a box that are worth least (most), all arrays [rows, values].

    The free mass is poured into the values in the order of `worth`, each up to its upper end.
    """
    order = np.argsort(worth if worst else -worth, axis=1, kind="stable")
    widths = np.take_along_axis(upper - lower, order, axis=1)
    free = np.maximum(1.0 - lower.sum(axis=1, keepdims=True), 0.0)
    before = np.cumsum(widths, axis=1) - widths
    taken = np.clip(free - before, 0.0, widths)
    rows = lower.copy()
    np.put_along_axis(rows, order, np.take_along_axis(lower, order, axis=1) + taken, axis=1)
    normal: Vector = rows / rows.sum(axis=1, keepdims=True)
    return normal


@dataclass(frozen=True, eq=False)
class _Solved:
    """The plan of one member: bounds, h in C order, and a policy that attains the lower bound."""

    lower: float
    upper: float
    h: Vector
    sweeps: int
    policy: TablePolicy | None
    status: Status


class _Nature:
    """The adversary (or ally): chooses members of the set against the values of the last plan."""

    def __init__(
        self,
        settings: Exact,
        model: FactoredMDP,
        tables: OptimisticTables,
        worst: bool,
        deadline: Deadline,
    ) -> None:
        self.settings = settings
        self.model = model
        self.tables = tables
        self.worst = worst
        self.deadline = deadline
        self.structure = model.structure
        self.backup: Backup | None = None
        self._rows: list[NDArray[np.int64]] | None = None

    def prepared(self) -> Backup:
        if self.backup is None:
            self.backup = backup_of(
                self.structure,
                memory_limit=self.settings.memory_limit,
                threads=self.settings.threads,
                deadline=self.deadline,
            )
        return self.backup

    def answer(self, member: FactoredMDP, h: Vector) -> FactoredMDP:
        """Return the member of the set whose rows, one at a time, are worst (best) against h."""
        worth = self._worth(member, h)
        rows = []
        classes = [self.structure.transition_classes_of(i) for i in range(self.structure.m)]
        if self.structure.alike is not None:
            _sum_by_class(classes, worth)
        assert self.tables.upper is not None
        for lower, upper, values in zip(self.tables.lower, self.tables.upper, worth, strict=True):
            rows.append(poured(lower, upper, values, worst=self.worst))
        return self._member(rows)

    def nominal(self) -> FactoredMDP:
        return self._member(list(self.model.transitions))

    def _member(self, rows: list[Vector]) -> FactoredMDP:
        return FactoredMDP.trusted(self.structure, rows, self.tables.rewards)

    def _worth(self, member: FactoredMDP, h: Vector) -> list[Vector]:
        """Return the worth of every value in every row of each factor: [|X[Z_i]|, |S_i|] each.

        It is the sum over the pairs (s, a) that use the row of E[h(s') | s'_i = v], with the other
        variables by the member's rows: the derivative of those pairs' backups by the row.
        """
        structure = self.structure
        if structure.n_states * structure.n_actions > PAIRS:
            cube = h.reshape(structure.state_sizes)
            axes = range(structure.m)
            means = [cube.mean(axis=tuple(j for j in axes if j != i)) for i in axes]
            return [
                np.broadcast_to(mean, (rows, len(mean))).copy()
                for mean, rows in zip(means, structure.transition_rows, strict=True)
            ]
        backup = self.prepared()
        backup.deadline = self.deadline
        if self._rows is None:
            self._rows = [pair_rows(structure, scope) for scope in structure.transition_scopes]
        nothing = [np.zeros(rows) for rows in structure.reward_rows]
        worths = []
        for i, size in enumerate(structure.state_sizes):
            worth = np.empty((structure.transition_rows[i], size))
            for v in range(size):
                self.deadline.check()
                surely = np.zeros((structure.transition_rows[i], size))
                surely[:, v] = 1.0
                rows = [*member.transitions[:i], surely, *member.transitions[i + 1 :]]
                backup.load(FactoredMDP.trusted(structure, rows, nothing))
                values = backup.action_values(h)
                values[np.isneginf(values)] = 0.0  # forbidden pairs do not count
                worth[:, v] = np.bincount(
                    self._rows[i], weights=values.reshape(-1), minlength=len(worth)
                )
            worths.append(worth)
        return worths

    def solve(
        self,
        member: FactoredMDP,
        h: Vector,
        limits: iteration.Limits,
        progress: Progress | None,
    ) -> _Solved:
        """Plan for a member, starting from h."""
        backup = self.prepared()
        backup.load(member)
        settings, structure = self.settings, self.structure

        def by_policies(stalled: Vector) -> iteration.PolicySolution | None:
            return average_solution(
                member,
                backup,
                stalled,
                limits.tolerance,
                settings.tie_breaking,
                memory_limit=settings.memory_limit,
                deadline=self.deadline,
            )

        start = backup.to_internal(h - h.min())
        outcome = iteration.solve(
            iteration.OptimalOperator(backup),
            start,
            limits,
            cold=False,
            policy_iteration=by_policies,
            progress=progress,
        )
        lower, policy = outcome.lower, None
        if not self.worst:
            if outcome.solution is not None and outcome.solution.actions is not None:
                policy = TablePolicy(
                    structure.state_sizes,
                    structure.action_sizes,
                    outcome.solution.actions,
                    structure.naming,
                )
            else:
                policy, worth = policy_in_time(
                    settings, backup, structure, outcome, outcome.h, limits, settings.tie_breaking
                )
                lower = structure.reward_bounds[0]
                if worth is not None:
                    lower = max(lower, policy_lower_bound(backup, outcome.h, worth))
        return _Solved(
            lower,
            outcome.upper,
            backup.to_canonical(outcome.h),
            outcome.sweeps,
            policy,
            outcome.status,
        )

    def policy_iteration(
        self, nested: Backup, stalled: Vector, limits: iteration.Limits
    ) -> iteration.PolicySolution | None:
        """Solve members by policy iteration, each nature's answer to the last, until the h of one
        certifies the gain of the nested operator as well; None if that does not happen."""
        member, values = self.nominal(), nested.to_canonical(stalled)
        out = np.empty_like(values)
        for _ in range(ROUNDS):
            member = self.answer(member, values)
            solved = self.solve(member, values, limits, None)
            if solved.status in (Status.INTERRUPTED, Status.TIME_LIMIT):
                raise KeyboardInterrupt if solved.status is Status.INTERRUPTED else TimeUp
            if solved.status is Status.MULTICHAIN:
                return None
            values = solved.h
            h = nested.to_internal(values)
            nested.sweep(h, out)
            residual = residual_of(nested, h, out)
            if residual.upper - residual.lower <= limits.tolerance:
                return iteration.PolicySolution(bounds=(residual.lower, residual.upper), h=h)
        return None


def _sum_by_class(classes: list[NDArray[np.int64]], worth: list[Vector]) -> None:
    """Replace the worth of alike rows, which move together, by their sum, in place."""
    totals: dict[int, Vector] = {}
    for numbers, table in zip(classes, worth, strict=True):
        for number, row in zip(numbers.tolist(), table, strict=True):
            totals[number] = totals[number] + row if number in totals else row.copy()
    for numbers, table in zip(classes, worth, strict=True):
        for place, number in enumerate(numbers.tolist()):
            table[place] = totals[number]


def pair_rows(structure: Structure, scope: tuple[int, ...]) -> NDArray[np.int64]:
    """Return the row of a table over the scope for each pair (s, a): [S * A], actions fastest."""
    m = structure.m
    place = dict(zip(scope, strides(structure.scope_sizes(scope)), strict=True))
    of_state = all_assignments(structure.state_sizes) @ np.array(
        [place.get(j, 0) for j in range(m)], dtype=np.int64
    )
    of_action = all_assignments(structure.action_sizes) @ np.array(
        [place.get(m + j, 0) for j in range(len(structure.action_sizes))], dtype=np.int64
    )
    rows: NDArray[np.int64] = (of_state[:, None] + of_action[None, :]).reshape(-1)
    return rows


def solve_intervals(
    settings: Exact,
    model: FactoredMDP,
    *,
    describe: bool,
    progress: Progress | None,
    started: float,
) -> Plan:
    """Return the plan for the worst case (intervals=robust) or the best case (optimistic)."""
    worst = settings.intervals == "robust"
    structure = model.structure
    tables = tables_of(model, worst=worst)
    limits = limits_of(settings, structure, started)
    try:
        backup = backup_for(
            tables,
            worst=worst,
            memory_limit=settings.memory_limit,
            threads=settings.threads,
            deadline=limits.deadline,
        )
    except (TimeUp, KeyboardInterrupt) as error:
        return unprepared(settings, structure, error, started)
    nature = _Nature(settings, model, tables, worst, limits.deadline)
    nested = _solve_nested(nature, backup, limits, progress)
    members = _solve_members(nature, nested, limits, progress)
    lower, upper = (nested.lower, members.end) if worst else (members.end, nested.upper)
    bias = nested.h if describe and nested.state.status is Status.CONVERGED else None
    return Plan(
        planner=settings.name,
        status=_joint_status(members, upper - lower, limits),
        # Without a solved member the policy of the nested operator is as good as any.
        policy=nested.policy if worst or members.policy is None else members.policy,
        gain=middle_of_bounds(lower, upper, structure, limits.tolerance),
        gain_lower=lower,
        gain_upper=upper,
        span=None if bias is None else span(bias),
        factored_spans=None if bias is None else factored_spans(bias, structure.state_sizes),
        iterations=members.sweeps,
        seconds=time.perf_counter() - started,
        ties=settings.ties,
        bias=bias,
        stats={
            "damping": nested.state.damping,
            "intervals": settings.intervals,
            "members": members.count,
            "nested_bounds": (nested.state.lower, nested.state.upper),
            **engine_stats(backup),
        },
        bounds_best_gain=False,
    )


@dataclass(frozen=True, eq=False)
class _NestedEnd:
    """The plan of the nested operator, and the bounds that follow for the set of models."""

    state: iteration.State
    policy: TablePolicy | None
    lower: float
    upper: float
    h: Vector
    """[S] in C order, at least 0."""


def _solve_nested(
    nature: _Nature, backup: Backup, limits: iteration.Limits, progress: Progress | None
) -> _NestedEnd:
    settings, structure, worst = nature.settings, nature.structure, nature.worst
    share = replace(limits, tolerance=_SHARE * limits.tolerance)
    state = iteration.solve(
        iteration.OptimalOperator(backup),
        np.zeros(backup.n_states),
        # If it stalls for good, half of the sweeps are left for the members.
        replace(share, max_sweeps=-(-limits.max_sweeps // 2)),
        policy_iteration=lambda stalled: nature.policy_iteration(backup, stalled, share),
        progress=progress,
    )
    policy, image = policy_in_time(
        settings, backup, structure, state, state.h, limits, settings.tie_breaking
    )
    rewards = nature.tables.rewards
    lower = float(sum(means.min() for means in rewards))
    if not worst:
        lower = max(lower, state.lower)
    elif image is not None:
        lower = max(lower, policy_lower_bound(backup, state.h, image))
    upper = min(float(sum(means.max() for means in rewards)), state.upper)
    h = backup.to_canonical(state.h)
    h -= h.min()
    return _NestedEnd(state, policy, lower, upper, h)


@dataclass(frozen=True, eq=False)
class _MembersEnd:
    """The other end of the bounds, from single members of the set."""

    end: float
    """At least the worst case, or at most the best."""
    policy: TablePolicy | None
    count: int
    sweeps: int
    """Of the nested operator and of all members."""
    status: Status


def _solve_members(
    nature: _Nature, nested: _NestedEnd, limits: iteration.Limits, progress: Progress | None
) -> _MembersEnd:
    """Plan for members of the set, each nature's answer to the last, until the two ends meet.

    The last one that is tried is the nominal model.
    """
    worst, rewards = nature.worst, nature.tables.rewards
    share = replace(limits, tolerance=_SHARE * limits.tolerance)
    if worst:
        near, end = nested.lower, float(sum(means.max() for means in rewards))
    else:
        near, end = nested.upper, float(sum(means.min() for means in rewards))
    policy: TablePolicy | None = None
    status, sweeps, count = nested.state.status, nested.state.sweeps, 0
    member, values = nature.nominal(), nested.h
    try:
        while status in _GOING_ON and count <= ROUNDS and sweeps < limits.max_sweeps:
            member = nature.nominal() if count == ROUNDS else nature.answer(member, values)
            left = replace(share, max_sweeps=limits.max_sweeps - sweeps)
            solved = nature.solve(member, values, left, progress)
            sweeps, count, values = sweeps + solved.sweeps, count + 1, solved.h
            if worst:
                end = min(end, solved.upper)
            elif policy is None or solved.lower > end:
                end, policy = max(end, solved.lower), solved.policy
            if solved.status in (Status.INTERRUPTED, Status.TIME_LIMIT):
                status = solved.status
            if abs(end - near) <= limits.tolerance:
                break
    except TimeUp:
        status = Status.TIME_LIMIT
    except KeyboardInterrupt:
        status = Status.INTERRUPTED
    return _MembersEnd(end, policy, count, sweeps, status)


def _joint_status(members: _MembersEnd, gap: float, limits: iteration.Limits) -> Status:
    if gap <= limits.tolerance:
        return Status.CONVERGED
    if members.status is not Status.CONVERGED:
        return members.status
    stopped = members.sweeps >= limits.max_sweeps
    return Status.ITERATION_LIMIT if stopped else Status.RELAXATION_LIMIT
