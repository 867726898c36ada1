"""The folder of a service, used through a descriptor instead of its name.

A folder may be renamed, and another one may take its name, while a process serves in it. The
descriptor continues to refer to the same folder, so nothing is ever written into another one. The
lock is on the folder itself: there is no lock file that somebody could remove.
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import os
import stat
from pathlib import Path
from typing import Any

from fmdp._base.archives import read_file, reason
from fmdp.errors import FileProblem
from fmdp.model.io.files import sync_folder

_TEMPORARY = ".fmdp-new"
"""Name of a file while it is written. One process at a time writes here, one file at a time."""
_fcntl: Any = importlib.import_module("fcntl") if os.name == "posix" else None


class Folder:
    """A folder that this process has locked; created if missing."""

    def __init__(self, path: Path) -> None:
        self.path = path
        """Its name when it was opened; only for messages."""
        self._descriptor = _locked_folder(path)
        self._expected: dict[str, tuple[int, int]] = {}

    def close(self) -> None:
        """Release the lock."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    @property
    def closed(self) -> bool:
        return self._descriptor < 0

    def names(self) -> list[str]:
        """Return the names of the files."""
        return os.listdir(self._descriptor)  # noqa: PTH208 - a descriptor

    def read(self, name: str, what: str) -> bytes:
        """Return the content of a file, or raise FileProblem; `what` was expected."""
        return read_file(name, what, folder=self._descriptor, label=str(self.path / name))

    def open(self, name: str, what: str) -> int:
        """Return a descriptor to read and write an existing file; `what` was expected."""
        try:
            descriptor = os.open(name, os.O_RDWR | os.O_NONBLOCK, dir_fd=self._descriptor)
        except FileNotFoundError:
            raise FileProblem(f"{self.path / name}: no such file; must be {what}") from None
        except OSError as error:
            raise self._unwritable(name, error) from None
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise FileProblem(f"{self.path / name}: is no regular file; must be {what}")
        return descriptor

    def write(self, name: str, content: bytes) -> None:
        """Replace or create a file in one step, durable on return.

        A failure leaves the old file or the new one, never a part of it.
        """
        folder = self._descriptor
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        try:
            with os.fdopen(os.open(_TEMPORARY, flags, 0o666, dir_fd=folder), "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
                identity = _identity(os.fstat(file.fileno()))
            os.rename(_TEMPORARY, name, src_dir_fd=folder, dst_dir_fd=folder)
            self._expected[name] = identity
            os.fsync(folder)
        except BaseException as error:
            with contextlib.suppress(OSError):
                self.remove(_TEMPORARY)
            if isinstance(error, OSError):
                raise self._unwritable(name, error) from None
            raise

    def remove(self, name: str) -> None:
        """Remove a file; raise OSError if that fails."""
        os.unlink(name, dir_fd=self._descriptor)

    def rename(self, name: str, new: str) -> None:
        """Rename a file in one step; raise OSError if that fails."""
        folder = self._descriptor
        os.rename(name, new, src_dir_fd=folder, dst_dir_fd=folder)

    def expect(self, *names: str) -> None:
        """Make `check` require these files and no others, as they were written or are now."""
        known = self._expected
        self._expected = {name: known.get(name) or self._stat(name) for name in names}

    def check(self) -> None:
        """Raise FileProblem if an expected file was removed or replaced, or the whole folder was.

        A folder that was renamed is still there.
        """
        for name, identity in self._expected.items():
            if self._stat(name) != identity:
                raise self._removed(name)

    def _stat(self, name: str) -> tuple[int, int]:
        try:
            return _identity(os.stat(name, dir_fd=self._descriptor))
        except OSError:
            raise self._removed(name) from None

    def _removed(self, name: str) -> FileProblem:
        return FileProblem(
            f"{self.path / name}: was removed or replaced while it was in use; nothing further is "
            f"acknowledged"
        )

    def _unwritable(self, name: str, error: OSError) -> FileProblem:
        return FileProblem(f"{self.path / name}: cannot be written ({reason(error)})")


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _locked_folder(path: Path) -> int:
    """Create the folder if it is missing, and return a descriptor that has locked it."""
    try:
        if path.exists() and not path.is_dir():
            raise FileProblem(f"{path}: is no folder; must be one, or a new name")
        missing = [place for place in (path, *path.parents) if not place.exists()]
        path.mkdir(parents=True, exist_ok=True)
        for place in missing:
            sync_folder(place.parent)
        descriptor = os.open(path, os.O_RDONLY)
    except (OSError, ValueError) as error:
        raise FileProblem(f"{path}: cannot be written ({reason(error)})") from None
    try:
        _fcntl.flock(descriptor, _fcntl.LOCK_EX | _fcntl.LOCK_NB)
    except (OSError, AttributeError) as error:  # AttributeError: no such locks on this system
        os.close(descriptor)
        if getattr(error, "errno", None) in (errno.EWOULDBLOCK, errno.EACCES):
            raise FileProblem(
                f"{path}: another process serves there; must be one at a time for a folder"
            ) from None
        raise FileProblem(f"{path}: folders cannot be locked there ({reason(error)})") from None
    return descriptor
