"""Models from functions of named values: the tables are what the functions say.

    states = {"pump": ["new", "worn", "broken"], "price": ["low", "high"]}
    actions = {"crew": ["rest", "repair"]}
    parents = {"pump": ["pump", "crew"], "price": ["price"]}

    def transition(name, values): ...          the law of the next value of a state variable
    reward = {"flow": (["pump", "price"], lambda values: ...)}

`transition` is called once for every assignment of every scope, and so is the function of every
reward factor: a table of n rows costs n calls. Values are handed over as they were listed, texts or
numbers, by the name of their variable. `alike` gives a row the key of its class, for what is known
of the rows before anything is known of what they hold: rows of one key are one row for a learner.

What a function does wrong (it fails, reads a variable that is no parent, gives a value that there
is not, a row that does not sum to 1) is one line that names the factor and the assignment.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from fmdp.errors import InvalidModel, TooLarge, did_you_mean
from fmdp.model.alike import Alike, classes_of_keys
from fmdp.model.constraints import Constraint, Forbidden
from fmdp.model.factored import FactoredMDP
from fmdp.model.forbidding import at_most as at_most_of
from fmdp.model.forbidding import constraint_from_rules, several
from fmdp.model.naming import NamedValues, Value, listed_values, plain_value
from fmdp.model.noise import Noise
from fmdp.model.spaces import FloatArray, IndexArray, all_assignments, count, items, shown
from fmdp.model.structure import Structure
from fmdp.model.tables import scope_numbers

Values: TypeAlias = Mapping[str, Any]
"""Variable -> value, as it was listed."""
Transition: TypeAlias = Callable[[str, Values], Any]
Reward: TypeAlias = Callable[[Values], float]
RewardFactors: TypeAlias = (
    Reward
    | Mapping[str, tuple[Sequence[str], Reward]]
    | Sequence[tuple[str, Sequence[str], Reward]]
)
Rule: TypeAlias = Mapping[str, Any] | tuple[Sequence[str], Callable[[Values], bool]]

MOST_CALLS = 1 << 22
"""Of one function for the rows of one table."""


class _Variables:
    """Names and values of all variables, as they were listed, and the bare structure of them."""

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
        self.structure = Structure(
            tuple(len(listed[name]) for name in states),
            tuple(len(listed[name]) for name in actions),
            ((),) * len(states),
            (),
            state_names=tuple(states),
            action_names=tuple(actions),
            state_values=tuple(listed[name] for name in states),
            action_values=tuple(listed[name] for name in actions),
        )
        self.listed: dict[str, Sequence[Value]] = dict(
            zip(self.structure.names, map(listed_values, self.structure.values), strict=True)
        )

    def index(self, name: str, value: Any, label: str) -> int:
        """Return the position of a value, which may be given as it was listed or by its name."""
        variable, naming = self.structure.variable(name), self.structure.naming
        own, number = naming.states, variable
        if variable >= self.structure.m:
            own, number = naming.actions, variable - self.structure.m
        found = own.value_place(number, value)
        if found is None:
            names = self.structure.values[variable]
            near = did_you_mean(value, names[:1000]) if isinstance(value, str) else ""
            raise InvalidModel(
                f'{label}: "{name}" has no value {shown(value)}; must be one of '
                f"{', '.join(names[:12])}{', ...' if len(names) > 12 else ''}{near}"
            )
        return found

    def scope(self, given: Any, label: str) -> tuple[str, ...]:
        """The names of a scope, checked; in the order in which it is given."""
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
        """The values of every assignment of a scope, the last variable fastest."""
        own = [self.listed[name] for name in scope]
        for assignment in all_assignments([len(values) for values in own]):
            yield NamedValues(
                (name, values[value])
                for name, values, value in zip(scope, own, assignment, strict=True)
            )


def _asked(function: Callable[..., Any], label: str, values: NamedValues, *before: str) -> Any:
    """What a function says, or one line on what is wrong with it."""
    if not callable(function):
        raise InvalidModel(f"{label} must be a function; got {shown(function)}")
    try:
        return function(*before, NamedValues(values))
    except Exception as error:
        told = error.args[0] if isinstance(error, KeyError) and error.args else error
        text = " ".join(str(told).split())
        raise InvalidModel(
            f"{_at(label, values)}: the function fails: {type(error).__name__}: {text}"
        ) from error


def _at(label: str, values: Values) -> str:
    where = ", ".join(f"{name}={value}" for name, value in values.items())
    return f"{label}, {where or 'empty scope'}"


def _law(variables: _Variables, name: str, told: Any, label: str) -> list[float]:
    """A row from what the function gave: probabilities by value or in order, or the one value."""
    size = len(variables.listed[name])
    if isinstance(told, Mapping):
        row = [0.0] * size
        for value, probability in told.items():
            row[variables.index(name, value, label)] += _number(probability, label)
        return row
    if isinstance(told, list | tuple) or (isinstance(told, np.ndarray) and told.ndim):
        if len(told) != size:
            raise InvalidModel(
                f'{label}: {len(told)} probabilities; must be {size}, one a value of "{name}"'
            )
        return [_number(probability, label) for probability in told]
    sure = variables.index(name, told, label)
    return [float(index == sure) for index in range(size)]


def _number(value: Any, label: str) -> float:
    if isinstance(value, bool | int | float | np.integer | np.floating | np.bool_):
        with contextlib.suppress(OverflowError):
            return float(value)
    raise InvalidModel(f"{label}: the function gives {shown(value)}; must be a number")


def _transition(
    variables: _Variables, parents: Mapping[str, Any], transition: Transition
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
            _law(variables, name, _asked(transition, label, values, name), _at(label, values))
            for values in variables.rows(scope)
        ]
        scopes.append(scope)
        tables.append(np.array(rows))
    return scopes, tables


def _factors(
    variables: _Variables, given: RewardFactors, what: str, sign: float
) -> tuple[list[str], list[tuple[str, ...]], list[FloatArray]]:
    """Names, scopes and means of reward factors, or of costs with sign -1."""
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
            sign * _number(_asked(function, label, values), _at(label, values)) + 0.0
            for values in variables.rows(scope)
        ]
        names.append(name)
        scopes.append(scope)
        tables.append(np.array(means))
    return names, scopes, tables


def _keys(
    variables: _Variables,
    names: Sequence[str],
    scopes: Sequence[Sequence[str]],
    key_of: Callable[[str, Values], Hashable] | None,
) -> tuple[IndexArray, ...]:
    keys: list[list[Hashable]] = []
    for name, scope in zip(names, scopes, strict=True):
        label = f'the class of a row of "{name}"'
        keys.append(
            [
                None if key_of is None else _asked(key_of, label, values, name)
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
    """The ranges that are given, and of the others the least and the most in the table; one for
    all factors that share a class of rows."""
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
    for k, own in enumerate(classes):
        for number in set(own.tolist()):
            first = owner.setdefault(number, k)
            old, new = group[k], group[first]
            group = [new if one == old else one for one in group]
    found = []
    for k, name in enumerate(names):
        together = [tables[j] for j in range(len(names)) if group[j] == group[k]]
        found.append(
            given.get(
                name,
                (
                    float(min(table.min() for table in together)),
                    float(max(table.max() for table in together)),
                ),
            )
        )
    return found


def _forbidden(variables: _Variables, rules: Sequence[Rule]) -> list[Constraint]:
    """Rules that are mappings are one constraint; each that is a function is one of its own."""
    said: list[dict[str, list[str]]] = []
    made: list[Constraint] = []
    for number, rule in enumerate(items(rules, "forbid")):
        label = f"forbid, rule {number}"
        if isinstance(rule, Mapping):
            fits = {}
            for name, wanted in rule.items():
                variables.scope([name], label)
                names = variables.structure.values[variables.structure.variable(name)]
                fits[name] = [
                    names[variables.index(name, value, label)] for value in several(wanted)
                ]
            said.append(fits)
            continue
        parts = items(rule, f"{label}, a mapping or a pair (scope, function),")
        if len(parts) != 2:
            raise InvalidModel(f"{label} has {len(parts)} parts; must be (scope, function)")
        looked_at = variables.scope(parts[0], label)
        scope = tuple(sorted(map(variables.structure.variable, looked_at)))
        in_order = [variables.structure.names[v] for v in scope]
        table = [bool(_asked(parts[1], label, values)) for values in variables.rows(in_order)]
        made.append(Forbidden(scope, np.array(table, dtype=np.bool_), f"forbid {number}"))
    if said:
        made.insert(0, constraint_from_rules(variables.structure, said, "forbid"))
    return made


def from_functions(
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
) -> FactoredMDP:
    """`FactoredMDP.from_functions`, which says what the arguments are."""
    variables = _Variables(states, actions)
    bare = variables.structure
    scopes, tables = _transition(variables, parents, transition)
    reward_names, reward_scopes, means = _factors(variables, reward, "reward", 1.0)
    more = _factors(variables, costs, "cost", -1.0)
    for own, added in zip((reward_names, reward_scopes, means), more, strict=True):
        own += added  # type: ignore[operator]
    classes = _keys(variables, bare.state_names, scopes, alike)
    reward_classes = _keys(variables, reward_names, reward_scopes, reward_alike)
    ranges = _ranges(
        reward_names, means, reward_classes, {} if reward_ranges is None else reward_ranges
    )
    told = [*_forbidden(variables, forbid)]
    if at_most is not None:
        told.append(at_most_of(bare, at_most))
    if isinstance(initial_state, Mapping):
        initial_state = {
            key: bare.values[bare.variable(key)][variables.index(key, value, "initial state")]
            if key in bare.state_names
            else value
            for key, value in initial_state.items()
        }
    return FactoredMDP.over(
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
        constraints=(*told, *items(constraints, "constraints")),
    )
