"""From a structure to the program that the kernels run: groups, axes, classes, index arrays.

The state tensor h is held in elimination order (first eliminated slowest).  Neighbouring variables
of the order are fused into groups of a few joint values, so that a step is a small matrix product
on long contiguous runs instead of many thin passes.  What a step knows of the *current* state is
either an axis of the tensor or fixed from outside:

* **growing**: a parent that is needed before its turn becomes an axis of the tensor at its first
  use and stays until the end; time and memory times its size while its next value is there too;
* **conditioning**: a variable is fixed and the program is run once for each of its values
  (`branch`).  Variables fixed at the first group cost no extra time, shrink every tensor, keep them
  in cache and hand out independent pieces of work to threads; later ones repeat the groups before.

Both are only a choice of which variables are branches; `choose_layout` prices the candidates and
takes the cheapest that fits into the memory limit.

Joint actions whose tables agree in all groups so far share those steps: the steps form a tree (a
trie of action classes), walked depth first with one buffer a level.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmdp.elimination import kernels as k
from fmdp.elimination.order import elimination_order
from fmdp.model import Structure

Index = NDArray[np.int64]
Step = tuple[tuple[int, ...], tuple[int, ...]]
"""The transition and the reward factors of one group."""

# Seconds, measured on one core of an ordinary server; only their ratios matter, for the choices.
_NODE_SECONDS = 1.5e-7  # setting up one step
_RUN_SECONDS = 3e-9  # one inner loop
_MADD_SECONDS = 1.2e-10  # one multiply-add in cache, where the kernels are unrolled
_PLAIN_MADD_SECONDS = 2.5e-10  # and where they are not
_MISS_SECONDS = 8e-10  # one tensor element read and written beyond the second-level cache
_CACHE_BYTES = 1 << 20
_GATHER_SECONDS = 2e-9  # one table entry brought into place, once a solve
_SWEEPS_A_SOLVE = 20
_GROUP_LIMITS = ((1, 1), (4, 8), (8, 8))  # joint values of a group, and of the last group
_UNROLLED = (2, 4, 8)
_MOST_BRANCHES = 1 << 16
VECTORS = 6  # over all states at once: h, L h, scratch, actions, bias, and one in passing
PARALLEL_STATES = 1 << 13  # below this threads cost more than they bring


@dataclass(frozen=True)
class Group:
    """One step: which variables go, which come, and the shape of the step."""

    members: tuple[int, ...]  # eliminated here, in order
    opened: tuple[int, ...]  # parents that become axes here, before their own turn
    own: tuple[int, ...]  # members that become axes here
    context: tuple[int, ...]  # known variables on which the rows depend (own excluded)
    rewards: tuple[int, ...]  # reward factors whose scope is known from here on
    reward_context: tuple[int, ...]
    outer: int
    rep: int
    n_v: int
    n_u: int
    inner: int

    @property
    def out_size(self) -> int:
        return self.outer * self.rep * self.n_u * self.inner

    @property
    def seconds(self) -> float:
        runs = self.outer * self.rep * (self.n_u if self.inner > 1 else 1)
        rate = _MADD_SECONDS if self.n_v in _UNROLLED else _PLAIN_MADD_SECONDS
        work = self.out_size * self.n_v * rate + runs * _RUN_SECONDS
        if 16 * self.out_size > _CACHE_BYTES:
            work += self.out_size * _MISS_SECONDS
        return work + _NODE_SECONDS


@dataclass(frozen=True, eq=False)
class ActionClasses:
    """Which joint actions a factor can tell apart: a class number for every joint action.

    By structure, two actions are alike for a factor if they agree on the action variables of its
    scope.  By tables, they are alike if the numbers of the factor are the same, which is often so
    in hand-made models (restarting machine 3 is nothing to machine 7) and hardly ever in learned
    ones.  Only arrays of [factors, joint actions] are made.
    """

    transitions: Index  # [m, A]
    rewards: Index  # [l, A]
    # Layouts that are compared have most of their groups in common.
    _groups: dict[Step, tuple[Index, Index]] = field(default_factory=dict, repr=False)
    _beginnings: dict[tuple[Step, ...], tuple[Index, Index]] = field(
        default_factory=dict, repr=False
    )

    def of_group(self, step: Step) -> tuple[Index, Index]:
        """Class of every joint action in a step, and the first joint action of each class."""
        if step not in self._groups:
            members, rewards = step
            columns = [self.transitions[i] for i in members] + [self.rewards[f] for f in rewards]
            self._groups[step] = _renumber(np.stack(columns, axis=1))
        return self._groups[step]

    def of_beginning(self, steps: tuple[Step, ...]) -> tuple[Index, Index]:
        """The same for several steps in a row."""
        if len(steps) == 1:
            return self.of_group(steps[0])
        if steps not in self._beginnings:
            columns = [self.of_beginning(steps[:-1])[0], self.of_group(steps[-1])[0]]
            self._beginnings[steps] = _renumber(np.stack(columns, axis=1))
        return self._beginnings[steps]


def _renumber(keys: NDArray[Any]) -> tuple[Index, Index]:
    """Equal rows get equal numbers, in order of first appearance; and where each first appears."""
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True, axis=0)
    # np.unique numbers by content, which is arbitrary; appearance is a function of the actions.
    rank = np.empty(len(first), dtype=np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    return rank[np.ravel(inverse)], np.sort(first)


FlatTables = tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]
"""Transition tables, free masses (empty if none) and rewards, all factors end to end."""


def action_classes(structure: Structure, tables: FlatTables | None = None) -> ActionClasses:
    """Classes by structure, or by the numbers in the tables."""
    m = structure.m
    joint_actions = _decode_all(structure.action_sizes)  # [A, action variables]
    offsets = flat_offsets(structure)

    def classes(scope: Sequence[int], numbers: Callable[[], NDArray[np.float64]]) -> Index:
        told = [v - m for v in scope if v >= m]
        told_sizes = [structure.action_sizes[v] for v in told]
        projection: Index = joint_actions[:, told] @ _strides(told_sizes)
        if tables is None or not told:
            return projection
        # A scope is sorted, states before actions: [states, actions, numbers of a row].
        states = _volume((v for v in scope if v < m), structure.sizes)
        cube = numbers().reshape(states, _volume(told, structure.action_sizes), -1)
        alike, _ = _renumber(cube.transpose(1, 0, 2).reshape(cube.shape[1], -1))
        result: Index = alike[projection]
        return result

    def transition_numbers(i: int) -> NDArray[np.float64]:
        assert tables is not None
        rows = structure.transition_rows[i]
        part = tables[0][offsets[0][i] : offsets[0][i + 1]].reshape(rows, -1)
        if tables[1].size:
            free = tables[1][offsets[1][i] : offsets[1][i + 1]].reshape(rows, 1)
            part = np.concatenate([part, free], axis=1)
        return part

    def reward_numbers(f: int) -> NDArray[np.float64]:
        assert tables is not None
        return tables[2][offsets[2][f] : offsets[2][f + 1]]

    transitions = [
        classes(structure.transition_scopes[i], lambda i=i: transition_numbers(i))  # type: ignore[misc]
        for i in range(m)
    ]
    rewards = [
        classes(structure.reward_scopes[f], lambda f=f: reward_numbers(f))  # type: ignore[misc]
        for f in range(structure.l)
    ]
    empty = np.zeros((0, len(joint_actions)), dtype=np.int64)
    return ActionClasses(np.stack(transitions), np.stack(rewards) if rewards else empty)


@dataclass(frozen=True)
class Layout:
    """Order, groups and branches, with what they will cost; nothing of size S is made yet."""

    structure: Structure
    classes: ActionClasses
    order: tuple[int, ...]
    nested: bool
    branch: tuple[int, ...]
    groups: tuple[Group, ...]
    axes: tuple[int, ...]  # axes of the final tensor, slowest first

    @cached_property
    def n_branches(self) -> int:
        return _volume(self.branch, self.structure.state_sizes)

    @cached_property
    def leaf_size(self) -> int:
        return _volume(self.axes, self.structure.state_sizes)

    @cached_property
    def buffer_sizes(self) -> tuple[int, ...]:
        return tuple(group.out_size for group in self.groups)

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        return tuple((group.members, group.rewards) for group in self.groups)

    @cached_property
    def class_counts(self) -> tuple[int, ...]:
        """Tables of each group."""
        return tuple(len(self.classes.of_group(step)[1]) for step in self.steps)

    @cached_property
    def node_counts(self) -> tuple[int, ...]:
        """Steps of each group for one branch: the distinct beginnings of the actions' classes."""
        steps = self.steps
        return tuple(
            len(self.classes.of_beginning(steps[:end])[1]) for end in range(1, len(steps) + 1)
        )

    @cached_property
    def multiply_adds(self) -> int:
        """Multiply-adds of one sweep."""
        return self.n_branches * sum(
            nodes * group.out_size * group.n_v
            for nodes, group in zip(self.node_counts, self.groups, strict=True)
        )

    @cached_property
    def table_entries(self) -> int:
        sizes = self.structure.state_sizes
        total = 0
        for group, classes in zip(self.groups, self.class_counts, strict=True):
            rows = classes * _volume(group.context, sizes)
            total += rows * group.n_v * group.n_u * len(group.members)
            if group.rewards:
                total += classes * _volume(group.reward_context, sizes) * group.n_u
        return total

    def seconds(self, threads: int) -> float:
        """Predicted time of a sweep, table building spread over the sweeps of a short solve."""
        sweep = self.n_branches * sum(
            nodes * group.seconds
            for nodes, group in zip(self.node_counts, self.groups, strict=True)
        )
        states = self.structure.n_states
        if threads > 1 and states >= PARALLEL_STATES:
            sweep /= min(threads, self.n_branches)
        return sweep + self.table_entries * _GATHER_SECONDS / _SWEEPS_A_SOLVE

    def memory(self, threads: int) -> int:
        """Bytes needed to plan: vectors over all states, buffers, tables with their indices."""
        vectors = VECTORS * 8 * self.structure.n_states
        buffers = 8 * threads * (sum(self.buffer_sizes) + self.leaf_size)
        contexts = 16 * sum(group.outer * group.rep for group in self.groups)
        leaves = 16 * self.leaf_size
        nodes = 8 * k.N_NODE_FIELDS * sum(self.node_counts)
        return vectors + buffers + contexts + leaves + nodes + 24 * self.table_entries


