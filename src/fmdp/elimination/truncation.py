"""The factored-span truncation: the largest function below v that respects every budget.

    (truncate v)(s) = min over s' of  v(s') + sum_i c_i 1{s_i != s'_i}

sp_i(u) <= c_i for every i holds exactly when u is 1-Lipschitz for that weighted Hamming distance.
The distance is a sum over coordinates, so the minimum is taken one axis at a time,

    for each axis i:  v <- min(v, c_i + min over axis i of v),

in any order of the axes and in place. For one axis it is SCAL's truncation min(v, min v + c). It is
monotone, non-expansive and commutes with constants; docs/theory-span.md has the proofs. Cost: one
read and one write of v per axis.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmdp._base.compiled import njit

Vector = NDArray[np.float64]
Index = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Truncation:
    """The axes of a tensor as [outer, size, inner], with their budgets."""

    axes: Index  # [k, 3]
    budgets: Vector  # [k]

    def apply(self, v: Vector) -> None:
        """Truncate v in place."""
        truncate(v, self.axes, self.budgets)


@lru_cache(maxsize=64)  # learners plan thousands of times with the same budgets
def make_truncation(sizes: tuple[int, ...], budgets: tuple[float, ...]) -> Truncation:
    """Return the truncation of tensors with these axes, slowest first. Axes of one value have no
    span and are dropped."""
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

_FLAGS: dict[str, Any] = {"nogil": True, "error_model": "numpy"}


@njit(**_FLAGS)
def truncate(v, axes, budgets):  # type: ignore[no-untyped-def]
    """Truncate v in place, one axis after the other."""
    # Unsigned offsets into the flat vector, as in kernels.py: fast to run and to compile.
    for k in range(axes.shape[0]):
        outer, size, inner = np.uint64(axes[k, 0]), np.uint64(axes[k, 1]), np.uint64(axes[k, 2])
        c = budgets[k]
        for o in range(outer):
            first = o * size * inner
            if size == np.uint64(2):
                second = first + inner
                for i in range(inner):
                    x, y = v[first + i], v[second + i]
                    top = c + (x if x < y else y)
                    v[first + i] = x if x < top else top
                    v[second + i] = y if y < top else top
            else:
                for i in range(inner):
                    low = v[first + i]
                    for value in range(size):
                        x = v[first + value * inner + i]
                        low = x if x < low else low
                    top = c + low
                    for value in range(size):
                        x = v[first + value * inner + i]
                        v[first + value * inner + i] = x if x < top else top
