"""Parameters: one declaration for problem ids, `--set`, sweep specs and `fmdp list`.

A parameter has a name, a kind (the class), a default, a meaning and a set of allowed values.
`parse` reads it from text (an id, a command line), `check` from a Python or TOML value, and `show`
writes the canonical text: parse(show(v)) == v for every allowed v. Every error has one line of one
form: "the 'x' parameter of Y must be ...; got ...".

A default of None means that the parameter may stay unset (text: `none`); a default of REQUIRED
means that it must be given. `only_with` limits a parameter to certain values of another one. With
other values of that one, any value but the default is refused, so that no setting is silently
ignored.
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from fmdp.errors import InvalidParameter, UnknownName, did_you_mean

# At most 4,000 digits: Python refuses to convert much longer texts to integers.
_INTEGER = re.compile(r"[+-]?[0-9]{1,4000}")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_LARGEST = 2**63 - 1
"""Largest integer of compiled code."""
_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_EDGE = re.compile(r"([0-9]{1,18})>([0-9]{1,18})")


class _Required:
    """Type of the default of a setting that must be given."""

    def __repr__(self) -> str:
        return "REQUIRED"


REQUIRED: Final = _Required()
"""Default of a setting that must be given."""


def quoted(value: object) -> str:
    """Return the value as shown in an error message: one line of at most 80 characters."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # an integer of 5,000 digits, a list nested 1,000 deep
        text = f"a value of type {type(value).__name__} that is too long to print"
    return text if len(text) <= 80 else text[:77] + "..."


def number_text(value: float) -> str:
    """Return the shortest text that reads back as the same number, without a trailing ".0"."""
    return repr(float(value)).removesuffix(".0")


@dataclass(frozen=True)
class Parameter(ABC):
    """Base class of the kinds. `owner` in its methods names the parameter's owner in messages."""

    name: str
    default: Any
    meaning: str
    only_with: tuple[str, tuple[Any, ...]] | None = field(default=None, kw_only=True)
    """(another parameter, its values with which this one is used); None: always."""
    unkeyed: tuple[Any, ...] = field(default=(), kw_only=True)
    """Values that the keys of stored runs omit. A setting that is added later states here the value
    that means the earlier behaviour, so that runs stored before keep their keys."""

    kind: ClassVar[str]

    @property
    @abstractmethod
    def allowed(self) -> str:
        """Description of the allowed values, as in "must be ..."."""

    def _read(self, text: str) -> Any:
        """Return the value of a text; raise ValueError if there is none."""
        return text

    @abstractmethod
    def _accept(self, value: Any) -> Any:
        """Return the value in its own type; raise ValueError if it is not allowed."""

    def _write(self, value: Any) -> str:
        return str(value)

    def _hint(self, value: object) -> str:
        return ""

    @property
    def required(self) -> bool:
        return self.default is REQUIRED

    @property
    def default_text(self) -> str:
        return "required" if self.required else self.show(self.default)

    def parse(self, text: str, owner: str) -> Any:
        if self.default is None and text == "none":
            return None
        try:
            return self._accept(self._read(text))
        except ValueError:
            raise self._refusal(text, owner) from None

    def check(self, value: object, owner: str) -> Any:
        """Return the checked value; a text is parsed."""
        if isinstance(value, str):
            return self.parse(value, owner)
        if value is None and self.default is None:
            return None
        try:
            return self._accept(value)
        except ValueError:
            raise self._refusal(value, owner) from None

    def show(self, value: Any) -> str:
        return "none" if value is None else self._write(value)

    def _refusal(self, value: object, owner: str) -> InvalidParameter:
        otherwise = " or none" if self.default is None else ""
        return InvalidParameter(
            f"the '{self.name}' parameter of {owner} must be {self.allowed}{otherwise}; "
            f"got {quoted(value)}{self._hint(value)}"
        )

    def refuse_idle(self, values: Mapping[str, Any], owner: str) -> None:
        """Raise InvalidParameter if this value would be ignored because of another's."""
        if self.only_with is None or values[self.name] == self.default:
            return
        other, useful = self.only_with
        if values[other] not in useful:
            words = " or ".join("none" if word is None else str(word) for word in useful)
            got = values[other] if isinstance(values[other], str) else quoted(values[other])
            raise InvalidParameter(
                f"the '{self.name}' parameter of {owner} is used with {other}={words} alone; "
                f"got {self.name}={self.show(values[self.name])} with {other}={got}"
            )


