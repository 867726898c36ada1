"""Random generators from user arguments: a generator or a seed."""

from __future__ import annotations

import numpy as np

from fmdp._base.parameters import Integer, quoted
from fmdp.errors import InvalidParameter


def generator_of(given: object, owner: str) -> np.random.Generator | None:
    """Return the generator, a PCG64 generator of the seed, or None for None. PCG64 is named because
    NumPy's default may change."""
    if given is None or isinstance(given, np.random.Generator):
        return given
    try:
        seed = Integer("generator", 0, "", low=0).check(given, owner)
    except InvalidParameter:
        raise InvalidParameter(
            f"the 'generator' of {owner} must be a numpy.random.Generator or a seed, an integer "
            f">= 0; got {quoted(given)}"
        ) from None
    return np.random.Generator(np.random.PCG64(seed))
