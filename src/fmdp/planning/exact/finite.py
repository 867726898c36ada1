"""A finite horizon: H backups, and a policy that depends on the time.

    V_H = 0,   V_t = max_a  R + discount * P V_{t+1},   pi_t greedy at V_{t+1}

The objective is V_0 of the initial state: the largest expected sum of rewards over H steps.  There
is nothing to converge to and nothing is relative, so the values are exact but for rounding, which
is bounded: a backup moves by at most `rounding_allowance`, and an error made at step t + 1 is at
most multiplied by the discount on its way to step t.  What ties cost the policy adds up the same
way.  `stats["objective_bounds"]` has both: the policy is sure to get the lower one, and nobody gets
more than the upper one.

Cost: 2 H sweeps.  A plan that is stopped knows the last steps alone, and has no policy.
"""

from __future__ import annotations

import hashlib
import time
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fmdp._base.memory import available_memory, describe_bytes, describe_count
from fmdp.elimination.backup import Backup, TimeUp
from fmdp.elimination.rounding import rounding_allowance
from fmdp.elimination.ties import Ties
from fmdp.elimination.tuning import VECTORS
from fmdp.errors import TooLarge
from fmdp.model import Structure
from fmdp.model.spaces import encode
from fmdp.planning.exact.iteration import Limits
from fmdp.planning.plan import Plan
from fmdp.planning.policies.policy import TablePolicy
from fmdp.planning.policies.timed import TimedPolicy, stage_bytes
from fmdp.planning.prepared import engine_stats, greedy_actions
from fmdp.planning.status import Progress, Status, Tables

if TYPE_CHECKING:
    from fmdp.planning.exact.planner import Exact

_SECONDS_BETWEEN_REPORTS = 0.05


def refuse_stages(settings: Exact, structure: Structure, predicted: int | None = None) -> None:
    """TooLarge where the stages, beside what the sweeps need, are more than the memory limit."""
    assert settings.horizon is not None
    limit = settings.memory_limit if settings.memory_limit is not None else available_memory() // 2
    sweeps = VECTORS * 8 * structure.n_states if predicted is None else predicted
    stages = stage_bytes(structure.n_states, structure.n_actions, settings.horizon)
    if sweeps + stages > limit:
        raise TooLarge(
            f"planning over {describe_count(settings.horizon)} steps and "
            f"{describe_count(structure.n_states)} states needs {describe_bytes(sweeps)}, and up "
            f"to {describe_bytes(stages)} for a policy of so many stages; the memory limit is "
            f"{describe_bytes(limit)}",
            needed_bytes=sweeps + stages,
            limit_bytes=limit,
        )


def solve_finite(
    settings: Exact,
    backup: Backup,
    tables: Tables,
    limits: Limits,
    *,
    describe: bool,
    progress: Progress | None,
    started: float,
    ties: Ties,
) -> Plan:
    """Plan backwards from the last step; `refuse_stages` has been asked."""
    structure, horizon = tables.structure, settings.horizon
    assert horizon is not None
    discount = 1.0 if settings.discount is None else settings.discount
    most_sweeps = horizon if settings.max_iterations is None else settings.max_iterations
    value = np.zeros(backup.n_states)
    new, worth = np.empty_like(value), np.empty_like(value)
    stages: list[TablePolicy] = []  # the last one first
    held: dict[bytes, TablePolicy] = {}
    error = loss = 0.0
    due = 0.0
    status = Status.CONVERGED
    backup.deadline = limits.deadline
    try:
        while len(stages) < horizon:
            if len(stages) >= most_sweeps:
                status = Status.ITERATION_LIMIT
                break
            if limits.deadline is not None and time.monotonic() >= limits.deadline:
                raise TimeUp
            if discount != 1.0:
                value *= discount
            size = max(float(value.max()), -float(value.min()))
            backup.sweep(value, new)
            worth[:] = new
            slack = backup.tie_slack(size, limits.tolerance / horizon)
            actions = greedy_actions(backup, structure, value, worth, ties, slack)
            digest = hashlib.sha256(actions.tobytes()).digest()
            if digest not in held:
                held[digest] = TablePolicy(
                    structure.state_sizes, structure.action_sizes, actions, structure.naming
                )
            stages.append(held[digest])
            allowance = rounding_allowance(size + structure.reward_size, backup.roundings)
            error = discount * error + allowance
            np.subtract(new, worth, out=worth)
            loss = discount * loss + float(worth.max())
            value, new = new, value
            seconds = time.perf_counter() - started
            if progress is not None and (seconds >= due or len(stages) == horizon):
                due = seconds + _SECONDS_BETWEEN_REPORTS
                progress({"sweeps": len(stages), "steps": horizon, "seconds": seconds})
    except KeyboardInterrupt:
        status = Status.INTERRUPTED
    except TimeUp:
        status = Status.TIME_LIMIT
    finally:
        backup.deadline = None
    stats: dict[str, Any] = {
        "horizon": horizon,
        "steps_planned": len(stages),
        **engine_stats(backup),
    }
    policy: TimedPolicy | None = None
    objective: float | None = None
    bias: NDArray[np.float64] | None = None
    if len(stages) == horizon:
        policy = TimedPolicy(stages[::-1], discount)
        values = backup.to_canonical(value)
        start = getattr(tables, "initial_state", (0,) * structure.m)
        objective = float(values[encode(start, structure.state_sizes)])
        low, high = objective - loss - error, objective + error
        stats["objective_bounds"] = (low, high)
        stats["different_stages"] = len(policy.stages)
        status = Status.CONVERGED if high - low <= limits.tolerance else Status.PRECISION_LIMIT
        bias = values if describe else None
    return Plan(
        planner=settings.name,
        status=status,
        policy=policy,
        objective=objective,
        iterations=len(stages),
        seconds=time.perf_counter() - started,
        ties=ties.name,
        bias=bias,
        stats=stats,
    )
