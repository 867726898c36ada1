"""Names of variables and values, and states and actions given by name.

Internally a state or an action is a tuple of positions, one per variable. Users may write

    (2, 0)                                  one position per variable, the fastest form
    ("broken", 0)                           a position or the name of a value, variable by variable
    {"pump": "broken", "beds": 3}           a mapping with every variable once
    "pump=broken,beds=3"                    the same as a text; as JSON if a name holds , or =
    "restart"                               a value alone, if there is only one variable

States given by name (a mapping or a text) are answered by name.

The values of a variable are texts or numbers, as they were listed: [1, 2, 3] are three numbers.
The name of a value is its text ("1"); files, tables and printed output show names. `ListedNames`
keeps the listed values beside their names, so that functions of users get numbers for listed
numbers. Two sequences with the same names are equal, whatever was listed.

In a mapping a number is a value: 1 is the value 1, at any position. In a sequence a number is a
position. In a mapping a number that is no value is a position only if it cannot be mistaken for a
value (`Variables.place`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, NoReturn, TypeAlias, overload

import numpy as np

from fmdp.errors import InvalidModel, InvalidParameter, did_you_mean
from fmdp.model.spaces import items, shown, shown_tuple, whole_number

Value: TypeAlias = str | int | float
"""A value of a variable as listed."""
ByName: TypeAlias = Mapping[str, Value] | str
"""A state or an action as a mapping to values, or as a text name=value,..."""
ByNumber: TypeAlias = Sequence[int | str]
"""One entry per variable: a position, or the name of a value."""
Assignment: TypeAlias = ByName | ByNumber

_LONGEST_QUOTED = 200
_LONGEST_COMPARED = 80
_LARGEST_NUMBER = 1e300
"""Largest |number| that may be a value: Python does not print integers of thousands of digits."""
_MOST_COMPARED = 4096
"""Most names that are searched for the one nearest to a wrong name."""


class Numerals(Sequence[str]):
    """The names "0", "1", ... of many values, each made on demand.

    A file of a kilobyte can declare a variable of 2^24 values, whose names would take a gigabyte.
    """

    __slots__ = ("_numbers",)

    def __init__(self, size: int) -> None:
        self._numbers = range(size)

    @property
    def listed(self) -> Sequence[int]:
        """The values themselves: 0, 1, ...."""
        return self._numbers

    def __len__(self) -> int:
        return len(self._numbers)

    @overload
    def __getitem__(self, place: int) -> str: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[str, ...]: ...
    def __getitem__(self, place: int | slice) -> str | tuple[str, ...]:
        numbers = self._numbers[place]
        return tuple(map(str, numbers)) if isinstance(numbers, range) else str(numbers)

    def __iter__(self) -> Iterator[str]:
        return map(str, self._numbers)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Numerals) and len(self) == len(other)

    def __hash__(self) -> int:
        return hash(self._numbers)

    def __repr__(self) -> str:
        return f"Numerals({len(self)})"

    def __reduce__(self) -> tuple[type[Numerals], tuple[int]]:
        return type(self), (len(self),)


class ListedNames(tuple[str, ...]):
    """The names of values together with the listed values, some of which are numbers.

    Compares and hashes as the tuple of the names.
    """

    listed: tuple[Value, ...]
    """The values themselves; the name of each is its text."""

    def __new__(cls, listed: Iterable[Value]) -> ListedNames:
        values = tuple(listed)
        names = super().__new__(cls, map(str, values))
        names.listed = values
        return names

    def __reduce__(self) -> tuple[type[ListedNames], tuple[tuple[Value, ...]]]:
        return type(self), (self.listed,)


def listed_values(names: Sequence[str]) -> Sequence[Value]:
    """Return the listed values of a variable with these names of values."""
    values: Sequence[Value] = getattr(names, "listed", names)
    return values


FEW_VALUES = 4096
"""Largest size for which the default names of values are a tuple."""


def numerals(size: int) -> Sequence[str]:
    """Return the default names of the values of a variable: "0", "1", ...."""
    return _few_numerals(size) if size <= FEW_VALUES else Numerals(size)


@lru_cache(maxsize=64)
def _few_numerals(size: int) -> ListedNames:
    return ListedNames(range(size))


def are_numerals(names: Sequence[str]) -> bool:
    """Return whether the values are the default ones, the numbers 0, 1, ... in order."""
    listed = listed_values(names)
    return not isinstance(listed, tuple) or (
        isinstance(names, ListedNames)
        and all(type(value) is int and value == place for place, value in enumerate(listed))
    )


def number_in(name: str) -> int | float | None:
    """Return the number that a name is the usual text of: 2 for "2", but None for "02"."""
    for kind in (int, float):
        try:
            number: int | float = kind(name)
        except ValueError:
            continue
        if str(number) == name and is_number(number):
            return number
    return None


def _looks_like_a_number(name: str) -> bool:
    """Return whether a reader would take a name for a number, such as "02" and "1e3"."""
    try:
        float(name)
    except ValueError:
        return False
    return any(map(str.isdigit, name))


def positions_are_clear(names: Sequence[str]) -> bool:
    """Return whether a number that is no value of a variable can only mean a position.

    That is not so if numbers were listed, or if a name looks like a number other than its position.
    """
    if listed_values(names) is not names:
        return False
    return all(name == str(place) for place, name in enumerate(names) if _looks_like_a_number(name))


def default_names(prefix: str, n: int) -> tuple[str, ...]:
    """Return the default names of n variables or factors: prefix0, prefix1, ...."""
    return tuple(f"{prefix}{index}" for index in range(n))


def quote(name: str) -> str:
    """Return a name in quotes, shortened, for messages."""
    name = name if len(name) <= _LONGEST_QUOTED else f"{name[: _LONGEST_QUOTED - 3]}..."
    return f'"{name}"' if name.isprintable() else ascii(name)


def listed(names: Sequence[str], most: int = 12) -> str:
    """Return the first names and how many there are, for messages."""
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown}, ... ({len(names)} in all)"


def nearest(word: str, names: Sequence[str]) -> str:
    """Return '; did you mean "x"?', or nothing; also if comparing would take long."""
    few = len(names) <= _MOST_COMPARED and len(word) <= _LONGEST_COMPARED
    return did_you_mean(word, names) if few else ""


# ---- names as they are declared ------------------------------------------------------------------


def checked_names(names: Sequence[str], n: int, kind: str, prefix: str) -> tuple[str, ...]:
    """Return n names, by default prefix0, prefix1, ..., or raise InvalidModel."""
    if isinstance(names, str):
        raise InvalidModel(f"{kind} names {names!r}: must be {n} names, or none")
    names = items(names, f"{kind} names")
    if len(names) == 0:
        return default_names(prefix, n)
    if len(names) != n:
        raise InvalidModel(f"{kind} names {names!r}: must be {n} names, or none")
    for index, name in enumerate(names):
        if not _is_name(name):
            raise InvalidModel(
                f"name of {kind} {index} is {name!r}; must be a non-empty printable string"
            )
    return tuple(names)


def _is_name(name: object) -> bool:
    # Printable keeps every error message that quotes the name on one line.
    return isinstance(name, str) and name != "" and name.isprintable()


def refuse_repeated(names: Sequence[str], what: str) -> None:
    """Raise InvalidModel if a name occurs twice."""
    if len(set(names)) == len(names):
        return
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise InvalidModel(f"{what} {quote(name)} occurs twice; names must differ")
        seen.add(name)


def checked_values(
    values: Sequence[Sequence[Value]], sizes: Sequence[int], names: Sequence[str], kind: str
) -> tuple[Sequence[str], ...]:
    """Return the names of the values of every variable, 0, 1, ... by default, or raise."""
    values = items(values, f"{kind} values")
    if len(values) == 0:
        return tuple(numerals(size) for size in sizes)
    if len(values) != len(sizes):
        raise InvalidModel(
            f"value names for {len(values)} {kind} variables; must be for {len(sizes)}, or none"
        )
    # Variables that share one list of values are checked once.
    checked: dict[tuple[int, int], Sequence[str]] = {}
    for given, size, name in zip(values, sizes, names, strict=True):
        if (id(given), size) not in checked:
            checked[id(given), size] = _checked_list(given, size, f"{kind} variable {quote(name)}")
    return tuple(checked[id(given), size] for given, size in zip(values, sizes, strict=True))


def _checked_list(given: Any, size: int, label: str) -> Sequence[str]:
    if isinstance(given, str):
        raise InvalidModel(f"{label} has {len(given)} value names; must have {size}")
    if isinstance(given, Numerals) and len(given) == size > FEW_VALUES:
        return given
    listed = [plain_value(value) for value in items(listed_values(given), f"{label}: value names")]
    if len(listed) == 0:
        return numerals(size)
    if len(listed) != size:
        raise InvalidModel(f"{label} has {len(listed)} value names; must have {size}")
    for value in listed:
        if not (_is_name(value) if isinstance(value, str) else is_number(value)):
            raise InvalidModel(
                f"{label}: value name {shown(value)} must be a non-empty printable string, or a "
                f"finite number"
            )
    names = tuple(map(str, listed))
    refuse_repeated(names, f"{label}: value name")
    numbers: dict[Value, Value] = {}
    for value in listed:
        if not isinstance(value, str) and numbers.setdefault(value, value) is not value:
            raise InvalidModel(
                f"{label}: {numbers[value]} and {value} are the same number; values must differ"
            )
    # Equal names have one representation, however they were given.
    if numbers and are_numerals(ListedNames(listed)):
        return numerals(size)
    if size > FEW_VALUES and all(map(str.__eq__, names, Numerals(size))):
        return Numerals(size)
    return ListedNames(listed) if numbers else names


def plain_value(value: Any) -> Any:
    """Return a NumPy scalar as a Python value, anything else unchanged."""
    return value.item() if isinstance(value, np.generic) else value


def is_number(value: object) -> bool:
    """Return whether a plain value is a finite number; booleans count as 0 and 1."""
    return isinstance(value, int | float) and abs(value) <= _LARGEST_NUMBER


# ---- assignments ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Variables:
    """The state or the action variables by name: reads assignments and names them."""

    kind: str
    """"state" or "action"."""
    names: tuple[str, ...]
    values: tuple[Sequence[str], ...]

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Number of values of each variable."""
        return tuple(map(len, self.values))

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(self.names)}

    @cached_property
    def _indices(self) -> tuple[dict[str, int] | None, ...]:
        """For each variable the positions of its values by name; None for `Numerals`."""
        return tuple(
            None
            if isinstance(values, Numerals)
            else {name: place for place, name in enumerate(values)}
            for values in self.values
        )

    @cached_property
    def listed(self) -> tuple[Sequence[Value], ...]:
        """The listed values of each variable."""
        return tuple(map(listed_values, self.values))

    @cached_property
    def _by_number(self) -> tuple[dict[int | float, int] | None, ...]:
        """For each variable the positions of values that are numbers or texts of numbers.

        None for the default values, each of which is its own position.
        """
        return tuple(
            None if are_numerals(values) else _positions_by_number(values) for values in self.values
        )

    def check(self, given: Any, what: str) -> tuple[int, ...]:
        """Return an assignment as a tuple of positions, or raise InvalidParameter."""
        sizes, plain = self.sizes, given
        if type(given) is list:
            plain = tuple(given)
        elif type(given) is np.ndarray and given.dtype.kind in "iu" and given.ndim == 1:
            plain = tuple(given.tolist())
        if type(plain) is tuple and len(plain) == len(sizes):
            for value, size in zip(plain, sizes, strict=True):
                if type(value) is not int or not 0 <= value < size:
                    break
            else:
                return plain
        if isinstance(given, str):
            return self._of_pairs(self._pairs(given, what), what)
        if isinstance(given, Mapping):
            return self._of_pairs(given.items(), what)
        return self._of_sequence(given, what)

    def _of_sequence(self, given: Any, what: str) -> tuple[int, ...]:
        try:
            values = items(given, what)
        except InvalidModel:
            raise InvalidParameter(
                f"{what} is {shown(given)}; must be {len(self.sizes)} whole numbers or names of "
                f"values, or a mapping by name"
            ) from None
        if len(values) != len(self.sizes):
            raise InvalidParameter(
                f"{what} {shown_tuple(values)} has {len(values)} values; must have "
                f"{len(self.sizes)}"
            )
        try:
            return tuple(self.value(number, value) for number, value in enumerate(values))
        except InvalidParameter as error:
            raise InvalidParameter(f"{what} {shown_tuple(values)}: {error}") from None

    def _of_pairs(self, pairs: Iterable[tuple[Any, Any]], what: str) -> tuple[int, ...]:
        values = in_order(pairs, self._numbers, f"{self.kind} variable", what)
        try:
            return tuple(self.place(number, value) for number, value in enumerate(values))
        except InvalidParameter as error:
            raise InvalidParameter(f"{what}: {error}") from None

    def _pairs(self, text: str, what: str) -> list[tuple[Any, Any]]:
        """Return (variable, value) pairs of a text name=value,..., of JSON, or of a value alone."""
        if text.lstrip().startswith("{"):
            return _json_pairs(text, what)
        alone = len(self.names) == 1
        if alone and ("=" not in text or self._named_place(0, text) is not None):
            return [(self.names[0], text)]
        pairs: list[tuple[Any, Any]] = []
        for part in text.split(","):
            name, sign, value = part.partition("=")
            if not sign:
                example = ",".join(
                    f"{variable}={values[0]}"
                    for variable, values in zip(self.names[:2], self.values, strict=False)
                )
                more = ",..." if len(self.names) > 2 else ""
                raise InvalidParameter(
                    f"{what}: {quote(part)} must be name=value, as in {example}{more}"
                )
            pairs.append((name.strip(), value.strip()))
        return pairs

    def _named_place(self, number: int, name: str) -> int | None:
        """Return the position of the value with this name, or None."""
        known = self._indices[number]
        if known is not None:
            return known.get(name)
        few = len(name) <= 9 and name.isascii() and name.isdecimal()
        place = int(name) if few else -1
        return place if 0 <= place < self.sizes[number] and str(place) == name else None

    def value_place(self, number: int, value: Any) -> int | None:
        """Return the position of a value of one variable, or None if it is no value.

        A text is the name of a value. A number is a value that was listed as this number or as
        its text.
        """
        value = plain_value(value)
        if isinstance(value, str):
            return self._named_place(number, value)
        if not is_number(value):
            return None
        known = self._by_number[number]
        if known is not None:
            return known.get(value)
        return int(value) if value == int(value) and 0 <= value < self.sizes[number] else None

    def place(self, number: int, value: Any) -> int:
        """Return the position of a value in a mapping, or raise InvalidParameter.

        A number that is a value means that value. Any other number is a position if
        `positions_are_clear`.
        """
        place = self.value_place(number, value)
        if place is not None:
            return place
        values = self.values[number]
        if isinstance(value, str) or not (are_numerals(values) or positions_are_clear(values)):
            self._refuse(number, value)
        return self.value(number, value)

    def value(self, number: int, value: Any) -> int:
        """Return the position of an entry of a sequence: a position or the name of a value."""
        size, values = self.sizes[number], self.values[number]
        if isinstance(value, str):
            place = self._named_place(number, value)
            return self._refuse(number, value) if place is None else place
        whole = whole_number(value)
        if whole is None or not 0 <= whole < size:
            names = "" if are_numerals(values) else f", or one of {listed(values)}"
            raise InvalidParameter(
                f"{quote(self.names[number])} is {shown(value)}; must be in 0..{size - 1}{names}"
            )
        return whole

    def alone(self, value: Any) -> int:
        """Return the position that a number means if there is only one variable.

        It may be a value or a position. Raise InvalidParameter if these differ.
        """
        place, whole = self.value_place(0, value), whole_number(value)
        if place is None:
            return self.value(0, value)
        if whole is not None and whole != place and 0 <= whole < self.sizes[0]:
            name, values = self.names[0], self.values[0]
            raise InvalidParameter(
                f"{self.kind} {whole} could be the value {whole} of {quote(name)}, or its value at "
                f"position {whole}, which is {values[whole]}; must be {{{name!r}: {whole}}} or "
                f"({whole},)"
            )
        return place

    def _refuse(self, number: int, value: Any) -> NoReturn:
        values = self.values[number]
        text = isinstance(value, str)
        raise InvalidParameter(
            f"{quote(self.names[number])} has no value {quote(value) if text else shown(value)}; "
            f"must be one of {listed(values)}{nearest(value, values) if text else ''}"
        )

    def named(self, assignment: Sequence[int]) -> dict[str, str]:
        """Return an assignment, not checked, by the names of its values."""
        return {
            name: values[place]
            for name, values, place in zip(self.names, self.values, assignment, strict=True)
        }

    def as_listed(self, assignment: Sequence[int]) -> dict[str, Value]:
        """Return an assignment, not checked, by name with its listed values."""
        return {
            name: values[place]
            for name, values, place in zip(self.names, self.listed, assignment, strict=True)
        }