def _volume(variables: Iterable[int], sizes: Sequence[int]) -> int:
    result = 1
    for variable in variables:
        result *= sizes[variable]
    return result


def make_layout(
    structure: Structure,
    order: tuple[int, ...],
    classes: ActionClasses,
    *,
    nested: bool,
    limit: int,
    last_limit: int,
    branch: tuple[int, ...],
) -> Layout:
    """Groups of at most `limit` (the last of `last_limit`) joint values, with these branches."""
    m, sizes = structure.m, structure.state_sizes
    waiting = list(range(structure.l))
    eliminated: set[int] = set()
    known = set(branch)
    axes: list[int] = []
    groups: list[Group] = []
    left = m
    # Nested targets are chosen variable by variable: nothing is fused, not even single values.
    for members in _cut(order, sizes, 0 if nested else limit, 0 if nested else last_limit):
        joint = _volume(members, sizes)
        left -= len(members)
        parents = {j for i in members for j in structure.state_scope(i)}
        opened = tuple(sorted(parents - set(members) - known - eliminated))
        own = tuple(i for i in members if i not in known)
        context = tuple(sorted((parents | set(members)) - set(own)))
        outer = _volume(axes, sizes)
        known |= set(opened) | set(members)
        rewards = tuple(f for f in waiting if known.issuperset(structure.reward_state_scope(f)))
        waiting = [f for f in waiting if f not in rewards]
        reward_parents = {j for f in rewards for j in structure.reward_state_scope(f)}
        groups.append(
            Group(
                members=members,
                opened=opened,
                own=own,
                context=context,
                rewards=rewards,
                reward_context=tuple(sorted(reward_parents - set(own))),
                outer=outer,
                rep=_volume(opened, sizes),
                n_v=joint,
                n_u=_volume(own, sizes),
                inner=_volume(order[m - left :], sizes),
            )
        )
        axes += [*opened, *own]
        eliminated |= set(members)
    return Layout(structure, classes, order, nested, branch, tuple(groups), tuple(axes))


