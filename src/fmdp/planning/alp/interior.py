"""Constraint generation by interior points, for many weights and dense cuts.

If every action has its own tables, every weight is in every cut, and the optimum balances as many
cuts as there are weights. On such a dense program sparse simplex takes hundreds of pivots per
round, of a millisecond each. Here a round is about eight Newton steps (Mehrotra 1992),

    (A' D A + box) dw = ...,    D = y / s,    s the slacks of the cuts, y their prices,

of (rows) n^2 operations each, and ends at a thirtieth of the remaining gap: inside the face of good
points, where cuts are better than at its vertices (Gondzio, Gonzalez-Brevis & Munari 2013). The
trust region and the cut between centre and point are those of cuts.py, and so is the guarantee: the
best point, its scalar raised until elimination finds all constraints satisfied, bounds the optimum
from above, and c x >= b y + (c - A' y) x for y >= 0 from below, once c - A' y has vanished.
"""

from __future__ import annotations

import numpy as np
from numpy.linalg import LinAlgError

from fmdp.planning.alp.constraints import Ints
from fmdp.planning.alp.program import Floats, LinearProgram, Monitor, ProgramSolution
from fmdp.planning.status import Status
from fmdp.planning.tabular.linear_systems import one_thread

ROWS_PER_WEIGHT = 4
"""Cuts per weight above which idle ones are dropped: a Newton step costs time in proportion."""
FEW_ROWS = 4096
"""The same number in all if rivals are added, which come many at a time."""
_MOST_ROWS_PER_WEIGHT = 32
"""Upper limit, per weight, on the cuts that `FEW_ROWS` allows: small programs need fewer."""
FEW_MAXIMA, ROWS_PER_CUT = 8, 128
"""With at most this many maxima, number of rows added per cut: more rows save rounds and make each
round slower."""
_KEPT = 0.6
"""Share of the allowed cuts that pruning leaves: more prunes more often, less forgets more."""
_BYTES_PER_PAIR = 8 * 16
"""Memory per pair of weights: the rows, the scaled rows, and the matrix."""
_ROUNDS = 1000
"""Rounds without a limit of the user: a guard against endless searches."""
_PATIENCE = 5
"""Rounds in a row without a cut, a better point or a wider box, after which rounding has won."""
_NEWTON_STEPS = 80
"""Newton steps per round: a guard; about eight are usual."""
_SHARE = 0.03
"""Precision of a round relative to the remaining gap: more precise rounds take more steps, and
their points lie nearer to vertices."""
_RADIUS, _RADIUS_NEAR = 0.1, 0.02
"""First radius of the trust region, as a share of the weights, without and with a good start: small
ones move slowly, large ones cut poorly."""
_REFUSED = 3
"""Rounds in a row without a better point after which the trust region may shrink."""
_BETWEEN = 0.3
"""Position of the second cut between the centre (0) and the point (1)."""
_TO_THE_BOUNDARY = 0.995
"""Share of the step to the boundary that is taken: more is faster and less robust."""
_REGULAR = 1e-13
"""Relative regularisation of the diagonal: less fails on singular matrices, more slows Newton."""
_LINE_STEPS = 18
"""Golden-section steps for the first centre: each costs one pass of the network."""
_GOLDEN = (5.0**0.5 - 1.0) / 2.0


def memory_needed(n_weights: int) -> int:
    """Return an estimate of the bytes of the dense program."""
    return _BYTES_PER_PAIR * (n_weights + 1) ** 2


def fits(program: LinearProgram) -> bool:
    """Return whether the program has a single family, raisable and without auxiliary columns, and
    no cap on the weights."""
    alone = program.raisable == (True,) and program.n_columns == program.n_weights + 1
    return alone and program.cap is None


class InteriorCuttingPlanes:
    """Solver of programs that `fits` accepts; keeps nothing from one solve to the next."""

    def solve(self, program: LinearProgram, monitor: Monitor) -> ProgramSolution:
        """Solve; if rounding stops it, the status is PRECISION_LIMIT and the point the best so
        far."""
        # With one thread the order of summation does not depend on the number of cores.
        with one_thread():
            return _InteriorSearch(program, monitor).run()


