"""The factored linear program of Guestrin, Koller, Parr & Venkataraman (2003).

Elimination of the cost network with symbolic weights: every message is a column, every joint
assignment of an elimination step a row "message >= sum of what this assignment reads". The program
has as many rows as the elimination has joint entries, exponential in the induced width only, and
the same optimum as the program with one row for each (state, action). Contexts that share messages
share their rows, so one action variable of a thousand values costs a few rows for each value.

New tables change the numbers, not the pattern: the last basis is the start of the next solve.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmdp.elimination.backup import TimeUp
from fmdp.planning.alp.constraints import Constraints, Pattern, restored_basis
from fmdp.planning.alp.forms import Forms
from fmdp.planning.alp.highs import (
    INFINITY,
    LinearProgram,
    LPStatus,
    SimplexBasis,
    stack,
)
from fmdp.planning.alp.question import STATUS, Answer, Question, Watch
from fmdp.planning.status import Status

INTERIOR_ROWS = 1000
"""Rows above which a program without a basis is solved by an interior-point method."""
_BYTES_AN_ENTRY, _BYTES_A_ROW = 100, 400


def emitted_size(forms: Forms) -> tuple[int, int]:
    """How many rows elimination emits, and about how many bytes a program of them takes."""
    network = forms.network
    schedule = network.schedule
    sent = np.array([kind in ("up", "down", "close") for kind in network.kinds])
    rows = (np.diff(schedule.block_items) * schedule.block_joint)[sent]
    # A row reads a function's few weights or a message: the most weights bound the entries.
    most = max((len(columns) for columns in forms.columns), default=1)
    entries = rows * (np.diff(schedule.block_inputs)[sent] * most + 1)
    return int(rows.sum()), int(_BYTES_AN_ENTRY * entries.sum() + _BYTES_A_ROW * rows.sum())


class Factored:
    """The pattern of the rows and the last basis, from one solve to the next."""

    def __init__(self) -> None:
        self._lp = LinearProgram()
        self._patterns: list[Pattern] | None = None
        self._basis: SimplexBasis | None = None

    def solve(self, question: Question, watch: Watch) -> Answer:
        """The constraints must have been made with their messages."""
        parts = [part for part in question.constraints if isinstance(part, Constraints)]
        n = question.n_weights
        x = np.zeros(question.n_columns)
        objective = violation = np.inf
        iterations = 0
        try:
            self._load(question, parts, watch)
            outcome = self._lp.solve(
                seconds=watch.seconds_left(),
                iterations=watch.iterations,
                interior=self._basis is None and self._lp.n_rows > INTERIOR_ROWS,
            )
            iterations = outcome.iterations
            if outcome.status is LPStatus.OPTIMAL:
                x, objective = outcome.x, outcome.objective
                violation = max(part.violation(x) for part in parts)
                close = violation <= question.tolerance
                status = Status.CONVERGED if close else Status.PRECISION_LIMIT
                self._basis = self._lp.basis()
            else:
                status = STATUS[outcome.status]
            watch.report(
                iteration=iterations,
                objective=objective + question.shift,
                violation=violation,
                rows=self._lp.n_rows,
            )
        except TimeUp:
            status = Status.TIME_LIMIT
        except KeyboardInterrupt:
            status = Status.INTERRUPTED
        return Answer(status, x[: n + 1], objective, violation, iterations, self._lp.n_rows)

    def _load(self, question: Question, parts: Sequence[Constraints], watch: Watch) -> None:
        if self._patterns is None:
            self._patterns = [part.emitted(watch.look) for part in parts]
        n = question.n_weights
        cost = np.zeros(question.n_columns)
        cost[: n + 1] = question.cost
        free = np.full(question.n_columns, INFINITY)
        if question.cap is not None:
            free[:n] = question.cap
        free[:n][question.fixed] = 0.0
        joining = [row for part in parts if (row := part.joining_row()) is not None]
        rows = []
        for part, own in zip(parts, self._patterns, strict=True):
            watch.look()
            rows.append(part.rows(own))
        watch.look()
        self._lp.load(cost, -free, free, stack([*joining, *rows]))
        if self._basis is not None:
            self._lp.set_basis(self._basis)
        watch.look()

    def state(self) -> dict[str, NDArray[Any]]:
        return {} if self._basis is None else self._basis.arrays()

    def restore(
        self, arrays: dict[str, NDArray[Any]], parts: Sequence[Constraints], n_weights: int
    ) -> None:
        """As `state` has returned it, for these constraints; or InvalidParameter."""
        self._basis = None
        if arrays:
            self._patterns = [part.emitted() for part in parts]
            n_rows = sum(map(len, self._patterns))
            self._basis = restored_basis(arrays, parts, n_weights, n_rows)
