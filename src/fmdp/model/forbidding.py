"""Constraints by name: forbidden combinations, variables that keep apart, caps and budgets.

A *rule* is a forbidden partial assignment by name:

    forbid(model, {"crew_1": "P1", "crew_2": "P1"})          the two crews are not both on P1
    forbid(model, {"stock": ["8", "9"], "order": "many"})    no large order with a full store
    apart(model, ["crew_1", "crew_2"], besides="rest")       never on one pump, together at rest
    at_most(model, 2, ["repair_1", "repair_2", "repair_3"])  two repairs at a time
    budget(model, 8, {"repair_1": {"clean": 1, "renew": 5}, "repair_2": {"clean": 2, "renew": 6}})

Each returns one constraint (constraints.py) for the variables of a structure or a model, which
`FactoredMDP.with_constraints` adds and checks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from fmdp.errors import InvalidModel, TooLarge, did_you_mean
from fmdp.model.conditions import value_of
from fmdp.model.constraints import (
    MOST_ROWS,
    AtMost,
    Budget,
    Forbidden,
    Mask,
    check_name,
    checked_cost,
)
from fmdp.model.naming import listed
from fmdp.model.spaces import count, items, shown, whole_number
from fmdp.model.structure import Structure, check_structure

Rule = Mapping[Any, Any]
"""Variable, by name or by number -> value, or a list of values any of which will do."""


class HasStructure(Protocol):
    """A model."""

    @property
    def structure(self) -> Structure:
        """Its structure."""


def constraint_from_rules(
    structure: Structure | HasStructure, rules: Iterable[Rule], name: str = ""
) -> Forbidden:
    """Return the constraint that forbids every assignment that fits one of the rules.

    Parameters
    ----------
    structure
        The structure or model whose variables the rules name.
    rules
        Each a mapping from variables, by name or by number, to a value, or to a list of values any
        of which will do. A value is given as it was listed, or by its name: for a variable with
        the values 1, 2, 3, the number 1 is the value 1. Each rule must name an action variable.
    name
        Name of the constraint in error messages.

    Returns
    -------
    Forbidden
        Its scope is all variables that the rules name.

    Raises
    ------
    InvalidModel
        If there is no rule, or one names an unknown variable or value; the message has its number.
    TooLarge
        If the variables that the rules name have too many joint values.
    """
    s = _structure(structure)
    label = _label(name, "constraint")
    read: list[dict[int, list[int]]] = []
    for index, rule in enumerate(items(rules, f"{label}: rules")):
        where = f"{label}, rule {index}"
        if not isinstance(rule, Mapping):
            raise InvalidModel(
                f"{where} is {shown(rule)}; must be a mapping from variables to values"
            )
        fits = {}
        for key, wanted in rule.items():
            variable = _variable(s, key, where)
            if variable in fits:
                raise InvalidModel(f'{where}: "{s.names[variable]}" is there twice')
            fits[variable] = _values(s, variable, wanted, where)
        if not any(variable >= s.m for variable in fits):
            raise InvalidModel(
                f"{where} {shown(dict(rule))} names no action variable, so it would forbid every "
                f"action; must name one of {', '.join(s.action_names)}"
            )
        read.append(fits)
    if not read:
        raise InvalidModel(f"{label} has no rule; must have at least one")
    scope = tuple(sorted({variable for fits in read for variable in fits}))
    sizes = s.scope_sizes(scope)
    if count(sizes) > MOST_ROWS:
        raise TooLarge(
            f"{label}: its rules speak of variables with {shown(count(sizes))} joint values; at "
            f"most {MOST_ROWS} in one constraint: make several of it",
            count(sizes),
            MOST_ROWS,
        )
    forbidden: Mask = np.zeros(sizes, dtype=np.bool_)
    for fits in read:
        place = [fits.get(v, range(s.sizes[v])) for v in scope]
        forbidden[np.ix_(*map(list, place))] = True
    return Forbidden(scope, forbidden.reshape(-1), name)


def forbid(structure: Structure | HasStructure, *rules: Rule, name: str = "") -> Forbidden:
    """Return a constraint that forbids combinations of values; each rule forbids one.

    `structure`, `rules` and `name` are those of `constraint_from_rules`.
    """
    return constraint_from_rules(structure, rules, name)


def apart(
    structure: Structure | HasStructure,
    variables: Sequence[int | str],
    *,
    besides: object = (),
    name: str = "",
) -> Forbidden:
    """Return a constraint that no two of these variables have the same value.

    Parameters
    ----------
    structure
        The structure or model of the variables.
    variables
        Two or more, by name or by number, at least one of them an action variable; values are
        compared by name.
    besides
        A value, or a list of values, that several variables may have at once.
    name
        Name of the constraint in error messages.

    Raises
    ------
    InvalidModel
        If there are fewer than two, one does not exist, or no two of them share a value.
    """
    s = _structure(structure)
    label = _label(name, "constraint")
    numbers = [_variable(s, v, label) for v in items(variables, f"{label}: variables")]
    if len(set(numbers)) != len(numbers) or len(numbers) < 2:
        raise InvalidModel(
            f"{label}: {shown(list(variables))} must be two or more different variables"
        )
    free = {str(value) for value in values_listed(besides)}
    known = {value for v in numbers for value in s.values[v]}
    for value in free - known:
        raise InvalidModel(
            f'{label}: besides "{value}", which is a value of none of its variables'
            f"{did_you_mean(value, known)}"
        )
    rules = [
        {a: value, b: value}
        for place, a in enumerate(numbers)
        for b in numbers[place + 1 :]
        if max(a, b) >= s.m
        for value in sorted(set(s.values[a]) & set(s.values[b]) - free)
    ]
    if not rules:
        raise InvalidModel(
            f"{label}: {', '.join(s.names[v] for v in numbers)} share no value that an action "
            f"could avoid"
        )
    return constraint_from_rules(s, rules, name)


def at_most(
    structure: Structure | HasStructure,
    most: int,
    actions: Sequence[int | str] | None = None,
    *,
    idle: object = None,
    name: str = "",
) -> AtMost:
    """Return a cap on the number of action variables that are not at their idle value.

    Parameters
    ----------
    structure
        The structure or model of the variables.
    most
        The largest number, 0 or more.
    actions
        The action variables that are counted, by name or by number; None for all of them.
    idle
        The idle value, as it was listed or by name: one for all, or a mapping from variables; None
        for their first value.
    name
        Name of the constraint in error messages.

    Raises
    ------
    InvalidModel
        If one of them is no action variable or has no such value.
    """
    s = _structure(structure)
    label = _label(name, f"at most {shown(most)}")
    given = s.action_names if actions is None else items(actions, f"{label}: actions")
    numbers = sorted(_action_variable(s, v, label) for v in given)
    at_rest = dict.fromkeys(numbers, 0)
    if isinstance(idle, Mapping):
        for key, value in idle.items():
            v = _variable(s, key, f"{label}: idle")
            if v not in at_rest:
                raise InvalidModel(f'{label}: idle value of "{s.names[v]}", which is not counted')
            at_rest[v] = value_of(s, v, value, label)
    elif idle is not None:
        at_rest = {v: value_of(s, v, idle, label) for v in numbers}
    return AtMost(tuple(numbers), most, tuple(at_rest.values()), name)


def budget(
    structure: Structure | HasStructure,
    limit: float,
    costs: Mapping[Any, Any],
    *,
    name: str = "",
) -> Budget:
    """Return a budget: the costs of the values of action variables sum to at most a limit.

    Parameters
    ----------
    structure
        The structure or model of the variables.
    limit
        The largest sum of costs.
    costs
        For each action variable that costs something, by name or by number, the costs of its
        values: {value: cost}, where omitted values cost 0, or a list with one cost per value.
    name
        Name of the constraint in error messages.

    Raises
    ------
    InvalidModel
        If one of them is no action variable, has no such value, or a cost is negative; or if every
        joint action costs more than the limit.
    """
    s = _structure(structure)
    label = _label(name, f"budget {shown(limit)}")
    if not isinstance(costs, Mapping) or not costs:
        raise InvalidModel(
            f"{label}: costs {shown(costs)} must be a mapping from action variables to the costs "
            f"of their values"
        )
    rows: dict[int, tuple[Any, ...]] = {}
    for key, given in costs.items():
        v = _action_variable(s, key, label)
        if v in rows:
            raise InvalidModel(f'{label}: "{s.names[v]}" is there twice')
        rows[v] = _costs_of_values(s, v, given, label)
        for position, cost in enumerate(rows[v]):
            if checked_cost(cost) is None:
                raise InvalidModel(
                    f"{label}: cost {shown(cost)} of {s.names[v]}={s.values[v][position]}; "
                    f"must be a finite number, 0 or more"
                )
    numbers = tuple(sorted(rows))
    return Budget(numbers, limit, tuple(rows[v] for v in numbers), name)


def _costs_of_values(s: Structure, v: int, given: Any, label: str) -> tuple[Any, ...]:
    """Return one cost for each value of a variable; `Budget` checks that they are numbers."""
    if not isinstance(given, Mapping):
        row = items(given, f'{label}: costs of "{s.names[v]}"')
        if len(row) != s.sizes[v]:
            raise InvalidModel(
                f'{label}: {len(row)} costs of "{s.names[v]}"; must be {s.sizes[v]}, one for each '
                f"of its values"
            )
        return row
    by_position = {value_of(s, v, value, label): cost for value, cost in given.items()}
    if len(by_position) != len(given):
        raise InvalidModel(f'{label}: a value of "{s.names[v]}" is there twice')
    return tuple(by_position.get(position, 0) for position in range(s.sizes[v]))


def _structure(given: Structure | HasStructure) -> Structure:
    structure: Any = getattr(given, "structure", given)
    check_structure(structure, "a constraint")
    return structure  # type: ignore[no-any-return]


def _label(name: str, nameless: str) -> str:
    check_name(name)
    return f'constraint "{name}"' if name else nameless


def _variable(s: Structure, key: Any, where: str) -> int:
    number = whole_number(key)
    if number is None and isinstance(key, str) and key in s.names:
        return s.variable(key)
    if number is None or not 0 <= number < len(s.sizes):
        near = did_you_mean(key, s.names) if isinstance(key, str) else ""
        raise InvalidModel(f"{where}: no variable is called {shown(key)}{near}")
    return number


def _action_variable(s: Structure, key: Any, where: str) -> int:
    v = _variable(s, key, where)
    if v < s.m:
        raise InvalidModel(
            f'{where}: "{s.names[v]}" is a state variable; must be one of {listed(s.action_names)}'
        )
    return v


def values_listed(wanted: object) -> tuple[Any, ...]:
    """Return the values of a rule, which may be one value or a list of them."""
    if isinstance(wanted, np.ndarray):
        return tuple(np.atleast_1d(wanted))
    if isinstance(wanted, list | tuple | set | frozenset | range):
        return tuple(wanted)
    return (wanted,)


def _values(s: Structure, variable: int, wanted: object, where: str) -> list[int]:
    values = sorted({value_of(s, variable, value, where) for value in values_listed(wanted)})
    if not values:
        raise InvalidModel(f'{where}: "{s.names[variable]}" has no value; must have at least one')
    return values
