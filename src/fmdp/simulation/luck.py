"""Luck: the uniforms of an environment in blocks, and of them only those that are looked at.

A step owns `width` uniforms of its generator, needed or not, so that the luck of a step does not
depend on what is done in it. With PCG64, a linear congruence (pcg64.py), each uniform of a step is
one multiplication away from the state before it, whatever lies between and is never made; the
doubles, and the generator afterwards, are NumPy's to the last bit. Any other generator is asked for
all of them. About 2 nanoseconds for each uniform that is looked at.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmdp._base.compiled import njit
from fmdp.simulation.pcg64 import ALL_BITS, MULTIPLIER, double, halves, times_plus


class Luck:
    """Uniforms of the coming steps.

    Parameters
    ----------
    generator
        Where they come from; it is moved by `width` doubles for every step of a block.
    width
        How many doubles a step owns.
    columns
        Which of them are looked at, from 0 to width - 1 in any order; one may occur again.
    rows
        Steps in a block.
    """

    def __init__(
        self, generator: np.random.Generator, width: int, columns: Sequence[int], rows: int
    ) -> None:
        self._generator = generator
        self._width, self._rows = width, rows
        self._columns = np.array(columns, dtype=np.int64)
        self._block = np.empty((rows, len(columns)))
        # A generator of one's own class may draw in its own way.
        bits = generator.bit_generator
        self._jumps = type(generator) is np.random.Generator and type(bits) is np.random.PCG64
        self._increment = -1
        self._constants = np.zeros((0, 4), dtype=np.uint64)
        self._place = np.zeros(2, dtype=np.uint64)

    def block(self) -> NDArray[np.float64]:
        """[rows, columns]: the coming steps. They lie where those of the block before have lain."""
        if not self._jumps:
            drawn = self._generator.random((self._rows, self._width))
            return np.take(drawn, self._columns, axis=1, out=self._block)
        # Read and written every time: nobody can forbid others to draw from the generator too.
        bits = self._generator.bit_generator
        whole: Any = bits.state
        place = whole["state"]
        if place["inc"] != self._increment:
            self._increment = place["inc"]
            self._constants = self._jump_constants()
        self._place[:] = halves(place["state"])
        _fill(self._place, self._constants, self._block)
        high, low = self._place.tolist()
        place["state"] = high << 64 | low
        bits.state = whole
        return self._block

    def _jump_constants(self) -> NDArray[np.uint64]:
        """[columns + 1, 4]: (factor, summand), halves each, from the state before a step to that of
        each column, and to the one before the next step."""
        factor, summand = 1, 0
        after = [(factor, summand)]
        for _ in range(self._width):
            factor = factor * MULTIPLIER & ALL_BITS
            summand = (summand * MULTIPLIER + self._increment) & ALL_BITS
            after.append((factor, summand))
        chosen = [after[column + 1] for column in self._columns.tolist()] + [after[-1]]
        return np.array([[*halves(a), *halves(c)] for a, c in chosen], dtype=np.uint64)


@njit(nogil=True)
def _jump(high, low, constants, row):  # type: ignore[no-untyped-def]
    """factor * (high, low) + summand modulo 2^128."""
    return times_plus(
        high, low, constants[row, 0], constants[row, 1], constants[row, 2], constants[row, 3]
    )


@njit(nogil=True)
def _fill(place, constants, block):  # type: ignore[no-untyped-def]
    """Fill the block row by row, and move the place, (upper, lower) half, behind it."""
    columns = block.shape[1]
    high, low = place[0], place[1]
    for t in range(block.shape[0]):
        for j in range(columns):
            upper, lower = _jump(high, low, constants, j)
            block[t, j] = double(upper, lower)
        high, low = _jump(high, low, constants, columns)
    place[0], place[1] = high, low
