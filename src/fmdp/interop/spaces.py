"""Conversion between discrete Gymnasium spaces and variables.

Discrete is one variable; MultiDiscrete and MultiBinary are one per entry; Tuple and Dict have the
variables of their parts, and keys of a Dict become names. Values are counted from 0, whatever the
start of the space. Other spaces are refused by name.

Gymnasium is imported on use, because simulators without it need this module too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from fmdp._base.parameters import quoted
from fmdp.errors import InvalidParameter


class Variables:
    """The variables of an observation or action space: their sizes and, for a Dict, their names.

    `what` is how error messages call the space: "observation" or "action".
    """

    def __init__(self, space: Any, what: str) -> None:
        self.space = space
        self.what = what
        variables = list(_variables(space, "", what))
        self.sizes = tuple(size for _, size, _ in variables)
        self._starts = tuple(start for _, _, start in variables)
        named = isinstance(space, _spaces().Dict)
        self.names = tuple(name for name, _, _ in variables) if named else ()

    def values(self, sample: Any) -> tuple[int, ...]:
        """Return one value per variable for an element of the space."""
        try:
            entries = [int(value) for value in _flat(self.space, sample)]
        except (TypeError, ValueError, KeyError, IndexError):
            entries = []
        if len(entries) != len(self.sizes):
            raise InvalidParameter(
                f"the {self.what} of an environment must be in its space {self.space}; got "
                f"{quoted(sample)}"
            )
        return tuple(value - start for value, start in zip(entries, self._starts, strict=True))

    def element(self, values: tuple[int, ...]) -> Any:
        """Return the element of the space with these values."""
        shifted = [value + start for value, start in zip(values, self._starts, strict=True)]
        return _built(self.space, iter(shifted))


def _spaces() -> Any:
    from gymnasium import spaces

    return spaces


def _variables(space: Any, name: str, what: str) -> Iterator[tuple[str, int, int]]:
    """Yield (name, size, first value) of every variable."""
    spaces = _spaces()
    if isinstance(space, spaces.Discrete):
        yield name, int(space.n), int(space.start)
    elif isinstance(space, spaces.MultiDiscrete):
        both = zip(space.nvec.reshape(-1).tolist(), space.start.reshape(-1).tolist(), strict=True)
        for place, (size, start) in enumerate(both):
            yield _below(name, place), size, start
    elif isinstance(space, spaces.MultiBinary):
        for place in range(int(np.prod(space.shape))):
            yield _below(name, place), 2, 0
    elif isinstance(space, spaces.Tuple):
        for place, part in enumerate(space.spaces):
            yield from _variables(part, _below(name, place), what)
    elif isinstance(space, spaces.Dict):
        for key, part in space.spaces.items():
            yield from _variables(part, _below(name, key), what)
    else:
        remedy = "; give decode and variables" if what == "observation" else ""
        raise InvalidParameter(
            f"the {what} space of an environment must be made of Discrete, MultiDiscrete, "
            f"MultiBinary, Tuple and Dict; got {space}{remedy}"
        )


def _below(name: str, part: object) -> str:
    return f"{name}_{part}" if name else str(part)


def _flat(space: Any, sample: Any) -> Iterator[Any]:
    spaces = _spaces()
    if isinstance(space, spaces.Tuple):
        for part, entry in zip(space.spaces, sample, strict=True):
            yield from _flat(part, entry)
    elif isinstance(space, spaces.Dict):
        for key, part in space.spaces.items():
            yield from _flat(part, sample[key])
    else:
        yield from np.asarray(sample).reshape(-1).tolist()


def _built(space: Any, values: Iterator[int]) -> Any:
    spaces = _spaces()
    if isinstance(space, spaces.Discrete):
        return space.dtype.type(next(values))
    if isinstance(space, spaces.Tuple):
        return tuple(_built(part, values) for part in space.spaces)
    if isinstance(space, spaces.Dict):
        return {key: _built(part, values) for key, part in space.spaces.items()}
    shape = space.shape
    entries = [next(values) for _ in range(int(np.prod(shape)))]
    return np.array(entries, dtype=space.dtype).reshape(shape)
