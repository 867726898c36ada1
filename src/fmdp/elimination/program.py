"""Programs of the kernels: from a layout to nodes and index arrays.

Joint actions whose tables agree in all groups so far share those steps. The steps form a tree (a
trie of action classes), which is walked depth first with one buffer per level. The other arrays are
offsets: where a step finds its rows, which states its last tensor holds, and from which entries of
the model's tables the rows of a fused group are multiplied.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fmdp._base.deadlines import NEVER, Deadline
from fmdp.elimination import kernels as k
from fmdp.elimination.action_classes import Index
from fmdp.elimination.alignment import LINE, next_start
from fmdp.elimination.layout import Group, Layout, volume
from fmdp.model.spaces import all_assignments, starts, strides


@dataclass(frozen=True, eq=False)
class Program:
    """A program of the kernels, and the sources of its tables."""

    layout: Layout
    steps: k.Steps
    row_sources: k.Sources  # in the transition tables
    free_sources: k.Sources  # in the free masses
    reward_sources: k.Sources  # in the reward tables
    arena_size: int


def build_program(
    layout: Layout, deadline: Deadline = NEVER, *, shape: int = k.FREE, worst: bool = False
) -> Program:
    """Return the program of a layout; `Layout.memory` has predicted its size. `shape` and `worst`
    apply to nested layouts: the sets that rows are chosen from, and whether the row of least value
    is chosen."""
    structure = layout.structure
    sizes = structure.state_sizes
    joint_actions = layout.classes.actions

    levels = np.zeros((len(layout.groups), k.N_LEVEL_FIELDS), dtype=np.int64)
    classes = np.empty((len(layout.groups), len(joint_actions)), dtype=np.int64)
    rows, free, rewards = _Gathering(), _Gathering(), _Gathering()
    contexts: list[Index] = []  # per group [2, outer * rep]
    branch_values = all_assignments([sizes[j] for j in layout.branch])  # [branches, len(branch)]
    branch_rows = np.zeros((2, len(branch_values), len(layout.groups)), dtype=np.int64)
    axes: list[int] = []
    context_base = buffer = arena_size = 0

    for g, group in enumerate(layout.groups):
        deadline.check()
        classes[g], first = layout.classes.of_group(layout.steps[g])
        representatives = joint_actions[first]  # [classes, action variables]
        known = (group.context, group.reward_context)
        step_axes = [*axes, *group.opened]
        contexts.append(np.stack([_context_offsets(step_axes, scope, sizes) for scope in known]))
        for kind, scope in enumerate(known):
            branch_rows[kind, :, g] = _branch_offsets(branch_values, layout.branch, scope, sizes)

        level = levels[g]
        level[k.OUTER], level[k.REP] = group.outer, group.rep
        level[k.V], level[k.U], level[k.INNER] = group.n_v, group.n_u, group.inner
        level[k.M_BASE], level[k.F_BASE], level[k.R_BASE] = rows.size, free.size, rewards.size
        level[k.CTX_BASE], level[k.BUFFER] = context_base, buffer
        level[k.HAS_R] = bool(group.rewards)
        level[k.APART] = 0 if layout.nested else _apart(contexts[-1], group)

        rows.add(_transition_index(layout, group, representatives, deadline))
        if layout.nested:
            free.add(_free_index(layout, group, representatives))
        rewards.add(_reward_index(layout, group, representatives, deadline))
        context_base += group.outer * group.rep
        arena_size = buffer + group.out_size
        buffer = next_start(buffer, arena_size)
        axes += [*group.opened, *group.own]

    deadline.check()
    nodes, leaf_start, leaf_actions, action_leaf = _action_tree(layout, classes)
    in_c_order = strides_of(range(structure.m), sizes)
    orders = (strides_of(layout.order, sizes), in_c_order, in_c_order)  # see kernels.Steps
    branch_strides = [[stride[j] for j in layout.branch] for stride in orders]
    steps = k.Steps(
        levels=levels,
        nodes=nodes,
        contexts=np.concatenate(contexts, axis=1),
        branch_rows=branch_rows,
        branch_bases=np.stack(
            [branch_values @ np.array(steps, dtype=np.int64) for steps in branch_strides]
        ),
        offsets=np.stack([_axis_offsets(axes, stride, sizes) for stride in orders]),
        leaf_start=leaf_start,
        leaf_actions=leaf_actions,
        action_leaf=action_leaf,
        rows=np.empty(rows.size),
        free=np.empty(free.size),
        rewards=np.empty(rewards.size),
        caps=np.empty(rows.size if shape in (k.BOX, k.DIVERGENCE) else 0),
        shape=np.array([shape, worst], dtype=np.int64),
    )
    return Program(layout, steps, rows.sources(), free.sources(), rewards.sources(), arena_size)


class _Gathering:
    """Index arrays of the groups, [parts, entries] each, end to end."""

    def __init__(self) -> None:
        self._groups: list[Index] = []
        self.size = 0

    def add(self, index: Index) -> None:
        self._groups.append(index)
        self.size += index.shape[1]

    def sources(self) -> k.Sources:
        shapes = np.array([index.shape for index in self._groups], dtype=np.int64).reshape(-1, 2)
        flat = [index.reshape(-1) for index in self._groups]
        return k.Sources(
            at=np.concatenate([*flat, np.zeros(0, dtype=np.int64)]),
            first=starts(shapes[:, 0] * shapes[:, 1])[:-1],
            parts=shapes[:, 0].copy(),
            start=starts(shapes[:, 1]),
        )


def strides_of(variables: Sequence[int], sizes: Sequence[int]) -> dict[int, int]:
    """Return the stride of every variable in the C-order index over `variables`."""
    return dict(zip(variables, strides([sizes[v] for v in variables]), strict=True))


def _row_index(
    layout: Layout,
    group: Group,
    representatives: Index,
    stride_of: dict[int, int],
    context: tuple[int, ...],
    with_values: bool,
) -> Index:
    """Return the table row over [class, context..., (member values...,) own...] as an array."""
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

    for variable, stride in stride_of.items():
        if variable >= m:
            add(0, stride * representatives[:, variable - m])
        elif variable in group.own:
            axis = 1 + len(context) + len(middle) + group.own.index(variable)
            add(axis, stride * np.arange(sizes[variable]))
        else:
            add(1 + context.index(variable), stride * np.arange(sizes[variable]))
    return index


def _transition_index(
    layout: Layout, group: Group, representatives: Index, deadline: Deadline
) -> Index:
    structure = layout.structure
    parts = []
    for position, i in enumerate(group.members):
        deadline.check()
        size = structure.state_sizes[i]
        stride_of = strides_of(structure.transition_scopes[i], structure.sizes)
        index = _row_index(layout, group, representatives, stride_of, group.context, True) * size
        view = [1] * index.ndim
        view[1 + len(group.context) + position] = size
        index += np.arange(size).reshape(view) + structure.transition_starts[i]
        parts.append(index.reshape(-1))
    return np.stack(parts)


def _free_index(layout: Layout, group: Group, representatives: Index) -> Index:
    (i,) = group.members
    stride_of = strides_of(layout.structure.transition_scopes[i], layout.structure.sizes)
    index = _row_index(layout, group, representatives, stride_of, group.context, False)
    return (index + layout.structure.row_starts[i]).reshape(1, -1)


def _reward_index(
    layout: Layout, group: Group, representatives: Index, deadline: Deadline
) -> Index:
    if not group.rewards:
        return np.zeros((1, 0), dtype=np.int64)
    structure = layout.structure
    parts = []
    for f in group.rewards:
        deadline.check()
        stride_of = strides_of(structure.reward_scopes[f], structure.sizes)
        index = _row_index(layout, group, representatives, stride_of, group.reward_context, False)
        parts.append((index + structure.reward_starts[f]).reshape(-1))
    return np.stack(parts)


def _axis_offsets(axes: Sequence[int], stride_of: dict[int, int], sizes: Sequence[int]) -> Index:
    """Return, for every cell of a tensor with these axes, the sum of stride * value."""
    result = np.zeros(1, dtype=np.int64)
    for axis in axes:
        step = stride_of.get(axis, 0) * np.arange(sizes[axis], dtype=np.int64)
        result = (result[:, None] + step[None, :]).reshape(-1)
    return result


def _context_offsets(axes: Sequence[int], context: Sequence[int], sizes: Sequence[int]) -> Index:
    return _axis_offsets(axes, strides_of(context, sizes), sizes)


def _apart(contexts: Index, group: Group) -> int:
    """Return a distance such that any eight cells so far apart read the same rows, 0 if there is
    none or if the step has no use for it (steps.py)."""
    cells = contexts.shape[1]
    apart = group.rep
    while group.inner in (1, LINE) and cells % (LINE * apart) == 0:
        eight = contexts.reshape(2, -1, LINE, apart)
        if (eight == eight[:, :, :1]).all():
            return apart
        apart *= 2
    return 0


def _branch_offsets(
    values: Index, branch: Sequence[int], context: Sequence[int], sizes: Sequence[int]
) -> Index:
    stride_of = strides_of(context, sizes)
    return values @ np.array([stride_of.get(j, 0) for j in branch], dtype=np.int64)


def _action_tree(layout: Layout, classes: Index) -> tuple[Index, Index, Index, Index]:
    """Return the steps in depth-first order, and the joint actions that end at each leaf."""
    n_groups, n_actions = classes.shape
    sizes = layout.structure.state_sizes
    m_rows = [volume(group.context, sizes) for group in layout.groups]
    r_rows = [volume(group.reward_context, sizes) for group in layout.groups]
    # Sorting the actions by their classes, first group first, puts the tree in depth-first order.
    order = np.lexsort(classes[::-1])
    paths = classes[:, order]
    differs = np.ones((n_groups, n_actions), dtype=np.bool_)  # from the action before
    differs[:, 1:] = paths[:, 1:] != paths[:, :-1]
    begins = np.flatnonzero(differs.any(axis=0))  # the first action of every leaf
    # A leaf has its own steps from the first group on in which it differs from the one before.
    branches_off = np.logical_or.accumulate(differs[:, begins], axis=0).T  # [leaves, groups]
    leaf, group = np.nonzero(branches_off)
    path = paths[group, begins[leaf]]
    nodes = np.stack(
        [
            group,
            path * np.array(m_rows, dtype=np.int64)[group],
            path * np.array(r_rows, dtype=np.int64)[group],
            np.where(group == n_groups - 1, leaf, -1),
        ],
        axis=1,
    )
    leaf_start = np.append(begins, n_actions)
    structure = layout.structure
    numbers = layout.classes.actions @ np.array(strides(structure.action_sizes), dtype=np.int64)
    action_leaf = np.full(structure.n_actions, -1, dtype=np.int64)
    action_leaf[numbers[order]] = np.repeat(np.arange(len(begins)), np.diff(leaf_start))
    return nodes.astype(np.int64), leaf_start.astype(np.int64), numbers[order], action_leaf
