"""Value iteration with a mitigated backup and a projection: PMEVI (Boone & Zhang 2024).

    (L u)(s) = max_a  R(s, a) + min( max over p in the set of p u,  p-hat u + beta(s, a) )
    (G v)(s) = min over s' of  v(s') + d(s, s')           T = G o L

The set is a ball around every row with centre p-hat. beta >= 0 bounds the estimation error of p-hat
for the single function u = h* (a Bernstein bound, without the size of the state space), and d
bounds differences of that function: h*(s) - h*(s') <= d(s, s'). If d is closed under the triangle
inequality and d(s, s) = 0 (d may be negative), then G v is the largest function within d that is
nowhere above v. L and G are monotone and commute with constants, and so does T. Hence there is one
number lambda with T u = u + lambda, min(T v - v) <= lambda <= max(T v - v) for every v, and

    lambda = max { min(L u - u) : u within d }  >=  lambda*

if the truth is in the set, p h* <= p-hat h* + beta in every row, and h* is within d
(docs/theory-span.md, section 8). The fixed point is computed by damped iteration, as in planner
`span`. The policy is greedy for L. The planner has no name of its own, since a learner passes beta
and d with every call.

Cost of a sweep: two backups of the engine, each with all actions, and S^2 additions.
"""

from __future__ import annotations

import time
from dataclasses import replace
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
"""How far below 0 the length of a cycle may be, relative to the largest distance, before it proves
that no function is within the distances; it allows for rounding."""


class Projected(Exact):
    """The exact planner with a mitigation and distances that a learner passes with every call."""

    name = "projected"

    def prepare(self, structure: Structure) -> PreparedProjected:
        return PreparedProjected(self, structure)


def closed(distances: Matrix) -> Matrix | None:
    """Return the shortest-path distances; None if there is a negative cycle.

    They are the largest d below the given one with d(s, s'') <= d(s, s') + d(s', s'') and
    d(s, s) = 0. The same functions are within both; none is if there is a negative cycle.
    """
    shortest = np.array(distances, dtype=np.float64)
    np.fill_diagonal(shortest, np.minimum(0.0, np.diagonal(shortest)))
    for through in range(len(shortest)):
        np.minimum(shortest, shortest[:, through, None] + shortest[None, through], out=shortest)
    if float(np.diagonal(shortest).min()) < -_EMPTY * float(np.abs(distances).max()):
        return None
    np.fill_diagonal(shortest, 0.0)
    return shortest


def projection(v: Vector, distances: Matrix) -> Vector:
    """Return the largest function within closed distances that is nowhere above v."""
    below: Vector = (v[None] + distances).min(axis=1)
    return below


def mitigated(optimistic: Matrix, estimated: Matrix, mitigation: Matrix) -> Matrix:
    """Return min(max p u, p-hat u + beta), both with rewards: [S, A]."""
    # An infinite beta must not be added to the -inf of a forbidden action.
    above = np.full(optimistic.shape, np.inf)
    np.add(estimated, mitigation, out=above, where=np.isfinite(mitigation))
    values: Matrix = np.minimum(optimistic, above)
    return values


class _Operator:
    """T = G o L as an operator for `iteration.solve`; with one factor all orders are C order."""

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
        """Return the value of every action under L: [S, A]; -inf if it is forbidden."""
        best, mean = self.backup.action_values(h), self.estimated.action_values(h)
        return mitigated(best, mean, self.mitigation)

    def sweep(self, h: Vector, out: Vector) -> None:
        out[:] = projection(self.values(h).max(axis=1), self.distances)

    def iterate(self, h: Vector, new: Vector, scratch: Vector, pace: Pace) -> int:
        return iterate_by_sweeps(self.sweep, h, new, scratch, self.extremes, pace)

    def advance(self, h: Vector, new: Vector, pace: Pace) -> None:
        advance(h, new, self.extremes, pace)


class PreparedProjected(PreparedExact):
    """The planner of one structure with one factor; u is kept between calls."""

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
        """Plan with balls, beta and d; without beta or d, as the exact planner.

        `mitigation` is beta [S, A] and may be infinite; `distances` is d [S, S], closed and finite.
        """
        if mitigation is None or distances is None:
            return super().solve(
                tables,
                describe=describe,
                marginals=marginals,
                ties=ties,
                tolerance=tolerance,
                progress=progress,
            )
        if (
            self.structure.m != 1
            or not isinstance(tables, OptimisticTables)
            or tables.centre is None
            or tables.distance != "l1"
        ):
            raise InvalidParameter(
                f"planner {self.settings.name} takes L1 balls around the rows of one factor; got "
                f"{self.structure.m} factors and {type(tables).__name__}"
            )
        ties = self.settings.tie_breaking if ties is None else ties
        settings = with_tolerance(self.settings, tolerance)
        plan = self._solve_projected(tables, mitigation, distances, settings, ties, progress)
        if plan.policy is None:
            return plan
        h = self._warm[settings.targets]
        bias = h - h.min() if describe else None
        return replace(
            plan,
            span=None if bias is None else span(bias),
            bias=bias,
            marginals=(h.copy(),) if marginals else None,
        )

    def _solve_projected(
        self,
        tables: OptimisticTables,
        mitigation: Matrix,
        distances: Matrix,
        settings: Exact,
        ties: Ties,
        progress: Progress | None,
    ) -> Plan:
        """Return the plan without a bias, and leave u in the warm vector of the tables."""
        assert tables.centre is not None
        structure = self.structure
        started = time.perf_counter()
        limits = limits_of(settings, structure, started)
        estimate = FactoredMDP.trusted(structure, tables.centre, tables.rewards)
        try:
            _, estimated, _, _ = self._load(estimate, limits.deadline)
            _, backup, h, _ = self._load(tables, limits.deadline)
        except (TimeUp, KeyboardInterrupt) as error:
            return unprepared(settings, structure, error, started)
        operator = _Operator(backup, estimated, mitigation, distances)
        h[:] = projection(h, distances)  # a start for other distances may exceed these
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
        return Plan(
            planner=settings.name,
            status=ending.status,
            policy=TablePolicy(
                structure.state_sizes, structure.action_sizes, actions, structure.naming
            ),
            gain=middle_of_bounds(ending.lower, ending.upper, structure, limits.tolerance),
            gain_lower=ending.lower,
            gain_upper=ending.upper,
            iterations=ending.sweeps,
            seconds=time.perf_counter() - started,
            ties=ties.name,
            stats=stats,
            bounds_best_gain=False,
        )
