"""Constraint generation: solve with the rows so far, find violated ones by elimination, repeat.

One pass of the network gives, for every component and every value of its context, the (state,
action) that violates the constraint most. All violated ones become rows of a warm HiGHS model
(Schuurmans & Patrascu 2002). The remaining violation is certified by elimination, not by the
solver. The objective of the relaxed program is a lower bound on the optimum unless the box binds.

Without enough rows the program is unbounded, so the weights start in a box. If a bound of the box
still has a reduced cost at the end, the box is widened and the search goes on, so the solution does
not depend on it. With many weights the box is a trust region around the best point so far (Marsten,
Hogan & Blankenship 1975), because cuts at the corners of a large box are poor, and every round also
cuts at a second point nearer to that centre. The best of these points, its scalar raised until
every constraint holds, bounds the optimum from above; the program, once no box binds, from below.
When the two are within the tolerance, or a limit is reached, the best point is the solution: the
last vertex may be far out.

A round costs time in proportion to its rows, so cuts that have not been tight for long are dropped.
The number that may stay grows from round to round, and a hard plan leaves more of them to the next.
With as many actions as weights a round finds two cuts per action: under optimism, where the program
is flat, four cuts per weight were forgotten in two rounds, and plans of forty machines took
thousands.

Rows are stored as positions in the network. For new tables their numbers are computed again and the
last basis is the start: planning again rarely needs more than a few rounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmdp._base.interrupts import held as signals_held
from fmdp.planning.alp.constraints import (
    BellmanConstraints,
    RowPattern,
    no_rows,
    restored_basis,
    restored_pattern,
)
from fmdp.planning.alp.highs import INFINITY, HighsModel, SimplexBasis, stack
from fmdp.planning.alp.program import Floats, LinearProgram, Monitor, ProgramSolution
from fmdp.planning.policies.archive import array_in
from fmdp.planning.status import Status

DEFAULT_ROUNDS = 10_000
"""Rounds without a limit of the user: a guard against endless searches."""
STABILISED = 16
"""Weights above which the box is a trust region: with fewer, vertices are good enough."""
_PRICE = 1e-8
"""Reduced cost above which a bound of the box counts as binding; smaller ones are rounding."""
_LOOSE = 1e-9
"""Slack above which a cut counts as idle; the solver's feasibility tolerance."""
_BOX = 10.0
"""First radius of the box in typical weights: smaller needs widening, larger gives poor cuts."""
_TRUST = 0.025
"""First radius of the trust region in typical weights: smaller moves slowly, larger cuts poorly."""
_BETWEEN = 0.3
"""Position of the second cut between the centre (0) and the vertex (1)."""
_WIDEN = 10.0
"""Factor by which a binding box grows: larger saves rounds and gives poorer cuts."""
_WIDEST = 1e9
"""Radius in typical weights beyond which rounding makes a wider box useless."""
_FIRST_CUTS = 4
"""Cuts per weight that are kept in the first rounds: fewer are faster to solve with."""
_CUT_GROWTH = 0.5
"""Cuts per weight by which that number grows per round: at 0 flat programs forget cuts for ever."""
_MOST_CUTS = 60
"""Cuts per weight that are kept at most, which bounds the cost of a round."""


class CuttingPlanes:
    """Constraint generation by simplex; keeps rows, basis and box from one solve to the next."""

    def __init__(self) -> None:
        self._solver = HighsModel()
        self._patterns: list[RowPattern] = []
        self._basis: SimplexBasis | None = None
        self._centre: Floats | None = None
        self._radius = 0.0

    def solve(self, program: LinearProgram, monitor: Monitor) -> ProgramSolution:
        return _SimplexSearch(self, program, monitor).run()

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
        self,
        arrays: dict[str, NDArray[Any]],
        families: Sequence[BellmanConstraints],
        n_weights: int,
    ) -> None:
        """Restore what `state` returned for these constraints.

        Raise InvalidParameter if it does not fit: it may come from a file, and the compiled code
        that makes rows of it checks no bounds.
        """
        self._radius, self._centre, self._basis, self._patterns = 0.0, None, None, []
        if "radius" in arrays:
            self._radius = float(array_in(arrays, "radius", "f", (1,), 0.0)[0])
        if "centre" in arrays:
            self._centre = array_in(arrays, "centre", "f", (n_weights,))
        if "head0" in arrays:
            self._patterns = [
                restored_pattern(arrays, number, family) for number, family in enumerate(families)
            ]
        n_rows = sum(map(len, self._patterns))
        if "columns" in arrays:
            self._basis = restored_basis(arrays, families, n_weights, n_rows)


