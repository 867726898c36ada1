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
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from fmdp.errors import InvalidModel, TooLarge, did_you_mean
from fmdp.model.alike import Alike, classes_of_keys
from fmdp.model.builder import Contents, contents_from_factors, variables_of
from fmdp.model.constraints import Constraint, Forbidden
from fmdp.model.forbidding import at_most as at_most_of
from fmdp.model.forbidding import constraint_from_rules, values_listed
from fmdp.model.naming import NamedValues, Value, listed_values, plain_value
from fmdp.model.noise import Noise
from fmdp.model.scopes import scope_numbers
from fmdp.model.spaces import FloatArray, IndexArray, all_assignments, count, items, shown

Values: TypeAlias = Mapping[str, Any]
"""Values, as listed, by the name of their variable."""
Transition: TypeAlias = Callable[[str, Values], Any]
Reward: TypeAlias = Callable[[Values], float]
RewardFactors: TypeAlias = (
    Reward
    | Mapping[str, tuple[Sequence[str], Reward]]
    | Sequence[tuple[str, Sequence[str], Reward]]
)
Rule: TypeAlias = Mapping[str, Any] | tuple[Sequence[str], Callable[[Values], bool]]

MOST_CALLS = 1 << 22
"""Most calls of a function for one table."""


class _ListedVariables:
    """The variables as a structure without factors, with their values as listed."""

    def __init__(self, states: Mapping[str, Any], actions: Mapping[str, Any]) -> None:
        listed = {}
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
        self.structure = variables_of(
            [len(listed[name]) for name in states],
            [len(listed[name]) for name in actions],
            tuple(states),
            tuple(actions),
            [listed[name] for name in states],
            [listed[name] for name in actions],
        )
        self.listed: dict[str, Sequence[Value]] = dict(
            zip(self.structure.names, map(listed_values, self.structure.values), strict=True)
        )

    def index(self, name: str, value: Any, label: str) -> int:
        """Return the position of a value, given as it was listed or by its name."""
        variable, naming = self.structure.variable(name), self.structure.naming
        variables, number = naming.states, variable
        if variable >= self.structure.m:
            variables, number = naming.actions, variable - self.structure.m
        place = variables.value_place(number, value)
        if place is None:
            names = self.structure.values[variable]
            near = did_you_mean(value, names[:1000]) if isinstance(value, str) else ""
            raise InvalidModel(
                f'{label}: "{name}" has no value {shown(value)}; must be one of '
                f"{', '.join(names[:12])}{', ...' if len(names) > 12 else ''}{near}"
            )
        return place

    def scope(self, given: Any, label: str) -> tuple[str, ...]:
        """Return the names of the variables of a scope, in the given order."""
        numbers = scope_numbers(self.structure, given, label)
        rows = count(self.structure.scope_sizes(numbers))
        if rows > MOST_CALLS:
            raise TooLarge(
                f"{label}: its {len(numbers)} variables have {shown(rows)} joint values, and the "
                f"function would be called for each; at most {MOST_CALLS}: give it a smaller scope",
                rows,
                MOST_CALLS,
            )
        return tuple(self.structure.names[v] for v in numbers)

    def rows(self, scope: Sequence[str]) -> Iterator[NamedValues]:
        """Yield the values of every assignment of a scope, the last variable fastest."""
        listed = [self.listed[name] for name in scope]
        for assignment in all_assignments([len(values) for values in listed]):
            yield NamedValues(
                (name, values[value])
                for name, values, value in zip(scope, listed, assignment, strict=True)
            )


def _call(function: Callable[..., Any], label: str, values: NamedValues, *before: str) -> Any:
    """Call a function of the user, or raise InvalidModel with the assignment at which it fails."""
    if not callable(function):
        raise InvalidModel(f"{label} must be a function; got {shown(function)}")
    try:
        return function(*before, NamedValues(values))
    except Exception as error:
        reason = error.args[0] if isinstance(error, KeyError) and error.args else error
        text = " ".join(str(reason).split())
        raise InvalidModel(
            f"{_at(label, values)}: the function fails: {type(error).__name__}: {text}"
        ) from error


def _at(label: str, values: Values) -> str:
    where = ", ".join(f"{name}={value}" for name, value in values.items())
    return f"{label}, {where or 'empty scope'}"


