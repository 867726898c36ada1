"""Default tolerance, iteration limit and grace period of planners and evaluations."""

from __future__ import annotations

from fmdp.model import Structure

DEFAULT_SWEEPS = 100_000
"""Default iteration limit of planners on the elimination engine."""
TOLERANCE = 1e-6
"""Default gap of a plan's bounds, in units of `Structure.reward_unit`."""
GRACE_SECONDS = 1.0
"""Time after a deadline or Ctrl-C in which a plan may still compute its policy."""


def tolerance_of(tolerance: float | None, structure: Structure) -> float:
    """Return the given tolerance, or the default in the unit of the model's rewards."""
    return TOLERANCE * structure.reward_unit if tolerance is None else tolerance
