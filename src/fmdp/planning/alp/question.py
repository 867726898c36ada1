"""The linear program min c x subject to constraints on Bellman residuals: what is asked, what comes
back, and the clock and limits that both methods obey.

Columns: the weights w_1..w_K, one scalar (the weight of the constant, or the gain lambda), then the
columns of each `Constraints`. Objectives are over the first K + 1.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fmdp.elimination.backup import check_clock
from fmdp.planning.alp.constraints import Ints, Pattern
from fmdp.planning.alp.highs import LPStatus, Rows
from fmdp.planning.status import Progress, Status

Floats = NDArray[np.float64]

STATUS = {
    LPStatus.OPTIMAL: Status.CONVERGED,
    LPStatus.INFEASIBLE: Status.PRECISION_LIMIT,
    LPStatus.UNBOUNDED: Status.PRECISION_LIMIT,
    LPStatus.TIME_LIMIT: Status.TIME_LIMIT,
    LPStatus.ITERATION_LIMIT: Status.ITERATION_LIMIT,
    LPStatus.UNKNOWN: Status.PRECISION_LIMIT,
}
"""What an outcome of the solver means for the plan.

Every program here has a solution: w = 0 with a large enough scalar satisfies the constraints, and
the objective is bounded below by alpha . V*, the gain, or 0. A solver that finds none has lost it
to rounding; the bounds of whatever weights are at hand hold."""


class Part(Protocol):
    """A family of constraints that can be separated and written as rows: `Constraints`, or those
    of one policy."""

    n_columns: int
    """Columns of its own."""

    def joining_row(self) -> Rows | None: ...

    def rows(self, pattern: Pattern) -> Rows: ...

    def violation(self, x: Floats) -> float: ...

    def violated(self, x: Floats, threshold: float) -> Ints: ...

    def traced(self, heads: Ints, rivals: int = 0) -> Pattern: ...


@dataclass(frozen=True, eq=False)
class Question:
    """min cost . (w, scalar) subject to every constraint."""

    cost: Floats
    """[K + 1]"""
    constraints: tuple[Part, ...]
    charges: tuple[float, ...]
    """For each constraint, what a unit of violation costs where it is made good."""
    accuracy: float
    """Violation at which to stop: small enough for the objective to be as close as asked."""
    tolerance: float
    """Violation that may be left if rounding allows no better; and how far the objective of a point
    that satisfies all constraints may be above the optimum."""
    scale: float
    """A size that weights of this problem may well have; only a place to start from."""
    fixed: NDArray[np.bool_]
    """[K]: weights that stay 0."""
    shift: float = 0.0
    """What the objective lacks because rewards are counted from the forms' origin."""
    raisable: tuple[bool, ...] | None = None
    """For each constraint, whether a larger scalar makes it hold; None where that is not so simple
    that the best point so far could be an answer."""
    rounds: int | None = None
    """After how many the best point so far has to do."""
    cap: float | None = None
    """What no weight's size may be above."""
    start: Floats | None = None
    """[K]: weights known to satisfy the constraints that no scalar can make good."""

    @property
    def n_weights(self) -> int:
        return len(self.cost) - 1

    @property
    def n_columns(self) -> int:
        return len(self.cost) + sum(part.n_columns for part in self.constraints)


@dataclass(frozen=True, eq=False)
class Answer:
    """A point (w, scalar), its objective, and how much it violates the constraints."""

    status: Status
    x: Floats  # [K + 1]
    objective: float
    violation: float
    iterations: int
    n_rows: int


class Watch:
    """The clock and the callback, handed down to whoever loops."""

    def __init__(
        self,
        *,
        iterations: int | None = None,
        deadline: float | None = None,
        progress: Progress | None = None,
        unit: float = 1.0,
    ) -> None:
        """Iterations of one solve, and when its time is up on time.monotonic's clock; objective and
        violation are multiples of the unit."""
        self.iterations = iterations
        self._deadline = deadline
        self._progress = progress
        self._unit = unit

    def seconds_left(self) -> float | None:
        return None if self._deadline is None else self._deadline - time.monotonic()

    def look(self) -> None:
        """TimeUp where no time is left."""
        check_clock(self._deadline)

    def out_of_time(self) -> bool:
        left = self.seconds_left()
        return left is not None and left <= 0.0

    def report(self, *, iteration: int, objective: float, violation: float, rows: int) -> None:
        if self._progress is not None:
            self._progress(
                {
                    "iteration": iteration,
                    "objective": objective * self._unit,
                    "violation": violation * self._unit,
                    "rows": rows,
                }
            )