def _positions_by_number(names: Sequence[str]) -> dict[int | float, int]:
    """Return the positions of values that are numbers, or texts of a number.

    A listed number takes precedence over a text of it; two texts of one number ("1" and "1.0") are
    ambiguous and left out.
    """
    numbers: dict[int | float, int] = {}
    texts: dict[int | float, list[int]] = {}
    for place, value in enumerate(listed_values(names)):
        if not isinstance(value, str):
            numbers[value] = place
        elif (number := number_in(value)) is not None:
            texts.setdefault(number, []).append(place)
    return {number: places[0] for number, places in texts.items() if len(places) == 1} | numbers


class NamedValues(dict[str, Any]):
    """Values by the name of their variable, for functions of users.

    Reading an unknown variable raises a KeyError that lists the known ones.
    """

    def __missing__(self, name: str) -> Any:
        raise KeyError(f"reads {name!r}, which is not among {', '.join(self) or 'no variables'}")


def in_order(
    pairs: Iterable[tuple[Any, Any]], numbers: Mapping[str, int], kind: str, what: str
) -> list[Any]:
    """Return values given by name, in the order of the numbers; every name must occur once."""
    values: dict[int, Any] = {}
    names = tuple(numbers)
    for name, value in pairs:
        number = numbers.get(name) if isinstance(name, str) else None
        if number is None:
            word = quote(name) if isinstance(name, str) else shown(name)
            hint = nearest(name, names) if isinstance(name, str) else ""
            raise InvalidParameter(
                f"{what}: no {kind} is called {word}; must be one of {listed(names)}{hint}"
            )
        if number in values:
            raise InvalidParameter(f"{what}: {quote(name)} is given twice; must be given once")
        values[number] = value
    if len(values) < len(numbers):
        missing = [quote(name) for name, number in numbers.items() if number not in values]
        verb = "are" if len(missing) > 1 else "is"
        raise InvalidParameter(
            f"{what}: {listed(missing)} {verb} missing; every {kind} must have a value"
        )
    return [values[number] for number in range(len(numbers))]


