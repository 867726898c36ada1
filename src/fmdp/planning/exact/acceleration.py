"""Anderson acceleration of value iteration (Anderson 1965; Walker & Ni 2011, type II).

The bounds of a sweep hold for any h that it began from, so the next h may be chosen freely. With
g = L h less the middle of the bounds, and f = g - h, plain iteration continues from g. Here the
last few differences of f and g are kept, and a combination of them makes the residual f small:

    gamma = argmin |f - dF gamma|_2 up to constants,    h <- g - dG gamma.

(Constants add nothing to the gap, and the middle of the bounds is not linear in h: with them in the
norm, two differences would not solve a chain of three states.) On SysAdmin rings it takes a sixth
of the sweeps.

L is a maximum of linear maps. When another policy becomes greedy, the differences are those of a
map that is no longer used. So they are forgotten when the gap has grown to twice the least one,
which makes the next step a plain one. After `MOST_RESTARTS` of these without a smaller gap
acceleration gives up, and the iteration is plain from then on.

Differences are kept in single precision, which loses a ten-millionth of the last steps and enters
no bound. Sums over states are taken in blocks whose borders do not depend on the number of threads.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress

import numpy as np
from numpy.typing import NDArray

from fmdp._base.compiled import njit
from fmdp._base.disk_arrays import disk_array
from fmdp.elimination.backup import Backup

Floats = NDArray[np.float64]
Vector = NDArray[np.float64]
Singles = NDArray[np.float32]
Index = NDArray[np.int64]
OverPieces = Callable[[int, Callable[[tuple[int, int, int]], object]], None]
"""Runs work((thread, first, end)) over a number of independent pieces."""

KEPT = 10
"""Differences that are kept if memory allows."""
LEAST_KEPT = 2
"""Differences without which acceleration is not worth its sweeps."""
PREFERRED_KEPT = (4, 3)
"""Differences for which sweeps may be slower if memory is short, best first.  With 0, 2, 3, 4 and
10 of them a ring of 18 machines takes 150, 60, 35, 41, 30 sweeps, a grid of 16 takes 59, 68, 56,
39, 32."""
GROWN = 2.0
"""Growth of the gap after which the differences are forgotten."""
MOST_RESTARTS = 4
"""Restarts without a smaller gap after which acceleration gives up."""
_RIDGE = 1e-10
"""Relative increase of the diagonal: late differences are nearly dependent."""
_BLOCK = 1 << 14
"""States in a block, which one thread sums up."""
_INSIDE = 1 << 10
"""States whose differences are handled together, so that they stay in the first cache."""


def acceleration_for(backup: Backup, state_bytes: int, on_disk: bool = False) -> Anderson | None:
    """Return an acceleration with as many differences as fit beside the backup; None if too few.

    `state_bytes` are the bytes per state of the other vectors that are in use between sweeps. On
    disk all differences are kept.
    """
    kept = KEPT if on_disk else differences_that_fit(backup, state_bytes)
    if kept < LEAST_KEPT:
        return None
    kind = Anderson if backup.compiled else NumpyAnderson
    unit = backup.structure.reward_unit
    return kind(backup.n_states, kept, backup.over, unit, on_disk=on_disk)


def block_borders(n_states: int) -> Index:
    """Return where the blocks of a vector begin, and where the last one ends."""
    return np.append(np.arange(0, n_states, _BLOCK, dtype=np.int64), n_states)


def differences_that_fit(backup: Backup, state_bytes: int) -> int:
    """Return the number of differences for which there is memory beside the backup and vectors of
    so many bytes per state; it may be negative."""
    blocks = -(-backup.n_states // _BLOCK)
    room = backup.memory_limit - backup.program_bytes - 8 * 3 * KEPT * blocks
    return min(KEPT, (room // backup.n_states - state_bytes - 2 * 8) // (2 * 4))


class Anderson:
    """Anderson's rule for one iteration, with the differences of its last sweeps."""

    def __init__(
        self,
        n_states: int,
        kept: int,
        over: OverPieces,
        unit: float = 1.0,
        *,
        on_disk: bool = False,
        borders: Index | None = None,
    ) -> None:
        """`over` is that of a `Backup`, `unit` the unit of the rewards.  With `on_disk` the vectors
        are in temporary files.  `borders` are where the blocks begin and the last one ends."""
        self.kept, self.on_disk = kept, on_disk
        self._over = over
        self._borders = block_borders(n_states) if borders is None else borders
        # Single precision ends at 1e38: a power of 2 brings differences near 1, without rounding.
        self._scale = math.ldexp(1.0, min(-math.frexp(unit)[1], 1000))
        empty = disk_array if on_disk else np.empty
        self._f: Vector = empty(n_states, dtype=np.float64)
        self._g: Vector = empty(n_states, dtype=np.float64)
        self._df: Singles = empty((kept, n_states), dtype=np.float32)
        self._dg: Singles = empty((kept, n_states), dtype=np.float32)
        self.vector_bytes = sum(a.nbytes for a in (self._f, self._g, self._df, self._dg))
        """Bytes of the vectors, in memory or on disk."""
        self._blocks = len(self._borders) - 1
        self._sums = np.zeros((self._blocks, 3, kept))
        self._gram = np.zeros((kept, kept))
        self._totals = np.zeros(kept)
        self._system = np.empty((kept, kept + 1))
        self._weights = np.empty(kept)
        self._used = 0
        """Number of differences so far; the latest is at (used - 1) % kept."""
        self._begun = False
        self._least = self._least_ever = np.inf
        self._restarts = 0

    @property
    def bytes(self) -> int:
        """Bytes of this object in memory."""
        return self._sums.nbytes + (0 if self.on_disk else self.vector_bytes)

    def release(self) -> None:
        """Free the vectors; the object cannot be used any more."""
        self._f = self._g = np.empty(0)
        self._df = self._dg = np.empty((0, 0), dtype=np.float32)

    @property
    def on(self) -> bool:
        """Whether acceleration has not given up."""
        return self._restarts <= MOST_RESTARTS

    def restart(self) -> None:
        """Forget the differences."""
        self._used, self._begun, self._least = 0, False, np.inf

    def advance(self, h: Vector, new: Vector, low: float, high: float) -> None:
        """Replace h by the next iterate, given new = L h with residuals in [low, high]."""
        gap = high - low
        if gap > GROWN * self._least:
            self._restarts += 1
            self.restart()
        if gap < self._least_ever:
            self._least_ever = gap
            self._restarts = 0
        self._least = min(self._least, gap)
        kept = self.kept
        slot = self._used % kept if self._begun else -1
        count = min(self._used + (slot >= 0), kept)
        self._note(h, new, 0.5 * (low + high), slot, count)
        self._begun = True
        if slot < 0:
            h[:] = self._g
            return
        self._used += 1
        self._weigh(slot, count)
        self._weights[:count] /= self._scale  # what is behind them is old
        try:
            self._combine(h, count)
        except BaseException:
            h[:] = self._g  # not some of this and some of that: a plain step, which is sound
            raise

    def _note(self, h: Vector, new: Vector, middle: float, slot: int, count: int) -> None:
        state = (h, new, middle, self._scale, self._f, self._g, self._df, self._dg)
        self._over(
            self._blocks,
            lambda part: _note(*state, slot, count, *part[1:], self._borders, self._sums),
        )

    def _weigh(self, slot: int, count: int) -> None:
        n_states, weights = len(self._f), self._weights
        weigh(self._sums, slot, count, n_states, self._gram, self._totals, self._system, weights)

    def _combine(self, h: Vector, count: int) -> None:
        differences = (self._g, self._dg, self._weights, count)
        self._over(self._blocks, lambda part: _combine(*differences, *part[1:], self._borders, h))


