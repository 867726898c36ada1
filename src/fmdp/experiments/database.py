"""Creating, opening, locking and closing the SQLite file of a store; every problem is one line.

A closed store is one plain file. While it is written, its journal is a write-ahead log (the files
-wal and -shm beside it), so that reports can read at the same time; the last writer folds the log
in. After a kill the log stays and holds runs. A reader reads it too, and where nothing can be
written beside the store it reads a private copy of both files. A log is never ignored.

A lock held by another process is waited for up to `WAIT_SECONDS`, with a notice, and is never
reported as damage.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import sqlite3
import stat
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from fmdp import __version__
from fmdp.errors import FileProblem
from fmdp.experiments import schema
from fmdp.experiments.schema import APPLICATION_ID, SCHEMA_VERSION

WAIT_SECONDS = 20.0
"""Longest wait for a lock of another process."""
_SILENT_SECONDS = 0.5
"""Locks are usually held for milliseconds; shorter waits give no notice."""
_ATTEMPTS_TO_COPY = 5
_ONE_THREAD_ONLY = sqlite3.threadsafety < 3
"""Results that were not closed are closed by the garbage collector, in any thread. SQLite allows
this where it serialises its connections, which nearly every build does."""

Notify = Callable[[str], None]
"""Called with one line for the user."""
T = TypeVar("T")


def warn(line: str) -> None:
    """Issue a warning; the default `Notify`."""
    warnings.warn(line, stacklevel=2)


class RetryWhileLocked:
    """Repeats an action while another process holds a lock on the file."""

    def __init__(self, path: Path, notify: Notify) -> None:
        self.path = path
        self.notify = notify

    def __call__(self, action: Callable[[], T]) -> T:
        until: float | None = None
        while True:
            try:
                return action()
            except sqlite3.OperationalError as error:
                if not is_locked(error):
                    raise
                if until is None:
                    until = time.monotonic() + WAIT_SECONDS
                    self.notify(
                        f"{self.path}: is locked by another process; waiting, for at most "
                        f"{WAIT_SECONDS:.0f} s"
                    )
                elif time.monotonic() >= until:
                    raise
            time.sleep(0.05)


def is_locked(error: sqlite3.Error) -> bool:
    return _code(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def _code(error: sqlite3.Error) -> int:
    """Return SQLite's primary error code, or 0 for an error of the Python module itself."""
    return (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF


SQLITE_ERRORS = (sqlite3.Error, UnicodeDecodeError)
"""Errors of a query; the schema of a damaged file may not decode as text."""


def file_problem(
    path: Path, error: sqlite3.Error | UnicodeDecodeError, doing: str = "read"
) -> FileProblem:
    """Return the one-line error for an SQLite error; only corruption is called damage."""
    if isinstance(error, UnicodeDecodeError):
        return FileProblem(f"{path}: is damaged or half-written: its schema is no text")
    code = _code(error)
    if is_locked(error):
        return FileProblem(
            f"{path}: is locked by another process, and was for {WAIT_SECONDS:.0f} s; try again "
            f"when that has let go"
        )
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT):
        return FileProblem(f"{path}: is damaged or half-written: {error}")
    if code == sqlite3.SQLITE_READONLY:
        doing = "written"
    return FileProblem(f"{path}: cannot be {doing}: {error}")


# ---- opening ---------------------------------------------------------------------------------


def require_store(path: Path) -> None:
    """Raise FileProblem if the file is not a store, before SQLite touches it."""
    try:
        # Opening a pipe would block.
        if not stat.S_ISREG(path.stat().st_mode):
            what = "a directory" if path.is_dir() else "not a regular file"
            raise FileProblem(f"{path}: is {what}; must be a store of fmdp")
        with path.open("rb") as file:
            header = file.read(72)
    except FileNotFoundError:
        raise FileProblem(
            f"{path}: there is no such file; `fmdp sweep` makes a store in its --out directory"
        ) from None
    except FileProblem:
        raise
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise FileProblem(f"{path}: cannot be read: {reason}") from None
    if not header.startswith(b"SQLite format 3\0"):
        what = "is empty" if not header else "is not a SQLite file"
        raise FileProblem(f"{path}: {what}, so it is no store of fmdp or a half-written one")
    if len(header) < 72 or int.from_bytes(header[68:72]) != APPLICATION_ID:
        raise FileProblem(f"{path}: is a SQLite file, but not a store of fmdp")


