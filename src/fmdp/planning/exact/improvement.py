"""Policy iteration on the engine, for plans by the hundred whose sweeps come too slowly to rest.

A model that was sampled after a few steps has rows that are nearly deterministic: chains that mix
in thousands of steps, that go round in circles, or whose classes are left once in 10^28 steps.
Value iteration needs as many sweeps as they need steps; policy iteration a handful of policies,
whatever the chain is.  It is run under the discount 1 - 10^-7, where the equation of a policy

    V = r - g + (1 - 10^-7) P V        (g: any number; it moves V by a constant)

has one solution, however many classes there are, and better classes are led to by themselves.  Then

* where L V - V is one number up to the tolerance, V is an h that certifies it (iteration.py);
  sets that are left once in up to some 10^7 steps come to that by repeating
  V <- V + (I - (1 - 10^-7) P)^-1 (r + P V - V - mean), which solves the undiscounted equation;
* where it is not, MacQueen's bounds say that the policy is the best one, by the tolerance a step,
  under that discount; over fewer than millions of steps there is no other to be told from it.

Entries of P below 10^-13 are left out of the equation, never out of what certifies: sweeps of the
engine do that.  Cost: a linear system over the states a policy; dense at worst, states^3 / 1.5.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fmdp.elimination.backup import Backup, check_clock
from fmdp.elimination.rounding import rounding_allowance
from fmdp.model import FactoredMDP
from fmdp.model.spaces import project_some
from fmdp.planning.tabular import dense

Vector = NDArray[np.float64]
Indices = NDArray[np.int64]

SMALL = 1e-7
"""1 - discount: what happens less than once in its inverse of steps is left for later."""
STATES = 2500
"""Up to which it is tried: a dense system of so many takes a quarter of a second."""
POLICIES = 40
"""That are tried; a few suffice."""
_REPEATS = 8
"""Of the last equation, towards the undiscounted one."""
_DROPPED = 1e-13
_DENSE_SHARE = 20
"""A matrix with more than one entry in so many that is not 0 is solved as a dense one,"""
_DENSE_STATES = 200
"""and so is every one of at most so many states."""


@dataclass(frozen=True, eq=False)
class Improved:
    """Where policy iteration ended."""

    h: Vector | None = None
    """Whose bounds meet, in the engine's order; None where the gain is not one number for long."""
    actions: Indices | None = None
    """[S] in C order, where there is no h: best under the discount."""
    bounds: tuple[float, float] = (-np.inf, np.inf)
    """With the actions: on the best gain of every state, and on what they gain."""


def improved(
    model: FactoredMDP,
    backup: Backup,
    h: Vector,
    tolerance: float,
    deadline: float | None = None,
) -> Improved | None:
    """Policy iteration from the policy that is greedy at h; None where it does not end.

    `backup` holds the model's tables; h is in its order, and is not changed.
    """
    structure = model.structure
    if structure.n_states > STATES:
        return None
    v, out = h - h.min(), np.empty_like(h)
    equation: _Equation | None = None
    for _ in range(POLICIES):
        check_clock(deadline)
        backup.sweep(v, out)
        low, high, slack = certified(backup, v, out)
        if high - low <= tolerance:
            return Improved(h=v)
        later = (1.0 - SMALL) * v
        backup.sweep(later, out)
        # Of L(discount V) - V: MacQueen, with what rounding can have done to it.
        backup.residual(v, out)
        least, most = float(backup.extremes[0]), float(backup.extremes[1])
        if equation is not None and most - least + 2.0 * slack <= tolerance:
            return _undiscounted(backup, equation, v, out, tolerance, (low, high))
        actions = backup.greedy_actions(later, out, "first", 0, backup.tie_slack(_size(v)))
        equation = _Equation(model, actions)
        moved = backup.to_canonical(out - v) - 0.5 * (least + most)
        step = equation.solve(moved)
        if step is None:
            return None
        v += backup.to_internal(step)
        v -= v.min()
    return None


