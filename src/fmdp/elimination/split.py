"""Joint actions swept in parts, each with its own elimination order.

Actions share the steps up to the first factor that distinguishes them. An action that affects only
the factor eliminated last costs one step of its own, one that affects the first costs all steps: on
a ring of n machines n^2 / 2 steps per sweep. Therefore the order is cut into segments, and the
actions that affect one segment alone are swept with the order rotated until that segment comes
last: k parts take about n + n (n + k) / 2 k steps. Each part has vectors in its own order, which
for a rotation are matrix transposes. Transposing by tiles costs a few percent of a sweep.

The gain is predicted from the layouts. Splitting pays on rings. It does not where a rotation leaves
many variables open (grids), nor where every action affects every factor (learned tables).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from fmdp._base.compiled import njit
from fmdp._base.deadlines import NEVER, Deadline
from fmdp.elimination import tuning
from fmdp.elimination.layout import Layout, choose_layout, volume
from fmdp.elimination.tuning import TILE

Vector = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Rotated:
    """The layout of some joint actions, whose order is a rotation of the backup's order."""

    layout: Layout
    rows: int
    """h is a matrix [rows, columns] in the backup's order, and its transpose in this one."""
    columns: int


def split_layout(
    layout: Layout, threads: int, memory: int, deadline: Deadline = NEVER
) -> tuple[Rotated, ...]:
    """Return the parts if they are predicted to be faster than the whole, else (). `memory` limits
    the bytes that they need in addition to the whole."""
    whole = layout.seconds(threads)
    if whole < tuning.SPLIT_SECONDS or layout.nested:
        return ()
    best: tuple[Rotated, ...] = ()
    least = whole / tuning.SPLIT_GAIN
    for n_parts in tuning.SPLIT_PARTS:
        parts = _cut(layout, n_parts, threads, deadline)
        seconds = sum(part.layout.seconds(threads) for part in parts)
        transposes = layout.structure.n_states * tuning.TRANSPOSE_SECONDS / threads
        seconds += transposes * sum(part.rows > 1 for part in parts)
        if len(parts) > 1 and seconds < least and bytes_of(parts, layout, threads) <= memory:
            best, least = parts, seconds
    return best


def bytes_of(parts: tuple[Rotated, ...], whole: Layout, threads: int) -> int:
    """Return the bytes of the parts beside the whole: tables, rotated h and L h, and what the
    buffers, which all of them share, are larger than those of the whole."""
    layouts = [whole, *(part.layout for part in parts)]
    buffers = max(layout.buffer_bytes(threads) for layout in layouts) - whole.buffer_bytes(threads)
    tables = sum(part.layout.table_bytes for part in parts)
    return 2 * 8 * whole.structure.n_states + buffers + tables


def _cut(layout: Layout, n_parts: int, threads: int, deadline: Deadline) -> tuple[Rotated, ...]:
    """Cut the order into segments, each with the actions that affect it alone. The other actions
    stay with the last segment, whose order is not rotated."""
    structure, order, classes = layout.structure, layout.order, layout.classes
    usual = np.array([np.bincount(factor).argmax() for factor in classes.transitions])
    position = np.argsort(order)
    m = structure.m
    affects = classes.transitions != usual[:, None]  # [m, A]
    first = np.where(affects, position[:, None], m).min(axis=0)
    last = np.where(affects, position[:, None], -1).max(axis=0)
    left = np.ones(classes.transitions.shape[1], dtype=np.bool_)
    parts: list[Rotated] = []
    bounds = [round(m * number / n_parts) for number in range(n_parts + 1)]
    for begin, end in pairwise(bounds[:-1]):
        chosen = left & (first >= begin) & (last < end) & (last >= 0)
        if not chosen.any() or end in (0, m):
            continue
        deadline.check()
        left &= ~chosen
        rotated = choose_layout(
            structure,
            threads=threads,
            classes=classes.taken(chosen),
            order=order[end:] + order[:end],
            deadline=deadline,
        )
        sizes = structure.state_sizes
        parts.append(Rotated(rotated, volume(order[:end], sizes), volume(order[end:], sizes)))
    if not parts or not left.any():
        return ()
    kept = choose_layout(
        structure, threads=threads, classes=classes.taken(left), order=order, deadline=deadline
    )
    return (Rotated(kept, 1, structure.n_states), *parts)


@njit(nogil=True)
def transpose(h: Vector, rows: int, columns: int, first: int, end: int, out: Vector) -> None:
    """Compute out <- the transpose of h as a matrix, for the tiles first to end of its rows."""
    for r0 in range(first * TILE, min(end * TILE, rows), TILE):
        r1 = min(r0 + TILE, rows)
        for c0 in range(0, columns, TILE):
            for c in range(c0, min(c0 + TILE, columns)):
                for r in range(r0, r1):
                    out[c * rows + r] = h[r * columns + c]


@njit(nogil=True)
def take_larger(turned: Vector, rows: int, columns: int, first: int, end: int, out: Vector) -> None:
    """Compute out <- the maximum of out, a matrix, and `turned`, its transpose, by tiles."""
    for r0 in range(first * TILE, min(end * TILE, rows), TILE):
        r1 = min(r0 + TILE, rows)
        for c0 in range(0, columns, TILE):
            c1 = min(c0 + TILE, columns)
            for r in range(r0, r1):
                for c in range(c0, c1):
                    x, y = out[r * columns + c], turned[c * rows + r]
                    out[r * columns + c] = x if x > y else y


def tiles(rows: int) -> int:
    """Return the number of independent pieces of `transpose` and `take_larger`."""
    return -(-rows // TILE)
