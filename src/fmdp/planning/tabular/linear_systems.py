"""Linear systems of Markov chains: (I - discount P) x = b, dense or sparse.

The diagonal 1 - P(s, s) is computed as the sum of the rest of its row (Grassmann, Taksar & Heyman
1985), so that a state that is hardly ever left costs no digits.

Dense systems use the LU factors of LAPACK on one BLAS thread: with several threads the last bits of
a solution would depend on their number.  `scipy.linalg` takes longer to import than a small plan
takes to make, and only two of its routines are needed.  They are in one extension module of SciPy,
which is loaded alone if that works; otherwise they come from `scipy.linalg`: the same routines of
the same library, with the same bits.  Cost: n^3 / 1.5 for the factors, n^2 per solution.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import cache
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]
Solve = Callable[[Floats], Floats]

SPARSE_STATES = 1 << 13
"""Largest system of an average-reward policy; a sparse factorisation may fill up."""
_DENSE_SHARE = 20
"""A matrix is dense if more than one entry in this many is not zero."""


class Sizes(NamedTuple):
    """Which systems are solved as dense ones; results depend on it in their last bits."""

    dense: int
    """Systems of up to this many unknowns are dense,"""
    full: float
    """and up to this many if they have many entries."""


AVERAGE = Sizes(1500, 4096)
DISCOUNTED = Sizes(200, np.inf)


def resolvent(
    origin: Indices,
    target: Indices,
    weight: Floats,
    n: int,
    *,
    discount: float = 1.0,
    loss: float = 0.0,
    anchor: int | None = None,
    stops: Indices | None = None,
    sizes: Sizes = AVERAGE,
) -> Solve | None:
    """Return x -> (I - discount P)^-1 x, given the entries of P; None if the matrix is singular.

    `loss` is 1 - discount, which the caller may know to more digits.  With an `anchor` its column
    is replaced by ones: the unknown of that state stands for the gain.  States in `stops` have no
    successor, and a diagonal of 1.
    """
    away = (target != origin) & (weight > 0.0)
    origin, target, weight = origin[away], target[away], weight[away]
    leaving: Floats = np.bincount(origin, weight, n).astype(np.float64, copy=False)
    diagonal = loss + discount * leaving
    if stops is not None:
        diagonal[stops] = 1.0
    dense = n <= sizes.dense or (n <= sizes.full and _DENSE_SHARE * len(weight) > n * n)
    if not dense and sizes is AVERAGE and n > SPARSE_STATES:
        return None
    states = np.arange(n)
    if anchor is None:
        parts = [(origin, target, -discount * weight), (states, states, diagonal)]
    else:
        kept, others = target != anchor, np.delete(states, anchor)
        parts = [
            (origin[kept], target[kept], -discount * weight[kept]),
            (others, others, diagonal[others]),
            (states, np.full(n, anchor), np.ones(n)),
        ]
    rows, columns, values = (np.concatenate(part) for part in zip(*parts, strict=True))
    if not dense:
        return factored_sparse(rows, columns, values, n)
    matrix = np.zeros((n, n))
    np.add.at(matrix, (rows, columns), values)
    return factored(matrix)


def factored_sparse(rows: Indices, columns: Indices, values: Floats, n: int) -> Solve | None:
    """Return x -> A^-1 x of a sparse matrix, given by its entries; None if it is singular."""
    from scipy.sparse import csc_array
    from scipy.sparse.linalg import splu

    try:
        factors = splu(csc_array((values, (rows, columns)), shape=(n, n)))
    except RuntimeError:  # exactly singular
        return None
    return lambda right: np.asarray(factors.solve(right))


def factored(matrix: Floats) -> Solve | None:
    """Return x -> matrix^-1 x; None if the matrix is singular or not finite."""
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
    """Return a context in which BLAS works on one thread."""
    limited: AbstractContextManager[object] = _threads().limit(limits=1, user_api="blas")
    return limited


@cache
def _threads() -> Any:
    from threadpoolctl import ThreadpoolController

    _lapack()  # the controller limits only libraries that are loaded by then
    return ThreadpoolController()


@cache
def _lapack() -> Any:
    """Return a module with `dgetrf` and `dgetrs`."""
    if "scipy.linalg" not in sys.modules:
        try:
            module = _alone()
        except (ImportError, OSError, AttributeError):
            module = None
        if module is not None:
            return module
    from scipy.linalg import lapack

    return lapack


def _alone() -> Any | None:
    """Return SciPy's extension module without its package; None if SciPy is laid out otherwise."""
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
