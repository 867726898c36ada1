"""Constraints on actions as functions of a cost network."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fmdp.errors import TooLarge
from fmdp.model import Structure
from fmdp.model.constraints import LinearCap, Mask
from fmdp.model.structure import Scope

_TABULATED_CAP = 64
"""Joint actions up to which a cap is a single function: larger ones become a chain of sums."""

_MOST_SUMS = 1 << 10
"""Most values of the running sum of a budget, which are one more axis of functions."""


class Prohibition(NamedTuple):
    """Assignments that a constraint forbids, or a part of it, over variables of the network."""

    scope: Scope
    table: Mask


def prohibitions(structure: Structure, sizes: list[int]) -> list[Prohibition]:
    """Return the constraints as functions, and append the sums that they need to the sizes."""
    functions: list[Prohibition] = []
    for constraint in structure.constraints:
        small = math.prod(structure.sizes[v] for v in constraint.scope) <= _TABULATED_CAP
        if not isinstance(constraint, LinearCap) or small:
            table = constraint.forbidden_table(structure.sizes)
            functions.append(Prohibition(constraint.scope, table))
            continue
        functions += _chain(constraint, sizes)
    return functions


def _chain(cap: LinearCap, sizes: list[int]) -> list[Prohibition]:
    """Return a chain of functions over the running sum, whose variables are appended to sizes.

    Functions over [action, sum before, sum after] forbid wrong sums; the last one, over [action,
    sum before], forbids sums above the limit. The values of a running sum are those that can occur
    below the limit, in ascending order.
    """
    functions: list[Prohibition] = []
    before: Scope = ()
    sums = np.zeros(1, dtype=np.int64)
    *first, (last, last_costs) = zip(cap.actions, cap.unit_costs(sizes), strict=True)
    for v, costs in first:
        spent = costs[:, None] + sums
        after = np.unique(spent)
        after = after[after <= cap.most_units]
        if len(after) > _MOST_SUMS:
            raise TooLarge(
                f"{cap.label()}: its running sum takes {len(after)} values; planner alp takes at "
                f"most {_MOST_SUMS}",
                len(after),
                _MOST_SUMS,
            )
        table = spent[:, :, None] != after
        functions.append(Prohibition((v, *before, len(sizes)), table.reshape(-1)))
        before, sums = (len(sizes),), after
        sizes.append(len(after))
    spent = last_costs[:, None] + sums
    functions.append(Prohibition((last, *before), (spent > cap.most_units).reshape(-1)))
    return functions


def derived_prohibitions(structure: Structure) -> list[Prohibition]:
    """Return, for each derived variable, the function that forbids all its other values."""
    return [
        Prohibition(
            (*variable.scope, v),
            (variable.table[:, None] != np.arange(variable.size)).reshape(-1),
        )
        for v, variable in enumerate(structure.derived, len(structure.sizes))
    ]
