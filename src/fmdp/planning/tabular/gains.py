"""Certified gains of every state of a small model, one that may be multichain or mix slowly.

Value iteration cannot tell a gain that depends on the state from one that does not: its residual
may rest for as long as it takes until the horizon pays for changing class.  Here both are decided.

1. Inside a maximal end component (flat.py) the best gain is one number, which policy iteration
   finds and an h certifies (component.py).
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
from dataclasses import dataclass

import numpy as np

from fmdp.planning.tabular.component import REFINEMENTS, ROUNDS, Check, one_gain, solver
from fmdp.planning.tabular.flat import (
    Components,
    Flat,
    Floats,
    Indices,
    end_components,
    rounding_of,
    routes,
)


@dataclass(frozen=True, eq=False)
class Gains:
    """The best gain of every state, between bounds, and a policy that attains it."""

    lower: Floats  # [S]
    upper: Floats  # [S]
    actions: Indices  # [S]
    components: Components


def best_gains(
    flat: Flat, check: Check = lambda: None, start: Indices | None = None
) -> Gains | None:
    """Bounds on the best gain of every state; None where a system cannot be solved.

    `start` is a policy [S] that may be near the best one.
    """
    components = end_components(flat)
    parts = _inside_components(flat, components, check, start)
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


def _inside_components(
    flat: Flat, components: Components, check: Check, start: Indices | None
) -> _Parts | None:
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
        stays = start is not None and components.inside[inside, start[inside]].all()
        part = one_gain(flat, inside, components.inside, check, start if stays else None)
        if part is None:
            return None
        lower[number], upper[number] = part.lower, part.upper
        actions[members[number]] = part.actions[members[number]]
    return _Parts(lower, upper, actions, members)


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
    for _ in range(ROUNDS):
        check()
        rows = np.zeros((n, quotient.rows.shape[1]), dtype=np.int64)
        weights = np.zeros(rows.shape)
        right = np.where(move < 0, np.where(forced, 0.0, stop), reward)
        moving = np.flatnonzero(move >= 0)
        rows[moving] = quotient.rows[move[moving]]
        weights[moving] = quotient.weights[move[moving]]
        solve = solver(rows, weights)
        if solve is None:
            return None
        v = np.zeros(n)
        for _ in range(REFINEMENTS):
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
