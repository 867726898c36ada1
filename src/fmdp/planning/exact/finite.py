"""Planning over a finite horizon: H backups, and a policy that depends on the step.

    V_H = 0,   V_t = max_a  R + discount * P V_{t+1},   pi_t greedy at V_{t+1}

The objective is V_0 of the initial state: the largest expected sum of rewards over H steps.  There
is nothing to converge to, so the values are exact up to rounding, which is bounded
(`bounds.stage_error`).  What ties cost the policy adds up the same way.
`stats["objective_bounds"]` includes both: the policy gets at least the lower bound, and no policy
more than the upper one.

Cost: 2 H sweeps.  A plan that is stopped knows only the last steps, and has no policy.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fmdp._base.deadlines import NEVER, TimeUp
from fmdp._base.memory import available_memory, describe_bytes, describe_count
from fmdp.elimination.backup import Backup
from fmdp.elimination.ties import Ties
from fmdp.errors import TooLarge
from fmdp.model import Structure
from fmdp.model.spaces import encode
from fmdp.planning.exact.bounds import stage_error
from fmdp.planning.exact.report import report_bytes
from fmdp.planning.exact.solver import Limits
from fmdp.planning.plan import Plan
from fmdp.planning.policies.policy import TablePolicy, smallest_unsigned
from fmdp.planning.policies.timed import TimedPolicy, stage_bytes
from fmdp.planning.prepared import engine_stats, greedy_actions
from fmdp.planning.status import Progress, Status, Tables

if TYPE_CHECKING:
    from fmdp.planning.exact.planner import Exact

Vector = NDArray[np.float64]

_SECONDS_BETWEEN_REPORTS = 0.05
"""Least time between two calls of a progress callback."""


def refuse_stages(settings: Exact, structure: Structure, predicted: int | None = None) -> None:
    """Raise TooLarge if the stages and the sweeps together need more than the memory limit."""
    assert settings.horizon is not None
    limit = settings.memory_limit if settings.memory_limit is not None else available_memory() // 2
    sweeps = predicted
    if sweeps is None:
        sweeps = report_bytes(settings.criterion, structure) * structure.n_states
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


@dataclass(eq=False)
class Stages:
    """The stages planned so far, from the last step on, and what is known of their value."""

    value: Vector
    tables: list[bytes] = field(default_factory=list)
    """The digest of the actions of every stage; the last step comes first."""
    error: float = 0.0
    """Bound on what rounding has done to the value."""
    loss: float = 0.0
    """Bound on what ties have cost the policy."""
    distinct: dict[bytes, NDArray[np.unsignedinteger[Any]]] = field(default_factory=dict)
    """The actions by their digest."""

    @property
    def numbers(self) -> list[int]:
        """For every stage the number of its table in `distinct`; the last step comes first."""
        number_of = {digest: number for number, digest in enumerate(self.distinct)}
        return [number_of[digest] for digest in self.tables]

    def bounds(self, value: float) -> tuple[float, float]:
        """Return bounds on what is computed as `value`: what the policy gets, and the optimum."""
        return value - self.loss - self.error, value + self.error


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
    """Plan backwards from the last step; `refuse_stages` must have passed."""
    structure, horizon = tables.structure, settings.horizon
    assert horizon is not None
    stages = Stages(np.zeros(backup.n_states))
    status = plan_stages(
        stages, settings, backup, structure, limits, ties=ties, progress=progress, started=started
    )
    stats: dict[str, Any] = {
        "horizon": horizon,
        "steps_planned": len(stages.tables),
        **engine_stats(backup),
    }
    stats["memory_bytes"] += sum(table.nbytes for table in stages.distinct.values())
    policy: TimedPolicy | None = None
    objective: float | None = None
    bias: Vector | None = None
    if len(stages.tables) == horizon:
        by_digest = {
            digest: TablePolicy.trusted(structure, actions)
            for digest, actions in stages.distinct.items()
        }
        discount = 1.0 if settings.discount is None else settings.discount
        policy = TimedPolicy([by_digest[digest] for digest in stages.tables[::-1]], discount)
        values = backup.to_canonical(stages.value)
        start = getattr(tables, "initial_state", (0,) * structure.m)
        objective = float(values[encode(start, structure.state_sizes)])
        low, high = stages.bounds(objective)
        stats["objective_bounds"] = (low, high)
        stats["different_stages"] = len(policy.stages)
        status = Status.CONVERGED if high - low <= limits.tolerance else Status.PRECISION_LIMIT
        bias = values if describe else None
    return Plan(
        planner=settings.name,
        status=status,
        policy=policy,
        objective=objective,
        iterations=len(stages.tables),
        seconds=time.perf_counter() - started,
        ties=ties.name,
        bias=bias,
        stats=stats,
    )


def table_digest(backup: Backup, table: NDArray[np.unsignedinteger[Any]]) -> bytes:
    """Return the digest by which equal tables of actions are recognised."""
    own = hashlib.sha256(np.ascontiguousarray(table).data).digest()
    return backup.digest_of_all(own)


def plan_stages(
    stages: Stages,
    settings: Exact,
    backup: Backup,
    structure: Structure,
    limits: Limits,
    *,
    ties: Ties,
    progress: Progress | None,
    started: float,
    after_each: Callable[[Stages], None] = lambda stages: None,
) -> Status:
    """Add stages until the horizon or a limit is reached; return how it ended.

    `after_each` is called with the stages after each new one.
    """
    horizon = settings.horizon
    assert horizon is not None
    discount = 1.0 if settings.discount is None else settings.discount
    tolerance = limits.tolerance / horizon
    most_stages = horizon if settings.max_iterations is None else settings.max_iterations
    deadline, due = limits.deadline, 0.0
    backup.deadline = deadline
    try:
        while len(stages.tables) < min(horizon, most_stages):
            deadline.check()
            _plan_stage(stages, backup, structure, discount, tolerance, ties)
            seconds = time.perf_counter() - started
            if progress is not None and (seconds >= due or len(stages.tables) == horizon):
                due = seconds + _SECONDS_BETWEEN_REPORTS
                made = len(stages.tables)
                progress({"sweeps": made, "steps": horizon, "seconds": seconds})
            after_each(stages)
    except KeyboardInterrupt:
        return Status.INTERRUPTED
    except TimeUp:
        return Status.TIME_LIMIT
    finally:
        backup.deadline = NEVER
    return Status.CONVERGED if most_stages >= horizon else Status.ITERATION_LIMIT


def _plan_stage(
    stages: Stages,
    backup: Backup,
    structure: Structure,
    discount: float,
    tolerance: float,
    ties: Ties,
) -> None:
    """Add the stage before the ones that are planned: one sweep for values, one for actions."""
    value = stages.value
    if discount != 1.0:
        value *= discount
    size = backup.largest(max(float(value.max()), -float(value.min())))
    new = np.empty_like(value)
    backup.sweep(value, new)
    worth = new.copy()
    actions = greedy_actions(
        backup, structure, value, worth, ties, backup.tie_slack(size, tolerance)
    )
    table = actions.astype(smallest_unsigned(structure.n_actions))
    del actions
    digest = table_digest(backup, table)
    stages.distinct.setdefault(digest, table)
    stages.error = stage_error(
        stages.error, discount, size + structure.reward_size, backup.roundings
    )
    np.subtract(new, worth, out=worth)
    stages.loss = discount * stages.loss + backup.largest(float(worth.max()))
    stages.value = new
    stages.tables.append(digest)  # last: what is counted is whole
