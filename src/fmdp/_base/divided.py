"""Arrays in files, in parts: each rank writes its own range, and any range can be read again.

A part is a NumPy file whose name ends with the index of its first entry along the last axis.  Files
are read as memory maps, so that a reader holds no more than it asks for.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmdp._base.archives import reason
from fmdp.errors import FileProblem

Array = NDArray[Any]


Checksums = Mapping[str, int]
"""A checksum of the entries of every part, by the name of its file."""


def write_part(folder: Path, name: str, part: Array, first: int) -> dict[str, int]:
    """Write the entries from `first` on and return the checksum of the file.

    Raises FileProblem if the disk does not take them.
    """
    file = folder / f"{name}-{first:016d}.npy"
    part = np.ascontiguousarray(part)
    try:
        np.save(file, part, allow_pickle=False)
    except OSError as error:
        raise FileProblem(f"{file}: cannot be written ({reason(error)})") from None
    return {file.name: zlib.crc32(part.data)}


class DividedArray:
    """An array whose parts are files of one folder.

    Raises FileProblem if a part is missing, or of another type or shape than the others, or if its
    checksum is not the one that is given.
    """

    def __init__(
        self, folder: Path, name: str, count: int, kind: str, checksums: Checksums | None = None
    ) -> None:
        """`count` is the length of the last axis, `kind` the kind of the entries as in NumPy.
        Without `checksums` the entries are not read before they are needed."""
        self.label, self._count = f"{folder}/{name}", count
        self._parts: list[Array] = []
        starts = [0]
        for file in sorted(folder.glob(f"{name}-*.npy")):
            try:
                part = np.lib.format.open_memmap(file, mode="r")
            except (OSError, ValueError, EOFError) as error:
                raise FileProblem(f"{file}: is no part of an array ({reason(error)})") from None
            first = file.stem.removeprefix(f"{name}-")
            rows = self._parts[0].shape[:-1] if self._parts else part.shape[:-1]
            follows = first == f"{starts[-1]:016d}" and part.shape[:-1] == rows
            if part.dtype.kind != kind or part.ndim == 0 or not follows:
                raise FileProblem(f"{file}: does not continue the part before it")
            if checksums is not None and checksums.get(file.name) != zlib.crc32(part.data):
                raise FileProblem(f"{file}: is damaged")
            self._parts.append(part)
            starts.append(starts[-1] + part.shape[-1])
        if starts[-1] != count:
            raise FileProblem(f"{self.label}: its parts hold {starts[-1]} entries; must be {count}")
        self._starts = np.array(starts)

    @property
    def rows(self) -> int:
        """Length of the first of two axes; raise FileProblem if there is another number of axes."""
        shape = self._parts[0].shape
        if len(shape) != 2 or shape[0] == 0:
            raise FileProblem(f"{self.label}: must have two axes, none empty; got shape {shape}")
        return int(shape[0])

    def entry(self, index: int) -> Any:
        """Return one entry, of the last axis if there are several."""
        part = int(np.searchsorted(self._starts, index, side="right")) - 1
        return self._parts[part][..., index - int(self._starts[part])]

    def read(self, first: int = 0, end: int | None = None) -> Array:
        """Return a copy of a range of the last axis."""
        end = self._count if end is None else end
        pieces = [
            part[..., max(first - start, 0) : max(end - start, 0)]
            for part, start in zip(self._parts, self._starts[:-1].tolist(), strict=True)
        ]
        return np.concatenate(pieces, axis=-1)
