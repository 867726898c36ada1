"""Bellman errors R + P h_w - h_w of a policy on given states, and on simulated ones.

Derived variables must be deterministic (`model.expansion.without_draws` removes the others).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fmdp._base.deadlines import NEVER, Deadline
from fmdp.model import FactoredMDP, Structure
from fmdp.model.spaces import strides
from fmdp.model.structure import Scope
from fmdp.planning.alp.bases import Basis
from fmdp.planning.alp.greedy import GreedyPolicy
from fmdp.planning.policies.policy import Policy, TablePolicy

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

MOST_CHAINS, _BURN_IN = 64, 100
"""Number of simulated chains, and steps before they count: more reduce variance and bias, and cost
time."""
_FEWEST_CHAINS, _ENTRIES_PER_STEP = 16, 1 << 24
"""Number of chains at least, and the entries of tables that all chains together may look up per
step: the mean over a thousand variables varies little, and each look-up costs a nanosecond."""
_STRIDE = 4
"""Steps between recorded states: neighbouring states tell little more, at the same cost."""
_ROWS_AT_ONCE = 1 << 21
"""Rows of tables that are looked up at once, which bounds the memory of Bellman errors."""


def actions_at(policy: Policy, states: Ints) -> Ints:
    """Return the action of every state, [states, action variables]."""
    if isinstance(policy, TablePolicy):
        steps = np.array(strides(policy.state_sizes), dtype=np.int64)
        joint = policy.actions[states @ steps]
        return np.stack(np.unravel_index(joint, policy.action_sizes), axis=1)
    assert isinstance(policy, GreedyPolicy)
    return policy.actions_of(states)


def rows_at_once(structure: Structure) -> int:
    """Return the number of states whose Bellman errors are computed at once."""
    return max(_ROWS_AT_ONCE // (structure.m + structure.l), 1)


def bellman_errors(
    model: FactoredMDP, basis: Basis, weights: Floats, states: Ints, actions: Ints
) -> Floats:
    """Return R + P h_w - h_w at these states and actions."""
    at_once = rows_at_once(model.structure)
    parts = [slice(at, at + at_once) for at in range(0, len(states), at_once)]
    return np.concatenate(
        [_bellman_errors(model, basis, weights, states[part], actions[part]) for part in parts]
    )


def _bellman_errors(
    model: FactoredMDP, basis: Basis, weights: Floats, states: Ints, actions: Ints
) -> Floats:
    structure = model.structure
    sizes = structure.state_sizes
    joint = _joint(structure, states, actions)
    rows = [_rows(structure, scope, joint) for scope in structure.transition_scopes]
    total = np.zeros(len(states))
    for scope, table in zip(structure.reward_scopes, model.rewards, strict=True):
        total += table[_rows(structure, scope, joint)]
    for block in basis.blocks:
        value = block.weighted(weights)
        steps = np.array(strides([sizes[v] for v in block.scope]), dtype=np.int64)
        total -= value[states[:, list(block.scope)] @ steps]
        # The expectation, variable by variable: [states, values of the remaining variables].
        ahead = np.broadcast_to(value, (len(states), len(value)))
        for v in block.scope:
            law = model.transitions[v][rows[v]]
            ahead = np.einsum("sv,svr->sr", law, ahead.reshape(len(states), sizes[v], -1))
        total += ahead[:, 0]
    return total


def n_chains(structure: Structure) -> int:
    """Return the number of simulated chains, fewer if a greedy action takes long to find."""
    entries = structure.m * max(structure.action_sizes, default=1)
    return min(max(_ENTRIES_PER_STEP // entries, _FEWEST_CHAINS), MOST_CHAINS)


def simulated_gain(
    model: FactoredMDP,
    policy: Policy,
    basis: Basis,
    weights: Floats,
    steps: int,
    generator: np.random.Generator,
    deadline: Deadline = NEVER,
) -> tuple[Ints, float]:
    """Return states that the policy visits in some chains from the initial state, and the mean of
    R + P h_w - h_w over them.

    The mean estimates the gain of the policy, to compare policies. It has no interval, and if
    chains mix slowly it describes the neighbourhood of the initial state. TimeUp is raised
    when the deadline passes.
    """
    initial = np.array(model.initial_state, dtype=np.int64)
    starts = np.tile(initial, (n_chains(model.structure), 1))
    seen, errors = simulated_errors(
        model, policy, basis, weights, starts, steps, generator, deadline
    )
    return seen, float(errors.mean())


def simulated_errors(
    model: FactoredMDP,
    policy: Policy,
    basis: Basis,
    weights: Floats,
    starts: Ints,
    steps: int,
    generator: np.random.Generator,
    deadline: Deadline = NEVER,
) -> tuple[Ints, Floats]:
    """Return states that the policy visits in one chain from each of `starts` [chains, m], and
    R + P h_w - h_w there: [times, chains], and the states in the same order.

    TimeUp is raised when the deadline passes.
    """
    states = starts
    visited, taken = [], []
    sampler = Sampler(model)
    for step in range(_BURN_IN + steps):
        deadline.check()
        actions = actions_at(policy, states)
        if step >= _BURN_IN and step % _STRIDE == 0:
            visited.append(states)
            taken.append(actions)
        states = sampler.following(states, actions, generator.random(starts.shape))
    seen = np.concatenate(visited)
    visited.clear()  # the states of large models take most of the memory
    errors = bellman_errors(model, basis, weights, seen, np.concatenate(taken))
    return seen, errors.reshape(-1, len(starts))


def errors_to_explain(
    model: FactoredMDP,
    policy: Policy,
    basis: Basis,
    weights: Floats,
    visited: Ints,
    generator: np.random.Generator,
) -> tuple[Ints, Floats]:
    """Return the visited states and as many uniform ones, and R + P h_w - h_w there."""
    sizes = np.array(model.structure.state_sizes, dtype=np.int64)
    uniform = generator.integers(0, sizes, size=(len(visited), len(sizes)))
    states = np.concatenate([visited, uniform])
    del uniform  # the states of large models take most of the memory
    return states, bellman_errors(model, basis, weights, states, actions_at(policy, states))


class Sampler:
    """Draws of the next states of many states and actions at once."""

    def __init__(self, model: FactoredMDP) -> None:
        structure = self._structure = model.structure
        longest = max(len(scope) for scope in structure.transition_scopes)
        # Variables and strides [factors, longest scope] that find a row of each factor.
        self._variables = np.zeros((structure.m, longest), dtype=np.int64)
        self._steps = np.zeros((structure.m, longest), dtype=np.int64)
        for i, scope in enumerate(structure.transition_scopes):
            self._variables[i, : len(scope)] = scope
            self._steps[i, : len(scope)] = strides([structure.all_sizes[v] for v in scope])
        # Cumulative probabilities [rows, values - 1], padded with 1, so that a variable with fewer
        # values never takes the missing ones.
        self._first = np.array(structure.row_starts[:-1], dtype=np.int64)
        shape = (sum(structure.transition_rows), max(structure.state_sizes) - 1)
        self._cumulative = np.ones(shape)
        for at, table in zip(self._first, model.transitions, strict=True):
            sums = np.cumsum(table, axis=1)[:, :-1]
            self._cumulative[at : at + len(table), : table.shape[1] - 1] = sums

    def following(self, states: Ints, actions: Ints, draws: Floats) -> Ints:
        """Return the next states, given a uniform number for each and each variable."""
        joint = _joint(self._structure, states, actions)
        rows = (joint[:, self._variables] * self._steps).sum(axis=2) + self._first
        following: Ints = (draws[:, :, None] >= self._cumulative[rows]).sum(axis=2)
        return following


def _joint(structure: Structure, states: Ints, actions: Ints) -> Ints:
    """Return the values of all variables, [states, variables]: derived ones are computed."""
    columns = [*states.T, *actions.T]
    for variable in structure.derived:
        joint = np.stack(columns, axis=1)
        columns.append(variable.table[_rows(structure, variable.scope, joint)])
    return np.stack(columns, axis=1)


def _rows(structure: Structure, scope: Scope, joint: Ints) -> Ints:
    """Return the row of a table over the scope for each row of `joint`."""
    steps = np.array(strides([structure.all_sizes[v] for v in scope]), dtype=np.int64)
    rows: Ints = joint[:, list(scope)] @ steps
    return rows
