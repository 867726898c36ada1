"""Factory of backups: by components where the effects of a model allow it, else by enumeration.

The other modules of the library import backups, and what belongs to them, from here.
"""

from __future__ import annotations

from fmdp._base.deadlines import TimeUp, check_clock
from fmdp.elimination import kernels
from fmdp.elimination.decomposition import decompose
from fmdp.elimination.effects import EffectsBackup
from fmdp.elimination.enumeration import (
    Backup,
    Vector,
    advance,
    iterate_by_sweeps,
    shape_of,
)
from fmdp.elimination.threads import usable_cores
from fmdp.model import FactoredMDP, OptimisticTables, Structure

__all__ = [
    "Backup",
    "TimeUp",
    "Vector",
    "advance",
    "backup_for",
    "backup_of",
    "check_clock",
    "iterate_by_sweeps",
    "usable_cores",
]


def backup_for(
    model: FactoredMDP | OptimisticTables,
    *,
    worst: bool = False,
    memory_limit: int | None = None,
    threads: int | None = None,
    deadline: float | None = None,
) -> Backup:
    """Return the backup of one model, loaded; actions with equal tables share their steps.

    The options are those of `Backup`.
    """
    nested = isinstance(model, OptimisticTables)
    shape = shape_of(model)
    parts = decompose(model.structure)
    if parts is not None and parts.describes(model):
        backup = EffectsBackup(
            parts,
            nested=nested,
            shape=shape,
            worst=worst,
            memory_limit=memory_limit,
            threads=threads,
            deadline=deadline,
        )
        backup.load(model)
        return backup
    return Backup(
        model.structure,
        nested=nested,
        shape=shape,
        worst=worst,
        share_for=model,
        memory_limit=memory_limit,
        threads=threads,
        deadline=deadline,
    )


def backup_of(
    structure: Structure,
    *,
    nested: bool = False,
    shape: int = kernels.FREE,
    worst: bool = False,
    memory_limit: int | None = None,
    threads: int | None = None,
    deadline: float | None = None,
) -> Backup:
    """Return a backup of a structure, which serves all its models; the options of `Backup`."""
    parts = decompose(structure)
    if parts is None:
        return Backup(
            structure,
            nested=nested,
            shape=shape,
            worst=worst,
            memory_limit=memory_limit,
            threads=threads,
            deadline=deadline,
        )
    return EffectsBackup(
        parts,
        nested=nested,
        shape=shape,
        worst=worst,
        memory_limit=memory_limit,
        threads=threads,
        deadline=deadline,
    )
