"""Policy iteration under a discount on a small model that is written out, with certified bounds.

Value iteration comes nearer by the discount in every sweep, so that a discount of 0.99999 takes
millions of sweeps wherever the model has several recurrent classes. Policy iteration takes a few
policies. For any V, with rho = L V - V of the optimal backup L V = max_a (r + discount P V),

    V + min rho / (1 - discount) <= V* <= V + max rho / (1 - discount)    (MacQueen 1966).

rho is computed by differences, r + discount sum p (V' - V) - (1 - discount) V, so that it does not
lose the digits that V has before its point: two absorbing states are solved to the last digit under
any discount. The bounds are the same for V plus any constant, so V is kept small by taking one off.
What rounding can have done is added to the bounds.

Cost: a linear system over the states for each policy.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fmdp.planning.exact.improvement import factored
from fmdp.planning.tabular.component import REFINEMENTS, ROUNDS, Check
from fmdp.planning.tabular.flat import Flat, Floats, Indices

_EPSILON = float(np.finfo(np.float64).eps)


@dataclass(frozen=True, eq=False)
class DiscountedValue:
    """A value function and bounds on its residual, rounding included.

    Attributes
    ----------
    values
        [S] in C order, up to a constant, which the bounds make up for.
    lower
        At most the residual rho of every state.
    upper
        At least the residual rho of every state.
    """

    values: Floats
    lower: float
    upper: float


def best_discounted(
    flat: Flat, discount: float, start: Indices, check: Check = lambda: None
) -> DiscountedValue | None:
    """Return the best values that policy iteration from the policy `start` [S] meets; None where a
    system cannot be solved."""
    policy, best = start, None
    for _ in range(ROUNDS):
        check()
        values = _policy_values(flat, policy, discount)
        if values is None:
            break
        rho, noise = _residuals(flat, values, discount)
        lower, upper = float((rho - noise).max(axis=1).min()), float((rho + noise).max())
        if best is None or upper - lower < best.upper - best.lower:
            best = DiscountedValue(values, lower, upper)
        greedy = rho.argmax(axis=1)
        both = np.stack([policy, greedy], axis=1)
        held, reached = np.take_along_axis(rho, both, axis=1).T
        improved = reached > held + np.take_along_axis(noise, both, axis=1).sum(axis=1)
        if not improved.any():
            break
        policy = np.where(improved, greedy, policy)
    return best


def _residuals(flat: Flat, values: Floats, discount: float) -> tuple[Floats, Floats]:
    """Return r + discount P V - V of every state and action, and how far rounding can move each."""
    moved, noise = flat.advantages(values)  # r + P V - V
    own = values[:, None]
    rho = discount * moved + (1.0 - discount) * (flat.rewards - own)
    return rho, noise + 8.0 * _EPSILON * (1.0 - discount) * (flat.reward_sizes + np.abs(own))


def _policy_values(flat: Flat, policy: Indices, discount: float) -> Floats | None:
    """Return V = r + discount P V of a policy up to a constant. What rounding leaves of the
    equation is solved for again."""
    n, states = flat.n_states, np.arange(flat.n_states)
    rows, weights = flat.successors[states, policy], flat.probabilities[states, policy]
    origin = np.repeat(states, rows.shape[1])
    target, weight = rows.ravel(), weights.ravel()
    away = (target != origin) & (weight > 0.0)
    origin, target, weight = origin[away], target[away], weight[away]
    # The diagonal 1 - discount P(s, s) without subtraction (Grassmann, Taksar & Heyman 1985).
    leaving: Floats = np.bincount(origin, weight, n).astype(np.float64, copy=False)
    solve = factored(origin, target, -discount * weight, (1.0 - discount) + discount * leaving)
    if solve is None:
        return None
    rewards = flat.rewards[states, policy]
    values = np.zeros(n)
    for _ in range(REFINEMENTS):
        moved = (weights * (values[rows] - values[:, None])).sum(axis=1)
        left = rewards + discount * moved - (1.0 - discount) * values
        values = values + solve(left - 0.5 * (left.min() + left.max()))
        values -= 0.5 * (values.min() + values.max())
    return values if np.isfinite(values).all() else None
