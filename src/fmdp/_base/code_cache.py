"""The cache of compiled code, in directories that nobody else can write to.

A cached file is machine code, and a pickle: whoever can write it can run anything as the user who
loads it. So directories and files are used only if they belong to the user or to root, and no other
user can write to them or replace them, as the StrictModes of OpenSSH demand. The rule for the
parents is weaker for directories with the sticky bit, such as /tmp, where only the owner of an
entry can replace it.

One file holds one function for one signature and one kind of processor:

    file = SHA-256(SHA-256(key), payload), payload
    key = version of Numba, source files, function, signature, processor
    payload = the pickled result of the compiler

Damaged and outdated files therefore look the same: their digest is wrong, they are not unpickled,
and the function is compiled again, which replaces the file.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import pickle
import stat
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

_DIGEST_BYTES = 32
_OTHERS_CAN_WRITE = stat.S_IWGRP | stat.S_IWOTH
# The last component must not be a link, and opening a pipe must not wait. Windows has neither flag.
_READ_FLAGS = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
_warned = False


class CodeCache:
    """Cache of one compiled function, with the methods that Numba's dispatcher calls
    (`numba.core.caching._Cache`)."""

    def __init__(self, function: Callable[..., Any], stamp: str) -> None:
        """`stamp` identifies the content of the source files."""
        code = function.__code__
        # What a function closes over is no part of the key.
        cacheable = function.__closure__ is None
        self._directories = cache_directories(Path(code.co_filename)) if cacheable else ()
        self._identity = (stamp, code.co_code)
        python = f"py{sys.version_info.major}{sys.version_info.minor}{sys.abiflags}"
        name = f"{Path(code.co_filename).stem}.{function.__qualname__}-{code.co_firstlineno}"
        self._stem = f"{name}.{python}".replace("<", "").replace(">", "")

    @property
    def cache_path(self) -> str | None:
        """The directory for new files."""
        return str(self._directories[-1]) if self._directories else None

    def load_overload(self, signature: Any, target: Any) -> Any:
        """Return the compiled function, or None if it must be compiled."""
        from numba.core.compiler import CompileResult

        target.refresh()
        name, key = self._key(signature, target.codegen())
        for directory in self._directories:
            # Unpickling and loading raise nearly anything where classes have changed.
            with contextlib.suppress(Exception):
                content = read_trusted(directory / name)
                if content[:_DIGEST_BYTES] == _digest(key, content[_DIGEST_BYTES:]):
                    parts = pickle.loads(content[_DIGEST_BYTES:])
                    return CompileResult._rebuild(target, *parts)  # type: ignore[no-untyped-call]
        return None

    def save_overload(self, signature: Any, result: Any) -> None:
        from numba.core.serialize import dumps

        cacheable = all(part.can_cache for part in result.lifted)
        if not self._directories or not cacheable or result.library.has_dynamic_globals:
            return
        name, key = self._key(signature, result.codegen)
        payload = dumps(result._reduce())  # type: ignore[no-untyped-call]
        directory = self._directories[-1]
        try:
            write_trusted(directory / name, _digest(key, payload) + payload)
        except OSError as error:
            _warn_once(f"compiled code cannot be kept in {directory}: {error.strerror or error}")

    def flush(self) -> None:
        """Do nothing: a function that is compiled again replaces its file."""

    def _key(self, signature: Any, codegen: Any) -> tuple[str, bytes]:
        """Return the name of the file, and what else must be the same."""
        from numba import __version__ as version

        variant = repr((str(signature), codegen.magic_tuple())).encode()
        name = f"{self._stem}.{hashlib.sha256(variant).hexdigest()[:16]}.nbc"
        return name, variant + repr((version, *self._identity)).encode()


def _digest(key: bytes, payload: bytes) -> bytes:
    return hashlib.sha256(hashlib.sha256(key).digest() + payload).digest()


@functools.cache
def cache_directories(source: Path) -> tuple[Path, ...]:
    """Return the directories to read from; the last one is also written to.

    They are that of NUMBA_CACHE_DIR, otherwise `__pycache__` beside the source. If others can write
    to it, the user's cache directory is used instead; if the user cannot, in addition.
    """
    subdirectory = f"{source.parent.name}_{hashlib.sha256(bytes(source.parent)).hexdigest()[:16]}"
    named = os.environ.get("NUMBA_CACHE_DIR")
    first = _without_links(Path(named, subdirectory) if named else source.parent / "__pycache__")
    reason = distrust(first)
    if reason is None and _is_writable(first):
        return (first,)
    home = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"))  # noqa: PTH111
    second = _without_links(home / "fmdp" / subdirectory)
    if home.is_absolute() and distrust(second) is None and _is_writable(second):
        if reason is None:
            return (first, second)
        if named:
            _warn_once(f"{named} (NUMBA_CACHE_DIR) is not used: {reason}; {home} is used instead")
        return (second,)
    _warn_once(
        f"compiled code cannot be kept, and is compiled in every run: "
        f"{reason or f'{first} cannot be written'}, and there is no cache directory of your own "
        f"(NUMBA_CACHE_DIR names another)"
    )
    return () if reason is not None else (first,)


def _without_links(path: Path) -> Path:
    return Path(os.path.realpath(path))


def distrust(directory: Path) -> str | None:
    """Return who else could write into a directory without links, or replace it, or None."""
    for path in (directory, *directory.parents):
        try:
            status = path.lstat()
        except FileNotFoundError:
            continue
        except OSError as error:
            return f"{path}: {error.strerror}"
        is_sticky_parent = path != directory and status.st_mode & stat.S_ISVTX
        reason = _writable_by_others(status, sticky=bool(is_sticky_parent))
        if reason is not None:
            return f"{path} {reason}"
    return None


def _writable_by_others(status: os.stat_result, *, sticky: bool = False) -> str | None:
    if not hasattr(os, "geteuid"):
        return None  # Windows has other permissions, and a cache directory per user
    if status.st_uid not in (0, os.geteuid()):
        return "belongs to another user"
    if status.st_mode & _OTHERS_CAN_WRITE and not sticky:
        return "can be written by other users"
    return None


def _is_writable(directory: Path) -> bool:
    existing = next(path for path in (directory, *directory.parents) if path.exists())
    return existing.is_dir() and os.access(existing, os.W_OK | os.X_OK)


def read_trusted(path: Path) -> bytes:
    """Return the content of a regular file that only the user or root can write."""
    with open(os.open(path, _READ_FLAGS), "rb") as file:  # noqa: PTH123
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode) or _writable_by_others(status) is not None:
            raise PermissionError(f"{path} is not a file of the user's own")
        return file.read()


def write_trusted(path: Path, content: bytes) -> None:
    """Replace a file. Directories are created for the user alone, whatever the umask."""
    for directory in reversed(path.parents):
        if not directory.exists():
            with contextlib.suppress(FileExistsError):  # another process was faster
                directory.mkdir(mode=0o700)
    reason = distrust(path.parent)
    if reason is not None:
        raise PermissionError(reason)
    temporary = path.with_name(f"{path.name}.{uuid.uuid4().hex[:16]}.tmp")
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        with open(os.open(temporary, flags, 0o644), "wb") as file:  # noqa: PTH123
            file.write(content)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _warn_once(line: str) -> None:
    from multiprocessing import parent_process

    global _warned
    if not _warned and parent_process() is None:  # not by every worker of a sweep
        print(f"fmdp: {line}", file=sys.stderr)
    _warned = True
