"""Variables of the model, and the fluents that they stand for.

A variable has finitely many values, and every value of it says what each of its fluents is: a
fluent of its own ({running___c1: (false, true)}), a group of fluents of which at most one holds
(one value a fluent, and "none"), or all actions of which at most one is chosen.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmdp.interop.rddl.expressions import Constant
from fmdp.interop.rddl.instance import Fluent
from fmdp.model.naming import Value

Array = NDArray[Any]

NONE = "none"
NOOP = "noop"


def shown(value: Constant) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@dataclass(frozen=True, eq=False)
class Variable:
    """A name, the names of the values, and what each fluent is under each value."""

    name: str
    values: tuple[str, ...]
    fluents: Mapping[str, tuple[Constant, ...]]

    @property
    def size(self) -> int:
        return len(self.values)

    @property
    def listed(self) -> tuple[Value, ...]:
        """The values as a model lists them: numbers where the one fluent is a number."""
        if len(self.fluents) != 1:
            return self.values
        constants = next(iter(self.fluents.values()))
        return tuple(
            name if isinstance(constant, bool) or str(constant) != name else constant
            for name, constant in zip(self.values, constants, strict=True)
        )

    def value_where(self, known: Mapping[str, Constant]) -> int:
        """The value under which its fluents are as they are known to be."""
        return next(
            index
            for index in range(self.size)
            if all(told[index] == known[fluent] for fluent, told in self.fluents.items())
        )

    def keeping(self, kept: Sequence[int]) -> Variable:
        """With these values alone."""
        return Variable(
            self.name,
            tuple(self.values[index] for index in kept),
            {fluent: tuple(told[index] for index in kept) for fluent, told in self.fluents.items()},
        )

    def primed(self) -> Variable:
        """The same of the next state."""
        return Variable(
            f"{self.name}'", self.values, {primed(one): told for one, told in self.fluents.items()}
        )


def primed(fluent: str) -> str:
    """running___c1 -> running'___c1."""
    family, separator, objects = fluent.partition("___")
    return f"{family}'{separator}{objects}"


def unprimed(fluent: str) -> str:
    family, separator, objects = fluent.partition("___")
    return f"{family.removesuffix(chr(39))}{separator}{objects}"


def single(fluent: str, values: Iterable[Constant]) -> Variable:
    """A fluent that is a variable of its own."""
    told = tuple(values)
    return Variable(fluent, tuple(map(shown, told)), {fluent: told})


def exclusive(name: str, members: Sequence[Fluent]) -> Variable:
    """At most one of some fluents holds: `none` first, then a value for each."""
    short = {one.name: one for one in members}
    labels = _short_names(list(short.values()))
    return Variable(
        name,
        (NONE, *labels),
        {
            one: tuple(index == 1 + place for index in range(1 + len(short)))
            for place, one in enumerate(short)
        },
    )


def _short_names(members: Sequence[Fluent]) -> list[str]:
    """What tells the members of a group apart: the objects in which they differ."""
    differing = [
        place
        for place in range(len(members[0].objects))
        if len({one.objects[place] for one in members}) > 1
    ]
    names = ["__".join(one.objects[place] for place in differing) for one in members]
    return names if len(set(names)) == len(names) else [one.name for one in members]


def chosen(name: str, actions: Sequence[Fluent]) -> Variable:
    """One action variable: nothing, or one fluent at a value that is not its default."""
    choices = [
        (one, value) for one in actions for value in one.values or () if value != one.default
    ]
    return Variable(
        name,
        (
            NOOP,
            *(
                one.name if isinstance(value, bool) else f"{one.name}={shown(value)}"
                for one, value in choices
            ),
        ),
        {
            one.name: (
                one.default,
                *(value if one is other else one.default for other, value in choices),
            )
            for one in actions
        },
    )


class Frame:
    """Axes for evaluation: one a variable; what a fluent is, as an array along its axis.

    Objects and values of enumerated types are numbers here, one for each name in the instance.
    """

    def __init__(self, variables: Sequence[Variable], codes: Mapping[str, int]) -> None:
        self.variables = tuple(variables)
        self.codes = codes
        self.shape = tuple(one.size for one in variables)
        self._place = {fluent: axis for axis, one in enumerate(variables) for fluent in one.fluents}

    def array(self, fluent: str) -> Array:
        axis = self._place[fluent]
        told = self.variables[axis].fluents[fluent]
        values = np.array([self.coded(one) for one in told])
        return values.reshape([-1 if other == axis else 1 for other in range(len(self.shape))])

    def coded(self, value: Constant) -> bool | int | float:
        return self.codes[value] if isinstance(value, str) else value

    def joint_index(self, fluents: Iterable[str]) -> tuple[Array, int]:
        """A number for every joint value of some fluents, and how many numbers there are."""
        total: Array = np.zeros((1,) * len(self.shape), dtype=np.int64)
        count = 1
        for fluent in sorted(fluents):
            values = self.array(fluent)
            found, index = np.unique(values, return_inverse=True)
            total = total * len(found) + index.reshape(values.shape)
            count *= len(found)
        return total, count
