"""Certificates: every bound on a gain or a value that the exact planner reports is made here.

L is a monotone operator that commutes with constants, L(h + c) = L h + c: the optimal backup, the
backup of one policy, or the nested one.  h is any function of the states, and rho = L h - h is its
Bellman residual.

* Average reward (Puterman 2014, theorem 8.5.5): min rho <= gain(s) <= max rho for every state s.
* Discounted (MacQueen 1966): with c = discount / (1 - discount) and rho of the discounted backup,
  L h + c min rho <= V* <= L h + c max rho.

Neither needs h to be near a solution.  The engine computes L h in floating point: every residual is
therefore widened by `rounding_allowance`, a bound on what rounding can have done to it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fmdp.elimination.backup import Backup
from fmdp.elimination.rounding import rounding_allowance

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class Residual:
    """The extremes of a computed residual L h - h, and how far rounding can have moved them."""

    low: float
    high: float
    slack: float

    @property
    def gap(self) -> float:
        return self.high - self.low

    @property
    def lower(self) -> float:
        """At most min(L h - h) in exact arithmetic."""
        return self.low - self.slack

    @property
    def upper(self) -> float:
        """At least max(L h - h) in exact arithmetic."""
        return self.high + self.slack


def residual_from(extremes: Vector, reward_size: float, roundings: int) -> Residual:
    """Return the residual of a sweep from min(L h - h), max(L h - h) and the largest |h|.

    `roundings` is the number of roundings on the way of a number through the operator, at most.
    """
    slack = rounding_allowance(float(extremes[2]) + reward_size, roundings)
    return Residual(float(extremes[0]), float(extremes[1]), slack)


def residual_of(backup: Backup, h: Vector, image: Vector) -> Residual:
    """Return the residual image - h, where `image` is a backup of h by this engine.

    With the optimal backup, `lower` and `upper` bound the optimal gain of every state.  With the
    backup of a policy they bound the gain of that policy.
    """
    backup.residual(h, image)
    return residual_from(backup.extremes, backup.structure.reward_size, backup.roundings)


def policy_lower_bound(backup: Backup, h: Vector, image: Vector) -> float:
    """Return a lower bound on the gain of a policy from every state; `image` is its backup of h."""
    return residual_of(backup, h, image).lower


def bounds_of_actions(worth: Vector, noise: Vector) -> tuple[float, float]:
    """Return bounds on L h - h from the one-step values r + P h - h of all actions: [S, A].

    `noise` is how far rounding can have moved each; actions that are not allowed have worth -inf
    and noise 0.  The policy that is greedy for worth - noise attains the lower bound.
    """
    return float((worth - noise).max(axis=1).min()), float((worth + noise).max())


def bounds_of_policy(
    worth: Vector, noise: Vector, policy: NDArray[np.int64]
) -> tuple[float, float]:
    """Return a lower bound on the gain of a policy and an upper bound on the optimal gain.

    `worth` and `noise` are as for `bounds_of_actions`.
    """
    lower = float(np.take_along_axis(worth - noise, policy[:, None], axis=1).min())
    return lower, float((worth + noise).max())


def stage_error(error: float, discount: float, size: float, roundings: int) -> float:
    """Return a bound on the rounding error of V_t = L(discount V_{t+1}), given that of V_{t+1}.

    A backup whose values and rewards are at most `size` moves by at most the allowance, and an
    error made at step t + 1 is multiplied by at most the discount on its way to step t.
    """
    return discount * error + rounding_allowance(size, roundings)


def average_bounds(
    backup: Backup,
    h: Vector,
    actions: NDArray[np.integer] | None,
    image: Vector | None = None,
) -> tuple[float | None, float]:
    """Return a lower bound on the gain of a policy and an upper bound on the optimal gain.

    Both follow from the average-reward theorem at h, which may be any function, for example the
    value under a discount.  The first is None without a policy.  `image` is a workspace of the
    length of h.
    """
    if image is None:
        image = np.empty_like(h)
    least, most = backup.structure.reward_bounds
    backup.sweep(h, image)
    upper = min(residual_of(backup, h, image).upper, most)
    if actions is None:
        return None, upper
    backup.policy_sweep(h, image, actions)
    return max(policy_lower_bound(backup, h, image), least), upper


def discounted_value(
    backup: Backup,
    base: Vector,
    discount: float,
    lower: float,
    upper: float,
    slack: float,
    out: Vector | None = None,
) -> tuple[Vector, float, tuple[float, float]]:
    """Return the middle of MacQueen's bounds on V*, its mean, and certified bounds on that of V*.

    V* lies in base + discount / (1 - discount) [lower, upper], up to `slack`.  The rounding of the
    mean itself is added to its bounds.  The value is written to `out`, if that is given.
    """
    scale = discount / (1.0 - discount)
    value: Vector = np.add(base, 0.5 * scale * (lower + upper), out=out)
    half = 0.5 * scale * (upper - lower) + slack
    size = backup.largest(max(float(value.max()), -float(value.min())))
    half += backup.n_states * float(np.finfo(np.float64).eps) * size
    mean = backup.mean(value)
    return value, mean, (mean - half, mean + half)
