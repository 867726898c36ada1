"""Definitions that planners and evaluations share: statuses, progress callbacks, tables, bounds."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from typing import Any

from fmdp.model import FactoredMDP, OptimisticTables, Structure

Tables = FactoredMDP | OptimisticTables
"""The input of a prepared planner: a model, or the optimistic tables of a learner."""

Progress = Callable[[Mapping[str, Any]], None]
"""A callback that receives intermediate results during long computations (see each planner)."""

INFORMATIVE = 1.0 / 20.0
"""Largest gap between bounds, relative to the range of the rewards, whose middle is reported."""


class Status(enum.Enum):
    """How a plan or an evaluation ended.

    `value` is the word in JSON output, and `message` explains it. `Status("converged")` is the
    member with that value. Only evaluations of policies are `simulated` or `unmixed`.
    """

    CONVERGED = "converged", "as precise as the tolerance asks"
    ITERATION_LIMIT = "iteration_limit", "stopped at the iteration limit; the bounds hold"
    TIME_LIMIT = "time_limit", "stopped at the time limit; the bounds hold"
    INTERRUPTED = "interrupted", "stopped by hand; the bounds so far hold"
    PRECISION_LIMIT = "precision_limit", "rounding keeps the bounds from closing further; they hold"
    RELAXATION_LIMIT = (
        "relaxation_limit",
        "no more sweeps would bring the bounds closer; they hold",
    )
    MULTICHAIN = "multichain", "the gain depends on the starting state; the bounds enclose all"
    DISCOUNTED = (
        "discounted",
        "no one gain for millions of steps: best under a discount of 1 - 1e-7; the bounds hold",
    )
    SIMULATED = (
        "simulated",
        "estimated from simulated runs; the interval is not certified",
    )
    UNMIXED = (
        "unmixed",
        "simulated runs disagree, drift or are too short for an interval; the bounds hold",
    )
    INFEASIBLE = "infeasible", "the linear program has no solution"
    UNBOUNDED = "unbounded", "the linear program has no finite optimum"
    TOO_LARGE = "too_large", "the predicted need is above the memory limit"

    message: str

    def __new__(cls, value: str, message: str) -> Status:
        member = object.__new__(cls)
        member._value_ = value
        member.message = message
        return member

    def raise_if_interrupted(self) -> None:
        """Raise KeyboardInterrupt if Ctrl-C ended the work: its results so far answer no question
        but that for bounds."""
        if self is Status.INTERRUPTED:
            raise KeyboardInterrupt


def middle_of_bounds(
    lower: float | None, upper: float | None, structure: Structure, tolerance: float
) -> float | None:
    """Return the middle of bounds on a gain, or None if they are too far apart.

    Their gap must be at most the tolerance, or at most `INFORMATIVE` times the range of the
    rewards. The bounds of a plan that was stopped early may be hardly closer than that range.
    """
    if lower is None or upper is None:
        return None
    close = max(tolerance, INFORMATIVE * structure.reward_range_total)
    return 0.5 * (lower + upper) if upper - lower <= close else None
