"""Counts and sums that are stored as chains of partial sums."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fmdp.model.exchangeable.parts import (
    NotExchangeable,
)
from fmdp.model.naming import quote
from fmdp.model.structure import Structure


class Chain(NamedTuple):
    """A count or sum that is stored as a chain of partial sums."""

    numbers: tuple[int, ...]
    """Derived variables; the last is the sum."""
    members: tuple[int, ...]
    """The variable that each step adds."""
    tables: tuple[NDArray[np.int64], ...]
    """[value before, value of the member]: the value after each step."""

    @property
    def size(self) -> int:
        return int(self.tables[-1].max()) + 1


def chains_of(s: Structure) -> tuple[Chain, ...]:
    """Return the chains of a structure whose derived variables are all steps of chains.

    Raise NotExchangeable if one is of another form.
    """
    n = len(s.sizes)
    ends: dict[int, Chain] = {}
    for v, variable in enumerate(s.derived, n):
        inner = [u for u in variable.scope if u >= n]
        outer = [u for u in variable.scope if u < n]
        if len(inner) > 1 or len(outer) != 1 or not variable.deterministic:
            raise NotExchangeable(
                f"derived variable {quote(variable.name)} is no sum of one variable after another"
            )
        sizes = s.scope_sizes(variable.scope)
        if not inner:
            ends[v] = Chain((v,), (outer[0],), (variable.table.reshape(1, -1),))
            continue
        before = ends.pop(inner[0], None)
        if before is None:
            raise NotExchangeable(f"derived variable {quote(variable.name)} branches off a sum")
        table = variable.table.reshape(sizes).T  # the scope is sorted: the member comes first
        ends[v] = Chain((*before.numbers, v), (*before.members, outer[0]), (*before.tables, table))
    return tuple(ends.values())
