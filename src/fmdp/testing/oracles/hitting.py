"""Expected times to reach a state, and the diameter, in flat MDPs.

    E(g) = 0,   E(s) = 1 + min_a sum_s' P_a(s' | s) E(s'),   D = max_{s != g} E_g(s)

E is infinite if no policy reaches g with probability 1; these states are found on the support (a
nested fixed point), not by large numbers. On the others policy iteration starts from a policy that
approaches g with positive probability in every state, which is proper.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fmdp.testing.oracles.dense import DenseMDP, Floats

Mask = NDArray[np.bool_]


def hitting_times(chain: Floats, target: int) -> Floats:
    """Return the expected steps to a state from every state of a chain, [S]; inf if it may be
    missed.

    Parameters
    ----------
    chain
        Transition probabilities, [S, S], one row per state.
    target
        Index of a state.
    """
    one_action = DenseMDP(chain[None], np.zeros((1, len(chain))))
    return shortest_times(one_action, target)


def shortest_times(mdp: DenseMDP, target: int) -> Floats:
    """Return the least expected steps to a state from every state, [S]; inf if it may be missed.

    Parameters
    ----------
    mdp
        A dense MDP.
    target
        Index of a state.
    """
    allowed, policy = _sure_policy(mdp, target)
    inside = np.flatnonzero(allowed.any(axis=0))
    times = np.full(mdp.n_states, np.inf)
    times[target] = 0.0
    if len(inside) == 0:
        return times
    onward = mdp.transitions[:, inside][:, :, inside]  # [A, n, n]; the target is not in it
    usable = allowed[:, inside]
    policy = policy[inside]
    rows = np.arange(len(inside))
    for _ in range(10_000):
        cost = np.linalg.solve(np.eye(len(inside)) - onward[policy, rows], np.ones(len(inside)))
        ahead = np.where(usable, onward @ cost, np.inf)
        better = ahead.min(axis=0) < ahead[policy, rows] - 1e-12 * (1.0 + cost.max())
        if not better.any():
            times[inside] = cost
            return times
        policy = np.where(better, ahead.argmin(axis=0), policy)
    raise AssertionError("policy iteration did not end: the tie tolerance is below the rounding")


def _sure_policy(mdp: DenseMDP, target: int) -> tuple[Mask, NDArray[np.int64]]:
    """Return actions [A, S] that keep the target reachable with probability 1, and a proper
    policy."""
    support = mdp.transitions > 0
    possible = np.ones(mdp.n_states, dtype=bool)
    while True:
        keeps = ~support[:, :, ~possible].any(axis=2)  # [A, S]
        reached = np.zeros(mdp.n_states, dtype=bool)
        reached[target] = True
        policy = np.zeros(mdp.n_states, dtype=np.int64)
        while True:
            approaches = keeps & support[:, :, reached].any(axis=2)
            new = approaches.any(axis=0) & ~reached
            if not new.any():
                break
            policy[new] = approaches.argmax(axis=0)[new]
            reached |= new
        if (reached == possible).all():
            possible[target] = False
            return keeps & possible, policy
        possible = reached


def diameter(mdp: DenseMDP) -> float:
    """Return the largest least expected time over ordered pairs of states; 0 for one state.

    Parameters
    ----------
    mdp
        A dense MDP.
    """
    return float(max(shortest_times(mdp, target).max() for target in range(mdp.n_states)))