class _InteriorSearch:
    """One solve over the free weights and the scalar, which comes last."""

    def __init__(self, program: LinearProgram, monitor: Monitor) -> None:
        self.program = program
        self.monitor = monitor
        self.family = program.constraints[0]
        self.free = np.flatnonzero(~np.append(program.fixed, False))
        self.n = len(self.free) - 1
        self.cost: Floats = program.cost[self.free]
        self.charge = program.charges[0]
        self.lift = float(self.cost[-1]) / self.charge
        """Coefficient of the scalar in the right-hand side."""
        self.a: Floats = np.zeros((0, self.n + 1))
        self.b: Floats = np.zeros(0)
        """The cuts a x >= b."""
        self.price: Floats = np.zeros(0)
        """The dual value of each cut."""
        self.idle: Ints = np.zeros(0, dtype=np.int64)
        """Number of rounds in which the dual value of each cut has been negligible."""
        self.centre: Floats = np.zeros(self.n)
        """The best weights so far."""
        self.merit = np.inf
        """The objective at the centre, its scalar raised until feasible."""
        self.least = -np.inf
        """A lower bound on the optimum."""
        self.radius = 0.0
        self.rivals = 0
        """With few maxima, number of additional rows for each, which save rounds."""
        self.refused = 0
        """Rounds in a row whose points were no better than the centre."""
        self.gap = np.inf
        """Improvement over the centre that the relaxation of the last round promised."""

    def run(self) -> ProgramSolution:
        program, monitor = self.program, self.monitor
        status = Status.ITERATION_LIMIT
        rounds = stalled = 0
        try:
            self.begin()
            while rounds < (monitor.iterations or _ROUNDS):
                if monitor.deadline.expired():
                    status = Status.TIME_LIMIT
                    break
                rounds += 1
                stalled = 0 if self.round() else stalled + 1
                monitor.report(
                    iteration=rounds,
                    objective=self.merit + program.shift,
                    violation=max(self.merit - self.least, 0.0) / self.charge,
                    rows=len(self.b),
                )
                if self.merit - self.least <= self.distance_allowed():
                    status = Status.CONVERGED
                    break
                if stalled == _PATIENCE:
                    status = Status.PRECISION_LIMIT
                    break
        except LinAlgError:
            status = Status.PRECISION_LIMIT
        except KeyboardInterrupt:
            status = Status.INTERRUPTED
        x = self.full(self.centre, 0.0)
        x[-1] = self.family.violation(x) / self.lift
        objective = float(program.cost @ x)
        return ProgramSolution(status, x, objective, self.family.violation(x), rounds, len(self.b))

    def distance_allowed(self) -> float:
        """Return the distance from the optimum at which to stop."""
        program = self.program
        return max(program.tolerance, program.relative * abs(self.merit + program.shift))

    def begin(self) -> None:
        """Choose the first centre and radius, and cut there.

        If the variables resemble each other, the best weights are nearly equal. A golden-section
        search finds the best equal weights cheaply.
        """
        program = self.program
        equal = np.ones(self.n)
        low, high = -program.scale, program.scale
        points = [high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)]
        merits = [self.value(point * equal) for point in points]
        for _ in range(_LINE_STEPS):
            if self.monitor.deadline.expired():
                break
            if merits[0] < merits[1]:
                high = points[1]
                points = [high - _GOLDEN * (high - low), points[0]]
                merits = [self.value(points[0] * equal), merits[0]]
            else:
                low = points[0]
                points = [points[1], low + _GOLDEN * (high - low)]
                merits = [merits[1], self.value(points[1] * equal)]
            self.monitor.report(
                iteration=0, objective=min(merits) + program.shift, violation=0.0, rows=0
            )
        factor = points[0] if merits[0] < merits[1] else points[1]
        self.centre = factor * equal
        radius = _RADIUS
        if program.start is not None:
            start = program.start[self.free[:-1]]
            if self.value(start) < self.value(self.centre):
                self.centre, radius = start, _RADIUS_NEAR
        self.radius = radius * max(float(np.abs(self.centre).max(initial=0.0)), program.scale / 10)
        self.merit = self.value(self.centre)
        self.gap = 0.05 * abs(self.merit) + program.tolerance
        maxima = self.family.violated(self.full(self.centre, 0.0), -np.inf)
        if len(maxima) <= FEW_MAXIMA:
            self.rivals = ROWS_PER_CUT // max(len(maxima), 1) - 1
        self.add(maxima)
        self.price[:] = self.charge / len(self.b)

    def round(self) -> bool:
        """Solve in the trust region, cut and move; return whether there was any progress."""
        program, before = self.program, (len(self.b), self.merit, self.radius)
        x, slack = self.solved(max(_SHARE * self.gap, 0.3 * program.tolerance))
        objective = float(self.cost @ x)
        rest = self.cost - self.a.T @ self.price
        reach = np.abs(x[:-1]) + program.scale  # assumed bound on the weights of a solution
        bound = float(self.b @ self.price + rest[-1] * x[-1] - np.abs(rest[:-1]) @ reach)
        self.least = max(self.least, bound)
        worthless = slack * self.price * len(slack) < 1e-3 * max(self.gap, program.tolerance)
        self.idle = np.where(worthless, self.idle + 1, 0)
        self.prune()
        kept_rows = len(self.b)
        merit = self.cut_at(x)
        promised, gained = self.merit - objective, self.merit - merit
        if gained > 0.0 and gained >= 0.1 * promised:
            far = float(np.abs(x[:-1] - self.centre).max(initial=0.0))
            if gained > 0.5 * promised and far > 0.9 * self.radius:
                self.radius *= 2.0
            self.centre, self.merit, self.refused = x[:-1].copy(), merit, 0
        else:
            between = self.centre + _BETWEEN * (x[:-1] - self.centre)
            halfway = self.cut_at(np.append(between, x[-1]), beyond=x)
            if halfway < self.merit:
                self.centre, self.merit = between, halfway
                self.refused = 0
            else:
                self.refused += 1
                if self.refused >= _REFUSED and gained < -promised:
                    self.radius *= 0.5
                    self.refused = 0
        if self.merit - objective <= 0.5 * program.tolerance:
            self.radius *= 10.0  # no better point in the box: only the box keeps the gap open
        self.gap = max(self.merit - objective, 0.0)
        return len(self.b) > kept_rows or self.merit < before[1] or self.radius > before[2]

    # -- cuts ------------------------------------------------------------------------------------

    def full(self, weights: Floats, scalar: float) -> Floats:
        x = np.zeros(self.program.n_weights + 1)
        x[self.free[:-1]] = weights
        x[-1] = scalar
        return x

    def value(self, weights: Floats) -> float:
        """Return the objective of these weights with the least feasible scalar."""
        violation = self.family.violation(self.full(weights, 0.0))
        return float(self.cost[:-1] @ weights) + self.charge * violation

    def cut_at(self, point: Floats, beyond: Floats | None = None) -> float:
        """Add the cuts violated here, with `beyond` only those violated there too; return the
        objective with the least feasible scalar."""
        x = self.full(point[:-1], float(point[-1]))
        violation = self.family.violation(x)
        threshold = 0.1 * self.program.accuracy if beyond is None else -np.inf
        self.add(self.family.violated(x, threshold), beyond)
        return float(self.cost @ point) + self.charge * violation

    def add(self, heads: Ints, beyond: Floats | None = None) -> None:
        rows = self.family.rows(self.family.traced(heads, self.rivals))
        ends = np.append(rows.start, len(rows.index))
        a = np.zeros((len(rows), self.program.n_weights + 1))
        a[np.repeat(np.arange(len(rows)), np.diff(ends)), rows.index] = rows.value
        a, b = a[:, self.free], rows.lower
        if beyond is not None:
            deep = b - a @ beyond > self.program.accuracy
            a, b = a[deep], b[deep]
        self.a, self.b = np.concatenate([self.a, a]), np.concatenate([self.b, b])
        self.price = np.concatenate([self.price, np.zeros(len(b))])
        self.idle = np.concatenate([self.idle, np.zeros(len(b), dtype=np.int64)])

    def prune(self) -> None:
        """Drop the cuts that have been idle for longest, if there are too many."""
        most = ROWS_PER_WEIGHT * (self.n + 1)
        if self.rivals:
            most = max(most, min(FEW_ROWS, _MOST_ROWS_PER_WEIGHT * (self.n + 1)))
        if len(self.b) > most:
            kept = np.sort(np.lexsort((-self.price, self.idle))[: int(_KEPT * most)])
            self.a, self.b, self.price = self.a[kept], self.b[kept], self.price[kept]
            self.idle = self.idle[kept]

    # -- the relaxed program ---------------------------------------------------------------------

    def solved(self, precision: float) -> tuple[Floats, Floats]:
        """Return a point of the trust region whose objective is within `precision` of the best
        there, and the slacks of its cuts; keeps their dual values.

        It starts at the centre, well inside: the scalar is larger than the cuts require.
        """
        a, b, c, n = self.a, self.b, self.cost, self.n
        x = np.append(self.centre, 0.0)
        x[n] = float(((b - a @ x) / self.lift).max()) + max(0.1 * self.gap, precision) / c[n]
        s, t = a @ x - b, np.full(2 * n, self.radius)  # of the cuts; of the box, below and above
        mu = self.gap / (len(b) + 2 * n)
        y, z = np.maximum(0.9 * self.price, mu / s), mu / t
        for _ in range(_NEWTON_STEPS):
            rest = c - a.T @ y
            rest[:n] -= z[:n] - z[n:]
            missing = b + s - a @ x
            off = np.concatenate([self.centre - x[:n], x[:n] - self.centre]) - self.radius + t
            complement = float(s @ y + t @ z)
            error = np.abs(rest) @ np.maximum(np.abs(x), 1.0) + y @ np.abs(missing)
            if complement + error < precision or self.monitor.deadline.expired():
                break
            mu = complement / (len(b) + 2 * n)
            newton = _Newton(a, (s, y), (t, z), rest, missing, off)
            _, ds, dt, dy, dz = newton.step(-s * y, -t * z)
            forward, back = _length((s, ds), (t, dt)), _length((y, dy), (z, dz))
            reached = float(
                (s + forward * ds) @ (y + back * dy) + (t + forward * dt) @ (z + back * dz)
            )
            aim = mu * (reached / complement) ** 3
            dx, ds, dt, dy, dz = newton.step(aim - s * y - ds * dy, aim - t * z - dt * dz)
            forward = min(1.0, _TO_THE_BOUNDARY * _length((s, ds), (t, dt)))
            back = min(1.0, _TO_THE_BOUNDARY * _length((y, dy), (z, dz)))
            x, s, t = x + forward * dx, s + forward * ds, t + forward * dt
            y, z = y + back * dy, z + back * dz
        self.price = y
        return x, s


