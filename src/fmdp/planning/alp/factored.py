"""The factored linear program of Guestrin, Koller, Parr & Venkataraman (2003).

Elimination of the cost network with symbolic weights: every message is a column, and every joint
assignment of an elimination step is a row "message >= sum of the entries it reads". The number of
rows is exponential only in the induced width, and the optimum is that of the program with one row
for each (state, action). Contexts that share messages share their rows, so one action variable with
a thousand values costs a few rows per value.

New tables change the numbers, not the pattern: each solve starts from the last basis.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmdp._base.deadlines import TimeUp
from fmdp.planning.alp.bellman_residual import BellmanResidual
from fmdp.planning.alp.constraints import BellmanConstraints, RowPattern, restored_basis
from fmdp.planning.alp.highs import INFINITY, HighsModel, SimplexBasis, stack
from fmdp.planning.alp.program import LinearProgram, Monitor, ProgramSolution
from fmdp.planning.status import Status

INTERIOR_ROWS = 1000
"""Rows above which a program without a basis is solved by HiGHS's interior-point method, which is
slower on small programs and cannot start from a basis."""
_BYTES_PER_ENTRY, _BYTES_PER_ROW = 100, 400
"""Memory of a program in HiGHS, estimated from above: more refuses programs that would fit."""


def emitted_size(residual: BellmanResidual) -> tuple[int, int]:
    """Return the number of rows that elimination emits, and an estimate of their bytes."""
    network = residual.network
    schedule = network.schedule
    sent = np.array([kind in ("up", "down", "close") for kind in network.kinds])
    rows = (np.diff(schedule.block_items) * schedule.block_joint)[sent]
    # Each input of a row adds one message or the weights of one function.
    most = max((len(columns) for columns in residual.columns), default=1)
    entries = rows * (np.diff(schedule.block_inputs)[sent] * most + 1)
    return int(rows.sum()), int(_BYTES_PER_ENTRY * entries.sum() + _BYTES_PER_ROW * rows.sum())


class FactoredProgram:
    """Solver that emits all rows; keeps their pattern and the last basis between solves."""

    def __init__(self) -> None:
        self._solver = HighsModel()
        self._patterns: list[RowPattern] | None = None
        self._basis: SimplexBasis | None = None

    def solve(self, program: LinearProgram, monitor: Monitor) -> ProgramSolution:
        """Solve a program whose constraints have columns for their messages."""
        families = [
            family for family in program.constraints if isinstance(family, BellmanConstraints)
        ]
        n = program.n_weights
        x = np.zeros(program.n_columns)
        objective = violation = np.inf
        iterations = 0
        try:
            self._load(program, families, monitor)
            outcome = self._solver.solve(
                seconds=monitor.deadline.remaining(),
                iterations=monitor.iterations,
                interior=self._basis is None and self._solver.n_rows > INTERIOR_ROWS,
            )
            iterations = outcome.iterations
            status = outcome.status
            if status is Status.CONVERGED:
                x, objective = outcome.x, outcome.objective
                violation = max(family.violation(x) for family in families)
                if violation > program.tolerance:
                    status = Status.PRECISION_LIMIT
                self._basis = self._solver.basis()
            monitor.report(
                iteration=iterations,
                objective=objective + program.shift,
                violation=violation,
                rows=self._solver.n_rows,
            )
        except TimeUp:
            status = Status.TIME_LIMIT
        except KeyboardInterrupt:
            status = Status.INTERRUPTED
        return ProgramSolution(
            status, x[: n + 1], objective, violation, iterations, self._solver.n_rows
        )

    def _load(
        self, program: LinearProgram, families: Sequence[BellmanConstraints], monitor: Monitor
    ) -> None:
        if self._patterns is None:
            self._patterns = [family.emitted(monitor.deadline) for family in families]
        n = program.n_weights
        free = np.full(program.n_columns, INFINITY)
        if program.cap is not None:
            free[:n] = program.cap
        free[:n][program.fixed] = 0.0
        rows = []
        for family, pattern in zip(families, self._patterns, strict=True):
            monitor.deadline.check()
            rows.append(family.rows(pattern))
        monitor.deadline.check()
        self._solver.load(program.column_costs, -free, free, stack([*program.joining_rows, *rows]))
        if self._basis is not None:
            self._solver.set_basis(self._basis)
        monitor.deadline.check()

    def state(self) -> dict[str, NDArray[Any]]:
        return {} if self._basis is None else self._basis.arrays()

    def restore(
        self,
        arrays: dict[str, NDArray[Any]],
        families: Sequence[BellmanConstraints],
        n_weights: int,
    ) -> None:
        """Restore what `state` returned; raise InvalidParameter if it does not fit."""
        self._basis = None
        if arrays:
            self._patterns = [family.emitted() for family in families]
            n_rows = sum(map(len, self._patterns))
            self._basis = restored_basis(arrays, families, n_weights, n_rows)
