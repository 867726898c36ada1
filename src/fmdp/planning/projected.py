"""Value iteration with a mitigated backup and a projection: PMEVI (Boone & Zhang 2024).

    (L u)(s) = max_a  R(s, a) + min( max over p in the set of p u,  p-hat u + beta(s, a) )
    (G v)(s) = min over s' of  v(s') + d(s, s')           T = G o L

The set is a ball around every row, p-hat its centre, beta >= 0 a bound on what chance can have done
to p-hat for one function u = h* (a Bernstein bound, without the size of the state space), and d
bounds differences of that function: h*(s) - h*(s') <= d(s, s'). Closed under the triangle
inequality, with d(s, s) = 0 (and d may be negative), G v is the largest function within d that is
nowhere above v. Both maps are monotone and commute with constants, and so is T: there is one number
lambda with T u = u + lambda, min(T v - v) <= lambda <= max(T v - v) for every v, and

    lambda = max { min(L u - u) : u within d }  >=  lambda*

as soon as the truth is in the set, p h* <= p-hat h* + beta in every row, and h* is within d
(docs/theory-span.md, section 8). Found as planner `span` finds its own, by damped iteration; the
policy is greedy for L. Not a planner by name: beta and d are a learner's, and come with every call.

Cost of a sweep: two backups of the engine, each with all actions, and S^2 additions.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmdp.elimination.backup import Backup, TimeUp, advance, iterate_by_sweeps
from fmdp.elimination.kernels import Pace
from fmdp.elimination.ties import Ties
from fmdp.errors import InvalidParameter
from fmdp.model import FactoredMDP, OptimisticTables, Structure
from fmdp.planning.exact import iteration
from fmdp.planning.exact.planner import Exact, PreparedExact
from fmdp.planning.limits import tolerance_of
from fmdp.planning.plan import Plan
from fmdp.planning.policies.policy import TablePolicy
from fmdp.planning.prepared import engine_stats, limits_of, unprepared, with_tolerance
from fmdp.planning.span import DAMPINGS
from fmdp.planning.spans import span
from fmdp.planning.status import Progress, Tables, middle_of_bounds

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]

_EMPTY = 1e-9
"""How far below 0 a way from a state to itself may be, in units of the largest distance, before it
says that no function is within the distances."""


class Projected(Exact):
    """The exact planner under a mitigation and distances that a learner brings with every call."""

    name = "projected"

    def prepare(self, structure: Structure) -> PreparedProjected:
        return PreparedProjected(self, structure)


def closed(distances: Matrix) -> Matrix | None:
    """The shortest ways: the largest d with d(s, s'') <= d(s, s') + d(s', s'') and d(s, s) = 0 that
    is nowhere above the given one, which has the same functions within it; None where it has none,
    because a way from a state to itself is negative."""
    shortest = np.array(distances, dtype=np.float64)
    np.fill_diagonal(shortest, np.minimum(0.0, np.diagonal(shortest)))
    for through in range(len(shortest)):
        np.minimum(shortest, shortest[:, through, None] + shortest[None, through], out=shortest)
    if float(np.diagonal(shortest).min()) < -_EMPTY * float(np.abs(distances).max()):
        return None
    np.fill_diagonal(shortest, 0.0)
    return shortest


def projection(v: Vector, distances: Matrix) -> Vector:
    """The largest function within closed distances that is nowhere above v."""
    below: Vector = (v[None] + distances).min(axis=1)
    return below


def mitigated(optimistic: Matrix, estimated: Matrix, mitigation: Matrix) -> Matrix:
    """min(max p u, p-hat u + beta), rewards in both: [S, A]."""
    # Where beta is infinite it says nothing, of actions that are not allowed (-inf) neither.
    above = np.full(optimistic.shape, np.inf)
    np.add(estimated, mitigation, out=above, where=np.isfinite(mitigation))
    values: Matrix = np.minimum(optimistic, above)
    return values


class _Operator:
    """T = G o L, as `iteration.solve` wants an operator; one factor has one order of the states."""

    def __init__(
        self, backup: Backup, estimated: Backup, mitigation: Matrix, distances: Matrix
    ) -> None:
        self.backup = backup
        self.estimated = estimated
        self.mitigation = mitigation
        self.distances = distances
        self.extremes = np.zeros(3)
        self.roundings = max(backup.roundings, estimated.roundings) + 2

    def values(self, h: Vector) -> Matrix:
        """What every action is worth under L: [S, A]; -inf where it is not allowed."""
        best, mean = self.backup.action_values(h), self.estimated.action_values(h)
        return mitigated(best, mean, self.mitigation)

    def sweep(self, h: Vector, out: Vector) -> None:
        out[:] = projection(self.values(h).max(axis=1), self.distances)

    def iterate(self, h: Vector, new: Vector, scratch: Vector, pace: Pace) -> int:
        return iterate_by_sweeps(self.sweep, h, new, scratch, self.extremes, pace)

    def advance(self, h: Vector, new: Vector, pace: Pace) -> None:
        advance(h, new, self.extremes, pace)


class PreparedProjected(PreparedExact):
    """The planner of one structure with one factor; keeps u between calls."""

    def solve(
        self,
        tables: Tables,
        *,
        mitigation: Matrix | None = None,
        distances: Matrix | None = None,
        describe: bool = False,
        marginals: bool = False,
        ties: Ties | None = None,
        tolerance: float | None = None,
        progress: Progress | None = None,
    ) -> Plan:
        """Plan with balls, beta (`mitigation`, [S, A], may be infinite) and d (`distances`, [S, S],
        closed and finite); without these as the exact planner does."""
        if mitigation is None or distances is None:
            return super().solve(
                tables,
                describe=describe,
                marginals=marginals,
                ties=ties,
                tolerance=tolerance,
                progress=progress,
            )
        ties = self.settings.tie_breaking if ties is None else ties
        settings = with_tolerance(self.settings, tolerance)
        structure = self.structure
        if structure.m != 1 or not isinstance(tables, OptimisticTables) or tables.centre is None:
            raise InvalidParameter(
                f"planner {settings.name} takes balls around the rows of one factor; got "
                f"{structure.m} factors and {type(tables).__name__}"
            )
        started = time.perf_counter()
        limits = limits_of(settings, structure, started)
        estimate = FactoredMDP.trusted(structure, tables.centre, tables.rewards)
        try:
            _, estimated, _, _ = self._load(estimate, limits.deadline)
            _, backup, h, _ = self._load(tables, limits.deadline)
        except (TimeUp, KeyboardInterrupt) as error:
            return unprepared(settings, structure, error, started)
        operator = _Operator(backup, estimated, mitigation, distances)
        h[:] = projection(h, distances)  # a start from other distances may be outside these
        ending = iteration.solve(
            operator, h, limits, cold=False, dampings=DAMPINGS, progress=progress
        )
        h[:] = ending.h
        best, mean = backup.action_values(h), estimated.action_values(h)
        values = mitigated(best, mean, mitigation)
        slack = backup.tie_slack(
            float(np.abs(h).max()), tolerance_of(settings.tolerance, structure)
        )
        actions = ties.choose(values, slack)
        value = values.max(axis=1)
        above = value - projection(value, distances)
        stats: dict[str, Any] = {
            "damping": ending.damping,
            "projected_states": int(np.count_nonzero(above > limits.tolerance)),
            "mitigated_rows": int(np.count_nonzero(values < best)),
            **engine_stats(backup),
        }
        bias = h - h.min() if describe else None
        return Plan(
            planner=settings.name,
            status=ending.status,
            policy=TablePolicy(
                structure.state_sizes, structure.action_sizes, actions, structure.naming
            ),
            gain=middle_of_bounds(ending.lower, ending.upper, structure, limits.tolerance),
            gain_lower=ending.lower,
            gain_upper=ending.upper,
            span=None if bias is None else span(bias),
            iterations=ending.sweeps,
            seconds=time.perf_counter() - started,
            ties=ties.name,
            bias=bias,
            marginals=(h.copy(),) if marginals else None,
            stats=stats,
            bounds_best_gain=False,
        )
