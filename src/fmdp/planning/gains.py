"""Certified gains of every state of a small model, one that may be multichain or mix slowly.

Value iteration cannot tell a gain that depends on the state from one that does not: its residual
may rest for as long as it takes until the horizon pays for changing class.  Here both are decided.

1. Inside a maximal end component (flat.py) the best gain is one number.  Policy iteration finds it
   (Haviv & Puterman 1991): of several recurrent classes the best is kept and the other states are
   led to it.  The h that it ends with certifies the number as in iteration.py,
   min(L h - h) <= gain <= max(L h - h) over the component, whatever h is.
2. Components shrunk to points leave a model in which every policy comes to rest.  The best gain of
   a state is the most that "stop here for the component's gain" is worth on average:

       v = max( gain of the component, max over the actions that leave of P v ).

   Any v with v >= T v is above it, any v that is at most T_pi v for one policy is below (T is
   monotone and its iterates end at the fixed point, as nothing moves for ever).  A nearly solved v
   is shifted by its residual times the expected number of moves, which makes it such a v.

Everything is widened by what rounding can have done.  Cost: a linear solve over the states for
each policy.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import LinAlgWarning, lu_factor, lu_solve
from scipy.sparse import csc_array
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import splu
from threadpoolctl import ThreadpoolController

from fmdp.planning.flat import (
    Components,
    Flat,
    Floats,
    Indices,
    Mask,
    end_components,
    rounding_of,
    routes,
)

DENSE_STATES = 1500
"""Systems up to this many unknowns are solved as dense ones,"""
FULL_STATES = 4096
"""up to this many if a twentieth of the matrix is not zero,"""
SPARSE_STATES = 1 << 13
"""and up to this many as sparse ones; larger ones are not solved."""
_BLAS = ThreadpoolController()
_ROUNDS = 500
_NO_REWARDS = np.zeros((0, 1))
_REFINEMENTS = 3

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


@dataclass(frozen=True, eq=False)
class Gains:
    """The best gain of every state, between bounds, and a policy that attains it."""

    lower: Floats  # [S]
    upper: Floats  # [S]
    actions: Indices  # [S]
    components: Components


def best_gains(flat: Flat, check: Check = lambda: None) -> Gains | None:
    """Bounds on the best gain of every state; None where a system cannot be solved."""
    components = end_components(flat)
    parts = _inside_components(flat, components, check)
    if parts is None:
        return None
    if not (~components.inside).any():  # nothing ever leads from one to another
        lower, upper = parts.lower[components.label], parts.upper[components.label]
        return Gains(lower, upper, parts.actions, components)
    return _between_components(flat, components, parts, check)


@dataclass(frozen=True, eq=False)
class _Parts:
    """What is known of each component."""

    lower: Floats  # [components]
    upper: Floats  # [components]
    actions: Indices  # [S], -1 outside the components
    members: list[Indices]


def _inside_components(flat: Flat, components: Components, check: Check) -> _Parts | None:
    order = np.argsort(components.label, kind="stable")
    starts = np.searchsorted(components.label[order], np.arange(components.count + 1))
    members = [order[a:b] for a, b in itertools.pairwise(starts)]
    lower, upper = np.empty(components.count), np.empty(components.count)
    actions = np.full(flat.n_states, -1, dtype=np.int64)
    # A state alone: the best reward of the actions that stay.
    alone = np.flatnonzero(np.diff(starts) == 1)
    states = order[starts[alone]]
    rewards = np.where(components.inside[states], flat.rewards[states], -np.inf)
    noise = flat.reward_sizes[states] * rounding_of(flat.depth, 1)
    lower[alone], upper[alone] = (rewards - noise).max(axis=1), (rewards + noise).max(axis=1)
    actions[states] = (rewards - noise).argmax(axis=1)
    for number in np.flatnonzero(np.diff(starts) > 1):
        inside = np.zeros(flat.n_states, dtype=np.bool_)
        inside[members[number]] = True
        part = one_gain(flat, inside, components.inside, check)
        if part is None:
            return None
        lower[number], upper[number] = part.lower, part.upper
        actions[members[number]] = part.actions[members[number]]
    return _Parts(lower, upper, actions, members)


# ---- inside a component -------------------------------------------------------------------------


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
    successors = np.where(flat.possible[states], local[flat.successors[states]], 0)
    part = Flat(
        successors,
        flat.probabilities[states],
        flat.possible[states] & allowed[states][:, :, None],
        flat.rewards[states],
        flat.depth,
        flat.reward_sizes[states],
    )
    usable = allowed[states]
    policy = np.argmax(usable, axis=1) if start is None else start[states].copy()
    best: tuple[float, Floats] | None = None
    # Better policies may have larger gaps for a while, one state after the other turning round;
    # more of them in a row than there are states are rounding going in circles.
    patience, since = 16 + min(len(states), 200), 0
    for _ in range(_ROUNDS):
        check()
        prepared = _with_one_class(part, usable, policy)
        if prepared is None:
            break
        policy, anchor = prepared
        found = _bias(part, policy, anchor)
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
    """Strongly connected sets of a chain, and the numbers of those that it never leaves."""
    n = len(rows)
    origin, place = np.nonzero(possible)
    successor = rows[origin, place]
    graph = csc_array((np.ones(len(origin), dtype=np.int8), (origin, successor)), shape=(n, n))
    count, label = connected_components(graph, connection="strong")
    left = np.unique(label[origin][label[origin] != label[successor]])
    return label.astype(np.int64), np.setdiff1d(np.arange(count), left).tolist()


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
    found = _bias(part, np.zeros(len(inside), dtype=np.int64), 0)
    return None if found is None else found[1]


def _bias(flat: Flat, policy: Indices, anchor: int) -> tuple[Floats, float] | None:
    """h and the gain with h + gain = r + P h of a policy with one recurrent class, `anchor` in it.

    The unknown h(anchor) is 0 and its column stands for the gain.  What rounding leaves of the
    equation is solved for again.
    """
    everyone = np.arange(flat.n_states)
    rows, weights = flat.successors[everyone, policy], flat.probabilities[everyone, policy]
    weights = np.where(flat.possible[everyone, policy], weights, 0.0)
    solve = _solver(rows, weights, anchor)
    if solve is None:
        return None
    reward = flat.rewards[everyone, policy]
    h = np.zeros(flat.n_states)
    gain = 0.0
    for _ in range(_REFINEMENTS):
        step = solve(reward - gain + (weights * (h[rows] - h[:, None])).sum(axis=1))
        if not np.isfinite(step).all():
            return None
        gain += float(step[anchor])
        step[anchor] = 0.0
        h += step
    return h, gain


def _solver(
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
    diagonal = np.bincount(origin[away], weight[away], n)
    diagonal[~weights.any(axis=1)] = 1.0
    origin, target, weight = origin[away], target[away], weight[away]
    if n <= DENSE_STATES or (n <= FULL_STATES and 20 * len(weight) > n * n):
        matrix = np.diag(diagonal)
        np.subtract.at(matrix, (origin, target), weight)
        if anchor is not None:
            matrix[:, anchor] = 1.0
        # On one thread: on several the last bits would depend on how many there are.
        with warnings.catch_warnings(), _BLAS.limit(limits=1, user_api="blas"):
            warnings.simplefilter("error", LinAlgWarning)
            try:
                factors = lu_factor(matrix)
            except (LinAlgWarning, ValueError):
                return None
        return lambda right: _solved(factors, right)
    if n > SPARSE_STATES:
        return None
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


def _solved(factors: Any, right: Floats) -> Floats:
    with _BLAS.limit(limits=1, user_api="blas"):
        return np.asarray(lu_solve(factors, right))


# ---- between components -------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Quotient:
    """Components as points: moves are the (state, action) pairs that belong to no component."""

    node: Indices
    """[S]: component, or a number of its own."""
    count: int
    state: Indices  # [moves], sorted by the node they start from
    action: Indices  # [moves]
    rows: Indices  # [moves, width], nodes
    weights: Floats  # [moves, width]
    nodes: Indices
    """Nodes that have moves."""
    first: Indices
    """Where the moves of each begin."""
    depth: int

    def gained(self, v: Floats, reward: float) -> tuple[Floats, Floats]:
        """reward + P v - v of every move, by differences, and how far rounding can move each."""
        moved = self.weights * (v[self.rows] - v[self.node[self.state]][:, None])
        noise = np.abs(moved).sum(axis=1) + reward
        return reward + moved.sum(axis=1), noise * rounding_of(self.depth, self.rows.shape[1])

    def best(self, values: Floats) -> Floats:
        """[nodes of the quotient], -inf where there is no move."""
        best = np.full(self.count, -np.inf)
        if len(values):
            best[self.nodes] = np.maximum.reduceat(values, self.first)
        return best


def _quotient(flat: Flat, components: Components) -> _Quotient:
    node = components.label.copy()
    free = np.flatnonzero(node < 0)
    node[free] = components.count + np.arange(len(free))
    state, action = np.nonzero(~components.inside)
    order = np.argsort(node[state], kind="stable")
    state, action = state[order], action[order]
    nodes, first = np.unique(node[state], return_index=True)
    return _Quotient(
        node,
        components.count + len(free),
        state,
        action,
        node[flat.successors[state, action]],
        np.where(flat.possible[state, action], flat.probabilities[state, action], 0.0),
        nodes,
        first.astype(np.int64),
        flat.depth,
    )


def _between_components(
    flat: Flat, components: Components, parts: _Parts, check: Check
) -> Gains | None:
    quotient = _quotient(flat, components)
    stop_lower = np.full(quotient.count, -np.inf)
    stop_upper = np.full(quotient.count, -np.inf)
    stop_lower[: components.count] = parts.lower
    stop_upper[: components.count] = parts.upper
    low = _stop_or_move(quotient, stop_lower, 0.0, check)
    high = _stop_or_move(quotient, stop_upper, 0.0, check)
    slowest = _stop_or_move(quotient, np.where(np.isfinite(stop_lower), 0.0, -np.inf), 1.0, check)
    if low is None or high is None or slowest is None:
        return None
    w = 1.0 + 1.001 * slowest[0]
    moved, noise = quotient.gained(w, 0.0)
    # w falls by at least this much on average in every move: 1 but for rounding.
    fall = min(1.0, -float((moved + noise).max(initial=-1.0)))
    if not fall > 0.0:
        return None
    # From above: v + e w, where e times the fall is how far v is below T v.
    v, _ = high
    gained, noise = quotient.gained(v, 0.0)
    short = np.maximum(stop_upper - v, quotient.best(gained + noise))
    upper = v + (1.001 / fall) * float(short.max(initial=0.0)) * w
    # From below: the same with the moves of one policy alone, which need not all be the best.
    v, move = low
    gained, noise = quotient.gained(v, 0.0)
    lost = (noise - gained)[move[move >= 0]]
    lower = v - (1.001 / fall) * float(lost.max(initial=0.0)) * w
    lower[move < 0] = stop_lower[move < 0]
    without_moves = np.isinf(quotient.best(gained))
    upper[without_moves] = stop_upper[without_moves]
    last = 4.0 * float(np.finfo(np.float64).eps) * float(np.abs(v).max())
    lower, upper = lower - last, upper + last
    actions = _policy(flat, components, parts, quotient, move)
    return Gains(lower[quotient.node], upper[quotient.node], actions, components)


def _stop_or_move(
    quotient: _Quotient, stop: Floats, reward: float, check: Check
) -> tuple[Floats, Indices] | None:
    """v = max(stop, reward + max P v) by policy iteration, and the move of every node (-1: stop).

    `reward` is paid for every move; with 1, and 0 for stopping, v is the largest expected number
    of moves.  A node that is no component cannot stop: its `stop` is -inf.
    """
    n = quotient.count
    move = np.full(n, -1, dtype=np.int64)
    forced = ~np.isfinite(stop)
    if len(quotient.nodes):
        begin = np.zeros(n, dtype=np.int64)
        begin[quotient.nodes] = quotient.first
        move[forced] = begin[forced]
    for _ in range(_ROUNDS):
        check()
        rows = np.zeros((n, quotient.rows.shape[1]), dtype=np.int64)
        weights = np.zeros(rows.shape)
        right = np.where(move < 0, np.where(forced, 0.0, stop), reward)
        moving = np.flatnonzero(move >= 0)
        rows[moving] = quotient.rows[move[moving]]
        weights[moving] = quotient.weights[move[moving]]
        solve = _solver(rows, weights)
        if solve is None:
            return None
        v = np.zeros(n)
        for _ in range(_REFINEMENTS):
            still = np.where(move < 0, v, 0.0)
            v = v + solve(right - still + (weights * (v[rows] - v[:, None])).sum(axis=1))
        if not np.isfinite(v).all():
            return None
        gained, noise = quotient.gained(v, reward)
        best = quotient.best(gained)
        held = np.zeros(n)
        held[moving] = gained[move[moving]]
        better = best > held + 2.0 * quotient.best(noise)
        if not better.any():
            return v, move
        at_best = gained >= best[quotient.node[quotient.state]]
        pick = np.full(n, -1, dtype=np.int64)
        pick[quotient.node[quotient.state[at_best]]] = np.flatnonzero(at_best)
        move = np.where(better, pick, move)
    return None


def _policy(
    flat: Flat,
    components: Components,
    parts: _Parts,
    quotient: _Quotient,
    move: Indices,
) -> Indices:
    """Stay in a component with its own policy, or go to the state where it is best left."""
    actions = parts.actions.copy()
    for number in np.flatnonzero(move[: components.count] >= 0):
        members = parts.members[number]
        exit_state = quotient.state[move[number]]
        target = np.zeros(flat.n_states, dtype=np.bool_)
        target[exit_state] = True
        if len(members) > 1:
            actions[members] = routes(flat, components.inside, target)[members]
        actions[exit_state] = quotient.action[move[number]]
    for state in np.flatnonzero(components.label < 0):
        actions[state] = quotient.action[move[quotient.node[state]]]
    return actions