class _SimplexSearch:
    """One solve. Rows of the solver: the joining rows, then the cuts in the order of discovery."""

    def __init__(self, kept: CuttingPlanes, program: LinearProgram, monitor: Monitor) -> None:
        self.kept = kept
        self.program = program
        self.monitor = monitor
        self.solver = kept._solver
        self.n = program.n_weights
        self.families = program.constraints
        self.stabilised = self.n > STABILISED
        self.patterns = list(kept._patterns) or [no_rows() for _ in self.families]
        self.owner: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        """The constraint family of each cut."""
        self.lower: Floats = np.zeros(0)
        """The lower bound of each cut."""
        self.idle: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        """Number of solutions since each cut was last tight."""
        self.n_joining = 0
        self.most_cuts = _FIRST_CUTS * self.n
        """Number of cuts that may be kept."""
        if self.stabilised:
            # The cuts that the last solve left were worth keeping.
            self.most_cuts = max(self.most_cuts, sum(map(len, self.patterns)) * 5 // 4)
        self.seen: set[tuple[int, bytes]] = set()
        self.rounds = 0
        self.x = np.zeros(program.n_columns)
        """The last vertex, its objective and its largest violation."""
        self.objective = np.inf
        self.violation = np.inf
        self.merit = np.inf
        """The objective at the centre of the trust region, its scalar raised until feasible."""
        self.lower_bound = -np.inf
        """A lower bound on the optimum: the objective of a relaxation in which no box binds."""
        self.best = np.zeros(self.n)
        """The best weights so far that a larger scalar makes feasible, and the objective there.
        Used with many weights only; otherwise the last vertex is the solution."""
        self.best_merit = np.inf

    # -- the relaxed program ---------------------------------------------------------------------

    def load(self) -> None:
        program = self.program
        lower = np.full(program.n_columns, -INFINITY)
        upper = np.full(program.n_columns, INFINITY)
        lower[: self.n], upper[: self.n] = self.box()
        joining = program.joining_rows
        self.n_joining = len(joining)
        cuts = [
            family.rows(pattern)
            for family, pattern in zip(self.families, self.patterns, strict=True)
        ]
        self.owner = np.repeat(np.arange(len(self.families)), list(map(len, self.patterns)))
        self.lower = np.concatenate([rows.lower for rows in cuts])
        self.idle = np.zeros(len(self.lower), dtype=np.int64)
        self.solver.load(program.column_costs, lower, upper, stack([*joining, *cuts]))
        if self.kept._basis is not None:
            self.solver.set_basis(self.kept._basis)

    def box(self) -> tuple[Floats, Floats]:
        radius, centre = self.kept._radius, self.kept._centre
        if centre is None or not self.stabilised:
            centre = np.zeros(self.n)
        reach = np.where(self.program.fixed, 0.0, radius)
        cap = INFINITY if self.program.cap is None else self.program.cap
        return np.clip(centre - reach, -cap, cap), np.clip(centre + reach, -cap, cap)

    def box_binds(self) -> bool:
        """Return whether a bound of the box, not of the program itself, binds at the vertex."""
        prices = self.solver.column_prices()[: self.n]
        costly = np.abs(prices) > _PRICE
        if self.program.cap is not None:
            lower, upper = self.box()
            costly &= np.where(prices > 0.0, -lower, upper) < self.program.cap
        return bool(costly[~self.program.fixed].any())

    def add(self, number: int, pattern: RowPattern) -> None:
        """Append the cuts of one constraint family that are new."""
        fresh = np.ones(len(pattern), dtype=np.bool_)
        for r in range(len(pattern)):
            key = (number, pattern.at[pattern.start[r] : pattern.start[r + 1]].tobytes())
            fresh[r] = key not in self.seen
            self.seen.add(key)
        if not fresh.all():
            pattern = pattern.take(fresh)
        if len(pattern):
            rows = self.families[number].rows(pattern)
            with signals_held():  # `finish` needs arrays of equal length, after Ctrl-C too
                self.solver.add_rows(rows)
                self.lower = np.append(self.lower, rows.lower)
                self.idle = np.append(self.idle, np.zeros(len(rows), dtype=np.int64))
                self.patterns[number] = self.patterns[number].followed_by(pattern)
                self.owner = np.append(self.owner, np.full(len(pattern), number))

    def count_idle(self) -> None:
        slack = self.solver.row_values()[self.n_joining :] - self.lower
        self.idle = np.where(slack > _LOOSE, self.idle + 1, 0)

    def prune(self, most: int, to: int) -> None:
        """Above `most` cuts, delete those idle for longest until `to` are left."""
        if len(self.owner) <= most:
            return
        longest = np.argsort(-self.idle, kind="stable")[: len(self.owner) - to]
        dropped = np.zeros(len(self.owner), dtype=np.bool_)
        dropped[longest[self.idle[longest] > 0]] = True
        with signals_held():  # as in `add`
            self.solver.delete_rows(np.flatnonzero(dropped) + self.n_joining)
            for number in range(len(self.families)):
                mine = self.owner == number
                self.patterns[number] = self.patterns[number].take(~dropped[mine])
            self.owner, self.lower = self.owner[~dropped], self.lower[~dropped]
            self.idle = self.idle[~dropped]
            self.seen.clear()

    # -- the loop --------------------------------------------------------------------------------

    def run(self) -> ProgramSolution:
        self.place_box()
        self.load()
        status = Status.ITERATION_LIMIT
        most = self.monitor.iterations or self.program.rounds or DEFAULT_ROUNDS
        try:
            if self.stabilised or not len(self.owner):
                violations = self.separate(self.x, -np.inf)
                self.merit = self.raised(self.value(self.x), violations)
                self.consider(self.x, violations)
            while self.rounds < most:
                ended = self.round()
                if ended is not None:
                    status = ended
                    break
        except KeyboardInterrupt:
            status = Status.INTERRUPTED
        if self.violation > self.program.accuracy and np.isfinite(self.best_merit):
            # The last vertex may be far out; the best point so far is not.
            self.x, self.objective = self.best_raised(), self.best_merit
            self.violation = max(family.violation(self.x) for family in self.families)
        self.finish()
        return ProgramSolution(
            status,
            self.x[: self.n + 1],
            self.objective,
            self.violation,
            self.rounds,
            self.solver.n_rows,
        )

    def place_box(self) -> None:
        """Set the first box, around the last solution or the program's start."""
        kept, start = self.kept, self.program.start
        if kept._radius == 0.0:
            kept._radius = self.program.scale * (_TRUST if self.stabilised else _BOX)
        if self.stabilised and kept._centre is None:
            kept._centre = np.zeros(self.n)
        if start is not None:
            if self.stabilised:
                kept._centre = start.copy()
            else:
                kept._radius = max(kept._radius, 4.0 * float(np.abs(start).max(initial=0)))
        if kept._centre is not None:
            self.x[: self.n] = kept._centre

    def round(self) -> Status | None:
        """Solve, cut and move the box once; return how the search has ended, or None."""
        program = self.program
        outcome = self.solver.solve(seconds=self.monitor.deadline.remaining())
        self.rounds += 1
        if outcome.status is Status.TIME_LIMIT:
            return Status.TIME_LIMIT
        if outcome.status is not Status.CONVERGED:
            # Infeasible in this box, a component without a cut, or numerical trouble.
            if not self.widen():
                return outcome.status
            self.separate(self.x, -np.inf)
            return None
        self.x, self.objective = outcome.x, outcome.objective
        binds = self.box_binds()
        self.count_idle()
        if self.stabilised:
            per_weight = min(int(_CUT_GROWTH * self.rounds), _MOST_CUTS)
            self.most_cuts = max(self.most_cuts, per_weight * self.n)
            self.prune(self.most_cuts, self.most_cuts // 2)
        before = len(self.owner)
        violations = self.separate(self.x, program.accuracy)
        self.violation = max(violations)
        if not binds:
            self.lower_bound = max(self.lower_bound, self.objective)
        self.consider(self.x, violations)
        self.monitor.report(
            iteration=self.rounds,
            objective=self.objective + program.shift,
            violation=self.violation,
            rows=self.solver.n_rows,
        )
        if self.violation <= program.accuracy or len(self.owner) == before:
            return self.conclude(violations, binds)
        if self.monitor.deadline.expired():
            return Status.TIME_LIMIT
        if self.stabilised:
            self.move(violations, binds)
            self.separate_between()
            if self.best_merit - self.lower_bound <= program.tolerance:
                return Status.CONVERGED
            self.solver.set_bounds(*self.box())
        return None

    def conclude(self, violations: list[float], binds: bool) -> Status | None:
        """Return the status of a vertex that gives no new cuts, or None after widening the box."""
        if binds and self.widen():
            if self.stabilised:
                self.kept._centre = self.x[: self.n].copy()
                self.merit = self.raised(self.objective, violations)
                self.solver.set_bounds(*self.box())
            return None
        # Without a new cut, or in a box as wide as rounding allows, no progress is possible.
        return Status.CONVERGED if self.good_enough(binds) else Status.PRECISION_LIMIT

    def separate(self, x: Floats, threshold: float) -> list[float]:
        """Add the cuts violated by more than the threshold; return the violation of each family."""
        violations: list[float] = []
        for number, family in enumerate(self.families):
            violations.append(family.violation(x))
            if violations[-1] > threshold:
                self.add(number, family.traced(family.violated(x, threshold)))
        return violations

    def widen(self) -> bool:
        kept = self.kept
        if kept._radius > _WIDEST * self.program.scale:
            return False
        kept._radius *= _WIDEN
        self.solver.set_bounds(*self.box())
        return True

    def good_enough(self, binds: bool) -> bool:
        """Return whether the solution is known to be within the tolerance of the optimum."""
        program = self.program
        if binds:
            return False
        if self.violation <= program.accuracy or not np.isfinite(self.best_merit):
            return self.violation <= program.tolerance
        return self.best_merit - self.lower_bound <= program.tolerance

    # -- the best point --------------------------------------------------------------------------

    def consider(self, x: Floats, violations: list[float]) -> None:
        """Keep these weights if they are the best that a larger scalar makes feasible."""
        program = self.program
        if not self.stabilised or program.raisable is None:
            return
        missing = 0.0
        for raisable, violation in zip(program.raisable, violations, strict=True):
            if raisable:
                missing = max(missing, violation)
            elif violation > program.accuracy:
                return
        merit = self.value(x) + program.charges[0] * missing
        if merit < self.best_merit:
            self.best, self.best_merit = x[: self.n].copy(), merit

    def best_raised(self) -> Floats:
        x = np.zeros(self.program.n_columns)
        x[: self.n] = self.best
        x[self.n] = (self.best_merit - self.value(x)) / self.program.cost[self.n]
        return x

    # -- the trust region ------------------------------------------------------------------------

    def value(self, x: Floats) -> float:
        return float(self.program.cost @ x[: self.n + 1])

    def raised(self, objective: float, violations: list[float]) -> float:
        """Return the objective at a point plus the cost of making it feasible."""
        charged = zip(self.program.charges, violations, strict=True)
        return objective + max(charge * max(violation, 0.0) for charge, violation in charged)

    def separate_between(self) -> None:
        """Cut also at a point between the centre and the vertex (Ben-Ameur & Neto 2007), where cuts
        are deeper than far out. Those that the vertex violates are kept."""
        kept, x = self.kept, self.x
        assert kept._centre is not None
        between = x.copy()
        between[: self.n] = kept._centre + _BETWEEN * (x[: self.n] - kept._centre)
        violations = []
        for number, family in enumerate(self.families):
            violations.append(family.violation(between))
            pattern = family.traced(family.violated(between, -np.inf))
            deep = family.rows(pattern).slack(x) < -self.program.accuracy
            self.add(number, pattern.take(deep))
        self.consider(between, violations)
        merit = self.raised(self.value(between), violations)
        if merit < self.merit:
            self.merit = merit
            kept._centre = between[: self.n].copy()

    def move(self, violations: list[float], binds: bool) -> None:
        """Move the centre to the vertex if it is good enough; shrink the trust region if the
        relaxed program promised too much."""
        kept = self.kept
        merit = self.raised(self.objective, violations)
        promised, gained = self.merit - self.objective, self.merit - merit
        if gained >= 0.1 * promised:
            if gained > 0.5 * promised and binds:
                kept._radius *= 2.0
            kept._centre = self.x[: self.n].copy()
            self.merit = merit
        elif gained < -0.5 * promised:
            kept._radius *= 0.5

    def finish(self) -> None:
        """Keep the cuts, family by family, and the basis in the same order, for the next solve."""
        kept = self.kept
        half = self.most_cuts // 2
        self.prune(half + 2 * self.n + 24, half + self.n + 16)
        basis = self.solver.basis()
        if basis is not None and len(self.families) > 1:
            order = np.argsort(self.owner, kind="stable") + self.n_joining
            rows = np.concatenate([basis.rows[: self.n_joining], basis.rows[order]])
            basis = SimplexBasis(basis.columns, rows)
        kept._basis = basis
        kept._patterns = self.patterns
        if self.stabilised:
            kept._centre = self.x[: self.n].copy()
            if kept._radius > _WIDEST * self.program.scale:
                kept._radius = 0.0  # the next solve starts with a small one
        else:
            # A wide box that one model needed is a poor start for the next.
            largest = float(np.abs(self.x[: self.n]).max(initial=0.0))
            kept._radius = max(_BOX * self.program.scale, 4.0 * largest)
