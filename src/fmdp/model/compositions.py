"""Compositions: vectors of counts with a fixed sum, in lexicographic order, and their ranks.

A composition of n into b bins is (x_1, ..., x_b), x_i >= 0, with sum n. There are C(n+b-1, b-1).
With r_i the sum of x_i, ..., x_b, the number of compositions before x in the order is

    rank(x) = sum over i < b of  C(r_i + b - i, b - i) - C(r_i - x_i + b - i, b - i)

The last bin is fixed by the others, so those that agree in all but the last two bins are
neighbours, by increasing count of the last bin but one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

IndexArray = NDArray[np.int64]


def n_compositions(total: int, bins: int) -> int:
    """Return the number of compositions of `total` into `bins` bins, exact."""
    return math.comb(total + bins - 1, bins - 1) if bins else int(total == 0)


@lru_cache(maxsize=64)
def compositions(total: int, bins: int) -> IndexArray:
    """Return all compositions in order, [number, bins], read-only."""
    if bins == 0:
        rows = np.zeros((int(total == 0), 0), dtype=np.int64)
    else:
        left = np.array([total])
        rows = np.zeros((1, 0), dtype=np.int64)
        for _ in range(bins - 1):
            repeats = left + 1
            ends = np.cumsum(repeats)
            value = np.arange(ends[-1]) - np.repeat(ends - repeats, repeats)
            rows = np.concatenate([np.repeat(rows, repeats, axis=0), value[:, None]], axis=1)
            left = np.repeat(left, repeats) - value
        rows = np.concatenate([rows, left[:, None]], axis=1)
    rows.flags.writeable = False
    return rows


@lru_cache(maxsize=64)
def _choose(total: int, kinds: int) -> IndexArray:
    """Return C(r + kinds, kinds) for r = 0 .. total."""
    return np.array([math.comb(r + kinds, kinds) for r in range(total + 1)], dtype=np.int64)


def composition_rank(columns: Sequence[IndexArray], total: int) -> IndexArray:
    """Return the rank of each composition of `total`, given one array of counts per bin."""
    bins = len(columns)
    shape = np.shape(columns[0]) if bins else ()
    rank = np.zeros(shape, dtype=np.int64)
    left = np.full(shape, total, dtype=np.int64)
    for place in range(bins - 1):
        below = _choose(total, bins - 1 - place)
        after = left - columns[place]
        rank += below[left] - below[after]
        left = after
    return rank
