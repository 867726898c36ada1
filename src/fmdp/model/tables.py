"""Checks of the tables of a model: normalised rows, in the order of sorted scopes.

Rows of a transition table may miss the sum 1 by at most ROW_TOLERANCE and are then divided by their
sum. Rows that are distributions up to rounding are not changed, so that making a model from the
tables of a model changes nothing. Rows that are known to be alike become equal. Scopes may be given
in any order; tables, classes and intervals are then rearranged together. Error messages name the
factor and the row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from fmdp.errors import InvalidModel
from fmdp.model.alike import Alike, first_of_class
from fmdp.model.intervals import Intervals
from fmdp.model.spaces import FloatArray, count, items, shown, strides, weighted_index
from fmdp.model.structure import Structure

ROW_TOLERANCE = 1e-9
"""Largest error of the sum of a row, and of a mean outside its range relative to the range."""
ALIKE_TOLERANCE = 1e-12
"""Largest difference of rows of one class, for rounding errors; the rows then become equal."""

Numbers = TypeVar("Numbers", bound=np.generic)


class GivenFactor(NamedTuple):
    """A table over a sorted scope."""

    scope: tuple[int, ...]
    table: FloatArray


def pairs_of(factors: Any, what: str) -> list[tuple[Any, Any]]:
    """Return (scope, table) of every factor, or raise InvalidModel if one is no pair."""
    listed = items(factors, f"the {what}s")
    return [parts_of(factor, f"{what} {k}", "scope, table") for k, factor in enumerate(listed)]


def parts_of(given: Any, what: str, names: str) -> Any:
    """Return the parts with these names, joined by commas, or raise InvalidModel."""
    try:
        parts = items(given, what)
    except InvalidModel:
        raise InvalidModel(f"{what} must be ({names}); got {shown(given)}") from None
    if len(parts) != names.count(",") + 1:
        raise InvalidModel(f"{what} has {len(parts)} parts; must be ({names})")
    return parts


def negated(table: npt.ArrayLike, label: str) -> FloatArray:
    """Return the rewards of a table of costs."""
    try:
        return -np.asarray(table, dtype=np.float64) + 0.0
    except (TypeError, ValueError):
        raise InvalidModel(f"{label}: the table has entries that are not numbers") from None


def range_of(table: npt.ArrayLike) -> tuple[float, float]:
    """Return the default range of a reward factor: (0, 1) if it holds the means, else their span.

    Tables that are not numbers get (0, 1) here; they are refused when they are read.
    """
    try:
        means = np.asarray(table, dtype=np.float64)
        if means.size and np.isfinite(means).all():
            lo, hi = float(means.min()) + 0.0, float(means.max()) + 0.0
            if not (lo >= -ROW_TOLERANCE and hi <= 1.0 + ROW_TOLERANCE):
                return lo, hi
    except (TypeError, ValueError):
        pass
    return 0.0, 1.0


def as_distributions(table: FloatArray, row_label: Callable[[int], str]) -> FloatArray:
    """Normalise the rows of a table [rows, values] in place, or raise InvalidModel on a bad row.

    Dividing n numbers by their computed sum leaves a computed sum within n * 2^-52 of 1 (to first
    order). Rows within twice that are not touched, which makes the function idempotent.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        totals = table.sum(axis=1)
        off = np.abs(totals - 1.0)
        fine = bool((table >= 0.0).all()) and bool((off <= ROW_TOLERANCE).all())
        if not fine:
            _refuse_bad_row(table, totals, off, row_label)
    inexact = off > 2 * table.shape[1] * np.finfo(np.float64).eps
    if inexact.any():
        table[inexact] /= totals[inexact, None]
    return table


def _refuse_bad_row(
    table: FloatArray, totals: FloatArray, off: FloatArray, row_label: Callable[[int], str]
) -> None:
    entries = np.isfinite(table) & (table >= 0.0)
    bad = ~entries.all(axis=1) | ~(off <= ROW_TOLERANCE)
    row = int(bad.argmax())
    if entries[row].all():
        raise InvalidModel(
            f"{row_label(row)}: sums to {float(totals[row])!r}; must sum to 1 within "
            f"{ROW_TOLERANCE:g}{_other_rows(bad)}"
        )
    value = int((~entries[row]).argmax())
    raise InvalidModel(
        f"{row_label(row)}: probability of value {value} is {float(table[row, value])!r}; "
        f"must be a finite number, at least 0{_other_rows(bad)}"
    )


def _other_rows(bad: npt.NDArray[np.bool_]) -> str:
    more = int(bad.sum()) - 1
    return f" (and {more} more bad row{'s' if more > 1 else ''})" if more else ""


