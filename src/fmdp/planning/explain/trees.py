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

A smaller tree must still be a policy that the model allows. Where constraints tie action variables
together these share one tree, whose leaves name all of their values. A node may become a leaf only
if some action is allowed in every state of its box, and it then says the most frequent one of these
actions. If an action is allowed in a box it is allowed in every part of the box, so cutting further
never loses a possibility, and what is left when nothing more can be cut is the smallest cut.

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

from fmdp._base.compiled import njit
from fmdp._base.memory import describe_bytes, describe_count
from fmdp.errors import InvalidParameter, TooLarge
from fmdp.model.constraints import MOST_ROWS, Constraint, Mask, forbidden_choices
from fmdp.model.naming import Naming
from fmdp.model.spaces import count, decode, project, strides
from fmdp.planning.policies.policy import TablePolicy

Ints = NDArray[np.int64]

MOST_STATES = 1 << 22
MOST_VALUES = 1 << 12
"""Of a variable: every value is tried in every node."""
_MOST_COUNTS = 1 << 25
_MOST_ALLOWED = 1 << 28
"""Nodes times joint values of actions, one byte each."""
LEAF = -1
FORBIDDEN = -1
"""Wrong states of a node that cannot be a leaf."""


@dataclass(frozen=True, eq=False)
class Tree:
    """The tree of one action variable, or of several together; node 0 is the root."""

    actions: tuple[int, ...]
    """Which action variables."""
    sizes: tuple[int, ...]
    """Number of values of each."""
    variable: Ints
    """[nodes]: the state variable that is asked, or LEAF."""
    value: Ints
    """[nodes]: the value that it is compared with."""
    upto: NDArray[np.bool_]
    """[nodes]: whether the first child has the values up to that one, or that one alone."""
    yes: Ints
    no: Ints
    label: Ints
    """[nodes]: the joint value of a leaf; of any other node what it would say as a leaf."""

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

    def values(self, node: int) -> tuple[int, ...]:
        """Return what a leaf says: one position for each action variable of the tree."""
        return decode(int(self.label[node]), self.sizes)

    def __call__(self, state: Sequence[int]) -> tuple[int, ...]:
        """Return one position for each action variable of the tree."""
        node = 0
        while self.variable[node] != LEAF:
            have, value = state[self.variable[node]], self.value[node]
            node = (
                self.yes[node]
                if have == value or (self.upto[node] and have < value)
                else (self.no[node])
            )
        return self.values(node)


@dataclass(frozen=True, eq=False)
class PolicyTree:
    """A policy as trees, which together say the value of every action variable once."""

    trees: tuple[Tree, ...]
    naming: Naming
    n_states: int
    wrong: int
    """In so many states some action variable is not what the policy says."""
    table: TablePolicy
    """What the trees say in every state."""

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
        said: dict[int, int] = {}
        for tree in self.trees:
            said.update(zip(tree.actions, tree(checked), strict=True))
        return self.naming.answer(tuple(said[action] for action in sorted(said)), state)

    def __str__(self) -> str:
        trees = f" in {len(self.trees)} trees" if len(self.trees) > 1 else ""
        share = f" ({self.wrong / self.n_states:.3g} of them)" if self.wrong else ""
        return (
            f"{self.leaves:,} leaves{trees}, depth {self.depth}; wrong in {self.wrong:,} of "
            f"{self.n_states:,} states{share}"
        )


