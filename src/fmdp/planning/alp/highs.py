"""The one place that talks to HiGHS (Huangfu & Hall 2018): minimise c x subject to bounds on the
columns and on sparse rows, rows added and deleted, warm-started from the last basis.

One thread, and HiGHS's tolerances far below the planner's, so that what violation is left comes
from rows that are missing. `load` starts from a clean solver: with the same rows and the same basis
the answer is the same to the last bit. An infeasible or unbounded program is an outcome with that
status, and so is one on which HiGHS gives up.
"""

from __future__ import annotations

import enum
import threading
from dataclasses import dataclass
from typing import Any

import highspy
import numpy as np
from numpy.typing import NDArray

from fmdp.errors import FmdpError

Floats = NDArray[np.float64]
INFINITY = float(highspy.kHighsInf)
FEASIBILITY = 1e-9
_MOST_ITERATIONS = 2**31 - 1
_LONG_ROWS = 2000
N_BASIS_STATUS = 5
_BASIS_STATUS = [highspy.HighsBasisStatus(status) for status in range(N_BASIS_STATUS)]


class SolverFailed(FmdpError):
    """HiGHS refused what it was told."""


class LPStatus(enum.Enum):
    OPTIMAL = "optimal"
    INFEASIBLE = "infeasible"
    UNBOUNDED = "unbounded"
    TIME_LIMIT = "time_limit"
    ITERATION_LIMIT = "iteration_limit"
    UNKNOWN = "unknown"


_STATUS = {
    highspy.HighsModelStatus.kOptimal: LPStatus.OPTIMAL,
    highspy.HighsModelStatus.kModelEmpty: LPStatus.OPTIMAL,
    highspy.HighsModelStatus.kInfeasible: LPStatus.INFEASIBLE,
    highspy.HighsModelStatus.kUnbounded: LPStatus.UNBOUNDED,
    highspy.HighsModelStatus.kUnboundedOrInfeasible: LPStatus.UNBOUNDED,
    highspy.HighsModelStatus.kTimeLimit: LPStatus.TIME_LIMIT,
    highspy.HighsModelStatus.kIterationLimit: LPStatus.ITERATION_LIMIT,
}


@dataclass(frozen=True, eq=False)
class Rows:
    """Sparse rows lower <= A x <= upper, row by row."""

    lower: Floats
    upper: Floats
    start: NDArray[np.int32]  # [rows]: where each row begins
    index: NDArray[np.int32]
    value: Floats

    def __len__(self) -> int:
        return len(self.lower)

    def slack(self, x: Floats) -> Floats:
        """A x - lower."""
        # A row may be empty: a state and action that no weight matters to, under a fixed bound.
        lengths = np.diff(np.append(self.start, len(self.index)))
        row = np.repeat(np.arange(len(self)), lengths)
        sums = np.bincount(row, self.value * x[self.index], len(self)).astype(np.float64)
        slack: Floats = sums - self.lower
        return slack


@dataclass(frozen=True, eq=False)
class SimplexBasis:
    """Which columns and rows are basic, or at which bound: HiGHS's statuses as numbers."""

    columns: NDArray[np.int8]
    rows: NDArray[np.int8]

    def arrays(self) -> dict[str, NDArray[Any]]:
        return {"columns": self.columns, "rows": self.rows}


@dataclass(frozen=True, eq=False)
class Solution:
    """What a solve found: the point, its objective, and how it ended."""

    status: LPStatus
    objective: float
    x: Floats
    iterations: int


def stack(parts: list[Rows]) -> Rows:
    """The rows of all parts, in order."""
    if len(parts) == 1:
        return parts[0]
    starts = np.cumsum([0, *(len(part.index) for part in parts)])
    return Rows(
        np.concatenate([part.lower for part in parts]),
        np.concatenate([part.upper for part in parts]),
        np.concatenate(
            [part.start + at for part, at in zip(parts, starts[:-1], strict=True)]
        ).astype(np.int32),
        np.concatenate([part.index for part in parts]),
        np.concatenate([part.value for part in parts]),
    )


