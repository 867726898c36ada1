"""Boxes and balls by their definitions: all corners, or a linear program, and nested backups.

A box is {p : lower <= p <= upper, sum p = 1}. A linear function attains its extremes at corners,
where all values but one are at an end of their interval:

    best  max over corners p of  sum_v p(v) x(v),     worst  the minimum
    nested  N_m o ... o N_1 h,  (N_k u)(rest) = best (worst) of x(v) = u(v, rest)

with v the next value of the k-th variable of the elimination order. Cost of a row: |S_i| 2^|S_i|. A
ball is {p : |p - centre|_1 <= radius}; with p = centre + u - w, u, w >= 0 and sums of at most half
the radius, it is a linear program. With the divergence, {p : KL(centre, p) <= radius}, the best p
is proportional to centre(v) / (mu + max x - x(v)), mu where the divergence is the radius; if mu = 0
is not enough for that, the values of worth max x that the centre excludes take the rest.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from fmdp.model import OptimisticTables
from fmdp.testing.oracles.dense import Floats, over_pairs, scope_row
from fmdp.testing.oracles.targets import by_elimination, optimistic_reward

_MISSED = 1e-12  # tolerance for rounding at the ends of an interval


def box_corners(lower: Floats, upper: Floats) -> list[Floats]:
    """Return the corners of a box of distributions.

    Parameters
    ----------
    lower, upper
        The ends of every probability: [W], with sums of at most and at least 1.
    """
    corners = []
    for rest in range(len(lower)):
        others = [v for v in range(len(lower)) if v != rest]
        for ends in itertools.product((False, True), repeat=len(others)):
            corner = np.array(lower, dtype=np.float64)
            for v, high in zip(others, ends, strict=True):
                corner[v] = upper[v] if high else lower[v]
            corner[rest] = 0.0
            corner[rest] = 1.0 - corner.sum()
            if lower[rest] - _MISSED <= corner[rest] <= upper[rest] + _MISSED:
                corners.append(np.maximum(corner, 0.0))
    return corners


def box_value(lower: Floats, upper: Floats, x: Floats, *, worst: bool = False) -> float:
    """Return the largest (smallest) expectation of x over a box.

    Parameters
    ----------
    lower, upper
        The ends of every probability: [W].
    x
        A number for every value: [W].
    worst
        Whether to return the smallest instead.
    """
    worth = [float(corner @ x) for corner in box_corners(lower, upper)]
    return min(worth) if worst else max(worth)


def ball_value(centre: Floats, radius: float, x: Floats, *, worst: bool = False) -> float:
    """Return the largest (smallest) expectation of x over a ball of distributions.

    Parameters
    ----------
    centre
        A distribution: [W].
    radius
        Radius in the L1 distance.
    x
        A number for every value: [W].
    worst
        Whether to return the smallest instead.
    """
    from scipy.optimize import linprog

    size, sign = len(x), 1.0 if worst else -1.0
    ones, nothing = np.ones(size), np.zeros(size)
    solved = linprog(
        sign * np.concatenate([x, -x]),  # of u and w
        A_ub=np.block([[ones, nothing], [-np.eye(size), np.eye(size)]]),
        b_ub=np.concatenate([[0.5 * radius], centre]),
        A_eq=np.concatenate([ones, -ones])[None],
        b_eq=[0.0],
    )
    assert solved.fun is not None
    return float(centre @ x + sign * solved.fun)


def divergence_value(centre: Floats, radius: float, x: Floats, *, worst: bool = False) -> float:
    """Return the expectation of x under a p with KL(centre, p) <= radius that attains the largest
    (smallest) one.

    Parameters
    ----------
    centre
        A distribution: [W].
    radius
        Largest divergence; infinite for all distributions.
    x
        A number for every value: [W].
    worst
        Whether to return the smallest instead.
    """
    from scipy.optimize import brentq

    sign = -1.0 if worst else 1.0
    top = float((sign * x).max())
    seen = centre > 0.0
    p, loss = centre[seen], top - sign * x[seen]
    if radius == 0.0 or loss.max() == 0.0:
        return float(centre @ x)

    def excess(log_mu: float) -> float:
        shifted = np.exp(log_mu) + loss
        return float(p @ np.log(shifted) + np.log((p / shifted).sum()) - radius)

    widest = float(np.log(loss.max()))
    least, most = max(widest - 500.0, -700.0), widest + 40.0  # exp(-700) is still no subnormal
    if excess(least) <= 0.0:  # the rest of the mass is on values that were not seen, or nearly so
        rest = np.exp(p @ np.log(np.exp(least) + loss) - radius)
        return sign * (top - float(rest))
    if excess(most) >= 0.0:
        return float(centre @ x)
    weights = p / (np.exp(brentq(excess, least, most, xtol=1e-13, rtol=1e-15)) + loss)
    return float(sign * (top - (weights / weights.sum()) @ loss))


def _row_value(tables: OptimisticTables, i: int, row: int, x: Floats, worst: bool) -> float:
    if tables.centre is not None and tables.radius is not None:
        value = ball_value if tables.distance == "l1" else divergence_value
        return value(tables.centre[i][row], float(tables.radius[i][row]), x, worst=worst)
    return box_value(*_box(tables, i, row), x, worst=worst)


def _box(tables: OptimisticTables, i: int, row: int) -> tuple[Floats, Floats]:
    lower = tables.lower[i][row]
    return lower, np.ones_like(lower) if tables.upper is None else tables.upper[i][row]


def nested_box_values(
    tables: OptimisticTables,
    h: Floats,
    order: Sequence[int],
    *,
    worst: bool = False,
    discount: float = 1.0,
) -> Floats:
    """Return q(a, s) with each row chosen from its set when its variable is eliminated: [A, S].

    Forbidden actions have -inf.

    Parameters
    ----------
    tables
        Tables with or without upper ends, or with balls.
    h
        A number for every state: [S].
    order
        A permutation of the state variables; order[0] is eliminated first.
    worst
        Whether rows are chosen to minimise instead.
    discount
        Factor of future values.
    """

    def chosen(i: int, row: int, ahead: Floats) -> float:
        return _row_value(tables, i, row, ahead, worst)

    return by_elimination(tables, h, order, discount, chosen)


def box_values(
    tables: OptimisticTables, h: Floats, *, worst: bool = False, discount: float = 1.0
) -> Floats:
    """Return q(a, s) over all models of the set, with corners of all factors tried together: [A,
    S].

    Forbidden actions have -inf.

    Parameters
    ----------
    tables
        Tables with or without upper ends.
    h
        A number for every state: [S].
    worst
        Whether to return the smallest instead.
    discount
        Factor of future values.
    """
    structure = tables.structure

    def value(x: tuple[int, ...]) -> float:
        corners = [
            box_corners(*_box(tables, i, scope_row(structure, scope, x)))
            for i, scope in enumerate(structure.transition_scopes)
        ]
        worth = []
        for chosen in itertools.product(*corners):
            law = np.ones(1)
            for row_law in chosen:
                law = np.outer(law, row_law).ravel()
            worth.append(float(law @ h))
        return optimistic_reward(tables, x) + discount * (min(worth) if worst else max(worth))

    return over_pairs(structure, value)
