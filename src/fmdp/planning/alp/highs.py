"""The interface to HiGHS (Huangfu & Hall 2018): minimise c x subject to bounds on columns and rows.

Rows are sparse, can be added and deleted, and each solve starts from the last basis. HiGHS runs in
one thread, with tolerances far below the planner's, so that the remaining violation comes from
missing rows. `load` starts from a clean solver: with the same rows and the same basis the solution
is the same bit for bit. An infeasible or unbounded program, or one on which HiGHS gives up, is
reported by its status, not by an exception.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

import highspy
import numpy as np
from numpy.typing import NDArray

from fmdp.errors import FmdpError
from fmdp.planning.status import Status

Floats = NDArray[np.float64]
INFINITY = float(highspy.kHighsInf)
FEASIBILITY = 1e-9
"""Primal and dual feasibility tolerance: larger would show in the bounds, smaller stalls HiGHS."""
_MOST_ITERATIONS = 2**31 - 1
_LONG_ROWS = 2000
"""Rows above which HiGHS runs in a second thread: it costs a little and makes Ctrl-C prompt."""
N_BASIS_STATUS = 5
"""Number of values of HighsBasisStatus."""
_BASIS_STATUS = [highspy.HighsBasisStatus(status) for status in range(N_BASIS_STATUS)]


class SolverFailed(FmdpError):
    """HiGHS rejected a change of the model."""


_STATUS = {
    highspy.HighsModelStatus.kOptimal: Status.CONVERGED,
    highspy.HighsModelStatus.kModelEmpty: Status.CONVERGED,
    highspy.HighsModelStatus.kInfeasible: Status.PRECISION_LIMIT,
    highspy.HighsModelStatus.kUnbounded: Status.PRECISION_LIMIT,
    highspy.HighsModelStatus.kUnboundedOrInfeasible: Status.PRECISION_LIMIT,
    highspy.HighsModelStatus.kTimeLimit: Status.TIME_LIMIT,
    highspy.HighsModelStatus.kIterationLimit: Status.ITERATION_LIMIT,
}
"""The status of a plan for each status of HiGHS.

Every program here is feasible and bounded: w = 0 with a large enough scalar satisfies the
constraints, and the objective is bounded below by alpha . V*, the gain, or 0. If the solver reports
otherwise, the cause is rounding; the bounds that follow from any weights still hold."""


@dataclass(frozen=True, eq=False)
class Rows:
    """Sparse rows lower <= A x, row by row."""

    lower: Floats
    start: NDArray[np.int32]  # [rows]: where each row begins
    index: NDArray[np.int32]
    value: Floats

    def __len__(self) -> int:
        return len(self.lower)

    def slack(self, x: Floats) -> Floats:
        """Return A x - lower."""
        # A row may be empty: no weight affects its state and action, and its bound is fixed.
        lengths = np.diff(np.append(self.start, len(self.index)))
        row = np.repeat(np.arange(len(self)), lengths)
        sums = np.bincount(row, self.value * x[self.index], len(self)).astype(np.float64)
        slack: Floats = sums - self.lower
        return slack


@dataclass(frozen=True, eq=False)
class SimplexBasis:
    """The HighsBasisStatus of each column and row, as numbers."""

    columns: NDArray[np.int8]
    rows: NDArray[np.int8]

    def arrays(self) -> dict[str, NDArray[Any]]:
        return {"columns": self.columns, "rows": self.rows}


@dataclass(frozen=True, eq=False)
class Solution:
    """The result of a solve."""

    status: Status
    objective: float
    x: Floats
    iterations: int


def stack(parts: list[Rows]) -> Rows:
    """Return the rows of all parts, in order."""
    if len(parts) == 1:
        return parts[0]
    starts = np.cumsum([0, *(len(part.index) for part in parts)])
    return Rows(
        np.concatenate([part.lower for part in parts]),
        np.concatenate(
            [part.start + at for part, at in zip(parts, starts[:-1], strict=True)]
        ).astype(np.int32),
        np.concatenate([part.index for part in parts]),
        np.concatenate([part.value for part in parts]),
    )


class HighsModel:
    """A linear program in HiGHS that keeps its basis from one solve to the next."""

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
        """Replace columns and rows, and discard the solver's state."""
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
                np.full(len(rows), INFINITY),
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
                    np.full(len(rows), INFINITY),
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
        """Set the bounds of the first columns."""
        n = len(lower)
        _checked(self._highs.changeColsBounds(n, self._columns[:n], lower, upper))

    def basis(self) -> SimplexBasis | None:
        """Return the current basis, for `set_basis` of a program of the same shape."""
        basis = self._highs.getBasis()
        if not basis.valid:
            return None
        return SimplexBasis(
            np.array([int(status) for status in basis.col_status], dtype=np.int8),
            np.array([int(status) for status in basis.row_status], dtype=np.int8),
        )

    def set_basis(self, basis: SimplexBasis) -> None:
        # Always built from numbers: with HiGHS's own basis object results differ in the last bit.
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
        """Minimise by simplex from the current basis.

        `interior` is for large programs without a basis: presolve, interior point, crossover.
        """
        highs = self._highs
        self._option("solver", "ipm" if interior else "simplex")
        self._option("presolve", "on" if interior else "off")
        # HiGHS's clock is cumulative over solves.
        limit = INFINITY if seconds is None else float(highs.getRunTime()) + max(seconds, 1e-3)
        self._option("time_limit", limit)
        most = _MOST_ITERATIONS if iterations is None else iterations
        self._option("simplex_iteration_limit", most)
        self._option("ipm_iteration_limit", most)
        self._run()
        status = _STATUS.get(highs.getModelStatus())
        if status is None:
            # A basis of other tables may be useless here: retry without it, then without simplex.
            highs.clearSolver()
            self._run()
            status = _STATUS.get(highs.getModelStatus())
        if status is None:
            highs.clearSolver()
            self._option("solver", "ipm")
            self._option("presolve", "on")
            self._run()
            status = _STATUS.get(highs.getModelStatus(), Status.PRECISION_LIMIT)
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
        """Run HiGHS; large programs run in a second thread, so that Ctrl-C takes effect."""
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
        """Return A x at the last solution."""
        return np.array(self._highs.getSolution().row_value, dtype=np.float64)

    def column_prices(self) -> Floats:
        """Return the reduced cost of each column at the last solution."""
        return np.array(self._highs.getSolution().col_dual, dtype=np.float64)


def _checked(status: Any) -> None:
    if status == highspy.HighsStatus.kError:
        raise SolverFailed("HiGHS refused a change of the linear program")