def _cut(
    order: tuple[int, ...], sizes: Sequence[int], limit: int, last_limit: int
) -> list[tuple[int, ...]]:
    """The order cut into groups from its end, so that odd pieces come where runs are longest."""
    pieces: list[tuple[int, ...]] = []
    end = len(order)
    while end:
        start, joint = end - 1, sizes[order[end - 1]]
        most = limit if pieces else last_limit
        while start and joint * sizes[order[start - 1]] <= most:
            start -= 1
            joint *= sizes[order[start]]
        pieces.append(order[start:end])
        end = start
    return pieces[::-1]


def choose_layout(
    structure: Structure,
    *,
    nested: bool = False,
    threads: int = 1,
    memory_limit: int | None = None,
    classes: ActionClasses | None = None,
) -> Layout:
    """The leanest of the fastest layouts that fit; the leanest of all if none does.

    Candidates: sizes of groups, and as branches every beginning of the sequence in which current
    variables come into play (the first ones cost nothing extra; each later one trades time for
    memory), as far as conditioning pays at all.
    """
    order = elimination_order(structure)
    if classes is None:
        classes = action_classes(structure)
    candidates = []
    for limit, last_limit in ((1, 1),) if nested else _GROUP_LIMITS:
        make = partial(
            make_layout, structure, order, classes,
            nested=nested, limit=limit, last_limit=last_limit,
        )  # fmt: skip
        axes = make(branch=()).axes
        for length in range(len(axes) + 1):
            if _volume(axes[:length], structure.state_sizes) > _MOST_BRANCHES:
                break
            candidates.append(make(branch=axes[:length]))
    fitting = [
        layout
        for layout in candidates
        if memory_limit is None or layout.memory(threads) <= memory_limit
    ]
    if fitting:
        # The prediction is not good to a few percent: among equals the leanest.
        good_enough = 1.05 * min(layout.seconds(threads) for layout in fitting)
        fitting = [layout for layout in fitting if layout.seconds(threads) <= good_enough]
        return min(fitting, key=lambda layout: layout.memory(threads))
    return min(candidates, key=lambda layout: layout.memory(threads))


