"""The best gain inside a set of states that has one, and the linear systems behind it.

Policy iteration (Haviv & Puterman 1991): of several recurrent classes of a policy the best is kept
and the other states are led to it; with one class left, h + gain = r + P h has one solution up to a
constant.  The h that it ends with certifies the number as in iteration.py,

    min(L h - h) <= gain <= max(L h - h)  over the set, whatever h is,

widened by what rounding can have done.  Cost: a linear solve over the states for each policy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fmdp.planning.tabular import dense
from fmdp.planning.tabular.flat import (
    Flat,
    Floats,
    Indices,
    Mask,
    only_class,
    routes,
    strongly_connected,
)

DENSE_STATES = 1500
"""Systems up to this many unknowns are solved as dense ones,"""
FULL_STATES = 4096
"""up to this many if a twentieth of the matrix is not zero,"""
SPARSE_STATES = 1 << 13
"""and up to this many as sparse ones; larger ones are not solved."""
ROUNDS = 500
"""Policies that policy iteration may try."""
REFINEMENTS = 3
"""How often what rounding leaves of an equation is solved for again."""
_NO_REWARDS = np.zeros((0, 1))


Check = Callable[[], None]
"""Called between policies; raises where time is up."""


@dataclass(frozen=True, eq=False)
class OneGain:
    """A set of states with one best gain, and what certifies it."""

    lower: float
    upper: float
    h: Floats
    """[S], 0 outside the set."""
    actions: Indices
    """[S], an action that attains max (r + P h) in every state of the set, -1 outside."""


def one_gain(
    flat: Flat,
    members: Mask,
    allowed: Mask,
    check: Check = lambda: None,
    start: Indices | None = None,
) -> OneGain | None:
    """Policy iteration on states that have one best gain when only these actions are allowed.

    None if some state cannot be led to the best class that is met, or a system is singular.
    """
    states = np.flatnonzero(members)
    local = np.full(flat.n_states, -1, dtype=np.int64)
    local[states] = np.arange(len(states))
    usable = allowed[states]
    if usable.all() and len(states) == flat.n_states:
        part = flat
    else:
        part = Flat(
            np.where(flat.possible[states], local[flat.successors[states]], 0),
            flat.probabilities[states],
            flat.possible[states] & usable[:, :, None],
            flat.rewards[states],
            flat.depth,
            flat.reward_sizes[states],
        )
    policy = np.argmax(usable, axis=1) if start is None else start[states].copy()
    best: tuple[float, Floats] | None = None
    # Better policies may have larger gaps for a while, one state after the other turning round;
    # more of them in a row than there are states are rounding going in circles.
    patience, since = 16 + min(len(states), 200), 0
    for _ in range(ROUNDS):
        check()
        prepared = _with_one_class(part, usable, policy)
        if prepared is None:
            break
        policy, anchor = prepared
        found = bias_of(part, policy, anchor)
        if found is None:
            break
        h, _ = found
        worth, noise = part.advantages(h)
        worth[~usable] = -np.inf
        greedy = worth.max(axis=1)
        gap = float(greedy.max() - greedy.min())
        since += 1
        if best is None or gap < best[0]:
            best, since = (gap, h), 0
        held = np.take_along_axis(worth, policy[:, None], axis=1)[:, 0]
        best_action = worth.argmax(axis=1)
        unsure = np.take_along_axis(noise, np.stack([policy, best_action], axis=1), axis=1)
        improved = greedy > held + unsure.sum(axis=1)
        if not improved.any() or since > patience:
            break
        policy = np.where(improved, best_action, policy)
    if best is None:
        return None
    h = best[1]
    worth, noise = part.advantages(h)
    worth[~usable], noise[~usable] = -np.inf, 0.0
    lower = float((worth - noise).max(axis=1).min())
    upper = float((worth + noise).max())
    whole, actions = np.zeros(flat.n_states), np.full(flat.n_states, -1, dtype=np.int64)
    whole[states] = h
    actions[states] = (worth - noise).argmax(axis=1)
    return OneGain(lower, upper, whole, actions)


def _with_one_class(flat: Flat, allowed: Mask, policy: Indices) -> tuple[Indices, int] | None:
    """The policy changed so that its best recurrent class is the only one, and a state of it."""
    everyone = np.arange(flat.n_states)
    rows, possible = flat.successors[everyone, policy], flat.possible[everyone, policy]
    label, closed = _classes(rows, possible)
    if len(closed) > 1:
        gains = []
        for number in closed:
            inside = np.flatnonzero(label == number)
            gain = _class_gain(flat, policy, inside)
            gains.append(-np.inf if gain is None else gain)
        chosen = closed[int(np.argmax(gains))]
    else:
        chosen = closed[0]
    target = label == chosen
    if len(closed) > 1:
        # Who may still come to another class is led to those who do not.
        others = np.isin(label, [number for number in closed if number != chosen])
        chain = Flat(
            rows[:, None],
            np.zeros(rows.shape)[:, None],
            possible[:, None],
            _NO_REWARDS,
            0,
            _NO_REWARDS,
        )
        lost = others | (routes(chain, np.ones((len(rows), 1), dtype=np.bool_), others) >= 0)
        way = routes(flat, allowed, ~lost)
        if (way[lost] < 0).any():
            return None
        policy = np.where(lost, way, policy)
    return policy, int(np.argmax(target))


def _classes(rows: Indices, possible: Mask) -> tuple[Indices, list[int]]:
    """Strongly connected sets of a chain, and the numbers of those that it never leaves; where that
    is one set, all states outside it may have one number."""
    n = len(rows)
    one = only_class(rows, possible)
    if one is not None:
        return np.where(one, 0, 1), [0]
    origin, place = np.nonzero(possible)
    successor = rows[origin, place]
    count, label = strongly_connected(n, origin, successor)
    left = np.unique(label[origin][label[origin] != label[successor]])
    return label, np.setdiff1d(np.arange(count), left).tolist()


def _class_gain(flat: Flat, policy: Indices, inside: Indices) -> float | None:
    local = np.full(flat.n_states, 0, dtype=np.int64)
    local[inside] = np.arange(len(inside))
    own = policy[inside]
    part = Flat(
        local[flat.successors[inside, own]][:, None],
        flat.probabilities[inside, own][:, None],
        flat.possible[inside, own][:, None],
        flat.rewards[inside, own][:, None],
        flat.depth,
        flat.reward_sizes[inside, own][:, None],
    )
    found = bias_of(part, np.zeros(len(inside), dtype=np.int64), 0)
    return None if found is None else found[1]


def bias_of(flat: Flat, policy: Indices, anchor: int) -> tuple[Floats, float] | None:
    """h and the gain with h + gain = r + P h of a policy with one recurrent class, `anchor` in it.

    The unknown h(anchor) is 0 and its column stands for the gain.  What rounding leaves of the
    equation is solved for again.
    """
    everyone = np.arange(flat.n_states)
    rows, weights = flat.successors[everyone, policy], flat.probabilities[everyone, policy]
    weights = np.where(flat.possible[everyone, policy], weights, 0.0)
    solve = solver(rows, weights, anchor)
    if solve is None:
        return None
    reward = flat.rewards[everyone, policy]
    h = np.zeros(flat.n_states)
    gain = 0.0
    for _ in range(REFINEMENTS):
        step = solve(reward - gain + (weights * (h[rows] - h[:, None])).sum(axis=1))
        if not np.isfinite(step).all():
            return None
        gain += float(step[anchor])
        step[anchor] = 0.0
        h += step
    return h, gain


def solver(
    rows: Indices, weights: Floats, anchor: int | None = None
) -> Callable[[Floats], Floats] | None:
    """x -> (I - P)^-1 x, with ones in the column `anchor` if there is one; None if singular.

    A diagonal 1 - P(s, s) is the sum of the rest of its row (Grassmann, Taksar & Heyman 1985), so
    that no digits are lost where a state is hardly ever left.  Rows without weight stand for
    states that stop: their diagonal is 1.
    """
    n = len(rows)
    origin = np.repeat(np.arange(n), rows.shape[1])
    target, weight = rows.ravel(), weights.ravel()
    away = (target != origin) & (weight > 0.0)
    diagonal: Floats = np.bincount(origin[away], weight[away], n).astype(np.float64, copy=False)
    diagonal[~weights.any(axis=1)] = 1.0
    origin, target, weight = origin[away], target[away], weight[away]
    if n <= DENSE_STATES or (n <= FULL_STATES and 20 * len(weight) > n * n):
        matrix = np.diag(diagonal)
        np.subtract.at(matrix, (origin, target), weight)
        if anchor is not None:
            matrix[:, anchor] = 1.0
        return dense.factored(matrix)
    if n > SPARSE_STATES:
        return None
    from scipy.sparse import csc_array
    from scipy.sparse.linalg import splu

    kept = np.ones(len(target), dtype=np.bool_) if anchor is None else target != anchor
    places = np.arange(n) if anchor is None else np.delete(np.arange(n), anchor)
    column = np.zeros(0, dtype=np.int64) if anchor is None else np.arange(n)
    system = csc_array(
        (
            np.concatenate([-weight[kept], diagonal[places], np.ones(len(column))]),
            (
                np.concatenate([origin[kept], places, column]),
                np.concatenate([target[kept], places, np.full(len(column), anchor or 0)]),
            ),
        ),
        shape=(n, n),
    )
    try:
        sparse = splu(system)
    except RuntimeError:  # exactly singular
        return None
    return lambda right: np.asarray(sparse.solve(right))
