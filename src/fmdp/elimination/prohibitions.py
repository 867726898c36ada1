"""Constraints on actions as functions of a cost network."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fmdp.model import AtMost, Structure
from fmdp.model.constraints import Mask
from fmdp.model.structure import Scope

_TABULATED_CAP = 64
"""Joint actions up to which a cap is a single function: larger ones become a chain of counters."""


class Prohibition(NamedTuple):
    """Assignments that a constraint forbids, or a part of it, over variables of the network."""

    scope: Scope
    table: Mask


def prohibitions(structure: Structure, sizes: list[int]) -> list[Prohibition]:
    """Return the constraints as functions, and append the counters that they need to the sizes."""
    functions: list[Prohibition] = []
    for constraint in structure.constraints:
        small = math.prod(structure.sizes[v] for v in constraint.scope) <= _TABULATED_CAP
        if not isinstance(constraint, AtMost) or small:
            table = constraint.forbidden_table(structure.sizes)
            functions.append(Prohibition(constraint.scope, table))
            continue
        # Functions over [action, counter before, counter after] forbid wrong counts; the last one,
        # over [action, counter before], forbids too large counts.
        before: Scope = ()
        counted = 1
        *first, (last, idle_last) = constraint.pairs()
        for v, idle in first:
            after = min(counted, constraint.most) + 1
            busy = (np.arange(sizes[v]) != idle)[:, None] + np.arange(counted)
            table = busy[:, :, None] != np.arange(after)
            functions.append(Prohibition((v, *before, len(sizes)), table.reshape(-1)))
            before, counted = (len(sizes),), after
            sizes.append(after)
        busy = (np.arange(sizes[last]) != idle_last)[:, None] + np.arange(counted)
        functions.append(Prohibition((last, *before), (busy > constraint.most).reshape(-1)))
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
