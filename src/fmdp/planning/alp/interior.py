"""Constraint generation by interior points: many weights, dense cuts, no shared tables.

Every weight is in every cut. Where all actions have tables of their own the optimum balances as
many cuts as there are weights, a dense program, on which sparse simplex takes hundreds of pivots a
round, of a millisecond each. Here a round is about eight Newton steps (Mehrotra 1992),

    (A' D A + box) dw = ...,    D = y / s,    s the slacks of the cuts, y their prices,

of (rows) n^2 operations each, and ends at a thirtieth of the gap that is left: inside the face of
good points, a better place to cut than its vertices (Gondzio, Gonzalez-Brevis & Munari 2013). The
trust region and the cut between centre and point are those of cuts.py, and so is the guarantee:
the best point, raised until elimination finds all constraints satisfied, bounds the optimum from
above, and c x >= b y + (c - A' y) x for y >= 0 from below, once c - A' y has vanished.
"""

from __future__ import annotations

import numpy as np
from numpy.linalg import LinAlgError

from fmdp.planning.alp.constraints import Ints
from fmdp.planning.alp.question import Answer, Floats, Part, Question, Watch
from fmdp.planning.status import Status
from fmdp.planning.tabular.linear_systems import one_thread

ROWS_A_WEIGHT = 4
"""Cuts above which those that have long been slack are dropped, for each weight,"""
FEW_ROWS = 4096
"""or where there are rivals as many as these, if that is more,"""
_MOST_ROWS_A_WEIGHT = 32
"""and at most so many for each."""
FEW_MAXIMA, ROWS_A_CUT = 8, 128
"""With so few maxima to cut at, how many rows are looked for where a point is cut off."""
_KEPT = 0.6
_BYTES_A_PAIR = 8 * 16
"""For each pair of weights: the rows, the rows scaled, and the matrix."""
_ROUNDS = 1000
_PATIENCE = 5
"""Rounds in a row that may bring neither a cut nor a better point nor a wider box."""
_NEWTON_STEPS = 80
_SHARE = 0.03
"""Of the gap that is left, how precisely a round is solved."""
_RADIUS, _RADIUS_NEAR = 0.1, 0.02
"""Of the first trust region, as a share of the weights; and where a good point is known."""
_REFUSED = 3
_BETWEEN = 0.3
_TO_THE_BOUNDARY = 0.995
_REGULAR = 1e-13
_LINE_STEPS = 18
_GOLDEN = (5.0**0.5 - 1.0) / 2.0


def memory_needed(n_weights: int) -> int:
    """Bytes of the dense program, about."""
    return _BYTES_A_PAIR * (n_weights + 1) ** 2


def fits(question: Question) -> bool:
    """One constraint, which the scalar makes good, no columns beside the weights and it, and no
    cap on the weights."""
    alone = question.raisable == (True,) and question.n_columns == question.n_weights + 1
    return alone and question.cap is None


class Interior:
    """Solves a question that `fits`; keeps nothing from one solve to the next."""

    def solve(self, question: Question, watch: Watch) -> Answer:
        """PRECISION_LIMIT where rounding stops it; the best point so far is then the answer."""
        # One thread: the same sums in the same order on any number of cores.
        with one_thread():
            return _Search(question, watch).run()


