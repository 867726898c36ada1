"""From a layout to the program that the kernels run: nodes and index arrays.

Joint actions whose tables agree in all groups so far share those steps: the steps form a tree (a
trie of action classes), walked depth first with one buffer a level.  Everything else is offsets:
where a step finds its rows, which states its last tensor holds, and from which entries of the
model's tables the rows of a fused group are multiplied.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fmdp.elimination import kernels as k
from fmdp.elimination.classes import Index, flat_offsets
from fmdp.elimination.layout import Group, Layout, volume
from fmdp.model.spaces import all_assignments, strides


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
    joint_actions = all_assignments(structure.action_sizes)  # [A, action variables]
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
    branch_values = all_assignments([sizes[j] for j in layout.branch])  # [branches, len(branch)]
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

        rows = volume(group.context, sizes)
        r_rows = volume(group.reward_context, sizes)
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
    internal = strides_of(layout.order, sizes)
    canonical = strides_of(range(structure.m), sizes)
    return Program(
        layout=layout,
        levels=levels,
        nodes=nodes,
        contexts=np.stack([np.concatenate(ctx_parts), np.concatenate(rctx_parts)]),
        branch_rows=np.stack([branch_m, branch_r]),
        branch_bases=np.stack(
            [
                branch_values @ np.array([place[j] for j in layout.branch], dtype=np.int64)
                for place in (internal, canonical)
            ]
        ),
        offsets=np.stack([_axis_offsets(axes, place, sizes) for place in (internal, canonical)]),
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


def strides_of(variables: Sequence[int], sizes: Sequence[int]) -> dict[int, int]:
    """Stride of every variable in the C-order index over `variables`."""
    return dict(zip(variables, strides([sizes[v] for v in variables]), strict=True))


def _row_index(
    layout: Layout,
    group: Group,
    representatives: Index,
    place: dict[int, int],
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

    for variable, stride in place.items():
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
        place = strides_of(structure.transition_scopes[i], structure.sizes)
        index = _row_index(layout, group, representatives, place, group.context, True) * size
        view = [1] * index.ndim
        view[1 + len(group.context) + position] = size
        index += np.arange(size).reshape(view) + offsets[i]
        parts.append(index.reshape(-1))
    return np.stack(parts)


def _free_index(layout: Layout, group: Group, representatives: Index, offsets: list[int]) -> Index:
    if not layout.nested:
        return np.zeros((1, 0), dtype=np.int64)
    (i,) = group.members
    place = strides_of(layout.structure.transition_scopes[i], layout.structure.sizes)
    index = _row_index(layout, group, representatives, place, group.context, False)
    return (index + offsets[i]).reshape(1, -1)


def _reward_index(
    layout: Layout, group: Group, representatives: Index, offsets: list[int]
) -> Index:
    if not group.rewards:
        return np.zeros((1, 0), dtype=np.int64)
    structure = layout.structure
    parts = []
    for f in group.rewards:
        place = strides_of(structure.reward_scopes[f], structure.sizes)
        index = _row_index(layout, group, representatives, place, group.reward_context, False)
        parts.append((index + offsets[f]).reshape(-1))
    return np.stack(parts)


def _axis_offsets(axes: Sequence[int], place: dict[int, int], sizes: Sequence[int]) -> Index:
    """For every cell of a tensor with these axes: the sum of stride * value."""
    result = np.zeros(1, dtype=np.int64)
    for axis in axes:
        step = place.get(axis, 0) * np.arange(sizes[axis], dtype=np.int64)
        result = (result[:, None] + step[None, :]).reshape(-1)
    return result


def _context_offsets(axes: Sequence[int], context: Sequence[int], sizes: Sequence[int]) -> Index:
    return _axis_offsets(axes, strides_of(context, sizes), sizes)


def _branch_offsets(
    values: Index, branch: Sequence[int], context: Sequence[int], sizes: Sequence[int]
) -> Index:
    place = strides_of(context, sizes)
    return values @ np.array([place.get(j, 0) for j in branch], dtype=np.int64)


def _action_tree(layout: Layout, classes: Index) -> tuple[Index, Index, Index, Index]:
    """The steps in depth-first order, and the joint actions that end at each leaf."""
    n_groups, n_actions = classes.shape
    sizes = layout.structure.state_sizes
    m_rows = [volume(group.context, sizes) for group in layout.groups]
    r_rows = [volume(group.reward_context, sizes) for group in layout.groups]
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
