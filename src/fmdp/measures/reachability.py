"""Reachability in the graph of all actions, decided on the support of the tables.

There is an edge s -> s' if some allowed action has P_a(s' | s) > 0. The graph is strongly
connected, and the diameter finite, if and only if one state is reached from all (backwards) and
reaches all (forwards). Backwards: repeated backups of an indicator by elimination, one sweep per
layer, with every row replaced by the uniform law on its support, so that no product underflows.
Forwards: breadth-first search; the successors of (s, a) are a box, the product of the factors'
supports, and the search ends as soon as every state has been seen.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order, connected_components

from fmdp._base.compiled import njit
from fmdp.elimination.backup import Backup, backup_for
from fmdp.model import Alike, FactoredMDP
from fmdp.model.spaces import encode, starts, strides
from fmdp.planning.tabular.model import Successors

Indices = NDArray[np.int64]

OPERATIONS = 4_000_000_000
"""Default limit of a check, in marks and multiply-adds: seconds."""
EDGE_LIMIT = 20_000_000
"""Largest number of edges of the graph of all actions in memory."""


def without_rewards(model: FactoredMDP) -> FactoredMDP:
    """Return the model without rewards."""
    s = model.structure
    structure = replace(
        s,
        reward_scopes=(),
        reward_ranges=(),
        reward_names=(),
        alike=None if s.alike is None else Alike(s.alike.transitions, ()),
        effects=None
        if s.effects is None
        else replace(s.effects, rewards=(), after_reward_scopes=()),
    )
    return FactoredMDP(structure, model.transitions, ())


def uniform_on_support(model: FactoredMDP) -> FactoredMDP:
    """Return the model without rewards, every row uniform on its support: no product is below
    1/S."""
    bare = without_rewards(model)
    supports = [table > 0 for table in bare.transitions]
    rows = [support / support.sum(axis=1, keepdims=True) for support in supports]
    return FactoredMDP(bare.structure, rows, ())


def is_communicating(model: FactoredMDP, operations: int | None = OPERATIONS) -> bool | None:
    """Return whether every state reaches every other under some policy.

    Parameters
    ----------
    model
        The model; only the zeros of its tables matter.
    operations
        Limit of the work, in marks and multiply-adds; None for no limit.

    Returns
    -------
    bool or None
        None if the limit was reached.
    """
    uniform = uniform_on_support(model)
    root = encode(model.initial_state, model.structure.state_sizes)
    backwards = _reached_by_all(backup_for(uniform), root, operations)
    if backwards is not True:
        return backwards
    return _reaches_all(uniform, root, operations)


class Graph:
    """The graph of all actions, stored if it is sparse: depths and proper policies."""

    def __init__(self, model: FactoredMDP) -> None:
        self.model = model
        self.successors = Successors(model)
        structure = model.structure
        n, width = structure.n_states, self.successors.width
        self.is_sparse = 16 * width <= n and structure.n_actions * n * width <= EDGE_LIMIT
        if not self.is_sparse:
            return
        edges = np.zeros(0, dtype=np.int64)  # successor * S + state, so sorted by successor
        actions = np.zeros(0, dtype=np.int64)
        allowed_actions = structure.allowed_pairs().reshape(n, -1) % structure.n_actions
        for action in range(structure.n_actions):
            columns, weights = self.successors.rows(allowed_actions[:, action])
            possible = weights > 0
            keys = (columns * n + np.arange(n)[:, None])[possible]
            edges, first = np.unique(np.concatenate([edges, keys]), return_index=True)
            taken = np.broadcast_to(allowed_actions[:, action, None], possible.shape)[possible]
            actions = np.concatenate([actions, taken])[first]
        self.edges, self.actions = edges, actions
        successor, state = np.divmod(edges, n)
        starts = np.searchsorted(successor, np.arange(n + 1))
        # Edges from each state to its predecessors.
        self.reversed = csr_array((np.ones(len(edges)), state, starts), shape=(n, n))

    def depth(self, target: int) -> int:
        """Return the largest number of steps to the target on the graph; 0 if the graph is not
        stored."""
        if not self.is_sparse:
            return 0
        return int(levels(self.reversed, target)[0].max())

    def proper_policy(self, target: int) -> Indices:
        """Return for every state an action that comes closer to the target with positive
        probability."""
        if not self.is_sparse:
            return self._approach(target)
        _, nearer = levels(self.reversed, target)
        n = self.reversed.shape[0]
        states = np.delete(np.arange(n), target)
        actions = np.zeros(n, dtype=np.int64)
        where = np.searchsorted(self.edges, nearer[states] * n + states)
        actions[states] = self.actions[where]
        return actions

    def _approach(self, target: int) -> Indices:
        """Return the same without the graph, by backups of the indicator of the states reached
        so far."""
        backup = backup_for(uniform_on_support(self.model))
        reached = np.zeros(backup.n_states)
        reached[target] = 1.0
        actions = np.zeros(backup.n_states, dtype=np.int64)
        while not reached.all():
            value, best = backup.greedy(reached)
            new = (value > 0.0) & (reached == 0.0)
            actions[new] = best[new]
            reached[new] = 1.0
        return actions


def levels(graph: csr_array, root: int) -> tuple[Indices, Indices]:
    """Return the distance of every state from the root, and the state before it on a shortest
    path."""
    order, before = breadth_first_order(graph, root)
    level = np.zeros(graph.shape[0], dtype=np.int64)
    for state in order[1:]:
        level[state] = level[before[state]] + 1
    return level, before.astype(np.int64)


def closed_classes(support: csr_array | NDArray[np.bool_]) -> list[Indices]:
    """Return the closed strongly connected sets of a graph [n, n]."""
    count, label = connected_components(support, connection="strong")
    origin, successor = support.nonzero()
    leaving = set(label[origin][label[origin] != label[successor]].tolist())
    return [np.flatnonzero(label == number) for number in range(count) if number not in leaving]


def _reached_by_all(backup: Backup, root: int, operations: int | None) -> bool | None:
    cost = max(1, backup.layout.multiply_adds)
    reached = np.zeros(backup.n_states)
    reached[root] = 1.0
    n_reached, spent = 1, 0
    while n_reached < backup.n_states:
        if operations is not None and spent > operations:
            return None
        # Positive, at least 1/S, exactly if some action has a reached successor.
        reached[backup.apply(reached) > 0.0] = 1.0
        spent += cost
        now = int(reached.sum())
        if now == n_reached:
            return False
        n_reached = now
    return True


class _Supports(NamedTuple):
    """The supports of all rows, as steps in the joint index, for the compiled search.

    Those of row r of factor i are step[start[first_row[i] + r] : start[first_row[i] + r + 1]].
    """

    sizes: Indices  # of all variables, states then actions
    strides: Indices  # of the states in the joint state, of the actions in the joint action
    weights: Indices  # [m, variables]: the step in the rows of table i when a variable grows by one
    first_row: Indices  # [m]
    start: Indices
    step: Indices


def _supports(model: FactoredMDP) -> _Supports:
    structure = model.structure
    state_strides = strides(structure.state_sizes)
    weights = np.zeros((structure.m, len(structure.sizes)), dtype=np.int64)
    counts, steps = [], []
    for i, (scope, table) in enumerate(
        zip(structure.transition_scopes, model.transitions, strict=True)
    ):
        weights[i, list(scope)] = strides(structure.scope_sizes(scope))
        rows, values = np.nonzero(table)
        counts.append(np.bincount(rows, minlength=len(table)))
        steps.append(values.astype(np.int64) * state_strides[i])
    return _Supports(
        sizes=np.array(structure.sizes, dtype=np.int64),
        strides=np.array([*state_strides, *strides(structure.action_sizes)], dtype=np.int64),
        weights=weights,
        first_row=np.array(structure.row_starts[:-1], dtype=np.int64),
        start=starts(np.concatenate(counts)),
        step=np.concatenate(steps),
    )


def _reaches_all(model: FactoredMDP, root: int, operations: int | None) -> bool | None:
    structure = model.structure
    most = -1 if operations is None else operations
    allowed = np.zeros((0, 0), dtype=np.bool_)
    if structure.constraints:
        allowed = structure.allowed_mask()
    sizes = (structure.n_states, structure.n_actions)
    answer = _search(root, *sizes, _supports(model), allowed, most)
    return None if answer < 0 else bool(answer)


@njit()
def _search(
    root: int,
    n_states: int,
    n_actions: int,
    supports: _Supports,
    allowed: NDArray[np.bool_],
    operations: int,
) -> int:  # pragma: no cover - compiled
    """Return 1 if the root reaches every state, 0 if not, -1 if the operations ran out.

    `allowed` is [S, A], or empty if every action is allowed.
    """
    sizes, all_strides, weights = supports.sizes, supports.strides, supports.weights
    first_row, start, step = supports.first_row, supports.start, supports.step
    m = first_row.shape[0]
    seen = np.zeros(n_states, dtype=np.bool_)
    queue = np.empty(n_states, dtype=np.int64)
    seen[root] = True
    queue[0] = root
    head, tail, spent = 0, 1, 0
    n_variables = len(sizes)
    base = np.empty(m, dtype=np.int64)  # row of each factor for the state, without the action
    row = np.empty(m, dtype=np.int64)
    at = np.empty(m, dtype=np.int64)
    while head < tail:
        state = queue[head]
        head += 1
        for i in range(m):
            base[i] = 0
            for v in range(m):
                base[i] += weights[i, v] * (state // all_strides[v] % sizes[v])
        for action in range(n_actions):
            if allowed.size and not allowed[state, action]:
                continue
            successor = 0
            for i in range(m):
                row[i] = first_row[i] + base[i]
                for v in range(m, n_variables):
                    row[i] += weights[i, v] * (action // all_strides[v] % sizes[v])
                at[i] = start[row[i]]
                successor += step[at[i]]
            # An odometer over the box of successors, the last variable fastest.
            while True:
                spent += 1
                if not seen[successor]:
                    seen[successor] = True
                    queue[tail] = successor
                    tail += 1
                i = m - 1
                while i >= 0:
                    successor -= step[at[i]]
                    at[i] += 1
                    if at[i] < start[row[i] + 1]:
                        successor += step[at[i]]
                        break
                    at[i] = start[row[i]]
                    successor += step[at[i]]
                    i -= 1
                if i < 0:
                    break
            if tail == n_states:
                return 1
            if operations >= 0 and spent > operations:
                return -1
    return 0
