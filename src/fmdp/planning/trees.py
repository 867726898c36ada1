"""Decision trees that say what a policy's table says, in splits that a person can read.

A node is a box, a set of values for every state variable; a split asks of one variable whether it
has one value, or one of the first few. Grown from the counts of actions by value, greedily: of all
splits the one that leaves the least entropy,

    sum over the children of n log n - sum_a n_a log n_a      (n states, n_a of them with action a)

and where none leaves less (an exclusive or), one on a variable that the action depends on there.
Until every leaf is pure: the tree is exact. Then leaves that say the same are one, and for a
smaller tree that errs the weakest links are cut, those whose loss for each leaf saved is the least
(Breiman et al. 1984), which is greedy too: nobody promises that a tree is the smallest. Errors are
counted over all states. With several action variables there is one tree for each.

Cost: a pass over the states and variables for every level; 2^20 states take seconds.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmdp.compiled import njit
from fmdp.errors import InvalidParameter, TooLarge
from fmdp.memory import describe_bytes, describe_count
from fmdp.model.naming import Naming
from fmdp.model.spaces import count, strides
from fmdp.planning.policy import TablePolicy

Ints = NDArray[np.int64]

MOST_STATES = 1 << 22
MOST_VALUES = 1 << 12
"""Of a variable: every value is tried in every node."""
_MOST_COUNTS = 1 << 25
LEAF = -1


@dataclass(frozen=True, eq=False)
class Tree:
    """The tree of one action variable; node 0 is the root."""

    action: int
    """Which action variable."""
    variable: Ints
    """[nodes]: the state variable that is asked, or LEAF."""
    value: Ints
    """[nodes]: the value that it is compared with."""
    upto: NDArray[np.bool_]
    """[nodes]: whether the first child has the values up to that one, or that one alone."""
    yes: Ints
    no: Ints
    label: Ints
    """[nodes]: the action of a leaf; of any other node the most frequent one."""

    @property
    def leaves(self) -> int:
        return int((self.variable == LEAF).sum())

    @property
    def depth(self) -> int:
        """Questions on the longest way."""
        depth = np.zeros(len(self.variable), dtype=np.int64)
        for node in np.flatnonzero(self.variable != LEAF):  # children come after their parents
            depth[self.yes[node]] = depth[self.no[node]] = depth[node] + 1
        return int(depth.max())

    def __call__(self, state: Sequence[int]) -> int:
        node = 0
        while self.variable[node] != LEAF:
            have, value = state[self.variable[node]], self.value[node]
            node = (
                self.yes[node]
                if have == value or (self.upto[node] and have < value)
                else (self.no[node])
            )
        return int(self.label[node])


@dataclass(frozen=True, eq=False)
class PolicyTree:
    """A policy as trees, one an action variable."""

    trees: tuple[Tree, ...]
    naming: Naming
    n_states: int
    wrong: int
    """In so many states some action variable is not what the policy says."""

    @property
    def leaves(self) -> int:
        """Of all trees together."""
        return sum(tree.leaves for tree in self.trees)

    @property
    def depth(self) -> int:
        """Of the deepest."""
        return max(tree.depth for tree in self.trees)

    def __call__(self, state: Any) -> Any:
        checked = self.naming.check_state(state)
        return self.naming.answer(tuple(tree(checked) for tree in self.trees), state)

    def __str__(self) -> str:
        trees = f" in {len(self.trees)} trees" if len(self.trees) > 1 else ""
        share = f" ({self.wrong / self.n_states:.3g} of them)" if self.wrong else ""
        return (
            f"{self.leaves:,} leaves{trees}, depth {self.depth}; wrong in {self.wrong:,} of "
            f"{self.n_states:,} states{share}"
        )


def grow(
    policy: TablePolicy, *, max_leaves: int | None = None, max_error: float | None = None
) -> PolicyTree:
    """Trees for a table: exact, or cut down to so many leaves, or as far as so large a share of
    wrong states allows; or both.

    Raises
    ------
    TooLarge
        Where there are too many states, or values of a variable.
    InvalidParameter
        Where no cut of the exact tree has so few leaves and so few wrong states.
    """
    sizes, action_sizes = policy.state_sizes, policy.action_sizes
    _refuse_large(sizes)
    if max_leaves is not None and max_leaves < len(action_sizes):
        raise InvalidParameter(
            f"a policy with {len(action_sizes)} action variables has a tree for each and at least "
            f"that many leaves; got at most {max_leaves}"
        )
    n_states = count(sizes)
    digits = _digits(sizes)
    labels = [
        (policy.actions.astype(np.int64) // step % size).astype(np.int32)
        for step, size in zip(strides(action_sizes), action_sizes, strict=True)
    ]
    grown = [_Grown(digits, own, sizes) for own in labels]
    if max_leaves is not None or max_error is not None:
        _cut(grown, max_leaves, math.inf if max_error is None else max_error * n_states)
    wrong = np.zeros(n_states, dtype=np.bool_)
    for one, own in zip(grown, labels, strict=True):
        wrong |= one.predictions() != own
    trees = tuple(one.tree(action) for action, one in enumerate(grown))
    return PolicyTree(trees, policy.naming, n_states, int(wrong.sum()))


def _refuse_large(sizes: Sequence[int]) -> None:
    n_states = count(sizes)
    if n_states > MOST_STATES:
        raise TooLarge(
            f"a tree for {describe_count(n_states)} states cannot be grown; at most "
            f"{describe_count(MOST_STATES)} states can have one",
            n_states,
            MOST_STATES,
        )
    if max(sizes) > MOST_VALUES:
        raise TooLarge(
            f"a state variable has {max(sizes):,} values; at most {MOST_VALUES:,} can be told "
            f"apart in a tree",
            max(sizes),
            MOST_VALUES,
        )


def _digits(sizes: Sequence[int]) -> NDArray[Any]:
    """The value of every variable in every state: [S, m]."""
    n_states = count(sizes)
    places = np.arange(n_states)
    digits = np.empty((n_states, len(sizes)), dtype=np.uint8 if max(sizes) <= 256 else np.int32)
    for v, (step, size) in enumerate(zip(strides(sizes), sizes, strict=True)):
        digits[:, v] = places // step % size
    return digits


VARIABLE, VALUE, UPTO, YES, NO, LABEL, FIRST, END, WRONG = range(9)
"""Columns of a node that is being made: the split, its children, the most frequent action, where
its states begin and end among the samples, and how many of them have another action."""


class _Grown:
    """An exact tree and which states are in which node, to be cut."""

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
            done, made = _grow(
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
        _merge(self.nodes)

    @property
    def leaves(self) -> int:
        return len(self._reached(leaves=True))

    def _reached(self, *, leaves: bool) -> list[int]:
        """Nodes that are still part of the tree, parents first."""
        found, queue = [], [0]
        for node in queue:
            inner = self.nodes[node, VARIABLE] != LEAF
            if inner:
                queue += [int(self.nodes[node, YES]), int(self.nodes[node, NO])]
            if inner != leaves:
                found.append(node)
        return found

    def predictions(self) -> Ints:
        """What the tree says in every state."""
        found = np.empty(len(self.samples), dtype=np.int64)
        for leaf in self._reached(leaves=True):
            first, end, label = self.nodes[leaf, [FIRST, END, LABEL]]
            found[self.samples[first:end]] = self.used[label]
        return found

    def tree(self, action: int) -> Tree:
        kept = sorted([*self._reached(leaves=False), *self._reached(leaves=True)])
        number = np.full(len(self.nodes), LEAF, dtype=np.int64)
        number[kept] = np.arange(len(kept))
        nodes = self.nodes[kept]
        inner = nodes[:, VARIABLE] != LEAF
        yes, no = (np.where(inner, number[nodes[:, column]], LEAF) for column in (YES, NO))
        return Tree(
            action,
            nodes[:, VARIABLE].copy(),
            nodes[:, VALUE].copy(),
            nodes[:, UPTO] > 0,
            yes,
            no,
            self.used[nodes[:, LABEL]].astype(np.int64),
        )


def _cut(grown: Sequence[_Grown], max_leaves: int | None, room: float) -> None:
    """Make leaves of inner nodes, the least loss for each leaf saved first, all trees together."""
    heap: list[tuple[float, int, int, int]] = []
    parents: list[dict[int, int]] = []
    sums: list[dict[int, list[int]]] = []  # of the subtree of each node: leaves, wrong states
    total_leaves = 0

    def push(t: int, node: int) -> None:
        leaves, wrong = sums[t][node]
        loss = (int(grown[t].nodes[node, WRONG]) - wrong) / (leaves - 1)
        heapq.heappush(heap, (loss, t, node, leaves))

    for t, one in enumerate(grown):
        inner, parent, held = one._reached(leaves=False), {}, {}
        for leaf in one._reached(leaves=True):
            held[leaf] = [1, int(one.nodes[leaf, WRONG])]
        for node in reversed(inner):
            yes, no = int(one.nodes[node, YES]), int(one.nodes[node, NO])
            parent[yes] = parent[no] = node
            held[node] = [held[yes][0] + held[no][0], held[yes][1] + held[no][1]]
        parents.append(parent)
        sums.append(held)
        total_leaves += held[0][0]
        for node in inner:
            push(t, node)
    spent = 0
    while heap and (max_leaves is None or total_leaves > max_leaves):
        _, t, node, known = heapq.heappop(heap)
        nodes, held = grown[t].nodes, sums[t]
        stale = nodes[node, VARIABLE] == LEAF or held[node][0] != known
        if stale or not _is_in(node, nodes, parents[t]):
            continue  # cut already, above or below
        more = int(nodes[node, WRONG]) - held[node][1]
        if spent + more > room:
            continue
        spent += more
        fewer = held[node][0] - 1
        total_leaves -= fewer
        nodes[node, VARIABLE] = LEAF
        held[node] = [1, int(nodes[node, WRONG])]
        while node in parents[t]:
            node = parents[t][node]
            held[node][0] -= fewer
            held[node][1] += more
            push(t, node)
    if max_leaves is not None and total_leaves > max_leaves:
        raise InvalidParameter(
            f"no cut of the exact tree has at most {max_leaves} leaves and that few wrong states; "
            f"{total_leaves} leaves are left"
        )


def _is_in(node: int, nodes: Ints, parent: dict[int, int]) -> bool:
    while node in parent:
        node = parent[node]
        if nodes[node, VARIABLE] == LEAF:
            return False
    return True


# ---- compiled ------------------------------------------------------------------------------------


@njit(nogil=True)
def _xlogx(x: float) -> float:
    return x * math.log(x) if x > 0.0 else 0.0


@njit(nogil=True)
def _grow(
    digits: Any,
    labels: Ints,
    n_labels: int,
    steps: Ints,
    offsets: Ints,
    samples: Ints,
    scratch: Ints,
    counts: Ints,
    nodes: Ints,
    done: int,
    made: int,
) -> tuple[int, int]:
    """Split nodes, in the order in which they were made, until all are pure or the list is full."""
    m = digits.shape[1]
    stamp = np.full(n_labels, -1, dtype=np.int64)
    local = np.zeros(n_labels, dtype=np.int64)
    known = np.zeros(n_labels, dtype=np.int64)
    total = np.zeros(n_labels, dtype=np.int64)
    before = np.zeros(n_labels, dtype=np.int64)
    while done < made:
        if made + 2 > nodes.shape[0]:
            return done, made
        first, end = nodes[done, FIRST], nodes[done, END]
        n = end - first
        k = 0
        for place in range(first, end):
            y = labels[samples[place]]
            if stamp[y] != done:
                stamp[y] = done
                local[y] = k
                known[k] = y
                total[k] = 0
                k += 1
            total[local[y]] += 1
        top = 0
        for j in range(1, k):
            if total[j] > total[top] or (total[j] == total[top] and known[j] < known[top]):
                top = j
        nodes[done, VARIABLE] = LEAF
        nodes[done, LABEL] = known[top]
        nodes[done, WRONG] = n - total[top]
        if k == 1:
            done += 1
            continue
        counts[: offsets[m] * k] = 0
        for place in range(first, end):
            s = samples[place]
            y = local[labels[s]]
            for v in range(m):
                counts[(offsets[v] + digits[s, v]) * k + y] += 1
        whole = _xlogx(float(n))
        for j in range(k):
            whole -= _xlogx(float(total[j]))
        slack = 1e-9 * n
        best, variable, value, upto = whole - slack, -1, 0, 0
        for kind in range(2):
            for v in range(m):
                size = offsets[v + 1] - offsets[v]
                if kind == 1 and size < 4:
                    continue  # the first values of two or three are all but one
                before[:k] = 0
                for x in range(size):
                    at = (offsets[v] + x) * k
                    inside = 0
                    for j in range(k):
                        before[j] = counts[at + j] if kind == 0 else before[j] + counts[at + j]
                        inside += before[j]
                    if inside == 0 or inside == n:
                        continue
                    cost = _xlogx(float(inside)) + _xlogx(float(n - inside))
                    for j in range(k):
                        cost -= _xlogx(float(before[j])) + _xlogx(float(total[j] - before[j]))
                    if cost < best - slack:
                        best, variable, value, upto = cost, v, x, kind
        if variable < 0:
            variable, value = _relevant(digits, labels, steps, offsets, samples, counts, first, end)
        # Those that answer yes first, both in their old order.
        yes = 0
        for place in range(first, end):
            have = digits[samples[place], variable]
            if have == value or (upto == 1 and have < value):
                scratch[first + yes] = samples[place]
                yes += 1
        rest = yes
        for place in range(first, end):
            have = digits[samples[place], variable]
            if not (have == value or (upto == 1 and have < value)):
                scratch[first + rest] = samples[place]
                rest += 1
        samples[first:end] = scratch[first:end]
        nodes[done, VARIABLE] = variable
        nodes[done, VALUE] = value
        nodes[done, UPTO] = upto
        nodes[done, YES] = made
        nodes[done, NO] = made + 1
        nodes[made, FIRST] = first
        nodes[made, END] = first + yes
        nodes[made + 1, FIRST] = first + yes
        nodes[made + 1, END] = end
        made += 2
        done += 1
    return done, made


@njit(nogil=True)
def _relevant(
    digits: Any,
    labels: Ints,
    steps: Ints,
    offsets: Ints,
    samples: Ints,
    counts: Ints,
    first: int,
    end: int,
) -> tuple[int, int]:
    """A variable on which the action depends in a box that is not pure, and its least value there.

    Changing one variable of a state to another value of the box leads to a state of the box.
    """
    for v in range(digits.shape[1]):
        least = digits[samples[first], v] + 0
        for place in range(first, end):
            least = min(least, digits[samples[place], v] + 0)
        for place in range(first, end):
            s = samples[place]
            if labels[s] != labels[s - (digits[s, v] - least) * steps[v]]:
                return v, least
    return -1, 0


@njit(nogil=True)
def _merge(nodes: Ints) -> None:
    """Children come after their parents: two leaves that say the same are one."""
    for node in range(nodes.shape[0] - 1, -1, -1):
        if nodes[node, VARIABLE] >= 0:
            yes, no = nodes[node, YES], nodes[node, NO]
            pure = nodes[yes, VARIABLE] < 0 and nodes[no, VARIABLE] < 0
            if pure and nodes[yes, LABEL] == nodes[no, LABEL]:
                nodes[node, VARIABLE] = LEAF
