"""Blocks of the uniforms of an environment, restricted to those that are used.

A step owns `width` uniforms of its generator, used or not, so that the uniforms of a step do not
depend on earlier actions. PCG64 is a linear congruence (pcg64.py), so each used uniform of a step
is one multiplication away from the state before the step, and unused ones are skipped. The doubles,
and the generator's state afterwards, equal NumPy's to the last bit. Other generators draw all of
them. About 2 nanoseconds per used uniform.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmdp._base.compiled import njit
from fmdp.simulation.pcg64 import ALL_BITS, MULTIPLIER, double, halves, times_plus


class UniformBlocks:
    """Source of the uniforms of the coming steps, in blocks of `rows` steps. A step owns `width`
    doubles of the generator, of which `columns` are used (numbers below width in any order,
    repetitions allowed)."""

    def __init__(
        self, generator: np.random.Generator, width: int, columns: Sequence[int], rows: int
    ) -> None:
        self._generator = generator
        self._width, self._rows = width, rows
        self._columns = np.array(columns, dtype=np.int64)
        self._block = np.empty((rows, len(columns)))
        # Subclasses of Generator may draw differently.
        bits = generator.bit_generator
        self._jumps = type(generator) is np.random.Generator and type(bits) is np.random.PCG64
        self._increment = -1
        self._constants = np.zeros((0, 4), dtype=np.uint64)
        self._words = np.zeros(2, dtype=np.uint64)

    def block(self) -> NDArray[np.float64]:
        """Return [rows, columns]: uniforms of the coming steps. It overwrites the previous
        block."""
        if not self._jumps:
            drawn = self._generator.random((self._rows, self._width))
            return np.take(drawn, self._columns, axis=1, out=self._block)
        # The state is read and written every time, as others may draw from the generator too.
        bits = self._generator.bit_generator
        state: Any = bits.state
        words = state["state"]
        if words["inc"] != self._increment:
            self._constants = self.jump_constants()
        self._words[:] = halves(words["state"])
        _fill(self._words, self._constants, self._block)
        high, low = self._words.tolist()
        words["state"] = high << 64 | low
        bits.state = state
        return self._block

    def jump_constants(self) -> NDArray[np.uint64]:
        """Return [columns + 1, 4]: (factor, summand) as words, from the state before a step to that
        of each column, and to the state before the next step."""
        state: Any = self._generator.bit_generator.state
        self._increment = state["state"]["inc"]
        factor, summand = 1, 0
        after = [(factor, summand)]
        for _ in range(self._width):
            factor = factor * MULTIPLIER & ALL_BITS
            summand = (summand * MULTIPLIER + self._increment) & ALL_BITS
            after.append((factor, summand))
        chosen = [after[column + 1] for column in self._columns.tolist()] + [after[-1]]
        return np.array([[*halves(a), *halves(c)] for a, c in chosen], dtype=np.uint64)


class ParallelUniforms:
    """The uniforms of several copies of an environment, which are stretches of one stream.

    Copy b begins `apart` steps behind copy b - 1, so that it meets the random numbers of step
    b * apart and later of a single environment with the generator PCG64(seed). `width` and
    `columns` are as in `UniformBlocks`.
    """

    def __init__(
        self, seed: int, width: int, columns: Sequence[int], rows: int, copies: int, apart: int
    ) -> None:
        bits = np.random.PCG64(seed)
        self._constants = UniformBlocks(
            np.random.Generator(bits), width, columns, 0
        ).jump_constants()
        self._words = np.empty((copies, 2), dtype=np.uint64)
        for words in self._words:
            words[:] = halves(bits.state["state"]["state"])
            bits.advance(apart * width)
        self._block = np.empty((copies, rows, len(columns)))

    def block(self) -> NDArray[np.float64]:
        """Return [copies, rows, columns]: uniforms of the coming steps, which overwrite the
        previous ones."""
        for words, block in zip(self._words, self._block, strict=True):
            _fill(words, self._constants, block)
        return self._block


@njit(nogil=True)
def _jump(high, low, constants, row):  # type: ignore[no-untyped-def]
    """Return factor * (high, low) + summand modulo 2^128."""
    return times_plus(
        high, low, constants[row, 0], constants[row, 1], constants[row, 2], constants[row, 3]
    )


@njit(nogil=True)
def _fill(words, constants, block):  # type: ignore[no-untyped-def]
    """Fill the block row by row; `words` (high, low) becomes the state after it."""
    columns = block.shape[1]
    high, low = words[0], words[1]
    for t in range(block.shape[0]):
        for j in range(columns):
            upper, lower = _jump(high, low, constants, j)
            block[t, j] = double(upper, lower)
        high, low = _jump(high, low, constants, columns)
    words[0], words[1] = high, low
