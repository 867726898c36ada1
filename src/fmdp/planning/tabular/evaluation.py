"""Evaluation of a policy on a model that is written out: bias and gain, or discounted values.

What rounding leaves of the equation is solved for again, a few times.
"""

from __future__ import annotations

import numpy as np

from fmdp.planning.tabular.linear_systems import DISCOUNTED, Solve, resolvent
from fmdp.planning.tabular.model import Floats, Indices, TabularModel

REFINEMENTS = 3
"""Solutions of the equation, each of what the last one left of it."""


def chain_resolvent(rows: Indices, weights: Floats, anchor: int | None = None) -> Solve | None:
    """Return x -> (I - P)^-1 x of a chain with successors and probabilities [n, width].

    States without any weight stop.  For `anchor` see `resolvent`.
    """
    n = len(rows)
    return resolvent(
        np.repeat(np.arange(n), rows.shape[1]),
        rows.ravel(),
        weights.ravel(),
        n,
        anchor=anchor,
        stops=np.flatnonzero(~weights.any(axis=1)),
    )


def policy_bias(model: TabularModel, policy: Indices, anchor: int) -> tuple[Floats, float] | None:
    """Return the solution h, gain of h + gain = r + P h of a policy with one recurrent class.

    `anchor` is a state of that class: h(anchor) is 0.  None if the system is singular.
    """
    states = np.arange(model.n_states)
    rows, weights = model.successors[states, policy], model.probabilities[states, policy]
    weights = np.where(model.possible[states, policy], weights, 0.0)
    solve = chain_resolvent(rows, weights, anchor)
    if solve is None:
        return None
    reward = model.rewards[states, policy]
    h = np.zeros(model.n_states)
    gain = 0.0
    for _ in range(REFINEMENTS):
        step = solve(reward - gain + (weights * (h[rows] - h[:, None])).sum(axis=1))
        if not np.isfinite(step).all():
            return None
        gain += float(step[anchor])
        step[anchor] = 0.0
        h += step
    return h, gain


def discounted_values(model: TabularModel, policy: Indices, discount: float) -> Floats | None:
    """Return V = r + discount P V of a policy up to a constant; None if the system is singular."""
    n, states = model.n_states, np.arange(model.n_states)
    rows, weights = model.successors[states, policy], model.probabilities[states, policy]
    solve = resolvent(
        np.repeat(states, rows.shape[1]),
        rows.ravel(),
        weights.ravel(),
        n,
        discount=discount,
        loss=1.0 - discount,
        sizes=DISCOUNTED,
    )
    if solve is None:
        return None
    rewards = model.rewards[states, policy]
    values = np.zeros(n)
    for _ in range(REFINEMENTS):
        moved = (weights * (values[rows] - values[:, None])).sum(axis=1)
        left = rewards + discount * moved - (1.0 - discount) * values
        values = values + solve(left - 0.5 * (left.min() + left.max()))
        values -= 0.5 * (values.min() + values.max())
    return values if np.isfinite(values).all() else None
