"""The flat MDP of a factored one, by direct products.

    P_a(s' | s) = prod_i P_i(s'_i | (s, a)[Z_i]),   R_a(s) = sum_k R_k((s, a)[Z_k])

Joint states and actions are enumerated with `itertools.product`, and every row is an outer product
of the factors' rows. Nothing is shared with the elimination engine or its index arithmetic: only
the scopes and the tables of the model are read. Memory A * S * S numbers, at most ENTRY_LIMIT.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from fmdp.errors import TooLarge
from fmdp.model import AtMost, Budget, Constraint, FactoredMDP, Structure

Floats = NDArray[np.float64]
Actions = NDArray[np.int64]

ENTRY_LIMIT = 2**27  # one gibibyte


@dataclass(frozen=True, eq=False)
class DenseMDP:
    """A flat MDP.

    Attributes
    ----------
    transitions
        Probabilities [A, S, S]: of action, state, next state.
    rewards
        Expected rewards [A, S].
    allowed
        Whether the action is allowed in the state [A, S]; None if all are. A forbidden action is a
        copy of the first allowed one, so that best values, gains and times are those of the allowed
        actions. A given policy must be checked against this array.
    """

    transitions: Floats
    rewards: Floats
    allowed: NDArray[np.bool_] | None = None

    @property
    def n_states(self) -> int:
        """S."""
        return int(self.rewards.shape[1])

    @property
    def n_actions(self) -> int:
        """A."""
        return int(self.rewards.shape[0])


def assignments(sizes: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Return an iterator over all assignments of variables, the last variable fastest.

    Parameters
    ----------
    sizes
        Number of values of each variable.
    """
    return itertools.product(*(range(size) for size in sizes))


def scope_row(structure: Structure, scope: Sequence[int], x: Sequence[int]) -> int:
    """Return the row of x[scope] in a table, the last variable fastest.

    Parameters
    ----------
    structure
        The structure with the sizes of the variables.
    scope
        Numbers of variables.
    x
        One value per variable: state + action.
    """
    row = 0
    for variable in scope:
        row = row * structure.sizes[variable] + x[variable]
    return row


def dense(model: FactoredMDP) -> DenseMDP:
    """Return the flat MDP of a factored one, states and joint actions in C order.

    Parameters
    ----------
    model
        A model of at most 2^27 (action, state, next state) entries.

    Raises
    ------
    TooLarge
        If it has more.
    """
    structure = model.structure
    n_states, n_actions = structure.n_states, structure.n_actions
    entries = n_states * n_states * n_actions
    if entries > ENTRY_LIMIT:
        raise TooLarge(
            f"a dense MDP of {n_states} states and {n_actions} actions has {entries} entries; "
            f"at most {ENTRY_LIMIT} are built",
            needed_bytes=8 * entries,
            limit_bytes=8 * ENTRY_LIMIT,
        )
    transitions = np.empty((n_actions, n_states, n_states))
    rewards = np.zeros((n_actions, n_states))
    for a, action in enumerate(assignments(structure.action_sizes)):
        for s, state in enumerate(assignments(structure.state_sizes)):
            x = state + action
            row = np.ones(1)
            for scope, table in zip(structure.transition_scopes, model.transitions, strict=True):
                row = np.outer(row, table[scope_row(structure, scope, x)]).ravel()
            transitions[a, s] = row
            for scope, means in zip(structure.reward_scopes, model.rewards, strict=True):
                rewards[a, s] += means[scope_row(structure, scope, x)]
    if not structure.constraints:
        return DenseMDP(transitions, rewards)
    return of_allowed_actions(transitions, rewards, allowed_table(structure))


def of_allowed_actions(
    transitions: Floats, rewards: Floats, allowed: NDArray[np.bool_]
) -> DenseMDP:
    """Return the MDP in which a forbidden action is a copy of the first allowed one."""
    for s in range(allowed.shape[1]):
        first = allowed[:, s].argmax()
        transitions[~allowed[:, s], s] = transitions[first, s]
        rewards[~allowed[:, s], s] = rewards[first, s]
    return DenseMDP(transitions, rewards, allowed)


def allowed_table(structure: Structure) -> NDArray[np.bool_]:
    """Return whether each joint action is allowed in each joint state: [A, S].

    Parameters
    ----------
    structure
        The structure with the constraints.
    """

    def forbids(constraint: Constraint, x: tuple[int, ...]) -> bool:
        if isinstance(constraint, AtMost):
            pairs = zip(constraint.actions, constraint.idle, strict=True)
            return sum(x[v] != idle for v, idle in pairs) > constraint.most
        if isinstance(constraint, Budget):
            spent = zip(constraint.actions, constraint.costs, strict=True)
            total = sum(Fraction(repr(costs[x[v]])) for v, costs in spent)
            return total > Fraction(repr(constraint.limit))
        table = constraint.forbidden_table(structure.sizes)
        return bool(table[scope_row(structure, constraint.scope, x)])

    return np.array(
        [
            [
                not any(forbids(constraint, state + action) for constraint in structure.constraints)
                for state in assignments(structure.state_sizes)
            ]
            for action in assignments(structure.action_sizes)
        ]
    )


def over_pairs(structure: Structure, value: Callable[[tuple[int, ...]], float]) -> Floats:
    """Return value(state + action) of every pair, -inf if forbidden: [A, S]."""
    values = np.array(
        [
            [value(state + action) for state in assignments(structure.state_sizes)]
            for action in assignments(structure.action_sizes)
        ]
    )
    values[~allowed_table(structure)] = -np.inf
    return values


def action_values(mdp: DenseMDP, h: Floats, discount: float = 1.0) -> Floats:
    """Return q(a, s) = R_a(s) + discount * sum_s' P_a(s' | s) h(s'): [A, S].

    Parameters
    ----------
    mdp
        A dense MDP.
    h
        A number for every state: [S].
    discount
        Factor of future values.
    """
    values: Floats = mdp.rewards + discount * (mdp.transitions @ h)
    return values


def bellman(mdp: DenseMDP, h: Floats, discount: float = 1.0) -> Floats:
    """Return (L h)(s) = max_a q(a, s), the Bellman operator: [S].

    Parameters
    ----------
    mdp
        A dense MDP.
    h
        A number for every state: [S].
    discount
        Factor of future values.
    """
    best: Floats = action_values(mdp, h, discount).max(axis=0)
    return best


def policy_chain(mdp: DenseMDP, policy: Sequence[int] | Actions) -> tuple[Floats, Floats]:
    """Return the transition matrix [S, S] and the rewards [S] of a policy.

    Parameters
    ----------
    mdp
        A dense MDP.
    policy
        One action index per state: [S].
    """
    actions = np.asarray(policy, dtype=np.int64)
    states = np.arange(mdp.n_states)
    return mdp.transitions[actions, states], mdp.rewards[actions, states]
