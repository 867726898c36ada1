"""Quantities: named factors of a model that pay nothing, such as the number of call-outs per step.

A plan may limit their long-run averages, as those of reward factors, and fronts are drawn of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fmdp.errors import InvalidModel
from fmdp.model.naming import checked_names
from fmdp.model.scopes import scope_numbers
from fmdp.model.spaces import FloatArray, items, shown
from fmdp.model.structure import Structure
from fmdp.model.tables import parts_of, sort_rows, table_rows

TOTAL = "reward"
"""The name of the total reward, which no quantity may have."""


@dataclass(frozen=True, eq=False)
class Quantity:
    """A named factor that pays nothing.

    Attributes
    ----------
    name
        Different from the names of all reward factors and other quantities.
    scope
        The variables that it depends on, by number, sorted: states, actions, derived variables.
    table
        Its mean for each assignment of the scope, the last variable fastest.
    """

    name: str
    scope: tuple[int, ...]
    table: FloatArray

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Quantity)
            and (self.name, self.scope) == (other.name, other.scope)
            and np.array_equal(self.table, other.table)
        )

    def __hash__(self) -> int:
        return hash((self.name, self.scope, self.table.tobytes()))

    def __reduce__(self) -> tuple[Any, ...]:
        # Through a function, because pickled arrays come back writeable.
        return _quantity, (self.name, self.scope, np.array(self.table))


def _quantity(name: str, scope: tuple[int, ...], table: FloatArray) -> Quantity:
    table.flags.writeable = False
    return Quantity(name, scope, table)


def label_of(name: object) -> str:
    """Return what messages call a quantity."""
    return f"quantity {shown(name)}"


def quantity_pairs(given: Any, what: str) -> list[tuple[str, tuple[Any, Any]]]:
    """Return the items of {name: (scope, table or function)}; raise InvalidModel if it is not."""
    if given is None:
        return []
    if not isinstance(given, Mapping):
        raise InvalidModel(f"quantities must be {{name: (scope, {what})}}; got {shown(given)}")
    return [
        (name, parts_of(pair, label_of(name), f"scope, {what}")) for name, pair in given.items()
    ]


def quantities_of(
    s: Structure, given: Iterable[tuple[str, Sequence[int | str], Any]]
) -> tuple[Quantity, ...]:
    """Return the checked quantities of (name, scope, table), with scopes in any order."""
    quantities = []
    for name, scope, table in given:
        label = label_of(name)
        numbers = scope_numbers(s, scope, label)
        means = table_rows(s, numbers, table, (), label)
        if not np.isfinite(means).all():
            row = int(np.argmin(np.isfinite(means)))
            raise InvalidModel(
                f"{label}, {s.row_label(numbers, row)}: is {float(means[row])!r}; must be finite"
            )
        means = sort_rows(s.all_sizes, numbers, means)
        quantities.append(_quantity(name, tuple(sorted(numbers)), means))
    return check_names(s, tuple(quantities))


def checked_quantities(s: Structure, given: Any) -> tuple[Quantity, ...]:
    """Return the quantities of a constructor, checked; raise InvalidModel if they do not fit."""
    listed = items(given, "quantities")
    for quantity in listed:
        if not isinstance(quantity, Quantity):
            raise InvalidModel(f"quantities: {shown(quantity)} must be a Quantity")
    return quantities_of(s, [(q.name, q.scope, q.table) for q in listed])


def check_names(s: Structure, quantities: tuple[Quantity, ...]) -> tuple[Quantity, ...]:
    """Raise InvalidModel if a name is no name, or is used twice."""
    taken = {*s.reward_names, TOTAL}
    checked_names(tuple(q.name for q in quantities), len(quantities), "quantity", "q")
    for quantity in quantities:
        if quantity.name in taken:
            raise InvalidModel(
                f"{label_of(quantity.name)}: the name is that of a reward; must be different"
            )
    return quantities
