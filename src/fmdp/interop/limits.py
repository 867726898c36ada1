"""Limits on what a foreign text may ask for: whole numbers, steps of work, and depth.

Readers of foreign formats evaluate expressions of unknown origin, so all of them compute with whole
numbers below 2^53, which are exact in every type that is used, and refuse the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmdp.errors import InvalidModel

LARGEST_WHOLE = 2**53
MOST_STEPS = 1 << 21
"""Most parts of expressions that are visited for one file, about 2 s of work. The largest instance
of the planning competitions (EarthObservation of 2018) takes 1.5 million."""


def refuse_whole() -> None:
    """Raise InvalidModel because of a whole number."""
    raise InvalidModel("a whole number is too large; must be below 2^53")


def exact(operation: Callable[..., NDArray[Any]], *operands: NDArray[Any]) -> NDArray[Any]:
    """Return the result of an operation on arrays; raise InvalidModel if integers overflow."""
    result = np.asarray(operation(*operands))
    if result.dtype.kind == "i":
        real = operation(*(np.asarray(operand, dtype=np.float64) for operand in operands))
        if (np.abs(real) >= LARGEST_WHOLE).any():
            refuse_whole()
    return result


@contextmanager
def nesting() -> Iterator[None]:
    """Raise InvalidModel instead of RecursionError."""
    try:
        yield
    except RecursionError:
        raise InvalidModel("expressions or definitions are nested too deeply to be read") from None