class NumpyAnderson(Anderson):
    """The same without compiled code, for small models."""

    def _note(self, h: Vector, new: Vector, middle: float, slot: int, count: int) -> None:
        g = new - middle
        f = g - h
        if slot >= 0:
            self._df[slot] = (f - self._f) * self._scale
            self._dg[slot] = (g - self._g) * self._scale
        self._f[:], self._g[:] = f, g

    def _weigh(self, slot: int, count: int) -> None:
        differences = self._df[:count].astype(np.float64)
        differences -= differences.mean(axis=1, keepdims=True)
        system = np.einsum("is,js->ij", differences, differences)
        right = np.einsum("is,s->i", differences, self._f * self._scale)
        system[np.diag_indices(count)] *= 1.0 + _RIDGE
        used = system.diagonal() > 0.0  # a difference that is nothing gets no weight
        self._weights[:count] = 0.0
        with suppress(np.linalg.LinAlgError):  # a plain step instead
            weights = np.linalg.solve(system[np.ix_(used, used)], right[used])
            self._weights[:count][used] = weights

    def _combine(self, h: Vector, count: int) -> None:
        h[:] = self._g - np.einsum("i,is->s", self._weights[:count], self._dg[:count])


@njit(nogil=True, fastmath={"reassoc", "contract"})
def _note(
    h: Vector,
    new: Vector,
    middle: float,
    scale: float,
    last_f: Vector,
    last_g: Vector,
    df: Singles,
    dg: Singles,
    slot: int,
    count: int,
    first: int,
    end: int,
    borders: Index,
    sums: Floats,
) -> None:
    """Update f and g on some blocks and, if slot >= 0, the differences to the last ones.

    `sums` gets the products of the new difference and of f with all differences, and their totals.
    Slices are indexed from 0, so that indices need no checks and the loops vectorise.
    """
    for block in range(first, end):
        begin, stop = borders[block], borders[block + 1]
        sums[block, :2, :count] = 0.0
        total = total_f = 0.0
        for inside in range(begin, stop, _INSIDE):
            last = min(inside + _INSIDE, stop)
            old, image = h[inside:last], new[inside:last]
            f, g = last_f[inside:last], last_g[inside:last]
            if slot < 0:
                for s in range(len(old)):
                    g[s] = image[s] - middle
                    f[s] = g[s] - old[s]
                continue
            difference, other = df[slot, inside:last], dg[slot, inside:last]
            for s in range(len(old)):
                new_g = image[s] - middle
                new_f = new_g - old[s]
                difference[s] = (new_f - f[s]) * scale
                other[s] = (new_g - g[s]) * scale
                g[s] = new_g
                f[s] = new_f
            for s in range(len(old)):
                total += np.float64(difference[s])
                total_f += f[s] * scale
            for j in range(count):
                earlier = df[j, inside:last]
                with_difference = with_f = 0.0
                for s in range(len(old)):
                    with_difference += np.float64(earlier[s]) * np.float64(difference[s])
                    with_f += np.float64(earlier[s]) * (f[s] * scale)
                sums[block, 0, j] += with_difference
                sums[block, 1, j] += with_f
        sums[block, 2, 0] = total
        sums[block, 2, 1] = total_f


