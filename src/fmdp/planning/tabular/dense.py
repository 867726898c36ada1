"""Dense linear systems: the LU factors of LAPACK, on one BLAS thread.

On several threads the last bits of a solution would depend on how many there are.

`scipy.linalg` takes longer to import than a small plan takes to make, and of it two routines are
needed. They are in one extension module of SciPy's, which is loaded alone where that works; else
they come from `scipy.linalg` itself: the same routines of the same library, with the same bits.
Cost: n^3 / 1.5 for the factors, n^2 for a solution.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import cache
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def factored(matrix: Floats) -> Callable[[Floats], Floats] | None:
    """x -> matrix^-1 x; None where the matrix is singular, or has entries that are no numbers."""
    if not np.isfinite(matrix).all():
        return None
    lapack = _lapack()
    with one_thread():
        factors, pivots, failed = lapack.dgetrf(matrix)
    if failed:
        return None

    def solve(right: Floats) -> Floats:
        with one_thread():
            solution: Floats = lapack.dgetrs(factors, pivots, right)[0]
        return solution

    return solve


def one_thread() -> AbstractContextManager[object]:
    """In which BLAS works on one thread."""
    limited: AbstractContextManager[object] = _threads().limit(limits=1, user_api="blas")
    return limited


@cache
def _threads() -> Any:
    from threadpoolctl import ThreadpoolController

    _lapack()  # only what is loaded by then is limited
    return ThreadpoolController()


@cache
def _lapack() -> Any:
    """A module with `dgetrf` and `dgetrs`."""
    if "scipy.linalg" not in sys.modules:
        try:
            found = _alone()
        except (ImportError, OSError, AttributeError):
            found = None
        if found is not None:
            return found
    from scipy.linalg import lapack

    return lapack


def _alone() -> Any | None:
    """SciPy's extension module without the package around it; None where it looks different."""
    scipy = importlib.util.find_spec("scipy")
    if scipy is None or scipy.origin is None:
        return None
    folder = Path(scipy.origin).parent / "linalg"
    spec = PathFinder.find_spec("_flapack", [str(folder)])
    if spec is None or spec.loader is None:
        return None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module if {"dgetrf", "dgetrs"} <= set(dir(module)) else None
