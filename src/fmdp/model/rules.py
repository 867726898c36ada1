"""Rules: which rows of a table are one row, said by conditions of which the first that fits counts.

A *box* is a condition on the variables of a scope, axis -> allowed values, and holds the rows

    { x : x[axis] in box[axis] for every axis in the box };

a rule is a list of boxes, any of which will do. `owners` gives every row the first rule that fits
it. `find_rules` goes the other way, from classes of rows to few rules with the same classes: a
class whose hull (the smallest box that holds it) has no rows of others but of earlier rules is one
box; where no class is like that, the smallest one is cut into boxes, axis by axis, values with
equal slices together. It is greedy: exact in what it says, not the shortest that could be said.

Cost: `owners` writes each box once; `find_rules` reads each hull a few times.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fmdp.model.spaces import IndexArray, count

Box = Mapping[int, tuple[int, ...]]
"""Axis -> values that it may have, sorted; axes that are not there may have any."""

MOST_CELLS = 1 << 33
"""Rows that the boxes of one factor's rules may hold together: some seconds of writing."""
_MOST_LOOKED_AT = 1 << 27
"""Rows that the search for rules may look at: about a second."""


class Rule(NamedTuple):
    """A class of rows and the boxes that, after the rules before it, are its rows."""

    owner: int
    boxes: tuple[Box, ...]


def cells(sizes: Sequence[int], box: Box) -> int:
    """Number of rows in a box, exact."""
    return count([len(box[axis]) if axis in box else size for axis, size in enumerate(sizes)])


def owners(sizes: Sequence[int], rules: Sequence[Sequence[Box]]) -> IndexArray:
    """The number of the first rule that fits each row, in C order: [count(sizes)]; -1 for none."""
    owner = np.full(count(sizes), -1, dtype=np.int64)
    cube, axes = _cube(owner, sizes)
    # The first rule counts, so it is written last.
    for number in range(len(rules) - 1, -1, -1):
        for box in rules[number]:
            cube[_place(box, axes)] = number
    return owner


def inside(sizes: Sequence[int], boxes: Sequence[Box]) -> NDArray[np.bool_]:
    """Whether each row is in any of the boxes: [count(sizes)]."""
    return owners(sizes, [boxes]) >= 0


def find_rules(sizes: Sequence[int], classes: IndexArray, most_boxes: int) -> list[Rule] | None:
    """Rules with these classes of rows, in order; None where they would be more than so many boxes,
    or take long to find.

    Every row is fitted by one.
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
    found: list[Rule] = []
    n_boxes = 0

    def box_of(number: int) -> Box:
        return _box([np.flatnonzero(present[number]) for present in hulls], cube.shape, axes)

    def close(number: int, boxes: Sequence[Box]) -> None:
        nonlocal n_boxes
        n_boxes += len(boxes)
        found.append(Rule(int(names[number]), tuple(boxes)))

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
            smallest = min(later, key=lambda one: (int(rows[one]), one))
            later.remove(smallest)
            close(smallest, _boxes_of(smallest, cube, hulls, axes))
            np.putmask(open_rows, open_rows == smallest, -1)
        waiting = later
    if n_boxes > most_boxes:
        return None
    if len(found[-1].boxes) > 1:
        found[-1] = Rule(found[-1].owner, ({},))  # all other rows have had their rule
    return found


def _boxes_of(
    number: int, cube: IndexArray, hulls: Sequence[NDArray[np.bool_]], axes: Sequence[int]
) -> list[Box]:
    """Boxes that hold the rows of a class and of earlier rules, and no others."""
    chosen = [np.flatnonzero(present[number]) for present in hulls]
    part = cube[np.ix_(*chosen)]
    return [
        _box([own[within] for own, within in zip(chosen, cut, strict=True)], cube.shape, axes)
        for cut in _cut(part == number, (part == number) | (part == -1))
    ]


def find_boxes(sizes: Sequence[int], mask: NDArray[np.bool_]) -> tuple[Box, ...]:
    """Disjoint boxes that together hold the rows of a mask [count(sizes)]."""
    cube, axes = _cube(mask, sizes)
    if not cube.any():
        return ()
    chosen = [
        np.flatnonzero(cube.any(axis=tuple(a for a in range(cube.ndim) if a != axis)))
        for axis in range(cube.ndim)
    ]
    part = cube[np.ix_(*chosen)] if chosen else cube
    return tuple(
        _box([own[within] for own, within in zip(chosen, cut, strict=True)], cube.shape, axes)
        for cut in _cut(part, part)
    )


def _cube(flat: NDArray[Any], sizes: Sequence[int]) -> tuple[NDArray[Any], tuple[int, ...]]:
    """A view with an axis for each variable of more than one value, and which ones they are:
    NumPy has at most 64 axes, and what has more such variables has too many rows anyway."""
    axes = tuple(axis for axis, size in enumerate(sizes) if size > 1)
    return flat.reshape([sizes[axis] for axis in axes]), axes


def _place(box: Box, axes: Sequence[int]) -> tuple[Any, ...]:
    """The index of a box in a cube."""
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
    # Several lists must be crossed, not walked together: each gets an axis of its own.
    return tuple(_crossed(parts))


def _crossed(parts: Sequence[Any]) -> Iterator[Any]:
    for axis, part in enumerate(parts):
        if isinstance(part, slice):
            yield part
        else:
            lists_after = sum(not isinstance(other, slice) for other in parts[axis + 1 :])
            yield part.reshape((-1,) + (1,) * lists_after)


def _hulls(cube: IndexArray, n_classes: int) -> list[NDArray[np.bool_]]:
    """For each axis which values each class has: [classes, size]."""
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
        axis: tuple(own.tolist())
        for own, size, axis in zip(values, shape, axes, strict=True)
        if len(own) < size
    }


def _cut(wanted: NDArray[np.bool_], free: NDArray[np.bool_]) -> Iterator[list[IndexArray]]:
    """Boxes, one array of places an axis, that hold all wanted cells and only free ones."""
    chosen = [np.arange(size) for size in wanted.shape]
    if free.all():
        yield chosen
        return
    groups = [_equal_slices(wanted, axis) for axis in range(wanted.ndim)]
    # Fewest groups first: the fewest boxes that this cut makes. One group tells nothing apart.
    axis = min(
        (axis for axis in range(wanted.ndim) if len(groups[axis]) > 1),
        key=lambda axis: (len(groups[axis]), axis),
    )
    for group in groups[axis]:
        part, part_free = wanted.take(group, axis=axis), free.take(group, axis=axis)
        if not part.any():
            continue
        # The hull of the part, so that what no longer matters is not cut again.
        inner = [
            np.flatnonzero(part.any(axis=tuple(a for a in range(part.ndim) if a != other)))
            for other in range(part.ndim)
        ]
        place = np.ix_(*inner)
        for cut in _cut(part[place], part_free[place]):
            merged = [own[within] for own, within in zip(inner, cut, strict=True)]
            merged[axis] = group[merged[axis]]
            yield merged


def _equal_slices(cube: NDArray[np.bool_], axis: int) -> list[IndexArray]:
    """The values of an axis, those with equal slices together."""
    together: dict[bytes, list[int]] = {}
    for value in range(cube.shape[axis]):
        together.setdefault(cube.take(value, axis=axis).tobytes(), []).append(value)
    return [np.array(group, dtype=np.int64) for group in together.values()]
