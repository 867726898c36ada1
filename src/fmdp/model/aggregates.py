"""Derived variables as users give them to `FactoredMDP.from_functions`.

    derived = {
        "busy": fmdp.Count(["theatre_A", "theatre_B", "theatre_C"], "operating"),
        "served": (["busy", "queue"], lambda v: min(v["busy"], v["queue"])),
        "weather": (["season"], lambda v: {"wet": 0.8, "dry": 0.2} if ... else ...),
    }

A pair (scope, function) is a function of named values. It returns a value, or a dictionary from
values to probabilities for a variable that is drawn. The values of the variable are those that the
function returns, numbers in increasing order.

Counts and sums over many variables are chains of partial sums, z_1 = f(x_1), z_j = z_{j-1} +
f(x_j), each with a small table: a count over N binary variables has N tables of at most 2 N rows,
where one table would have 2^N.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any as Anything
from typing import ClassVar, NamedTuple

import numpy as np

from fmdp.errors import InvalidModel, TooLarge, did_you_mean
from fmdp.model.calls import call, labelled, named_rows
from fmdp.model.derived import Derived
from fmdp.model.naming import (
    NamedValues,
    Value,
    is_number,
    listed_values,
    plain_value,
    quote,
)
from fmdp.model.scopes import scope_numbers
from fmdp.model.spaces import count, items, shown
from fmdp.model.structure import Structure
from fmdp.model.variables import VariableSpace

MOST_ROWS = 1 << 22
"""Most assignments for which a function of the user is called."""
_MOST_VALUES = 1 << 14
"""Most values of a partial sum."""


@dataclass(frozen=True)
class Aggregate:
    """Base class of counts and sums: a number per variable, combined one variable at a time."""

    over: Sequence[str]
    of: Anything
    cap: float | None = None
    clip: bool = False

    _what: ClassVar[str] = "aggregate"

    def __post_init__(self) -> None:
        over = items(self.over, f"{self._what}: the variables")
        if not over:
            raise InvalidModel(f"{self._what}: the list of variables is empty")
        object.__setattr__(self, "over", over)
        cap = plain_value(self.cap)
        if cap is not None and (isinstance(cap, bool) or not is_number(cap)):
            raise InvalidModel(f"{self._what}: cap is {shown(self.cap)}; must be a number")
        if not isinstance(self.clip, bool):
            raise InvalidModel(f"{self._what}: clip is {shown(self.clip)}; must be True or False")
        if self.clip and cap is None:
            raise InvalidModel(f"{self._what}: clip=True needs a cap")

    def _called(self, name: str, value: Value, label: str) -> Anything:
        """Return what the function of the user gives for a value of a variable."""
        return call(lambda _: self.of(value), label, NamedValues({name: value}))

    def _check_values(self, listed: Collection[Value], label: str) -> None:
        """Raise InvalidModel if the aggregate asks for values that none of its variables has."""

    def _number(self, name: str, value: Value, label: str) -> float:
        """Return the contribution of a variable with this value."""
        raise NotImplementedError

    def _combined(self, before: float, number: float) -> float:
        """Return a partial result followed by one more number."""
        return before + number

    def _limited(self, total: float, label: str) -> float:
        """Return the total, or the cap if it is clipped; raise InvalidModel beyond the cap."""
        if self.cap is None or total <= self.cap:
            return total
        if self.clip:
            return self.cap
        raise InvalidModel(
            f"{label}: can be {shown(plain_value(total))}, beyond its cap of {shown(self.cap)}; "
            f"raise the cap, or give clip=True to count everything beyond as the cap"
        )


class Count(Aggregate):
    """How many of some variables have a certain value: a derived variable.

    Parameters
    ----------
    over
        Names of the variables.
    of
        The value to count, a list of values, or a function value -> bool.
    cap
        Largest count; a larger one is refused, or counted as the cap with clip=True.
    clip
        Whether counts beyond the cap count as the cap.
    """

    _what = "Count"

    def _number(self, name: str, value: Value, label: str) -> float:
        if callable(self.of):
            return int(bool(self._called(name, value, label)))
        return int(value in self._wanted)

    @property
    def _wanted(self) -> tuple[Anything, ...]:
        listed = isinstance(self.of, Iterable) and not isinstance(self.of, str)
        values = items(self.of, f"{self._what}: the values") if listed else (self.of,)
        for value in values:
            if not isinstance(plain_value(value), str | int | float):
                raise InvalidModel(
                    f"{self._what}: counts {shown(value)}; must be a value, a list of values, or a "
                    f"function"
                )
        return values

    def _check_values(self, listed: Collection[Value], label: str) -> None:
        for value in () if callable(self.of) else self._wanted:
            if value not in listed:
                near = (
                    did_you_mean(value, [str(v) for v in listed]) if isinstance(value, str) else ""
                )
                raise InvalidModel(
                    f"{label}: counts the value {shown(value)}, which none of its variables "
                    f"has{near}"
                )


class Any(Count):
    """1 if any of some variables has a certain value, else 0: a derived variable.

    Parameters
    ----------
    over, of, cap, clip
        As in `Count`.
    """

    _what = "Any"

    def _combined(self, before: float, number: float) -> float:
        return max(before, number)


class All(Count):
    """1 if all of some variables have a certain value, else 0: a derived variable.

    Parameters
    ----------
    over, of, cap, clip
        As in `Count`.
    """

    _what = "All"

    def _combined(self, before: float, number: float) -> float:
        return min(before, number)


class Sum(Aggregate):
    """The sum of a number per variable: a derived variable.

    Parameters
    ----------
    over
        Names of the variables.
    of
        A function value -> number; None if the values are numbers themselves.
    cap, clip
        As in `Count`, for sums.
    """

    _what = "Sum"

    def __init__(
        self,
        over: Sequence[str],
        of: Callable[[Anything], float] | None = None,
        cap: float | None = None,
        clip: bool = False,
    ) -> None:
        super().__init__(over, of, cap, clip)

    def _number(self, name: str, value: Value, label: str) -> float:
        result = plain_value(value if self.of is None else self._called(name, value, label))
        if not is_number(result):
            raise InvalidModel(f"{label}: {name}={value} gives {shown(result)}; must be a number")
        return float(result)


def with_derived(variables: Structure, given: Anything) -> Structure:
    """Return a structure of the same states and actions with these derived variables.

    `given` is a mapping from names to pairs (scope, function), counts or sums, in any order.
    """
    if not isinstance(given, Mapping):
        raise InvalidModel(
            f"derived must be a mapping from names to (scope, function), Count or Sum; "
            f"got {shown(given)}"
        )
    for name in given:
        if not isinstance(name, str) or name in variables.names:
            called = quote(name) if isinstance(name, str) else shown(name)
            raise InvalidModel(f"derived variable {called}: must be a new name")
    growing = GrowingVariables(variables)
    for name in _in_order(given, variables):
        growing.define(name, given[name])
    return growing.structure()


class GrowingVariables(VariableSpace):
    """The variables of a structure, to which derived variables are added one after the other.

    A new structure per derived variable would take time quadratic in their number.
    """

    def __init__(self, structure: Structure) -> None:
        self._structure = structure
        self._added: list[Derived] = []
        self.names = structure.names
        self.values = structure.values
        self.all_sizes = structure.all_sizes
        self._numbers = dict(structure._numbers)

    def add(self, variable: Derived) -> int:
        """Add a derived variable and return its number; `structure` checks it."""
        number = len(self.all_sizes)
        self._added.append(variable)
        self.names += (variable.name,)
        self.values += (variable.values,)
        self.all_sizes += (variable.size,)
        self._numbers.setdefault(variable.name, number)
        return number

    def define(self, name: str, definition: Anything) -> None:
        """Add the derived variable of a definition, and the partial sums that it needs."""
        _Builder(self, name, definition).build()

    def structure(self) -> Structure:
        """Return the structure with the added variables, or raise InvalidModel."""
        return self._structure.with_derived((*self._structure.derived, *self._added))


def _scope_of(name: str, definition: Anything) -> tuple[Anything, ...]:
    if isinstance(definition, Aggregate):
        return tuple(definition.over)
    parts = items(definition, f"derived variable {quote(name)}, a pair (scope, function),")
    if len(parts) != 2:
        raise InvalidModel(
            f"derived variable {quote(name)} has {len(parts)} parts; must be (scope, function)"
        )
    return items(parts[0], f"scope of derived variable {quote(name)}")


def _in_order(given: Mapping[str, Anything], variables: Structure) -> list[str]:
    """Return the names so that each variable comes after those that it depends on."""
    known = {*variables.names, *given}
    scopes = {name: _scope_of(name, definition) for name, definition in given.items()}
    for name, scope in scopes.items():
        for member in scope:
            text = isinstance(member, str)
            if not text or member not in known:
                called = quote(member) if text else shown(member)
                near = did_you_mean(member, sorted(known)) if text else ""
                raise InvalidModel(
                    f"derived variable {quote(name)}: no variable is called {called}{near}"
                )
    ordered: dict[str, None] = {}
    for name in given:
        path = {} if name in ordered else {name: iter(scopes[name])}
        while path:
            last = next(reversed(path))
            member = next((v for v in path[last] if v in scopes and v not in ordered), None)
            if member is None:
                path.pop(last)
                ordered[last] = None
            elif member in path:
                cycle = [*path][[*path].index(member) :]
                raise InvalidModel(
                    f"derived variable {quote(member)} depends on itself: "
                    f"{' -> '.join([*cycle, member])}"
                )
            else:
                path[member] = iter(scopes[member])
    return list(ordered)


class _Law(NamedTuple):
    """The values that a derived variable can have for one assignment of its scope."""

    values: list[Anything]
    probabilities: list[float]
    drawn: bool


class _Builder:
    """Adds one derived variable, and the partial sums that it needs."""

    def __init__(self, variables: GrowingVariables, name: str, definition: Anything) -> None:
        self._variables = variables
        self._name = name
        self._definition = definition
        self._label = f"derived variable {quote(name)}"

    def build(self) -> None:
        if isinstance(self._definition, Aggregate):
            self._add_chain(self._definition)
        else:
            self._add_function(*self._definition)

    def _add_function(self, scope: Sequence[str], function: Callable[..., Anything]) -> None:
        s = self._variables
        numbers = tuple(sorted(scope_numbers(s, scope, self._label)))
        rows = count(s.scope_sizes(numbers))
        if rows > MOST_ROWS:
            raise TooLarge(
                f"{self._label}: its {len(numbers)} variables have {shown(rows)} joint values, and "
                f"the function would be called for each; at most {MOST_ROWS}: use Count or Sum, or "
                f"several derived variables",
                rows,
                MOST_ROWS,
            )
        laws = [self._law(function, values) for values in named_rows(s, numbers)]
        values = _values_in_order([value for law in laws for value in law.values])
        place = {value: position for position, value in enumerate(values)}
        table = np.zeros((rows, len(values)))
        for row, law in enumerate(laws):
            for value, probability in zip(law.values, law.probabilities, strict=True):
                table[row, place[value]] += probability
        drawn = any(law.drawn for law in laws)
        s.add(Derived(self._name, values, numbers, table if drawn else table.argmax(axis=1)))

    def _law(self, function: Callable[..., Anything], values: NamedValues) -> _Law:
        """Return the distribution that the function of the user gives for an assignment."""
        result, label = call(function, self._label, values), labelled(self._label, values)
        drawn = isinstance(result, Mapping)
        law = tuple(result.items()) if isinstance(result, Mapping) else ((result, 1.0),)
        for given, probability in law:
            value = plain_value(given)
            if not (isinstance(value, str) or is_number(value)):
                raise InvalidModel(f"{label}: {shown(value)} must be a text or a finite number")
            if not isinstance(probability, bool | int | float | np.integer | np.floating):
                raise InvalidModel(
                    f"{label}: the probability of {shown(value)} is {shown(probability)}; must be "
                    f"a number"
                )
        return _Law([plain_value(value) for value, _ in law], [p for _, p in law], drawn)

    def _add_chain(self, aggregate: Aggregate) -> None:
        names, label = self._variables.names, self._label
        numbers = scope_numbers(self._variables, aggregate.over, label)
        values_of = self._variables.values
        listed = dict.fromkeys(value for v in numbers for value in listed_values(values_of[v]))
        aggregate._check_values(tuple(listed), label)
        before, totals = -1, [0.0]
        for step, v in enumerate(numbers):
            contributions = [
                aggregate._number(names[v], value, label)
                for value in listed_values(self._variables.values[v])
            ]
            # One row per value of the variable and, after the first, per value of the partial sum.
            results = [
                plain_value(aggregate._limited(number if step == 0 else combined, label))
                for number in contributions
                for combined in (aggregate._combined(total, number) for total in totals)
            ]
            values = self._different(results)
            place = {value: position for position, value in enumerate(values)}
            last = step == len(numbers) - 1
            before = self._variables.add(
                Derived(
                    self._name if last else f"{self._name}[{step + 1}]",
                    values,
                    (v,) if step == 0 else (v, before),
                    np.array([place[result] for result in results]),
                    partial=not last,
                )
            )
            totals = list(values)

    def _different(self, results: Sequence[Anything]) -> list[Anything]:
        values = _values_in_order(results)
        if len(values) > _MOST_VALUES:
            raise TooLarge(
                f"{self._label}: a partial sum has {len(values)} values; at most {_MOST_VALUES}: "
                f"round the numbers, or give a cap with clip=True",
                len(values),
                _MOST_VALUES,
            )
        return values


def _values_in_order(values: Sequence[Anything]) -> list[Anything]:
    """Return the different values: numbers in increasing order, texts as they appear."""
    different = list(dict.fromkeys(values))
    if any(isinstance(value, str) for value in different):
        return different
    return sorted(int(value) if value == int(value) else value for value in different)