@dataclass(frozen=True, eq=False)
class Program:
    """Index arrays for the kernels; see kernels.py for the columns."""

    layout: Layout
    levels: Index
    nodes: Index
    contexts: Index  # [2, cells]: rows of the transition tables and of the rewards
    branch_rows: Index  # [2, branches, groups]: what a branch adds to them
    branch_bases: Index  # [2, branches]: its first state, in elimination order and in C order
    offsets: Index  # [2, cells of the last tensor]: what a cell adds to that
    leaf_start: Index
    leaf_actions: Index
    action_leaf: Index
    m_index: tuple[Index, ...]  # per group [members, entries] into the flat transition tables
    f_index: tuple[Index, ...]  # per group [1, rows * n_u] into the flat free masses
    r_index: tuple[Index, ...]  # per group [factors, entries] into the flat reward tables
    m_slices: tuple[slice, ...]
    f_slices: tuple[slice, ...]
    r_slices: tuple[slice, ...]
    arena_size: int


def build_program(layout: Layout) -> Program:
    """The index arrays of a layout; its memory is what `Layout.memory` has said."""
    structure = layout.structure
    sizes = structure.state_sizes
    n_actions = structure.n_actions
    joint_actions = _decode_all(structure.action_sizes)  # [A, action variables]
    p_offset, f_offset, r_offset = flat_offsets(structure)

    levels = np.zeros((len(layout.groups), k.N_LEVEL_FIELDS), dtype=np.int64)
    classes = np.empty((len(layout.groups), n_actions), dtype=np.int64)
    m_index: list[Index] = []
    f_index: list[Index] = []
    r_index: list[Index] = []
    m_slices: list[slice] = []
    f_slices: list[slice] = []
    r_slices: list[slice] = []
    ctx_parts: list[Index] = []
    rctx_parts: list[Index] = []
    branch_values = _decode_all([sizes[j] for j in layout.branch])  # [branches, len(branch)]
    branch_m = np.zeros((len(branch_values), len(layout.groups)), dtype=np.int64)
    branch_r = np.zeros_like(branch_m)
    axes: list[int] = []
    m_base = f_base = r_base = ctx_base = buffer = 0

    for g, group in enumerate(layout.groups):
        classes[g], first = layout.classes.of_group(layout.steps[g])
        representatives = joint_actions[first]  # [classes, action variables]
        n_classes = len(representatives)
        mi = _transition_index(layout, group, representatives, p_offset)
        fi = _free_index(layout, group, representatives, f_offset)
        ri = _reward_index(layout, group, representatives, r_offset)

        rows = _volume(group.context, sizes)
        r_rows = _volume(group.reward_context, sizes)
        step_axes = [*axes, *group.opened]
        ctx_parts.append(_context_offsets(step_axes, group.context, sizes))
        rctx_parts.append(_context_offsets(step_axes, group.reward_context, sizes))
        branch_m[:, g] = _branch_offsets(branch_values, layout.branch, group.context, sizes)
        branch_r[:, g] = _branch_offsets(branch_values, layout.branch, group.reward_context, sizes)

        levels[g, k.OUTER], levels[g, k.REP] = group.outer, group.rep
        levels[g, k.V], levels[g, k.U], levels[g, k.INNER] = group.n_v, group.n_u, group.inner
        levels[g, k.M_BASE], levels[g, k.M_ROWS] = m_base, n_classes * rows
        levels[g, k.R_BASE] = r_base
        levels[g, k.R_ROWS] = n_classes * r_rows if group.rewards else 0
        levels[g, k.F_BASE], levels[g, k.CTX_BASE] = f_base, ctx_base
        levels[g, k.HAS_R], levels[g, k.BUFFER] = bool(group.rewards), buffer

        m_index.append(mi)
        m_slices.append(slice(m_base, m_base + mi.shape[1]))
        m_base += mi.shape[1]
        if layout.nested:
            f_index.append(fi)
            f_slices.append(slice(f_base, f_base + fi.shape[1]))
            f_base += fi.shape[1]
        r_index.append(ri)
        r_slices.append(slice(r_base, r_base + ri.shape[1]))
        r_base += ri.shape[1]
        ctx_base += group.outer * group.rep
        buffer += group.out_size
        axes += [*group.opened, *group.own]

    nodes, leaf_start, leaf_actions, action_leaf = _action_tree(layout, classes)
    internal = dict(zip(layout.order, _strides([sizes[j] for j in layout.order]), strict=True))
    canonical = dict(enumerate(_strides(sizes)))
    return Program(
        layout=layout,
        levels=levels,
        nodes=nodes,
        contexts=np.stack([np.concatenate(ctx_parts), np.concatenate(rctx_parts)]),
        branch_rows=np.stack([branch_m, branch_r]),
        branch_bases=np.stack(
            [
                branch_values @ np.array([strides[j] for j in layout.branch], dtype=np.int64)
                for strides in (internal, canonical)
            ]
        ),
        offsets=np.stack(
            [_axis_offsets(axes, strides, sizes) for strides in (internal, canonical)]
        ),
        leaf_start=leaf_start,
        leaf_actions=leaf_actions,
        action_leaf=action_leaf,
        m_index=tuple(m_index),
        f_index=tuple(f_index),
        r_index=tuple(r_index),
        m_slices=tuple(m_slices),
        f_slices=tuple(f_slices),
        r_slices=tuple(r_slices),
        arena_size=buffer,
    )


