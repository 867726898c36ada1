"""Plans under limits on long-run averages, by the exact planner."""

from __future__ import annotations

import time
from typing import Any

from fmdp._base.deadlines import Deadline
from fmdp.errors import InvalidParameter
from fmdp.model import FactoredMDP
from fmdp.planning.constrained.averages import Averages
from fmdp.planning.constrained.lagrangian import SLACK, Search, Stopped
from fmdp.planning.constrained.limits import Limit
from fmdp.planning.constrained.mixing import improve_by_mixing
from fmdp.planning.exact.planner import Exact
from fmdp.planning.limits import tolerance_of
from fmdp.planning.plan import Plan
from fmdp.planning.policies.archive import StoredPolicy
from fmdp.planning.status import Progress, Status


def refuse_other_planners(planner: object, what: str) -> Exact:
    """Return the exact planner for the average reward; raise InvalidParameter for others."""
    if not isinstance(planner, Exact):
        name = getattr(planner, "name", planner)
        raise InvalidParameter(f"{what} the exact planner; got planner {name}")
    for setting, needed in (("criterion", "average"), ("intervals", "nominal")):
        value = getattr(planner, setting)
        if value != needed:
            raise InvalidParameter(f"{what} {setting}={needed}; got {setting}={value}")
    return planner


def plan_with_limits(
    model: FactoredMDP,
    limits: tuple[Limit, ...],
    planner: object,
    progress: Progress | None = None,
) -> Plan:
    """Return the best policy whose long-run averages satisfy the limits, with certified bounds.

    `gain`, `gain_lower` and `policy_gain` are those of the policy, `gain_upper` is the least
    certified value of the dual. Raise Infeasible if no policy satisfies the limits.
    """
    started = time.perf_counter()
    exact = refuse_other_planners(planner, "limits need")
    averages = Averages(model, [limit.name for limit in limits])
    tolerance = tolerance_of(exact.tolerance, model.structure)
    deadline = Deadline.after(exact.max_seconds, started)
    search = Search(averages, limits, exact, tolerance, deadline, progress)
    status = Status.CONVERGED
    try:
        search.run()
        if search.best is None or search.upper - search.best.reward.lower > tolerance:
            improve_by_mixing(search)
    except Stopped as stop:
        status = stop.status
    except KeyboardInterrupt:
        status = Status.INTERRUPTED
    return _report(search, status, exact, model, started)


def _report(
    search: Search, status: Status, exact: Exact, model: FactoredMDP, started: float
) -> Plan:
    best = search.best
    lower = None if best is None else best.reward.lower
    closed = lower is not None and search.upper - lower <= search.tolerance
    if closed and status is not Status.INTERRUPTED:
        status = Status.CONVERGED
    elif status is Status.CONVERGED:
        status = Status.RELAXATION_LIMIT
    policy: Any = None if best is None else best.policy
    if isinstance(policy, StoredPolicy):
        policy.take_names(model.structure.naming)
        policy.take_constraints(model.structure.constraints)
    stats: dict[str, Any] = {"limits": limit_records(search), "lagrangian_plans": search.plans}
    if best is not None:
        stats["policy_gain_bounds"] = (best.reward.lower, best.reward.upper)
    return Plan(
        exact.name,
        status,
        policy=policy,
        gain=None if best is None else best.reward.middle,
        gain_lower=lower,
        gain_upper=float(search.upper) if search.upper < float("inf") else None,
        iterations=search.plans,
        seconds=time.perf_counter() - started,
        policy_gain=lower,
        ties=exact.ties,
        stats=stats,
        model=model,
        settings=exact,
    )


def limit_records(search: Search) -> list[dict[str, Any]]:
    """Return what is known about each limit, as `Plan.stats["limits"]` has it."""
    records = []
    for k, limit in enumerate(search.limits):
        unit = float(search.units[k])
        level = None if search.best is None else search.best.levels[k]
        ends = None if level is None else (level.lower * unit, level.upper * unit)
        if ends is not None and limit.sign < 0:
            ends = (-ends[1], -ends[0])
        price = float(search.prices[k]) / unit
        met = level is not None and level.lower >= search.bounds[k] - 100 * SLACK
        records.append(
            {
                "name": limit.name,
                "sense": limit.sense,
                "value": limit.value,
                "achieved": None if ends is None else 0.5 * (ends[0] + ends[1]),
                "achieved_lower": None if ends is None else ends[0],
                "achieved_upper": None if ends is None else ends[1],
                "price": price,
                "binding": bool(met and price > 0.0),
            }
        )
    return records
