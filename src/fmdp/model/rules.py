"""Rules: classes of rows of a table, given by conditions of which the first that fits counts.

A *box* is a condition on the variables of a scope, axis -> allowed values, and holds the rows

    { x : x[axis] in box[axis] for every axis in the box };

a rule is a list of boxes, any of which will do. `owners` finds the first rule that fits each row.
`find_rules` goes the other way, from classes of rows to few rules: a class whose hull (the smallest
box that holds it) has no other rows but those of earlier rules becomes one box; if there is no such
class, the smallest one is cut into boxes, axis by axis, values with equal slices together. The
result is exact but, the search being greedy, not always the shortest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fmdp.model.spaces import IndexArray, count

Box = Mapping[int, tuple[int, ...]]
"""Axis -> allowed values, sorted; all values of the other axes are allowed."""

MOST_CELLS = 1 << 33
"""Most rows that the boxes of a factor may hold together; these take some seconds to write."""
_MOST_LOOKED_AT = 1 << 27
"""Most rows that the search for rules reads, about a second."""


class Rule(NamedTuple):
    """A class of rows and the boxes that hold its rows and else only those of earlier rules."""

    owner: int
    boxes: tuple[Box, ...]


def cells(sizes: Sequence[int], box: Box) -> int:
    """Return the number of rows in a box, exact."""
    return count([len(box[axis]) if axis in box else size for axis, size in enumerate(sizes)])


def owners(sizes: Sequence[int], rules: Sequence[Sequence[Box]]) -> IndexArray:
    """Return the first rule that fits each row, in C order: [count(sizes)]; -1 for none."""
    owner = np.full(count(sizes), -1, dtype=np.int64)
    cube, axes = _cube(owner, sizes)
    # The first rule counts, so it is written last.
    for number in range(len(rules) - 1, -1, -1):
        for box in rules[number]:
            cube[_place(box, axes)] = number
    return owner


def inside(sizes: Sequence[int], boxes: Sequence[Box]) -> NDArray[np.bool_]:
    """Return whether each row is in any of the boxes: [count(sizes)]."""
    return owners(sizes, [boxes]) >= 0


def find_rules(sizes: Sequence[int], classes: IndexArray, most_boxes: int) -> list[Rule] | None:
    """Return rules with these classes of rows, which fit every row.

    None if there would be more than `most_boxes` boxes, or the search would take long.
    """
    _, first, local = np.unique(classes, return_index=True, return_inverse=True)
    n_classes = len(first)
    if n_classes > most_boxes or n_classes * sum(sizes) > _MOST_LOOKED_AT:
        return None
    rank = np.empty(n_classes, dtype=np.int64)
    rank[np.argsort(first)] = np.arange(n_classes)
    names = classes[np.sort(first)]
    open_rows = rank[local.reshape(-1)]  # becomes -1 where a rule has been found
    cube, axes = _cube(open_rows, sizes)
    hulls = _hulls(cube, n_classes)
    sizes_of_hulls = np.ones(n_classes)
    for present in hulls:
        sizes_of_hulls *= present.sum(axis=1)
    rows = np.bincount(open_rows, minlength=n_classes)
    budget = _MOST_LOOKED_AT
    rules: list[Rule] = []
    n_boxes = 0

    def box_of(number: int) -> Box:
        return _box([np.flatnonzero(present[number]) for present in hulls], cube.shape, axes)

    def close(number: int, boxes: Sequence[Box]) -> None:
        nonlocal n_boxes
        n_boxes += len(boxes)
        rules.append(Rule(int(names[number]), tuple(boxes)))

    exact = sizes_of_hulls == rows
    for number in np.flatnonzero(exact).tolist():
        close(number, [box_of(number)])
    np.putmask(open_rows, exact[open_rows], -1)
    waiting: list[int] = np.flatnonzero(~exact).tolist()
    while waiting:
        later: list[int] = []
        for number in waiting:
            budget -= int(sizes_of_hulls[number])
            if budget < 0 or n_boxes > most_boxes:
                return None
            place = np.ix_(*(np.flatnonzero(present[number]) for present in hulls))
            part = cube[place]
            if ((part == number) | (part == -1)).all():
                close(number, [box_of(number)])
                cube[place] = -1
            else:
                later.append(number)
        if len(later) == len(waiting):
            smallest = min(later, key=lambda number: (int(rows[number]), number))
            later.remove(smallest)
            close(smallest, _boxes_of(smallest, cube, hulls, axes))
            np.putmask(open_rows, open_rows == smallest, -1)
        waiting = later
    if n_boxes > most_boxes:
        return None
    if len(rules[-1].boxes) > 1:
        rules[-1] = Rule(rules[-1].owner, ({},))  # all other rows have had their rule
    return rules


def _boxes_of(
    number: int, cube: IndexArray, hulls: Sequence[NDArray[np.bool_]], axes: Sequence[int]
) -> list[Box]:
    """Return boxes that hold all rows of a class, and else only rows of earlier rules."""
    chosen = [np.flatnonzero(present[number]) for present in hulls]
    part = cube[np.ix_(*chosen)]
    return [
        _box([values[within] for values, within in zip(chosen, cut, strict=True)], cube.shape, axes)
        for cut in _cut(part == number, (part == number) | (part == -1))
    ]


def find_boxes(sizes: Sequence[int], mask: NDArray[np.bool_]) -> tuple[Box, ...]:
    """Return disjoint boxes that together hold the rows of a mask [count(sizes)]."""
    cube, axes = _cube(mask, sizes)
    if not cube.any():
        return ()
    chosen = [
        np.flatnonzero(cube.any(axis=tuple(a for a in range(cube.ndim) if a != axis)))
        for axis in range(cube.ndim)
    ]
    part = cube[np.ix_(*chosen)] if chosen else cube
    return tuple(
        _box([values[within] for values, within in zip(chosen, cut, strict=True)], cube.shape, axes)
        for cut in _cut(part, part)
    )


def _cube(flat: NDArray[Any], sizes: Sequence[int]) -> tuple[NDArray[Any], tuple[int, ...]]:
    """Return a view with one axis per variable of several values, and these variables.

    More than 64 such variables, NumPy's limit, would have too many rows anyway.
    """
    axes = tuple(axis for axis, size in enumerate(sizes) if size > 1)
    return flat.reshape([sizes[axis] for axis in axes]), axes


def _place(box: Box, axes: Sequence[int]) -> tuple[Any, ...]:
    """Return the index of a box in a cube."""
    parts: list[Any] = []
    lists = False
    for axis in axes:
        values = box.get(axis)
        if values is None:
            parts.append(slice(None))
        elif values[-1] - values[0] == len(values) - 1:
            parts.append(slice(values[0], values[-1] + 1))
        else:
            parts.append(np.array(values))
            lists = True
    if not lists:
        return tuple(parts)
    # Several lists are crossed: each gets its own axis.
    return tuple(_crossed(parts))


def _crossed(parts: Sequence[Any]) -> Iterator[Any]:
    for axis, part in enumerate(parts):
        if isinstance(part, slice):
            yield part
        else:
            lists_after = sum(not isinstance(other, slice) for other in parts[axis + 1 :])
            yield part.reshape((-1,) + (1,) * lists_after)


def _hulls(cube: IndexArray, n_classes: int) -> list[NDArray[np.bool_]]:
    """Return for each axis which values each class has: [classes, size]."""
    hulls = []
    for axis, size in enumerate(cube.shape):
        present = np.zeros((n_classes, size), dtype=np.bool_)
        for value in range(size):
            present[cube.take(value, axis=axis).reshape(-1), value] = True
        hulls.append(present)
    return hulls


def _box(
    values: Sequence[IndexArray], shape: Sequence[int], axes: Sequence[int]
) -> dict[int, tuple[int, ...]]:
    return {
        axis: tuple(chosen.tolist())
        for chosen, size, axis in zip(values, shape, axes, strict=True)
        if len(chosen) < size
    }


def _cut(wanted: NDArray[np.bool_], free: NDArray[np.bool_]) -> Iterator[list[IndexArray]]:
    """Yield boxes, one array of places per axis, that hold all wanted and only free cells."""
    chosen = [np.arange(size) for size in wanted.shape]
    if free.all():
        yield chosen
        return
    groups = [_equal_slices(wanted, axis) for axis in range(wanted.ndim)]
    # The axis with the fewest groups, at least two, gives the fewest boxes.
    axis = min(
        (axis for axis in range(wanted.ndim) if len(groups[axis]) > 1),
        key=lambda axis: (len(groups[axis]), axis),
    )
    for group in groups[axis]:
        part, part_free = wanted.take(group, axis=axis), free.take(group, axis=axis)
        if not part.any():
            continue
        # Only the hull of the part is cut again.
        inner = [
            np.flatnonzero(part.any(axis=tuple(a for a in range(part.ndim) if a != other)))
            for other in range(part.ndim)
        ]
        place = np.ix_(*inner)
        for cut in _cut(part[place], part_free[place]):
            merged = [places[within] for places, within in zip(inner, cut, strict=True)]
            merged[axis] = group[merged[axis]]
            yield merged


def _equal_slices(cube: NDArray[np.bool_], axis: int) -> list[IndexArray]:
    """Return the values of an axis, grouped by equal slices."""
    together: dict[bytes, list[int]] = {}
    for value in range(cube.shape[axis]):
        together.setdefault(cube.take(value, axis=axis).tobytes(), []).append(value)
    return [np.array(group, dtype=np.int64) for group in together.values()]
