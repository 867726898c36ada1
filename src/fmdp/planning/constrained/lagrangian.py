"""The dual of a plan under limits: prices, certified upper bounds, and the policies behind them.

Limit k is c_k <= b_k, in units of the range of c_k; a lower limit is that of -c_k. For prices
mu >= 0, a policy that satisfies the limits gains at most

    D(mu) = max over policies of gain(r - sum_k mu_k c_k) + sum_k mu_k b_k,

since its own value of the right-hand side is its gain plus what its slack is worth. The exact
planner certifies D(mu). Its policy j, evaluated, is a cutting plane below D:
r_j + sum_k mu_k (b_k - c_jk). Kelley's method plans at the minimum of the largest plane until
D is within the tolerance of it there. With one limit this is the dichotomic search: the minimum is
where two planes cross.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmdp._base.deadlines import Deadline
from fmdp.errors import Infeasible
from fmdp.model.quantities import TOTAL
from fmdp.planning.constrained.averages import Average, Averages
from fmdp.planning.constrained.limits import Limit
from fmdp.planning.exact.planner import Exact
from fmdp.planning.policies.mixed import MixedPolicy
from fmdp.planning.policies.policy import Policy
from fmdp.planning.status import Progress, Status

Floats = NDArray[np.float64]

SLACK = 1e-9
"""How far an average may exceed its limit, relative to the range of the quantity: rounding."""
_MOST_ROUNDS = 200
"""Most plans of one search; a search of one limit takes about ten."""
_LARGEST_PRICE = 1e7
"""Largest price, in ranges of the reward per range of the quantity."""


class Stopped(Exception):
    """Time is up, or Ctrl-C: what is known so far is the result."""

    def __init__(self, status: Status) -> None:
        super().__init__(status.value)
        self.status = status


@dataclass(frozen=True, eq=False)
class Column:
    """A policy and its averages; those of the limits are in units of their ranges."""

    policy: Policy | MixedPolicy
    reward: Average
    levels: tuple[Average, ...]

    def line(self, bounds: Floats) -> Floats:
        """Return (b_1 - c_1, ..., b_K - c_K, r), the coefficients of its cutting plane."""
        slack = [b - level.middle for b, level in zip(bounds, self.levels, strict=True)]
        return np.array([*slack, self.reward.middle])


class Search:
    """The Lagrangian of one model and its limits, and what is known about it so far."""

    def __init__(
        self,
        averages: Averages,
        limits: Sequence[Limit],
        planner: Exact,
        tolerance: float,
        deadline: Deadline,
        progress: Progress | None,
    ) -> None:
        self.averages = averages
        self.limits = limits
        self.tolerance = tolerance
        self.deadline = deadline
        self._planner = planner
        self._progress = progress
        weights = [averages.weights(limit.name) for limit in limits]
        self.units = np.array([averages.unit(w) for w in weights])
        signs = np.array([limit.sign for limit in limits])
        self.bounds = signs * [limit.value for limit in limits] / self.units
        self.terms = [s * w / u for s, w, u in zip(signs, weights, self.units, strict=True)]
        self.reward = averages.weights(TOTAL)
        self.upper = np.inf
        """The least certified D(mu) so far."""
        self.prices = np.zeros(len(limits))
        self.columns: list[Column] = []
        self.best: Column | None = None
        """The best policy that satisfies the limits."""
        self.plans = 0

    # ---- policies ----------------------------------------------------------------------------

    def evaluated(self, policy: Policy | MixedPolicy) -> Column:
        """Return the averages of a policy, which may become the best one."""
        if self.deadline.expired():
            raise Stopped(Status.TIME_LIMIT)
        try:
            levels = [self._average(policy, term, 0.1 * SLACK) for term in self.terms]
            reward = self._average(policy, self.reward, 0.1 * self.tolerance)
        except KeyboardInterrupt:
            raise Stopped(Status.INTERRUPTED) from None
        column = Column(policy, reward, tuple(levels))
        better = self.best is None or reward.lower > self.best.reward.lower
        if better and self.satisfied(column):
            self.best = column
        return column

    def _average(self, policy: Policy | MixedPolicy, weights: Floats, tolerance: float) -> Average:
        return self.averages.of_policy(
            policy, weights, tolerance, self.deadline, self._planner.memory_limit
        )

    def satisfied(self, column: Column) -> bool:
        """Return whether a policy is certain to satisfy all limits, up to `SLACK`."""
        pairs = zip(column.levels, self.bounds, strict=True)
        return all(level.upper <= bound + SLACK for level, bound in pairs)

    def plan_at(self, prices: Floats, reward: float = 1.0) -> tuple[float, Column]:
        """Return the certified maximum of the Lagrangian, and the policy of the plan."""
        weights = reward * self.reward
        for price, term in zip(prices, self.terms, strict=True):
            weights = weights - price * term
        remaining = self.deadline.remaining()
        if remaining == 0.0:
            raise Stopped(Status.TIME_LIMIT)
        tolerance = 0.25 * self.tolerance if reward else 0.1 * SLACK
        planner = replace(self._planner, tolerance=tolerance, max_seconds=remaining)
        plan = planner.plan(self.averages.weighted(weights), progress=self._progress)
        self.plans += 1
        within = plan.stats.get("gain_from_initial_state_bounds") or plan.gain_bounds
        assert within[1] is not None
        offset = float(prices @ self.bounds)
        # The sum is rounded: two units in the last place of its terms are added.
        rounding = 4e-16 * (abs(within[1]) + abs(offset) + float(np.abs(prices) @ abs(self.bounds)))
        upper = float(within[1]) + offset + rounding
        if reward and upper < self.upper:
            self.upper, self.prices = upper, prices
        if plan.status in (Status.TIME_LIMIT, Status.INTERRUPTED) or plan.policy is None:
            raise Stopped(plan.status)
        return upper, self.evaluated(plan.policy)

    # ---- the search --------------------------------------------------------------------------

    def run(self) -> None:
        """Find the prices; the policies at their cutting planes are in `columns`.

        Raise Infeasible if no policy satisfies the limits, and Stopped.
        """
        _, column = self.plan_at(np.zeros(len(self.limits)))
        self.columns.append(column)
        if self.satisfied(column):
            return
        self._find_feasible()
        size = self.averages.unit(self.reward)
        for _ in range(_MOST_ROUNDS):
            lines = np.array([column.line(self.bounds) for column in self.columns])
            prices, least, _ = lowest_point(lines, _LARGEST_PRICE * size)
            upper, column = self.plan_at(prices)
            value = float(column.line(self.bounds) @ [*prices, 1.0])
            if upper - least <= 0.25 * self.tolerance or value <= least + 1e-13 * size:
                return
            self.columns.append(column)

    def _find_feasible(self) -> None:
        """Add policies until a mixture of all satisfies the limits; raise Infeasible."""
        for _ in range(_MOST_ROUNDS):
            lines = np.array([column.line(self.bounds) for column in self.columns])
            lines[:, -1] = 0.0
            shares, least, _ = lowest_point(lines, 1.0, shares=True)
            if least >= -SLACK:
                return
            upper, column = self.plan_at(shares, reward=0.0)
            if upper < -SLACK:
                raise Infeasible(self._refusal(shares, upper, column))
            if float(column.line(self.bounds)[:-1] @ shares) <= least + 0.1 * SLACK:
                return
            self.columns.append(column)

    def _refusal(self, shares: Floats, upper: float, column: Column) -> str:
        used = np.flatnonzero(shares > 1e-9)
        if len(used) > 1:
            names = ", ".join(str(limit) for limit in self.limits)
            return (
                f"no policy satisfies the limits {names} together: with weights "
                f"{', '.join(f'{share:.4g}' for share in shares)} they are missed by at least "
                f"{-upper:.4g} of their ranges (certified)"
            )
        k = int(used[0])
        limit, unit = self.limits[k], self.units[k]
        extreme = "smallest" if limit.sign > 0 else "largest"
        certified = limit.sign * (self.bounds[k] - upper / shares[k]) * unit
        achieved = limit.sign * column.levels[k].middle * unit
        side = "least" if limit.sign > 0 else "most"
        return (
            f"no policy satisfies the limit {limit}: the {extreme} long-run average of "
            f"{limit.name} is {achieved:.9g} (certified: at {side} {certified:.9g})"
        )

    def shares(self) -> Floats:
        """Return the weights of the columns whose mixture attains the minimum of their planes."""
        lines = np.array([column.line(self.bounds) for column in self.columns])
        size = self.averages.unit(self.reward)
        return lowest_point(lines, _LARGEST_PRICE * size)[2]


def lowest_point(
    lines: Floats, most: float, *, shares: bool = False
) -> tuple[Floats, float, Floats]:
    """Return the prices in [0, most] at which the largest plane is lowest, its value, and weights.

    `lines` is [columns, K + 1]: a plane is the product with (prices, 1). With `shares` the prices
    sum to 1. The weights of the planes sum to 1.
    """
    from scipy.optimize import linprog

    n_prices = lines.shape[1] - 1
    # Where the lowest point is not unique, the lowest prices are taken.
    objective = np.full(n_prices + 1, 1e-10)
    objective[-1] = 1.0
    rows = np.hstack([lines[:, :-1], -np.ones((len(lines), 1))])
    total: dict[str, Any] = {}
    if shares:
        total = {"A_eq": np.array([[1.0] * n_prices + [0.0]]), "b_eq": [1.0]}
    result = linprog(
        objective,
        A_ub=rows,
        b_ub=-lines[:, -1],
        bounds=[(0.0, most)] * n_prices + [(None, None)],
        method="highs-ds",
        **total,
    )
    if result.x is None:
        raise Stopped(Status.PRECISION_LIMIT)
    prices = np.clip(result.x[:-1], 0.0, None)
    value = float((lines @ [*prices, 1.0]).max())
    return prices, value, np.clip(-result.ineqlin.marginals, 0.0, None)
