"""In which order to eliminate the next-state variables, and what that will cost.

Eliminating s'_i needs the current values of its parents.  A parent j whose own turn has not come
is `open`: its current value must be carried beside its next value until s'_j goes.  One step costs

    S * |S_i| * prod over open j of |S_j| * (joint actions told apart so far),

and which variables are open depends only on the *set* already eliminated.  So the cheapest order
is a shortest path over sets: exact for up to a dozen variables, a beam search beyond.  The order is
a function of the structure alone (ties go to the lexicographically smallest), which nested targets
need: their value depends on it.

A set is an integer, variable j its bit j, and all sets of one size are priced together: one after
the other took longer than all sweeps of a plan for a dozen machines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmdp.model import Structure

Sets = NDArray[Any]
Floats = NDArray[np.float64]

EXACT = 12
"""Variables up to which all sets are looked at."""
BEAM = 120
"""Sets of one size that are kept beyond."""
_BITS = 62
"""Variables whose sets are integers of the machine; those of more are Python's."""
_TOGETHER = 12
"""Variables whose joint values are looked up in one table."""


@lru_cache(maxsize=16)  # a plan asks for it several times, a run for the same one as the last
def elimination_order(structure: Structure) -> tuple[int, ...]:
    """The cheapest order found, first eliminated first."""
    return _of_all(structure) if structure.m <= EXACT else _of_a_beam(structure)


def _of_all(structure: Structure) -> tuple[int, ...]:
    """Backwards, what is left to pay from every set on; then forwards, the first that pays it."""
    m = structure.m
    sizes, bits, parents, actions = _variables(structure)
    done = np.arange(1 << m)
    needed, told = np.zeros_like(done), np.zeros(1 << m, dtype=actions.dtype)
    members = np.zeros_like(done)
    for i in range(m):
        without, with_i = slice(1 << i), slice(1 << i, 2 << i)
        needed[with_i] = needed[without] | parents[i]
        told[with_i] = told[without] | actions[i]
        members[with_i] = members[without] + 1
    open_volume, told_volume = _volumes(structure.state_sizes), _volumes(structure.action_sizes)
    weight = open_volume(needed & ~done) * told_volume(told)
    left = np.zeros(1 << m)

    def prices(sets: Sets) -> Floats:
        """[sets, m]: what is left to pay if a variable goes next."""
        after = sets[:, None] | bits
        price = sizes * weight[after] + left[after]
        price[sets[:, None] & bits != 0] = np.inf
        return price

    for number in range(m - 1, -1, -1):
        sets = np.flatnonzero(members == number)
        left[sets] = prices(sets).min(axis=1)
    order: list[int] = []
    at = 0
    for _ in range(m):
        order.append(int(prices(done[at : at + 1])[0].argmin()))
        at |= 1 << order[-1]
    return tuple(order)


def _of_a_beam(structure: Structure) -> tuple[int, ...]:
    """Forwards, a size of sets at a time, the cheapest of which are kept.

    Sets are in the lexicographic order of the orders that have led to them, so that of equal prices
    the first is the one to take.
    """
    m = structure.m
    sizes, bits, parents, actions = _variables(structure)
    open_volume, told_volume = _volumes(structure.state_sizes), _volumes(structure.action_sizes)
    done, needed = np.zeros((2, 1), dtype=bits.dtype)
    told = np.zeros(1, dtype=actions.dtype)
    cost = np.zeros(1)
    orders: list[tuple[int, ...]] = [()]
    for _ in range(m):
        after = done[:, None] | bits  # [sets, m]
        opened = open_volume((needed[:, None] | parents) & ~after)
        apart = told_volume(told[:, None] | actions)
        total = cost[:, None] + sizes * opened * apart
        # Ways on, cheapest first; of those to one set the first is kept.
        ahead = np.flatnonzero(done[:, None] & bits == 0)
        ahead = ahead[np.argsort(total.ravel()[ahead], kind="stable")]
        ways: dict[int, int] = {}
        for reached, way in zip(after.ravel()[ahead].tolist(), ahead.tolist(), strict=True):
            ways.setdefault(reached, way)
            if len(ways) == BEAM:
                break
        before, i = np.divmod(np.sort(list(ways.values())), m)
        orders = [(*orders[b], last) for b, last in zip(before.tolist(), i.tolist(), strict=True)]
        done, cost = after[before, i], total[before, i]
        needed, told = needed[before] | parents[i], told[before] | actions[i]
    return orders[0]


def _variables(structure: Structure) -> tuple[Floats, Sets, Sets, Sets]:
    """By variable: its size, itself as a set, its parents, the action variables of its scope."""
    m, n = structure.m, len(structure.action_sizes)
    return (
        np.array(structure.state_sizes, dtype=np.float64),
        _sets(([i] for i in range(m)), m),
        _sets((structure.state_scope(i) for i in range(m)), m),
        _sets(([v - m for v in structure.action_scope(i)] for i in range(m)), n),
    )


def _sets(variables: Iterable[Sequence[int]], most: int) -> Sets:
    numbers = [sum(1 << variable for variable in own) for own in variables]
    return np.array(numbers, dtype=np.int64 if most <= _BITS else object)


def _volumes(sizes: Sequence[int]) -> Callable[[Sets], Floats]:
    """The number of joint values of the variables in each of some sets."""
    tables: list[Floats] = []
    for first in range(0, len(sizes), _TOGETHER):
        table = np.ones(1)
        for size in sizes[first : first + _TOGETHER]:
            table = np.concatenate([table, size * table])
        tables.append(table)

    def volumes(sets: Sets) -> Floats:
        product = np.ones(sets.shape)
        for at, table in enumerate(tables):
            part = sets >> at * _TOGETHER & (1 << _TOGETHER) - 1
            product *= table[part.astype(np.intp)]
        return product

    return volumes
