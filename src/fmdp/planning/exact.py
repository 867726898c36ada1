"""Exact planning: relative value iteration on the elimination engine, with certified bounds.

Average reward: stops when max(L h - h) - min(L h - h) <= tolerance; the optimal gain lies between
them and so does the gain of the returned policy (Puterman 2014, theorem 8.5.6).  Discounted: stops
when MacQueen's bounds on V* are within the tolerance.  Joint actions are enumerated: moving the
maximum over an action variable inside the elimination would give only an upper bound.

Optimistic tables go through the same sweep: `nested` targets as the nested backup, `vertex` targets
as the extended FMDP, whose joint actions include a target for every variable (a factor |S| more).
Bounds of nested plans bound the gain of the nested operator, which is never below the vertex one.

Cost: `Layout.multiply_adds` a sweep; a sweep of a warm re-plan of seven machines takes tens of
microseconds.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fmdp.elimination.backup import Backup, backup_for
from fmdp.model import FactoredMDP, Structure
from fmdp.model.factored import check_model
from fmdp.parameters import check_fields
from fmdp.planning import iteration
from fmdp.planning.plan import Plan, Progress, Status, Tables
from fmdp.planning.prepared import (
    PreparedOnEngine,
    engine_stats,
    greedy_policy,
    limits_of,
    reward_size,
)
from fmdp.planning.settings import DISCOUNT, EXACT_FIELDS
from fmdp.planning.spans import factored_spans, span


@dataclass(frozen=True)
class Exact:
    """Settings of the exact planner."""

    tolerance: float | None = None
    """Largest gap between the bounds, in the unit of the reward; by default 1e-6 times the largest
    range of a reward factor."""
    criterion: str = "average"
    discount: float | None = None
    """Of the discounted criterion: 0.95 by default."""
    max_iterations: int | None = None
    max_seconds: float | None = None
    memory_limit: int | None = None
    """Bytes; half of what is free by default."""
    ties: str = "random"
    tie_seed: int = 0
    targets: str = "nested"
    """How optimistic tables choose where the free mass goes."""
    threads: int | None = None
    """All cores by default; small models use one in any case."""

    def __post_init__(self) -> None:
        check_fields(self, EXACT_FIELDS, "planner exact")
        if self.criterion == "discounted" and self.discount is None:
            object.__setattr__(self, "discount", DISCOUNT)

    @property
    def name(self) -> str:
        return "exact"

    def prepare(self, structure: Structure) -> PreparedExact:
        """Ready for one structure; tables may change at every call."""
        return PreparedExact(self, structure)

    def plan(self, model: FactoredMDP, *, progress: Progress | None = None) -> Plan:
        """Plan for one model, from nothing; equal tables of different actions share their work."""
        check_model(model, "plan")
        started = time.perf_counter()
        backup = backup_for(model, memory_limit=self.memory_limit, threads=self.threads)
        h = np.zeros(backup.n_states)
        return _solve(self, backup, model, h, cold=True, describe=True, progress=progress,
                      started=started)  # fmt: skip


class PreparedExact(PreparedOnEngine):
    """The exact planner of one structure; keeps its h between calls and starts from it."""

    def __init__(self, settings: Exact, structure: Structure) -> None:
        super().__init__(settings, structure)
        self.settings = settings

    def solve(
        self,
        tables: Tables,
        *,
        describe: bool = False,
        progress: Progress | None = None,
    ) -> Plan:
        """Plan with these tables.  `describe` adds the bias in C order and its spans."""
        started = time.perf_counter()
        _, backup, h, cold = self._load(tables)
        return _solve(self.settings, backup, tables, h, cold=cold, describe=describe,
                      progress=progress, started=started)  # fmt: skip


def _solve(
    settings: Exact,
    backup: Backup,
    tables: Tables,
    h: NDArray[np.float64],
    *,
    cold: bool,
    describe: bool,
    progress: Progress | None,
    started: float,
) -> Plan:
    structure = tables.structure
    discount = 1.0 if settings.discount is None else settings.discount
    if cold:
        h[:] = 0.0
    outcome = iteration.solve(
        backup,
        h,
        limits_of(settings, structure),
        discount=discount,
        cold=cold,
        sweep_seconds=backup.predicted_seconds,
        reward_size=reward_size(structure),
        depth=structure.m,
        progress=progress,
    )
    new = outcome.new
    if outcome.status is Status.INTERRUPTED:
        # The sweep under way was cut off: L h must be whole before a policy is read from it.
        backup.sweep(outcome.h * discount, new)
    source = outcome.h if discount == 1.0 else outcome.h * discount
    policy = greedy_policy(backup, structure, source, new, settings)

    lower: float | None = outcome.lower
    upper: float | None = outcome.upper
    objective: float | None = None
    if discount != 1.0:
        scale = discount / (1.0 - discount)
        new += 0.5 * scale * (outcome.lower + outcome.upper)
        objective = float(new.mean())
        lower, upper = _average_bounds(backup, new, reward_size(structure))
    finite = lower is not None and np.isfinite(lower)
    stats = {"damping": outcome.damping, **engine_stats(backup)}
    if outcome.status is Status.MULTICHAIN:
        start = getattr(tables, "initial_state", (0,) * structure.m)
        position = np.ravel_multi_index(
            [start[j] for j in backup.layout.order],
            [structure.state_sizes[j] for j in backup.layout.order],
        )
        stats["gain_from_initial_state"] = float(new[position] - outcome.h[position])
    bias = spans = None
    # Where the gain depends on the state there is no bias: h drifts apart with every sweep.
    if describe and outcome.status is not Status.MULTICHAIN:
        bias = backup.to_canonical(outcome.h if discount == 1.0 else new)
        if discount == 1.0:
            bias -= bias.min()
        spans = factored_spans(bias, structure.state_sizes)
    return Plan(
        planner=settings.name,
        status=outcome.status,
        policy=policy,
        gain=0.5 * (lower + upper) if finite and discount == 1.0 else None,  # type: ignore[operator]
        gain_lower=lower if finite else None,
        gain_upper=upper if finite else None,
        span=None if bias is None else span(bias),
        factored_spans=spans,
        objective=objective,
        iterations=outcome.sweeps,
        seconds=time.perf_counter() - started,
        ties=settings.ties,
        bias=bias,
        stats=stats,
    )


def _average_bounds(
    backup: Backup, value: NDArray[np.float64], rewards: float
) -> tuple[float, float]:
    """Bounds on the optimal gain from any function, here the discounted value."""
    out = np.empty_like(value)
    backup.sweep(value, out)
    out -= value
    slack = iteration.rounding_allowance(float(np.abs(value).max()) + rewards, backup.structure.m)
    return float(out.min()) - slack, float(out.max()) + slack
