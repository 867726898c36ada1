"""The span, the factored spans (Xu & Tewari 2020) and the marginals of a function of the state.

    sp(h) = max h - min h,    sp_i(h) = max over s_-i of (max - min over s_i of h(s_i, s_-i)),
    Q(h) = sum_i sp_i(h),     sp(h) <= Q(h) <= m sp(h)   (Proposition 1).
    The marginal of variable i: the mean over s_-i of h(s_i, s_-i), for each value of s_i.

Cost: one pass over h per variable.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]

_BLOCK = 1 << 16
"""Entries of a vector that are handled at once."""


def span(h: Vector) -> float:
    """Return max h - min h.

    Parameters
    ----------
    h
        One number per state: [S].
    """
    return float(h.max() - h.min())


def factored_spans(h: Vector, sizes: Sequence[int]) -> tuple[float, ...]:
    """Return the factored spans sp_i, the largest change of h when variable i alone changes.

    Parameters
    ----------
    h
        One number per joint state, in C order: [S].
    sizes
        Number of values of each state variable.

    Returns
    -------
    tuple[float, ...]
        One number per state variable.
    """
    return tuple(max(map(_largest_change, _blocks(cube))) for cube in _along_each(h, sizes))


def _largest_change(cube: Vector) -> float:
    return float((cube.max(axis=1) - cube.min(axis=1)).max())


def _blocks(cube: Vector) -> Iterator[Vector]:
    """Yield [outer, values, inner] in pieces, so that temporary arrays stay small."""
    outer, values, inner = cube.shape
    columns = max(1, min(inner, _BLOCK // values))
    rows = max(1, _BLOCK // (values * columns))
    for row in range(0, outer, rows):
        for column in range(0, inner, columns):
            yield cube[row : row + rows, :, column : column + columns]


def marginals(h: Vector, sizes: Sequence[int]) -> tuple[Vector, ...]:
    """Return for each state variable the mean of h over the other variables.

    Parameters
    ----------
    h
        One number per joint state, in C order: [S].
    sizes
        Number of values of each state variable.

    Returns
    -------
    tuple[Vector, ...]
        One array per state variable, with one number per value.
    """
    # The inner axis comes first: the sums are contiguous and their order depends on sizes alone.
    return tuple(cube.mean(axis=2).mean(axis=0) for cube in _along_each(h, sizes))


def _along_each(h: Vector, sizes: Sequence[int]) -> Iterator[Vector]:
    """Yield h as [outer, values, inner] for each variable."""
    inner = h.size
    for size in sizes:
        inner //= size
        yield h.reshape(-1, size, inner)
