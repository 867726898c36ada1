"""Joint actions swept in parts, each with an elimination order of its own.

Actions share the steps up to the first factor that tells them apart, so an action that matters to
the factor which is eliminated last costs one step of its own, and one that matters to the first
costs all of them: on a ring of n machines n^2 / 2 steps a sweep, where n would do. So the order is
cut into segments, and the actions that matter to one segment alone are swept with the order
rotated until that segment comes last: k parts take n + n (n + k) / 2 k steps or so. Each part
has vectors in its own order, which for a rotation are transposes of matrices: going there and back
by tiles costs a few percent of a sweep.

Whether it pays is predicted from the layouts; it does on rings, and not where a rotation leaves
many variables open (grids), nor where every action matters to every factor (learned tables).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from fmdp._base.compiled import njit
from fmdp.elimination.classes import Look, nothing
from fmdp.elimination.layout import VECTORS, Layout, choose_layout, volume

Vector = NDArray[np.float64]

WORTH_SECONDS = 0.05
"""Sweeps that are predicted to be shorter are not looked at: finding out takes a third of a second,
and a plan has some thirty sweeps."""
_PARTS = (2, 3, 4)
_GAIN = 1.1
_TURN_SECONDS = 1e-8
"""To transpose one number, there and back."""
_TILE = 32


@dataclass(frozen=True, eq=False)
class Rotated:
    """The layout of some joint actions, whose order is that of the backup rotated."""

    layout: Layout
    rows: int
    """h in the backup's order is a matrix [rows, columns]; in this one it is the transpose."""
    columns: int


def split_layout(
    layout: Layout, threads: int, memory: int, look: Look = nothing
) -> tuple[Rotated, ...]:
    """The parts that are faster together than the whole by enough to be worth it; else none.

    `memory`: what they may need beside what the whole needs.
    """
    whole = layout.seconds(threads)
    if whole < WORTH_SECONDS or layout.nested:
        return ()
    best: tuple[Rotated, ...] = ()
    least = whole / _GAIN
    for n_parts in _PARTS:
        parts = _cut(layout, n_parts, threads, look)
        seconds = sum(part.layout.seconds(threads) for part in parts)
        turned = layout.structure.n_states * _TURN_SECONDS / threads
        seconds += turned * sum(part.rows > 1 for part in parts)
        if len(parts) > 1 and seconds < least and bytes_of(parts, threads) <= memory:
            best, least = parts, seconds
    return best


def bytes_of(parts: tuple[Rotated, ...], threads: int) -> int:
    """What parts need beside the vectors of the whole: their programs, and h and L h in another
    order."""
    vector = 8 * parts[0].layout.structure.n_states if parts else 0
    programs = sum(part.layout.memory(threads) - VECTORS * vector for part in parts)
    return programs + (2 * vector if parts else 0)


def _cut(layout: Layout, n_parts: int, threads: int, look: Look) -> tuple[Rotated, ...]:
    """The order in so many segments, and the actions that matter to one segment alone with it; the
    others stay with the last one, whose order is not rotated."""
    structure, order, classes = layout.structure, layout.order, layout.classes
    usual = np.array([np.bincount(own).argmax() for own in classes.transitions])
    place = np.argsort(order)
    m = structure.m
    matters = classes.transitions != usual[:, None]  # [m, A]
    first = np.where(matters, place[:, None], m).min(axis=0)
    last = np.where(matters, place[:, None], -1).max(axis=0)
    left = np.ones(classes.transitions.shape[1], dtype=np.bool_)
    parts: list[Rotated] = []
    bounds = [round(m * number / n_parts) for number in range(n_parts + 1)]
    for begin, end in pairwise(bounds[:-1]):
        own = left & (first >= begin) & (last < end) & (last >= 0)
        if not own.any() or end in (0, m):
            continue
        look()
        left &= ~own
        found = choose_layout(
            structure,
            threads=threads,
            classes=classes.taken(own),
            order=order[end:] + order[:end],
            look=look,
        )
        sizes = structure.state_sizes
        parts.append(Rotated(found, volume(order[:end], sizes), volume(order[end:], sizes)))
    if not parts or not left.any():
        return ()
    kept = choose_layout(
        structure, threads=threads, classes=classes.taken(left), order=order, look=look
    )
    return (Rotated(kept, 1, structure.n_states), *parts)


@njit(nogil=True)
def transpose(h: Vector, rows: int, columns: int, first: int, end: int, out: Vector) -> None:
    """out <- the transpose of h as a matrix, its rows first * _TILE to end * _TILE, by tiles that
    stay in the cache."""
    for r0 in range(first * _TILE, min(end * _TILE, rows), _TILE):
        r1 = min(r0 + _TILE, rows)
        for c0 in range(0, columns, _TILE):
            for c in range(c0, min(c0 + _TILE, columns)):
                for r in range(r0, r1):
                    out[c * rows + r] = h[r * columns + c]


@njit(nogil=True)
def take_larger(turned: Vector, rows: int, columns: int, first: int, end: int, out: Vector) -> None:
    """out <- the larger of out, a matrix, and of `turned`, its transpose; rows as above."""
    for r0 in range(first * _TILE, min(end * _TILE, rows), _TILE):
        r1 = min(r0 + _TILE, rows)
        for c0 in range(0, columns, _TILE):
            c1 = min(c0 + _TILE, columns)
            for r in range(r0, r1):
                for c in range(c0, c1):
                    x, y = out[r * columns + c], turned[c * rows + r]
                    out[r * columns + c] = x if x > y else y


def tiles(rows: int) -> int:
    """Independent pieces of `transpose` and `take_larger`."""
    return -(-rows // _TILE)
