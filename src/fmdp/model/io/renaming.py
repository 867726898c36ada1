"""Renamings: whether one factor's classes of rows are another's with variables and values renamed.

    classes_b(x) = classes_a(y),   y_axis = value_axis(x[variable of the axis])

Variables are matched by what their slices hold: an axis can only stand for one whose slices, value
by value, hold the same numbers of the same classes. What fits so is tried, a few dozen times at
most, and taken only if the classes are equal row by row: what is found is right, and a renaming
that is hard to find is not found. Cost: a sort of the table for each axis.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from hashlib import sha256
from typing import NamedTuple

import numpy as np

from fmdp.model.spaces import IndexArray, count, strides

_MOST_TRIED = 32
_MOST_LOOKED_AT = 1 << 25


class Renaming(NamedTuple):
    """Which axis of the new factor each axis of the old one is, and for each value of that axis the
    old value that it stands for."""

    axes: tuple[int, ...]
    values: tuple[IndexArray, ...]


def renamed_rows(renaming: Renaming, old_sizes: Sequence[int]) -> IndexArray:
    """For each row of the new factor, in its own order, the row of the old one."""
    rows = np.zeros(1, dtype=np.int64)
    for values, step in zip(renaming.values, strides(old_sizes), strict=True):
        rows = (rows[:, None] + values * step).reshape(-1)
    order = [renaming.axes.index(axis) for axis in range(len(old_sizes))]
    cube = rows.reshape([len(values) for values in renaming.values])
    return np.ascontiguousarray(cube.transpose(order)).reshape(-1)


def find_renaming(
    old: IndexArray, old_sizes: Sequence[int], new: IndexArray, new_sizes: Sequence[int]
) -> Renaming | None:
    """A renaming that turns the old classes into the new ones; None if none is found."""
    if sorted(old_sizes) != sorted(new_sizes) or len(old_sizes) > 32:
        return None
    if count(old_sizes) * (len(old_sizes) + 1) > _MOST_LOOKED_AT:
        return None
    told = [_slices(old, old_sizes, axis) for axis in range(len(old_sizes))]
    heard = [_slices(new, new_sizes, axis) for axis in range(len(new_sizes))]
    fits = [
        # Those whose values need no new names first.
        sorted(
            (axis for axis, there in enumerate(heard) if sorted(there) == sorted(here)),
            key=lambda axis, here=here: (heard[axis] != here, axis),  # type: ignore[misc]
        )
        for here in told
    ]
    for axes in itertools.islice(_choices(fits), _MOST_TRIED):
        values = tuple(_values(here, heard[axis]) for here, axis in zip(told, axes, strict=True))
        renaming = Renaming(axes, values)
        if np.array_equal(old[renamed_rows(renaming, old_sizes)], new):
            return renaming
    return None


def _slices(classes: IndexArray, sizes: Sequence[int], axis: int) -> list[bytes]:
    """For each value of an axis what classes its rows have, in no order, as a digest."""
    before, after = count(sizes[:axis]), count(sizes[axis + 1 :])
    slices = classes.reshape(before, sizes[axis], after).transpose(1, 0, 2)
    return [sha256(np.sort(own, axis=None).tobytes()).digest() for own in slices]


def _choices(fits: Sequence[Sequence[int]]) -> Iterator[tuple[int, ...]]:
    """Ways to give each old axis a new one of its own."""
    chosen: list[int] = []
    waiting = [iter(fits[0])] if fits else []
    if not fits:
        yield ()
    while waiting:
        axis = next((own for own in waiting[-1] if own not in chosen), None)
        if axis is None:
            waiting.pop()
            if chosen:
                chosen.pop()
        elif len(waiting) == len(fits):
            yield (*chosen, axis)
        else:
            chosen.append(axis)
            waiting.append(iter(fits[len(chosen)]))


def _values(told: Sequence[bytes], heard: Sequence[bytes]) -> IndexArray:
    """For each new value the old one with equal slices.

    Where it will do, all values but those whose slices are like no other's keep their order, which
    takes the fewest words; else a value stands for itself where it can.
    """
    times = Counter(told)
    alone = {own: value for value, own in enumerate(told) if times[own] == 1}
    source = np.array([alone.get(own, -1) for own in heard], dtype=np.int64)
    source[source < 0] = np.setdiff1d(np.arange(len(told)), source)
    if all(told[value] == own for value, own in zip(source.tolist(), heard, strict=True)):
        return source
    source.fill(-1)
    left: dict[bytes, list[int]] = {}
    for value, (here, there) in enumerate(zip(told, heard, strict=True)):
        if here == there:
            source[value] = value
        else:
            left.setdefault(here, []).append(value)
    for value in np.flatnonzero(source < 0).tolist():
        source[value] = left[heard[value]].pop(0)
    return source
