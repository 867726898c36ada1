"""Constraint generation: solve with the rows at hand, find violated ones by elimination, repeat.

One pass of the network gives, for every component and every value of its context, the (state,
action) that violates the constraint most; all that are violated become rows of a warm HiGHS model
(Schuurmans & Patrascu 2002). What is left at the end is certified by elimination, not by the
solver. The objective of the program is a lower bound on the optimum where no box holds it up.

Without enough rows the program is unbounded, so the weights start in a box. A box that still costs
something at the end (a reduced cost at the bound) is widened and the search goes on: the answer
does not depend on it. With many weights the box is a trust region around the best point so far
(Marsten, Hogan & Blankenship 1975), since the corners of a large box are poor places to cut, and
every round cuts at a second point nearer to that centre. The best of these points, its scalar
raised until every constraint holds, bounds the optimum from above; the program, once no box holds
it up, from below. Where they are as near as asked, or a limit is met, the best point is the answer:
the last vertex may be far out. Cuts that have not been tight for long are
dropped, since a round costs as much as it has rows; but how many may stay grows from round to
round, and a hard plan leaves more of them to the next. With as many actions as weights a round
finds two cuts an action: under optimism, where the program is flat, four cuts a weight were
forgotten in two rounds, and plans of forty machines took thousands.

Rows are kept as positions in the network. For new tables their numbers are computed afresh and the
last basis is the start: a re-plan seldom needs more than a few rounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmdp._base.interrupts import held as signals_held
from fmdp.planning.alp.constraints import (
    Constraints,
    Pattern,
    no_rows,
    restored_basis,
    restored_pattern,
)
from fmdp.planning.alp.highs import (
    INFINITY,
    LinearProgram,
    LPStatus,
    SimplexBasis,
    stack,
)
from fmdp.planning.alp.question import STATUS, Answer, Floats, Part, Question, Watch
from fmdp.planning.policies.archive import array_in
from fmdp.planning.status import Status

DEFAULT_ROUNDS = 10_000
STABILISED = 16
"""Weights above which the box is a trust region."""
_PRICE = 1e-8
_LOOSE = 1e-9
_BOX = 10.0
_TRUST = 0.025
_BETWEEN = 0.3
_WIDEN = 10.0
_WIDEST = 1e9
_LEAST = 4
"""Cuts that are kept at a time, for each weight, at first,"""
_GROW = 0.5
"""so many more with every round,"""
_MOST = 60
"""and at most so many: a model that forgets faster than it learns goes round in circles."""


class Cuts:
    """The rows found so far, the basis and the box, from one solve to the next."""

    def __init__(self) -> None:
        self._lp = LinearProgram()
        self._patterns: list[Pattern] = []
        self._basis: SimplexBasis | None = None
        self._centre: Floats | None = None
        self._radius = 0.0

    def solve(self, question: Question, watch: Watch) -> Answer:
        return _Solve(self, question, watch).run()

    # -- warm state ------------------------------------------------------------------------------

    def state(self) -> dict[str, NDArray[Any]]:
        arrays: dict[str, NDArray[Any]] = {"radius": np.array([self._radius])}
        for number, pattern in enumerate(self._patterns):
            arrays[f"head{number}"] = pattern.head
            arrays[f"start{number}"] = pattern.start
            arrays[f"at{number}"] = pattern.at
        if self._basis is not None:
            arrays |= self._basis.arrays()
        if self._centre is not None:
            arrays["centre"] = self._centre
        return arrays

    def restore(
        self, arrays: dict[str, NDArray[Any]], parts: Sequence[Constraints], n_weights: int
    ) -> None:
        """As `state` has returned it, for these constraints; or InvalidParameter: a file may have
        brought it, and whoever makes rows of it does not look where the network ends."""
        self._radius, self._centre, self._basis, self._patterns = 0.0, None, None, []
        if "radius" in arrays:
            self._radius = float(array_in(arrays, "radius", "f", (1,), 0.0)[0])
        if "centre" in arrays:
            self._centre = array_in(arrays, "centre", "f", (n_weights,))
        if "head0" in arrays:
            self._patterns = [
                restored_pattern(arrays, number, part) for number, part in enumerate(parts)
            ]
        n_rows = sum(map(len, self._patterns))
        if "columns" in arrays:
            self._basis = restored_basis(arrays, parts, n_weights, n_rows)


class _Solve:
    """One solve. Rows of the LP: the joining rows, then the cuts in the order they came."""

    def __init__(self, kept: Cuts, question: Question, watch: Watch) -> None:
        self.kept = kept
        self.question = question
        self.watch = watch
        self.lp = kept._lp
        self.n = question.n_weights
        self.parts: tuple[Part, ...] = question.constraints
        self.stabilised = self.n > STABILISED
        self.patterns = list(kept._patterns) or [no_rows() for _ in self.parts]
        self.owner: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        """The constraint that each cut belongs to."""
        self.lower: Floats = np.zeros(0)
        """The lower bound of each cut."""
        self.idle: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        """For how many solutions each cut has not been tight."""
        self.n_joining = 0
        self.room = _LEAST * self.n
        """Cuts that may be kept at a time; what was left by the last solve was worth keeping."""
        if self.stabilised:
            self.room = max(self.room, sum(map(len, self.patterns)) * 5 // 4)
        self.seen: set[tuple[int, bytes]] = set()
        self.merit = np.inf
        """The objective at the centre of the trust region, its scalar raised until feasible."""
        self.least = -np.inf
        """What the optimum is at least: the objective of a relaxation that no box holds up."""
        self.best = np.zeros(self.n)
        """The best weights so far for which raising the scalar makes every constraint hold,"""
        self.best_merit = np.inf
        """and the objective there. Only with many weights; else the last vertex is the answer."""

    # -- the LP ----------------------------------------------------------------------------------

    def load(self) -> None:
        question = self.question
        cost = np.zeros(question.n_columns)
        cost[: self.n + 1] = question.cost
        lower = np.full(question.n_columns, -INFINITY)
        upper = np.full(question.n_columns, INFINITY)
        lower[: self.n], upper[: self.n] = self.box()
        joining = [row for part in self.parts if (row := part.joining_row()) is not None]
        self.n_joining = len(joining)
        cuts = [part.rows(own) for part, own in zip(self.parts, self.patterns, strict=True)]
        self.owner = np.repeat(np.arange(len(self.parts)), [len(own) for own in self.patterns])
        self.lower = np.concatenate([rows.lower for rows in cuts])
        self.idle = np.zeros(len(self.lower), dtype=np.int64)
        self.lp.load(cost, lower, upper, stack([*joining, *cuts]))
        if self.kept._basis is not None:
            self.lp.set_basis(self.kept._basis)

    def box(self) -> tuple[Floats, Floats]:
        radius, centre = self.kept._radius, self.kept._centre
        if centre is None or not self.stabilised:
            centre = np.zeros(self.n)
        room = np.where(self.question.fixed, 0.0, radius)
        cap = INFINITY if self.question.cap is None else self.question.cap
        return np.clip(centre - room, -cap, cap), np.clip(centre + room, -cap, cap)

    def box_holds(self) -> bool:
        """Whether a bound of the box, and not of the question itself, holds the objective up at the
        last solution."""
        prices = self.lp.column_prices()[: self.n]
        costly = np.abs(prices) > _PRICE
        if self.question.cap is not None:
            lower, upper = self.box()
            costly &= np.where(prices > 0.0, -lower, upper) < self.question.cap
        return bool(costly[~self.question.fixed].any())

    def add(self, number: int, pattern: Pattern) -> int:
        """Append the cuts of one constraint that are not there yet; returns how many."""
        fresh = np.ones(len(pattern), dtype=np.bool_)
        for r in range(len(pattern)):
            key = (number, pattern.at[pattern.start[r] : pattern.start[r + 1]].tobytes())
            fresh[r] = key not in self.seen
            self.seen.add(key)
        if not fresh.all():
            pattern = pattern.take(fresh)
        if len(pattern):
            rows = self.parts[number].rows(pattern)
            with signals_held():  # `finish` needs the arrays to be of one length, after Ctrl-C too
                self.lp.add_rows(rows)
                self.lower = np.append(self.lower, rows.lower)
                self.idle = np.append(self.idle, np.zeros(len(rows), dtype=np.int64))
                self.patterns[number] = self.patterns[number].followed_by(pattern)
                self.owner = np.append(self.owner, np.full(len(pattern), number))
        return len(pattern)

    def look_at_slacks(self) -> None:
        """Count for every cut the solutions since it was last tight."""
        slack = self.lp.row_values()[self.n_joining :] - self.lower
        self.idle = np.where(slack > _LOOSE, self.idle + 1, 0)

    def prune(self, most: int, to: int) -> None:
        """Above `most` cuts, delete those idle for longest until `to` are left."""
        if len(self.owner) <= most:
            return
        longest = np.argsort(-self.idle, kind="stable")[: len(self.owner) - to]
        dropped = np.zeros(len(self.owner), dtype=np.bool_)
        dropped[longest[self.idle[longest] > 0]] = True
        with signals_held():  # as in `add`
            self.lp.delete_rows(np.flatnonzero(dropped) + self.n_joining)
            for number in range(len(self.parts)):
                mine = self.owner == number
                self.patterns[number] = self.patterns[number].take(~dropped[mine])
            self.owner, self.lower = self.owner[~dropped], self.lower[~dropped]
            self.idle = self.idle[~dropped]
            self.seen.clear()

    # -- the loop --------------------------------------------------------------------------------

    def run(self) -> Answer:
        question, kept = self.question, self.kept
        if kept._radius == 0.0:
            kept._radius = question.scale * (_TRUST if self.stabilised else _BOX)
        if self.stabilised and kept._centre is None:
            kept._centre = np.zeros(self.n)
        if question.start is not None:
            if self.stabilised:
                kept._centre = question.start.copy()
            else:
                kept._radius = max(kept._radius, 4.0 * float(np.abs(question.start).max(initial=0)))
        x = np.zeros(question.n_columns)
        if kept._centre is not None:
            x[: self.n] = kept._centre
        self.load()
        objective = violation = np.inf
        status = Status.ITERATION_LIMIT
        rounds = 0
        most = self.watch.iterations or question.rounds or DEFAULT_ROUNDS
        try:
            if self.stabilised or not len(self.owner):
                worst = self.separate(x, -np.inf)
                self.merit = self.raised(self.value(x), worst)
                self.consider(x, worst)
            while rounds < most:
                outcome = self.lp.solve(seconds=self.watch.seconds_left())
                rounds += 1
                if outcome.status is LPStatus.TIME_LIMIT:
                    status = Status.TIME_LIMIT
                    break
                if outcome.status is not LPStatus.OPTIMAL:
                    # Infeasible in this box, a component without a cut, or hopeless numbers.
                    if not self.widen():
                        status = STATUS[outcome.status]
                        break
                    self.separate(x, -np.inf)
                    continue
                x, objective = outcome.x, outcome.objective
                held = self.box_holds()
                self.look_at_slacks()
                if self.stabilised:
                    self.room = max(self.room, min(int(_GROW * rounds), _MOST) * self.n)
                    self.prune(self.room, self.room // 2)
                before = len(self.owner)
                violations = self.separate(x, question.accuracy)
                violation = max(violations)
                if not held:
                    self.least = max(self.least, objective)
                self.consider(x, violations)
                self.watch.report(
                    iteration=rounds,
                    objective=objective + question.shift,
                    violation=violation,
                    rows=self.lp.n_rows,
                )
                if violation <= question.accuracy or len(self.owner) == before:
                    if held and self.widen():
                        if self.stabilised:
                            kept._centre = x[: self.n].copy()
                            self.merit = self.raised(objective, violations)
                            self.lp.set_bounds(*self.box())
                        continue
                    # Without a new cut, or in a box as wide as numbers allow, nothing gets better.
                    status = Status.PRECISION_LIMIT
                    if self.good_enough(violation, held):
                        status = Status.CONVERGED
                    break
                if self.watch.out_of_time():
                    status = Status.TIME_LIMIT
                    break
                if self.stabilised:
                    self.move(x, objective, violations, held)
                    self.separate_between(x)
                    if self.best_merit - self.least <= question.tolerance:
                        status = Status.CONVERGED
                        break
                    self.lp.set_bounds(*self.box())
        except KeyboardInterrupt:
            status = Status.INTERRUPTED
        if violation > question.accuracy and np.isfinite(self.best_merit):
            # The last vertex may be far out; the best point so far is not.
            x, objective = self.best_raised(), self.best_merit
            violation = max(part.violation(x) for part in self.parts)
        self.finish(x)
        return Answer(status, x[: self.n + 1], objective, violation, rounds, self.lp.n_rows)

    def separate(self, x: Floats, threshold: float) -> list[float]:
        """Add the cuts violated by more than the threshold; the violation of every constraint."""
        violations: list[float] = []
        for number, part in enumerate(self.parts):
            violations.append(part.violation(x))
            if violations[-1] > threshold:
                self.add(number, part.traced(part.violated(x, threshold)))
        return violations

    def widen(self) -> bool:
        kept = self.kept
        if kept._radius > _WIDEST * self.question.scale:
            return False
        kept._radius *= _WIDEN
        self.lp.set_bounds(*self.box())
        return True

    def good_enough(self, violation: float, held: bool) -> bool:
        """Whether the answer is known to be within the tolerance of the optimum."""
        question = self.question
        if held:
            return False
        if violation <= question.accuracy or not np.isfinite(self.best_merit):
            return violation <= question.tolerance
        return self.best_merit - self.least <= question.tolerance

    # -- the best point --------------------------------------------------------------------------

    def consider(self, x: Floats, violations: list[float]) -> None:
        """Keep these weights if they are the best that raising the scalar makes feasible."""
        question = self.question
        if not self.stabilised or question.raisable is None:
            return
        missing = 0.0
        for raised, violation in zip(question.raisable, violations, strict=True):
            if raised:
                missing = max(missing, violation)
            elif violation > question.accuracy:
                return
        merit = self.value(x) + question.charges[0] * missing
        if merit < self.best_merit:
            self.best, self.best_merit = x[: self.n].copy(), merit

    def best_raised(self) -> Floats:
        x = np.zeros(self.question.n_columns)
        x[: self.n] = self.best
        x[self.n] = (self.best_merit - self.value(x)) / self.question.cost[self.n]
        return x

    # -- the trust region ------------------------------------------------------------------------

    def value(self, x: Floats) -> float:
        return float(self.question.cost @ x[: self.n + 1])

    def raised(self, objective: float, violations: list[float]) -> float:
        """The objective at a point, and what it would cost to make it feasible."""
        charged = zip(self.question.charges, violations, strict=True)
        return objective + max(charge * max(violation, 0.0) for charge, violation in charged)

    def separate_between(self, x: Floats) -> None:
        """Cut at a point between the centre and x as well (Ben-Ameur & Neto 2007): near the centre
        the cuts are deep where x is far out. Those that x violates are kept."""
        kept = self.kept
        assert kept._centre is not None
        between = x.copy()
        between[: self.n] = kept._centre + _BETWEEN * (x[: self.n] - kept._centre)
        violations = []
        for number, part in enumerate(self.parts):
            violations.append(part.violation(between))
            pattern = part.traced(part.violated(between, -np.inf))
            self.add(number, pattern.take(part.rows(pattern).slack(x) < -self.question.accuracy))
        self.consider(between, violations)
        merit = self.raised(self.value(between), violations)
        if merit < self.merit:
            self.merit = merit
            kept._centre = between[: self.n].copy()

    def move(self, x: Floats, objective: float, violations: list[float], held: bool) -> None:
        """Make x the centre if it is good enough; a model that promised too much gets less room."""
        kept = self.kept
        merit = self.raised(objective, violations)
        promised, kept_promise = self.merit - objective, self.merit - merit
        if kept_promise >= 0.1 * promised:
            if kept_promise > 0.5 * promised and held:
                kept._radius *= 2.0
            kept._centre = x[: self.n].copy()
            self.merit = merit
        elif kept_promise < -0.5 * promised:
            kept._radius *= 0.5

    def finish(self, x: Floats) -> None:
        """Leave the cuts, constraint by constraint, and the basis in the same order."""
        kept = self.kept
        self.prune(self.room // 2 + 2 * self.n + 24, self.room // 2 + self.n + 16)
        basis = self.lp.basis()
        if basis is not None and len(self.parts) > 1:
            order = np.argsort(self.owner, kind="stable") + self.n_joining
            rows = np.concatenate([basis.rows[: self.n_joining], basis.rows[order]])
            basis = SimplexBasis(basis.columns, rows)
        kept._basis = basis
        kept._patterns = self.patterns
        if self.stabilised:
            kept._centre = x[: self.n].copy()
            if kept._radius > _WIDEST * self.question.scale:
                kept._radius = 0.0  # start again
        else:
            # A box that one model needed is no place to start the next from.
            largest = float(np.abs(x[: self.n]).max(initial=0.0))
            kept._radius = max(_BOX * self.question.scale, 4.0 * largest)
