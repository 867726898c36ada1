"""The linear program min c x subject to constraints on Bellman residuals, its solution, and limits.

Columns: the weights w_1..w_K, one scalar (the weight of the constant, or the gain lambda), then the
auxiliary columns of each constraint family. The objective is over the first K + 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fmdp._base.deadlines import NEVER, Deadline
from fmdp.planning.alp.constraints import Ints, RowPattern
from fmdp.planning.alp.highs import Rows
from fmdp.planning.status import Progress, Status

Floats = NDArray[np.float64]


class ConstraintFamily(Protocol):
    """Constraints, one for each (state, action) or state, with a separation oracle.

    `violation` and `violated` separate, `traced` and `rows` write the violated constraints as rows.
    """

    n_columns: int
    """Number of auxiliary columns."""

    def joining_row(self) -> Rows | None: ...

    def rows(self, pattern: RowPattern) -> Rows: ...

    def violation(self, x: Floats) -> float: ...

    def violated(self, x: Floats, threshold: float) -> Ints: ...

    def traced(self, heads: Ints, rivals: int = 0) -> RowPattern: ...


@dataclass(frozen=True, eq=False)
class LinearProgram:
    """min cost . (w, scalar) subject to every constraint."""

    cost: Floats
    """[K + 1]"""
    constraints: tuple[ConstraintFamily, ...]
    charges: tuple[float, ...]
    """For each family, the cost of raising the scalar until a unit of violation has vanished."""
    accuracy: float
    """Violation at which to stop, small enough for an objective within the tolerance."""
    tolerance: float
    """Violation that may remain if rounding allows no better, and largest distance of the objective
    of a feasible point from the optimum."""
    scale: float
    """Typical size of a weight; only a starting point of the search."""
    fixed: NDArray[np.bool_]
    """[K]: weights that stay 0."""
    relative: float = 0.0
    """Share of the reported objective that may remain as distance from the optimum, if that is more
    than the tolerance. Only interior points stop so early."""
    shift: float = 0.0
    """Added to reported objectives, because rewards are counted from `BellmanResidual.origin`."""
    raisable: tuple[bool, ...] | None = None
    """For each family, whether a larger scalar satisfies it. None: the best point so far cannot be
    returned as the solution."""
    rounds: int | None = None
    """Number of rounds after which the best point so far is returned."""
    cap: float | None = None
    """Upper bound on the absolute value of every weight."""
    start: Floats | None = None
    """[K]: weights that satisfy the families that are not raisable."""

    @property
    def n_weights(self) -> int:
        return len(self.cost) - 1

    @property
    def n_columns(self) -> int:
        return len(self.cost) + sum(family.n_columns for family in self.constraints)

    @property
    def column_costs(self) -> Floats:
        """The costs of all columns: auxiliary columns cost nothing."""
        return np.append(self.cost, np.zeros(self.n_columns - len(self.cost)))

    @property
    def joining_rows(self) -> list[Rows]:
        """The joining row of each family that has one."""
        rows = [family.joining_row() for family in self.constraints]
        return [row for row in rows if row is not None]


@dataclass(frozen=True, eq=False)
class ProgramSolution:
    """A point (w, scalar), its objective, and its largest violation."""

    status: Status
    x: Floats  # [K + 1]
    objective: float
    violation: float
    iterations: int
    n_rows: int


class Monitor:
    """The limits of a solve, and its progress callback."""

    def __init__(
        self,
        *,
        iterations: int | None = None,
        deadline: Deadline = NEVER,
        progress: Progress | None = None,
        unit: float = 1.0,
    ) -> None:
        """Reported objectives and violations are multiplied by the unit."""
        self.iterations = iterations
        self.deadline = deadline
        self._progress = progress
        self._unit = unit

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
