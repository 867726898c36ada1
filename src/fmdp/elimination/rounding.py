"""How far rounding can move a backup, and which actions it leaves undecided.

A backup is a chain of sums of products; `Backup.roundings` counts how often a number is rounded on
its way.  Each may move it by a unit in the last place of the largest number that is summed.  What
is certified is widened by this much.

Actions are tied if their values are within 1e-9 units of the reward (`Structure.reward_unit`) of
the best, plus what rounding can have done.  Nothing here is absolute: rewards stated in another
unit scale with it, by a power of two to the last bit.
"""

from __future__ import annotations

import numpy as np

from fmdp.elimination.ties import TIE_TOLERANCE


def rounding_allowance(size: float, roundings: int) -> float:
    """How far rounding can move L h - h, where |h| and the rewards are at most `size`."""
    return (roundings + 2) * float(np.finfo(np.float64).eps) * size


def tie_slack(unit: float, size: float, roundings: int, tolerance: float = np.inf) -> float:
    """How far below the best an action may be and count as equally good.

    Never more than a quarter of a plan's tolerance beyond rounding: the policy must keep the
    lower bound that is printed.
    """
    return min(TIE_TOLERANCE * unit, 0.25 * tolerance) + 2.0 * rounding_allowance(size, roundings)
