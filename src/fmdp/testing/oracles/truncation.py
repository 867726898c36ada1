"""The factored-span truncation and its constrained gain, by their definitions.

    (truncate v)(s) = min over s' of v(s') + d(s, s'),   d(s, s') = sum_i c_i 1{s_i != s'_i}

over all pairs of states. T = truncate o L is the Shapley operator of a turn-based game: in s one
player jumps to any s' and pays d(s, s') to the other, who then acts in s'. Its value is the number
lambda_c with T u = u + lambda_c. Both players have optimal stationary strategies, so the value is
the least, over all jumps s -> s', of the best gain that remains: S^S decision processes, for models
of about four states.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from fmdp.testing.oracles.average import optimal
from fmdp.testing.oracles.dense import DenseMDP, Floats, assignments


def hamming(sizes: Sequence[int], budgets: Sequence[float]) -> Floats:
    """Return the weighted Hamming distance of every pair of states: [S, S].

    Parameters
    ----------
    sizes
        Number of values of each state variable.
    budgets
        Weight of a difference in each state variable.
    """
    states = list(assignments(sizes))
    return np.array(
        [
            [sum(c for c, x, y in zip(budgets, s, t, strict=True) if x != y) for t in states]
            for s in states
        ],
        dtype=np.float64,
    )


def truncated(v: Floats, sizes: Sequence[int], budgets: Sequence[float]) -> Floats:
    """Return the largest function below v whose factored spans are within the budgets: [S].

    Parameters
    ----------
    v
        A number for every state: [S].
    sizes
        Number of values of each state variable.
    budgets
        One number per state variable, at least 0.
    """
    lowest: Floats = (v[None, :] + hamming(sizes, budgets)).min(axis=1)
    return lowest


def factored_spans(v: Floats, sizes: Sequence[int]) -> list[float]:
    """Return sp_i(v) of every variable: the largest difference between states that differ only
    there.

    Parameters
    ----------
    v
        A number for every state: [S].
    sizes
        Number of values of each state variable.
    """
    states = list(assignments(sizes))
    widest = [0.0] * len(sizes)
    for s, t in itertools.product(range(len(states)), repeat=2):
        differing = [i for i, (x, y) in enumerate(zip(states[s], states[t], strict=True)) if x != y]
        if len(differing) == 1:
            widest[differing[0]] = max(widest[differing[0]], float(v[s] - v[t]))
    return widest


def constrained_gain(mdp: DenseMDP, sizes: Sequence[int], budgets: Sequence[float]) -> float:
    """Return lambda_c by trying every jump of the truncating player.

    Parameters
    ----------
    mdp
        A dense MDP.
    sizes
        Number of values of each state variable.
    budgets
        One number per state variable, at least 0.
    """
    distance = hamming(sizes, budgets)
    states = np.arange(mdp.n_states)
    least = np.inf
    for jump in itertools.product(range(mdp.n_states), repeat=mdp.n_states):
        target = np.array(jump)
        paid = distance[states, target]
        left = DenseMDP(mdp.transitions[:, target], mdp.rewards[:, target] + paid)
        least = min(least, float(optimal(left).gain.max()))
    return least
