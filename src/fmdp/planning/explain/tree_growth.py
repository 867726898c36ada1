"""Growing decision trees from a policy's table, exactly or cut down to fewer leaves.

A node is a box, a set of values for every state variable. A split compares one variable with one
value, or with the values up to one. The tree is grown greedily from the counts of actions by value,
with the split that leaves the least entropy,

    sum over the children of n log n - sum_a n_a log n_a      (n states, n_a of them with action a)

If no split reduces it (an exclusive or), the split is on a variable on which the action depends in
the box. Growth ends when every leaf is pure: the tree is exact. Then sibling leaves with the same
action are merged. For a smaller tree with errors the weakest links are cut, those with the least
loss per leaf saved (Breiman et al. 1984). This is greedy as well, so that no tree is guaranteed to
be the smallest. Errors are counted over all states. There is one tree per action variable.

A smaller tree must still be a policy that the model allows. Action variables that constraints tie
together share one tree, whose leaves contain all of their values. A node may become a leaf only if
some action is allowed in every state of its box; its label is then the most frequent one of these
actions. An action that is allowed in a box is allowed in every part of the box, so cutting further
never loses a possibility, and the tree in which nothing more can be cut is the smallest cut.

Cost: a pass over the states and variables for every level; 2^20 states take seconds.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmdp._base.memory import describe_bytes, describe_count
from fmdp.errors import InvalidParameter, TooLarge
from fmdp.model.constraints import MOST_ROWS, Constraint, Mask, forbidden_choices
from fmdp.model.spaces import count, decode, project, strides
from fmdp.planning.explain import tree_kernels
from fmdp.planning.explain.tree_kernels import (
    END,
    FIRST,
    FORBIDDEN,
    LABEL,
    LEAF,
    NO,
    UPTO,
    VALUE,
    VARIABLE,
    WRONG,
    YES,
    Ints,
)
from fmdp.planning.explain.trees import PolicyTree, Tree
from fmdp.planning.policies.policy import TablePolicy

MOST_STATES = 1 << 22
"""Most states of a policy that becomes a tree."""
MOST_VALUES = 1 << 12
"""Most values of a variable: every value is tried in every node."""
_MOST_COUNTS = 1 << 25
"""Most counts of values by actions, 8 bytes each."""
_TIME = float(1 << 40)
"""The weight of all time, against 1 for a state."""
_MOST_ALLOWED = 1 << 28
"""Most nodes times joint values of actions, one byte each."""


def grow(
    policy: TablePolicy,
    *,
    max_leaves: int | None = None,
    max_error: float | None = None,
    constraints: Sequence[Constraint] = (),
    shares: NDArray[np.float64] | None = None,
) -> PolicyTree:
    """Return the trees of a policy: exact, or cut down if a limit is given.

    `max_leaves` limits the leaves of all trees together, `max_error` the share of wrong states.
    With the share of time of every state, `shares` [S], states are weighted by it. The
    actions of smaller trees satisfy the constraints in every state. Raises InvalidParameter if no
    cut of the exact tree satisfies all of these, or if the policy violates the constraints;
    TooLarge if there are too many states or values.
    """
    sizes, action_sizes = policy.state_sizes, policy.action_sizes
    _refuse_many_values(sizes)
    _refuse_forbidden(policy.actions, policy, constraints)
    exact = max_leaves is None and max_error is None
    groups = _groups_of_actions(() if exact else constraints, len(sizes), len(action_sizes))
    if max_leaves is not None and max_leaves < len(groups):
        raise InvalidParameter(
            f"a policy with {len(groups)} action variables has a tree for each and at least "
            f"that many leaves; got at most {max_leaves}"
        )
    n_states = count(sizes)
    # States that are never visited count a little, so that they decide between equal cuts.
    weights = None if shares is None else 1 + np.rint(shares * _TIME).astype(np.int64)
    digits = _digits(sizes)
    values = np.unravel_index(policy.actions.astype(np.int64), action_sizes)
    labels = [_joint_values(values, action_sizes, group) for group in groups]
    grown = [_GrownTree(digits, of_group, sizes) for of_group in labels]
    if not exact:
        for tree, group, of_group in zip(grown, groups, labels, strict=True):
            all_sizes = (*sizes, *action_sizes)
            tree.allow_only(group, of_group, constraints, all_sizes, len(sizes), weights)
        total = n_states if weights is None else int(weights.sum())
        _cut(grown, max_leaves, math.inf if max_error is None else max_error * total)
    wrong = np.zeros(n_states, dtype=np.bool_)
    predicted: list[Any] = list(values)
    for group, tree, of_group in zip(groups, grown, labels, strict=True):
        joint = tree.predictions()
        wrong |= joint != of_group
        group_sizes = [action_sizes[action] for action in group]
        for action, of_action in zip(group, np.unravel_index(joint, group_sizes), strict=True):
            predicted[action] = of_action
    actions = np.ravel_multi_index(predicted, action_sizes)
    table = TablePolicy(sizes, action_sizes, actions, policy.naming)
    _refuse_forbidden(table.actions, policy, constraints)
    trees = tuple(
        tree.tree(group, tuple(action_sizes[action] for action in group))
        for group, tree in zip(groups, grown, strict=True)
    )
    lost = None if shares is None else float(shares[wrong].sum())
    return PolicyTree(trees, policy.naming, n_states, int(wrong.sum()), table, lost)


def _refuse_forbidden(
    actions: NDArray[Any], policy: TablePolicy, constraints: Sequence[Constraint]
) -> None:
    """Raise InvalidParameter if a table contains a forbidden action."""
    sizes = (*policy.state_sizes, *policy.action_sizes)
    m = len(policy.state_sizes)
    forbidden = forbidden_choices(constraints, actions.astype(np.int64), m, sizes)
    if forbidden.any():
        first = int(forbidden.argmax())
        naming = policy.naming
        pairs = [
            *naming.states.named(decode(first, policy.state_sizes)).items(),
            *naming.actions.named(decode(int(actions[first]), policy.action_sizes)).items(),
        ]
        raise InvalidParameter(
            f"the policy does what the constraints of the model forbid: "
            f"{', '.join(map('='.join, pairs))}"
        )


def _groups_of_actions(
    constraints: Sequence[Constraint], m: int, n_actions: int
) -> list[tuple[int, ...]]:
    """Return the action variables of every tree: a constraint ties its variables together."""
    groups = [{action} for action in range(n_actions)]
    for constraint in constraints:
        tied = {v - m for v in constraint.scope if v >= m}
        joined = tied.union(*(group for group in groups if group & tied))
        groups = [joined, *(group for group in groups if not group & joined)]
    return sorted(tuple(sorted(group)) for group in groups)


def _joint_values(
    values: Sequence[Ints], sizes: Sequence[int], group: Sequence[int]
) -> NDArray[np.int32]:
    """Return the joint value of some action variables in every state."""
    group_sizes = [sizes[action] for action in group]
    if count(group_sizes) > np.iinfo(np.int32).max:
        raise TooLarge(
            f"constraints tie {len(group)} action variables together, which have "
            f"{describe_count(count(group_sizes))} joint values: too many for one tree",
            count(group_sizes),
            np.iinfo(np.int32).max,
        )
    joint = np.ravel_multi_index([values[action] for action in group], group_sizes)
    return joint.astype(np.int32)


def _refuse_many_values(sizes: Sequence[int]) -> None:
    if max(sizes) > MOST_VALUES:
        raise TooLarge(
            f"a state variable has {max(sizes):,} values; at most {MOST_VALUES:,} can be told "
            f"apart in a tree",
            max(sizes),
            MOST_VALUES,
        )


def _digits(sizes: Sequence[int]) -> NDArray[Any]:
    """Return the value of every variable in every state: [S, m]."""
    n_states = count(sizes)
    places = np.arange(n_states)
    digits = np.empty((n_states, len(sizes)), dtype=np.uint8 if max(sizes) <= 256 else np.int32)
    for v, (step, size) in enumerate(zip(strides(sizes), sizes, strict=True)):
        digits[:, v] = places // step % size
    return digits


class _GrownTree:
    """An exact tree that can be cut, and the states of every node."""

    def __init__(self, digits: NDArray[Any], labels: NDArray[np.int32], sizes: Sequence[int]):
        n_states = len(labels)
        used, dense = np.unique(labels, return_inverse=True)
        offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        entries = int(offsets[-1]) * len(used)
        if entries > _MOST_COUNTS:
            raise TooLarge(
                f"{len(used):,} actions by {int(offsets[-1]):,} values are too many to be counted "
                f"in every node: {describe_bytes(8 * entries)}",
                8 * entries,
                8 * _MOST_COUNTS,
            )
        self.used = used
        self.samples = np.arange(n_states)
        nodes = np.zeros((1024, WRONG + 1), dtype=np.int64)
        nodes[0, [FIRST, END]] = 0, n_states
        done, made = 0, 1
        scratch = np.empty(n_states, dtype=np.int64)
        counts = np.empty(entries, dtype=np.int64)
        steps = np.array(strides(sizes), dtype=np.int64)
        while done < made:
            if made + 2 > len(nodes):
                nodes = np.concatenate([nodes, np.zeros_like(nodes)])
            done, made = tree_kernels.grow(
                digits,
                dense.astype(np.int64).reshape(-1),
                len(used),
                steps,
                offsets,
                self.samples,
                scratch,
                counts,
                nodes,
                done,
                made,
            )
        self.nodes = nodes[:made]
        tree_kernels.merge(self.nodes)

    def reached(self, *, leaves: bool) -> list[int]:
        """Return the leaves, or the inner nodes, that are part of the tree, parents first."""
        nodes, queue = [], [0]
        for node in queue:
            inner = self.nodes[node, VARIABLE] != LEAF
            if inner:
                queue += [int(self.nodes[node, YES]), int(self.nodes[node, NO])]
            if inner != leaves:
                nodes.append(node)
        return nodes

    def allow_only(
        self,
        group: Sequence[int],
        labels: NDArray[np.int32],
        constraints: Sequence[Constraint],
        sizes: Sequence[int],
        m: int,
        weights: Ints | None = None,
    ) -> None:
        """Label every node with the most frequent action that is allowed in all of its states.

        Nodes without such an action get `FORBIDDEN` wrong states. `group` contains the action
        variables of the tree, `labels` [S] their joint value in the policy, `sizes` the sizes of
        all variables, the m state variables first.
        """
        relevant = [constraint for constraint in constraints if constraint.scope[-1] - m in group]
        if not relevant and weights is None:
            return
        if relevant:
            kinds, allowed = _allowed_values(relevant, group, sizes, m)
        else:
            kinds = np.zeros(len(labels), dtype=np.int64)
            allowed = np.ones((1, int(self.used.max()) + 1), dtype=np.bool_)
        if len(self.nodes) * allowed.shape[1] > _MOST_ALLOWED:
            raise TooLarge(
                f"a smaller tree for {len(self.nodes):,} nodes and {allowed.shape[1]:,} joint "
                f"values of actions takes too much memory",
                len(self.nodes) * allowed.shape[1],
                _MOST_ALLOWED,
            )
        # The joint values of the policy come first, with their numbers in the tree.
        others = np.setdiff1d(np.arange(allowed.shape[1]), self.used)
        n_used, self.used = len(self.used), np.concatenate([self.used, others])
        number = np.empty(len(self.used), dtype=np.int64)
        number[self.used] = np.arange(len(self.used))
        fits = np.ones((len(self.nodes), len(self.used)), dtype=np.bool_)
        allowed = np.ascontiguousarray(allowed[:, self.used])
        counted = np.ones(len(labels), dtype=np.int64) if weights is None else weights
        tree_kernels.allow(
            self.nodes, self.samples, kinds, allowed, number[labels], n_used, fits, counted
        )

    def predictions(self) -> Ints:
        """Return the joint value of the tree in every state."""
        values = np.empty(len(self.samples), dtype=np.int64)
        for leaf in self.reached(leaves=True):
            first, end, label = self.nodes[leaf, [FIRST, END, LABEL]]
            values[self.samples[first:end]] = self.used[label]
        return values

    def tree(self, actions: tuple[int, ...], sizes: tuple[int, ...]) -> Tree:
        kept = sorted([*self.reached(leaves=False), *self.reached(leaves=True)])
        number = np.full(len(self.nodes), LEAF, dtype=np.int64)
        number[kept] = np.arange(len(kept))
        nodes = self.nodes[kept]
        inner = nodes[:, VARIABLE] != LEAF
        yes, no = (np.where(inner, number[nodes[:, column]], LEAF) for column in (YES, NO))
        return Tree(
            actions,
            sizes,
            nodes[:, VARIABLE].copy(),
            nodes[:, VALUE].copy(),
            nodes[:, UPTO] > 0,
            yes,
            no,
            self.used[nodes[:, LABEL]].astype(np.int64),
        )


def _allowed_values(
    constraints: Sequence[Constraint], group: Sequence[int], sizes: Sequence[int], m: int
) -> tuple[Ints, Mask]:
    """Return a kind for every state, and which joint values of a group each kind allows.

    The kind [S] is the assignment of the state variables in the constraints. The second array,
    [kinds, joint values of the group], is True if no constraint forbids the value.
    """
    looked_at = sorted({v for constraint in constraints for v in constraint.scope if v < m})
    scope = [*looked_at, *(m + action for action in group)]
    scope_sizes = [sizes[v] for v in scope]
    rows = count(scope_sizes)
    if rows > MOST_ROWS:
        raise TooLarge(
            f"constraints that share action variables are over {describe_count(rows)} "
            f"assignments; at most {describe_count(MOST_ROWS)} can be kept in a smaller tree",
            rows,
            MOST_ROWS,
        )
    place = {v: index for index, v in enumerate(scope)}
    forbidden = np.zeros(rows, dtype=np.bool_)
    for constraint in constraints:
        own_rows = project(scope_sizes, [place[v] for v in constraint.scope])
        forbidden |= constraint.forbidden_table(sizes)[own_rows]
    kinds = project(sizes[:m], looked_at)
    return kinds, ~forbidden.reshape(count(scope_sizes[: len(looked_at)]), -1)


# ---- cutting -------------------------------------------------------------------------------------


class _Subtrees:
    """The number of leaves and of wrong states below every node of a tree, while it is cut."""

    def __init__(self, tree: _GrownTree) -> None:
        self.nodes = tree.nodes
        self.inner = tree.reached(leaves=False)
        self.parent: dict[int, int] = {}
        self.leaves: dict[int, int] = {}
        self.wrong: dict[int, int] = {}
        for leaf in tree.reached(leaves=True):
            self._set_leaf(leaf)
        for node in reversed(self.inner):
            yes, no = int(self.nodes[node, YES]), int(self.nodes[node, NO])
            self.parent[yes] = self.parent[no] = node
            self.leaves[node] = self.leaves[yes] + self.leaves[no]
            self.wrong[node] = self.wrong[yes] + self.wrong[no]

    def _set_leaf(self, node: int) -> None:
        self.leaves[node], self.wrong[node] = 1, int(self.nodes[node, WRONG])

    def can_cut(self, node: int) -> bool:
        return bool(self.nodes[node, WRONG] != FORBIDDEN)

    def loss(self, node: int) -> int:
        """Return how many more states are wrong if the node becomes a leaf."""
        return int(self.nodes[node, WRONG]) - self.wrong[node]

    def is_inner(self, node: int) -> bool:
        """Return whether the node is an inner node of what is left of the tree."""
        if self.nodes[node, VARIABLE] == LEAF:
            return False
        while node in self.parent:
            node = self.parent[node]
            if self.nodes[node, VARIABLE] == LEAF:
                return False
        return True

    def cut(self, node: int) -> list[int]:
        """Make a leaf of the node and return its ancestors, whose subtrees have changed."""
        more, fewer = self.loss(node), self.leaves[node] - 1
        self.nodes[node, VARIABLE] = LEAF
        self._set_leaf(node)
        ancestors = []
        while node in self.parent:
            node = self.parent[node]
            self.leaves[node] -= fewer
            self.wrong[node] += more
            ancestors.append(node)
        return ancestors


def _cut(grown: Sequence[_GrownTree], max_leaves: int | None, most_wrong: float) -> None:
    """Make leaves of inner nodes of all trees, those with the least loss per leaf saved first."""
    subtrees = [_Subtrees(tree) for tree in grown]
    heap: list[tuple[float, int, int, int]] = []

    def push(t: int, nodes: Sequence[int]) -> None:
        tree = subtrees[t]
        for node in filter(tree.can_cut, nodes):
            leaves = tree.leaves[node]
            heapq.heappush(heap, (tree.loss(node) / (leaves - 1), t, node, leaves))

    for t, tree in enumerate(subtrees):
        push(t, tree.inner)
    total_leaves = sum(tree.leaves[0] for tree in subtrees)
    spent, limited = 0, False
    while heap and (max_leaves is None or total_leaves > max_leaves):
        _, t, node, leaves = heapq.heappop(heap)
        tree = subtrees[t]
        if tree.leaves[node] != leaves or not tree.is_inner(node):
            continue  # the entry is outdated: a cut above or below came first
        if spent + tree.loss(node) > most_wrong:
            limited = True
            continue
        spent += tree.loss(node)
        total_leaves -= leaves - 1
        push(t, tree.cut(node))
    if max_leaves is not None and total_leaves > max_leaves:
        raise InvalidParameter(
            f"no cut of the exact tree has at most {max_leaves} leaves and that few wrong states; "
            f"{total_leaves} leaves are left"
            if limited
            else f"no cut of the exact tree has at most {max_leaves} leaves and keeps the "
            f"constraints of the model; at least {total_leaves} leaves are needed"
        )