def connect(path: Path, read_only: bool, retry: RetryWhileLocked) -> sqlite3.Connection:
    """Return a connection to a sound store of this version.

    An older store is migrated in place if it is opened for writing, else as a copy in memory.
    """
    connection = _reader(path, retry) if read_only else _connection(path, "mode=rw")
    try:
        error_text = retry(lambda: _integrity_error(connection))
        if error_text is not None:
            raise FileProblem(f"{path}: is damaged or half-written: {error_text}")
        version = schema.version_of(connection)
        if version is None or not min(schema.MIGRATIONS) <= version <= SCHEMA_VERSION:
            raise FileProblem(
                f"{path}: has schema version {'none' if version is None else version}; "
                f"this fmdp reads versions {min(schema.MIGRATIONS)} to {SCHEMA_VERSION}"
            )
        if version < SCHEMA_VERSION:
            connection = _migrated(connection, path, read_only, retry)
        difference = schema.flaw(connection)
        if difference is not None:
            raise FileProblem(f"{path}: is damaged: {difference}")
        connection.execute("PRAGMA foreign_keys = ON")
        # A run takes minutes to make: it is on disk before it counts as stored.
        connection.execute("PRAGMA synchronous = FULL")
        if not read_only:
            # SQLite continues without a write-ahead log where the file system has none.
            retry(lambda: connection.execute("PRAGMA journal_mode = WAL").fetchone())
    except BaseException as error:
        connection.close()
        if isinstance(error, SQLITE_ERRORS):
            raise file_problem(path, error) from None
        raise
    return connection


def _connection(
    path: Path, how: str, factory: type[sqlite3.Connection] = sqlite3.Connection
) -> sqlite3.Connection:
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?{how}",
        uri=True,
        timeout=_SILENT_SECONDS,
        isolation_level=None,
        check_same_thread=_ONE_THREAD_ONLY,
        factory=factory,
    )
    # Undecodable bytes must not fail the query: the digest reports which run is damaged.
    connection.text_factory = lambda data: data.decode("utf-8", "surrogateescape")
    return connection


class _Copy(sqlite3.Connection):
    """A connection to a private copy, which is deleted when it is closed."""

    folder: tempfile.TemporaryDirectory[str]

    def close(self) -> None:
        super().close()
        self.folder.cleanup()


def _reader(path: Path, retry: RetryWhileLocked) -> sqlite3.Connection:
    """Return a connection that sees everything committed, including the write-ahead log.

    Reading a log needs a shared-memory file beside it. A reader that may write there opens the file
    as a writer would, so that the last process to close it folds the log in and removes both files;
    `query_only` prevents changes.
    """
    refused: sqlite3.Error | None = None
    for how in ("mode=rw", "mode=ro"):
        connection = _connection(path, how)
        try:
            connection.execute("PRAGMA query_only = ON")
            retry(lambda c=connection: c.execute("SELECT 1 FROM sqlite_master").fetchone())  # type: ignore[misc]
            return connection
        except sqlite3.Error as error:
            connection.close()
            if _code(error) not in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY):
                raise
            refused = error
    assert refused is not None
    log = path.with_name(f"{path.name}-wal")
    if _size(log) == 0 and _size(path.with_name(f"{path.name}-journal")) == 0:
        # No log: the file is complete.
        return _connection(path, "mode=ro&immutable=1")
    return _copied(path, log)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
    except OSError as error:
        raise FileProblem(f"{path}: cannot be read: {error.strerror}") from None


def _copied(path: Path, log: Path) -> sqlite3.Connection:
    folder = tempfile.TemporaryDirectory(prefix="fmdp-", ignore_cleanup_errors=True)
    try:
        for _ in range(_ATTEMPTS_TO_COPY):
            before = [_state(file) for file in (path, log)]
            for file in (path, log):
                if file.exists():
                    shutil.copyfile(file, Path(folder.name) / file.name)
            if before == [_state(file) for file in (path, log)]:
                break
        else:
            raise FileProblem(
                f"{path}: is being written and cannot be locked from here; try again later"
            )
    except BaseException as error:
        folder.cleanup()
        if isinstance(error, OSError) and not isinstance(error, FileProblem):
            raise FileProblem(
                f"{log}: this write-ahead log holds what was stored last and cannot be read: "
                f"{error.strerror or error}"
            ) from None
        raise
    connection = _connection(Path(folder.name) / path.name, "mode=rw", _Copy)
    assert isinstance(connection, _Copy)
    connection.folder = folder
    connection.execute("PRAGMA query_only = ON")
    return connection


