"""Certified optimal gains of every state of a small model, which may be multichain or mix slowly.

Value iteration cannot tell a gain that depends on the state from one that does not: its residual
may rest for as long as it takes until the horizon pays for changing class.  Here both are decided.

1. Inside a maximal end component (end_components.py) the optimal gain is one number, which policy
   iteration finds and an h certifies (policy_iteration.py).
2. Components shrunk to points leave a model in which every policy comes to rest.  The optimal gain
   of a state is the most that "stop here for the component's gain" is worth on average:

       v = max( gain of the component, max over the actions that leave of P v ).

   Any v with v >= T v is above it, any v that is at most T_pi v for one policy is below (T is
   monotone and its iterates end at the fixed point, as nothing moves for ever).  A nearly solved v
   is shifted by its residual times the expected number of moves, which makes it such a v.

Everything is widened by what rounding can have done.  Cost: a linear system over the states for
each policy.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from fmdp._base.deadlines import NEVER, Deadline
from fmdp.planning.tabular.end_components import Components, end_components, routes
from fmdp.planning.tabular.evaluation import REFINEMENTS, chain_resolvent
from fmdp.planning.tabular.model import Floats, Indices, TabularModel, relative_rounding
from fmdp.planning.tabular.policy_iteration import ROUNDS, optimal_gain


@dataclass(frozen=True, eq=False)
class Gains:
    """The optimal gain of every state, between bounds, and a policy that attains it."""

    lower: Floats  # [S]
    upper: Floats  # [S]
    actions: Indices  # [S]
    components: Components


def optimal_gains(
    model: TabularModel, deadline: Deadline = NEVER, start: Indices | None = None
) -> Gains | None:
    """Return bounds on the optimal gain of every state; None if a system cannot be solved.

    `start` is a policy [S] that may be near an optimal one.
    """
    components = end_components(model)
    parts = _inside_components(model, components, deadline, start)
    if parts is None:
        return None
    if not (~components.inside).any():  # nothing ever leads from one to another
        lower, upper = parts.lower[components.label], parts.upper[components.label]
        return Gains(lower, upper, parts.actions, components)
    return _between_components(model, components, parts, deadline)


@dataclass(frozen=True, eq=False)
class _Parts:
    """The optimal gain and policy of each component."""

    lower: Floats  # [components]
    upper: Floats  # [components]
    actions: Indices  # [S], -1 outside the components
    members: list[Indices]


def _inside_components(
    model: TabularModel, components: Components, deadline: Deadline, start: Indices | None
) -> _Parts | None:
    order = np.argsort(components.label, kind="stable")
    starts = np.searchsorted(components.label[order], np.arange(components.count + 1))
    members = [order[a:b] for a, b in itertools.pairwise(starts)]
    lower, upper = np.empty(components.count), np.empty(components.count)
    actions = np.full(model.n_states, -1, dtype=np.int64)
    # The gain of a component of one state is the best reward of the actions that stay.
    alone = np.flatnonzero(np.diff(starts) == 1)
    states = order[starts[alone]]
    rewards = np.where(components.inside[states], model.rewards[states], -np.inf)
    noise = model.reward_sizes[states] * relative_rounding(model.depth, 1)
    lower[alone], upper[alone] = (rewards - noise).max(axis=1), (rewards + noise).max(axis=1)
    actions[states] = (rewards - noise).argmax(axis=1)
    for number in np.flatnonzero(np.diff(starts) > 1):
        inside = np.zeros(model.n_states, dtype=np.bool_)
        inside[members[number]] = True
        stays = start is not None and components.inside[inside, start[inside]].all()
        part = optimal_gain(model, inside, components.inside, deadline, start if stays else None)
        if part is None:
            return None
        lower[number], upper[number] = part.lower, part.upper
        actions[members[number]] = part.actions[members[number]]
    return _Parts(lower, upper, actions, members)


# ---- between components -------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Quotient:
    """The model with components as points; moves are the (state, action) pairs outside them."""

    node: Indices
    """[S]: the component, or a new number for a state in none."""
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
        """Return reward + P v - v of every move, and how far rounding can move each."""
        moved = self.weights * (v[self.rows] - v[self.node[self.state]][:, None])
        noise = np.abs(moved).sum(axis=1) + reward
        return reward + moved.sum(axis=1), noise * relative_rounding(self.depth, self.rows.shape[1])

    def best(self, values: Floats) -> Floats:
        """Return the best value of a move of each node [count], -inf where there is no move."""
        best = np.full(self.count, -np.inf)
        if len(values):
            best[self.nodes] = np.maximum.reduceat(values, self.first)
        return best


def _quotient(model: TabularModel, components: Components) -> _Quotient:
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
        node[model.successors[state, action]],
        np.where(model.possible[state, action], model.probabilities[state, action], 0.0),
        nodes,
        first.astype(np.int64),
        model.depth,
    )


def _between_components(
    model: TabularModel, components: Components, parts: _Parts, deadline: Deadline
) -> Gains | None:
    quotient = _quotient(model, components)
    stop_lower = np.full(quotient.count, -np.inf)
    stop_upper = np.full(quotient.count, -np.inf)
    stop_lower[: components.count] = parts.lower
    stop_upper[: components.count] = parts.upper
    low = _stop_or_move(quotient, stop_lower, 0.0, deadline)
    high = _stop_or_move(quotient, stop_upper, 0.0, deadline)
    slowest = _stop_or_move(
        quotient, np.where(np.isfinite(stop_lower), 0.0, -np.inf), 1.0, deadline
    )
    if low is None or high is None or slowest is None:
        return None
    w = 1.0 + 1.001 * slowest[0]
    moved, noise = quotient.gained(w, 0.0)
    # w falls by at least this much on average in every move: by 1, up to rounding.
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
    actions = _policy(model, components, parts, quotient, move)
    return Gains(lower[quotient.node], upper[quotient.node], actions, components)


def _stop_or_move(
    quotient: _Quotient, stop: Floats, reward: float, deadline: Deadline
) -> tuple[Floats, Indices] | None:
    """Return v = max(stop, reward + max P v) and the move of every node, -1 for stopping.

    Policy iteration for optimal stopping.  `reward` is paid for every move; with 1, and 0 for
    stopping, v is the largest expected number of moves.  A node that is no component cannot stop:
    its `stop` is -inf.  None if a system is singular.
    """
    n = quotient.count
    move = np.full(n, -1, dtype=np.int64)
    forced = ~np.isfinite(stop)
    if len(quotient.nodes):
        begin = np.zeros(n, dtype=np.int64)
        begin[quotient.nodes] = quotient.first
        move[forced] = begin[forced]
    for _ in range(ROUNDS):
        deadline.check()
        rows = np.zeros((n, quotient.rows.shape[1]), dtype=np.int64)
        weights = np.zeros(rows.shape)
        right = np.where(move < 0, np.where(forced, 0.0, stop), reward)
        moving = np.flatnonzero(move >= 0)
        rows[moving] = quotient.rows[move[moving]]
        weights[moving] = quotient.weights[move[moving]]
        solve = chain_resolvent(rows, weights)
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
    model: TabularModel,
    components: Components,
    parts: _Parts,
    quotient: _Quotient,
    move: Indices,
) -> Indices:
    """Return the policy: stay in a component with its policy, or go to its best exit."""
    actions = parts.actions.copy()
    for number in np.flatnonzero(move[: components.count] >= 0):
        members = parts.members[number]
        exit_state = quotient.state[move[number]]
        target = np.zeros(model.n_states, dtype=np.bool_)
        target[exit_state] = True
        if len(members) > 1:
            actions[members] = routes(model, components.inside, target)[members]
        actions[exit_state] = quotient.action[move[number]]
    for state in np.flatnonzero(components.label < 0):
        actions[state] = quotient.action[move[quotient.node[state]]]
    return actions
