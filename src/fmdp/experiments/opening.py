"""How the file of a store is made, opened, locked and left: whatever is wrong with it is one line.

A store at rest is one plain file. While it is written its journal is a write-ahead log (the files
-wal and -shm beside it), so that reports read meanwhile; the writer that closes it last folds the
log in. After a kill the log stays, and holds runs: a reader reads it, and where nothing can be
written beside the store, it reads a private copy of both. A log is never ignored.

Another process may hold a lock on the file. That is waited for, said when the wait begins, for at
most `WAIT_SECONDS`; it is never called damage.
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
"""How long a lock of another process is waited for."""
_UNSAID_SECONDS = 0.5
"""Locks are usually held for milliseconds; a shorter wait is not worth a line."""
_ATTEMPTS_TO_COPY = 5
_ONE_THREAD_ONLY = sqlite3.threadsafety < 3
"""Results that nobody closed are closed by the collector, in whichever thread it happens to run;
where SQLite guards its connections itself, as nearly everywhere, any thread may use them."""

Say = Callable[[str], None]
T = TypeVar("T")


def warn(line: str) -> None:
    """What is said where nobody else listens."""
    warnings.warn(line, stacklevel=2)


class Patience:
    """Does something with the file again and again while another process holds a lock on it."""

    def __init__(self, path: Path, say: Say) -> None:
        self.path = path
        self.say = say

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
                    self.say(
                        f"{self.path}: is locked by another process; waiting, for at most "
                        f"{WAIT_SECONDS:.0f} s"
                    )
                elif time.monotonic() >= until:
                    raise
            time.sleep(0.05)


def is_locked(error: sqlite3.Error) -> bool:
    return _code(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def _code(error: sqlite3.Error) -> int:
    """The primary code; 0 for an error of the module sqlite3 itself."""
    return (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF


SQLITE_ERRORS = (sqlite3.Error, UnicodeDecodeError)
"""What asking SQLite can raise: what it says of a damaged schema may be no text."""


def problem(
    path: Path, error: sqlite3.Error | UnicodeDecodeError, doing: str = "read"
) -> FileProblem:
    """One line for what SQLite says; only what is damage is called so."""
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


def refuse_foreign(path: Path) -> None:
    """One line for whatever is not a store, before SQLite touches it."""
    try:
        # Opening a pipe would wait for somebody to write into it.
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


def connect(path: Path, read_only: bool, patience: Patience) -> sqlite3.Connection:
    """A connection to a sound store of this version: as it is, migrated, or a migrated copy."""
    connection = _reader(path, patience) if read_only else _connection(path, "mode=rw")
    try:
        damage = patience(lambda: _damage(connection))
        if damage is not None:
            raise FileProblem(f"{path}: is damaged or half-written: {damage}")
        version = schema.version_of(connection)
        if version is None or version > SCHEMA_VERSION or version < min(schema.MIGRATIONS):
            raise FileProblem(
                f"{path}: has schema version {'none' if version is None else version}; "
                f"this fmdp reads versions up to {SCHEMA_VERSION}"
            )
        if version < SCHEMA_VERSION:
            connection = _migrated(connection, path, read_only, patience)
        different = schema.flaw(connection)
        if different is not None:
            raise FileProblem(f"{path}: is damaged: {different}")
        connection.execute("PRAGMA foreign_keys = ON")
        # A run is worth minutes: it is on the disk before it counts as stored.
        connection.execute("PRAGMA synchronous = FULL")
        if not read_only:
            # Where the file system has no write-ahead log, SQLite goes on without one.
            patience(lambda: connection.execute("PRAGMA journal_mode = WAL").fetchone())
    except BaseException as error:
        connection.close()
        if isinstance(error, SQLITE_ERRORS):
            raise problem(path, error) from None
        raise
    return connection


def _connection(path: Path, how: str) -> sqlite3.Connection:
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?{how}",
        uri=True,
        timeout=_UNSAID_SECONDS,
        isolation_level=None,
        check_same_thread=_ONE_THREAD_ONLY,
    )
    # Bytes that are no text any more are damage, which is told of the run, not of the query.
    connection.text_factory = lambda data: data.decode("utf-8", "surrogateescape")
    return connection


class _Copy(sqlite3.Connection):
    """A connection to a private copy, which goes with it."""

    folder: tempfile.TemporaryDirectory[str]

    def close(self) -> None:
        super().close()
        self.folder.cleanup()


def _reader(path: Path, patience: Patience) -> sqlite3.Connection:
    """A connection that sees all that was committed, the write-ahead log included.

    A log needs a file of shared memory beside it, also for reading. A reader that may write there
    opens the file as a writer would, so that the last to close it folds the log in and takes both
    files away; `query_only` keeps it a reader.
    """
    refused: sqlite3.Error | None = None
    for how in ("mode=rw", "mode=ro"):
        connection = _connection(path, how)
        try:
            connection.execute("PRAGMA query_only = ON")
            patience(lambda c=connection: c.execute("SELECT 1 FROM sqlite_master").fetchone())  # type: ignore[misc]
            return connection
        except sqlite3.Error as error:
            connection.close()
            if _code(error) not in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY):
                raise
            refused = error
    assert refused is not None
    log = path.with_name(f"{path.name}-wal")
    if _size(log) == 0 and _size(path.with_name(f"{path.name}-journal")) == 0:
        # Nothing is waiting beside the file: it is all there is.
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
            before = [_seen(one) for one in (path, log)]
            for one in (path, log):
                if one.exists():
                    shutil.copyfile(one, Path(folder.name) / one.name)
            if before == [_seen(one) for one in (path, log)]:
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
    connection = sqlite3.connect(
        Path(folder.name) / path.name,
        isolation_level=None,
        factory=_Copy,
        check_same_thread=_ONE_THREAD_ONLY,
    )
    connection.folder = folder
    connection.text_factory = lambda data: data.decode("utf-8", "surrogateescape")
    connection.execute("PRAGMA query_only = ON")
    return connection


def _seen(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_size, found.st_mtime_ns


_OF_CONTENT = re.compile(
    r"(NULL value|CHECK constraint failed|\S+ value) in "
    r"(runs|measures|curves|recordings|run_code|run_sources)\b"
)


def _damage(connection: sqlite3.Connection) -> str | None:
    """What is wrong with the file as such. A value that may not be where it is belongs to a run,
    and is found by its digest."""
    found = connection.execute("PRAGMA integrity_check(100000)").fetchall()
    told = (str(line) for (line,) in found)
    return next((line for line in told if line != "ok" and not _OF_CONTENT.match(line)), None)


def _migrated(
    connection: sqlite3.Connection, path: Path, read_only: bool, patience: Patience
) -> sqlite3.Connection:
    try:
        if not read_only:
            # A sweep of an older fmdp that is under way would find its tables gone.
            with only_writer(path):
                patience(lambda: schema.migrate(connection))
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
            raise problem(path, error) from None
        raise FileProblem(
            f"{path}: cannot be brought to schema version {SCHEMA_VERSION}: {error}"
        ) from None


def close(connection: sqlite3.Connection, *, read_only: bool) -> None:
    """Leave one plain file behind, if nobody else has it open."""
    if not read_only:
        with contextlib.suppress(sqlite3.Error):
            connection.execute("PRAGMA busy_timeout = 0")
            connection.execute("PRAGMA journal_mode = DELETE")
    connection.close()


# ---- making and locking ----------------------------------------------------------------------


@contextlib.contextmanager
def only_writer(path: Path) -> Iterator[None]:
    """An exclusive transaction on an empty database beside the store: it needs no code for each
    system and does not keep readers out of the store itself."""
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
            lock.execute("PRAGMA journal_mode = MEMORY")  # no file for a kill to leave
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


def make(path: Path) -> None:
    """Make the store under another name and move it into place: it is never there half-made."""
    unfinished = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.closing(sqlite3.connect(unfinished, isolation_level=None)) as connection:
            schema.create(connection, {"format": "fmdp-runs", "made_by": f"fmdp {__version__}"})
        _move_into_place(unfinished, path)
    except (OSError, sqlite3.Error) as error:
        if not path.exists():  # another process has been faster, and may have cleaned up here
            raise FileProblem(f"{path}: cannot be made: {error}") from None
    finally:
        with contextlib.suppress(OSError):
            _remove(unfinished)


def _move_into_place(unfinished: Path, path: Path) -> None:
    # A link refuses to replace a store that another process has made in the meantime; not every
    # file system has links.
    try:
        os.link(unfinished, path)
    except FileExistsError:
        pass
    except OSError:
        if not path.exists():
            unfinished.replace(path)


def clean_up(path: Path) -> None:
    """Remove what a kill while a store was made has left; only the one writer may."""
    for left in path.parent.glob(f".{path.name}.*.tmp"):
        with contextlib.suppress(OSError):
            _remove(left)


def _remove(unfinished: Path) -> None:
    for suffix in ("", "-journal", "-wal", "-shm"):
        Path(f"{unfinished}{suffix}").unlink(missing_ok=True)
