"""Elementwise logarithms and exponentials that are the same on every processor.

NumPy computes `log` and `exp` of arrays with AVX-512 instructions where the processor has them, and
the last bit then differs from the C library's. Seeded runs must not depend on that, so these
functions call the C library for each element.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fmdp._base.compiled import njit

Floats = NDArray[np.float64]


def log(values: ArrayLike) -> Floats:
    """Return the natural logarithm of each value; the values must be positive."""
    array = np.asarray(values, dtype=np.float64, order="C")
    result = np.empty(array.shape)
    _log(array.reshape(-1), result.reshape(-1))
    return result


def exp(values: ArrayLike) -> Floats:
    """Return e to the power of each value."""
    array = np.asarray(values, dtype=np.float64, order="C")
    result = np.empty(array.shape)
    _exp(array.reshape(-1), result.reshape(-1))
    return result


@njit(nogil=True)
def _log(values: Floats, result: Floats) -> None:
    for i in range(values.size):
        result[i] = math.log(values[i])


@njit(nogil=True)
def _exp(values: Floats, result: Floats) -> None:
    for i in range(values.size):
        result[i] = math.exp(values[i])
