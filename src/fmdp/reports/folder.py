"""A directory of files that is replaced as a whole: readers see all old or all new files.

    with Replacement(folder, ours) as new:      # creates `.NAME-....tmp` beside it, or raises
        ...                                     # the work
        new.write(contents)                     # writes all files, then swaps the directories

On Linux and macOS the two directories are exchanged in one step. Elsewhere the old one is moved
away first: a kill in between leaves no report, and still no mixture. A directory that cannot be
moved, such as a mount point, gets the files one by one. Because its content is deleted, a directory
with files that `ours` does not name is refused. Leftovers of killed writers are removed by the next
one; a lock distinguishes them from a writer at work.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import secrets
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from glob import escape
from pathlib import Path
from typing import Any

from fmdp.errors import FileProblem
from fmdp.model.io.files import locked, write_atomically

_HERE = -100  # AT_FDCWD
_EXCHANGE = 2  # RENAME_EXCHANGE of Linux, RENAME_SWAP of macOS


class Replacement:
    """New files in a temporary directory beside the one that they will replace."""

    def __init__(self, folder: Path, ours: Callable[[str], bool]) -> None:
        self._given = folder
        self._ours = ours

    def __enter__(self) -> Replacement:
        try:
            self.folder = self._given.resolve()
            self._refuse_others()
            self.folder.parent.mkdir(parents=True, exist_ok=True)
            self._clean_up()
            self._new = self._stage(self.folder.parent)
            if self._new is None:
                self.folder.mkdir(exist_ok=True)
                # Raises OSError if no file can be written there.
                with tempfile.NamedTemporaryFile(prefix=".fmdp-", suffix=".tmp", dir=self.folder):
                    pass
        except (OSError, ValueError, RuntimeError) as error:
            if isinstance(error, FileProblem):
                raise
            reason = getattr(error, "strerror", None) or error
            raise FileProblem(f"{self._given}: cannot be written ({reason})") from None
        return self

    def __exit__(self, *error: object) -> None:
        if self._new is not None:
            _remove(self._new)
            os.close(self._lock)

    def write(self, contents: Mapping[str, str | bytes]) -> None:
        """Write all files, then make them visible at once."""
        if self._new is None:
            for name, content in contents.items():
                write_atomically(self.folder / name, content)
            return
        for name, content in contents.items():
            write_atomically(self._new / name, content)
        try:
            self._refuse_others()
            _swap(self._new, self.folder)
        except FileProblem:
            raise
        except OSError:
            for name, content in contents.items():
                write_atomically(self.folder / name, content)

    def _refuse_others(self) -> None:
        if not self.folder.exists():
            return
        if not self.folder.is_dir():
            raise FileProblem(f"{self._given}: is no directory; must be one, or a new name")
        for path in sorted(self.folder.iterdir()):
            if path.is_dir() or not self._ours(path.name):
                raise FileProblem(
                    f"{self._given}: holds {path.name!r}, which is no part of a report; a report "
                    f"replaces its directory whole, so it must be an empty one or a new name"
                )

    def _stage(self, parent: Path) -> Path | None:
        """Create and lock the temporary directory; None if only the old one can be written."""
        new = parent / f".{self.folder.name}-{secrets.token_hex(4)}.tmp"
        try:
            new.mkdir()
        except PermissionError:
            if self.folder.is_dir():
                return None
            raise
        self._lock = os.open(new, os.O_RDONLY)
        locked(self._lock)
        return new

    def _clean_up(self) -> None:
        """Remove directories that killed writers left; a live writer holds their lock."""
        for leftover in self.folder.parent.glob(f".{escape(self.folder.name)}-????????.tmp"):
            with contextlib.suppress(OSError), _opened(leftover) as descriptor:
                names = [path.name for path in leftover.iterdir()]
                if locked(descriptor) and all(map(self._ours, names)):
                    _remove(leftover)


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _swap(new: Path, old: Path) -> None:
    """Give the new directory the name of the old one, and the old one, if any, the new name."""
    if not old.exists():
        new.rename(old)
        return
    if _exchanged(new, old):
        return
    aside = new.with_name(f".{old.name}-{secrets.token_hex(4)}.tmp")
    old.rename(aside)
    try:
        new.rename(old)
    except BaseException:
        aside.rename(old)
        raise
    _remove(aside)


def _exchanged(one: Path, other: Path) -> bool:
    """Exchange two names in one step; return False if the system cannot."""
    names = os.fsencode(one), os.fsencode(other)
    library: Any = ctypes.CDLL(None, use_errno=True) if os.name == "posix" else None
    if sys.platform.startswith("linux") and hasattr(library, "renameat2"):
        done = library.renameat2(_HERE, names[0], _HERE, names[1], _EXCHANGE)
    elif sys.platform == "darwin" and hasattr(library, "renamex_np"):  # pragma: no cover
        done = library.renamex_np(*names, _EXCHANGE)
    else:  # pragma: no cover - neither Linux nor macOS
        return False
    return bool(done == 0)


def _remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