def _state(path: Path) -> tuple[int, int] | None:
    """Return size and modification time, to detect a write during a copy."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_size, status.st_mtime_ns


_ERROR_IN_A_VALUE = re.compile(
    r"(NULL value|CHECK constraint failed|\S+ value) in "
    r"(runs|measures|curves|recordings|run_code|run_sources)\b"
)


def _integrity_error(connection: sqlite3.Connection) -> str | None:
    """Return the first error in the file's structure, or None.

    Invalid values belong to single runs and are found by their digests.
    """
    rows = connection.execute("PRAGMA integrity_check(100000)").fetchall()
    lines = (str(line) for (line,) in rows)
    return next(
        (line for line in lines if line != "ok" and not _ERROR_IN_A_VALUE.match(line)), None
    )


def _migrated(
    connection: sqlite3.Connection, path: Path, read_only: bool, retry: RetryWhileLocked
) -> sqlite3.Connection:
    try:
        if not read_only:
            # A running sweep of an older fmdp must not lose its tables.
            with writer_lock(path):
                retry(lambda: schema.migrate(connection))
            return connection
        copy = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=_ONE_THREAD_ONLY)
        copy.text_factory = connection.text_factory
        with contextlib.closing(connection):
            connection.backup(copy)
        schema.migrate(copy)
        copy.execute("PRAGMA query_only = ON")
        return copy
    except sqlite3.Error as error:
        if is_locked(error):
            raise file_problem(path, error) from None
        raise FileProblem(
            f"{path}: cannot be brought to schema version {SCHEMA_VERSION}: {error}"
        ) from None


def close(connection: sqlite3.Connection, *, read_only: bool) -> None:
    """Close the connection; the last writer leaves one plain file."""
    if not read_only:
        with contextlib.suppress(sqlite3.Error):
            connection.execute("PRAGMA busy_timeout = 0")
            connection.execute("PRAGMA journal_mode = DELETE")
    connection.close()


# ---- creating and locking --------------------------------------------------------------------


@contextlib.contextmanager
def writer_lock(path: Path) -> Iterator[None]:
    """Hold the lock of the one writer: an exclusive transaction on an empty database beside it.

    This needs no code for each system and does not block readers of the store.
    """
    beside = path.with_suffix(".lock")
    if beside.exists() and not beside.is_file():
        what = "a directory" if beside.is_dir() else "not a regular file"
        raise FileProblem(
            f"{beside}: is {what}; must be the lock of the store, an empty file, or not there"
        )
    lock = None
    try:
        try:
            lock = sqlite3.connect(beside, timeout=0.0, isolation_level=None)
            lock.execute("PRAGMA journal_mode = MEMORY")  # a kill leaves no journal file
            lock.execute("BEGIN EXCLUSIVE")
        except sqlite3.Error as error:
            if is_locked(error):
                raise FileProblem(
                    f"{path}: another process is writing to this store; "
                    f"wait for it, or use another directory"
                ) from None
            raise FileProblem(
                f"{beside}: cannot be the lock of the store: {error}; must be an empty file that "
                f"can be written, or not there"
            ) from None
        yield
    finally:
        if lock is not None:
            lock.close()


def create(path: Path) -> None:
    """Create an empty store under a temporary name and move it into place."""
    unfinished = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    if path.parent.exists() and not path.parent.is_dir():
        raise FileProblem(f"cannot create a store in {path.parent}: it is a file, not a directory")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.closing(sqlite3.connect(unfinished, isolation_level=None)) as connection:
            schema.create(connection, {"format": "fmdp-runs", "made_by": f"fmdp {__version__}"})
        _move_into_place(unfinished, path)
    except (OSError, sqlite3.Error) as error:
        if not path.exists():  # another process was faster, and may have cleaned up here
            raise FileProblem(f"{path}: cannot be made: {error}") from None
    finally:
        with contextlib.suppress(OSError):
            _remove(unfinished)


def _move_into_place(unfinished: Path, path: Path) -> None:
    # A link does not replace a store that another process has created; not every file system has
    # links.
    try:
        os.link(unfinished, path)
    except FileExistsError:
        pass
    except OSError:
        if not path.exists():
            unfinished.replace(path)


def remove_leftovers(path: Path) -> None:
    """Remove unfinished stores that killed processes left; only the one writer may call this."""
    for leftover in path.parent.glob(f".{path.name}.*.tmp"):
        with contextlib.suppress(OSError):
            _remove(leftover)


def _remove(unfinished: Path) -> None:
    for suffix in ("", "-journal", "-wal", "-shm"):
        Path(f"{unfinished}{suffix}").unlink(missing_ok=True)