def grow(
    policy: TablePolicy,
    *,
    max_leaves: int | None = None,
    max_error: float | None = None,
    constraints: Sequence[Constraint] = (),
) -> PolicyTree:
    """Return trees for a table: exact, or cut down.

    Parameters
    ----------
    policy
        What the trees are to say. It must keep the constraints.
    max_leaves
        Most leaves of all trees together; None is as many as it takes.
    max_error
        Largest share of states in which the trees may be wrong; None is 0, or what `max_leaves`
        takes.
    constraints
        Of the model. What smaller trees say is allowed in every state.

    Raises
    ------
    TooLarge
        Where there are too many states, or values of a variable.
    InvalidParameter
        Where no cut of the exact tree has so few leaves and so few wrong states, or keeps the
        constraints with so few leaves; or where the policy does not keep the constraints.
    """
    sizes, action_sizes = policy.state_sizes, policy.action_sizes
    _refuse_large(sizes)
    _refuse_forbidden(policy.actions, policy, constraints)
    exact = max_leaves is None and max_error is None
    groups = _groups_of_actions(() if exact else constraints, len(sizes), len(action_sizes))
    if max_leaves is not None and max_leaves < len(groups):
        raise InvalidParameter(
            f"a policy with {len(groups)} action variables has a tree for each and at least "
            f"that many leaves; got at most {max_leaves}"
        )
    n_states = count(sizes)
    digits = _digits(sizes)
    values = [
        policy.actions.astype(np.int64) // step % size
        for step, size in zip(strides(action_sizes), action_sizes, strict=True)
    ]
    labels = [_joint_values(values, action_sizes, group) for group in groups]
    grown = [_Grown(digits, own, sizes) for own in labels]
    if not exact:
        for tree, group, own in zip(grown, groups, labels, strict=True):
            tree.allow_only(group, own, constraints, (*sizes, *action_sizes), len(sizes))
        _cut(grown, max_leaves, math.inf if max_error is None else max_error * n_states)
    said = [one.predictions() for one in grown]
    wrong = np.zeros(n_states, dtype=np.bool_)
    joint = np.zeros(n_states, dtype=np.int64)
    for group, answers, own in zip(groups, said, labels, strict=True):
        wrong |= answers != own
        own_sizes = [action_sizes[action] for action in group]
        for action, step in zip(group, strides(own_sizes), strict=True):
            place = answers // step % action_sizes[action]
            joint += place * strides(action_sizes)[action]
    table = TablePolicy(sizes, action_sizes, joint, policy.naming)
    _refuse_forbidden(table.actions, policy, constraints)
    trees = tuple(
        one.tree(group, tuple(action_sizes[action] for action in group))
        for group, one in zip(groups, grown, strict=True)
    )
    return PolicyTree(trees, policy.naming, n_states, int(wrong.sum()), table)


