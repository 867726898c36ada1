"""What planners on the elimination engine share: backups that stay, vectors that stay warm.

A prepared planner belongs to one run.  It keeps one backup for each kind of tables that it meets
(a plain model, optimistic tables with nested targets, optimistic tables as the extended FMDP) and
beside it the vector at which the last solve ended, from which the next one starts.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from fmdp._base.parameters import quoted
from fmdp.elimination.backup import Backup, TimeUp, backup_of, shape_of
from fmdp.elimination.decomposition import enumeration_reason
from fmdp.elimination.effects import EffectsBackup
from fmdp.elimination.ties import Ties
from fmdp.errors import InvalidParameter
from fmdp.model import OptimisticTables, Structure
from fmdp.model.structure import LARGEST_REWARD, check_structure
from fmdp.planning.exact.solver import Limits, State
from fmdp.planning.plan import Plan, Planner, Status, Tables, middle_of_bounds
from fmdp.planning.policies.policy import TablePolicy, array_in
from fmdp.planning.spans import marginals

Vector = NDArray[np.float64]

DEFAULT_SWEEPS = 100_000
TOLERANCE = 1e-6
"""Default gap of a plan's bounds, in units of `Structure.reward_unit`."""
KINDS = ("plain", "nested", "vertex")
"""Of tables: what there is a backup and a warm vector for."""
GRACE_SECONDS = 1.0
"""How long after a deadline or Ctrl-C the policy may still be made."""


class EngineSettings(Protocol):
    """The settings that every planner on the engine has."""

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


def tolerance_of(tolerance: float | None, structure: Structure) -> float:
    """The tolerance that is set, or the default in the unit of the model's rewards."""
    return TOLERANCE * structure.reward_unit if tolerance is None else tolerance


OwnSettings = TypeVar("OwnSettings", bound="EngineSettings")


def with_tolerance(settings: OwnSettings, tolerance: float | None) -> OwnSettings:
    """Return the settings with this tolerance in the place of theirs, where one is given."""
    if tolerance is None:
        return settings
    changed: OwnSettings = replace(settings, tolerance=tolerance)  # type: ignore[type-var]
    return changed


def limits_of(settings: EngineSettings, structure: Structure, started: float) -> Limits:
    """When to stop, with the clock running since `started` (of time.perf_counter)."""
    deadline = deadline_of(settings.max_seconds, started)
    tolerance = tolerance_of(settings.tolerance, structure)
    return Limits(tolerance, settings.max_iterations or DEFAULT_SWEEPS, deadline)


def deadline_of(max_seconds: float | None, started: float) -> float | None:
    """On time.monotonic's clock, with that of time.perf_counter at `started`."""
    if max_seconds is None:
        return None
    return time.monotonic() + max_seconds - (time.perf_counter() - started)


class PreparedOnEngine:
    """Backups and warm vectors of one structure; vectors are in elimination order."""

    def __init__(self, settings: EngineSettings, structure: Structure) -> None:
        check_structure(structure, "prepare")
        self.structure = structure
        self._engine_settings = settings
        self._backups: dict[tuple[str, int], Backup] = {}
        self._warm: dict[str, Vector] = {}

    def _load(
        self, tables: Tables, deadline: float | None = None
    ) -> tuple[str, Backup, Vector, bool]:
        """The kind of the tables, the backup with them, the vector to start from, and whether the
        vector is new; it is kept, and what is written into it is where the next solve starts."""
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
        # A file may have brought them, and the sweeps do not look where a vector ends.
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
    """Return the plan where time was up, or Ctrl-C came, before the first sweep: bounds that the
    ranges of the rewards put on any gain."""
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
    """Return the actions of the structure that are greedy at h: [S] in C order.

    `value` is L h and is overwritten by the value of the chosen actions, which may be smaller by
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
    """Return the policy that is greedy at h, over the actions of the structure.

    `value` is L h and is overwritten by the value of the chosen actions.
    """
    size = max(float(h.max()), -float(h.min()))
    slack = backup.tie_slack(size, tolerance_of(settings.tolerance, structure))
    actions = greedy_actions(backup, structure, h, value, ties, slack)
    return TablePolicy(structure.state_sizes, structure.action_sizes, actions, structure.naming)


def policy_in_time(
    settings: EngineSettings,
    backup: Backup,
    structure: Structure,
    ending: State,
    h: Vector,
    limits: Limits,
    ties: Ties,
) -> tuple[TablePolicy | None, Vector | None]:
    """Return the greedy policy at h and its one-step value; None for both where time is up.

    `ending.new` is overwritten; it is L h unless the last sweep was cut off.
    """
    if limits.deadline is not None or ending.status is Status.INTERRUPTED:
        now = time.monotonic()
        end = now + GRACE_SECONDS
        if limits.deadline is not None:
            end = max(limits.deadline, end)
        if now + backup.predicted_seconds * (1 if ending.whole else 2) > end:
            return None, None
        backup.deadline = end
    try:
        if not ending.whole:
            backup.sweep(h, ending.new)
        return greedy_policy(backup, structure, h, ending.new, settings, ties), ending.new
    except TimeUp:
        return None, None
    finally:
        backup.deadline = None


def engine_stats(backup: Backup) -> dict[str, Any]:
    """What a plan says about how it was computed."""
    told = {}
    if backup.structure.effects is not None:
        reason = enumeration_reason(backup.structure) or "the intervals are not those of effects"
        one_by_one = isinstance(backup, EffectsBackup)
        told["joint_actions"] = "by components" if one_by_one else f"enumerated: {reason}"
    return {
        "memory_bytes": backup.predicted_bytes,
        "multiply_adds": backup.layout.multiply_adds,
        "elimination_order": backup.layout.order,
        "conditioned": backup.layout.branch,
        "threads": backup.threads,
        **told,
    }
