"""A small model written out: every row of every state and action, and its end components.

An end component is a set of states with actions that never leave it and between whose states some
policy can move for ever (de Alfaro 1997).  Whatever a policy does, it ends in one surely, so the
best gain from a state is decided by the best gain inside each maximal end component and by which
of them can be reached how surely.  Only zeros and non-zeros of the tables decide the components.

Cost: memory for states x actions x successors; a few passes over them for the components.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fmdp.model import FactoredMDP
from fmdp.model.spaces import project_some
from fmdp.planning.tabular.chains import Actions, Successors

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]
Mask = NDArray[np.bool_]

ENTRIES = 1 << 23
"""States x actions x successors up to which a model is written out."""
BYTES_AN_ENTRY = 64
"""Of the lists and of what is computed from them."""
REACHABLE_STATES = 256
"""Up to which all ways between states are written out."""
_TRIES = 8
_CACHED_ENTRIES = 1 << 14
"""That `advantages` works on at a time."""


@dataclass(frozen=True, eq=False)
class Flat:
    """Rows of a model; entries of probability 0 fill up the shorter ones."""

    successors: Indices  # [S, A, width]
    probabilities: Floats  # [S, A, width]
    possible: Mask
    """[S, A, width]: by the supports of the factors, since a product may underflow."""
    rewards: Floats  # [S, A]
    depth: int
    """Factors behind each probability and reward: roundings that they carry."""
    reward_sizes: Floats
    """[S, A]: the sums of |reward| over the factors, at which the sums were rounded."""
    stands: Indices | None = None
    """[S, A]: the action whose row is written, where constraints forbid some: a forbidden action is
    the lowest that is allowed, under another number, which changes no value, gain or component."""

    @property
    def n_states(self) -> int:
        return int(self.successors.shape[0])

    @property
    def n_actions(self) -> int:
        return int(self.successors.shape[1])

    def played(self, actions: Indices) -> Indices:
        """What a policy [S] over the numbers of the rows does: allowed actions alone."""
        if self.stands is None:
            return actions
        return np.take_along_axis(self.stands, actions[:, None], axis=1)[:, 0]

    def advantages(self, h: Floats, at: Floats | None = None) -> tuple[Floats, Floats]:
        """r + P h - h for every state and action, and how far rounding can move each: [S, A]; `at`
        is h of the states themselves, where these are not those that h is of.

        Summed as r + sum p (h' - h): what stays in place costs no digits, so that a state that is
        left once in 10^9 steps is as precise as any.  Rows are taken as what they lead to; the
        probability of staying is what is left.
        """
        own = h if at is None else at
        worth, noise = self.rewards.copy(), self.reward_sizes.copy()
        # A few states at a time: what is in between stays in the processor's cache.
        at_once = max(1, _CACHED_ENTRIES // max(1, self.successors[0].size))
        for start in range(0, self.n_states, at_once):
            some = slice(start, start + at_once)
            moved = h[self.successors[some]]
            moved -= own[some, None, None]
            moved *= self.probabilities[some]
            worth[some] += moved.sum(axis=2)
            noise[some] += np.abs(moved, out=moved).sum(axis=2)
        noise *= rounding_of(self.depth, self.successors.shape[2])
        return worth, noise


def rounding_of(depth: int, terms: int) -> float:
    """Relative error of a sum of so many products of `depth` factors, rounded up generously."""
    return 2 * (depth + terms + 4) * float(np.finfo(np.float64).eps)


def flat_of(model: FactoredMDP, entries: int = ENTRIES) -> Flat | None:
    """The model written out; None if it has more entries than that."""
    structure = model.structure
    n_states, n_actions = structure.n_states, structure.n_actions
    if n_states * n_actions > entries:
        return None
    lists = Successors(model)
    if n_states * n_actions * lists.width > entries:
        return None
    pairs = structure.allowed_pairs()
    written = _written(model, lists, pairs, n_actions)
    if not structure.constraints:
        return written
    return replace(written, stands=pairs.reshape(n_states, n_actions) % n_actions)


def chain_of(model: FactoredMDP, actions: Actions, entries: int = ENTRIES) -> Flat | None:
    """The chain of a policy [S] as a model with one action; None if it has too many entries."""
    n_states = model.structure.n_states
    if n_states > entries:
        return None
    lists = Successors(model)
    if n_states * lists.width > entries:
        return None
    pairs = np.arange(n_states) * model.structure.n_actions + actions
    return _written(model, lists, pairs, 1)


def pairs_of(model: FactoredMDP, lists: Successors, pairs: Indices) -> Flat:
    """Any pairs, each state * actions + action, as if each were a state with one action; successors
    are states of the model."""
    return _written(model, lists, pairs, 1)


def _written(model: FactoredMDP, lists: Successors, pairs: Indices, n_actions: int) -> Flat:
    structure = model.structure
    columns, weights, possible = lists.rows_of(pairs)
    rewards, sizes = np.zeros(len(pairs)), np.zeros(len(pairs))
    for scope, means in zip(structure.reward_scopes, model.rewards, strict=True):
        own = means[project_some(structure.sizes, scope, pairs)]
        rewards += own
        sizes += np.abs(own)
    shape = (len(pairs) // n_actions, n_actions, -1)
    return Flat(
        columns.reshape(shape),
        weights.reshape(shape),
        possible.reshape(shape),
        rewards.reshape(shape[:2]),
        structure.m + structure.l,
        sizes.reshape(shape[:2]),
    )


@dataclass(frozen=True, eq=False)
class Components:
    """The maximal end components."""

    label: Indices
    """[S]: the number of the state's component; -1 for a state that every policy leaves."""
    inside: Mask
    """[S, A]: the actions that stay in the state's component."""
    count: int


def end_components(flat: Flat, allowed: Mask | None = None) -> Components:
    """Repeatedly: strongly connected sets, less the actions that may leave them."""
    n_states = flat.n_states
    everything = np.ones((n_states, flat.n_actions), dtype=np.bool_)
    inside = everything if allowed is None else allowed.copy()
    one = only_class(flat.successors, flat.possible & inside[:, :, None])
    if one is not None and one.all() and inside.any(axis=1).all():
        return Components(np.zeros(n_states, dtype=np.int64), inside, 1)
    while True:
        state, action, _ = edge = np.nonzero(flat.possible & inside[:, :, None])
        successor = flat.successors[edge]
        label = connected_sets(n_states, state, successor)
        # A successor without an action that stays is in no component.
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
    """How many strongly connected sets the edges between n nodes make, and the one of each node,
    numbered as SciPy does."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    graph = csr_array((np.ones(len(origin), dtype=np.int8), (origin, target)), shape=(n, n))
    count, label = connected_components(graph, connection="strong")
    return int(count), label.astype(np.int64)


def connected_sets(n: int, origin: Indices, target: Indices) -> Indices:
    """The same sets, numbered anyhow."""
    reached = reachable(n, origin, target)
    if reached is None:
        return strongly_connected(n, origin, target)[1]
    first: Indices = (reached & reached.T).argmax(axis=1)
    return first


def reachable(n: int, origin: Indices, target: Indices) -> Mask | None:
    """[n, n]: whether a way leads from one node to another, or it is the same; None where there are
    many nodes.  Most small graphs are understood by it alone, and SciPy need not be loaded, which
    takes longer than to plan for a small model.  Cost: n^3."""
    if n > REACHABLE_STATES:
        return None
    reached = np.eye(n, dtype=np.bool_)
    reached[origin, target] = True
    for node in range(n):  # Warshall (1962): ways through the nodes so far
        reached |= reached[:, node, None] & reached[node]
    return reached


def only_class(successors: Indices, possible: Mask, most: int = REACHABLE_STATES) -> Mask | None:
    """The states of the only set that is never left, by the successors [S, ...] that are possible;
    None where there are several, it is not found in a few tries, or there are more than `most`
    states. Most small models have one, and to find it takes a fraction of what all ways between all
    states take.  Cost: a pass over the successors, and S^2 a try."""
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
        if not for_good.any():  # whoever is reached comes back
            return steps >= 0 if back.all() else None
        # From as far as possible: at the end of a long corridor one look is enough.
        node = int(np.where(for_good, steps, -1).argmax())
    return None


def _steps_to(edges: Mask, node: int) -> Indices:
    """[n]: the least number of steps from the node to each; -1 where no way leads there."""
    steps = np.full(len(edges), -1, dtype=np.int64)
    steps[node] = 0
    new = np.array([node])
    while len(new):
        found = edges[new].any(axis=0) & (steps < 0)
        steps[found] = steps[new[0]] + 1
        new = np.flatnonzero(found)
    return steps


def routes(flat: Flat, allowed: Mask, target: Mask) -> Indices:
    """For every state an allowed action that may come one step nearer to the target.

    Inside an end component such a policy reaches the target surely: from every state it does so
    with positive probability within S steps.  -1 on the target and where there is no way.
    """
    chosen = np.full(flat.n_states, -1, dtype=np.int64)
    seen = target.copy()
    state, action, place = np.nonzero(flat.possible & allowed[:, :, None])
    successor = flat.successors[state, action, place]
    order = np.argsort(successor, kind="stable")
    state, action = state[order], action[order]
    starts = np.searchsorted(successor[order], np.arange(flat.n_states + 1))
    layer = np.flatnonzero(target)
    while len(layer):
        into = np.concatenate([np.arange(starts[s], starts[s + 1]) for s in layer])
        into = into[~seen[state[into]]]
        layer, first = np.unique(state[into], return_index=True)
        chosen[layer] = action[into[first]]
        seen[layer] = True
    return chosen
