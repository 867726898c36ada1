"""Alignment of vectors: at cache lines, with offsets between consecutive buffers.

A vector of eight doubles fills a cache line; one that straddles two lines takes twice as long to
read. Processors compare only the last twelve bits of addresses to detect a read of data just
written, so reads and writes that are a multiple of 4,096 bytes apart wait for no reason (4K
aliasing). Avoiding both gains a factor of two on the steps of large models.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]

LINE = 8
"""Doubles per cache line."""
_ALIAS = 512
"""Doubles after which addresses agree in their last twelve bits."""
_APART = 128
"""Distance, modulo `_ALIAS`, between the starts of consecutive buffers."""
LARGEST_GAP = _ALIAS + LINE
"""Most doubles that `next_start` leaves unused, alignment included."""


def aligned(size: int) -> Vector:
    """Return an uninitialised vector that begins at a cache line."""
    padded = np.empty(size + LINE)
    first = -(padded.ctypes.data // padded.itemsize) % LINE
    return padded[first : first + size]


def next_start(before: int, end: int) -> int:
    """Return where the tensor computed from the one in `before`..`end` should begin."""
    return end + (before + _APART - end) % _ALIAS