class _Search:
    """One solve, over the weights that are not fixed and the scalar, which comes last."""

    def __init__(self, question: Question, watch: Watch) -> None:
        self.question = question
        self.watch = watch
        self.part: Part = question.constraints[0]
        self.free = np.flatnonzero(~np.append(question.fixed, False))
        self.n = len(self.free) - 1
        self.cost: Floats = question.cost[self.free]
        self.charge = question.charges[0]
        self.lift = float(self.cost[-1]) / self.charge
        """What one more of the scalar adds to the right-hand side."""
        self.a: Floats = np.zeros((0, self.n + 1))
        self.b: Floats = np.zeros(0)
        """The cuts: a x >= b,"""
        self.price: Floats = np.zeros(0)
        """what each is worth,"""
        self.idle: Ints = np.zeros(0, dtype=np.int64)
        """and for how many rounds it has been worth nothing."""
        self.centre: Floats = np.zeros(self.n)
        """The best weights so far,"""
        self.merit = np.inf
        """the objective there, the scalar raised until feasible,"""
        self.least = -np.inf
        """and what the optimum is at least."""
        self.radius = 0.0
        self.rivals = 0
        """Where few maxima are told apart: how many rows more of each, which save rounds."""
        self.refused = 0
        """Rounds in a row whose points were no better than the centre."""
        self.gap = np.inf
        """By how much the last round promised to be better than the centre."""

    def run(self) -> Answer:
        question, watch = self.question, self.watch
        status = Status.ITERATION_LIMIT
        rounds = stalled = 0
        try:
            self.begin()
            while rounds < (watch.iterations or _ROUNDS):
                if watch.out_of_time():
                    status = Status.TIME_LIMIT
                    break
                rounds += 1
                stalled = 0 if self.round() else stalled + 1
                watch.report(
                    iteration=rounds,
                    objective=self.merit + question.shift,
                    violation=max(self.merit - self.least, 0.0) / self.charge,
                    rows=len(self.b),
                )
                if self.merit - self.least <= question.tolerance:
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
        x[-1] = self.part.violation(x) / self.lift
        objective = float(question.cost @ x)
        return Answer(status, x, objective, self.part.violation(x), rounds, len(self.b))

    def begin(self) -> None:
        """The first centre, its cuts, and a radius. Where the variables resemble each other the
        best weights are nearly equal: the best of equal ones is cheap to find, on a line."""
        question = self.question
        equal = np.ones(self.n)
        low, high = -question.scale, question.scale
        points = [high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)]
        found = [self.value(point * equal) for point in points]
        for _ in range(_LINE_STEPS):
            if self.watch.out_of_time():
                break
            # Golden section: one of the two points inside is used again.
            if found[0] < found[1]:
                high = points[1]
                points = [high - _GOLDEN * (high - low), points[0]]
                found = [self.value(points[0] * equal), found[0]]
            else:
                low = points[0]
                points = [points[1], low + _GOLDEN * (high - low)]
                found = [found[1], self.value(points[1] * equal)]
        factor = points[0] if found[0] < found[1] else points[1]
        self.centre = factor * equal
        radius = _RADIUS
        if question.start is not None:
            start = question.start[self.free[:-1]]
            if self.value(start) < self.value(self.centre):
                self.centre, radius = start, _RADIUS_NEAR
        self.radius = radius * max(float(np.abs(self.centre).max(initial=0.0)), question.scale / 10)
        self.merit = self.value(self.centre)
        self.gap = 0.05 * abs(self.merit) + question.tolerance
        maxima = self.part.violated(self.full(self.centre, 0.0), -np.inf)
        if len(maxima) <= FEW_MAXIMA:
            self.rivals = ROWS_A_CUT // max(len(maxima), 1) - 1
        self.add(maxima)
        self.price[:] = self.charge / len(self.b)

    def round(self) -> bool:
        """Solve in the trust region, cut there, move; whether anything came of it."""
        question, before = self.question, (len(self.b), self.merit, self.radius)
        x, slack = self.solved(max(_SHARE * self.gap, 0.3 * question.tolerance))
        objective = float(self.cost @ x)
        rest = self.cost - self.a.T @ self.price
        reach = np.abs(x[:-1]) + question.scale  # no weight of a solution is further out
        bound = float(self.b @ self.price + rest[-1] * x[-1] - np.abs(rest[:-1]) @ reach)
        self.least = max(self.least, bound)
        worthless = slack * self.price * len(slack) < 1e-3 * max(self.gap, question.tolerance)
        self.idle = np.where(worthless, self.idle + 1, 0)
        self.prune()
        kept_rows = len(self.b)
        merit = self.cut_at(x)
        promised, kept = self.merit - objective, self.merit - merit
        if kept > 0.0 and kept >= 0.1 * promised:
            far = float(np.abs(x[:-1] - self.centre).max(initial=0.0))
            if kept > 0.5 * promised and far > 0.9 * self.radius:
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
                if self.refused >= _REFUSED and kept < -promised:
                    self.radius *= 0.5
                    self.refused = 0
        if self.merit - objective <= 0.5 * question.tolerance:
            self.radius *= 10.0  # nothing is left in the box: the box alone holds the bound up
        self.gap = max(self.merit - objective, 0.0)
        return len(self.b) > kept_rows or self.merit < before[1] or self.radius > before[2]

    # -- cuts ------------------------------------------------------------------------------------

    def full(self, weights: Floats, scalar: float) -> Floats:
        x = np.zeros(self.question.n_weights + 1)
        x[self.free[:-1]] = weights
        x[-1] = scalar
        return x

    def value(self, weights: Floats) -> float:
        """The objective of these weights with the least scalar that makes them feasible."""
        violation = self.part.violation(self.full(weights, 0.0))
        return float(self.cost[:-1] @ weights) + self.charge * violation

    def cut_at(self, point: Floats, beyond: Floats | None = None) -> float:
        """Add what is violated here, or also violated `beyond`; the objective, made feasible."""
        x = self.full(point[:-1], float(point[-1]))
        violation = self.part.violation(x)
        threshold = 0.1 * self.question.accuracy if beyond is None else -np.inf
        self.add(self.part.violated(x, threshold), beyond)
        return float(self.cost @ point) + self.charge * violation

    def add(self, heads: Ints, beyond: Floats | None = None) -> None:
        rows = self.part.rows(self.part.traced(heads, self.rivals))
        ends = np.append(rows.start, len(rows.index))
        a = np.zeros((len(rows), self.question.n_weights + 1))
        a[np.repeat(np.arange(len(rows)), np.diff(ends)), rows.index] = rows.value
        a, b = a[:, self.free], rows.lower
        if beyond is not None:
            deep = b - a @ beyond > self.question.accuracy
            a, b = a[deep], b[deep]
        self.a, self.b = np.concatenate([self.a, a]), np.concatenate([self.b, b])
        self.price = np.concatenate([self.price, np.zeros(len(b))])
        self.idle = np.concatenate([self.idle, np.zeros(len(b), dtype=np.int64)])

    def prune(self) -> None:
        """Above the number of cuts that may stay, drop those worth nothing for longest."""
        most = ROWS_A_WEIGHT * (self.n + 1)
        if self.rivals:
            most = max(most, min(FEW_ROWS, _MOST_ROWS_A_WEIGHT * (self.n + 1)))
        if len(self.b) > most:
            kept = np.sort(np.lexsort((-self.price, self.idle))[: int(_KEPT * most)])
            self.a, self.b, self.price = self.a[kept], self.b[kept], self.price[kept]
            self.idle = self.idle[kept]

    # -- the program with the cuts at hand -------------------------------------------------------

    def solved(self, precision: float) -> tuple[Floats, Floats]:
        """A point of the trust region whose objective is within `precision` of the best there, and
        the slacks of its cuts; their prices are kept. Starts at the centre, well inside: the scalar
        is raised above what the cuts ask for there."""
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
            if complement + error < precision or self.watch.out_of_time():
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
    """Newton's equations at one point, factored once for both of its steps.

    Rows a x - s = b with prices y, the box with slacks t and prices z; `rest` = c - a'y - z is what
    the prices miss, `missing` and `off` what the slacks do. With d = y / s the equations come down
    to (a' d a + z / t) dx = a' ((of_cuts + y missing) / s) + (of_box + z off) / t - rest.
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
        # Imported here: most plans do without.
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
            raise LinAlgError("the prices of the cuts are lost to rounding")
        self.factor = cho_factor(matrix, lower=True, overwrite_a=True, check_finite=False)

    def step(
        self, of_cuts: Floats, of_box: Floats
    ) -> tuple[Floats, Floats, Floats, Floats, Floats]:
        """Changes of x, s, t, y, z after which s y has changed by of_cuts, and t z by of_box."""
        from scipy.linalg import cho_solve

        a, (s, y), (t, z) = self.a, self.cuts, self.box
        n = a.shape[1] - 1
        box = (of_box + z * self.off) / t
        side = a.T @ ((of_cuts + y * self.missing) / s) - self.rest
        side[:n] += box[:n] - box[n:]
        dx = cho_solve(self.factor, side, check_finite=False)
        moved = a @ dx
        again = side - a.T @ (self.d * moved)  # one refinement
        again[:n] -= self.on_box * dx[:n]
        more = cho_solve(self.factor, again, check_finite=False)
        dx, moved = dx + more, moved + a @ more
        ds, dt = moved - self.missing, np.concatenate([dx[:n], -dx[:n]]) - self.off
        return dx, ds, dt, (of_cuts - y * ds) / s, (of_box - z * dt) / t


def _length(*pairs: tuple[Floats, Floats]) -> float:
    """How much of a step, at most all, keeps every value above 0."""
    most = 1.0
    for value, change in pairs:
        falling = change < 0.0
        most = min(most, float((-value[falling] / change[falling]).min(initial=1.0)))
    return most
