"""Bounds on the rounding errors of a backup, and the slack of ties.

A backup is a chain of sums of products. `Backup.roundings` counts how often a number is rounded on
its way; each rounding moves it by at most one unit in the last place of the largest summand.
Certified bounds are widened by this allowance.

Actions are tied if their values are within 1e-9 units of the reward (`Structure.reward_unit`) of
the best, plus the rounding allowance. Nothing is absolute: rewards in another unit scale the
results, by a power of two to the last bit.
"""

from __future__ import annotations

import numpy as np

from fmdp.elimination.ties import TIE_TOLERANCE


def rounding_allowance(size: float, roundings: int) -> float:
    """Return how far rounding can move L h - h if |h| and the rewards are at most `size`."""
    return (roundings + 2) * float(np.finfo(np.float64).eps) * size


def tie_slack(unit: float, size: float, roundings: int, tolerance: float = np.inf) -> float:
    """Return how far below the best a tied action may be. Apart from rounding it is at most a
    quarter of a plan's tolerance, because the policy must attain the certified lower bound."""
    return min(TIE_TOLERANCE * unit, 0.25 * tolerance) + 2.0 * rounding_allowance(size, roundings)
