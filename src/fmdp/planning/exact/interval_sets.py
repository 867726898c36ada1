"""The set of models that a model with intervals stands for, as tables for the nested backup."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fmdp.errors import InvalidParameter
from fmdp.model import FactoredMDP, OptimisticTables, Structure
from fmdp.model.intervals import Intervals
from fmdp.planning.status import Tables

if TYPE_CHECKING:
    from fmdp.planning.exact.planner import Exact

Vector = NDArray[np.float64]


def refuse_without_intervals(settings: Exact, tables: Tables) -> FactoredMDP:
    """Return the model; raise InvalidParameter if it has no intervals or is a learner's tables."""
    if not isinstance(tables, FactoredMDP):
        raise InvalidParameter(
            f"the 'intervals' parameter of {settings.owner()} is for models with intervals; these "
            f"are the tables of a learner, got intervals={settings.intervals}"
        )
    if tables.intervals is None:
        name = f"model {tables.name}" if tables.name else "the model"
        raise InvalidParameter(
            f"{name} has no intervals, so there is no worst and no best case to plan for "
            f"(--robust, intervals={settings.intervals}); a model file has them as "
            f'"lower" and "upper" beside its numbers, and `fmdp fit` finds them in a log'
        )
    return tables


def tables_of(model: FactoredMDP, *, worst: bool) -> OptimisticTables:
    """Return the set of a model with intervals, with the rewards of its worst or best case."""
    assert model.intervals is not None
    ends = common_ends(model.structure, model.intervals)
    free = [np.maximum(1.0 - lower.sum(axis=1), 0.0) for lower in ends.lower]
    rewards = ends.reward_lower if worst else ends.reward_upper
    return OptimisticTables.trusted(model.structure, ends.lower, free, rewards, ends.upper)


def common_ends(structure: Structure, intervals: Intervals) -> Intervals:
    """Return the intervals with those of alike rows replaced by their intersection.

    Rows of one class are equal in every model of the structure, so each lies in the intersection.
    """
    if structure.alike is None:
        return intervals
    rows = [structure.transition_classes_of(i) for i in range(structure.m)]
    means = [structure.reward_classes_of(k) for k in range(structure.l)]
    return Intervals(
        _common(rows, intervals.lower, np.maximum),
        _common(rows, intervals.upper, np.minimum),
        _common(means, intervals.reward_lower, np.maximum),
        _common(means, intervals.reward_upper, np.minimum),
    )


def _common(
    classes: list[NDArray[np.int64]], tables: tuple[Vector, ...], meet: np.ufunc
) -> tuple[Vector, ...]:
    made = [table.copy() for table in tables]
    by_class: dict[int, Vector] = {}
    for numbers, table in zip(classes, tables, strict=True):
        for number, row in zip(numbers.tolist(), table, strict=True):
            by_class[number] = meet(by_class[number], row) if number in by_class else row
    for numbers, table in zip(classes, made, strict=True):
        for place, number in enumerate(numbers.tolist()):
            table[place] = by_class[number]
    return tuple(made)