def _refuse_forbidden(
    actions: NDArray[Any], policy: TablePolicy, constraints: Sequence[Constraint]
) -> None:
    """Raise InvalidParameter if a table plays an action that a constraint forbids."""
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
    """Return the action variables of every tree: those that constraints tie together."""
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
    own = [sizes[action] for action in group]
    if count(own) > np.iinfo(np.int32).max:
        raise TooLarge(
            f"constraints tie {len(group)} action variables together, which have "
            f"{describe_count(count(own))} joint values: too many for one tree",
            count(own),
            np.iinfo(np.int32).max,
        )
    joint = sum(
        (values[action] * step for action, step in zip(group, strides(own), strict=True)),
        np.zeros(len(values[0]), dtype=np.int64),
    )
    return joint.astype(np.int32)


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

    def allow_only(
        self,
        group: Sequence[int],
        labels: NDArray[np.int32],
        constraints: Sequence[Constraint],
        sizes: Sequence[int],
        m: int,
    ) -> None:
        """Let every node say what is allowed in all of its states, the most frequent action first.

        Nodes in which nothing is allowed everywhere get `FORBIDDEN` wrong states.

        Parameters
        ----------
        group
            The action variables of the tree.
        labels
            [S]: the joint value of these that the policy takes.
        constraints
            Of the model; those that speak of other action variables do not count.
        sizes
            Of all variables, states then actions.
        m
            Number of state variables.
        """
        own = [constraint for constraint in constraints if constraint.scope[-1] - m in group]
        if not own:
            return
        kinds, allowed = _allowed_values(own, group, sizes, m)
        if len(self.nodes) * allowed.shape[1] > _MOST_ALLOWED:
            raise TooLarge(
                f"a smaller tree for {len(self.nodes):,} nodes and {allowed.shape[1]:,} joint "
                f"values of actions takes too much memory",
                len(self.nodes) * allowed.shape[1],
                _MOST_ALLOWED,
            )
        # Joint values that the policy takes come first, numbered as they are in the tree.
        others = np.setdiff1d(np.arange(allowed.shape[1]), self.used)
        n_used, self.used = len(self.used), np.concatenate([self.used, others])
        number = np.empty(len(self.used), dtype=np.int64)
        number[self.used] = np.arange(len(self.used))
        fits = np.ones((len(self.nodes), len(self.used)), dtype=np.bool_)
        allowed = np.ascontiguousarray(allowed[:, self.used])
        _allow(self.nodes, self.samples, kinds, allowed, number[labels], n_used, fits)

    def predictions(self) -> Ints:
        """What the tree says in every state."""
        found = np.empty(len(self.samples), dtype=np.int64)
        for leaf in self._reached(leaves=True):
            first, end, label = self.nodes[leaf, [FIRST, END, LABEL]]
            found[self.samples[first:end]] = self.used[label]
        return found

    def tree(self, actions: tuple[int, ...], sizes: tuple[int, ...]) -> Tree:
        kept = sorted([*self._reached(leaves=False), *self._reached(leaves=True)])
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

    Returns
    -------
    tuple
        [S], the assignment of the state variables that the constraints look at; and
        [kinds, joint values of the group], whether no constraint forbids it.
    """
    looked_at = sorted({v for constraint in constraints for v in constraint.scope if v < m})
    scope = [*looked_at, *(m + action for action in group)]
    own = [sizes[v] for v in scope]
    if count(own) > MOST_ROWS:
        raise TooLarge(
            f"constraints that share action variables are over {describe_count(count(own))} "
            f"assignments; at most {describe_count(MOST_ROWS)} can be kept in a smaller tree",
            count(own),
            MOST_ROWS,
        )
    place = {v: index for index, v in enumerate(scope)}
    forbidden = np.zeros(count(own), dtype=np.bool_)
    for constraint in constraints:
        rows = project(own, [place[v] for v in constraint.scope])
        forbidden |= constraint.forbidden_table(sizes)[rows]
    kinds = project(sizes[:m], looked_at)
    return kinds, ~forbidden.reshape(count(own[: len(looked_at)]), -1)


def _cut(grown: Sequence[_Grown], max_leaves: int | None, room: float) -> None:
    """Make leaves of inner nodes, the least loss for each leaf saved first, all trees together."""
    heap: list[tuple[float, int, int, int]] = []
    parents: list[dict[int, int]] = []
    sums: list[dict[int, list[int]]] = []  # of the subtree of each node: leaves, wrong states
    total_leaves = 0

    def push(t: int, node: int) -> None:
        leaves, wrong = sums[t][node]
        if grown[t].nodes[node, WRONG] == FORBIDDEN:
            return
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
    spent, limited = 0, False
    while heap and (max_leaves is None or total_leaves > max_leaves):
        _, t, node, known = heapq.heappop(heap)
        nodes, held = grown[t].nodes, sums[t]
        stale = nodes[node, VARIABLE] == LEAF or held[node][0] != known
        if stale or not _is_in(node, nodes, parents[t]):
            continue  # cut already, above or below
        more = int(nodes[node, WRONG]) - held[node][1]
        if spent + more > room:
            limited = True
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
            if limited
            else f"no cut of the exact tree has at most {max_leaves} leaves and keeps the "
            f"constraints of the model; at least {total_leaves} leaves are needed"
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
def _allow(
    nodes: Ints,
    samples: Ints,
    kinds: Ints,
    allowed: NDArray[np.bool_],
    labels: Ints,
    n_used: int,
    fits: NDArray[np.bool_],
) -> None:
    """Set label and wrong states of every node to those of its most frequent allowed action.

    `fits` [nodes, actions] is filled with what is allowed in every state of a node.
    """
    counts = np.zeros(n_used, dtype=np.int64)
    for node in range(nodes.shape[0] - 1, -1, -1):  # children come after their parents
        first, end = nodes[node, FIRST], nodes[node, END]
        if nodes[node, VARIABLE] < 0:
            for place in range(first, end):
                kind = kinds[samples[place]]
                for a in range(fits.shape[1]):
                    fits[node, a] &= allowed[kind, a]
        else:
            yes, no = nodes[node, YES], nodes[node, NO]
            for a in range(fits.shape[1]):
                fits[node, a] = fits[yes, a] and fits[no, a]
        counts[:] = 0
        for place in range(first, end):
            counts[labels[samples[place]]] += 1
        best, most = -1, -1
        for a in range(fits.shape[1]):
            many = counts[a] if a < n_used else 0
            if fits[node, a] and many > most:
                best, most = a, many
        nodes[node, LABEL] = best
        nodes[node, WRONG] = end - first - most if best >= 0 else FORBIDDEN


@njit(nogil=True)
def _merge(nodes: Ints) -> None:
    """Children come after their parents: two leaves that say the same are one."""
    for node in range(nodes.shape[0] - 1, -1, -1):
        if nodes[node, VARIABLE] >= 0:
            yes, no = nodes[node, YES], nodes[node, NO]
            pure = nodes[yes, VARIABLE] < 0 and nodes[no, VARIABLE] < 0
            if pure and nodes[yes, LABEL] == nodes[no, LABEL]:
                nodes[node, VARIABLE] = LEAF
