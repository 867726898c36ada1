"""A test whether a policy reaches, with probability 1, states in which no decision matters.

A state is settled if every later step pays the same reward whatever the actions are. The settled
states are the largest set T in which no action changes the reward and no action leads outside T or
to a state of T with another reward. If a policy reaches T with probability 1, its average reward is
the reward there and does not depend on the way to T, although the way is what such problems are
about (Navigation: -1 per step until the goal is reached, then 0). It reaches T with probability 1
exactly if every state that it reaches from the initial state can still reach T.

Cost: a few passes over states times actions times successors. Models in which some state is reached
from everywhere under every policy are answered without them.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fmdp.model import FactoredMDP
from fmdp.model.expansion import expand, shared_draws
from fmdp.model.spaces import project_some, strides
from fmdp.planning.exact.recurrence import always_reached
from fmdp.planning.policies.policy import TablePolicy
from fmdp.planning.tabular.model import Successors

MOST_ENTRIES = 1 << 23
"""Most successors of all states and actions; larger models are not tested."""

Mask = NDArray[np.bool_]


def ends_settled(model: FactoredMDP, policy: object) -> bool | None:
    """Return whether a policy reaches a settled state from the initial state with probability 1.

    None if the model is too large, or if the policy is not a table.
    """
    structure = model.structure
    if not isinstance(policy, TablePolicy) or shared_draws(structure):
        return None
    model = expand(model)
    if always_reached(model) is not None:
        return False
    successors = Successors(model)
    if structure.n_states * structure.n_actions * successors.width > MOST_ENTRIES:
        return None
    pairs = (
        structure.allowed_pairs()
        if structure.constraints
        else np.arange(structure.n_states * structure.n_actions)
    )
    ends = _settled(model, successors, pairs)
    return bool(ends.any()) and _comes_to(model, successors, policy, ends)


def _settled(model: FactoredMDP, successors: Successors, pairs: NDArray[np.int64]) -> Mask:
    """Return the set T as a mask: [S]."""
    structure = model.structure
    rewards = np.zeros(len(pairs))
    for scope, means in zip(structure.reward_scopes, model.rewards, strict=True):
        rewards += means[project_some(structure.sizes, scope, pairs)]
    owners = pairs // structure.n_actions
    least = np.full(structure.n_states, np.inf)
    most = np.full(structure.n_states, -np.inf)
    np.minimum.at(least, owners, rewards)
    np.maximum.at(most, owners, rewards)
    slack = 1e-12 * (1.0 + np.abs(rewards).max(initial=0.0))
    settled: Mask = most - least <= slack
    columns, _, possible = successors.rows_of(pairs)
    while settled.any():
        same = settled[columns] & (np.abs(least[columns] - least[owners][:, None]) <= slack)
        leaves = owners[(possible & ~same).any(axis=1)]
        left = settled.copy()
        left[leaves] = False
        if np.array_equal(left, settled):
            break
        settled = left
    return settled


def _comes_to(model: FactoredMDP, successors: Successors, policy: TablePolicy, ends: Mask) -> bool:
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import breadth_first_order

    structure = model.structure
    steps = strides(structure.state_sizes)
    start = sum(int(v) * int(step) for v, step in zip(model.initial_state, steps, strict=True))
    states = np.arange(structure.n_states)
    columns, _, possible = successors.rows_of(
        states * structure.n_actions + policy.actions.astype(np.int64)
    )
    sources = np.repeat(states, possible.sum(axis=1))
    targets = columns[possible]
    n = structure.n_states
    ones = np.ones(len(sources))
    forwards = csr_array((ones, (sources, targets)), shape=(n, n))
    reached = breadth_first_order(forwards, start, return_predecessors=False)
    # Search backwards from an additional node that all ends lead to.
    wanted = np.flatnonzero(ends)
    rows = np.concatenate([targets, np.full(len(wanted), n)])
    into = np.concatenate([sources, wanted])
    backwards = csr_array((np.ones(len(rows)), (rows, into)), shape=(n + 1, n + 1))
    can_end = breadth_first_order(backwards, n, return_predecessors=False)
    return bool(np.isin(reached, can_end).all())
