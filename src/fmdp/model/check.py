"""Findings about a model that is valid but may not be what was meant (`FactoredMDP.check`).

Everything is read off the tables, factor by factor, in time proportional to their sizes (times the
number of variables in a scope). With intervals, both ends count: a parent is read if an end depends
on it, and a move is possible if its upper end is positive.

What is found is true of the tables. What is not found may still hold: the values that can be
reached are a superset, and two actions may be equal for reasons that span several factors.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fmdp.model.builder import Contents
from fmdp.model.constraints import LinearCap
from fmdp.model.naming import quote
from fmdp.model.scopes import Scope
from fmdp.model.structure import Structure

Values = tuple[NDArray[np.int64], ...]


@dataclass(frozen=True)
class Finding:
    """One finding of `FactoredMDP.check`.

    Attributes
    ----------
    kind
        unread_parent, absorbing_value, unreachable_value, equal_factors, without_effect,
        constant_reward or equal_actions.
    where
        Name of the variable or reward factor.
    text
        A sentence for people.
    """

    kind: str
    where: str
    text: str

    def __str__(self) -> str:
        return self.text


class _Factor(NamedTuple):
    """A table of a model with its intervals: a transition, reward or derived factor."""

    name: str
    scope: Scope
    numbers: NDArray[Any]  # [rows, numbers of a row]
    read: Scope
    """The variables of the scope on which the numbers depend."""


def check_contents(contents: Contents) -> list[Finding]:
    """Return the findings about a model, in the order of its factors."""
    s = contents.structure
    transitions, rewards, derived = _factors(contents)
    needed = _needed(s, transitions, rewards, derived)
    return [
        *_unread(s, transitions, "transition factor"),
        *_unread(s, [f for f in rewards if f.read], "reward factor"),
        *_unread(s, derived, "derived variable"),
        *_absorbing(contents),
        *_unreachable(contents),
        *_equal(s, transitions, rewards, contents),
        *_constant(rewards),
        *_without_effect(s, needed),
        *_equal_actions(s, (*transitions, *rewards, *derived), needed),
    ]


def _factors(contents: Contents) -> tuple[list[_Factor], list[_Factor], list[_Factor]]:
    s, intervals = contents.structure, contents.intervals
    ends = ((), (), (), ()) if intervals is None else intervals.arrays()

    def factors(
        names: Sequence[str], scopes: Sequence[Scope], *tables: Sequence[NDArray[Any]]
    ) -> list[_Factor]:
        made = []
        for index, (name, scope) in enumerate(zip(names, scopes, strict=True)):
            parts = [kind[index].reshape(len(kind[index]), -1) for kind in tables if len(kind)]
            numbers = np.concatenate(parts, axis=1)
            made.append(_Factor(name, scope, numbers, _read(s, scope, numbers)))
        return made

    return (
        factors(s.state_names, s.transition_scopes, contents.transitions, *ends[:2]),
        factors(s.reward_names, s.reward_scopes, contents.rewards, *ends[2:]),
        factors(
            [d.name for d in s.derived], [d.scope for d in s.derived], [d.table for d in s.derived]
        ),
    )


def _read(s: Structure, scope: Scope, numbers: NDArray[Any]) -> Scope:
    cube = numbers.reshape(*(s.all_sizes[v] for v in scope), -1)
    return tuple(v for axis, v in enumerate(scope) if (cube != cube.take([0], axis=axis)).any())


def _name(s: Structure, v: int) -> str:
    return quote(s.names[v])


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


# ---- factors -------------------------------------------------------------------------------------


def _unread(s: Structure, factors: Sequence[_Factor], what: str) -> Iterator[Finding]:
    for factor in factors:
        unread = [v for v in factor.scope if v not in factor.read and s.all_sizes[v] > 1]
        if unread:
            names = _listed([_name(s, v) for v in unread])
            yield Finding(
                "unread_parent",
                factor.name,
                f"the {what} {quote(factor.name)} does not depend on {names}, which its scope has",
            )


def _constant(rewards: Sequence[_Factor]) -> Iterator[Finding]:
    for factor in rewards:
        if not factor.read:
            yield Finding(
                "constant_reward",
                factor.name,
                f"the reward factor {quote(factor.name)} is constant "
                f"({float(factor.numbers[0, 0]):g}): it changes every gain and no plan",
            )


def _equal(
    s: Structure, transitions: Sequence[_Factor], rewards: Sequence[_Factor], contents: Contents
) -> Iterator[Finding]:
    """Yield factors with equal tables whose rows are not declared alike."""
    varying = [k for k, factor in enumerate(rewards) if factor.read]
    own_place = [f.scope.index(i) if i in f.scope else None for i, f in enumerate(transitions)]
    kinds: tuple[tuple[str, Sequence[_Factor], Sequence[Hashable], Sequence[bytes]], ...] = (
        (
            "transition factors",
            transitions,
            own_place,
            [s.transition_classes_of(i).tobytes() for i in range(s.m)],
        ),
        (
            "reward factors",
            [rewards[k] for k in varying],
            [(s.reward_ranges[k], contents.noise[k]) for k in varying],
            [s.reward_classes_of(k).tobytes() for k in varying],
        ),
    )
    for what, factors, others, classes in kinds:
        groups: dict[Hashable, list[int]] = {}
        for index, (factor, other) in enumerate(zip(factors, others, strict=True)):
            sizes = tuple(s.all_sizes[v] for v in factor.scope)
            key = (sizes, other, factor.numbers.shape, factor.numbers.tobytes())
            groups.setdefault(key, []).append(index)
        for members in groups.values():
            if len({classes[index] for index in members}) > 1:
                names = [quote(factors[index].name) for index in members]
                yield Finding(
                    "equal_factors",
                    factors[members[0]].name,
                    f"the {what} {_listed(names)} have equal tables, and their rows are not "
                    f"declared alike",
                )


# ---- values --------------------------------------------------------------------------------------


def _absorbing(contents: Contents) -> Iterator[Finding]:
    s = contents.structure
    least = contents.transitions if contents.intervals is None else contents.intervals.lower
    for i, scope in enumerate(s.transition_scopes):
        size, name = s.sizes[i], s.state_names[i]
        cube = least[i].reshape(*(s.all_sizes[v] for v in scope), size)
        absorbing = []
        for value in range(size):
            certain = cube[..., value] == 1.0
            if (certain.take([value], axis=scope.index(i)) if i in scope else certain).all():
                absorbing.append(value)
        if size == 1 or not absorbing:
            continue
        values = _listed([quote(s.values[i][value]) for value in absorbing])
        text = f"{quote(name)} never changes: it keeps its initial value"
        if len(absorbing) < size:
            text = f"{quote(name)} never leaves {values}, whatever is done"
        yield Finding("absorbing_value", name, text)


def _unreachable(contents: Contents) -> Iterator[Finding]:
    s = contents.structure
    possible = contents.transitions if contents.intervals is None else contents.intervals.upper
    for i, reached in enumerate(reachable_values(s, contents.initial_state, possible)):
        missing = [v for v in range(s.sizes[i]) if v not in set(reached.tolist())]
        if missing:
            names = [quote(s.values[i][value]) for value in missing]
            shown = _listed(names) if len(names) <= 6 else f"{', '.join(names[:6])}, ..."
            yield Finding(
                "unreachable_value",
                s.state_names[i],
                f"{quote(s.state_names[i])} is never {shown} when it starts in the initial state",
            )


def reachable_values(
    s: Structure, initial_state: Sequence[int], tables: Sequence[NDArray[np.float64]]
) -> Values:
    """Return a superset of the values that each state variable can take, in increasing order.

    Starting with the initial state, a value is added when some action may lead to it while the
    parents have values added before. Variables that never change keep one value.
    """
    values = [np.array([value]) for value in initial_state]
    readers: list[list[int]] = [[] for _ in s.all_sizes]
    for j, scope in enumerate(s.transition_scopes):
        for v in scope:
            readers[v].append(j)
    pending = set(range(s.m))
    while pending:
        i = pending.pop()
        rows = rows_with(s, s.transition_scopes[i], values)
        possible = np.flatnonzero((tables[i][rows] > 0.0).any(axis=0))
        union = np.union1d(values[i], possible)
        if len(union) > len(values[i]):
            values[i] = union
            pending.update(readers[i])
    return tuple(values)


def rows_with(
    structure: Structure, scope: Scope, values: Sequence[NDArray[np.int64]]
) -> NDArray[np.int64]:
    """Return the rows of a table over the scope in which the state variables have these values.

    Actions and derived variables take all their values.
    """
    rows = np.zeros(1, dtype=np.int64)
    for v in scope:
        size = structure.all_sizes[v]
        taken = values[v] if v < structure.m else np.arange(size)
        rows = (rows[:, None] * size + taken[None, :]).ravel()
    return rows


# ---- effects -------------------------------------------------------------------------------------


def _needed(
    s: Structure,
    transitions: Sequence[_Factor],
    rewards: Sequence[_Factor],
    derived: Sequence[_Factor],
) -> set[int]:
    """Return the variables that rewards or constraints read, directly or through others."""
    pending = {v for factor in rewards for v in factor.read}
    pending |= {v for constraint in s.constraints for v in constraint.scope}
    needed: set[int] = set()
    n = len(s.sizes)
    while pending:
        v = pending.pop()
        needed.add(v)
        factor = transitions[v] if v < s.m else derived[v - n] if v >= n else None
        pending |= set(() if factor is None else factor.read) - needed
    return needed


def _without_effect(s: Structure, needed: set[int]) -> Iterator[Finding]:
    for v, name in enumerate((*s.state_names, *s.action_names)):
        if v not in needed:
            kind = "state" if v < s.m else "action"
            yield Finding(
                "without_effect",
                name,
                f"the {kind} variable {quote(name)} has no effect on any reward, now or later",
            )


def _costs_of(s: Structure, v: int) -> Iterator[NDArray[np.int64]]:
    """Yield the costs of the values of an action variable, one array for each cap on it."""
    for constraint in s.constraints:
        if isinstance(constraint, LinearCap) and v in constraint.actions:
            yield constraint.unit_costs(s.sizes)[constraint.actions.index(v)]


def _equal_actions(s: Structure, factors: Sequence[_Factor], needed: set[int]) -> Iterator[Finding]:
    """Yield values of an action variable between which no table and no constraint distinguishes."""
    for v in sorted(v for v in needed if s.m <= v < len(s.sizes)):
        slices: list[list[bytes]] = [[] for _ in range(s.sizes[v])]
        tables = [(factor.scope, factor.numbers) for factor in factors]
        tables += [
            (c.scope, c.forbidden_table(s.sizes))
            for c in s.constraints
            if not isinstance(c, LinearCap)
        ]
        for scope, numbers in tables:
            if v not in scope:
                continue
            cube = numbers.reshape(*(s.all_sizes[u] for u in scope), -1)
            for value, parts in enumerate(slices):
                parts.append(cube.take(value, axis=scope.index(v)).tobytes())
        for costs in _costs_of(s, v):
            for value, parts in enumerate(slices):
                parts.append(costs[value].tobytes())
        groups: dict[tuple[bytes, ...], list[str]] = {}
        for value, parts in enumerate(slices):
            groups.setdefault(tuple(parts), []).append(quote(s.values[v][value]))
        for names in groups.values():
            if len(names) > 1:
                yield Finding(
                    "equal_actions",
                    s.names[v],
                    f"the values {_listed(names)} of the action variable {quote(s.names[v])} "
                    f"never make a difference",
                )
