"""Tables with one axis for each variable that may matter, made smaller by what does not.

    reduced: an axis goes where all rows along it that are known are equal, bit for bit

A row is unknown where nothing can happen (an action that is not allowed there), and may then be
whatever is convenient. Cost: one pass over the table for each axis.
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
"""Numbers of one table."""


@dataclass(frozen=True)
class Cube:
    """Rows over some variables."""

    axes: tuple[int, ...]
    """Numbers of the variables, sorted."""
    rows: NDArray[Any]
    """[size of each axis, ..., length of a row]."""
    known: NDArray[np.bool_]
    """[size of each axis, ...]."""

    @property
    def sizes(self) -> tuple[int, ...]:
        """Of the axes."""
        return self.known.shape

    def without(self, variable: int) -> Cube | None:
        """The table without a variable, or None where rows depend on it."""
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
        """The table without the variables that do not matter, but for those that are kept."""
        made = self
        for variable in self.axes:
            if variable not in kept:
                made = made.without(variable) or made
        return made

    def with_axes(self, axes: Sequence[int], sizes: Sequence[int]) -> Cube:
        """The table with more axes, on which nothing depends."""
        shape = [size if v in self.axes else 1 for v, size in zip(axes, sizes, strict=True)]
        length = self.rows.shape[-1]
        check_cells(count(sizes) * length, "a table")
        return Cube(
            tuple(axes),
            np.broadcast_to(self.rows.reshape(*shape, length), (*sizes, length)),
            np.broadcast_to(self.known.reshape(shape), tuple(sizes)),
        )


def check_cells(cells: int, what: str) -> None:
    """TooLarge for a table of so many numbers."""
    if cells > MOST_CELLS:
        raise TooLarge(
            f"{what} has {cells} numbers; at most {MOST_CELLS} are written out",
            8 * cells,
            8 * MOST_CELLS,
        )
