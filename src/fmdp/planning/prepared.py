"""Code that planners on the elimination engine share: cached backups, warm starts, greedy policies.

A prepared planner belongs to one run. For each kind of tables (a plain model, optimistic tables
with nested targets, optimistic tables as the extended FMDP) it keeps one backup and the vector at
which the last solve ended, from which the next one starts.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from fmdp._base.deadlines import NEVER, Deadline
from fmdp._base.parameters import quoted
from fmdp.elimination.backup import Backup, TimeUp, backup_of, shape_of
from fmdp.elimination.decomposition import enumeration_reason
from fmdp.elimination.effects import EffectsBackup
from fmdp.elimination.ties import Ties
from fmdp.errors import InvalidParameter
from fmdp.model import OptimisticTables, Structure
from fmdp.model.structure import LARGEST_REWARD, check_structure
from fmdp.planning.exact.solver import Limits, State
from fmdp.planning.limits import DEFAULT_SWEEPS, GRACE_SECONDS, tolerance_of
from fmdp.planning.plan import Plan, Planner
from fmdp.planning.policies.archive import array_in
from fmdp.planning.policies.policy import TablePolicy
from fmdp.planning.spans import marginals
from fmdp.planning.status import Status, Tables, middle_of_bounds

Vector = NDArray[np.float64]

KINDS = ("plain", "nested", "vertex")
"""The kinds of tables; each has its own backup and warm vector."""


class EngineSettings(Protocol):
    """Settings of every planner on the engine."""

    @property
    def tolerance(self) -> float | None: ...
    @property
    def max_iterations(self) -> int | None: ...
    @property
    def max_seconds(self) -> float | None: ...
    @property
    def memory_limit(self) -> int | None: ...
    @property
    def tie_breaking(self) -> Ties: ...
    @property
    def targets(self) -> str: ...
    @property
    def threads(self) -> int | None: ...


AnySettings = TypeVar("AnySettings", bound="EngineSettings")


def with_tolerance(settings: AnySettings, tolerance: float | None) -> AnySettings:
    """Return the settings with another tolerance; unchanged if it is None."""
    if tolerance is None:
        return settings
    changed: AnySettings = replace(settings, tolerance=tolerance)  # type: ignore[type-var]
    return changed


def limits_of(settings: EngineSettings, structure: Structure, started: float) -> Limits:
    """Return the limits of a solve that started at `started` (of time.perf_counter)."""
    deadline = Deadline.after(settings.max_seconds, started)
    tolerance = tolerance_of(settings.tolerance, structure)
    return Limits(tolerance, settings.max_iterations or DEFAULT_SWEEPS, deadline)


class PreparedOnEngine:
    """Backups and warm vectors of one structure; vectors are in elimination order."""

    def __init__(self, settings: EngineSettings, structure: Structure) -> None:
        check_structure(structure, "prepare")
        self.structure = structure
        self._engine_settings = settings
        self._backups: dict[tuple[str, int], Backup] = {}
        self._warm: dict[str, Vector] = {}

    def _load(self, tables: Tables, deadline: Deadline = NEVER) -> tuple[str, Backup, Vector, bool]:
        """Load the tables into a backup.

        Returns the kind of the tables, the backup, the start vector, and whether that vector is
        new. The vector is kept: the next solve starts from what the caller writes into it.
        """
        settings = self._engine_settings
        kind, model, shape = "plain", tables, shape_of(tables)
        if isinstance(tables, OptimisticTables):
            kind = settings.targets
            if kind == "vertex":
                model = tables.extended()
        if (kind, shape) not in self._backups:
            self._backups[kind, shape] = backup_of(
                model.structure,
                nested=kind == "nested",
                shape=shape,
                memory_limit=settings.memory_limit,
                threads=settings.threads,
                deadline=deadline,
            )
        backup = self._backups[kind, shape]
        backup.load(model)
        cold = kind not in self._warm
        return kind, backup, self._warm.setdefault(kind, np.zeros(backup.n_states)), cold

    def _with_marginals(self, plan: Plan, values: Vector) -> Plan:
        return replace(plan, marginals=marginals(values, self.structure.state_sizes))

    def forget(self) -> None:
        """Start the next solve from zero."""
        self._warm.clear()

    def warm_state(self) -> Mapping[str, NDArray[Any]]:
        return {kind: h.copy() for kind, h in self._warm.items()}

    def restore_warm_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        # They may come from a file, and compiled sweeps do not check bounds.
        self._warm = {kind: self._checked(state, kind).copy() for kind in state}

    def _checked(self, state: Mapping[str, NDArray[Any]], kind: str) -> Vector:
        if kind not in KINDS:
            raise InvalidParameter(
                f"a planner keeps no vector {quoted(kind)}; must be one of {', '.join(KINDS)}"
            )
        shape = (self.structure.n_states,)
        return array_in(state, kind, "f", shape, -LARGEST_REWARD, LARGEST_REWARD)


def unprepared(
    settings: Planner, structure: Structure, error: TimeUp | KeyboardInterrupt, started: float
) -> Plan:
    """Return the plan if the deadline or Ctrl-C came before the first sweep.

    Its bounds are those that the ranges of the rewards put on any gain.
    """
    interrupted = isinstance(error, KeyboardInterrupt)
    lower, upper = structure.reward_bounds
    return Plan(
        planner=settings.name,
        status=Status.INTERRUPTED if interrupted else Status.TIME_LIMIT,
        gain=middle_of_bounds(lower, upper, structure, 0.0),
        gain_lower=lower,
        gain_upper=upper,
        seconds=time.perf_counter() - started,
        ties=getattr(settings, "ties", None),
    )


def greedy_actions(
    backup: Backup, structure: Structure, h: Vector, value: Vector, ties: Ties, slack: float
) -> NDArray[np.int64]:
    """Return the actions that are greedy at h: [S] in C order.

    `value` is L h and is overwritten by the values of the chosen actions, which may be smaller by
    the slack.
    """
    # With vertex targets the joint action is (action, targets), targets fastest.
    targets = backup.structure.n_actions // structure.n_actions
    if ties.tries is None:
        actions = backup.greedy_actions(h, value, ties.rule, ties.seed, slack)
        actions //= targets
        return actions
    values = backup.action_values(backup.to_canonical(h))
    values = values.reshape(structure.n_states, structure.n_actions, targets).max(axis=2)
    actions = ties.choose(values, slack)
    chosen = np.take_along_axis(values, actions[:, None], axis=1)[:, 0]
    value[:] = backup.to_internal(chosen)
    return actions


def greedy_policy(
    backup: Backup,
    structure: Structure,
    h: Vector,
    value: Vector,
    settings: EngineSettings,
    ties: Ties,
) -> TablePolicy:
    """Return the policy that is greedy at h; `value` is L h and is overwritten as above."""
    size = max(float(h.max()), -float(h.min()))
    slack = backup.tie_slack(size, tolerance_of(settings.tolerance, structure))
    actions = greedy_actions(backup, structure, h, value, ties, slack)
    return TablePolicy.trusted(structure, actions)


def policy_in_time(
    settings: EngineSettings,
    backup: Backup,
    structure: Structure,
    ending: State,
    h: Vector,
    limits: Limits,
    ties: Ties,
) -> tuple[TablePolicy | None, Vector | None]:
    """Return the greedy policy at h and its one-step values; None for both after the deadline.

    `ending.new` is overwritten; it is L h unless the last sweep was cut off.
    """
    if limits.deadline is not NEVER or ending.status is Status.INTERRUPTED:
        seconds = max(limits.deadline.remaining() or 0.0, GRACE_SECONDS)
        if backup.predicted_seconds * (1 if ending.whole else 2) > seconds:
            return None, None
        backup.deadline = Deadline.after(seconds)
    try:
        if not ending.whole:
            backup.sweep(h, ending.new)
        return greedy_policy(backup, structure, h, ending.new, settings, ties), ending.new
    except TimeUp:
        return None, None
    finally:
        backup.deadline = NEVER


def engine_stats(backup: Backup) -> dict[str, Any]:
    """Return the statistics of a plan that describe how it was computed."""
    of_actions = {}
    if backup.structure.effects is not None:
        reason = enumeration_reason(backup.structure) or "the intervals are not those of effects"
        by_components = isinstance(backup, EffectsBackup)
        text = "by components" if by_components else f"enumerated: {reason}"
        of_actions["joint_actions"] = text
    return {
        "memory_bytes": backup.predicted_bytes,
        "multiply_adds": backup.layout.multiply_adds,
        "elimination_order": backup.layout.order,
        "conditioned": backup.layout.branch,
        "threads": backup.threads,
        **of_actions,
    }
