"""Renamings: factors whose classes of rows are those of another with variables and values renamed.

    classes_b(x) = classes_a(y),   y_axis = value_axis(x[variable of the axis])

An axis can only correspond to one whose slices, value by value, hold equally many rows of the same
classes. A few dozen of the possible renamings are tried, and one is accepted only if the classes
agree row by row. So a renaming that is found is right, but not every renaming is found.
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
"""Most renamings that are compared row by row."""
_MOST_LOOKED_AT = 1 << 25
"""Most rows, times axes, that are sorted."""


class Renaming(NamedTuple):
    """The axis of the new factor for each old axis, and for each of its values the old value."""

    axes: tuple[int, ...]
    values: tuple[IndexArray, ...]


def renamed_rows(renaming: Renaming, old_sizes: Sequence[int]) -> IndexArray:
    """Return for each row of the new factor the row of the old one."""
    rows = np.zeros(1, dtype=np.int64)
    for values, step in zip(renaming.values, strides(old_sizes), strict=True):
        rows = (rows[:, None] + values * step).reshape(-1)
    order = [renaming.axes.index(axis) for axis in range(len(old_sizes))]
    cube = rows.reshape([len(values) for values in renaming.values])
    return np.ascontiguousarray(cube.transpose(order)).reshape(-1)


def find_renaming(
    old: IndexArray, old_sizes: Sequence[int], new: IndexArray, new_sizes: Sequence[int]
) -> Renaming | None:
    """Return a renaming that turns the old classes into the new ones, or None."""
    if sorted(old_sizes) != sorted(new_sizes) or len(old_sizes) > 32:
        return None
    if count(old_sizes) * (len(old_sizes) + 1) > _MOST_LOOKED_AT:
        return None
    old_slices = [_slices(old, old_sizes, axis) for axis in range(len(old_sizes))]
    new_slices = [_slices(new, new_sizes, axis) for axis in range(len(new_sizes))]
    fits = [
        # Axes whose values need no renaming come first.
        sorted(
            (axis for axis, other in enumerate(new_slices) if sorted(other) == sorted(slices)),
            key=lambda axis, slices=slices: (new_slices[axis] != slices, axis),  # type: ignore[misc]
        )
        for slices in old_slices
    ]
    for axes in itertools.islice(_choices(fits), _MOST_TRIED):
        values = tuple(
            _values(slices, new_slices[axis]) for slices, axis in zip(old_slices, axes, strict=True)
        )
        renaming = Renaming(axes, values)
        if np.array_equal(old[renamed_rows(renaming, old_sizes)], new):
            return renaming
    return None


def _slices(classes: IndexArray, sizes: Sequence[int], axis: int) -> list[bytes]:
    """Return for each value of an axis a digest of the classes of its rows, in any order."""
    before, after = count(sizes[:axis]), count(sizes[axis + 1 :])
    slices = classes.reshape(before, sizes[axis], after).transpose(1, 0, 2)
    return [sha256(np.sort(rows, axis=None).tobytes()).digest() for rows in slices]


def _choices(fits: Sequence[Sequence[int]]) -> Iterator[tuple[int, ...]]:
    """Yield ways to assign a different new axis to each old axis."""
    chosen: list[int] = []
    waiting = [iter(fits[0])] if fits else []
    if not fits:
        yield ()
    while waiting:
        axis = next((axis for axis in waiting[-1] if axis not in chosen), None)
        if axis is None:
            waiting.pop()
            if chosen:
                chosen.pop()
        elif len(waiting) == len(fits):
            yield (*chosen, axis)
        else:
            chosen.append(axis)
            waiting.append(iter(fits[len(chosen)]))


def _values(old: Sequence[bytes], new: Sequence[bytes]) -> IndexArray:
    """Return for each new value an old one with an equal slice.

    If possible, all values but those with unique slices keep their order, which takes the fewest
    words in the file; else a value is itself if it can be.
    """
    times = Counter(old)
    unique = {digest: value for value, digest in enumerate(old) if times[digest] == 1}
    source = np.array([unique.get(digest, -1) for digest in new], dtype=np.int64)
    source[source < 0] = np.setdiff1d(np.arange(len(old)), source)
    if all(old[value] == digest for value, digest in zip(source.tolist(), new, strict=True)):
        return source
    source.fill(-1)
    left: dict[bytes, list[int]] = {}
    for value, (digest, other) in enumerate(zip(old, new, strict=True)):
        if digest == other:
            source[value] = value
        else:
            left.setdefault(digest, []).append(value)
    for value in np.flatnonzero(source < 0).tolist():
        source[value] = left[new[value]].pop(0)
    return source
