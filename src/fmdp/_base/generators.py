"""Random generators from what a user hands over: a generator, or a seed for one."""

from __future__ import annotations

import numpy as np

from fmdp._base.parameters import Integer, quoted
from fmdp.errors import InvalidParameter


def generator_of(given: object, owner: str) -> np.random.Generator | None:
    """A generator from a generator, a seed for PCG64 (named, as NumPy's default may change), or
    None from None."""
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
