"""Planning for a model with intervals: the worst case and the best case over all models inside.

A model with intervals is a set of models (Givan, Leach & Dean 2000), rows of a factor between two
ends, means between two ends.  A policy has a guarantee, the least that it gains in any of them:

    robust      max over policies  of the min over models of the gain
    optimistic  max over policies  of the max over models of the gain

One end comes from the nested operator (elimination/backup.py), in which nature chooses the row of a
factor while its variable is eliminated, and may look at the current state and at what is not yet
eliminated.  She can do no less than in any model of the set, stationary or changing with time, so
min(N h - h) is at most what the greedy policy gains in every one of them.  The other end comes from
one member of the set: max-min is at most the best gain of any member, max-max at least.  The member
is what nature would choose if she had to choose once for every row: against the values of the last
plan, row by row, and again against those of the member that comes out (docs/exact.md has the
proofs).

Where the two ends do not meet, the status is `relaxation_limit`, and both hold.  They do meet where
there is one variable and a row is used in one state alone (a flat model: Givan's), or where values
are sums over variables and no class of alike rows is shared between factors.

Cost: value iteration twice or a few times; a round of the adversary takes sum_i |S_i| sweeps.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fmdp.elimination import kernels
from fmdp.elimination.backup import Backup, TimeUp, backup_for, backup_of, check_clock
from fmdp.elimination.rounding import rounding_allowance
from fmdp.model import FactoredMDP, OptimisticTables, Structure
from fmdp.model.spaces import all_assignments, strides
from fmdp.planning.exact import iteration
from fmdp.planning.exact.finish import Finish
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
"""Members that are tried, at most."""
PAIRS = 1 << 22
"""States x joint actions up to which nature looks at every pair; above, at averages of h."""
_SHARE = 0.25  # of the tolerance, for each of the two ends
_GOING_ON = (Status.CONVERGED, Status.PRECISION_LIMIT, Status.ITERATION_LIMIT)


def poured(lower: Vector, upper: Vector, worth: Vector, *, worst: bool) -> Vector:
    """Rows of a box that are worth least (most): the free mass poured in the order of `worth`.

    All [rows, values]; each value takes up to its upper end.
    """
    order = np.argsort(worth if worst else -worth, axis=1, kind="stable")
    room = np.take_along_axis(upper - lower, order, axis=1)
    free = np.maximum(1.0 - lower.sum(axis=1, keepdims=True), 0.0)
    before = np.cumsum(room, axis=1) - room
    taken = np.clip(free - before, 0.0, room)
    rows = lower.copy()
    np.put_along_axis(rows, order, np.take_along_axis(lower, order, axis=1) + taken, axis=1)
    normal: Vector = rows / rows.sum(axis=1, keepdims=True)
    return normal


@dataclass(frozen=True, eq=False)
class _Solved:
    """The plan of one member: bounds, h in C order, and the policy that is sure of the lower."""

    lower: float
    upper: float
    h: Vector
    sweeps: int
    policy: TablePolicy | None
    status: Status


class _Nature:
    """Members of the set, one after the other, each the answer to the values of the last plan."""

    def __init__(
        self, settings: Exact, model: FactoredMDP, tables: OptimisticTables, worst: bool
    ) -> None:
        self.settings = settings
        self.model = model
        self.tables = tables
        self.worst = worst
        self.structure = model.structure
        self.backup: Backup | None = None
        self._rows: list[NDArray[np.int64]] | None = None

    def prepared(self, deadline: float | None) -> Backup:
        if self.backup is None:
            self.backup = backup_of(
                self.structure,
                memory_limit=self.settings.memory_limit,
                threads=self.settings.threads,
                deadline=deadline,
            )
        return self.backup

    def answer(self, member: FactoredMDP, h: Vector, deadline: float | None) -> FactoredMDP:
        """The member of the set whose rows are worst (best) against h, one at a time."""
        worth = self._worth(member, h, deadline)
        rows = []
        classes = [self.structure.transition_classes_of(i) for i in range(self.structure.m)]
        if self.structure.alike is not None:
            _sum_by_class(classes, worth)
        assert self.tables.upper is not None
        for lower, upper, own in zip(self.tables.lower, self.tables.upper, worth, strict=True):
            rows.append(poured(lower, upper, own, worst=self.worst))
        return self._member(rows)

    def nominal(self) -> FactoredMDP:
        return self._member(list(self.model.transitions))

    def _member(self, rows: list[Vector]) -> FactoredMDP:
        return FactoredMDP.trusted(self.structure, rows, self.tables.rewards)

    def _worth(self, member: FactoredMDP, h: Vector, deadline: float | None) -> list[Vector]:
        """For every row of every factor what its values are worth: [|X[Z_i]|, |S_i|] each.

        The sum over the pairs (s, a) that use the row of E[h(s') | s'_i = v], the other variables
        by the member's rows: what moves the backups of those pairs when the row is moved.
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
        backup = self.prepared(deadline)
        backup.deadline = deadline
        if self._rows is None:
            self._rows = [pair_rows(structure, scope) for scope in structure.transition_scopes]
        nothing = [np.zeros(rows) for rows in structure.reward_rows]
        found = []
        for i, size in enumerate(structure.state_sizes):
            worth = np.empty((structure.transition_rows[i], size))
            for v in range(size):
                check_clock(deadline)
                surely = np.zeros((structure.transition_rows[i], size))
                surely[:, v] = 1.0
                rows = [*member.transitions[:i], surely, *member.transitions[i + 1 :]]
                backup.load(FactoredMDP.trusted(structure, rows, nothing))
                values = backup.action_values(h)
                values[np.isneginf(values)] = 0.0  # forbidden pairs have no say
                worth[:, v] = np.bincount(
                    self._rows[i], weights=values.reshape(-1), minlength=len(worth)
                )
            found.append(worth)
        return found

    def solve(
        self,
        member: FactoredMDP,
        h: Vector,
        limits: iteration.Limits,
        progress: Progress | None,
    ) -> _Solved:
        """Plan for a member, from h on."""
        backup = self.prepared(limits.deadline)
        backup.load(member)
        settings, structure = self.settings, self.structure
        finish = Finish(
            member,
            backup,
            limits.tolerance,
            settings.tie_breaking,
            settings.memory_limit,
            limits.deadline,
        )
        start = backup.to_internal(h - h.min())
        outcome = iteration.solve(
            iteration.OptimalOperator(backup),
            start,
            limits,
            cold=False,
            rescue=finish,
            progress=progress,
        )
        lower, policy = outcome.lower, None
        if not self.worst:
            if finish.actions is not None and (
                outcome.rescued or outcome.status is Status.MULTICHAIN
            ):
                policy = TablePolicy(
                    structure.state_sizes,
                    structure.action_sizes,
                    finish.actions,
                    structure.naming,
                )
            else:
                policy, worth = policy_in_time(
                    settings, backup, structure, outcome, outcome.h, limits, settings.tie_breaking
                )
                lower = structure.reward_bounds[0]
                if worth is not None:
                    lower = max(lower, _least(backup, outcome.h, worth))
        return _Solved(
            lower,
            outcome.upper,
            backup.to_canonical(outcome.h),
            outcome.sweeps,
            policy,
            outcome.status,
        )

    def rescue(
        self, nested: Backup, stuck: Vector, limits: iteration.Limits
    ) -> iteration.Rescue | None:
        """Where the sweeps stand still: policy iteration in members, each nature's answer to the
        last, until an h comes out that is one for the nested operator too."""
        member, values = self.nominal(), nested.to_canonical(stuck)
        out = np.empty_like(values)
        for _ in range(ROUNDS):
            member = self.answer(member, values, limits.deadline)
            solved = self.solve(member, values, limits, None)
            if solved.status in (Status.INTERRUPTED, Status.TIME_LIMIT):
                raise KeyboardInterrupt if solved.status is Status.INTERRUPTED else TimeUp
            if solved.status is Status.MULTICHAIN:
                return None
            values = solved.h
            h = nested.to_internal(values)
            nested.sweep(h, out)
            kernels.residual(h, out, nested.extremes)
            size = float(nested.extremes[2]) + self.structure.reward_size
            slack = rounding_allowance(size, nested.roundings)
            low, high = float(nested.extremes[0]) - slack, float(nested.extremes[1]) + slack
            if high - low <= limits.tolerance:
                return iteration.Rescue(bounds=(low, high), h=h)
        return None


def _least(backup: Backup, h: Vector, worth: Vector) -> float:
    """What a policy is sure to gain whose one-step worth at h this is."""
    kernels.residual(h, worth, backup.extremes)
    size = float(backup.extremes[2]) + backup.structure.reward_size
    return float(backup.extremes[0]) - rounding_allowance(size, backup.roundings)


def _sum_by_class(classes: list[NDArray[np.int64]], worth: list[Vector]) -> None:
    """Rows of one class move together: what they are worth is summed, in place."""
    totals: dict[int, Vector] = {}
    for numbers, own in zip(classes, worth, strict=True):
        for number, row in zip(numbers.tolist(), own, strict=True):
            totals[number] = totals[number] + row if number in totals else row.copy()
    for numbers, own in zip(classes, worth, strict=True):
        for place, number in enumerate(numbers.tolist()):
            own[place] = totals[number]


def pair_rows(structure: Structure, scope: tuple[int, ...]) -> NDArray[np.int64]:
    """The row of a table over the scope that each pair (s, a) uses: [S * A], actions fastest."""
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
    """The worst case (intervals=robust) or the best case (optimistic) of a model with intervals."""
    worst = settings.intervals == "robust"
    structure = model.structure
    tables = tables_of(model, worst=worst)
    limits = limits_of(settings, structure, started)
    share = replace(limits, tolerance=_SHARE * limits.tolerance)
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
    nature = _Nature(settings, model, tables, worst)
    nested = iteration.solve(
        iteration.OptimalOperator(backup),
        np.zeros(backup.n_states),
        # Where it stands still for good, half of the sweeps are left for the members.
        replace(share, max_sweeps=-(-limits.max_sweeps // 2)),
        rescue=lambda stuck: nature.rescue(backup, stuck, share),
        progress=progress,
    )
    sweeps = nested.sweeps
    ties = settings.tie_breaking
    policy, worth = policy_in_time(settings, backup, structure, nested, nested.h, limits, ties)
    lowest = float(sum(means.min() for means in tables.rewards))
    highest = float(sum(means.max() for means in tables.rewards))
    lower = max(lowest, nested.lower) if not worst else lowest
    if worst and worth is not None:
        lower = max(lower, _least(backup, nested.h, worth))
    upper = min(highest, nested.upper)
    h = backup.to_canonical(nested.h)
    h -= h.min()
    status, members = nested.status, 0
    # The other end is that of the members: at least the worst case, at most the best.
    mine, other = (lower, highest) if worst else (upper, lowest)
    kept: TablePolicy | None = None
    member, values = nature.nominal(), h
    try:
        while status in _GOING_ON and members <= ROUNDS and sweeps < limits.max_sweeps:
            # The nominal model is the last one that is tried.
            at_rest = members == ROUNDS
            member = nature.nominal() if at_rest else nature.answer(member, values, limits.deadline)
            left = replace(share, max_sweeps=limits.max_sweeps - sweeps)
            solved = nature.solve(member, values, left, progress)
            sweeps, members, values = sweeps + solved.sweeps, members + 1, solved.h
            if worst:
                other = min(other, solved.upper)
            elif kept is None or solved.lower > other:
                other, kept = max(other, solved.lower), solved.policy
            if solved.status in (Status.INTERRUPTED, Status.TIME_LIMIT):
                status = solved.status
            if abs(other - mine) <= limits.tolerance:
                break
    except TimeUp:
        status = Status.TIME_LIMIT
    except KeyboardInterrupt:
        status = Status.INTERRUPTED
    lower, upper = (lower, other) if worst else (other, upper)
    if upper - lower <= limits.tolerance:
        status = Status.CONVERGED
    elif status is Status.CONVERGED:
        stopped = sweeps >= limits.max_sweeps
        status = Status.ITERATION_LIMIT if stopped else Status.RELAXATION_LIMIT
    solved_nested = nested.status is Status.CONVERGED
    bias = h if describe and solved_nested else None
    spans = None if bias is None else factored_spans(bias, structure.state_sizes)
    return Plan(
        planner=settings.name,
        status=status,
        # Where no member was solved, what any policy gains is all that is promised.
        policy=policy if worst or kept is None else kept,
        gain=middle_of_bounds(lower, upper, structure, limits.tolerance),
        gain_lower=lower,
        gain_upper=upper,
        span=None if bias is None else span(bias),
        factored_spans=spans,
        iterations=sweeps,
        seconds=time.perf_counter() - started,
        ties=settings.ties,
        bias=bias,
        stats={
            "damping": nested.damping,
            "intervals": settings.intervals,
            "members": members,
            "nested_bounds": (nested.lower, nested.upper),
            **engine_stats(backup),
        },
        bounds_best_gain=False,
    )
