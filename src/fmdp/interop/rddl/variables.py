"""Variables of the model and the fluents that they stand for.

Every value of a variable determines its fluents. A variable stands for a single fluent
({running___c1: (false, true)}), a group of fluents of which at most one holds (one value per fluent
and "none"), or all actions if at most one can be chosen.
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
    """A name, the names of the values, and the value of each fluent under each of them."""

    name: str
    values: tuple[str, ...]
    fluents: Mapping[str, tuple[Constant, ...]]

    @property
    def size(self) -> int:
        return len(self.values)

    @property
    def listed(self) -> tuple[Value, ...]:
        """The values as a model lists them: numbers if the only fluent is a number."""
        if len(self.fluents) != 1:
            return self.values
        constants = next(iter(self.fluents.values()))
        return tuple(
            name if isinstance(constant, bool) or str(constant) != name else constant
            for name, constant in zip(self.values, constants, strict=True)
        )

    def value_where(self, known: Mapping[str, Constant]) -> int:
        """Return the value under which the fluents have their known values."""
        return next(
            index
            for index in range(self.size)
            if all(constants[index] == known[fluent] for fluent, constants in self.fluents.items())
        )

    def keeping(self, kept: Sequence[int]) -> Variable:
        """Return the variable with only these values."""
        return Variable(
            self.name,
            tuple(self.values[index] for index in kept),
            {
                fluent: tuple(constants[index] for index in kept)
                for fluent, constants in self.fluents.items()
            },
        )

    def primed(self) -> Variable:
        """Return the variable of the next state."""
        return Variable(
            f"{self.name}'",
            self.values,
            {primed(fluent): constants for fluent, constants in self.fluents.items()},
        )


def primed(fluent: str) -> str:
    """Return the name of the next value: running___c1 -> running'___c1."""
    family, separator, objects = fluent.partition("___")
    return f"{family}'{separator}{objects}"


def unprimed(fluent: str) -> str:
    family, separator, objects = fluent.partition("___")
    return f"{family.removesuffix(chr(39))}{separator}{objects}"


def single(fluent: str, values: Iterable[Constant]) -> Variable:
    """Return the variable of a single fluent."""
    constants = tuple(values)
    return Variable(fluent, tuple(map(shown, constants)), {fluent: constants})


def exclusive(name: str, members: Sequence[Fluent]) -> Variable:
    """Return the variable of a group of fluents: `none` first, then one value per fluent."""
    names = [fluent.name for fluent in members]
    return Variable(
        name,
        (NONE, *_short_names(members)),
        {
            fluent: tuple(index == place for index in range(1 + len(names)))
            for place, fluent in enumerate(names, start=1)
        },
    )


def _short_names(members: Sequence[Fluent]) -> list[str]:
    """Return names of the members of a group, made of the objects in which they differ."""
    differing = [
        place
        for place in range(len(members[0].objects))
        if len({fluent.objects[place] for fluent in members}) > 1
    ]
    names = ["__".join(fluent.objects[place] for place in differing) for fluent in members]
    return names if len(set(names)) == len(names) else [fluent.name for fluent in members]


def chosen(name: str, actions: Sequence[Fluent]) -> Variable:
    """Return one action variable: no operation, or one fluent at a non-default value."""
    choices = [
        (fluent, value)
        for fluent in actions
        for value in fluent.values or ()
        if value != fluent.default
    ]
    return Variable(
        name,
        (
            NOOP,
            *(
                fluent.name if isinstance(value, bool) else f"{fluent.name}={shown(value)}"
                for fluent, value in choices
            ),
        ),
        {
            fluent.name: (
                fluent.default,
                *(value if fluent is other else fluent.default for other, value in choices),
            )
            for fluent in actions
        },
    )


class Frame:
    """Axes for evaluation, one per variable; a fluent is an array along the axis of its variable.

    Objects and values of enumerated types are coded as numbers, one per name in the instance.
    """

    def __init__(self, variables: Sequence[Variable], codes: Mapping[str, int]) -> None:
        self.variables = tuple(variables)
        self.codes = codes
        self.shape = tuple(v.size for v in variables)
        self._place = {fluent: axis for axis, v in enumerate(variables) for fluent in v.fluents}

    def array(self, fluent: str) -> Array:
        axis = self._place[fluent]
        constants = self.variables[axis].fluents[fluent]
        values = np.array([self.coded(constant) for constant in constants])
        return values.reshape([-1 if other == axis else 1 for other in range(len(self.shape))])

    def coded(self, value: Constant) -> bool | int | float:
        return self.codes[value] if isinstance(value, str) else value

    def joint_index(self, fluents: Iterable[str]) -> tuple[Array, int]:
        """Return an index of the joint values of some fluents, and the number of joint values."""
        total: Array = np.zeros((1,) * len(self.shape), dtype=np.int64)
        count = 1
        for fluent in sorted(fluents):
            values = self.array(fluent)
            distinct, index = np.unique(values, return_inverse=True)
            total = total * len(distinct) + index.reshape(values.shape)
            count *= len(distinct)
        return total, count
