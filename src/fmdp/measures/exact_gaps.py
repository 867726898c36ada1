"""Certified optimal bias and action gaps of a small model.

The gap of an action is d(s, a) = g + h(s) - R(s, a) - (P_a h)(s) >= 0, with h a solution of Lh = h
+ g. Whether it is zero decides which policies are optimal, and a gap far below the rounding errors
of doubles counts if it is paid for 10^12 steps. So both answers are proved here:

* A gap is positive if it is above its error bound. Values are computed with 300 digits by GTH
  elimination (or, for many states, by iterative refinement). The residuals are then computed
  exactly in integers, and with rho the largest of them, |h - h_pi| <= 2 rho T, T the largest
  expected time to the anchor of the policy's class (h = 0 there); T is itself certified by
  T - P T >= 1/2.
* A gap is zero if an integer that is a multiple of it is zero modulo so many primes that their
  product exceeds its largest possible size (Cramer's rule and Hadamard's bound).

Policy iteration on these gaps proves that the policy is optimal. If the limits of effort allow
neither proof, `Undecided` is raised.

Cost: groups^3 / 3 operations in long decimals for each policy, and for each prime.
"""

from __future__ import annotations

import decimal
import math
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal

import numpy as np
from numpy.typing import NDArray

from fmdp.measures.integer_model import IntegerModel, Row
from fmdp.measures.reachability import closed_classes
from fmdp.planning.tabular import linear_systems
from fmdp.planning.tabular.gth import expected_totals

Indices = NDArray[np.int64]
Mask = NDArray[np.bool_]
Policy = list[int]

DIGITS = 300
"""Digits of the decimals."""
DECIMAL_STATES = 128
"""Largest number of groups of alike states for which long decimals are used: seconds."""
_BITS = 1000
"""Binary places of the integers that represent the decimals."""
_REFINEMENTS = 40
"""Largest number of corrections; each adds about ten digits unless the chain is slow."""
_REFINED_BITS = 350
"""Corrections end with residuals below 2^-350, enough for chains that are not slow."""
_CERTAIN_FACTOR = 10**64
"""A gap, and the span of h, must exceed its error bound by this factor, so that 64 digits are
right."""
_ROUNDS = 200
"""Largest number of policies of policy iteration."""
_MODULAR_OPERATIONS = 1_000_000_000
"""Largest number of multiplications modulo primes of a proof of zero gaps: seconds."""
_PRIMES_AT_ONCE = 64  # vectorised; more would take more memory


class Undecided(Exception):
    """Raised if a gap or a gain remains undecided within the limits of effort."""


@dataclass(frozen=True)
class Optimum:
    """A solution of the optimality equation, in integers over `scale`."""

    bias: list[int]
    """h of each group; the least is 0. Right to 64 digits, relative to its span."""
    gaps: list[list[int]]
    """The gap of each row of each group: proved to be 0, or right to 64 digits."""
    scale: int


def solve(model: IntegerModel, start: Policy) -> Optimum | None:
    """Return the optimum of a model by policy iteration; None if the best gain depends on the
    state.

    `start` has a row for each group, preferably of a nearly optimal policy. Raises Undecided if the
    limits of effort do not suffice.
    """
    policy = list(start)
    with decimal.localcontext(prec=DIGITS):
        for _ in range(_ROUNDS):
            values = _PolicyValues(model, policy)
            if values.gains_differ:
                better = _routed_to_best(model, policy, values)
                if better is None:
                    return None
                policy = better
                continue
            gaps = values.gaps()
            best = [min(range(len(row)), key=row.__getitem__) for row in gaps]
            improved = [row[a] < -values.error for row, a in zip(gaps, best, strict=True)]
            if not any(improved):
                return _proved(model, policy, values, gaps)
            policy = [
                a if better else old for a, better, old in zip(best, improved, policy, strict=True)
            ]
    raise Undecided


