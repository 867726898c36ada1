"""The store: one SQLite file, DIR/runs.sqlite, that keeps runs, curves and recordings.

A run is keyed by the hash of its resolved spec (see spec.py) and is written in one transaction,
curve and recording included: it is there whole or not at all, whatever kills the writer. A run
that is done is never changed; triggers in the file itself refuse it. A failed run is kept with
its error until the same run is done. Foreign keys are on, the journal is a write-ahead log, so
that reports read while a sweep writes. One process writes at a time (`Store.writing`).

Reading is typed: `Store.open(directory)` and then `specs`, `runs`, `curve`, `recording`, `model`.
docs/experiments.md describes every table and column.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import sqlite3
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fmdp import __version__
from fmdp.errors import FileProblem
from fmdp.model import FactoredMDP
from fmdp.model.files import dumps, loads

FILE_NAME = "runs.sqlite"
SCHEMA_VERSION = 1
APPLICATION_ID = 0x464D4450  # "FMDP", in the header of the file

SCHEMA = """
CREATE TABLE meta (
    key TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE models (
    hash TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    document BLOB NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE specs (
    hash TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    title TEXT NOT NULL,
    text TEXT NOT NULL,
    resolved TEXT NOT NULL,
    fmdp_version TEXT NOT NULL,
    added TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE members (
    spec TEXT NOT NULL REFERENCES specs (hash),
    position INTEGER NOT NULL,
    key TEXT NOT NULL,
    problem TEXT NOT NULL,
    model TEXT NOT NULL REFERENCES models (hash),
    label TEXT NOT NULL,
    seed INTEGER NOT NULL,
    PRIMARY KEY (spec, position)
) STRICT, WITHOUT ROWID;
CREATE INDEX members_key ON members (key);

CREATE TABLE runs (
    key TEXT PRIMARY KEY,
    model TEXT NOT NULL REFERENCES models (hash),
    problem TEXT NOT NULL,
    learner TEXT NOT NULL,
    parameters TEXT NOT NULL,
    planner TEXT,
    planner_settings TEXT NOT NULL,
    seed INTEGER NOT NULL,
    steps INTEGER NOT NULL,
    fmdp_version TEXT NOT NULL,
    results_version INTEGER NOT NULL,
    machine TEXT NOT NULL,
    finished TEXT NOT NULL,
    seconds REAL NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('done', 'failed')),
    error TEXT CHECK ((error IS NULL) = (status = 'done')),
    regret REAL CHECK ((regret IS NULL) = (status = 'failed')),
    gap_regret REAL,
    gain REAL,
    gain_kind TEXT CHECK (gain_kind IN ('exact', 'upper_bound')),
    episodes INTEGER,
    planner_calls INTEGER,
    unconverged_plans INTEGER
) STRICT, WITHOUT ROWID;
CREATE TRIGGER runs_done_stay BEFORE UPDATE ON runs WHEN OLD.status = 'done'
    BEGIN SELECT RAISE (ABORT, 'a run that is done is never changed'); END;
CREATE TRIGGER runs_done_remain BEFORE DELETE ON runs WHEN OLD.status = 'done'
    BEGIN SELECT RAISE (ABORT, 'a run that is done is never removed'); END;

CREATE TABLE curves (
    run TEXT NOT NULL REFERENCES runs (key),
    t INTEGER NOT NULL,
    regret REAL NOT NULL,
    gap_regret REAL,
    PRIMARY KEY (run, t)
) STRICT, WITHOUT ROWID;

CREATE TABLE recordings (
    run TEXT NOT NULL REFERENCES runs (key),
    array TEXT NOT NULL,
    dtype TEXT NOT NULL,
    shape TEXT NOT NULL,
    data BLOB NOT NULL,
    PRIMARY KEY (run, array)
) STRICT, WITHOUT ROWID;
"""


@dataclass(frozen=True)
class StoredSpec:
    """A spec that was run into the store."""

    hash: str
    name: str
    title: str
    text: str
    """The TOML as it was given; of a spec made in Python, the TOML that it stands for."""
    resolved: Mapping[str, Any]
    fmdp_version: str
    added: str
    """ISO 8601, UTC."""


@dataclass(frozen=True)
class Member:
    """One run that a spec asks for, whether or not it is stored yet."""

    position: int
    key: str
    problem: str
    """As the spec calls it: an id, or the path of a model file."""
    model: str
    """Content hash of the model."""
    label: str
    """What the spec calls this learner; runs with one problem and one label are a cell."""
    seed: int


@dataclass(frozen=True)
class StoredRun:
    """A run; the numbers below `error` are None if it failed, or where they do not apply."""

    key: str
    model: str
    problem: str
    learner: str
    parameters: Mapping[str, Any]
    planner: str | None
    planner_settings: Mapping[str, Any]
    seed: int
    steps: int
    fmdp_version: str
    results_version: int
    machine: str
    finished: str
    seconds: float
    status: Literal["done", "failed"]
    error: str | None = None
    regret: float | None = None
    gap_regret: float | None = None
    gain: float | None = None
    gain_kind: Literal["exact", "upper_bound"] | None = None
    episodes: int | None = None
    planner_calls: int | None = None
    unconverged_plans: int | None = None


@dataclass(frozen=True, eq=False)
class Curve:
    """Regret after t steps, at log-spaced t and at the exact end."""

    t: NDArray[np.int64]
    regret: NDArray[np.float64]
    gap_regret: NDArray[np.float64] | None


@dataclass(frozen=True, eq=False)
class Recording:
    """One run kept whole, for a replay. K frames at `times`, T steps, m and l factors."""

    states: NDArray[np.unsignedinteger[Any]]  # [T + 1, m], the initial state first
    actions: NDArray[np.unsignedinteger[Any]]  # [T, number of action variables]
    rewards: NDArray[np.float64]  # [T, l]
    times: NDArray[np.int64]  # [K], 0 first and T last
    visited: NDArray[np.int64]
    """[K, m]: how many rows of transition factor i have been visited by time t."""
    uncertainty: NDArray[np.float64]
    """[K, m]: the mean over the rows of factor i of 1 / sqrt(max(1, visits by time t))."""


_RUN_COLUMNS = tuple(field.name for field in fields(StoredRun))
_JSON_COLUMNS = ("parameters", "planner_settings")


def canonical_json(value: object) -> str:
    """The one text of a JSON value: keys sorted, no spaces, shortest floats, no NaN."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


class Store:
    """An open store. Use as a context manager, or `close` it."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path = path
        self._connection = connection

    @classmethod
    def open(cls, directory: str | os.PathLike[str], *, read_only: bool = True) -> Store:
        """The store in this directory; FileProblem (one line) if there is none that is sound."""
        path = Path(directory) / FILE_NAME
        _refuse_foreign(path)
        try:
            connection = _connect(path, read_only)
            return cls(path, _checked(connection, path))
        except sqlite3.Error as error:
            raise FileProblem(f"{path}: cannot be read as a store: {error}") from None

    @classmethod
    def create(cls, directory: str | os.PathLike[str]) -> Store:
        """The store in this directory, for writing; made (with the directory) if there is none."""
        folder = Path(directory)
        path = folder / FILE_NAME
        if not path.exists():
            try:
                folder.mkdir(parents=True, exist_ok=True)
                _create(path)
            except (OSError, sqlite3.Error) as error:
                raise FileProblem(f"{path}: cannot be made: {error}") from None
        return cls.open(folder, read_only=False)

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # Reading

    def meta(self) -> dict[str, str]:
        return dict(self._connection.execute("SELECT key, value FROM meta"))

    def specs(self) -> list[StoredSpec]:
        """Every spec that was run into this store, the oldest first."""
        rows = self._connection.execute(
            "SELECT hash, name, title, text, resolved, fmdp_version, added FROM specs "
            "ORDER BY added, hash"
        )
        return [
            StoredSpec(spec, name, title, text, json.loads(resolved), version, added)
            for spec, name, title, text, resolved, version, added in rows
        ]

    def members(self, spec: str) -> list[Member]:
        """The runs that the spec with this hash asks for, in its order."""
        rows = self._connection.execute(
            "SELECT position, key, problem, model, label, seed FROM members "
            "WHERE spec = ? ORDER BY position",
            (spec,),
        )
        return [Member(*row) for row in rows]

    def runs(
        self, *, spec: str | None = None, status: Literal["done", "failed"] | None = None
    ) -> Iterator[StoredRun]:
        """Stored runs: those of a spec in its order, or all by problem, learner and seed."""
        columns = ", ".join(f"runs.{name}" for name in _RUN_COLUMNS)
        where, values = [], []
        source, order = "runs", "problem, learner, parameters, planner, planner_settings, seed, key"
        if spec is not None:
            source, order = "runs JOIN members ON members.key = runs.key", "members.position"
            where.append("members.spec = ?")
            values.append(spec)
        if status is not None:
            where.append("status = ?")
            values.append(status)
        condition = f" WHERE {' AND '.join(where)}" if where else ""
        for row in self._connection.execute(
            f"SELECT {columns} FROM {source}{condition} ORDER BY {order}", values
        ):
            yield _run(row)

    def run(self, key: str) -> StoredRun | None:
        columns = ", ".join(_RUN_COLUMNS)
        row = self._connection.execute(f"SELECT {columns} FROM runs WHERE key = ?", (key,))
        found = row.fetchone()
        return None if found is None else _run(found)

    def keys(self, status: Literal["done", "failed"]) -> set[str]:
        rows = self._connection.execute("SELECT key FROM runs WHERE status = ?", (status,))
        return {key for (key,) in rows}

    def curve(self, key: str) -> Curve:
        """The regret curve of a run that is done; empty if it is not."""
        rows = self._connection.execute(
            "SELECT t, regret, gap_regret FROM curves WHERE run = ? ORDER BY t", (key,)
        ).fetchall()
        gaps = [row[2] for row in rows]
        return Curve(
            np.array([row[0] for row in rows], dtype=np.int64),
            np.array([row[1] for row in rows], dtype=np.float64),
            None if None in gaps else np.array(gaps, dtype=np.float64),
        )

    def recording(self, key: str) -> Recording | None:
        """The run kept whole, if it was (the first seed of each cell is)."""
        arrays = {
            name: np.frombuffer(zlib.decompress(data), dtype).reshape(json.loads(shape))
            for name, dtype, shape, data in self._connection.execute(
                "SELECT array, dtype, shape, data FROM recordings WHERE run = ?", (key,)
            )
        }
        return Recording(**arrays) if arrays else None

    def model(self, model_hash: str) -> FactoredMDP:
        """The model with this content hash."""
        row = self._connection.execute(
            "SELECT document FROM models WHERE hash = ?", (model_hash,)
        ).fetchone()
        if row is None:
            raise FileProblem(f"{self.path}: has no model with the hash {model_hash}")
        return loads(zlib.decompress(row[0]).decode(), f"{self.path}, model {model_hash}")

    # Writing

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """While this lasts, no other process can sweep into the store; released by any death.

        The lock is an exclusive transaction on an empty database beside the store: it needs no
        code for each system and does not keep readers out of the store itself.
        """
        lock = sqlite3.connect(self.path.with_suffix(".lock"), timeout=0.0, isolation_level=None)
        try:
            try:
                lock.execute("BEGIN EXCLUSIVE")
            except sqlite3.OperationalError:
                raise FileProblem(
                    f"{self.path}: another process is writing to this store; "
                    f"wait for it, or use another directory"
                ) from None
            yield
        finally:
            lock.close()

    def add_spec(
        self, spec: StoredSpec, members: Sequence[Member], models: Iterable[FactoredMDP]
    ) -> None:
        """Note the spec and what it asks for; the same spec again changes nothing."""
        with self._transaction() as cursor:
            for model in models:
                self._add_model(cursor, model)
            cursor.execute("SELECT 1 FROM specs WHERE hash = ?", (spec.hash,))
            if cursor.fetchone() is None:
                cursor.execute(
                    "INSERT INTO specs VALUES (?, ?, ?, ?, ?, ?, ?)",
                    (spec.hash, spec.name, spec.title, spec.text, canonical_json(spec.resolved),
                     spec.fmdp_version, spec.added),
                )  # fmt: skip
            # A newer results_version gives the same spec other keys: it asks for those now.
            cursor.execute("DELETE FROM members WHERE spec = ?", (spec.hash,))
            cursor.executemany(
                "INSERT INTO members VALUES (?, ?, ?, ?, ?, ?, ?)",
                [(spec.hash, m.position, m.key, m.problem, m.model, m.label, m.seed)
                 for m in members],
            )  # fmt: skip

    def add_run(
        self, run: StoredRun, curve: Curve | None = None, recording: Recording | None = None
    ) -> None:
        """Store a run whole. A failed run gives way; one that is done is refused, not replaced."""
        with self._transaction() as cursor:
            cursor.execute("SELECT status FROM runs WHERE key = ?", (run.key,))
            if cursor.fetchone() == ("done",):
                raise FileProblem(f"{self.path}: run {run.key} is done and is not overwritten")
            cursor.execute("DELETE FROM runs WHERE key = ?", (run.key,))
            values = [
                canonical_json(getattr(run, name)) if name in _JSON_COLUMNS else getattr(run, name)
                for name in _RUN_COLUMNS
            ]
            places = ", ".join("?" * len(values))
            cursor.execute(
                f"INSERT INTO runs ({', '.join(_RUN_COLUMNS)}) VALUES ({places})", values
            )
            if curve is not None:
                gaps = [None] * len(curve.t) if curve.gap_regret is None else curve.gap_regret
                cursor.executemany(
                    "INSERT INTO curves VALUES (?, ?, ?, ?)",
                    [
                        (run.key, int(t), float(regret), None if gap is None else float(gap))
                        for t, regret, gap in zip(curve.t, curve.regret, gaps, strict=True)
                    ],
                )
            if recording is not None:
                cursor.executemany(
                    "INSERT INTO recordings VALUES (?, ?, ?, ?, ?)",
                    [(run.key, *_packed(field.name, getattr(recording, field.name)))
                     for field in fields(recording)],
                )  # fmt: skip

    def _add_model(self, cursor: sqlite3.Cursor, model: FactoredMDP) -> None:
        cursor.execute("SELECT 1 FROM models WHERE hash = ?", (model.content_hash,))
        if cursor.fetchone() is None:
            document = zlib.compress(dumps(model).encode())
            cursor.execute(
                "INSERT INTO models VALUES (?, ?, ?)", (model.content_hash, model.name, document)
            )

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Cursor]:
        cursor = self._connection.cursor()
        try:
            cursor.execute("BEGIN IMMEDIATE")
            yield cursor
            cursor.execute("COMMIT")
        except BaseException as error:
            if self._connection.in_transaction:
                cursor.execute("ROLLBACK")
            if isinstance(error, sqlite3.Error):
                raise FileProblem(f"{self.path}: cannot be written: {error}") from None
            raise
        finally:
            cursor.close()


def _run(row: Sequence[Any]) -> StoredRun:
    values = dict(zip(_RUN_COLUMNS, row, strict=True))
    return StoredRun(**values | {name: json.loads(values[name]) for name in _JSON_COLUMNS})


def _packed(name: str, array: NDArray[Any]) -> tuple[str, str, str, bytes]:
    little = np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<"), copy=False)
    shape = json.dumps(list(array.shape))
    return name, little.dtype.str, shape, zlib.compress(little.tobytes(), level=6)


def _refuse_foreign(path: Path) -> None:
    """One line for whatever is not a store, before SQLite touches it."""
    try:
        with path.open("rb") as file:
            header = file.read(72)
    except FileNotFoundError:
        raise FileProblem(
            f"{path}: there is no such file; `fmdp sweep` makes a store in its --out directory"
        ) from None
    except OSError as error:
        raise FileProblem(f"{path}: cannot be read: {error.strerror}") from None
    if not header.startswith(b"SQLite format 3\0"):
        what = "is empty" if not header else "is not a SQLite file"
        raise FileProblem(f"{path}: {what}, so it is no store of fmdp or a half-written one")
    if len(header) < 72 or int.from_bytes(header[68:72]) != APPLICATION_ID:
        raise FileProblem(f"{path}: is a SQLite file, but not a store of fmdp")


def _connect(path: Path, read_only: bool) -> sqlite3.Connection:
    address = path.absolute().as_uri()
    if not read_only:
        return sqlite3.connect(f"{address}?mode=rw", uri=True, timeout=60.0, isolation_level=None)
    # A write-ahead log needs a file of shared memory beside it, even for reading. Where none can
    # be made nobody writes either, and the file may be taken as it is.
    fixed = "" if os.access(path.parent, os.W_OK) else "&immutable=1"
    return sqlite3.connect(
        f"{address}?mode=ro{fixed}", uri=True, timeout=60.0, isolation_level=None
    )


def _checked(connection: sqlite3.Connection, path: Path) -> sqlite3.Connection:
    try:
        (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        if verdict != "ok":
            raise FileProblem(f"{path}: is damaged or half-written: {verdict}")
        found = connection.execute("SELECT value FROM meta WHERE key = 'schema_version'").fetchone()
        if found != (str(SCHEMA_VERSION),):
            raise FileProblem(
                f"{path}: has schema version {found[0] if found else 'none'}; "
                f"this fmdp reads version {SCHEMA_VERSION}"
            )
        connection.execute("PRAGMA foreign_keys = ON")
        # A run is worth minutes: it is on the disk before it counts as stored.
        connection.execute("PRAGMA synchronous = FULL")
    except sqlite3.DatabaseError as error:
        connection.close()
        raise FileProblem(f"{path}: is damaged or half-written: {error}") from None
    except BaseException:
        connection.close()
        raise
    return connection


def _create(path: Path) -> None:
    """Make the store under another name and move it into place: it is never there half-made."""
    unfinished = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with contextlib.closing(sqlite3.connect(unfinished, isolation_level=None)) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.executescript(f"BEGIN; {SCHEMA} COMMIT;")
            connection.executemany(
                "INSERT INTO meta VALUES (?, ?)",
                [("format", "fmdp-runs"), ("schema_version", str(SCHEMA_VERSION)),
                 ("made_by", f"fmdp {__version__}")],
            )  # fmt: skip
        _move_into_place(unfinished, path)
    finally:
        for suffix in ("", "-wal", "-shm"):
            Path(f"{unfinished}{suffix}").unlink(missing_ok=True)


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
