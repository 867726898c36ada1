"""The linear programs over all (state, action), written out, in a unit in which rewards are small.

    discounted: min mean_s V_w(s)   subject to  V_w >= R + g P V_w,   V_w = w_0 + h_w
    average:    min lambda          subject to  lambda + h_w >= R + P h_w

Rewards are brought to [-1, 1] first (a shift c adds c / (1 - g), or c, to the objective), so that
the solver's absolute tolerances mean the same for every model.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog

from referee.recipes import Recipe
from referee.truth import Flat, assignments

Floats = NDArray[np.float64]


def basis_functions(recipe: Recipe, basis: str) -> Floats:
    """phi_b(s), [S, functions], the constant not among them."""
    states = np.array(assignments(recipe.state_sizes), dtype=np.float64)
    m = len(recipe.state_sizes)
    if basis == "indicators":
        return np.array(
            [states[:, i] == v for i, size in enumerate(recipe.state_sizes) for v in range(size)],
            dtype=np.float64,
        ).T
    columns = [states[:, i] for i in range(m)]
    if basis == "pairs":
        edges = {
            (min(i, j), max(i, j))
            for i, (scope, _) in enumerate(recipe.transitions)
            for j in scope
            if j < m and j != i
        }
        columns += [states[:, i] * states[:, j] for i, j in sorted(edges)]
    return np.array(columns).T


def objective(flat: Flat, functions: Floats, criterion: str, discount: float) -> float | None:
    """The optimum of the program, or None where the solver gives up."""
    P, R = flat.matrices, flat.rewards
    middle, size = 0.5 * (R.max() + R.min()), 0.5 * (R.max() - R.min())
    size = size or 1.0
    lower = ((R - middle) / size).ravel()
    if criterion == "discounted":
        full = np.hstack([np.ones((flat.n_states, 1)), functions])
        rows = np.vstack([full - discount * one @ full for one in P])
        cost = full.mean(axis=0)
        shift = middle / (1.0 - discount)
    else:
        rows = np.vstack(
            [np.hstack([np.ones((flat.n_states, 1)), functions - one @ functions]) for one in P]
        )
        cost = np.zeros(rows.shape[1])
        cost[0] = 1.0
        shift = middle
    tight = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
    for method in ("highs-ds", "highs-ipm"):
        found = linprog(
            cost, A_ub=-rows, b_ub=-lower, bounds=(None, None), method=method, options=tight
        )
        if found.status == 0:
            return float(size * found.fun + shift)
    return None
