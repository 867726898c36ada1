"""Luck: the uniforms of an environment in blocks, and of them only those that are looked at.

A step owns `width` uniforms of its generator, needed or not, so that the luck of a step does not
depend on what is done in it. PCG64 (O'Neill 2014, XSL-RR 128/64) is a linear congruence,

    state <- a state + c  (mod 2^128),   k times:  state <- a^k state + c (a^(k-1) + ... + 1),

so each uniform of a step is one multiplication away from the state before it, whatever lies between
and is never made; the doubles, and the generator afterwards, are NumPy's to the last bit. Any other
generator is asked for all of them. About 2 nanoseconds for each uniform that is looked at.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmdp.compiled import njit

_MULTIPLIER = 0x2360ED051FC65DA44385DF649FCCF645
_ALL = (1 << 128) - 1
_HALF = (1 << 64) - 1


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
        self._place[0], self._place[1] = place["state"] >> 64, place["state"] & _HALF
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
            factor = factor * _MULTIPLIER & _ALL
            summand = (summand * _MULTIPLIER + self._increment) & _ALL
            after.append((factor, summand))
        chosen = [after[column + 1] for column in self._columns.tolist()] + [after[-1]]
        return np.array(
            [[a >> 64, a & _HALF, c >> 64, c & _HALF] for a, c in chosen], dtype=np.uint64
        )


@njit(nogil=True)
def _high_product(a, b):  # type: ignore[no-untyped-def]
    """The upper 64 bits of a * b, by halves: Numba has no integers of 128 bits."""
    low, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    a_low, a_high, b_low, b_high = a & low, a >> half, b & low, b >> half
    one, other = a_high * b_low, a_low * b_high
    middle = (a_low * b_low >> half) + (one & low) + (other & low)
    return a_high * b_high + (one >> half) + (other >> half) + (middle >> half)


@njit(nogil=True)
def _jump(high, low, constants, row):  # type: ignore[no-untyped-def]
    """factor * (high, low) + summand modulo 2^128."""
    factor_high, factor_low = constants[row, 0], constants[row, 1]
    summand = constants[row, 3]
    after = low * factor_low + summand
    carry = np.uint64(1) if after < summand else np.uint64(0)
    upper = _high_product(low, factor_low) + high * factor_low + low * factor_high
    return upper + constants[row, 2] + carry, after


@njit(nogil=True)
def _fill(place, constants, block):  # type: ignore[no-untyped-def]
    """Fill the block row by row, and move the place, (upper, lower) half, behind it."""
    columns = block.shape[1]
    high, low = place[0], place[1]
    for t in range(block.shape[0]):
        for j in range(columns):
            upper, lower = _jump(high, low, constants, j)
            mixed, turn = upper ^ lower, upper >> np.uint64(58)
            back = (np.uint64(64) - turn) & np.uint64(63)
            turned = mixed >> turn | mixed << back
            block[t, j] = (turned >> np.uint64(11)) * (1.0 / 9007199254740992.0)
        high, low = _jump(high, low, constants, columns)
    place[0], place[1] = high, low
