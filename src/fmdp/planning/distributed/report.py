"""The plan that the ranks report together, made from the last state of the sweeps.

Like planning/exact/report.py, for vectors that no rank holds whole: the policy stays in parts, and
there is no bias.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmdp.planning.distributed.job import Job
from fmdp.planning.distributed.policy import PolicyParts
from fmdp.planning.exact.bounds import average_bounds, discounted_value, policy_lower_bound
from fmdp.planning.exact.planner import Exact
from fmdp.planning.exact.solver import State
from fmdp.planning.limits import GRACE_SECONDS
from fmdp.planning.plan import Plan
from fmdp.planning.policies.policy import smallest_unsigned
from fmdp.planning.prepared import engine_stats
from fmdp.planning.status import Status, middle_of_bounds

Vector = NDArray[np.float64]

_SWEEPS_OF_POLICY = 3.0
"""Sweeps whose time the policy takes: two to choose its actions, and a rest for the report."""


@dataclass(frozen=True, eq=False)
class PlanOverRanks:
    """A plan, the same on all ranks, and this rank's part of the policy."""

    plan: Plan
    """Its policy is None: no rank holds it whole."""
    policy: PolicyParts | None
    """None if planning ended before there was a policy."""


def plan_of(job: Job, status: Status, **fields: Any) -> Plan:
    """Return the plan of a job with these fields."""
    return Plan(
        planner=Exact.name,
        status=status,
        seconds=job.ranks.clock() - job.started,
        ties=job.settings.tie_breaking.name,
        model=job.model,
        settings=job.settings,
        **fields,
    )


def average_plan(job: Job, state: State) -> PlanOverRanks:
    """Return the plan for average reward."""
    structure, lower = job.structure, state.lower
    policy, image = _policy_in_time(job, state, state.h)
    if image is not None:
        # The chosen actions may be worth a tie's slack less than L h promises.
        lower = policy_lower_bound(job.backup, state.h, image)
        lower = max(lower, structure.reward_bounds[0])
    span = spans = None
    if state.status is Status.CONVERGED and (state.accelerated or state.unique):
        span, spans = _spans(job, state.h)
    plan = plan_of(
        job,
        state.status,
        gain=middle_of_bounds(lower, state.upper, structure, job.limits.tolerance),
        gain_lower=lower,
        gain_upper=state.upper,
        span=span,
        factored_spans=spans,
        iterations=state.sweeps,
        stats=statistics(job, state),
    )
    return PlanOverRanks(plan, policy)


def discounted_plan(job: Job, state: State) -> PlanOverRanks:
    """Return the plan under a discount."""
    policy, image = _policy_in_time(job, state, state.h * job.discount)
    fields: dict[str, Any] = {}
    objective: dict[str, Any] = {}
    if image is not None and np.isfinite(state.lower):
        value, mean, objective["objective_bounds"] = discounted_value(
            job.backup, image, job.discount, state.lower, state.upper, state.slack
        )
        actions = None if policy is None else policy.tables[0]
        fields["gain_lower"], fields["gain_upper"] = average_bounds(job.backup, value, actions)
        if state.status in (Status.CONVERGED, Status.PRECISION_LIMIT):
            fields["objective"] = mean
        if state.status is Status.CONVERGED:
            fields["span"], fields["factored_spans"] = _spans(job, value)
    stats = {**statistics(job, state), **objective}
    plan = plan_of(job, state.status, iterations=state.sweeps, stats=stats, **fields)
    return PlanOverRanks(plan, policy)


def statistics(job: Job, state: State | None = None) -> dict[str, Any]:
    """Return the statistics of a plan, with those of its sweeps if there is a state."""
    backup, ranks, checkpoints = job.backup, job.ranks, job.checkpoints
    stats = engine_stats(backup) | {"multiply_adds": backup.cut.multiply_adds}
    if state is not None:
        stats |= {"damping": state.damping, "accelerated": 0}
        if state.acceleration is not None:
            stats["memory_bytes"] += state.acceleration.bytes
            stats["accelerated"] = state.acceleration.kept if state.accelerated else 0
    traffic = ranks.traffic
    counted = (traffic.bytes_sent, backup.predicted_bytes_sent, traffic.seconds)
    sent, predicted, seconds = ranks.largest(np.array(counted, dtype=np.float64)).tolist()
    stats["mpi"] = {
        "ranks": ranks.size,
        "bytes_per_rank": stats["memory_bytes"],
        "bytes_sent_per_rank": int(sent),
        "bytes_sent_predicted": int(predicted),
        "seconds_communicating": seconds,
        "checkpoints": 0 if checkpoints is None else checkpoints.count,
        "checkpoint": None if checkpoints is None else str(checkpoints.folder),
        "resumed": job.saved is not None,
    }
    return stats


def _policy_in_time(job: Job, state: State, h: Vector) -> tuple[PolicyParts | None, Vector | None]:
    """Return the policy that is greedy at h and its one-step values, if there is time for it."""
    backup, deadline = job.backup, job.limits.deadline
    if deadline.at is not None or state.status is Status.INTERRUPTED:
        # A plan that is stopped in its first sweep has measured none.
        sweep = max(state.seconds_per_sweep, backup.predicted_seconds / job.ranks.size)
        if _SWEEPS_OF_POLICY * sweep > max(deadline.remaining() or 0.0, GRACE_SECONDS):
            return None, None
    size = backup.largest(max(float(h.max()), -float(h.min())))
    slack = backup.tie_slack(size, job.limits.tolerance)
    ties = job.settings.tie_breaking
    actions = backup.greedy_actions(h, state.new, ties.rule, ties.seed, slack)
    table = actions.astype(smallest_unsigned(job.structure.n_actions))
    return PolicyParts(backup, job.structure, table[None, :], None), state.new


def _spans(job: Job, h: Vector) -> tuple[float, tuple[float, ...]]:
    """Return the span and the factored spans of a vector.

    A rank has all values of the variables that do not divide the vector.  Those that do are covered
    by the other division.
    """
    backup, sizes = job.backup, job.structure.state_sizes
    span = backup.largest(float(h.max())) + backup.largest(-float(h.min()))
    share = backup.share
    factored = np.zeros(len(sizes))
    for division, vector in ((share.cells, h), (share.known, backup.by_known(h))):
        inner = division.piece_size
        for j in division.others:
            inner //= sizes[j]
            cube = vector.reshape(-1, sizes[j], inner)
            change = cube.max(axis=1) - cube.min(axis=1)
            factored[j] = max(factored[j], float(change.max()))
    return span, tuple(job.ranks.largest(factored).tolist())