def flat_offsets(structure: Structure) -> tuple[list[int], list[int], list[int]]:
    """Where factor i begins in the flat transition tables, free masses and rewards."""
    cells = [
        rows * size
        for rows, size in zip(structure.transition_rows, structure.state_sizes, strict=True)
    ]
    starts = [[0, *itertools.accumulate(part)] for part in
              (cells, structure.transition_rows, structure.reward_rows)]  # fmt: skip
    return starts[0], starts[1], starts[2]


def _decode_all(sizes: Sequence[int]) -> Index:
    """[count, len(sizes)]: every assignment, C order (one empty one for no variables)."""
    total = _volume(range(len(sizes)), sizes)
    if not sizes:
        return np.zeros((total, 0), dtype=np.int64)
    return np.stack(np.unravel_index(np.arange(total), tuple(sizes)), axis=1).astype(np.int64)


def _strides(sizes: Sequence[int]) -> Index:
    result = np.ones(len(sizes), dtype=np.int64)
    for position in range(len(sizes) - 2, -1, -1):
        result[position] = result[position + 1] * sizes[position + 1]
    return result


def _scope_strides(structure: Structure, scope: Sequence[int]) -> dict[int, int]:
    """Stride of every variable of a scope in its table's row index."""
    return {
        variable: int(stride)
        for variable, stride in zip(
            scope, _strides([structure.sizes[v] for v in scope]), strict=True
        )
    }


def _row_index(
    layout: Layout,
    group: Group,
    representatives: Index,
    strides: dict[int, int],
    context: tuple[int, ...],
    with_values: bool,
) -> Index:
    """Row of a table over [class, context..., (member values...,) own...], as a full array."""
    structure, m = layout.structure, layout.structure.m
    sizes = structure.state_sizes
    shape = [len(representatives), *(sizes[j] for j in context)]
    middle = [sizes[j] for j in group.members] if with_values else []
    shape += middle + [sizes[j] for j in group.own]
    index = np.zeros(shape, dtype=np.int64)

    def add(axis: int, values: Index) -> None:
        view = [1] * len(shape)
        view[axis] = len(values)
        nonlocal index
        index += values.reshape(view)

    for variable, stride in strides.items():
        if variable >= m:
            add(0, stride * representatives[:, variable - m])
        elif variable in group.own:
            axis = 1 + len(context) + len(middle) + group.own.index(variable)
            add(axis, stride * np.arange(sizes[variable]))
        else:
            add(1 + context.index(variable), stride * np.arange(sizes[variable]))
    return index


