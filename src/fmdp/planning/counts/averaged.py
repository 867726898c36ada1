"""Plans for almost exchangeable parts: on the counts of the averaged model, with a certified error.

The plan is that of the model in which all parts have the mean of their tables (model/averaging.py).
Let h be its bias on counts, rho(s, a) = R + P h - h in the given model and rho' in the averaged
one. With e_low <= rho - rho' <= e_high for all states and actions (`Averaged.error`),

    gain of the policy in the given model >= min_s rho(s, policy(s)) >= min_s rho'(...) + e_low
    best gain in the given model          <= max_{s, a} rho(s, a)    <= max rho' + e_high

by the theorem behind every bound of the exact planner (exact/bounds.py), from every state.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from fmdp.errors import InvalidParameter
from fmdp.model import FactoredMDP
from fmdp.model.averaging import almost_exchangeable, averaged
from fmdp.planning.counts.backup import CountBackup
from fmdp.planning.counts.policy_chain import moves_in, quotient_for
from fmdp.planning.counts.spans import factored_spans_on_counts
from fmdp.planning.exact.bounds import average_bounds
from fmdp.planning.limits import tolerance_of
from fmdp.planning.plan import Plan, Planner
from fmdp.planning.policies.counts import CountPolicy
from fmdp.planning.status import Progress, Status, middle_of_bounds

_OUTWARDS = 1.0 + 1e-12
"""Factor on the changes of h, far above the rounding of a difference."""


def plan_averaged(
    planner: Planner,
    model: FactoredMDP,
    groups: Sequence[Sequence[str]] | None,
    progress: Progress | None,
) -> Plan:
    """Return a plan for the given model from the counts of the averaged one.

    `planner` plans for the averaged model, whose parts are exchangeable; it has the average
    criterion. Raise InvalidParameter if no parts have matching scopes, or more than their tables
    differs.
    """
    started = time.perf_counter()
    s = model.structure
    mean = averaged(model, almost_exchangeable(model, groups))
    plan = planner.plan(mean.model, progress=progress)
    h = plan.stats.get("bias_on_counts")
    if h is None or not isinstance(plan.policy, CountPolicy):
        reason = plan.stats.get("planner_reason") or plan.status.message
        raise InvalidParameter(f"the averaged model has no plan on counts: {reason}")
    quotient = quotient_for(mean.model, plan.policy.moves)
    moves = moves_in(quotient, plan.policy)
    low, high = average_bounds(CountBackup(quotient), h, moves)
    changes = [_OUTWARDS * change for change in factored_spans_on_counts(h, quotient.space)]
    error = mean.error(changes)
    least, most = s.reward_bounds
    assert low is not None  # there is a policy
    lower, upper = max(low + error[0], least), min(high + error[1], most)
    tolerance = tolerance_of(getattr(planner, "tolerance", None), s)
    status = plan.status
    if status is Status.CONVERGED and upper - lower > tolerance:
        status = Status.RELAXATION_LIMIT
    policy = CountPolicy(plan.policy.moves, plan.policy.actions, s.naming)
    kept = {key: plan.stats[key] for key in ("counts", "moves", "groups")}
    return Plan(
        planner=plan.planner,
        status=status,
        policy=policy,
        gain=middle_of_bounds(lower, upper, s, tolerance),
        gain_lower=lower,
        gain_upper=upper,
        iterations=plan.iterations,
        seconds=time.perf_counter() - started,
        ties=plan.ties,
        stats={**kept, "average_gain_bounds": plan.gain_bounds, "average_error": error},
        model=model,
        settings=planner,
    )
