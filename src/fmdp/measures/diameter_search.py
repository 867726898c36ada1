"""The diameter: the longest of the shortest expected times between two states.

    D = max_{s != g} E_g(s),   E_g(s) = 1 + min_a sum_s' P_a(s' | s) E_g(s'),   E_g(g) = 0

Infinity is decided on the support graph. Otherwise, for any v > 0 with v(g) = 0 and r = v - min_a
P_a v on the other states, max r and min r > 0 certify (see docs/theory.md)

    v / max r  <=  E_g  <=  v / min r.

For each target v <- min_a P_a v + lambda is iterated by elimination, lambda the middle of r: the
range of r never grows and shrinks as fast as the chain mixes, not as slowly as it reaches g. A
target is dropped as soon as its upper bound is below the best lower bound, usually after about ten
sweeps. The few survivors are iterated to the tolerance or, if the chain mixes slowly, solved by
policy iteration with hitting times that are exact to the last digits (chains.py).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.linalg import LinearOperator, gmres

from fmdp._base.progress import PartsReport
from fmdp.elimination.backup import Backup, backup_for
from fmdp.errors import TooLarge
from fmdp.measures.reachability import OPERATIONS, Graph, is_communicating, without_rewards
from fmdp.model import FactoredMDP
from fmdp.model.spaces import decode
from fmdp.planning.tabular.chains import hitting_times, sparse_hitting_times
from fmdp.planning.tabular.model import policy_matrix, sparse_policy_matrix, write_out

Vector = NDArray[np.float64]
Actions = NDArray[np.int64]

TOLERANCE = 1e-12  # default relative gap between the bounds
ALWAYS_STATES = 1024
"""Largest number of states for which the diameter is always computed."""
MULTIPLY_ADDS = 400_000_000_000
"""Limit of the expected work for larger models: a minute or two."""

_MET = 1e-6
"""Largest relative distance of bounds that have met."""
_FLAT_ENTRIES = 1 << 20
"""Largest states x actions x successors for which policies are compared on stored rows."""
_EPS = float(np.finfo(np.float64).eps)
_FEW_SWEEPS = 16  # expected sweeps per target
_FIRST_SWEEPS = 48  # sweeps per target before the survivors are refined
_FIRST_GAP = 1e-2  # relative gap at which a target is left for refinement
_ROUNDING = 1e-10  # if rounding stops sweeps above this gap, policy iteration takes over
_STRIDE = 16  # sweeps between two estimates of the speed of convergence
_LAST_DIGITS = 8 * float(np.finfo(np.float64).eps)  # rounding of the divisions in the bounds
_LEAP_GAP = 1e-7  # relative gap of a rough evaluation
_SOLVES = 5  # expected number of evaluations in policy iteration


@dataclass(frozen=True)
class Diameter:
    """The diameter with bounds that enclose it, rounding included, and a pair that attains it.

    Attributes
    ----------
    value
        Expected steps between the two states that are farthest apart, or infinity. None if rounding
        keeps the bounds apart by more than a millionth.
    lower
        Lower bound.
    upper
        Upper bound.
    source
        The state from which it takes that long; None if the diameter is infinite or 0.
    target
        The state to which it takes that long; None if the diameter is infinite or 0.
    """

    value: float | None
    lower: float
    upper: float
    source: tuple[int, ...] | None
    target: tuple[int, ...] | None


def diameter(
    model: FactoredMDP,
    *,
    tolerance: float = TOLERANCE,
    always_states: int = ALWAYS_STATES,
    multiply_adds: int = MULTIPLY_ADDS,
    operations: int = OPERATIONS,
    progress: PartsReport | None = None,
) -> Diameter | None:
    """Return the diameter of a model: the longest of the shortest expected times between states.

    Parameters
    ----------
    model
        The model; its rewards do not matter.
    tolerance
        Relative gap between the bounds.
    always_states
        Models with at most this many states are computed whatever the cost.
    multiply_adds
        Limit of the expected work for larger models.
    operations
        Limit of the search whether the diameter of a larger model is infinite.
    progress
        Called as `progress(done, total, text)`.

    Returns
    -------
    Diameter or None
        None if it is not affordable. The diameter of a single state is 0.
    """
    n_states = model.structure.n_states
    small = n_states <= always_states
    try:
        communicating = is_communicating(model, None if small else operations)
    except TooLarge:
        return None
    if communicating is False:
        return Diameter(math.inf, math.inf, math.inf, None, None)
    if communicating is None:
        return None
    if n_states == 1:
        return Diameter(0.0, 0.0, 0.0, None, None)
    bare = without_rewards(model)
    backup = backup_for(bare)
    if not small and n_states * _FEW_SWEEPS * sweep_price(backup) > multiply_adds:
        return None
    search = _FarthestTarget(bare, backup, tolerance, progress)
    search.run()
    farthest, sizes = search.leader, model.structure.state_sizes
    lower = min(farthest.lower, farthest.value) * (1.0 - _LAST_DIGITS)
    upper = max(search.upper, farthest.value) * (1.0 + _LAST_DIGITS)
    met = math.isinf(lower) or upper - lower <= _MET * upper
    return Diameter(
        value=farthest.value if met else None,
        lower=lower,
        upper=upper,
        source=decode(farthest.source, sizes),
        target=decode(farthest.target, sizes),
    )


def sweep_price(backup: Backup) -> int:
    """Return the cost of a sweep in multiply-adds, including the handling of its vectors."""
    return backup.layout.multiply_adds + 100 * backup.n_states


class _TargetTimes:
    """Bounds on the times to one target: v = peak + u, v(target) = 0.

    Only differences from the peak are stored. They are small if the times are long and similar,
    which keeps the significant digits.
    """

    def __init__(self, n_states: int, target: int, rounding: float) -> None:
        self.target = target
        self.rounding = rounding
        self.u = np.zeros(n_states)
        self.u[target] = -1.0
        self.peak = 1.0
        self.lower, self.upper, self.value = 0.0, math.inf, math.nan
        self.gap = math.inf  # relative range of r
        self.floor = 0.0  # least gap that rounding allows
        self.proper = False  # whether the greedy policy of v reaches the target with probability 1

    @property
    def source(self) -> int:
        return int(self.u.argmax())

    def noise(self) -> float:
        """Bound the rounding error of r: a few units in the largest difference that is summed."""
        away = self.u.copy()
        away[self.target] = 0.0
        return -self.rounding * float(away.min())

    def move_to(self, v: Vector) -> None:
        """Continue from v; the bounds are kept."""
        others = v.copy()
        others[self.target] = -math.inf
        self.peak = float(others.max())
        self.u = v - self.peak
        self.u[self.target] = -self.peak

    def sweep(self, backup: Backup) -> None:
        """Set v <- min_a P_a v + lambda, and update the bounds that the previous v certifies."""
        ahead = -backup.apply(-self.u)
        r = self.u - ahead
        r[self.target] = r[self.target - 1]  # that of any other state: the target is excluded
        low, high, noise = float(r.min()), float(r.max()), self.noise()
        middle = (low + high) / 2
        if high > 0.0:
            self.gap, self.floor = (high - low) / high, 4 * noise / high
            self.lower = max(self.lower, self.peak / (high + noise))
        self.proper = low > noise
        if self.proper:
            self.upper = min(self.upper, self.peak / (low - noise))
            self.value = self.peak / middle
        ahead += middle
        ahead[self.target] = -math.inf
        top = float(ahead.max())
        ahead -= top
        self.peak += top
        ahead[self.target] = -self.peak
        self.u = ahead


class _FarthestTarget:
    """The search for the farthest target; `leader` has the best lower bound so far."""

    def __init__(
        self, model: FactoredMDP, backup: Backup, tolerance: float, progress: PartsReport | None
    ) -> None:
        self.model = model
        self.backup = backup
        self.tolerance = tolerance
        self.progress = progress if progress is not None else _silent
        self.n = backup.n_states
        self.rounding = 4 * _EPS + _defect(model)
        self.leader = _TargetTimes(self.n, 0, self.rounding)
        self.upper = 0.0
        self.graph = Graph(self.model)
        self.flat = write_out(model, _FLAT_ENTRIES)
        solve = 30 * self.n**2 if self.graph.is_sparse else 30 * self.n**2 + self.n**3 // 4
        self.patience = _SOLVES * solve // sweep_price(backup) + 2 * _STRIDE

    def run(self) -> None:
        """Find the leader to the tolerance; `upper` then bounds the times to every target."""
        survivors: list[_TargetTimes] = []
        # In a random order few targets exceed all before them, and only these take long.
        for done, target in enumerate(np.random.default_rng(0).permutation(self.n)):
            if done % 64 == 0:
                self.progress(done, self.n, "diameter: bounding the time to each state")
            times = _TargetTimes(self.n, int(target), self.rounding)
            # There is no bound before the indicator of the target has reached every state.
            depth = self.graph.depth(times.target)
            if depth < self.patience:
                for _ in range(_FIRST_SWEEPS + depth):
                    times.sweep(self.backup)
                    if self._beaten(times) or times.gap <= _FIRST_GAP:
                        break
            if not self._beaten(times):
                survivors.append(times)
        survivors = [times for times in survivors if not self._beaten(times)]
        survivors.sort(key=lambda times: (-times.lower, -times.upper))
        for done, times in enumerate(survivors):
            if done % 8 == 0:
                self.progress(done, len(survivors), "diameter: solving for the farthest states")
            self._refine(times)
        self.upper = max(times.upper for times in survivors)
        self.progress(len(survivors), len(survivors), "diameter: done")

    def _beaten(self, times: _TargetTimes) -> bool:
        """Return whether another target is at least as far, after updating the leader."""
        if times.lower > self.leader.lower:
            self.leader = times
        return times is not self.leader and times.upper <= self.leader.lower

    def _refine(self, times: _TargetTimes) -> None:
        """Sweep until the tolerance is met or the target is beaten; if that takes long, solve."""
        left = self.patience
        while not self._beaten(times) and times.gap > self.tolerance:
            if math.isinf(times.upper):
                self._policy_iteration(times)
                continue
            last = times.gap
            for _ in range(_STRIDE):
                times.sweep(self.backup)
            left -= _STRIDE
            # Stop if rounding limits the convergence.
            goal = max(self.tolerance, min(times.floor, _ROUNDING))
            shrink = times.gap / last
            if times.gap <= goal:
                if shrink > 0.5:
                    self._beaten(times)
                    return
            elif shrink >= 1.0 or math.log(goal / times.gap) / math.log(shrink) * _STRIDE > left:
                if not self.graph.is_sparse:
                    self._leap(times)
                if not self._beaten(times):
                    self._policy_iteration(times)

    def _leap(self, times: _TargetTimes) -> None:
        """Run policy iteration with rough evaluations, enough to see that most targets are beaten.

        A chain that mixes slowly does so in a few directions, which a Krylov method finds in a few
        sweeps of the policy. The next full sweep certifies the result, however rough it is.
        """
        away = np.ones(self.n)
        away[times.target] = 0.0
        for _ in range(_SOLVES):
            actions = _least(self.backup, times.u)[1]

            def onward(v: Vector, actions: Actions = actions) -> Vector:
                v = v.ravel() * away
                return v - away * self.backup.for_policy(v, actions)

            system = LinearOperator((self.n, self.n), matvec=onward, dtype=np.float64)
            start = (times.u + times.peak) * (times.upper / times.peak) * away
            v, _ = gmres(system, away, x0=start, rtol=_LEAP_GAP, restart=40, maxiter=2)
            if not np.isfinite(v).all() or float(v.max()) <= 0.0:
                return
            times.move_to(v)
            times.sweep(self.backup)
            if self._beaten(times) or times.gap <= _LEAP_GAP:
                return

    def _policy_iteration(self, times: _TargetTimes) -> None:
        """Compute the exact times by Howard's algorithm, up to rounding in the comparison of
        actions."""
        target, previous = times.target, math.inf
        if times.proper:
            actions = _least(self.backup, times.u)[1]
        else:
            actions = self.graph.proper_policy(target)
        while True:
            cost = self._evaluate(actions, target)
            times.peak = times.value = float(cost.max())
            # Elimination without subtraction is exact for a chain whose rates are each changed by a
            # few n units of rounding, and times move by 2 n times as much (O'Cinneide 1993).
            unsure = 6.0 * len(cost) ** 2 * _EPS + 2.0 * self.tolerance
            times.upper = times.value * (1.0 + unsure)
            if math.isinf(times.peak):  # overflow
                times.lower = math.inf
                break
            times.u = cost - times.peak
            r, noise, best = self._savings(times, cost)
            # The policy itself has r = 1; an action that saves something has more.
            better = r > 1.0 + noise
            most = max(1.0, float((r + noise).max()))
            times.lower = max(times.lower, times.peak / most)
            total = float(cost.sum())
            stuck = total >= previous * (1.0 - 4 * _EPS)
            if not better.any() or stuck or self._beaten(times):
                break
            previous = total
            actions = np.where(better, best, actions)
        times.gap = 0.0

    def _savings(self, times: _TargetTimes, cost: Vector) -> tuple[Vector, Vector, Actions]:
        """Return r = v - min_a P_a v, a bound on its rounding, and the best actions: [S] each.

        For small models differences p (v(s) - v(s')) are summed, so that self-loops lose no digits.
        """
        if self.flat is None:
            ahead, best = _least(self.backup, times.u)
            r, noise = times.u - ahead, np.full(self.n, times.noise())
        else:
            worth, unsure = self.flat.advantages(cost)
            # The rows of the model are divided by their sums, which adds to the rounding.
            unsure *= 2.0 + _defect(self.model) / _EPS
            chosen = worth.argmin(axis=1)
            places = np.arange(self.n)
            r, noise = -worth[places, chosen], (unsure - worth).max(axis=1) + worth.min(axis=1)
            best = self.flat.allowed(chosen)
        r[times.target], noise[times.target] = 1.0, 0.0
        return r, noise, best

    def _evaluate(self, actions: Actions, target: int) -> Vector:
        if self.graph.is_sparse:
            matrix = sparse_policy_matrix(self.model, actions)
            times = sparse_hitting_times(matrix, target, self.tolerance)
            if times is not None:
                return times
        return hitting_times(policy_matrix(self.model, actions), target)


def _least(backup: Backup, u: Vector) -> tuple[Vector, Actions]:
    """Return min_a P_a u and an action that attains it, without slack for ties."""
    source = backup.to_internal(-u)
    value = np.empty_like(source)
    backup.sweep(source, value)
    least = -backup.to_canonical(value)
    return least, backup.greedy_actions(source, value, "first", 0, 0.0)


def _defect(model: FactoredMDP) -> float:
    """Bound the deviation of the row sums of P from 1, including rounding of the products."""
    missed = [
        float(np.abs(table.sum(axis=1) - 1.0).max()) + table.shape[1] * _EPS
        for table in model.transitions
    ]
    return float(sum(missed))


def _silent(done: int, total: int, text: str) -> None:
    """Ignore progress."""
