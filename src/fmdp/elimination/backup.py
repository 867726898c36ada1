"""Factory of backups: by components where the effects of a model allow it, else by enumeration.

The other packages import backups, and what belongs to them, from here.
"""

from __future__ import annotations

from typing import TypedDict, Unpack

from fmdp._base.deadlines import Deadline, TimeUp
from fmdp.elimination.decomposition import decompose
from fmdp.elimination.effects import EffectsBackup
from fmdp.elimination.enumeration import Backup, Vector, advance, iterate_by_sweeps, shape_of
from fmdp.elimination.threads import usable_cores
from fmdp.model import FactoredMDP, OptimisticTables, Structure
from fmdp.model.expansion import expand, shared_draws
from fmdp.model.products import flat_model

__all__ = [
    "Backup",
    "TimeUp",
    "Vector",
    "advance",
    "backup_for",
    "backup_of",
    "iterate_by_sweeps",
    "shape_of",
    "usable_cores",
]


class Limits(TypedDict, total=False):
    """Options of `Backup` that do not depend on the kind of tables."""

    worst: bool
    memory_limit: int | None
    state_bytes: int
    preferred_bytes: tuple[int, ...]
    threads: int | None
    deadline: Deadline


class Options(Limits, total=False):
    """Options of `Backup`."""

    nested: bool
    shape: int


def backup_for(model: FactoredMDP | OptimisticTables, **limits: Unpack[Limits]) -> Backup:
    """Return the backup of one model, loaded; actions with equal tables share their steps.

    The model with joint states stands for one that has no expansion: its indices are the same.
    """
    if isinstance(model, FactoredMDP):
        model = flat_model(model) if shared_draws(model.structure) else expand(model)
    nested, shape = isinstance(model, OptimisticTables), shape_of(model)
    parts = decompose(model.structure)
    if parts is None or not parts.describes(model):
        return Backup(model.structure, nested=nested, shape=shape, share_for=model, **limits)
    backup = EffectsBackup(parts, nested=nested, shape=shape, **limits)
    backup.load(model)
    return backup


def backup_of(structure: Structure, **options: Unpack[Options]) -> Backup:
    """Return a backup of a structure, which serves all its models."""
    parts = decompose(structure)
    return Backup(structure, **options) if parts is None else EffectsBackup(parts, **options)
