"""Conditions of a model file: values of variables by name, read as boxes over a scope (rules.py).

    {"crew_1": "P3"}                       one value, by name or as a listed number
    {"crew_1": ["P3", "P4"]}               one of these values
    {"crew_1": {"not": "P3"}}              any but this value, or these
    [{"crew_1": "P3"}, {"crew_2": "P3"}]   one condition or the other
    {"on": "crew_1", "cases": {"P3": ..., "P4": ...}, "else": ...}      a tree of them

Error messages name the place of an unknown variable or value, of a condition that never holds, and
of a missing case.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from fmdp.errors import InvalidModel, InvalidParameter, UnknownName
from fmdp.model.fields import keyed, show, text
from fmdp.model.rules import MOST_CELLS, Box, cells
from fmdp.model.spaces import shown
from fmdp.model.structure import Structure

MOST_VALUES = 1 << 24
"""Most values that the conditions of one factor may list; "not" lists all other values."""


class Conditions:
    """Reader of the conditions of one factor, whose scope may be in any order.

    `label` begins the error messages.
    """

    def __init__(self, structure: Structure, scope: Sequence[int], label: str) -> None:
        self.structure, self.scope, self.label = structure, tuple(scope), label
        self.sizes = structure.scope_sizes(scope)
        self._axes = {structure.names[v]: axis for axis, v in enumerate(scope)}
        self._known: dict[tuple[int, str | int], tuple[int, ...]] = {}
        self._listed = 0
        self._cells = 0

    def axis(self, name: Any, label: str) -> int:
        """Return the place in the scope of the variable with this name."""
        if isinstance(name, str) and name in self._axes:
            return self._axes[name]
        try:
            self.structure.variable(text(name, f"{label}: the variable"))
        except UnknownName as error:
            raise InvalidModel(f"{label}: {error}") from None
        raise InvalidModel(
            f"{label}: {show(name)} is not in the scope "
            f"({', '.join(self.structure.names[v] for v in self.scope)})"
        )

    def values(self, axis: int, given: Any, label: str) -> tuple[int, ...]:
        """Return the values that a condition on a variable allows, sorted."""
        if type(given) is str or type(given) is int:
            known = self._known.get((axis, given))
            if known is None:
                known = (value_of(self.structure, self.scope[axis], given, label),)
                self._known[axis, given] = known
            return known
        variable = self.scope[axis]
        if isinstance(given, dict):
            fields = keyed(given, f"{label}: {show(self.structure.names[variable])}", ("not",), ())
            without = set(self._some(variable, fields["not"], label))
            self._count_values(self.sizes[axis])
            values = tuple(v for v in range(self.sizes[axis]) if v not in without)
        else:
            values = self._some(variable, given, label)
        if not values:
            raise InvalidModel(
                f"{label}: {show(self.structure.names[variable])} is {show(given)}, which no "
                f"value is; must leave at least one"
            )
        return values

    def _some(self, variable: int, given: Any, label: str) -> tuple[int, ...]:
        listed = given if isinstance(given, list) else [given]
        self._count_values(len(listed))
        return tuple(sorted({value_of(self.structure, variable, v, label) for v in listed}))

    def _count_values(self, more: int) -> None:
        self._listed += more
        if self._listed > MOST_VALUES:
            raise InvalidModel(
                f"{self.label}: its conditions list more than {MOST_VALUES} values; must be fewer"
            )

    def _count_cells(self, box: Box) -> None:
        self._cells += cells(self.sizes, box)
        if self._cells > MOST_CELLS:
            raise InvalidModel(
                f"{self.label}: its conditions hold {shown(self._cells)} rows one by one; must be "
                f"at most {MOST_CELLS}"
            )

    def box(self, given: Any, label: str) -> Box:
        """Return the rows in which all of {variable: values, ...} hold."""
        if not isinstance(given, dict):
            raise InvalidModel(f"{label} is {show(given)}; must be an object {{variable: value}}")
        box = {}
        for name, values in given.items():
            axis = self.axis(name, label)
            box[axis] = self.values(axis, values, label)
        self._count_cells(box)
        return box

    def boxes(self, given: Any, label: str) -> tuple[Box, ...]:
        """Return the boxes of one condition, or of a list of alternatives."""
        if not isinstance(given, list):
            return (self.box(given, f'{label}: "when"'),)
        if not given:
            raise InvalidModel(f'{label}: "when" is []; must have at least one condition')
        return tuple(
            self.box(box, f'{label}: "when", entry {number}') for number, box in enumerate(given)
        )

    def leaves(self, tree: Any) -> Iterator[tuple[Box, Any, str]]:
        """Yield the rows, the contents and the label of every leaf of a tree."""
        waiting: list[tuple[Any, dict[int, tuple[int, ...]], str]] = [(tree, {}, "")]
        while waiting:
            node, box, path = waiting.pop()
            label = f"{self.label}, tree{f' at {path}' if path else ''}"
            if not isinstance(node, dict) or "on" not in node:
                self._count_cells(box)
                yield dict(box), node, label
                continue
            fields = keyed(node, label, ("on", "cases"), ("else",))
            axis = self.axis(fields["on"], label)
            name = self.structure.names[self.scope[axis]]
            left = box.get(axis, range(self.sizes[axis]))
            branches = self._cases(fields["cases"], axis, name, left, label)
            taken = {value for value, _, _ in branches}
            self._count_values(len(left))
            rest = tuple(value for value in left if value not in taken)
            if rest and "else" not in fields:
                missing = self.structure.values[self.scope[axis]][rest[0]]
                raise InvalidModel(
                    f"{label}: no case for {name}={missing}; every value must have one, or there "
                    f'must be an "else"'
                )
            if not rest and "else" in fields:
                raise InvalidModel(
                    f'{label}: "else" can never fit, as every value of {name} has a case'
                )
            inner = f"{path}, " if path else ""
            children: list[tuple[Any, dict[int, tuple[int, ...]], str]] = [
                (below, box | {axis: (value,)}, f"{inner}{name}={word}")
                for value, word, below in branches
            ]
            if rest:
                children.append((fields["else"], box | {axis: rest}, f"{inner}{name} else"))
            waiting.extend(reversed(children))

    def _cases(
        self, given: Any, axis: int, name: str, left: Sequence[int], label: str
    ) -> list[tuple[int, str, Any]]:
        """Return (value, its name, subtree) of every case of a node."""
        if not isinstance(given, dict):
            raise InvalidModel(f'{label}: "cases" is {show(given)}; must be an object')
        branches: list[tuple[int, str, Any]] = []
        for word, below in given.items():
            value = value_of(self.structure, self.scope[axis], word, label)
            if value not in left:
                raise InvalidModel(
                    f"{label}: the case {name}={word} can never fit, as it was decided above"
                )
            branches.append((value, word, below))
        return branches


def value_of(structure: Structure, variable: int, given: Any, label: str) -> int:
    """Return the position of a value of a variable, given by name or as a number.

    A number that is a value means that value, as in every mapping (`Variables.place`).
    """
    states, n = structure.m, len(structure.sizes)
    try:
        if variable < states:
            return structure.naming.states.place(variable, given)
        if variable < n:
            return structure.naming.actions.place(variable - states, given)
        return structure.derived_variables.place(variable - n, given)
    except InvalidParameter as error:
        raise InvalidModel(f"{label}: {error}") from None
