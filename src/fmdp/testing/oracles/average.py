"""Average reward in flat MDPs: gain and bias of a policy, the best gain, damped value iteration.

A policy's chain P splits into recurrent classes and transient states. With P* the limiting matrix
(absorption probabilities times stationary laws) the gain is g = P* r, one number per state, and the
bias is h = (I - P + P*)^-1 (r - g), the solution of h = r - g + P h with P* h = 0. Both hold for
periodic and multichain policies. The best gain is found by Howard's multichain policy iteration
(Puterman 1994, section 9.2). Dense linear algebra: S^3 per policy.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components

from fmdp.testing.oracles.dense import (
    Actions,
    DenseMDP,
    Floats,
    action_values,
    bellman,
    policy_chain,
)

TIE = 1e-10
"""Relative difference below which policy iteration treats values as equal."""


@dataclass(frozen=True, eq=False)
class AverageSolution:
    """An optimal policy with its gain and bias.

    Attributes
    ----------
    gain
        The best gain from every state: [S].
    bias
        The bias of the policy: [S].
    policy
        One action index per state: [S].
    """

    gain: Floats
    bias: Floats
    policy: Actions


def recurrent_classes(chain: Floats) -> list[NDArray[np.int64]]:
    """Return the closed strongly connected sets of states of a chain, by its support.

    Parameters
    ----------
    chain
        Transition probabilities, [S, S], one row per state.
    """
    support = chain > 0
    n_sets, label = connected_components(support, connection="strong")
    classes = []
    for index in range(n_sets):
        members = np.flatnonzero(label == index)
        if not support[np.ix_(members, np.flatnonzero(label != index))].any():
            classes.append(members.astype(np.int64))
    return classes


def stationary_law(chain: Floats) -> Floats:
    """Return the stationary law of an irreducible chain: [S].

    Parameters
    ----------
    chain
        Transition probabilities, [S, S], one row per state.
    """
    n = len(chain)
    system = np.eye(n) - chain.T
    system[-1] = 1.0
    right = np.zeros(n)
    right[-1] = 1.0
    return np.asarray(np.linalg.solve(system, right), dtype=np.float64)


def limiting_matrix(chain: Floats) -> Floats:
    """Return P* = lim (1/T) sum_{t<T} P^t: [S, S].

    Parameters
    ----------
    chain
        Transition probabilities, [S, S], one row per state.
    """
    n = len(chain)
    limit = np.zeros((n, n))
    transient = np.ones(n, dtype=bool)
    classes = recurrent_classes(chain)
    for members in classes:
        limit[np.ix_(members, members)] = stationary_law(chain[np.ix_(members, members)])
        transient[members] = False
    inside = np.flatnonzero(transient)
    if len(inside):
        system = np.eye(len(inside)) - chain[np.ix_(inside, inside)]
        for members in classes:
            entry = chain[np.ix_(inside, members)].sum(axis=1)
            absorbed = np.linalg.solve(system, entry)
            limit[np.ix_(inside, members)] = np.outer(absorbed, limit[members[0], members])
    return limit


def policy_gain(mdp: DenseMDP, policy: Sequence[int] | Actions) -> Floats:
    """Return the average reward of a policy from every initial state: [S].

    Parameters
    ----------
    mdp
        A dense MDP.
    policy
        One action index per state: [S].
    """
    return _gain_and_bias(mdp, policy)[0]


def policy_bias(mdp: DenseMDP, policy: Sequence[int] | Actions) -> Floats:
    """Return the bias of a policy, with P* h = 0: [S].

    Parameters
    ----------
    mdp
        A dense MDP.
    policy
        One action index per state: [S].
    """
    return _gain_and_bias(mdp, policy)[1]


def _gain_and_bias(mdp: DenseMDP, policy: Sequence[int] | Actions) -> tuple[Floats, Floats]:
    chain, rewards = policy_chain(mdp, policy)
    limit = limiting_matrix(chain)
    gain = limit @ rewards
    bias = np.linalg.solve(np.eye(len(chain)) - chain + limit, rewards - gain)
    return gain, np.asarray(bias, dtype=np.float64)


def all_policies(mdp: DenseMDP) -> Iterator[Actions]:
    """Yield every deterministic policy of allowed actions, up to A^S.

    Parameters
    ----------
    mdp
        A dense MDP.
    """
    choices: list[Sequence[int]] = [range(mdp.n_actions)] * mdp.n_states
    if mdp.allowed is not None:
        choices = [np.flatnonzero(allowed).tolist() for allowed in mdp.allowed.T]
    for actions in itertools.product(*choices):
        yield np.array(actions, dtype=np.int64)


def optimal(mdp: DenseMDP) -> AverageSolution:
    """Return the best gain from every state, by multichain policy iteration.

    First the expected gain P g is improved, and only if no action improves it, r + P h among the
    actions that keep it. An action is kept while no other is better.

    Parameters
    ----------
    mdp
        A dense MDP.
    """
    states = np.arange(mdp.n_states)
    policy = mdp.rewards.argmax(axis=0).astype(np.int64)
    for _ in range(10_000):
        gain, bias = _gain_and_bias(mdp, policy)
        future = mdp.transitions @ gain
        slack = TIE * np.abs(mdp.rewards).max()
        better = future.max(axis=0) > future[policy, states] + slack
        if not better.any():
            values = action_values(mdp, bias)
            values[future < future.max(axis=0) - slack] = -np.inf
            slack = TIE * (np.abs(bias).max() + np.abs(mdp.rewards).max())
            better = values.max(axis=0) > values[policy, states] + slack
            future = values
        if not better.any():
            return AverageSolution(gain, bias, policy)
        policy = np.where(better, future.argmax(axis=0), policy)
    raise AssertionError("policy iteration did not end: the tie tolerance is below the rounding")


def damped_value_iteration(
    mdp: DenseMDP, damping: float = 0.5, tolerance: float = 1e-12, sweeps: int = 100_000
) -> tuple[Floats, float, float]:
    """Return (v - min v, min(Lv - v), max(Lv - v)) of v <- (1 - damping) v + damping Lv, v = 0.

    The two numbers enclose the best gain of every state. They meet if it is the same everywhere;
    otherwise the bounds stay apart until the limit of sweeps.

    Parameters
    ----------
    mdp
        A dense MDP.
    damping
        Share of a sweep that is taken, above 0, at most 1.
    tolerance
        Gap of the two numbers at which it stops.
    sweeps
        Largest number of sweeps.
    """
    v = np.zeros(mdp.n_states)
    for _ in range(sweeps):
        step = bellman(mdp, v) - v
        if step.max() - step.min() <= tolerance:
            break
        v = v + damping * step
        v -= v.min()
    return v - v.min(), float(step.min()), float(step.max())
