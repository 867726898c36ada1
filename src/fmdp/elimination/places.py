"""Where vectors begin: at a cache line, and those of neighbouring steps not all at the same place.

A vector of eight doubles fills a line; one that straddles two takes twice as long to read.  And a
processor tells whether a number that is read has just been written by the last twelve bits of its
address: where what a step reads and what it writes lie a multiple of 4,096 bytes apart, it waits
for nothing.  Both together are a factor of two on the steps of large models.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]

LINE = 8
"""Doubles of a line."""
_PAGE = 512
_APART = 128
ROOM_BETWEEN = _PAGE + LINE
"""What `next_place` leaves free at most."""


def aligned(size: int) -> Vector:
    """An empty vector that begins at a line."""
    held = np.empty(size + LINE)
    first = -(held.ctypes.data // held.itemsize) % LINE
    return held[first : first + size]


def next_place(before: int, end: int) -> int:
    """Where the tensor begins that is computed from the one between `before` and `end`."""
    return end + (before + _APART - end) % _PAGE