def _row(variables: _ListedVariables, name: str, given: Any, label: str) -> list[float]:
    """Return a row from probabilities by value, probabilities in order, or one certain value."""
    size = len(variables.listed[name])
    if isinstance(given, Mapping):
        row = [0.0] * size
        for value, probability in given.items():
            row[variables.index(name, value, label)] += _number(probability, label)
        return row
    if isinstance(given, list | tuple) or (isinstance(given, np.ndarray) and given.ndim):
        if len(given) != size:
            raise InvalidModel(
                f'{label}: {len(given)} probabilities; must be {size}, one per value of "{name}"'
            )
        return [_number(probability, label) for probability in given]
    sure = variables.index(name, given, label)
    return [float(index == sure) for index in range(size)]


def _number(value: Any, label: str) -> float:
    if isinstance(value, bool | int | float | np.integer | np.floating | np.bool_):
        with contextlib.suppress(OverflowError):
            return float(value)
    raise InvalidModel(f"{label}: the function gives {shown(value)}; must be a number")


def _transition(
    variables: _ListedVariables, parents: Mapping[str, Any], transition: Transition
) -> tuple[list[tuple[str, ...]], list[FloatArray]]:
    names = variables.structure.state_names
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
        label = variables.structure.transition_label(i)
        if name not in parents:
            raise InvalidModel(
                f"{label}: has no parents; parents[{name!r}] must list the variables that it "
                f"depends on, its own included where it matters"
            )
        scope = variables.scope(parents[name], label)
        rows = [
            _row(variables, name, _call(transition, label, values, name), _at(label, values))
            for values in variables.rows(scope)
        ]
        scopes.append(scope)
        tables.append(np.array(rows))
    return scopes, tables


def _factors(
    variables: _ListedVariables, given: RewardFactors, what: str, sign: float
) -> tuple[list[str], list[tuple[str, ...]], list[FloatArray]]:
    """Return names, scopes and means of reward factors, or of costs with sign -1."""
    parts: list[tuple[Any, ...]]
    if callable(given):
        parts = [(what, variables.structure.names, given)]
    elif isinstance(given, Mapping):
        parts = [
            (name, *items(pair, f'{what} "{name}", a pair (scope, function),'))
            for name, pair in given.items()
        ]
    else:
        parts = [
            items(part, f"{what} {index}, (name, scope, function),")
            for index, part in enumerate(items(given, f"the {what}s"))
        ]
    names, scopes, tables = [], [], []
    for index, part in enumerate(parts):
        if len(part) != 3:
            raise InvalidModel(
                f"{what} {index} has {len(part)} parts; must be name, scope, function"
            )
        name, scope_given, function = part
        label = f"{what} {index} ({shown(name)})"
        scope = variables.scope(scope_given, label)
        means = [
            sign * _number(_call(function, label, values), _at(label, values)) + 0.0
            for values in variables.rows(scope)
        ]
        names.append(name)
        scopes.append(scope)
        tables.append(np.array(means))
    return names, scopes, tables


def _keys(
    variables: _ListedVariables,
    names: Sequence[str],
    scopes: Sequence[Sequence[str]],
    key_of: Callable[[str, Values], Hashable] | None,
) -> tuple[IndexArray, ...]:
    keys: list[list[Hashable]] = []
    for name, scope in zip(names, scopes, strict=True):
        label = f'the class of a row of "{name}"'
        keys.append(
            [
                None if key_of is None else _call(key_of, label, values, name)
                for values in variables.rows(scope)
            ]
        )
    return classes_of_keys(keys, names)