@dataclass(frozen=True)
class _Ranged(Parameter):
    """A parameter with a range; low and high belong to it unless they are open."""

    low: float = -math.inf
    high: float = math.inf
    low_open: bool = False
    high_open: bool = False

    noun: ClassVar[str]

    @property
    def _range(self) -> str:
        if self.low == -math.inf and self.high == math.inf:
            return ""
        if self.high == math.inf:
            return f" {'>' if self.low_open else '>='} {number_text(self.low)}"
        if self.low == -math.inf:
            return f" {'<' if self.high_open else '<='} {number_text(self.high)}"
        left, right = "(" if self.low_open else "[", ")" if self.high_open else "]"
        return f" in {left}{number_text(self.low)}, {number_text(self.high)}{right}"

    @property
    def allowed(self) -> str:
        return self.noun + self._range

    def _inside(self, value: float) -> None:
        above = value > self.low if self.low_open else value >= self.low
        below = value < self.high if self.high_open else value <= self.high
        if not (above and below):
            raise ValueError


def _as_int(value: Any) -> int:
    """Return an int from a Python or NumPy integer."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise ValueError
    try:
        return int(value.__index__())
    except TypeError:  # an array has the method but no index
        raise ValueError from None


def _as_float(value: Any) -> float:
    """Return a finite float from any number; booleans and arrays are refused."""
    if isinstance(value, bool | str | bytes) or getattr(value, "ndim", 0) != 0:
        raise ValueError
    if getattr(getattr(value, "dtype", None), "kind", "") == "b":  # a NumPy bool
        raise ValueError
    try:
        number = float(value)
    except (TypeError, OverflowError):
        raise ValueError from None
    if not math.isfinite(number):
        raise ValueError
    return number


@dataclass(frozen=True)
class Integer(_Ranged):
    """An integer in a range."""

    kind: ClassVar[str] = "integer"
    noun: ClassVar[str] = "an integer"

    def _read(self, text: str) -> int:
        if not _INTEGER.fullmatch(text):
            raise ValueError
        return int(text)

    def _accept(self, value: Any) -> int:
        number = _as_int(value)
        self._inside(number)
        if self.high == math.inf and abs(number) > _LARGEST:
            raise ValueError
        return number

    def _hint(self, value: object) -> str:
        """Compiled code counts in 64 bits, which is mentioned only for larger values."""
        try:
            number = self._read(value) if isinstance(value, str) else _as_int(value)
        except ValueError:
            return ""
        return f"; no integer may be beyond {_LARGEST}" if abs(number) > _LARGEST else ""


@dataclass(frozen=True)
class Bytes(Integer):
    """A number of bytes; as text also 500M or 2G, with K, M, G, T in powers of 1,024. An optional B
    or iB follows the letter."""

    @property
    def allowed(self) -> str:
        return f"{super().allowed}, or a text such as 500M or 2G"

    def _read(self, text: str) -> int:
        digits = text.strip()
        unit = digits.lstrip("0123456789.").strip()
        number = digits.removesuffix(unit).strip()
        factor = _UNITS.get(unit.upper().removesuffix("B").removesuffix("I"))
        if factor is None:
            raise ValueError
        if _INTEGER.fullmatch(number):
            return int(number) * factor
        try:
            return int(float(number) * factor)
        except OverflowError:
            raise ValueError from None


@dataclass(frozen=True)
class Number(_Ranged):
    """A finite number in a range."""

    kind: ClassVar[str] = "number"
    noun: ClassVar[str] = "a number"

    def _read(self, text: str) -> float:
        if not _NUMBER.fullmatch(text):
            raise ValueError
        return float(text)

    def _accept(self, value: Any) -> float:
        number = _as_float(value) + 0.0  # -0.0 + 0.0 is 0.0: one canonical text for zero
        self._inside(number)
        return number

    def _write(self, value: float) -> str:
        return number_text(value)


@dataclass(frozen=True)
class Numbers(_Ranged):
    """One number, or several joined by commas or plus signs (in an id by plus signs only). The
    value is a tuple of floats."""

    kind: ClassVar[str] = "numbers"
    noun: ClassVar[str] = "a number, or several joined by '+', each a number"

    @property
    def allowed(self) -> str:
        return self.noun + self._range if self._range else "a number, or several joined by '+'"

    def _read(self, text: str) -> tuple[float, ...]:
        parts = re.split(r"(?<![eE])[,+]", text)  # 1e+3 is one number
        if not all(_NUMBER.fullmatch(part.strip()) for part in parts):
            raise ValueError
        return tuple(float(part) for part in parts)

    def _accept(self, value: Any) -> tuple[float, ...]:
        try:
            items = tuple(value) if isinstance(value, Iterable) else (value,)
        except TypeError:  # a zero-dimensional array
            items = (value,)
        if not items:
            raise ValueError
        numbers = tuple(_as_float(item) + 0.0 for item in items)
        for number in numbers:
            self._inside(number)
        return numbers

    def _write(self, value: tuple[float, ...]) -> str:
        return "+".join(number_text(number) for number in value)


@dataclass(frozen=True)
class Choice(Parameter):
    """One of several words."""

    choices: tuple[str, ...] = ()

    kind: ClassVar[str] = "choice"

    @property
    def allowed(self) -> str:
        return "one of " + ", ".join(self.choices)

    def _accept(self, value: Any) -> str:
        if value not in self.choices:
            raise ValueError
        return str(value)

    def _hint(self, value: object) -> str:
        return did_you_mean(value, self.choices) if isinstance(value, str) else ""


@dataclass(frozen=True)
class Flag(Parameter):
    """True or false."""

    kind: ClassVar[str] = "flag"

    @property
    def allowed(self) -> str:
        return "true or false"

    def _read(self, text: str) -> bool:
        if text not in ("true", "false"):
            raise ValueError
        return text == "true"

    def _accept(self, value: Any) -> bool:
        if isinstance(value, bool):
            return value
        if getattr(getattr(value, "dtype", None), "kind", "") == "b" and value.ndim == 0:
            return bool(value)
        raise ValueError

    def _write(self, value: bool) -> str:
        return "true" if value else "false"


@dataclass(frozen=True)
class Text(Parameter):
    """A line of text; in an id without commas."""

    kind: ClassVar[str] = "text"

    @property
    def allowed(self) -> str:
        return "a line of text"

    def _accept(self, value: Any) -> str:
        if not isinstance(value, str) or not value or not value.isprintable():
            raise ValueError
        return value


@dataclass(frozen=True)
class Edges(Parameter):
    """A set of directed edges `parent>child`, joined by plus signs. The value is a sorted tuple of
    pairs of integers."""

    kind: ClassVar[str] = "edges"

    @property
    def allowed(self) -> str:
        return "edges parent>child joined by '+', each once and none from a node to itself"

    def _read(self, text: str) -> tuple[tuple[int, int], ...]:
        if text == "":
            return ()
        edges = []
        for part in text.split("+"):
            match = _EDGE.fullmatch(part.strip())
            if match is None:
                raise ValueError
            edges.append((int(match[1]), int(match[2])))
        return tuple(edges)

    def _accept(self, value: Any) -> tuple[tuple[int, int], ...]:
        try:
            edges = sorted((_as_int(parent), _as_int(child)) for parent, child in value)
        except TypeError:
            raise ValueError from None
        if len(set(edges)) < len(edges) or any(p == c or min(p, c) < 0 for p, c in edges):
            raise ValueError
        return tuple(edges)

    def _write(self, value: tuple[tuple[int, int], ...]) -> str:
        return "+".join(f"{parent}>{child}" for parent, child in value)


def split_assignments(items: Iterable[str], owner: str) -> dict[str, str]:
    """Split ["c=.03", "rho=.1"] into {"c": ".03", "rho": ".1"}; a name may be given only once."""
    given: dict[str, str] = {}
    for item in items:
        name, equals, text = (part.strip() for part in item.partition("="))
        if not equals or not name:
            raise InvalidParameter(
                f"a parameter of {owner} must be given as key=value; got {quoted(item)}"
            )
        if name in given:
            raise InvalidParameter(
                f"the '{name}' parameter of {owner} must be given once; "
                f"got {quoted(given[name])} and {quoted(text)}"
            )
        given[name] = text
    return given


def resolve(
    parameters: Sequence[Parameter], given: Mapping[str, object], owner: str
) -> dict[str, Any]:
    """Return a value for every parameter, in declaration order: the given one, checked, or the
    default."""
    known = [parameter.name for parameter in parameters]
    for name in given:
        if name not in known:
            allowed = f"it takes {', '.join(known)}" if known else "it takes none"
            raise UnknownName(
                f"{owner} has no parameter {quoted(name)} ({allowed}){did_you_mean(name, known)}"
            )
    values = {}
    for parameter in parameters:
        if parameter.name in given:
            values[parameter.name] = parameter.check(given[parameter.name], owner)
        elif parameter.required:
            raise InvalidParameter(
                f"the '{parameter.name}' parameter of {owner} ({parameter.meaning}) must be given: "
                f"{parameter.allowed}"
            )
        else:
            values[parameter.name] = parameter.default
    for parameter in parameters:
        parameter.refuse_idle(values, owner)
    return values


def check_fields(settings: Any, parameters: Sequence[Parameter], owner: str) -> None:
    """Check the fields of a frozen dataclass by their declarations, from its `__post_init__`. Each
    field then holds its value in the declared type (a NumPy integer becomes an int), so that Python
    and the command line refuse the same values with the same message."""
    given = {parameter.name: getattr(settings, parameter.name) for parameter in parameters}
    for name, value in resolve(parameters, given, owner).items():
        object.__setattr__(settings, name, value)


def canonical(parameters: Sequence[Parameter], values: Mapping[str, Any]) -> tuple[str, ...]:
    """Return ("key=value", ...) for the values that differ from the default, in declaration
    order."""
    return tuple(
        f"{parameter.name}={parameter.show(values[parameter.name])}"
        for parameter in parameters
        if values[parameter.name] != parameter.default
    )