class LinearProgram:
    """A HiGHS model that keeps its basis from one solve to the next."""

    def __init__(self) -> None:
        self._highs: Any = highspy.Highs()  # type: ignore[no-untyped-call]
        for option, value in (
            ("output_flag", False),
            ("threads", 1),
            ("parallel", "off"),
            ("random_seed", 0),
            ("primal_feasibility_tolerance", FEASIBILITY),
            ("dual_feasibility_tolerance", FEASIBILITY),
        ):
            self._option(option, value)

    def _option(self, name: str, value: object) -> None:
        _checked(self._highs.setOptionValue(name, value))

    def load(self, cost: Floats, lower: Floats, upper: Floats, rows: Rows) -> None:
        """Replace everything: columns, rows, and what the solver remembered."""
        n = len(cost)
        _checked(
            self._highs.passModel(
                n,
                len(rows),
                len(rows.index),
                int(highspy.MatrixFormat.kRowwise),
                int(highspy.ObjSense.kMinimize),
                0.0,
                cost,
                lower,
                upper,
                rows.lower,
                rows.upper,
                rows.start,
                rows.index,
                rows.value,
                np.zeros(n, dtype=np.int32),
            )
        )
        self._columns = np.arange(n, dtype=np.int32)

    @property
    def n_rows(self) -> int:
        return int(self._highs.getNumRow())

    def add_rows(self, rows: Rows) -> None:
        if len(rows):
            _checked(
                self._highs.addRows(
                    len(rows),
                    rows.lower,
                    rows.upper,
                    len(rows.index),
                    rows.start,
                    rows.index,
                    rows.value,
                )
            )

    def delete_rows(self, which: NDArray[np.int64]) -> None:
        if len(which):
            _checked(self._highs.deleteRows(len(which), which.astype(np.int32)))

    def set_bounds(self, lower: Floats, upper: Floats) -> None:
        """Bounds of the first columns."""
        n = len(lower)
        _checked(self._highs.changeColsBounds(n, self._columns[:n], lower, upper))

    def basis(self) -> SimplexBasis | None:
        """The current basis, for `set_basis` of a program of the same shape."""
        found = self._highs.getBasis()
        if not found.valid:
            return None
        return SimplexBasis(
            np.array([int(status) for status in found.col_status], dtype=np.int8),
            np.array([int(status) for status in found.row_status], dtype=np.int8),
        )

    def set_basis(self, basis: SimplexBasis) -> None:
        # Always made from the numbers: HiGHS treats a basis of its own differently in the last bit.
        given = highspy.HighsBasis()
        given.col_status = [_BASIS_STATUS[status] for status in basis.columns.tolist()]
        given.row_status = [_BASIS_STATUS[status] for status in basis.rows.tolist()]
        given.valid = True
        _checked(self._highs.setBasis(given))

    def solve(
        self,
        *,
        seconds: float | None = None,
        iterations: int | None = None,
        interior: bool = False,
    ) -> Solution:
        """Minimise, from the current basis by simplex; `interior` is for large programs without a
        basis (interior point after presolve; it ends in a basis all the same)."""
        highs = self._highs
        self._option("solver", "ipm" if interior else "simplex")
        self._option("presolve", "on" if interior else "off")
        # The clock of HiGHS runs on from solve to solve.
        limit = INFINITY if seconds is None else float(highs.getRunTime()) + max(seconds, 1e-3)
        self._option("time_limit", limit)
        most = _MOST_ITERATIONS if iterations is None else iterations
        self._option("simplex_iteration_limit", most)
        self._option("ipm_iteration_limit", most)
        self._run()
        status = _STATUS.get(highs.getModelStatus())
        if status is None:
            # A basis of other tables can be hopeless for these: without it, then without simplex.
            highs.clearSolver()
            self._run()
            status = _STATUS.get(highs.getModelStatus())
        if status is None:
            highs.clearSolver()
            self._option("solver", "ipm")
            self._option("presolve", "on")
            self._run()
            status = _STATUS.get(highs.getModelStatus(), LPStatus.UNKNOWN)
        info = highs.getInfo()
        iterations = sum(
            max(int(count), 0)
            for count in (
                info.simplex_iteration_count,
                info.ipm_iteration_count,
                info.crossover_iteration_count,
            )
        )
        x = np.array(highs.getSolution().col_value, dtype=np.float64)
        return Solution(status, float(info.objective_function_value), x, iterations)

    def _run(self) -> None:
        """Run; a program that may take seconds in a thread of its own, so that Ctrl-C is heard."""
        large = self.n_rows > _LONG_ROWS and threading.current_thread() is threading.main_thread()
        if not large:
            self._highs.run()
            return
        if not self._highs.HandleUserInterrupt:
            self._highs.HandleUserInterrupt = True
        self._highs.startSolve()
        done = False
        while not done:
            try:
                done = self._highs.wait(0.1)[0]
            except KeyboardInterrupt:
                self._highs.cancelSolve()
        if self._highs.getModelStatus() == highspy.HighsModelStatus.kInterrupt:
            raise KeyboardInterrupt

    def row_values(self) -> Floats:
        """A x at the last solution."""
        return np.array(self._highs.getSolution().row_value, dtype=np.float64)

    def column_prices(self) -> Floats:
        """The reduced cost of each column at the last solution."""
        return np.array(self._highs.getSolution().col_dual, dtype=np.float64)


def _checked(status: Any) -> None:
    if status == highspy.HighsStatus.kError:
        raise SolverFailed("HiGHS refused a change of the linear program")
