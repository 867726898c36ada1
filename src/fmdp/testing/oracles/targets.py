"""Optimistic backups by their definitions: all targets, or nested targets.

Factor i at x has the lower probabilities p-minus and the free mass 1 - sum p-minus. The extreme
transition with target t puts all the free mass on t. For one pair x = (s, a) and a vector h,

    vertex  max over joint targets t of  sum_s' prod_i P_i^{t_i}(s'_i | x) h(s')
    nested  N_m o ... o N_1 h,  (N_k u)(rest) = sum_v p-minus(v) u(v, rest) + free max_v u(v, rest)

with v the next value of the k-th variable of the elimination order and `rest` the values of the
later variables. Cost S^2 and S for one pair: for small models only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from fmdp.model import OptimisticTables
from fmdp.testing.oracles.dense import (
    DenseMDP,
    Floats,
    allowed_table,
    assignments,
    of_allowed_actions,
    over_pairs,
    scope_row,
)


def extreme_transition(tables: OptimisticTables, i: int, x: Sequence[int], target: int) -> Floats:
    """Return P_i(x)^{target+}: the lower probabilities, and all the free mass on the target.

    Parameters
    ----------
    tables
        Optimistic tables.
    i
        Number of the state variable.
    x
        One value per variable: state + action.
    target
        A value of that variable.
    """
    row = scope_row(tables.structure, tables.structure.transition_scopes[i], x)
    probabilities = np.array(tables.lower[i][row])
    probabilities[target] += tables.free[i][row]
    return probabilities


def next_law(tables: OptimisticTables, x: Sequence[int], targets: Sequence[int]) -> Floats:
    """Return the law of the next joint state: [S].

    Parameters
    ----------
    tables
        Optimistic tables.
    x
        One value per variable: state + action.
    targets
        One value per state variable.
    """
    law = np.ones(1)
    for i, target in enumerate(targets):
        law = np.outer(law, extreme_transition(tables, i, x, target)).ravel()
    return law


def optimistic_reward(tables: OptimisticTables, x: Sequence[int]) -> float:
    """Return the sum of the optimistic rewards of all factors.

    Parameters
    ----------
    tables
        Optimistic tables.
    x
        One value per variable: state + action.
    """
    structure = tables.structure
    return float(
        sum(
            means[scope_row(structure, scope, x)]
            for scope, means in zip(structure.reward_scopes, tables.rewards, strict=True)
        )
    )


def vertex_values(tables: OptimisticTables, h: Floats, discount: float = 1.0) -> Floats:
    """Return q(a, s) with the best joint target for each pair, -inf if forbidden: [A, S].

    Parameters
    ----------
    tables
        Optimistic tables.
    h
        A number for every state: [S].
    discount
        Factor of future values.
    """
    structure = tables.structure

    def value(x: tuple[int, ...]) -> float:
        joint_targets = assignments(structure.state_sizes)
        best = max(float(next_law(tables, x, targets) @ h) for targets in joint_targets)
        return optimistic_reward(tables, x) + discount * best

    return over_pairs(structure, value)


def nested_values(
    tables: OptimisticTables, h: Floats, order: Sequence[int], discount: float = 1.0
) -> Floats:
    """Return q(a, s) with targets chosen during the elimination, -inf if forbidden: [A, S].

    Parameters
    ----------
    tables
        Optimistic tables.
    h
        A number for every state: [S].
    order
        A permutation of the state variables; order[0] is eliminated first.
    discount
        Factor of future values.
    """

    def best(i: int, row: int, ahead: Floats) -> float:
        return float(tables.lower[i][row] @ ahead + tables.free[i][row] * ahead.max())

    return by_elimination(tables, h, order, discount, best)


def by_elimination(
    tables: OptimisticTables,
    h: Floats,
    order: Sequence[int],
    discount: float,
    row_value: Callable[[int, int, Floats], float],
) -> Floats:
    """Return q(a, s) by plain recursion over the order.

    row_value(i, row, x) is the value of a row of factor i if its next values are worth x.
    """
    structure = tables.structure
    tensor = h.reshape(structure.state_sizes)

    def eliminated(x: tuple[int, ...], k: int, later: dict[int, int]) -> float:
        """Return the value after the first k variables, given the later ones."""
        if k == 0:
            return float(tensor[tuple(later[i] for i in range(structure.m))])
        i = order[k - 1]
        row = scope_row(structure, structure.transition_scopes[i], x)
        ahead = [
            eliminated(x, k - 1, later | {i: value}) for value in range(structure.state_sizes[i])
        ]
        return row_value(i, row, np.array(ahead))

    def value(x: tuple[int, ...]) -> float:
        return optimistic_reward(tables, x) + discount * eliminated(x, structure.m, {})

    return over_pairs(structure, value)


def extended(tables: OptimisticTables) -> DenseMDP:
    """Return the extended MDP: actions are pairs (action, joint target), the target fastest.

    Parameters
    ----------
    tables
        Optimistic tables.
    """
    structure = tables.structure
    pairs = [
        (action, targets)
        for action in assignments(structure.action_sizes)
        for targets in assignments(structure.state_sizes)
    ]
    transitions = np.empty((len(pairs), structure.n_states, structure.n_states))
    rewards = np.empty((len(pairs), structure.n_states))
    for index, (action, targets) in enumerate(pairs):
        for s, state in enumerate(assignments(structure.state_sizes)):
            transitions[index, s] = next_law(tables, state + action, targets)
            rewards[index, s] = optimistic_reward(tables, state + action)
    if not structure.constraints:
        return DenseMDP(transitions, rewards)
    allowed = np.repeat(allowed_table(structure), structure.n_states, axis=0)
    return of_allowed_actions(transitions, rewards, allowed)
