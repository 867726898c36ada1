"""Tables with one axis per variable, from which irrelevant variables can be removed.

An axis is irrelevant if all known rows along it are equal, bit for bit. A row is unknown if its
action is not allowed there; it may then be anything. Cost: one pass over the table per axis.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmdp.errors import TooLarge
from fmdp.model.spaces import count

MOST_CELLS = 1 << 26
"""Most numbers in one table; 512 MiB."""


@dataclass(frozen=True)
class Cube:
    """A table of rows over some variables."""

    axes: tuple[int, ...]
    """Numbers of the variables, sorted."""
    rows: NDArray[Any]
    """[size of each axis, ..., length of a row]."""
    known: NDArray[np.bool_]
    """[size of each axis, ...]."""

    @property
    def sizes(self) -> tuple[int, ...]:
        """Sizes of the axes."""
        return self.known.shape

    def without(self, variable: int) -> Cube | None:
        """Return the table without a variable, or None if rows depend on it."""
        place = self.axes.index(variable)
        first = np.expand_dims(self.known.argmax(axis=place), place)
        chosen = np.take_along_axis(self.rows, first[..., None], axis=place)
        if not ((self.rows == chosen).all(axis=-1) | ~self.known).all():
            return None
        return Cube(
            self.axes[:place] + self.axes[place + 1 :],
            chosen.squeeze(place),
            np.asarray(self.known.any(axis=place)),
        )

    def reduced(self, kept: Collection[int] = ()) -> Cube:
        """Return the table without irrelevant variables, except those in `kept`."""
        cube = self
        for variable in self.axes:
            if variable not in kept:
                cube = cube.without(variable) or cube
        return cube

    def with_axes(self, axes: Sequence[int], sizes: Sequence[int]) -> Cube:
        """Return the table with additional axes, on which nothing depends."""
        shape = [size if v in self.axes else 1 for v, size in zip(axes, sizes, strict=True)]
        length = self.rows.shape[-1]
        check_cells(count(sizes) * length, "a table")
        return Cube(
            tuple(axes),
            np.broadcast_to(self.rows.reshape(*shape, length), (*sizes, length)),
            np.broadcast_to(self.known.reshape(shape), tuple(sizes)),
        )


def check_cells(cells: int, what: str) -> None:
    """Raise TooLarge for a table with too many numbers."""
    if cells > MOST_CELLS:
        raise TooLarge(
            f"{what} has {cells} numbers; at most {MOST_CELLS} are written out",
            8 * cells,
            8 * MOST_CELLS,
        )
