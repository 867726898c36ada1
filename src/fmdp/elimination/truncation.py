"""The factored-span truncation: the largest function below v that respects every budget.

    (truncate v)(s) = min over s' of  v(s') + sum_i c_i 1{s_i != s'_i}

sp_i(u) <= c_i for every i holds exactly when u is 1-Lipschitz for that weighted Hamming distance,
and the distance is a sum over coordinates, so the minimum is taken one axis at a time,

    for each axis i:  v <- min(v, c_i + min over axis i of v),

in any order of the axes and in place.  For one axis it is SCAL's truncation min(v, min v + c).
Monotone, non-expansive, commutes with constants; docs/theory-span.md has the proofs.
Cost: one read and one write of v for each axis.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]
Index = NDArray[np.int64]

_BLOCK = 64  # cells whose minimum over a long axis is kept at a time: eight cache lines


@dataclass(frozen=True, eq=False)
class Truncation:
    """The axes of a tensor as [outer, size, inner], and their budgets; see `make_truncation`."""

    axes: Index  # [k, 3]
    budgets: Vector  # [k]

    def apply(self, v: Vector) -> None:
        """Truncate v in place."""
        truncate(v, self.axes, self.budgets)


@lru_cache(maxsize=64)  # learners plan thousands of times with the same budgets
def make_truncation(sizes: tuple[int, ...], budgets: tuple[float, ...]) -> Truncation:
    """For tensors with these axes, slowest first.  Axes of one value have no span to limit."""
    axes, kept = [], []
    outer, inner = 1, int(np.prod(sizes, dtype=np.int64))
    for size, budget in zip(sizes, budgets, strict=True):
        inner //= size
        if size > 1:
            axes.append((outer, size, inner))
            kept.append(budget)
        outer *= size
    return Truncation(
        np.array(axes, dtype=np.int64).reshape(-1, 3), np.array(kept, dtype=np.float64)
    )


NO_TRUNCATION = make_truncation((), ())

_FLAGS: dict[str, Any] = {"cache": True, "nogil": True, "error_model": "numpy"}


@numba.njit(**_FLAGS)
def truncate(v, axes, budgets):  # type: ignore[no-untyped-def]
    """One axis after the other, in place."""
    low = np.empty(_BLOCK)
    for k in range(axes.shape[0]):
        outer, size, inner = axes[k, 0], axes[k, 1], axes[k, 2]
        cube = v.reshape(outer, size, inner)
        c = budgets[k]
        if size == 2:
            for o in range(outer):
                for i in range(inner):
                    x, y = cube[o, 0, i], cube[o, 1, i]
                    top = c + (x if x < y else y)
                    cube[o, 0, i] = x if x < top else top
                    cube[o, 1, i] = y if y < top else top
        else:
            for o in range(outer):
                for start in range(0, inner, _BLOCK):
                    width = min(_BLOCK, inner - start)
                    for j in range(width):
                        low[j] = cube[o, 0, start + j]
                    for x in range(1, size):
                        for j in range(width):
                            y = cube[o, x, start + j]
                            low[j] = y if y < low[j] else low[j]
                    for x in range(size):
                        for j in range(width):
                            y, top = cube[o, x, start + j], c + low[j]
                            cube[o, x, start + j] = y if y < top else top