@njit(nogil=True, fastmath={"reassoc", "contract"})
def _combine(
    g: Vector,
    dg: Singles,
    weights: Floats,
    count: int,
    first: int,
    end: int,
    borders: Index,
    h: Vector,
) -> None:
    """Set h to g - dG weights on some blocks."""
    for block in range(first, end):
        begin, stop = borders[block], borders[block + 1]
        for inside in range(begin, stop, _INSIDE):
            last = min(inside + _INSIDE, stop)
            out, image = h[inside:last], g[inside:last]
            for s in range(len(out)):
                out[s] = image[s]
            for j in range(count):
                weight, differences = weights[j], dg[j, inside:last]
                for s in range(len(out)):
                    out[s] -= weight * np.float64(differences[s])


@njit(nogil=True, error_model="numpy")
def weigh(
    sums: Floats,
    slot: int,
    count: int,
    n_states: int,
    gram: Floats,
    totals: Floats,
    system: Floats,
    weights: Floats,
) -> None:
    """Set weights to argmin |f - dF gamma| up to constants, from the sums of `_note`.

    Solves (dF' dF + ridge) gamma = dF' f by elimination; with the ridge, a pivot is zero only if a
    difference is. Compiled, since a dozen calls of NumPy take as long as a small sweep.
    """
    for block in range(1, sums.shape[0]):
        for kind in range(3):
            for j in range(sums.shape[2]):
                sums[0, kind, j] += sums[block, kind, j]
    for j in range(count):
        gram[slot, j] = gram[j, slot] = sums[0, 0, j]
    totals[slot] = sums[0, 2, 0]
    mean_f = sums[0, 2, 1] / n_states
    for i in range(count):
        for j in range(count):
            system[i, j] = gram[i, j] - totals[i] * totals[j] / n_states
        system[i, i] += _RIDGE * system[i, i]
        system[i, count] = sums[0, 1, i] - totals[i] * mean_f
    for i in range(count):
        for k in range(i + 1, count):
            factor = system[k, i] / system[i, i] if system[i, i] > 0.0 else 0.0
            for j in range(i, count + 1):
                system[k, j] -= factor * system[i, j]
    for i in range(count - 1, -1, -1):
        for j in range(i + 1, count):
            system[i, count] -= system[i, j] * weights[j]
        weights[i] = system[i, count] / system[i, i] if system[i, i] > 0.0 else 0.0
