"""Intervals: lower and upper ends of the numbers of a model that are not known exactly.

    lower_i(v | x) <= P_i(v | x) <= upper_i(v | x),    lower_k(x) <= R_k(x) <= upper_k(x)

A model with intervals is the set of models whose tables lie inside (the bounded-parameter MDPs of
Givan, Leach & Dean 2000, factor by factor), with its tables as the nominal member.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np

from fmdp.errors import InvalidModel
from fmdp.model.alike import Alike
from fmdp.model.scopes import Scope
from fmdp.model.spaces import FloatArray, IndexArray, array_of, items
from fmdp.model.structure import Structure

SLACK = 1e-9
"""Largest distance of a nominal number from its interval, which is then widened to hold it."""


@dataclass(frozen=True, eq=False)
class Intervals:
    """Lower and upper ends of every number of a model's tables.

    Parameters
    ----------
    lower, upper
        For each state variable i arrays [|X[Z_i]|, |S_i|], 0 <= lower <= upper <= 1.
    reward_lower, reward_upper
        For each reward factor k arrays [|X[Z_k]|], inside its range.

    Raises
    ------
    InvalidModel
        If these are no such arrays.
    """

    lower: tuple[FloatArray, ...]
    upper: tuple[FloatArray, ...]
    reward_lower: tuple[FloatArray, ...]
    reward_upper: tuple[FloatArray, ...]

    def __post_init__(self) -> None:
        for field in fields(self):
            tables = items(getattr(self, field.name), f"intervals: {field.name}")
            object.__setattr__(
                self, field.name, tuple(_table(t, f"intervals: {field.name}") for t in tables)
            )

    @cached_property
    def _content(self) -> tuple[tuple[bytes, ...], ...]:
        return tuple(tuple(table.tobytes() for table in tables) for tables in self.arrays())

    def arrays(self) -> tuple[tuple[FloatArray, ...], ...]:
        """Return the four lists of tables: lower, upper, reward_lower, reward_upper."""
        return self.lower, self.upper, self.reward_lower, self.reward_upper

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Intervals) and self._content == other._content

    def __hash__(self) -> int:
        return hash(self._content)

    def __reduce__(self) -> tuple[type[Intervals], tuple[Any, ...]]:
        # Through the constructor, because pickled arrays come back writeable.
        return type(self), self.arrays()

    def __repr__(self) -> str:
        return f"Intervals({len(self.lower)} transition factors, {len(self.reward_lower)} rewards)"

    def around(
        self,
        structure: Structure,
        transitions: Sequence[FloatArray],
        rewards: Sequence[FloatArray],
    ) -> Intervals:
        """Return the intervals for a model with these tables, checked.

        An end that misses its nominal number by rounding is moved there. `structure`, `transitions`
        and `rewards` are those of the model.

        Raises
        ------
        InvalidModel
            If a shape differs, or a nominal number lies outside; names the factor and the row.
        """
        s = structure
        unit = ((0.0, 1.0),) * s.m
        ends = (
            *_around(
                transitions,
                self.lower,
                self.upper,
                unit,
                s,
                s.transition_label,
                s.transition_scopes,
            ),
            *_around(
                rewards,
                self.reward_lower,
                self.reward_upper,
                s.reward_ranges,
                s,
                s.reward_label,
                s.reward_scopes,
            ),
        )
        return Intervals(*ends)

    def together(self, alike: Alike) -> Intervals:
        """Return the intervals for alike rows: the intersection over each class of `alike`.

        The nominal row of a class is inside all its intervals.
        """
        return Intervals(
            _by_class(self.lower, alike.transitions, np.maximum),
            _by_class(self.upper, alike.transitions, np.minimum),
            _by_class(self.reward_lower, alike.rewards, np.maximum),
            _by_class(self.reward_upper, alike.rewards, np.minimum),
        )


def _around(
    nominal: Sequence[FloatArray],
    lower: Sequence[FloatArray],
    upper: Sequence[FloatArray],
    ranges: Sequence[tuple[float, float]],
    structure: Structure,
    label: Callable[[int], str],
    scopes: Sequence[Scope],
) -> tuple[tuple[FloatArray, ...], tuple[FloatArray, ...]]:
    """Return lower and upper ends of the factors of one kind, checked and widened by rounding."""
    if not len(lower) == len(upper) == len(nominal):
        raise InvalidModel(
            f"intervals for {len(lower)} and {len(upper)} factors; must be for {len(nominal)}"
        )
    ends: tuple[list[FloatArray], list[FloatArray]] = ([], [])
    for index, (middle, low, high) in enumerate(zip(nominal, lower, upper, strict=True)):
        if low.shape != middle.shape or high.shape != middle.shape:
            raise InvalidModel(
                f"{label(index)}: intervals of shape {list(low.shape)} and "
                f"{list(high.shape)}; must be {list(middle.shape)}"
            )
        least, most = ranges[index]
        slack = SLACK * max(most - least, abs(least), abs(most))
        inside = (low >= least - slack) & (high <= most + slack)
        inside &= (low <= middle + slack) & (middle <= high + slack)
        if not inside.all():
            row = int(np.argwhere(~inside)[0][0])
            raise InvalidModel(
                f"{label(index)}, {structure.row_label(scopes[index], row)}: interval "
                f"{np.atleast_1d(low[row]).tolist()} to {np.atleast_1d(high[row]).tolist()} must "
                f"lie in [{least!r}, {most!r}] and hold {np.atleast_1d(middle[row]).tolist()}"
            )
        ends[0].append(np.maximum(np.minimum(low, middle), least))
        ends[1].append(np.minimum(np.maximum(high, middle), most))
    return tuple(ends[0]), tuple(ends[1])


def _by_class(
    tables: Sequence[FloatArray], classes: Sequence[IndexArray], narrower: np.ufunc
) -> tuple[FloatArray, ...]:
    """Return the tables with every row replaced by the narrowest of its class."""
    narrowed = [table.copy() for table in tables]
    for width in {table.shape[1:] for table in tables}:
        factors = [f for f, table in enumerate(tables) if table.shape[1:] == width]
        rows = np.concatenate([tables[f] for f in factors])
        numbers = np.concatenate([classes[f] for f in factors])
        distinct, first = np.unique(numbers, return_index=True)
        place = np.searchsorted(distinct, numbers)
        narrowest = rows[first]
        narrower.at(narrowest, place, rows)
        starts = np.cumsum([0, *(len(tables[f]) for f in factors)])
        for f, start in zip(factors, starts, strict=False):
            narrowed[f] = narrowest[place[start : start + len(tables[f])]]
    return tuple(narrowed)


def _table(given: Any, label: str) -> FloatArray:
    array = array_of(given)
    if array.dtype.kind not in "biuf" or array.ndim not in (1, 2):
        raise InvalidModel(f"{label}: must be tables of numbers")
    table: FloatArray = np.ascontiguousarray(array, dtype=np.float64) + 0.0
    if not np.isfinite(table).all():
        raise InvalidModel(f"{label}: has an entry that is no finite number")
    table.flags.writeable = False
    return table
