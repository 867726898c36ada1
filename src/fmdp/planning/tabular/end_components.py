"""End components of a model that is written out, and the graph algorithms behind them.

An end component is a set of states with actions that never leave it and between whose states some
policy can move for ever (de Alfaro 1997).  Every policy ends in one almost surely, so the optimal
gain of a state follows from the optimal gain inside each maximal end component and from how surely
each of them can be reached.  Only zeros and non-zeros of the tables decide the components.

Cost: a few passes over the successors of all states and actions.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fmdp.planning.tabular.model import Indices, Mask, TabularModel

REACHABLE_STATES = 256
"""Largest graph whose reachability is written out as a matrix, without loading SciPy."""
_TRIES = 8
"""States from which `only_class` looks for the class that is never left."""


@dataclass(frozen=True, eq=False)
class Components:
    """The maximal end components of a model."""

    label: Indices
    """[S]: the number of the state's component; -1 for a state that every policy leaves."""
    inside: Mask
    """[S, A]: the actions that stay in the state's component."""
    count: int


def end_components(model: TabularModel, allowed: Mask | None = None) -> Components:
    """Return the maximal end components of the allowed actions [S, A], all by default.

    Strongly connected sets are found, and actions that may leave them removed, until none leaves.
    """
    n_states = model.n_states
    everything = np.ones((n_states, model.n_actions), dtype=np.bool_)
    inside = everything if allowed is None else allowed.copy()
    closed = only_class(model.successors, model.possible & inside[:, :, None])
    if closed is not None and closed.all() and inside.any(axis=1).all():
        return Components(np.zeros(n_states, dtype=np.int64), inside, 1)
    while True:
        state, action, _ = edge = np.nonzero(model.possible & inside[:, :, None])
        successor = model.successors[edge]
        label = connected_sets(n_states, state, successor)
        # A state without an action that stays is in no component.
        label[~inside.any(axis=1)] = -1
        leaves = np.zeros_like(inside)
        elsewhere = label[successor] != label[state]
        leaves[state[elsewhere], action[elsewhere]] = True
        if not leaves.any():
            break
        inside &= ~leaves
    held = label >= 0
    if (label[held] == label[held].max(initial=0)).all():
        return Components(np.where(held, 0, -1), inside, int(held.any()))
    # Sums over several components are taken in the order of SciPy's numbers.
    label = strongly_connected(n_states, state, successor)[1]
    numbers = np.full(n_states, -1, dtype=np.int64)
    names, numbers[held] = np.unique(label[held], return_inverse=True)
    return Components(numbers, inside, len(names))


def strongly_connected(n: int, origin: Indices, target: Indices) -> tuple[int, Indices]:
    """Return the number of strongly connected sets of a graph, and the set of each of its n nodes.

    Sets are numbered as SciPy does.
    """
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    graph = csr_array((np.ones(len(origin), dtype=np.int8), (origin, target)), shape=(n, n))
    count, label = connected_components(graph, connection="strong")
    return int(count), label.astype(np.int64)


def connected_sets(n: int, origin: Indices, target: Indices) -> Indices:
    """Return the strongly connected set of each node, under any numbers."""
    reached = reachable(n, origin, target)
    if reached is None:
        return strongly_connected(n, origin, target)[1]
    first: Indices = (reached & reached.T).argmax(axis=1)
    return first


def reachable(n: int, origin: Indices, target: Indices) -> Mask | None:
    """Return whether a path leads from each node to each other, [n, n]; None for large graphs.

    Small graphs need nothing else, and SciPy, which takes longer to load than a small plan takes to
    make, stays unloaded.  Cost: n^3.
    """
    if n > REACHABLE_STATES:
        return None
    reached = np.eye(n, dtype=np.bool_)
    reached[origin, target] = True
    for node in range(n):  # Warshall (1962): paths through the nodes so far
        reached |= reached[:, node, None] & reached[node]
    return reached


def only_class(successors: Indices, possible: Mask, most: int = REACHABLE_STATES) -> Mask | None:
    """Return the states [S] of the only set that is never left, given successors [S, ...].

    None if there are several such sets, if it is not found in a few tries, or if there are more
    than `most` states.  Most small models have one, and finding it takes a fraction of the time of
    full reachability.  Cost: a pass over the successors, and S^2 per try.
    """
    n = len(successors)
    if n > most:
        return None
    edges = np.zeros((n, n), dtype=np.bool_)
    first = n * np.arange(n).reshape(n, *[1] * (successors.ndim - 1))
    edges.ravel()[(successors + first)[possible]] = True
    node = 0
    for _ in range(_TRIES):
        steps, back = _steps_to(edges, node), _steps_to(edges.T, node) >= 0
        for_good = (steps >= 0) & ~back
        if not for_good.any():  # every reachable state can return
            return steps >= 0 if back.all() else None
        # The farthest one: at the end of a long corridor one more try is enough.
        node = int(np.where(for_good, steps, -1).argmax())
    return None


def _steps_to(edges: Mask, node: int) -> Indices:
    """Return the least number of steps from a node to each one [n]; -1 if no path leads there."""
    steps = np.full(len(edges), -1, dtype=np.int64)
    steps[node] = 0
    new = np.array([node])
    while len(new):
        reached = edges[new].any(axis=0) & (steps < 0)
        steps[reached] = steps[new[0]] + 1
        new = np.flatnonzero(reached)
    return steps


def routes(model: TabularModel, allowed: Mask, target: Mask) -> Indices:
    """Return for every state an allowed action that may lead one step nearer to the target.

    Inside an end component such a policy reaches the target almost surely: from every state it does
    so with positive probability within S steps.  -1 on the target and where no path leads to it.
    """
    chosen = np.full(model.n_states, -1, dtype=np.int64)
    seen = target.copy()
    state, action, place = np.nonzero(model.possible & allowed[:, :, None])
    successor = model.successors[state, action, place]
    order = np.argsort(successor, kind="stable")
    state, action = state[order], action[order]
    starts = np.searchsorted(successor[order], np.arange(model.n_states + 1))
    layer = np.flatnonzero(target)
    while len(layer):
        into = np.concatenate([np.arange(starts[s], starts[s + 1]) for s in layer])
        into = into[~seen[state[into]]]
        layer, first = np.unique(state[into], return_index=True)
        chosen[layer] = action[into[first]]
        seen[layer] = True
    return chosen
