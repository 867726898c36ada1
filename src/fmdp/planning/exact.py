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
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmdp.elimination.backup import Backup, backup_for
from fmdp.elimination.ties import rule_code
from fmdp.errors import InvalidParameter, did_you_mean
from fmdp.model import FactoredMDP, OptimisticTables, Structure
from fmdp.planning import iteration
from fmdp.planning.plan import Plan, Progress, Status, Tables
from fmdp.planning.policy import TablePolicy
from fmdp.planning.spans import factored_spans, span

DEFAULT_SWEEPS = 100_000
CRITERIA = ("average", "discounted")
TARGETS = ("nested", "vertex")


@dataclass(frozen=True)
class Exact:
    """Settings of the exact planner."""

    tolerance: float = 1e-6
    """Largest gap between the bounds, in the unit of the reward."""
    criterion: str = "average"
    discount: float = 0.95
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
        if not self.tolerance > 0.0:
            raise InvalidParameter(f"tolerance must be above 0; got {self.tolerance}")
        _one_of("criterion", self.criterion, CRITERIA)
        _one_of("targets", self.targets, TARGETS)
        rule_code(self.ties)
        if not 0.0 <= self.discount < 1.0:
            raise InvalidParameter(f"discount must be in [0, 1); got {self.discount}")
        for name in ("max_iterations", "max_seconds", "memory_limit", "threads"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise InvalidParameter(f"{name} must be above 0; got {value}")

    @property
    def name(self) -> str:
        return "exact"

    def prepare(self, structure: Structure) -> PreparedExact:
        """Ready for one structure; tables may change at every call."""
        return PreparedExact(self, structure)

    def plan(self, model: FactoredMDP, *, progress: Progress | None = None) -> Plan:
        """Plan for one model, from nothing; equal tables of different actions share their work."""
        started = time.perf_counter()
        backup = backup_for(model, memory_limit=self.memory_limit, threads=self.threads)
        h = np.zeros(backup.n_states)
        return _solve(self, backup, model, h, cold=True, describe=True, progress=progress,
                      started=started)  # fmt: skip


class PreparedExact:
    """The exact planner of one structure; keeps its h between calls and starts from it."""

    def __init__(self, settings: Exact, structure: Structure) -> None:
        self.settings = settings
        self.structure = structure
        self._backups: dict[str, Backup] = {}
        self._warm: dict[str, NDArray[np.float64]] = {}

    def _backup(self, kind: str, structure: Structure) -> Backup:
        if kind not in self._backups:
            self._backups[kind] = Backup(
                structure,
                nested=kind == "nested",
                memory_limit=self.settings.memory_limit,
                threads=self.settings.threads,
            )
        return self._backups[kind]

    def solve(
        self,
        tables: Tables,
        *,
        describe: bool = False,
        progress: Progress | None = None,
    ) -> Plan:
        """Plan with these tables.  `describe` adds the bias in C order and its spans."""
        started = time.perf_counter()
        kind, model = "plain", tables
        if isinstance(tables, OptimisticTables):
            kind = self.settings.targets
            if kind == "vertex":
                model = tables.extended()
        backup = self._backup(kind, model.structure)
        backup.load(model)
        cold = kind not in self._warm
        h = self._warm.setdefault(kind, np.zeros(backup.n_states))
        return _solve(self.settings, backup, tables, h, cold=cold, describe=describe,
                      progress=progress, started=started)  # fmt: skip

    def forget(self) -> None:
        """Start the next solve from zero."""
        self._warm.clear()

    def warm_state(self) -> Mapping[str, NDArray[Any]]:
        return {kind: h.copy() for kind, h in self._warm.items()}

    def restore_warm_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        self._warm = {kind: np.array(h, dtype=np.float64) for kind, h in state.items()}


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
    discount = settings.discount if settings.criterion == "discounted" else 1.0
    deadline = None
    if settings.max_seconds is not None:
        deadline = time.monotonic() + settings.max_seconds
    if cold:
        h[:] = 0.0
    outcome = iteration.solve(
        backup,
        h,
        iteration.Limits(settings.tolerance, settings.max_iterations or DEFAULT_SWEEPS, deadline),
        discount=discount,
        cold=cold,
        sweep_seconds=backup.predicted_seconds,
        reward_size=float(sum(max(abs(lo), abs(hi)) for lo, hi in structure.reward_ranges)),
        depth=structure.m,
        progress=progress,
    )
    new = outcome.new
    if outcome.status is Status.INTERRUPTED:
        # The sweep under way was cut off: L h must be whole before a policy is read from it.
        backup.sweep(outcome.h * discount, new)
    source = outcome.h if discount == 1.0 else outcome.h * discount
    actions = backup.greedy_actions(source, new, settings.ties, settings.tie_seed)
    # With vertex targets the joint action is (action, targets), targets fastest.
    actions //= backup.structure.n_actions // structure.n_actions
    policy = TablePolicy(structure.state_sizes, structure.action_sizes, actions)

    lower: float | None = outcome.lower
    upper: float | None = outcome.upper
    objective: float | None = None
    if discount != 1.0:
        scale = discount / (1.0 - discount)
        new += 0.5 * scale * (outcome.lower + outcome.upper)
        objective = float(new.mean())
        lower, upper = _average_bounds(backup, new)
    finite = lower is not None and np.isfinite(lower)
    stats: dict[str, Any] = {
        "damping": outcome.damping,
        "memory_bytes": backup.predicted_bytes,
        "multiply_adds": backup.layout.multiply_adds,
        "elimination_order": backup.layout.order,
        "conditioned": backup.layout.branch,
        "threads": backup.threads,
    }
    if outcome.status is Status.MULTICHAIN:
        start = getattr(tables, "initial_state", (0,) * structure.m)
        position = np.ravel_multi_index(
            [start[j] for j in backup.layout.order],
            [structure.state_sizes[j] for j in backup.layout.order],
        )
        stats["gain_from_initial_state"] = float(new[position] - outcome.h[position])
    bias = spans = None
    if describe:
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


def _average_bounds(backup: Backup, value: NDArray[np.float64]) -> tuple[float, float]:
    """Bounds on the optimal gain from any function, here the discounted value."""
    out = np.empty_like(value)
    backup.sweep(value, out)
    out -= value
    return float(out.min()), float(out.max())


def _one_of(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise InvalidParameter(
            f'{name} must be one of {", ".join(allowed)}; got "{value}"'
            f"{did_you_mean(value, allowed)}"
        )