def make_equal(
    structure: Structure, tables: Sequence[FloatArray], of_rewards: bool = False
) -> list[FloatArray]:
    """Return the tables of all factors with every row equal to the first row of its class.

    Tables have one or more numbers per row. Raise InvalidModel if rows of one class differ by more
    than ALIKE_TOLERANCE.
    """
    s = structure
    equal = list(tables)
    if s.alike is None:
        return equal
    classes = s.alike.rewards if of_rewards else s.alike.transitions
    rows: list[npt.NDArray[np.float64]] = [table.reshape(len(table), -1) for table in tables]
    for width in sorted({table.shape[1] for table in rows}):
        factors = [f for f, table in enumerate(rows) if table.shape[1] == width]
        together = np.concatenate([rows[f] for f in factors])
        source = first_of_class([classes[f] for f in factors])
        wanted = together[source]
        off = np.abs(together - wanted).max(axis=1, initial=0.0)
        size = np.maximum(1.0, np.abs(wanted).max(axis=1, initial=0.0)) if of_rewards else 1.0
        bad = off > ALIKE_TOLERANCE * size
        starts = np.cumsum([0, *(len(rows[f]) for f in factors)])
        if bad.any():
            worst = int(bad.argmax())
            labels = []
            for at in (worst, int(source[worst])):
                place = int(np.searchsorted(starts, at, side="right")) - 1
                labels.append(_row_label(s, factors[place], at - int(starts[place]), of_rewards))
            raise InvalidModel(
                f"{labels[0]}: is {together[worst].tolist()}, and {labels[1]}, which is of its "
                f"class, is {wanted[worst].tolist()}; rows of one class must be equal"
            )
        for f, start in zip(factors, starts.tolist(), strict=False):
            if (off[start : start + len(rows[f])] > 0.0).any():
                equal[f] = wanted[start : start + len(rows[f])].reshape(tables[f].shape).copy()
    return equal


def _row_label(s: Structure, factor: int, row: int, of_rewards: bool) -> str:
    if of_rewards:
        return f"{s.reward_label(factor)}, {s.row_label(s.reward_scopes[factor], row)}"
    return f"{s.transition_label(factor)}, {s.row_label(s.transition_scopes[factor], row)}"


def sorted_alike(
    alike: Alike | None, variables: Structure, scopes: Sequence[tuple[int, ...]]
) -> Alike | None:
    """Return classes for the sorted scopes; what does not fit is returned for the later checks."""
    if not isinstance(alike, Alike):
        return alike
    given = alike.transitions + alike.rewards
    if list(map(len, given)) != [count(variables.scope_sizes(scope)) for scope in scopes]:
        return alike
    rows = [sort_rows(variables.all_sizes, z, row) for z, row in zip(scopes, given, strict=True)]
    return Alike(tuple(rows[: variables.m]), tuple(rows[variables.m :]))


def sorted_intervals(
    intervals: Intervals | None, variables: Structure, scopes: Sequence[tuple[int, ...]]
) -> Intervals | None:
    """Return intervals for the sorted scopes; what does not fit is returned for later checks."""
    if not isinstance(intervals, Intervals):
        return intervals
    sorted_tables: list[tuple[FloatArray, ...]] = []
    for tables, scopes_of in zip(
        intervals.arrays(),
        (scopes[: variables.m],) * 2 + (scopes[variables.m :],) * 2,
        strict=True,
    ):
        if [len(table) for table in tables] != [count(variables.scope_sizes(z)) for z in scopes_of]:
            return intervals
        pairs = zip(scopes_of, tables, strict=True)
        sorted_tables.append(tuple(sort_rows(variables.all_sizes, z, t) for z, t in pairs))
    return Intervals(*sorted_tables)


def sort_rows(
    sizes: Sequence[int], scope: Sequence[int], table: npt.NDArray[Numbers]
) -> npt.NDArray[Numbers]:
    """Return rows in the order of `scope` rearranged to the order of the sorted scope."""
    if list(scope) == sorted(scope):
        return table
    step_of = dict(zip(scope, strides([sizes[v] for v in scope]), strict=True))
    in_order = sorted(scope)
    source = weighted_index([sizes[v] for v in in_order], [step_of[v] for v in in_order])
    rearranged: npt.NDArray[Numbers] = table[source]
    return rearranged


def sorted_factor(variables: Structure, scope: tuple[int, ...], rows: FloatArray) -> GivenFactor:
    """Return rows over a scope in any order as a factor over the sorted scope."""
    return GivenFactor(tuple(sorted(scope)), sort_rows(variables.all_sizes, scope, rows))


def table_rows(
    structure: Structure,
    scope: Sequence[int],
    table: npt.ArrayLike,
    columns: tuple[int, ...],
    label: str,
) -> FloatArray:
    """Return a table of numbers as a fresh C-contiguous [rows, *columns] array."""
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


def transition_table(
    structure: Structure, i: int, scope: Sequence[int], table: npt.ArrayLike
) -> FloatArray:
    """Return the table of a transition factor, over a scope in any order, as distributions."""
    label = structure.transition_label(i)
    rows = table_rows(structure, scope, table, (structure.state_sizes[i],), label)
    return as_distributions(rows, lambda row: f"{label}, {structure.row_label(scope, row)}")


def reward_table(
    structure: Structure, k: int, scope: Sequence[int], table: npt.ArrayLike
) -> FloatArray:
    """Return the means of a reward factor, over a scope in any order, inside its range."""
    label = structure.reward_label(k)
    means = table_rows(structure, scope, table, (), label)
    lo, hi = structure.reward_ranges[k]
    slack = ROW_TOLERANCE * max(hi - lo, abs(lo), abs(hi))
    outside = ~((means >= lo - slack) & (means <= hi + slack))
    if outside.any():
        row = int(outside.argmax())
        raise InvalidModel(
            f"{label}, {structure.row_label(scope, row)}: mean is {float(means[row])!r}; "
            f"must be in its range [{lo!r}, {hi!r}]{_other_rows(outside)}"
        )
    np.clip(means, lo, hi, out=means)
    return means