class _PolicyValues:
    """Gains of the classes and bias of one policy, as integers over 2^_BITS, with error bounds.

    One state of each recurrent class is its anchor, with h = 0. With V and T the expected rewards
    and steps until an anchor, the class of anchor z has the gain (R + P V)(z) / (1 + P T)(z), and h
    = V - g T.
    """

    def __init__(self, model: IntegerModel, policy: Policy) -> None:
        self.model = model
        self.rows = [rows[a] for rows, a in zip(model.rows, policy, strict=True)]
        self.policy = policy
        self.classes = _recurrent_classes(self.rows)
        self.anchors = [int(members[0]) for members in self.classes]
        lowest = min(row.reward for row in self.rows)
        earned, self.steps = self._until_an_anchor(lowest)
        above = []  # gains above the lowest reward
        for row in (self.rows[anchor] for anchor in self.anchors):
            onward = (row.total * (row.reward - lowest) << _BITS) + _weighted(row, earned)
            above.append((onward << _BITS) // ((row.total << _BITS) + _weighted(row, self.steps)))
        self.gains = [gain + (lowest << _BITS) for gain in above]
        self.best_class = max(range(len(above)), key=above.__getitem__)
        self.gain, best = self.gains[self.best_class], above[self.best_class]
        self.bias = [v - (best * t >> _BITS) for v, t in zip(earned, self.steps, strict=True)]
        self.error = self._error_bound()

    @property
    def gains_differ(self) -> bool:
        """Whether the gains of two classes certainly differ.

        The error of a class's gain is the mean of the residuals under its stationary distribution.
        """
        if len(self.gains) == 1:
            return False
        error = 0
        for gain, members in zip(self.gains, self.classes, strict=True):
            # h = V - g T, with the gain of this class.
            difference = gain - self.gain
            h = [v - (difference * t >> _BITS) for v, t in zip(self.bias, self.steps, strict=True)]
            residual = max(abs(_gap(h, gain, s, self.rows[s])) for s in members)
            error = max(error, residual + 2)
        return self.gain - min(self.gains) > 2 * error

    def _until_an_anchor(self, lowest: int) -> tuple[list[int], list[int]]:
        """Return V and T, with rewards counted from the lowest."""
        others = [s for s in range(len(self.rows)) if s not in self.anchors]
        earned, steps = [0] * len(self.rows), [0] * len(self.rows)
        if others:
            solve_system = (
                _solved_in_decimals if len(others) <= DECIMAL_STATES else _solved_by_refinement
            )
            for s, (v, t) in zip(others, solve_system(self.rows, others, lowest), strict=True):
                earned[s], steps[s] = v, t
        return earned, steps

    def _error_bound(self) -> int:
        """Bound the errors of gain, bias and gaps by exact residuals, assuming equal gains."""
        residual = 2 + max(
            abs(_gap(self.bias, self.gain, s, row)) for s, row in enumerate(self.rows)
        )
        for s, row in enumerate(self.rows):
            fall = row.total * self.steps[s] - _weighted(row, self.steps)
            if s not in self.anchors and 2 * fall < row.total << _BITS:
                raise Undecided  # the expected times are not certified
        longest = 2 * ((max(self.steps) >> _BITS) + 1)
        return residual * (4 * longest + 2)

    def gaps(self) -> list[list[int]]:
        return [
            [_gap(self.bias, self.gain, s, row) for row in rows]
            for s, rows in enumerate(self.model.rows)
        ]


def _gap(h: list[int], gain: int, s: int, row: Row) -> int:
    """Return g + h - R - P h of a row, as an integer over 2^_BITS, rounded down."""
    moved = sum(weight * (h[s] - h[target]) for target, weight in row.weights)
    return gain - (row.reward << _BITS) + moved // row.total


def _weighted(row: Row, values: list[int]) -> int:
    return sum(weight * values[target] for target, weight in row.weights)


def _solved_in_decimals(rows: list[Row], others: list[int], lowest: int) -> list[list[int]]:
    """Return (V, T) of the states that are not anchors, by elimination in long decimals."""
    place = {s: k for k, s in enumerate(others)}
    n = len(others)
    inside = np.full((n, n), Decimal(0), dtype=object)
    leaving = np.full(n, Decimal(0), dtype=object)
    paid = np.full((n, 2), Decimal(1), dtype=object)
    for k, s in enumerate(others):
        paid[k, 0] = Decimal(rows[s].reward - lowest)
        for target, weight in rows[s].weights:
            probability = Decimal(weight) / rows[s].total
            if target in place:
                inside[k, place[target]] = probability
            else:
                leaving[k] += probability
    unit = Decimal(2) ** _BITS
    return [[int(x * unit) for x in both] for both in expected_totals(inside, leaving, paid)]


def _solved_by_refinement(rows: list[Row], others: list[int], lowest: int) -> list[list[int]]:
    """Return the same by doubles, corrected by exact residuals; for chains that are not slow."""
    place = {s: k for k, s in enumerate(others)}
    matrix = np.zeros((len(others), len(others)))
    for k, s in enumerate(others):
        for target, weight in rows[s].weights:
            if target != s:
                matrix[k, k] += weight / rows[s].total
                if target in place:
                    matrix[k, place[target]] -= weight / rows[s].total
    solver = linear_systems.factored(matrix)
    if solver is None:
        raise Undecided
    totals = []
    for pay in ([row.reward - lowest for row in rows], [1] * len(rows)):
        values = [0] * len(rows)
        for _ in range(_REFINEMENTS):
            residual = [
                (pay[s] << _BITS) - values[s] + _weighted(rows[s], values) // rows[s].total
                for s in others
            ]
            size = max(1, max(abs(r) for r in residual))
            # Scaled to doubles between -1 and 1.
            step = solver(np.array([r / size for r in residual]))
            if not np.isfinite(step).all():
                raise Undecided
            for s, correction in zip(others, step.tolist(), strict=True):
                top, bottom = correction.as_integer_ratio()
                values[s] += size * top // bottom
            if size < 1 << (_BITS - _REFINED_BITS):
                break
        totals.append([values[s] for s in others])
    return [list(both) for both in zip(*totals, strict=True)]


def _recurrent_classes(rows: list[Row]) -> list[Indices]:
    n = len(rows)
    support = np.zeros((n, n), dtype=bool)
    for s, row in enumerate(rows):
        support[s, [target for target, _ in row.weights]] = True
    return closed_classes(support)


def _routed_to_best(model: IntegerModel, policy: Policy, values: _PolicyValues) -> Policy | None:
    """Return a policy that leads every state to the best recurrent class, or None."""
    reached = set(values.classes[values.best_class].tolist())
    routed = list(policy)
    while len(reached) < len(policy):
        layer = {}
        for s, rows in enumerate(model.rows):
            if s not in reached:
                closer = [
                    a for a, row in enumerate(rows) if any(t in reached for t, _ in row.weights)
                ]
                if closer:
                    layer[s] = policy[s] if policy[s] in closer else closer[0]
        if not layer:
            return None
        for s, a in layer.items():
            routed[s] = a
        reached |= set(layer)
    return routed


def _proved(
    model: IntegerModel, policy: Policy, values: _PolicyValues, gaps: list[list[int]]
) -> Optimum:
    """Return the optimum after proving that gaps within their error are zero; else raise
    Undecided."""
    undecided = [
        (s, a)
        for s, gaps_of_state in enumerate(gaps)
        for a, gap in enumerate(gaps_of_state)
        if abs(gap) <= values.error and a != policy[s]
    ]
    if (undecided or len(values.classes) > 1) and not _all_zero(model, values, undecided):
        raise Undecided
    for s, action in enumerate(policy):
        gaps[s][action] = 0
    for s, a in undecided:
        gaps[s][a] = 0
    least = min(values.bias)
    bias = [h - least for h in values.bias]
    certain = 2 * _CERTAIN_FACTOR * values.error
    if any(0 < gap < certain for row in gaps for gap in row) or 0 < max(bias) < certain:
        raise Undecided
    return Optimum(bias, gaps, model.reward_scale << _BITS)


# ---- proofs that gaps are zero ------------------------------------------------------------------


def _all_zero(model: IntegerModel, values: _PolicyValues, undecided: list[tuple[int, int]]) -> bool:
    """Return whether these gaps are proved zero and all classes are proved to have the same gain.

    The linear equations of the policy have integer coefficients. By Cramer's rule a gap times the
    determinant and the total of its row is an integer, and no larger than the product of the sums
    of the absolute values in each row. It is zero if it is zero modulo enough primes.
    """
    bits = sum((4 * row.total * (abs(row.reward) + 1)).bit_length() for row in values.rows)
    extra = [model.rows[s][a] for s, a in undecided]
    bits += max(((8 * row.total * (abs(row.reward) + 1)).bit_length() for row in extra), default=0)
    n = len(values.rows)
    if (bits // 30 + 1) * (n**3 // 3 + n * len(extra)) > _MODULAR_OPERATIONS:
        return False
    proved = 0
    primes = _primes()
    while proved <= bits + 2:
        some = np.array([next(primes) for _ in range(_PRIMES_AT_ONCE)], dtype=np.int64)
        usable, zero = _zero_modulo(some, values, undecided, extra)
        if not zero[usable].all():
            return False
        proved += 30 * int(usable.sum())  # every prime is above 2^30
    return True


def _primes() -> Iterator[int]:
    """Yield the primes below 2^31 in decreasing order."""

    def is_prime(n: int) -> bool:
        """Run the Miller-Rabin test, which is exact with these bases below 3,215,031,751."""
        odd, twos = n - 1, 0
        while odd % 2 == 0:
            odd, twos = odd // 2, twos + 1
        for base in (2, 3, 5, 7):
            x = pow(base, odd, n)
            if x in (1, n - 1):
                continue
            for _ in range(twos - 1):
                x = x * x % n
                if x == n - 1:
                    break
            else:
                return False
        return True

    return (n for n in range(2**31 - 1, 2**30, -2) if is_prime(n))


def _zero_modulo(
    primes: Indices, values: _PolicyValues, undecided: list[tuple[int, int]], extra: list[Row]
) -> tuple[Mask, Mask]:
    """Return, for each prime, whether the equations are solvable and whether all gaps are then
    zero."""
    rows = values.rows
    others = [s for s in range(len(rows)) if s not in values.anchors]
    place = {s: k for k, s in enumerate(others)}
    n, p = len(others), primes[:, None]

    def residues(numbers: list[int]) -> Indices:
        """Return the residues: [primes, numbers]."""
        return np.array([[x % int(q) for x in numbers] for q in primes], dtype=np.int64)

    # (total - weights) (V, T) = total (R, 1), off the anchors.
    system = np.zeros((len(primes), n, n + 2), dtype=np.int64)
    for k, s in enumerate(others):
        row = rows[s]
        away = [(place[t], w) for t, w in row.weights if t != s and t in place]
        if away:
            system[:, k, [t for t, _ in away]] = residues([-w for _, w in away])
        stay = sum(w for t, w in row.weights if t == s)
        system[:, k, k] = residues([row.total - stay])[:, 0]
        system[:, k, n:] = residues([row.total * row.reward, row.total])
    usable = _eliminate(system, primes)
    solved = np.zeros((len(primes), len(rows), 2), dtype=np.int64)
    solved[:, others] = system[:, :, n:]

    def onward(row: Row) -> Indices:
        """Return total * (R, 1) plus the weighted sum of (V, T): [primes, 2]."""
        totals = residues([row.total * row.reward, row.total])
        weights = residues([w for _, w in row.weights])
        for k, (t, _) in enumerate(row.weights):
            totals = (totals + weights[:, k, None] * solved[:, t]) % p
        return totals

    gains = []
    for anchor in values.anchors:
        ahead = onward(rows[anchor])
        usable &= ahead[:, 1] != 0
        gains.append(ahead[:, 0] * _inverse(ahead[:, 1], primes) % primes)
    gain = gains[0]
    zero = np.ones(len(primes), dtype=bool)
    for other in gains[1:]:
        zero &= other == gain
    for (s, _), row in zip(undecided, extra, strict=True):
        ahead = onward(row)
        total = residues([row.total])[:, 0]
        bias = (solved[:, s, 0] - gain * solved[:, s, 1]) % primes
        ahead_bias = (ahead[:, 0] - gain * ahead[:, 1]) % primes
        zero &= (total * bias - ahead_bias) % primes == 0
    return usable, zero


def _eliminate(system: Indices, primes: Indices) -> Mask:
    """Solve the systems [primes, n, n + k] in place; return for which primes all pivots are
    nonzero."""
    n = system.shape[1]
    p = primes[:, None]
    usable = np.ones(len(primes), dtype=bool)
    for k in range(n):
        usable &= system[:, k, k] != 0
        inverse = _inverse(system[:, k, k], primes)
        system[:, k, k:] = system[:, k, k:] * inverse[:, None] % p
        below = system[:, k + 1 :, k].copy()
        product = below[:, :, None] * system[:, None, k, k:] % p[:, :, None]
        system[:, k + 1 :, k:] = (system[:, k + 1 :, k:] - product) % p[:, :, None]
    for k in range(n - 1, 0, -1):
        product = system[:, :k, k, None] * system[:, None, k, n:] % p[:, :, None]
        system[:, :k, n:] = (system[:, :k, n:] - product) % p[:, :, None]
    return usable


def _inverse(numbers: Indices, primes: Indices) -> Indices:
    """Return the inverses modulo the primes, by Fermat; 0 for 0."""
    result, base, power = np.ones_like(numbers), numbers.copy(), primes - 2
    while power.any():
        result = np.where(power & 1 == 1, result * base % primes, result)
        base = base * base % primes
        power = power >> 1
    return result


def floats(numbers: list[int], scale: int) -> NDArray[np.float64]:
    """Return integers over a scale as doubles, each rounded once; inf beyond their range."""

    def nearest(number: int) -> float:
        try:
            return number / scale
        except OverflowError:
            return math.inf

    return np.array([nearest(number) for number in numbers], dtype=np.float64)
