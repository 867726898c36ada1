"""The order in which next-state variables are eliminated.

Eliminating s'_i needs the current values of its parents. A parent j that is not yet eliminated is
*open*: its current value must be carried beside its next value until s'_j is eliminated. One step
costs

    S * |S_i| * prod over open j of |S_j| * (joint actions distinguished so far).

The open variables depend only on the *set* already eliminated, so the cheapest order is a shortest
path over sets: exact for up to a dozen variables, a beam search beyond. The order is a function of
the structure alone (ties go to the lexicographically smallest), because the values of nested
targets depend on it.

A set is an integer with bit j for variable j, and all sets of one size are priced at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmdp.elimination.tuning import BEAM_WIDTH, EXACT_ORDER_VARIABLES
from fmdp.model import Structure

Sets = NDArray[Any]
Floats = NDArray[np.float64]

_BITS = 62
"""Variables up to which a set fits into an int64; larger sets are Python integers."""
_TABLE_VARIABLES = 12
"""Variables whose joint volume is looked up in one table of 2^12 entries."""


@lru_cache(maxsize=16)
def elimination_order(structure: Structure) -> tuple[int, ...]:
    """Return the cheapest order found, first eliminated first."""
    if structure.m <= EXACT_ORDER_VARIABLES:
        return _exact_order(structure)
    return _beam_order(structure)


def _exact_order(structure: Structure) -> tuple[int, ...]:
    """Dynamic programming over sets: backwards the cost to go, forwards the first cheapest
    order."""
    m = structure.m
    sizes, bits, parents, actions = _variables(structure)
    done = np.arange(1 << m)
    needed, distinguished = np.zeros_like(done), np.zeros(1 << m, dtype=actions.dtype)
    members = np.zeros_like(done)
    for i in range(m):
        without, with_i = slice(1 << i), slice(1 << i, 2 << i)
        needed[with_i] = needed[without] | parents[i]
        distinguished[with_i] = distinguished[without] | actions[i]
        members[with_i] = members[without] + 1
    open_volume, action_volume = _volumes(structure.state_sizes), _volumes(structure.action_sizes)
    weight = open_volume(needed & ~done) * action_volume(distinguished)
    to_go = np.zeros(1 << m)

    def prices(sets: Sets) -> Floats:
        """Return [sets, m]: the cost to go if a variable is eliminated next."""
        after = sets[:, None] | bits
        price = sizes * weight[after] + to_go[after]
        price[sets[:, None] & bits != 0] = np.inf
        return price

    for number in range(m - 1, -1, -1):
        sets = np.flatnonzero(members == number)
        to_go[sets] = prices(sets).min(axis=1)
    order: list[int] = []
    eliminated = 0
    for _ in range(m):
        order.append(int(prices(done[eliminated : eliminated + 1])[0].argmin()))
        eliminated |= 1 << order[-1]
    return tuple(order)


def _beam_order(structure: Structure) -> tuple[int, ...]:
    """Beam search forwards over sets of equal size. Sets are kept in the lexicographic order of the
    orders that led to them, so of equal prices the first is taken."""
    m = structure.m
    sizes, bits, parents, actions = _variables(structure)
    open_volume, action_volume = _volumes(structure.state_sizes), _volumes(structure.action_sizes)
    done, needed = np.zeros((2, 1), dtype=bits.dtype)
    distinguished = np.zeros(1, dtype=actions.dtype)
    cost = np.zeros(1)
    orders: list[tuple[int, ...]] = [()]
    for _ in range(m):
        after = done[:, None] | bits  # [sets, m]
        opened = open_volume((needed[:, None] | parents) & ~after)
        apart = action_volume(distinguished[:, None] | actions)
        total = cost[:, None] + sizes * opened * apart
        # Extensions, cheapest first; the first one to each set is kept.
        ahead = np.flatnonzero(done[:, None] & bits == 0)
        ahead = ahead[np.argsort(total.ravel()[ahead], kind="stable")]
        ways: dict[int, int] = {}
        for reached, way in zip(after.ravel()[ahead].tolist(), ahead.tolist(), strict=True):
            ways.setdefault(reached, way)
            if len(ways) == BEAM_WIDTH:
                break
        before, i = np.divmod(np.sort(list(ways.values())), m)
        orders = [(*orders[b], last) for b, last in zip(before.tolist(), i.tolist(), strict=True)]
        done, cost = after[before, i], total[before, i]
        needed, distinguished = needed[before] | parents[i], distinguished[before] | actions[i]
    return orders[0]


def _variables(structure: Structure) -> tuple[Floats, Sets, Sets, Sets]:
    """Return per variable: size, singleton set, parents, action variables of its scope."""
    m, n = structure.m, len(structure.action_sizes)
    return (
        np.array(structure.state_sizes, dtype=np.float64),
        _sets(([i] for i in range(m)), m),
        _sets((structure.state_scope(i) for i in range(m)), m),
        _sets(([v - m for v in structure.action_scope(i)] for i in range(m)), n),
    )


def _sets(variables: Iterable[Sequence[int]], most: int) -> Sets:
    numbers = [sum(1 << variable for variable in members) for members in variables]
    return np.array(numbers, dtype=np.int64 if most <= _BITS else object)


def _volumes(sizes: Sequence[int]) -> Callable[[Sets], Floats]:
    """Return a function from sets to the number of joint values of their variables."""
    tables: list[Floats] = []
    for first in range(0, len(sizes), _TABLE_VARIABLES):
        table = np.ones(1)
        for size in sizes[first : first + _TABLE_VARIABLES]:
            table = np.concatenate([table, size * table])
        tables.append(table)

    def volumes(sets: Sets) -> Floats:
        product = np.ones(sets.shape)
        for number, table in enumerate(tables):
            part = sets >> number * _TABLE_VARIABLES & (1 << _TABLE_VARIABLES) - 1
            product *= table[part.astype(np.intp)]
        return product

    return volumes