def _ranges(
    names: Sequence[str],
    tables: Sequence[FloatArray],
    classes: Sequence[IndexArray],
    given: Mapping[str, tuple[float, float]],
) -> list[tuple[float, float]]:
    """Return the given ranges, and by default the least and the largest mean of all factors that
    share a class of rows."""
    if not isinstance(given, Mapping):
        raise InvalidModel(f"reward_ranges must be name -> (lo, hi); got {shown(given)}")
    for name in given:
        if name not in names:
            raise InvalidModel(
                f"reward_ranges: no reward is called {shown(name)}"
                f"{did_you_mean(name, names) if isinstance(name, str) else ''}"
            )
    group = list(range(len(names)))
    owner: dict[int, int] = {}
    for k, numbers in enumerate(classes):
        for number in set(numbers.tolist()):
            old, new = group[k], group[owner.setdefault(number, k)]
            group = [new if other == old else other for other in group]
    ranges = []
    for k, name in enumerate(names):
        means = [table for table, other in zip(tables, group, strict=True) if other == group[k]]
        span = (
            float(min(table.min() for table in means)),
            float(max(table.max() for table in means)),
        )
        ranges.append(given.get(name, span))
    return ranges


def _forbidden(variables: _ListedVariables, rules: Sequence[Rule]) -> list[Constraint]:
    """Return one constraint for all rules that are mappings, and one for each function."""
    mappings: list[dict[str, list[str]]] = []
    constraints: list[Constraint] = []
    for number, rule in enumerate(items(rules, "forbid")):
        label = f"forbid, rule {number}"
        if isinstance(rule, Mapping):
            fits = {}
            for name, wanted in rule.items():
                variables.scope([name], label)
                names = variables.structure.values[variables.structure.variable(name)]
                fits[name] = [
                    names[variables.index(name, value, label)] for value in values_listed(wanted)
                ]
            mappings.append(fits)
            continue
        parts = items(rule, f"{label}, a mapping or a pair (scope, function),")
        if len(parts) != 2:
            raise InvalidModel(f"{label} has {len(parts)} parts; must be (scope, function)")
        scope = tuple(sorted(map(variables.structure.variable, variables.scope(parts[0], label))))
        in_order = [variables.structure.names[v] for v in scope]
        table = [bool(_call(parts[1], label, values)) for values in variables.rows(in_order)]
        constraints.append(Forbidden(scope, np.array(table, dtype=np.bool_), f"forbid {number}"))
    if mappings:
        constraints.insert(0, constraint_from_rules(variables.structure, mappings, "forbid"))
    return constraints


def contents_from_functions(
    states: Mapping[str, Any],
    actions: Mapping[str, Any],
    parents: Mapping[str, Any],
    transition: Transition,
    reward: RewardFactors = (),
    *,
    costs: RewardFactors = (),
    alike: Callable[[str, Values], Hashable] | None = None,
    reward_alike: Callable[[str, Values], Hashable] | None = None,
    reward_ranges: Mapping[str, tuple[float, float]] | None = None,
    groups: Sequence[Sequence[int | str]] = (),
    forbid: Sequence[Rule] = (),
    at_most: int | None = None,
    constraints: Sequence[Constraint] = (),
    noise: Noise | Sequence[Noise] | None = None,
    initial_state: Any = None,
    name: str = "",
) -> Contents:
    """Check the arguments of `FactoredMDP.from_functions` and compute the tables."""
    variables = _ListedVariables(states, actions)
    bare = variables.structure
    scopes, tables = _transition(variables, parents, transition)
    reward_names, reward_scopes, means = _factors(variables, reward, "reward", 1.0)
    cost_names, cost_scopes, negated = _factors(variables, costs, "cost", -1.0)
    reward_names += cost_names
    reward_scopes += cost_scopes
    means += negated
    classes = _keys(variables, bare.state_names, scopes, alike)
    reward_classes = _keys(variables, reward_names, reward_scopes, reward_alike)
    ranges = _ranges(
        reward_names, means, reward_classes, {} if reward_ranges is None else reward_ranges
    )
    rules = _forbidden(variables, forbid)
    if at_most is not None:
        rules.append(at_most_of(bare, at_most))
    if isinstance(initial_state, Mapping):
        initial_state = {
            key: bare.values[bare.variable(key)][variables.index(key, value, "initial state")]
            if key in bare.state_names
            else value
            for key, value in initial_state.items()
        }
    return contents_from_factors(
        bare,
        list(zip(scopes, tables, strict=True)),
        list(zip(reward_scopes, means, strict=True)),
        reward_ranges=ranges,
        reward_names=reward_names,
        groups=groups,
        noise=noise,
        initial_state=initial_state,
        name=name,
        alike=Alike(classes, reward_classes),
        constraints=(*rules, *items(constraints, "constraints")),
    )