def _undiscounted(
    backup: Backup,
    equation: _Equation,
    v: Vector,
    out: Vector,
    tolerance: float,
    bounds: tuple[float, float],
) -> Improved | None:
    """Where the policy is the best one under the discount: an h of it without one, if that ends."""
    found = v.copy()
    for _ in range(_REPEATS):
        backup.policy_sweep(found, out, equation.actions)
        backup.residual(found, out)
        least, most = float(backup.extremes[0]), float(backup.extremes[1])
        if most - least <= 0.5 * tolerance:
            break
        step = equation.solve(backup.to_canonical(out - found) - 0.5 * (least + most))
        if step is None:
            return None
        found += backup.to_internal(step)
        found -= found.min()
    backup.sweep(found, out)
    low, high, _ = certified(backup, found, out)
    if high - low <= tolerance:
        return Improved(h=found)
    backup.policy_sweep(v, out, equation.actions)
    own = certified(backup, v, out)[0]
    return Improved(actions=equation.actions, bounds=(own, bounds[1]))


def _size(v: Vector) -> float:
    return max(float(v.max()), -float(v.min()))


def certified(backup: Backup, v: Vector, out: Vector) -> tuple[float, float, float]:
    """min and max of out - v, widened by what rounding can have done, and that."""
    backup.residual(v, out)
    size = float(backup.extremes[2]) + backup.structure.reward_size
    slack = rounding_allowance(size, backup.roundings)
    return float(backup.extremes[0]) - slack, float(backup.extremes[1]) + slack, slack


class _Equation:
    """x -> (I - discount P)^-1 x of a policy, vectors in C order of the states."""

    def __init__(self, model: FactoredMDP, actions: Indices) -> None:
        self.actions = actions
        n = model.structure.n_states
        origin, target, weight = policy_entries(model, actions, _DROPPED)
        away = origin != target
        origin, target, weight = origin[away], target[away], weight[away]
        # A diagonal is the sum of the rest of its row (Grassmann, Taksar & Heyman 1985), so that a
        # state that is hardly ever left costs no digits; what was left out stays in place.
        leaving: Vector = np.bincount(origin, weight, n).astype(np.float64, copy=False)
        diagonal = SMALL + (1.0 - SMALL) * leaving
        self._solve = factored(origin, target, -(1.0 - SMALL) * weight, diagonal)

    def solve(self, right: Vector) -> Vector | None:
        """None where it has no solution in numbers."""
        found = None if self._solve is None else self._solve(right)
        return found if found is not None and np.isfinite(found).all() else None


def policy_entries(
    model: FactoredMDP, actions: Indices, dropped: float = 0.0
) -> tuple[Indices, Indices, Vector]:
    """State, next state and probability of every entry above `dropped` of a policy's matrix."""
    structure = model.structure
    pairs = np.arange(structure.n_states) * structure.n_actions + actions
    origin = np.arange(structure.n_states)
    target, weight = np.zeros_like(origin), np.ones(len(origin))
    for scope, size, table in zip(
        structure.transition_scopes, structure.state_sizes, model.transitions, strict=True
    ):
        rows = table[project_some(structure.sizes, scope, pairs)]  # [S, S_i]
        product = (weight[:, None] * rows[origin]).ravel()
        kept = product > dropped
        origin = np.repeat(origin, size)[kept]
        target = (target[:, None] * size + np.arange(size)).ravel()[kept]
        weight = product[kept]
    return origin, target, weight


def factored(
    origin: Indices, target: Indices, weight: Vector, diagonal: Vector
) -> Callable[[Vector], Vector] | None:
    """Return a function that solves systems with a matrix of these entries, each given once; None
    where it is singular."""
    n = len(diagonal)
    if n <= _DENSE_STATES or _DENSE_SHARE * len(weight) > n * n:
        matrix = np.diag(diagonal)
        matrix[origin, target] = weight
        return dense.factored(matrix)
    from scipy.sparse import csc_array
    from scipy.sparse.linalg import splu

    places = np.arange(n)
    entries = np.concatenate([weight, diagonal])
    where = (np.concatenate([origin, places]), np.concatenate([target, places]))
    try:
        sparse = splu(csc_array((entries, where), shape=(n, n)))
    except RuntimeError:  # exactly singular
        return None
    return lambda right: np.asarray(sparse.solve(right))