class _Pairs(list[tuple[str, Any]]):
    """The pairs of a JSON object, repeated keys included."""


def _json_pairs(text: str, what: str) -> list[tuple[Any, Any]]:
    try:
        pairs = json.loads(text, object_pairs_hook=_Pairs)
    except (ValueError, RecursionError):
        pairs = None
    if not isinstance(pairs, _Pairs):
        raise InvalidParameter(f"{what} {shown(text)} is no JSON object {{name: value, ...}}")
    return pairs


@dataclass(frozen=True)
class Naming:
    """Names of the state and action variables and of their values.

    Every structure has one (`structure.naming`), and so does every policy of a planner.
    """

    states: Variables
    actions: Variables

    @classmethod
    def default(cls, state_sizes: Sequence[int], action_sizes: Sequence[int]) -> Naming:
        """Return the default names: s0, s1, ..., a0, a1, ..., with values 0, 1, ...."""
        sides = (("state", state_sizes), ("action", action_sizes))
        return cls(
            *(
                Variables(kind, default_names(kind[0], len(sizes)), tuple(map(numerals, sizes)))
                for kind, sizes in sides
            )
        )

    @cached_property
    def is_default(self) -> bool:
        """True if all names and values are the default ones."""
        return self == Naming.default(self.states.sizes, self.actions.sizes) and all(
            map(are_numerals, (*self.states.values, *self.actions.values))
        )

    def check_state(self, state: Assignment, what: str = "state") -> tuple[int, ...]:
        """See `Structure.check_state`."""
        return self.states.check(state, what)

    def check_action(self, action: Assignment, what: str = "action") -> tuple[int, ...]:
        """See `Structure.check_action`."""
        return self.actions.check(action, what)

    def refuse_other(self, other: Naming, owner: str, others: str) -> None:
        """Raise InvalidParameter if two namings of equal sizes differ; default names fit any."""
        for mine, theirs in ((self.states, other.states), (self.actions, other.actions)):
            kind = mine.kind
            named = [
                variables.names != default_names(kind[0], len(variables.names))
                for variables in (mine, theirs)
            ]
            for number, (name, its) in enumerate(zip(mine.names, theirs.names, strict=True)):
                if all(named) and name != its:
                    raise InvalidParameter(
                        f"{kind} variable {number} of {owner} is called {quote(name)}; that of "
                        f"{others} is {quote(its)}"
                    )
            for name, values, its_values in zip(
                mine.names, mine.values, theirs.values, strict=True
            ):
                if values != its_values and numerals(len(values)) not in (values, its_values):
                    raise InvalidParameter(
                        f"the values of {quote(name)} in {owner} are called {listed(values)}; "
                        f"those of {others} are {listed(its_values)}"
                    )

    def header(self) -> dict[str, list[Any]] | None:
        """Return the names for the header of a file, or None if all are the default ones.

        Default values are an empty list.
        """
        if self.is_default:
            return None
        header: dict[str, list[Any]] = {}
        for kind, variables in (("state", self.states), ("action", self.actions)):
            header[f"{kind}_names"] = list(variables.names)
            header[f"{kind}_values"] = [
                [] if are_numerals(values) else list(listed_values(values))
                for values in variables.values
            ]
        return header

    @classmethod
    def from_header(
        cls, header: Any, state_sizes: Sequence[int], action_sizes: Sequence[int]
    ) -> Naming:
        """Return the naming that `header` wrote, for variables of these sizes, or raise."""
        if header is None:
            return cls.default(state_sizes, action_sizes)
        keys = {f"{kind}_{what}" for kind in ("state", "action") for what in ("names", "values")}
        if not isinstance(header, dict) or header.keys() != keys:
            raise InvalidParameter(
                f"its names must be an object of {', '.join(sorted(keys))}; got {shown(header)}"
            )
        sides: list[Variables] = []
        for kind, sizes in (("state", state_sizes), ("action", action_sizes)):
            names = checked_names(header[f"{kind}_names"], len(sizes), kind, kind[0])
            values = checked_values(header[f"{kind}_values"], sizes, names, kind)
            sides.append(Variables(kind, names, values))
        refuse_repeated(sides[0].names + sides[1].names, "variable name")
        return cls(*sides)

    def answer(self, action: tuple[int, ...], asked: Assignment) -> Any:
        """Return an action by name, with listed values, if the state was given by name."""
        return self.actions.as_listed(action) if by_name(asked) else action


def by_name(given: object) -> bool:
    """Return whether a state or an action is given by name."""
    return type(given) is not tuple and isinstance(given, str | Mapping)