class _Newton:
    """Newton's equations at one point, factored once for the predictor and the corrector.

    Rows a x - s = b have dual values y; the box has slacks t and dual values z. The dual residual
    is `rest` = c - a'y - z, the primal residuals are `missing` (rows) and `off` (box). With
    d = y / s the equations reduce to
    (a' d a + z / t) dx = a' ((of_cuts + y missing) / s) + (of_box + z off) / t - rest.
    """

    def __init__(
        self,
        a: Floats,
        cuts: tuple[Floats, Floats],
        box: tuple[Floats, Floats],
        rest: Floats,
        missing: Floats,
        off: Floats,
    ) -> None:
        # Imported here because most plans do not need SciPy.
        from scipy.linalg import cho_factor
        from scipy.linalg.blas import dsyrk

        self.a, self.cuts, self.box = a, cuts, box
        self.rest, self.missing, self.off = rest, missing, off
        (s, y), (t, z) = cuts, box
        n = a.shape[1] - 1
        self.d, both = y / s, z / t
        self.on_box = both[:n] + both[n:]
        matrix = dsyrk(1.0, (a * np.sqrt(self.d)[:, None]).T, lower=1)
        diagonal = np.arange(n + 1)
        matrix[diagonal[:n], diagonal[:n]] += self.on_box
        matrix[diagonal, diagonal] *= 1.0 + _REGULAR
        if not np.isfinite(matrix[diagonal, diagonal]).all():
            raise LinAlgError("the dual values of the cuts are lost to rounding")
        self.factor = cho_factor(matrix, lower=True, overwrite_a=True, check_finite=False)

    def step(
        self, of_cuts: Floats, of_box: Floats
    ) -> tuple[Floats, Floats, Floats, Floats, Floats]:
        """Return the changes of x, s, t, y, z that change s y by of_cuts and t z by of_box."""
        from scipy.linalg import cho_solve

        a, (s, y), (t, z) = self.a, self.cuts, self.box
        n = a.shape[1] - 1
        box = (of_box + z * self.off) / t
        side = a.T @ ((of_cuts + y * self.missing) / s) - self.rest
        side[:n] += box[:n] - box[n:]
        dx = cho_solve(self.factor, side, check_finite=False)
        moved = a @ dx
        again = side - a.T @ (self.d * moved)  # one step of iterative refinement
        again[:n] -= self.on_box * dx[:n]
        more = cho_solve(self.factor, again, check_finite=False)
        dx, moved = dx + more, moved + a @ more
        ds, dt = moved - self.missing, np.concatenate([dx[:n], -dx[:n]]) - self.off
        return dx, ds, dt, (of_cuts - y * ds) / s, (of_box - z * dt) / t


def _length(*pairs: tuple[Floats, Floats]) -> float:
    """Return the longest step, at most 1, that keeps every value nonnegative."""
    most = 1.0
    for value, change in pairs:
        falling = change < 0.0
        most = min(most, float((-value[falling] / change[falling]).min(initial=1.0)))
    return most
