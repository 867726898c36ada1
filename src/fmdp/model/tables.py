"""The tables of a model as they are handed over: checked, made distributions, brought in order.

Rows of a transition table may miss 1 by at most ROW_TOLERANCE and are then divided by their sum;
rows that are distributions up to rounding are left alone to the last bit. Rows that are known to be
alike become one row. A scope may be given in any order; tables, classes and intervals are
rearranged to the sorted one together. Every flaw is one line that names the factor and the row.
Cost: a pass or two over a table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from fmdp.errors import InvalidModel, UnknownName
from fmdp.model import afterstates
from fmdp.model.alike import Alike, first_of_class
from fmdp.model.intervals import Intervals
from fmdp.model.spaces import FloatArray, count, items, shown, strides, weighted_index, whole_number
from fmdp.model.structure import Structure, members

ROW_TOLERANCE = 1e-9
"""How far a given row may miss 1, and (relative to the range's size) a mean its range."""


def pairs_of(factors: Any, what: str) -> list[tuple[Any, Any]]:
    """(scope, table) of every factor."""
    pairs: list[tuple[Any, Any]] = []
    for index, factor in enumerate(items(factors, f"the {what}s")):
        parts = items(factor, f"{what} {index}, a pair (scope, table),")
        if len(parts) != 2:
            raise InvalidModel(f"{what} {index} has {len(parts)} parts; must be (scope, table)")
        pairs.append((parts[0], parts[1]))
    return pairs


def negated(table: npt.ArrayLike, label: str) -> FloatArray:
    try:
        return -np.asarray(table, dtype=np.float64) + 0.0
    except (TypeError, ValueError):
        raise InvalidModel(f"{label}: the table has entries that are not numbers") from None


def range_of(table: npt.ArrayLike) -> tuple[float, float]:
    """(0, 1) where the means lie there, else from the least to the largest; what is no table of
    numbers is refused where it is read."""
    try:
        means = np.asarray(table, dtype=np.float64)
        slack = ROW_TOLERANCE
        if means.size and np.isfinite(means).all():
            lo, hi = float(means.min()) + 0.0, float(means.max()) + 0.0
            if not (-slack <= lo and hi <= 1.0 + slack):
                return lo, hi
    except (TypeError, ValueError):
        pass
    return 0.0, 1.0


def as_distributions(table: FloatArray, row_label: Callable[[int], str]) -> FloatArray:
    """The table [rows, values] with rows that are distributions, or InvalidModel on a bad row.

    Dividing n numbers by their computed sum leaves a computed sum within n * 2^-52 of 1 (to first
    order). Rows twice as near as that are not touched, which makes the function idempotent.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        totals = table.sum(axis=1)
        off = np.abs(totals - 1.0)
        fine = bool((table >= 0.0).all()) and bool((off <= ROW_TOLERANCE).all())
        if not fine:
            _name_bad_row(table, totals, off, row_label)
    inexact = off > 2 * table.shape[1] * np.finfo(np.float64).eps
    if inexact.any():
        table[inexact] /= totals[inexact, None]
    return table


def _name_bad_row(
    table: FloatArray, totals: FloatArray, off: FloatArray, row_label: Callable[[int], str]
) -> None:
    entries = np.isfinite(table) & (table >= 0.0)
    bad = ~entries.all(axis=1) | ~(off <= ROW_TOLERANCE)
    row = int(bad.argmax())
    more = int(bad.sum()) - 1
    others = f" (and {more} more bad row{'s' if more > 1 else ''})" if more else ""
    if entries[row].all():
        raise InvalidModel(
            f"{row_label(row)}: sums to {float(totals[row])!r}; must sum to 1 within "
            f"{ROW_TOLERANCE:g}{others}"
        )
    value = int((~entries[row]).argmax())
    raise InvalidModel(
        f"{row_label(row)}: probability of value {value} is {float(table[row, value])!r}; "
        f"must be a finite number, at least 0{others}"
    )


ALIKE_TOLERANCE = 1e-12
"""How far rows of one class may differ, as computed rows do; they then become one row."""


def make_equal(
    structure: Structure,
    tables: Sequence[FloatArray],
    classes: Sequence[npt.NDArray[np.int64]],
    scopes: Sequence[Sequence[int]],
    of_rewards: bool,
) -> None:
    """Every row becomes the first of its class, or InvalidModel where it is another row.

    Of the tables of all factors, `of_rewards` or else of transitions, with one or more numbers a
    row.
    """
    label = structure.reward_label if of_rewards else structure.transition_label
    rows: list[npt.NDArray[np.float64]] = [table.reshape(len(table), -1) for table in tables]
    for width in sorted({table.shape[1] for table in rows}):
        own = [i for i, table in enumerate(rows) if table.shape[1] == width]
        together = np.concatenate([rows[i] for i in own])
        source = first_of_class([classes[i] for i in own])
        wanted = together[source]
        off = np.abs(together - wanted).max(axis=1, initial=0.0)
        size = np.maximum(1.0, np.abs(wanted).max(axis=1, initial=0.0)) if of_rewards else 1.0
        bad = off > ALIKE_TOLERANCE * size
        if bad.any():
            worst = int(bad.argmax())
            places = [
                f"{label(i)}, {structure.row_label(scopes[i], row)}"
                for i, row in (
                    _factor_of_row(own, [len(rows[i]) for i in own], at)
                    for at in (worst, int(source[worst]))
                )
            ]
            raise InvalidModel(
                f"{places[0]}: is {together[worst].tolist()}, and {places[1]}, which is of its "
                f"class, is {wanted[worst].tolist()}; rows of one class must be equal"
            )
        if (off > 0.0).any():
            start = 0
            for i in own:
                tables[i].flags.writeable = True
                tables[i][...] = wanted[start : start + len(rows[i])].reshape(tables[i].shape)
                tables[i].flags.writeable = False
                start += len(rows[i])


def _factor_of_row(factors: Sequence[int], rows: Sequence[int], at: int) -> tuple[int, int]:
    """The factor and its row at a place where the rows of some factors lie end to end."""
    for factor, n in zip(factors, rows, strict=True):
        if at < n:
            return factor, at
        at -= n
    raise IndexError(at)


def sorted_alike(
    alike: Alike | None, variables: Structure, scopes: Sequence[tuple[int, ...]]
) -> Alike | None:
    if not isinstance(alike, Alike):
        return alike  # the structure says what is wrong with it
    given = alike.transitions + alike.rewards
    if len(given) != len(scopes):
        return alike
    for scope, own in zip(scopes, given, strict=True):
        if len(own) != count(variables.scope_sizes(scope)):
            return alike
    rows = [sort_rows(variables.sizes, s, own) for s, own in zip(scopes, given, strict=True)]
    return Alike(tuple(rows[: variables.m]), tuple(rows[variables.m :]))


def sorted_intervals(
    intervals: Intervals | None, variables: Structure, scopes: Sequence[tuple[int, ...]]
) -> Intervals | None:
    if not isinstance(intervals, Intervals):
        return intervals  # refused where it is compared with the tables
    sorted_tables: list[tuple[FloatArray, ...]] = []
    for tables, own in zip(
        intervals.arrays(),
        (scopes[: variables.m],) * 2 + (scopes[variables.m :],) * 2,
        strict=True,
    ):
        if [len(table) for table in tables] != [count(variables.scope_sizes(s)) for s in own]:
            return intervals
        sorted_tables.append(
            tuple(sort_rows(variables.sizes, s, t) for s, t in zip(own, tables, strict=True))
        )
    return Intervals(*sorted_tables)


Numbers = TypeVar("Numbers", bound=np.generic)


def sort_rows(
    sizes: Sequence[int], scope: Sequence[int], table: npt.NDArray[Numbers]
) -> npt.NDArray[Numbers]:
    """Rows in the order of `scope` (any order) rearranged to the order of the sorted scope."""
    if list(scope) == sorted(scope):
        return table
    step_of = dict(zip(scope, strides([sizes[v] for v in scope]), strict=True))
    in_order = sorted(scope)
    source = weighted_index([sizes[v] for v in in_order], [step_of[v] for v in in_order])
    rearranged: npt.NDArray[Numbers] = table[source]
    return rearranged


def scope_numbers(structure: Structure, scope: Iterable[int | str], label: str) -> tuple[int, ...]:
    numbers: list[int] = []
    n_variables = len(structure.sizes)
    for variable in members(scope, f"{label}: scope"):
        if isinstance(variable, str):
            try:
                number: int | None = structure.variable(variable)
            except UnknownName as error:
                raise InvalidModel(f"{label}: {error}") from None
        else:
            number = whole_number(variable)
        if number is None or not 0 <= number < n_variables:
            raise InvalidModel(
                f"{label}: variable {shown(variable)} must be in 0..{n_variables - 1} or a name"
            )
        if number in numbers:
            raise InvalidModel(
                f'{label}: variable {number} ("{structure.names[number]}") occurs twice; '
                f"must occur once"
            )
        numbers.append(number)
    return tuple(numbers)


def table_rows(
    structure: Structure,
    scope: Sequence[int],
    table: npt.ArrayLike,
    columns: tuple[int, ...],
    label: str,
) -> FloatArray:
    """A table of numbers as a fresh C-contiguous [rows, *columns] array."""
    try:
        array = np.asarray(table)
    except ValueError:
        raise InvalidModel(f"{label}: the rows of the table must all have one length") from None
    if array.dtype.kind not in "biuf":
        raise InvalidModel(f"{label}: the table has entries that are not numbers")
    sizes = structure.scope_sizes(scope)
    shapes = ((count(sizes), *columns), (*sizes, *columns))
    if array.shape not in shapes:
        allowed = " or ".join(
            f"[{', '.join(map(shown, shape))}]" for shape in dict.fromkeys(shapes)
        )
        raise InvalidModel(
            f"{label}: the table has shape {list(array.shape)}; must be {allowed}, "
            f"for scope ({', '.join(structure.names[v] for v in scope)})"
        )
    # + 0.0 copies and turns -0.0 into 0.0, which content_hash would tell apart.
    fresh: FloatArray = np.ascontiguousarray(array.reshape(shapes[0]), dtype=np.float64) + 0.0
    return fresh


def given_factor(
    variables: Structure, scope: tuple[int, ...], rows: FloatArray
) -> afterstates.GivenFactor:
    """Rows over a scope in any order, brought into the order of the sorted scope."""
    in_order = sort_rows(variables.sizes, scope, rows)
    return afterstates.GivenFactor(tuple(sorted(scope)), in_order)


def transition_table(
    structure: Structure, i: int, scope: Sequence[int], table: npt.ArrayLike
) -> FloatArray:
    label = structure.transition_label(i)
    rows = table_rows(structure, scope, table, (structure.state_sizes[i],), label)
    as_distributions(rows, lambda row: f"{label}, {structure.row_label(scope, row)}")
    return rows


def reward_table(
    structure: Structure, k: int, scope: Sequence[int], table: npt.ArrayLike
) -> FloatArray:
    label = structure.reward_label(k)
    means = table_rows(structure, scope, table, (), label)
    lo, hi = structure.reward_ranges[k]
    slack = ROW_TOLERANCE * max(hi - lo, abs(lo), abs(hi))
    inside = (means >= lo - slack) & (means <= hi + slack)
    if not inside.all():
        row = int((~inside).argmax())
        more = int((~inside).sum()) - 1
        others = f" (and {more} more bad row{'s' if more > 1 else ''})" if more else ""
        raise InvalidModel(
            f"{label}, {structure.row_label(scope, row)}: mean is {float(means[row])!r}; "
            f"must be in its range [{lo!r}, {hi!r}]{others}"
        )
    np.clip(means, lo, hi, out=means)
    return means
