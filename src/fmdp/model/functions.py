"""Models from functions of named values (`FactoredMDP.from_functions`).

    states = {"pump": ["new", "worn", "broken"], "price": ["low", "high"]}
    actions = {"crew": ["rest", "repair"]}
    parents = {"pump": ["pump", "crew"], "price": ["price"]}

    def transition(name, values): ...          the distribution of the next value of a variable
    reward = {"flow": (["pump", "price"], lambda values: ...)}

Every function is called once for each assignment of its scope, with the values as they were listed,
by the name of their variable. If a function fails, reads a variable outside its scope, or returns
an unknown value or a row that does not sum to 1, the error message names the factor and the
assignment.

A number may be a triple (lower, nominal, upper); the model then has intervals. Tables are computed
with these three numbers in the last axis.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from fmdp.errors import InvalidModel, TooLarge, did_you_mean
from fmdp.model.aggregates import with_derived
from fmdp.model.alike import Alike, KeyOfRow, classes_by_key
from fmdp.model.builder import Contents, contents_from_factors, variables_of
from fmdp.model.calls import Values, call, labelled, named_rows
from fmdp.model.constraints import Constraint, Forbidden
from fmdp.model.forbidding import at_most as at_most_of
from fmdp.model.forbidding import constraint_from_rules, values_listed
from fmdp.model.groups import Groups
from fmdp.model.intervals import Intervals
from fmdp.model.naming import plain_value
from fmdp.model.noise import Noise
from fmdp.model.quantities import quantity_pairs
from fmdp.model.scopes import Scope, scope_numbers
from fmdp.model.spaces import FloatArray, IndexArray, count, items, shown
from fmdp.model.structure import Structure
from fmdp.model.tables import parts_of

Transition: TypeAlias = Callable[[str, Values], Any]
Reward: TypeAlias = Callable[[Values], float | tuple[float, float, float]]
RewardFactors: TypeAlias = (
    Reward
    | Mapping[str, tuple[Sequence[str], Reward]]
    | Sequence[tuple[str, Sequence[str], Reward]]
)
Rule: TypeAlias = Mapping[str, Any] | tuple[Sequence[str], Callable[[Values], bool]]

Ends: TypeAlias = tuple[float, float, float]
"""Lower end, nominal number and upper end; equal for a number that is known exactly."""

MOST_CALLS = 1 << 22
"""Most calls of a function for one table."""


def named_variables(states: Mapping[str, Any], actions: Mapping[str, Any]) -> Structure:
    """Return the variables as a structure without factors."""
    listed: dict[str, tuple[Any, ...]] = {}
    for kind, given in (("states", states), ("actions", actions)):
        if not isinstance(given, Mapping):
            raise InvalidModel(
                f"{kind} must be a mapping from names to lists of values; got {shown(given)}"
            )
        for name, values in given.items():
            if name in listed:
                raise InvalidModel(f'"{name}" is a state and an action; names must differ')
            many = range(values) if type(values) is int else values
            listed[name] = items(many, f'values of "{name}"')
            for value in map(plain_value, listed[name]):
                if not isinstance(value, str | int | float):
                    raise InvalidModel(
                        f'values of "{name}": {shown(value)} must be a text or a number'
                    )
    return variables_of(
        [len(listed[name]) for name in states],
        [len(listed[name]) for name in actions],
        tuple(states),
        tuple(actions),
        [listed[name] for name in states],
        [listed[name] for name in actions],
    )


def _position(s: Structure, variable: int, value: Any, label: str) -> int:
    """Return the position of a value, given as it was listed or by its name."""
    if variable < s.m:
        place = s.naming.states.value_place(variable, value)
    else:
        place = s.naming.actions.value_place(variable - s.m, value)
    if place is None:
        names = s.values[variable]
        near = did_you_mean(value, names[:1000]) if isinstance(value, str) else ""
        raise InvalidModel(
            f'{label}: "{s.names[variable]}" has no value {shown(value)}; must be one of '
            f"{', '.join(names[:12])}{', ...' if len(names) > 12 else ''}{near}"
        )
    return place


def _scope(s: Structure, given: Any, label: str) -> Scope:
    """Return the variables of a scope, in the given order."""
    numbers = scope_numbers(s, given, label)
    rows = count(s.scope_sizes(numbers))
    if rows > MOST_CALLS:
        raise TooLarge(
            f"{label}: its {len(numbers)} variables have {shown(rows)} joint values, and the "
            f"function would be called for each; at most {MOST_CALLS}: give it a smaller scope",
            rows,
            MOST_CALLS,
        )
    return numbers


def _row(s: Structure, i: int, given: Any, label: str) -> FloatArray:
    """Return a row [|S_i|, 3] from probabilities by value, probabilities in order, or one certain
    value."""
    size = s.sizes[i]
    row = np.zeros((size, 3))
    if isinstance(given, Mapping):
        for value, probability in given.items():
            row[_position(s, i, value, label)] += _ends(probability, label)
        return row
    if isinstance(given, list | tuple) or (isinstance(given, np.ndarray) and given.ndim):
        if len(given) != size:
            raise InvalidModel(
                f"{label}: {len(given)} probabilities; must be {size}, one per value of "
                f'"{s.names[i]}"'
            )
        row[:] = [_ends(probability, label) for probability in given]
        return row
    row[_position(s, i, given, label)] = 1.0
    return row


def _ends(value: Any, label: str) -> Ends:
    """Return the ends of a number, or of a triple (lower, nominal, upper)."""
    if not isinstance(value, tuple | list):
        number = _number(value, label)
        return number, number, number
    if len(value) != 3:
        raise InvalidModel(
            f"{label}: the function gives {shown(value)}; must be a number, or three: lower, "
            f"nominal, upper"
        )
    lower, nominal, upper = (_number(part, label) for part in value)
    if not lower <= nominal <= upper:
        raise InvalidModel(
            f"{label}: the function gives {shown(value)}; must be lower <= nominal <= upper"
        )
    return lower, nominal, upper


def _number(value: Any, label: str) -> float:
    if isinstance(value, bool | int | float | np.integer | np.floating | np.bool_):
        with contextlib.suppress(OverflowError):
            return float(value)
    raise InvalidModel(f"{label}: the function gives {shown(value)}; must be a number")


def _intervals(
    transitions: Sequence[FloatArray], rewards: Sequence[FloatArray]
) -> Intervals | None:
    """Return the intervals of tables with three numbers in the last axis; None if all are exact."""
    if all((table[..., :1] == table[..., 1:]).all() for table in (*transitions, *rewards)):
        return None
    kinds = (transitions, rewards)
    ends = [tuple(table[..., end] for table in tables) for tables in kinds for end in (0, 2)]
    return Intervals(*ends)


def _transitions(
    s: Structure, parents: Mapping[str, Any], transition: Transition
) -> tuple[list[Scope], list[FloatArray]]:
    """Return scopes and tables [rows, |S_i|, 3] of the transition factors."""
    names = s.state_names
    if not isinstance(parents, Mapping):
        raise InvalidModel(
            f"parents must be a mapping from state variables to the variables that they depend "
            f"on; got {shown(parents)}"
        )
    for name in parents:
        if name not in names:
            near = did_you_mean(name, names) if isinstance(name, str) else ""
            raise InvalidModel(f"parents: no state variable is called {shown(name)}{near}")
    scopes, tables = [], []
    for i, name in enumerate(names):
        label = s.transition_label(i)
        if name not in parents:
            raise InvalidModel(
                f"{label}: has no parents; parents[{name!r}] must list the variables that it "
                f"depends on, its own included where it matters"
            )
        scope = _scope(s, parents[name], label)
        rows = [
            _row(s, i, call(transition, label, values, name), labelled(label, values))
            for values in named_rows(s, scope)
        ]
        scopes.append(scope)
        tables.append(np.stack(rows))
    return scopes, tables


def _rewards(
    s: Structure, given: RewardFactors, what: str, sign: float
) -> tuple[list[str], list[Scope], list[FloatArray]]:
    """Return names, scopes and means [rows, 3] of reward factors, or of costs with sign -1."""
    parts: list[tuple[Any, ...]]
    if callable(given):
        parts = [(what, s.state_names + s.action_names, given)]
    elif isinstance(given, Mapping):
        parts = [
            (name, *items(pair, f'{what} "{name}", a pair (scope, function),'))
            for name, pair in given.items()
        ]
    else:
        parts = list(items(given, f"the {what}s"))
    names, scopes, tables = [], [], []
    for index, part in enumerate(parts):
        name, scope_given, function = parts_of(part, f"{what} {index}", "name, scope, function")
        label = f"{what} {index} ({shown(name)})"
        scope = _scope(s, scope_given, label)
        means = np.array(
            [
                _ends(call(function, label, values), labelled(label, values))
                for values in named_rows(s, scope)
            ]
        )
        names.append(name)
        scopes.append(scope)
        # Negated ends change places. Adding 0 turns -0 into 0.
        tables.append((means if sign > 0 else -means[:, ::-1]) + 0.0)
    return names, scopes, tables


def _ranges(
    names: Sequence[str],
    tables: Sequence[FloatArray],
    classes: Sequence[IndexArray],
    given: Mapping[str, tuple[float, float]],
) -> list[tuple[float, float]]:
    """Return the given ranges, and by default the least and the largest mean, or end of its
    interval, of all factors that share a class of rows."""
    if not isinstance(given, Mapping):
        raise InvalidModel(f"reward_ranges must be name -> (lo, hi); got {shown(given)}")
    for name in given:
        if name not in names:
            raise InvalidModel(
                f"reward_ranges: no reward is called {shown(name)}"
                f"{did_you_mean(name, names) if isinstance(name, str) else ''}"
            )
    sharing = Groups(len(names))
    owner: dict[int, int] = {}
    for k, numbers in enumerate(classes):
        for number in set(numbers.tolist()):
            sharing.join(k, owner.setdefault(number, k))
    ranges = [(0.0, 0.0)] * len(names)
    for factors in sharing.members():
        means = np.concatenate([tables[k] for k in factors])
        for k in factors:
            ranges[k] = given.get(names[k], (float(means.min()), float(means.max())))
    return ranges


def _forbidden(s: Structure, rules: Sequence[Rule]) -> list[Constraint]:
    """Return one constraint for all rules that are mappings, and one for each function."""
    mappings: list[dict[int, list[str]]] = []
    constraints: list[Constraint] = []
    for number, rule in enumerate(items(rules, "forbid")):
        label = f"forbid, rule {number}"
        if isinstance(rule, Mapping):
            values_of = {}
            for name, wanted in rule.items():
                (v,) = _scope(s, [name], label)
                places = [_position(s, v, value, label) for value in values_listed(wanted)]
                values_of[v] = [s.values[v][place] for place in places]
            mappings.append(values_of)
            continue
        scope_given, function = parts_of(rule, f"{label} (not a mapping)", "scope, function")
        scope = tuple(sorted(_scope(s, scope_given, label)))
        table = [bool(call(function, label, values)) for values in named_rows(s, scope)]
        constraints.append(Forbidden(scope, np.array(table, dtype=np.bool_), f"forbid {number}"))
    if mappings:
        constraints.insert(0, constraint_from_rules(s, mappings, "forbid"))
    return constraints


def _quantities(
    names: Sequence[str], scopes: Sequence[Scope], tables: Sequence[FloatArray]
) -> list[tuple[str, Scope, FloatArray]]:
    """Return name, scope and means of the quantities, which have no intervals."""
    for name, table in zip(names, tables, strict=True):
        if (table[:, 0] < table[:, 2]).any():
            raise InvalidModel(f"quantity {shown(name)}: the function must return a number")
    means = [table[:, 1] for table in tables]
    return list(zip(names, scopes, means, strict=True))


def contents_from_functions(
    states: Mapping[str, Any],
    actions: Mapping[str, Any],
    parents: Mapping[str, Any],
    transition: Transition,
    reward: RewardFactors = (),
    *,
    costs: RewardFactors = (),
    alike: KeyOfRow | None = None,
    reward_alike: KeyOfRow | None = None,
    reward_ranges: Mapping[str, tuple[float, float]] | None = None,
    groups: Sequence[Sequence[int | str]] = (),
    forbid: Sequence[Rule] = (),
    at_most: int | None = None,
    constraints: Sequence[Constraint] = (),
    noise: Noise | Sequence[Noise] | None = None,
    initial_state: Any = None,
    name: str = "",
    derived: Mapping[str, Any] | None = None,
    quantities: Any = None,
) -> Contents:
    """Check the arguments of `FactoredMDP.from_functions` and compute the tables."""
    s = named_variables(states, actions)
    if derived is not None:
        s = with_derived(s, derived)
    scopes, tables = _transitions(s, parents, transition)
    reward_names, reward_scopes, means = _rewards(s, reward, "reward", 1.0)
    listed = [(q, *pair) for q, pair in quantity_pairs(quantities, "function")]
    of_quantities = _rewards(s, listed, "quantity", 1.0)
    cost_names, cost_scopes, negated = _rewards(s, costs, "cost", -1.0)
    reward_names += cost_names
    reward_scopes += cost_scopes
    means += negated
    classes = classes_by_key(s, s.state_names, scopes, alike)
    reward_classes = classes_by_key(s, reward_names, reward_scopes, reward_alike)
    ranges = _ranges(
        reward_names, means, reward_classes, {} if reward_ranges is None else reward_ranges
    )
    rules = _forbidden(s, forbid)
    if at_most is not None:
        rules.append(at_most_of(s, at_most))
    if isinstance(initial_state, Mapping):
        initial_state = {
            name: s.values[s.variable(name)][_position(s, s.variable(name), value, "initial state")]
            if name in s.state_names
            else value
            for name, value in initial_state.items()
        }
    return contents_from_factors(
        s,
        [(scope, table[..., 1]) for scope, table in zip(scopes, tables, strict=True)],
        [(scope, table[..., 1]) for scope, table in zip(reward_scopes, means, strict=True)],
        reward_ranges=ranges,
        reward_names=reward_names,
        groups=groups,
        noise=noise,
        initial_state=initial_state,
        name=name,
        alike=Alike(classes, reward_classes),
        constraints=(*rules, *items(constraints, "constraints")),
        intervals=_intervals(tables, means),
        quantities=_quantities(*of_quantities),
    )
