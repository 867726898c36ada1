"""The ranges [lo, hi] of the reward factors, in which every observed reward lies."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from fractions import Fraction
from functools import cached_property

from fmdp.errors import InvalidModel
from fmdp.model.naming import quote
from fmdp.model.spaces import items

LARGEST_REWARD = 1e300
"""Largest |reward| of a step, so that gains, biases and sums over runs stay finite."""


class RewardRanges:
    """The range of every reward factor, and what follows for the reward of a step."""

    reward_ranges: tuple[tuple[float, float], ...]

    @cached_property
    def reward_range_total(self) -> float:
        """Sum of the widths of all reward ranges, sum_k (hi_k - lo_k)."""
        return float(sum(hi - lo for lo, hi in self.reward_ranges))

    @cached_property
    def reward_bounds(self) -> tuple[float, float]:
        """Bounds on the reward of a step, and so on any gain: summed ranges, rounded outwards."""
        return outward_sums(self.reward_ranges)

    @cached_property
    def reward_size(self) -> float:
        """The largest |reward| of a step."""
        return float(sum(max(abs(lo), abs(hi)) for lo, hi in self.reward_ranges))

    @cached_property
    def reward_unit(self) -> float:
        """The unit of tolerances: the largest width of a reward range.

        If every width is 0 it is the largest |reward|, and 1 if all rewards are 0. It scales with
        the rewards, so that results do not depend on the unit in which they are stated.
        """
        ranges = [hi - lo for lo, hi in self.reward_ranges]
        sizes = [max(abs(lo), abs(hi)) for lo, hi in self.reward_ranges]
        return float(max(ranges, default=0.0) or max(sizes, default=0.0) or 1.0)


def outward_sums(bounds: Iterable[tuple[float, float]]) -> tuple[float, float]:
    """Return the sum of the lower bounds rounded down and that of the upper bounds rounded up.

    A sum that is exactly a float is returned as it is.
    """
    pairs = list(bounds)
    lowest = sum((Fraction(lo) for lo, _ in pairs), Fraction(0))
    highest = sum((Fraction(hi) for _, hi in pairs), Fraction(0))
    lower, upper = float(lowest), float(highest)
    lower = math.nextafter(lower, -math.inf) if Fraction(lower) > lowest else lower
    upper = math.nextafter(upper, math.inf) if Fraction(upper) < highest else upper
    return lower, upper


def checked_ranges(
    ranges: Sequence[tuple[float, float]], names: Sequence[str]
) -> tuple[tuple[float, float], ...]:
    """Return one range per reward factor, (0, 1) if none is given, or raise InvalidModel."""
    ranges = items(ranges, "reward ranges")
    if len(ranges) == 0:
        return tuple((0.0, 1.0) for _ in names)
    if len(ranges) != len(names):
        raise InvalidModel(
            f"{len(ranges)} reward ranges for {len(names)} reward factors; "
            f"there must be one per reward factor"
        )
    checked: list[tuple[float, float]] = []
    for k, (pair, name) in enumerate(zip(ranges, names, strict=True)):
        label = f"reward factor {k} ({quote(name)})"
        try:
            lo, hi = pair
            # + 0.0 makes -0.0 and 0.0 the same range, also in the content hash.
            lo, hi = float(lo) + 0.0, float(hi) + 0.0
        except (TypeError, ValueError, OverflowError):
            raise InvalidModel(f"{label}: range {pair!r} must be two numbers lo, hi") from None
        if not (lo <= hi and math.isfinite(hi - lo)):
            raise InvalidModel(f"{label}: range [{lo!r}, {hi!r}] must be finite with lo <= hi")
        checked.append((lo, hi))
    largest = sum(max(abs(lo), abs(hi)) for lo, hi in checked)
    if not largest <= LARGEST_REWARD:
        raise InvalidModel(
            f"the rewards of a step may sum to {largest:.3g}; must be at most "
            f"{LARGEST_REWARD:.0e}, or sums over a run would leave the range of numbers"
        )
    return tuple(checked)
