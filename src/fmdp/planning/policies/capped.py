"""Uniform random joint actions under caps and budgets, without a list of the allowed ones.

The action variables of a cap are drawn one after the other. With N_v(b) the number of ways to
continue from variable v on with a budget of b,

    P(a_v = x | b left) = N_{v+1}(b - cost_v(x)) / N_v(b),

so that every allowed joint action has the probability 1 / N_0(limit). Each row N_v is divided by
its largest entry, which cancels, because these numbers have hundreds of digits.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fmdp._base.compiled import njit
from fmdp.errors import TooLarge
from fmdp.model.constraints import Constraint, LinearCap

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_MOST_ENTRIES = 1 << 24
"""Most numbers of ways that are held: variables times units of the budget."""


class CappedActions:
    """Draws joint actions uniformly from those that caps on different action variables allow.

    Parameters
    ----------
    constraints
        The constraints on actions.
    m
        Number of state variables.
    sizes
        Sizes of all variables, states then actions.

    Raises
    ------
    TooLarge
        If a constraint is no cap, two caps share an action variable, or a budget is too large.
    """

    def __init__(self, constraints: Sequence[Constraint], m: int, sizes: Sequence[int]) -> None:
        self._sizes = np.array(sizes[m:], dtype=np.int64)
        self._caps = []
        drawn: set[int] = set()
        for constraint in constraints:
            entries = (len(constraint.scope) + 1) * (getattr(constraint, "most_units", 0) + 1)
            if (
                not isinstance(constraint, LinearCap)
                or drawn & set(constraint.actions)
                or entries > _MOST_ENTRIES
            ):
                raise TooLarge(
                    f"{constraint.label()}: random actions under it cannot be drawn without "
                    f"listing all that are allowed, which are too many",
                    8 * entries,
                    8 * _MOST_ENTRIES,
                )
            drawn.update(constraint.actions)
            costs = constraint.unit_costs(sizes)
            first = np.cumsum([0, *map(len, costs)])
            columns = np.array(constraint.actions, dtype=np.int64) - m
            ways = _ways(costs, constraint.most_units)
            self._caps.append((columns, first, np.concatenate(costs), ways))

    def draw(self, uniforms: Floats) -> Ints:
        """Return joint actions for uniform numbers, both [number, action variables]."""
        actions: Ints = (uniforms * self._sizes).astype(np.int64)
        for cap in self._caps:
            _draw(uniforms, *cap, actions)
        return actions


def _ways(costs: Sequence[Ints], most: int) -> Floats:
    """Return the relative number of ways to continue, [variables + 1, units left]."""
    ways = np.ones((len(costs) + 1, most + 1))
    for v in range(len(costs) - 1, -1, -1):
        ways[v] = 0.0
        for cost in costs[v].tolist():
            if cost <= most:
                ways[v, cost:] += ways[v + 1, : most + 1 - cost]
        ways[v] /= ways[v].max()
    return ways


@njit(nogil=True)
def _draw(  # type: ignore[no-untyped-def]
    uniforms, columns, first, costs, ways, actions
):
    """Fill in the actions of the variables of one cap."""
    for t in range(uniforms.shape[0]):
        left = ways.shape[1] - 1
        for v in range(columns.shape[0]):
            total = 0.0
            for place in range(first[v], first[v + 1]):
                if costs[place] <= left:
                    total += ways[v + 1, left - costs[place]]
            wanted = uniforms[t, columns[v]] * total
            chosen, below = -1, 0.0
            for place in range(first[v], first[v + 1]):
                if costs[place] <= left and ways[v + 1, left - costs[place]] > 0.0:
                    chosen = place
                    below += ways[v + 1, left - costs[place]]
                    if wanted < below:
                        break
            actions[t, columns[v]] = chosen - first[v]
            left -= costs[chosen]