def _transition_index(
    layout: Layout, group: Group, representatives: Index, offsets: list[int]
) -> Index:
    structure = layout.structure
    parts = []
    for position, i in enumerate(group.members):
        size = structure.state_sizes[i]
        strides = _scope_strides(structure, structure.transition_scopes[i])
        index = _row_index(layout, group, representatives, strides, group.context, True) * size
        view = [1] * index.ndim
        view[1 + len(group.context) + position] = size
        index += np.arange(size).reshape(view) + offsets[i]
        parts.append(index.reshape(-1))
    return np.stack(parts)


def _free_index(layout: Layout, group: Group, representatives: Index, offsets: list[int]) -> Index:
    if not layout.nested:
        return np.zeros((1, 0), dtype=np.int64)
    (i,) = group.members
    strides = _scope_strides(layout.structure, layout.structure.transition_scopes[i])
    index = _row_index(layout, group, representatives, strides, group.context, False)
    return (index + offsets[i]).reshape(1, -1)


def _reward_index(
    layout: Layout, group: Group, representatives: Index, offsets: list[int]
) -> Index:
    if not group.rewards:
        return np.zeros((1, 0), dtype=np.int64)
    structure = layout.structure
    parts = []
    for f in group.rewards:
        strides = _scope_strides(structure, structure.reward_scopes[f])
        index = _row_index(layout, group, representatives, strides, group.reward_context, False)
        parts.append((index + offsets[f]).reshape(-1))
    return np.stack(parts)


def _axis_offsets(axes: Sequence[int], strides: dict[int, int], sizes: Sequence[int]) -> Index:
    """For every cell of a tensor with these axes: the sum of stride * value."""
    result = np.zeros(1, dtype=np.int64)
    for axis in axes:
        step = int(strides.get(axis, 0)) * np.arange(sizes[axis], dtype=np.int64)
        result = (result[:, None] + step[None, :]).reshape(-1)
    return result


def _context_offsets(axes: Sequence[int], context: Sequence[int], sizes: Sequence[int]) -> Index:
    strides = dict(zip(context, _strides([sizes[j] for j in context]), strict=True))
    return _axis_offsets(axes, strides, sizes)


def _branch_offsets(
    values: Index, branch: Sequence[int], context: Sequence[int], sizes: Sequence[int]
) -> Index:
    strides = dict(zip(context, _strides([sizes[j] for j in context]), strict=True))
    return values @ np.array([strides.get(j, 0) for j in branch], dtype=np.int64)


def _action_tree(layout: Layout, classes: Index) -> tuple[Index, Index, Index, Index]:
    """The steps in depth-first order, and the joint actions that end at each leaf."""
    n_groups, n_actions = classes.shape
    sizes = layout.structure.state_sizes
    m_rows = [_volume(group.context, sizes) for group in layout.groups]
    r_rows = [_volume(group.reward_context, sizes) for group in layout.groups]
    # Sorting the actions by their classes, first group first, puts the tree in depth-first order.
    order = np.lexsort(classes[::-1])
    nodes: list[tuple[int, int, int, int]] = []
    leaf_start, leaf_actions = [0], []
    action_leaf = np.empty(n_actions, dtype=np.int64)
    previous: Index | None = None
    for action in order:
        path = classes[:, action]
        if previous is not None and np.array_equal(path, previous):
            action_leaf[action] = len(leaf_start) - 2
        else:
            split = 0 if previous is None else int(np.argmax(path != previous))
            for g in range(split, n_groups):
                leaf = len(leaf_start) - 1 if g == n_groups - 1 else -1
                nodes.append((g, int(path[g]) * m_rows[g], int(path[g]) * r_rows[g], leaf))
            action_leaf[action] = len(leaf_start) - 1
            leaf_start.append(leaf_start[-1])
            previous = path
        leaf_actions.append(int(action))
        leaf_start[-1] += 1
    return (
        np.array(nodes, dtype=np.int64),
        np.array(leaf_start, dtype=np.int64),
        np.array(leaf_actions, dtype=np.int64),
        action_leaf,
    )
