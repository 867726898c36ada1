"""Models of almost exchangeable parts, with the tables of the parts averaged.

    P(s' | s, a) = prod_i P_i(s'_i | x[Z_i]),   R(s, a) = sum_k R_k(x[Z_k])

In the averaged model the table of every part is the mean over all parts, with variables and values
of a shared action matched, so that the parts are exchangeable exactly. For any function h,

    |(P - P')h (s, a)| <= sum_i d_i D_i(h),   d_i = max over rows of the total variation distance,

where D_i(h) is the largest change of h along variable i: replace the laws of the next values one
after the other, and each replacement changes the mean of h by at most d_i D_i(h). Rewards differ by
at most the sum of the largest differences of their factors.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fmdp.errors import InvalidParameter
from fmdp.model.exchangeable.parts import Group, NotExchangeable
from fmdp.model.exchangeable.reading import Reader
from fmdp.model.exchangeable.search import Search
from fmdp.model.factored import FactoredMDP
from fmdp.model.naming import quote
from fmdp.model.structure import Structure

Table = NDArray[np.float64]

_OUTWARDS = 1.0 + 1e-12
"""Factor on differences and their sums, far above the rounding of computing them."""


class PartsOf(NamedTuple):
    """Parts to be averaged: variables by part and slot, and the values that address them."""

    variables: tuple[tuple[int, ...], ...]
    """[parts][slots]: state and action variables of each part."""
    selector: int | None = None
    """The shared action variable whose values address the parts, if there is one."""
    values: tuple[int, ...] = ()
    """[parts]: the value of the selector that addresses each part."""


@dataclass(frozen=True, eq=False)
class Averaged:
    """A model with averaged tables, and how far the tables of the given model are from it."""

    model: FactoredMDP
    transition_distances: tuple[float, ...]
    """For each state variable the largest total variation distance of two rows."""
    reward_differences: tuple[tuple[float, float], ...]
    """For each reward factor bounds on its given less its averaged means."""

    def error(self, changes: Sequence[float]) -> tuple[float, float]:
        """Return bounds on (R + P h)(s, a) of the given model less that of the averaged one.

        `changes` are upper bounds on the largest change of h along each state variable.
        """
        pairs = zip(self.transition_distances, changes, strict=True)
        chance = math.fsum(distance * change for distance, change in pairs)
        low = math.fsum(least for least, _ in self.reward_differences)
        high = math.fsum(most for _, most in self.reward_differences)
        return (low - chance) * _OUTWARDS, (high + chance) * _OUTWARDS


def almost_exchangeable(
    model: FactoredMDP, declared: Sequence[Sequence[str]] | None = None
) -> list[PartsOf]:
    """Return the groups of parts whose scopes match, whatever their tables; see `Search`.

    `declared` are groups of names of state variables, one per part. Raise InvalidParameter if there
    is no such group.
    """
    try:
        groups = _structural_groups(model, declared)
    except NotExchangeable as error:
        raise InvalidParameter(f"no parts can be averaged: {error}") from None
    if not groups:
        raise InvalidParameter("no parts can be averaged: no two parts have matching scopes")
    return [
        PartsOf(
            tuple(group.variables(part) for part in range(group.n_parts)),
            group.selector,
            tuple(value for (value,) in group.values),
        )
        for group in groups
    ]


def first_difference(model: FactoredMDP) -> str | None:
    """Return what differs between parts whose scopes match; None if there are no such parts."""
    try:
        groups = _structural_groups(model, None)
        if groups:
            Reader(model, groups).read(())
    except NotExchangeable as error:
        return str(error)
    return None


def _structural_groups(model: FactoredMDP, declared: Sequence[Sequence[str]] | None) -> list[Group]:
    """Return the groups of parts that look alike if all tables are uniform."""
    s = model.structure
    blank = FactoredMDP.trusted(
        s,
        [np.full_like(table, 1.0 / table.shape[1]) for table in model.transitions],
        [np.zeros_like(table) for table in model.rewards],
    )
    search = Search(blank)
    groups = search.candidates() if declared is None else search.declared(declared)
    inside = {v for group in groups for p in range(group.n_parts) for v in group.variables(p)}
    shared = [v for v in range(s.m, len(s.sizes)) if v not in inside]
    return [_with_selector(model, group, shared) for group in groups]


def _with_selector(model: FactoredMDP, group: Group, shared: Sequence[int]) -> Group:
    """Return the group with the shared action that addresses its parts, if there is one."""
    variables = [group.variables(part) for part in range(group.n_parts)]
    for action in shared:
        values = addressing_values(model, variables, action)
        if values is not None:
            return Group(group.states, group.actions, action, tuple((v,) for v in values))
    return group


def averaged(model: FactoredMDP, groups: Sequence[PartsOf]) -> Averaged:
    """Return the model with the tables of all parts of each group averaged.

    Raise InvalidParameter if the scopes of two parts do not match. Tables over several parts are
    left as they are.
    """
    s = model.structure
    tables = [*model.transitions, *model.rewards]
    for group in groups:
        _average(s, group, tables)
    means = tables[s.m :]
    ranges = [
        (min(low, float(mean.min())), max(high, float(mean.max())))
        for (low, high), mean in zip(s.reward_ranges, means, strict=True)
    ]
    result = FactoredMDP(
        s.with_ranges(ranges), tables[: s.m], means, initial_state=model.initial_state
    )
    return Averaged(
        result,
        tuple(map(_distance, model.transitions, result.transitions)),
        tuple(map(_difference, model.rewards, result.rewards)),
    )


def _distance(given: Table, mean: Table) -> float:
    """Return an upper bound on the total variation distance of two rows."""
    return float(0.5 * np.abs(given - mean).sum(axis=1).max(initial=0.0)) * _OUTWARDS


def _difference(given: Table, mean: Table) -> tuple[float, float]:
    difference = given - mean
    low, high = float(difference.min(initial=0.0)), float(difference.max(initial=0.0))
    return low * _OUTWARDS, high * _OUTWARDS


class _Local(NamedTuple):
    """A factor of one part: its number among all factors, and its variables in local order."""

    factor: int
    part: int
    slots: tuple[int, ...]
    shared: tuple[int, ...]


def _average(s: Structure, group: PartsOf, tables: list[Table]) -> None:
    """Average the tables of one group in place."""
    place = {
        v: (part, slot)
        for part, variables in enumerate(group.variables)
        for slot, v in enumerate(variables)
    }
    scopes = [*s.transition_scopes, *s.reward_scopes]
    alike: dict[object, dict[int, list[_Local]]] = defaultdict(lambda: defaultdict(list))
    for factor, scope in enumerate(scopes):
        parts = {place[v][0] for v in scope if v in place}
        is_transition = factor < s.m
        if is_transition and factor in place:
            parts.add(place[factor][0])
        if not parts:
            _average_values(s, group, scope, factor, tables)
        elif len(parts) == 1 and (not is_transition or factor in place):
            local = _Local(
                factor,
                parts.pop(),
                tuple(sorted(place[v][1] for v in scope if v in place)),
                tuple(v for v in scope if v not in place),
            )
            number = place[factor][1] if is_transition else -1
            alike[number, local.slots, local.shared][local.part].append(local)
    for by_part in alike.values():
        _check_matched(s, group, by_part)
        for order in range(len(next(iter(by_part.values())))):
            _average_factors(s, group, [locals_[order] for locals_ in by_part.values()], tables)


def _check_matched(s: Structure, group: PartsOf, by_part: Mapping[int, list[_Local]]) -> None:
    """Raise InvalidParameter unless every part has as many factors of this form."""
    numbers = [len(by_part.get(part, ())) for part in range(len(group.variables))]
    if len(set(numbers)) == 1:
        return
    most, least = int(np.argmax(numbers)), int(np.argmin(numbers))
    factor = by_part[most][0].factor
    label = s.transition_label(factor) if factor < s.m else s.reward_label(factor - s.m)
    first, second = (quote(s.names[group.variables[part][0]]) for part in (most, least))
    raise InvalidParameter(
        f"{label}, of the part of {first}, has no counterpart in the part of {second}: "
        f"parts with different scopes cannot be averaged"
    )


def _average_values(
    s: Structure, group: PartsOf, scope: Sequence[int], factor: int, tables: list[Table]
) -> None:
    """Average a table of no part over the values of the selector that address parts."""
    if group.selector is None or group.selector not in scope:
        return
    shape = tables[factor].shape
    table = tables[factor].reshape([*s.scope_sizes(scope), -1]).copy()
    rows = np.moveaxis(table, list(scope).index(group.selector), 0)
    rows[list(group.values)] = rows[list(group.values)].mean(axis=0)
    tables[factor] = table.reshape(shape)


def _average_factors(
    s: Structure, group: PartsOf, factors: Sequence[_Local], tables: list[Table]
) -> None:
    """Replace the tables of matching factors, one per part, by their mean."""
    shared = factors[0].shared
    selector = shared.index(group.selector) if group.selector in shared else None
    n = len(factors)
    total: Any = 0.0
    for local in factors:
        view = _local_view(s, group, local, tables[local.factor])
        total = total + (view if selector is None else _by_meaning(group, local, view, selector))
    mean = total / n
    for local in factors:
        table = tables[local.factor].copy()
        view = _local_view(s, group, local, table)
        if selector is None:
            view[...] = mean
        else:
            axis = len(local.slots) + selector
            rows, means = np.moveaxis(view, axis, 0), np.moveaxis(mean, axis, 0)
            rows[_free_values(group, len(rows))] = means[2:]
            rows[list(group.values)] = means[1]
            rows[group.values[local.part]] = means[0]
        tables[local.factor] = table


def _local_view(s: Structure, group: PartsOf, local: _Local, table: Table) -> Table:
    """Return a view of a table, [variables by slot, shared variables, outcomes]."""
    scope = s.transition_scopes[local.factor] if local.factor < s.m else None
    if scope is None:
        scope = s.reward_scopes[local.factor - s.m]
    order = [group.variables[local.part][slot] for slot in local.slots] + list(local.shared)
    shaped = table.reshape([*s.scope_sizes(scope), -1])
    return shaped.transpose([*(scope.index(v) for v in order), len(scope)])


def _free_values(group: PartsOf, size: int) -> list[int]:
    """Return the values of the selector that address no part."""
    taken = set(group.values)
    return [value for value in range(size) if value not in taken]


def _by_meaning(group: PartsOf, local: _Local, view: Table, selector: int) -> Table:
    """Return the table with the values of the selector by what they mean: this part is addressed,
    another one is (the mean over all others), and the values that address no part."""
    axis = len(local.slots) + selector
    rows = np.moveaxis(view, axis, 0)
    this = group.values[local.part]
    others = [value for value in group.values if value != this]
    kept = rows[_free_values(group, len(rows))]
    meanings = np.concatenate([rows[this][None], rows[others].mean(axis=0)[None], kept])
    return np.moveaxis(meanings, 0, axis)


def addressing_values(
    model: FactoredMDP, variables: Sequence[Sequence[int]], selector: int
) -> tuple[int, ...] | None:
    """Return the value of a shared action that addresses each part, None if it addresses none.

    It is the value whose rows are farthest from those that are usual in the part, if this is
    another one for every part.
    """
    s = model.structure
    values = []
    for part in variables:
        distances = np.zeros(s.sizes[selector])
        for i in part:
            scope = s.transition_scopes[i] if i < s.m else ()
            if selector in scope:
                table = model.transitions[i].reshape([*s.scope_sizes(scope), -1])
                rows = np.moveaxis(table, scope.index(selector), 0).reshape(len(distances), -1)
                distances += np.abs(rows - np.median(rows, axis=0)).sum(axis=1)
        if not distances.any():
            return None
        values.append(int(distances.argmax()))
    return tuple(values) if len(set(values)) == len(values) else None
