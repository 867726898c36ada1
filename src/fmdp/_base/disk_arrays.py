"""Arrays in temporary files, for vectors that need not stay in memory."""

from __future__ import annotations

import math
import mmap
import os
import shutil
import tempfile
from typing import IO, Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from fmdp._base.memory import describe_bytes
from fmdp.errors import TooLarge


def disk_array(shape: int | tuple[int, ...], dtype: DTypeLike = np.float64) -> NDArray[Any]:
    """Return a new array of zeros in a temporary file, in the folder that `tempfile` chooses.

    The file has no name, or loses it at once: its space is free again when the array is, even if
    the process is killed. Raise TooLarge if the disk is too small.
    """
    sizes = (shape,) if isinstance(shape, int) else shape
    length = math.prod(sizes) * np.dtype(dtype).itemsize
    if length == 0:
        return np.zeros(shape, dtype=dtype)
    with tempfile.TemporaryFile(prefix="fmdp-") as file:
        _reserve(file, length)
        # The mapping outlives the file object.
        mapping = mmap.mmap(file.fileno(), length)
    return np.frombuffer(mapping, dtype=dtype).reshape(shape)


def _reserve(file: IO[bytes], length: int) -> None:
    """Make the file so long, and raise TooLarge if there is no space for it.

    Writing to a mapping of a file without space would kill the process.
    """
    try:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, length)
        else:
            file.truncate(length)
            if shutil.disk_usage(tempfile.gettempdir()).free < length:
                raise OSError
    except OSError:
        folder = tempfile.gettempdir()
        free = shutil.disk_usage(folder).free
        raise TooLarge(
            f"vectors on disk need a file of {describe_bytes(length)} in {folder}, where "
            f"{describe_bytes(free)} are free; set the environment variable TMPDIR to a folder "
            f"with more space",
            needed_bytes=length,
            limit_bytes=free,
        ) from None
