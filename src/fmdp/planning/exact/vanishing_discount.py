"""Policy iteration on the engine under a vanishing discount, for models that mix very slowly.

A model that was sampled after a few steps has rows that are nearly deterministic: chains that mix
in thousands of steps, that are periodic, or whose classes are left once in 10^28 steps.  Value
iteration needs as many sweeps as they need steps; policy iteration needs a few policies, whatever
the chain is.  It runs under the discount 1 - 10^-7, where the equation of a policy

    V = r - g + (1 - 10^-7) P V        (g: any number; it moves V by a constant)

has one solution, however many classes there are, and leads to better classes by itself.  Then

* if L V - V is one number up to the tolerance, V is an h that certifies it (bounds.py); sets that
  are left once in up to some 10^7 steps come to that by repeating
  V <- V + (I - (1 - 10^-7) P)^-1 (r + P V - V - mean), which solves the undiscounted equation;
* if it is not, MacQueen's bounds say that the policy is optimal, up to the tolerance per step,
  under that discount; over fewer than millions of steps no other is better.

Entries of P below 10^-13 are left out of the equation, but not out of the certificate: that is made
by sweeps of the engine.  Cost: a linear system over the states for each policy, states^3 / 1.5 if
it is dense.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fmdp._base.deadlines import NEVER, Deadline
from fmdp.elimination.backup import Backup
from fmdp.model import FactoredMDP
from fmdp.planning.exact.bounds import Residual, policy_lower_bound, residual_of
from fmdp.planning.tabular.linear_systems import DISCOUNTED, resolvent
from fmdp.planning.tabular.model import policy_entries

Vector = NDArray[np.float64]
Indices = NDArray[np.int64]

LOSS = 1e-7
"""1 - discount: events rarer than once in 1 / LOSS steps are not waited for."""
MOST_STATES = 2500
"""Largest model that is tried: a dense system of this size takes a quarter of a second."""
_POLICIES = 40
"""Policies that are tried; a few suffice."""
_REPEATS = 8
"""Solutions of the last equation on the way to the undiscounted one."""
_DROPPED = 1e-13
"""Probabilities up to which entries are left out of the equation."""


@dataclass(frozen=True, eq=False)
class VanishingDiscountSolution:
    """The end of policy iteration under a vanishing discount."""

    h: Vector | None = None
    """An h whose bounds meet, in the engine's order; None if there is not one gain for long."""
    actions: Indices | None = None
    """[S] in C order, without an h: a policy that is optimal under the discount."""
    bounds: tuple[float, float] = (-np.inf, np.inf)
    """With the actions: a lower bound on their gain, an upper one on the optimal gain."""


def vanishing_discount_solution(
    model: FactoredMDP,
    backup: Backup,
    h: Vector,
    tolerance: float,
    deadline: Deadline = NEVER,
) -> VanishingDiscountSolution | None:
    """Return the end of policy iteration from the policy that is greedy at h; None without one.

    `backup` holds the model's tables; h is in its order, and is not changed.
    """
    structure = model.structure
    if structure.n_states > MOST_STATES:
        return None
    v, out = h - h.min(), np.empty_like(h)
    equation: _Equation | None = None
    for _ in range(_POLICIES):
        deadline.check()
        backup.sweep(v, out)
        undiscounted = residual_of(backup, v, out)
        if undiscounted.upper - undiscounted.lower <= tolerance:
            return VanishingDiscountSolution(h=v)
        later = (1.0 - LOSS) * v
        backup.sweep(later, out)
        discounted = residual_of(backup, v, out)  # L(discount V) - V: MacQueen
        if equation is not None and discounted.gap + 2.0 * undiscounted.slack <= tolerance:
            return _without_discount(backup, equation, v, tolerance, undiscounted.upper)
        size = max(float(v.max()), -float(v.min()))
        actions = backup.greedy_actions(later, out, "first", 0, backup.tie_slack(size))
        equation = _Equation(model, actions)
        if not _newton_step(backup, equation, v, out, discounted):
            return None
    return None


def _without_discount(
    backup: Backup, equation: _Equation, v: Vector, tolerance: float, upper: float
) -> VanishingDiscountSolution | None:
    """Return an undiscounted h of the policy that is optimal under the discount, if there is one,
    else the policy itself with its bounds."""
    h, out = v.copy(), np.empty_like(v)
    for _ in range(_REPEATS):
        backup.policy_sweep(h, out, equation.actions)
        residual = residual_of(backup, h, out)
        if residual.gap <= 0.5 * tolerance:
            break
        if not _newton_step(backup, equation, h, out, residual):
            return None
    backup.sweep(h, out)
    residual = residual_of(backup, h, out)
    if residual.upper - residual.lower <= tolerance:
        return VanishingDiscountSolution(h=h)
    backup.policy_sweep(v, out, equation.actions)
    lower = policy_lower_bound(backup, v, out)
    return VanishingDiscountSolution(actions=equation.actions, bounds=(lower, upper))


def _newton_step(
    backup: Backup, equation: _Equation, v: Vector, image: Vector, residual: Residual
) -> bool:
    """Solve for what the residual image - v leaves, up to a constant, and add it to v in place.

    Return False if there is no solution in floating-point numbers.
    """
    middle = 0.5 * (residual.low + residual.high)
    step = equation.solve(backup.to_canonical(image - v) - middle)
    if step is None:
        return False
    v += backup.to_internal(step)
    v -= v.min()
    return True


class _Equation:
    """x -> (I - discount P)^-1 x of a policy, with vectors in C order of the states."""

    def __init__(self, model: FactoredMDP, actions: Indices) -> None:
        self.actions = actions
        # What is dropped stays in place: the diagonal is the sum of the rest of its row.
        self._solve = resolvent(
            *policy_entries(model, actions, _DROPPED),
            model.structure.n_states,
            discount=1.0 - LOSS,
            loss=LOSS,
            sizes=DISCOUNTED,
        )

    def solve(self, right: Vector) -> Vector | None:
        """Return the solution; None if it is not finite."""
        solution = None if self._solve is None else self._solve(right)
        return solution if solution is not None and np.isfinite(solution).all() else None
