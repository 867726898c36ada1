"""The store: one SQLite file, DIR/runs.sqlite, that keeps runs, curves and recordings.

A run is keyed by the hash of its resolved spec (see spec.py) and is written in one transaction,
measures, curve and recording included: it is there whole or not at all, whatever kills the writer.
A run that is done is never changed; triggers in the file itself refuse it. A failed run is kept
with its error until the same run is done. Foreign keys are on, the journal is a write-ahead log, so
that reports read while a sweep writes. One process writes at a time (`Store.writing`).

Reading is typed: `Store.open(directory)` and then `specs`, `runs`, `curve`, `recording`, `model`;
results.py makes frames of it. A store of an older schema version (schema.py) is brought up to date
when it is opened for writing; a reader gets an up-to-date copy in memory and leaves the file alone.
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
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, cast, get_args

import numpy as np
from numpy.typing import NDArray

from fmdp import __version__
from fmdp.errors import FileProblem, InvalidParameter
from fmdp.experiments import schema
from fmdp.experiments.measures import Measure, T, Value, checked, measure_named
from fmdp.experiments.schema import APPLICATION_ID, SCHEMA_VERSION
from fmdp.model import FactoredMDP
from fmdp.model.files import dumps, loads

FILE_NAME = "runs.sqlite"

Role = Literal["learner", "upper", "lower", "baseline"]
"""What a run is in a comparison: a learner; the upper end, which knows the model; the lower end,
which draws its actions; or a fixed policy or rule. It is no part of a run's key."""
ROLES: tuple[Role, ...] = get_args(Role)


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
    """A run and what was measured of it (measures.py); a failed one has an error instead."""

    key: str
    model: str
    problem: str
    learner: str
    role: Role
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
    measures: Mapping[str, Value] = field(default_factory=dict)
    """By name; those that do not apply are not there."""

    def measure(self, which: Measure[T]) -> T | None:
        """The value of a measure, None where it does not apply."""
        found: T | None = cast("Any", self.measures.get(which.name))
        return found


@dataclass(frozen=True, eq=False)
class Curve:
    """Measures after t steps, at log-spaced t and at the exact end."""

    t: NDArray[np.int64]  # [K]
    values: Mapping[str, NDArray[np.float64]]
    """Measure -> [K]; those that do not apply are not there."""


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


_RUN_COLUMNS = tuple(one.name for one in fields(StoredRun) if one.name != "measures")
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
            return cls(path, _checked(connection, path, read_only))
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
            yield self._run(row)

    def run(self, key: str) -> StoredRun | None:
        columns = ", ".join(_RUN_COLUMNS)
        row = self._connection.execute(f"SELECT {columns} FROM runs WHERE key = ?", (key,))
        found = row.fetchone()
        return None if found is None else self._run(found)

    def _run(self, row: Sequence[Any]) -> StoredRun:
        values = dict(zip(_RUN_COLUMNS, row, strict=True))
        values |= {name: json.loads(values[name]) for name in _JSON_COLUMNS}
        measures = self._connection.execute(
            "SELECT name, value FROM measures WHERE run = ?", (values["key"],)
        )
        return StoredRun(**values, measures=dict(measures))

    def keys(self, status: Literal["done", "failed"]) -> set[str]:
        rows = self._connection.execute("SELECT key FROM runs WHERE status = ?", (status,))
        return {key for (key,) in rows}

    def curve(self, key: str) -> Curve:
        """The curves of a run that is done; empty if it is not."""
        points: dict[str, list[tuple[int, float]]] = {}
        for measure, t, value in self._connection.execute(
            "SELECT measure, t, value FROM curves WHERE run = ? ORDER BY measure, t", (key,)
        ):
            points.setdefault(measure, []).append((t, value))
        times = {tuple(t for t, _ in own) for own in points.values()}
        if len(times) > 1:
            raise FileProblem(f"{self.path}: the curves of run {key} have different checkpoints")
        return Curve(
            np.array(times.pop() if times else (), dtype=np.int64),
            {
                measure: np.array([value for _, value in own], dtype=np.float64)
                for measure, own in points.items()
            },
        )

    def recorded(self) -> set[str]:
        """The keys of the runs that are kept whole."""
        return {key for (key,) in self._connection.execute("SELECT DISTINCT run FROM recordings")}

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
        """While this lasts, no other process can sweep into the store; released by any death."""
        with _only_writer(self.path):
            yield

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
                    (
                        spec.hash,
                        spec.name,
                        spec.title,
                        spec.text,
                        canonical_json(spec.resolved),
                        spec.fmdp_version,
                        spec.added,
                    ),
                )
            # A newer results_version gives the same spec other keys: it asks for those now.
            cursor.execute("DELETE FROM members WHERE spec = ?", (spec.hash,))
            cursor.executemany(
                "INSERT INTO members VALUES (?, ?, ?, ?, ?, ?, ?)",
                [
                    (spec.hash, m.position, m.key, m.problem, m.model, m.label, m.seed)
                    for m in members
                ],
            )

    def add_run(
        self, run: StoredRun, curve: Curve | None = None, recording: Recording | None = None
    ) -> None:
        """Store a run whole. A failed run gives way; one that is done is refused, not replaced."""
        measures = checked(run.measures, done=run.status == "done")
        for name in {} if curve is None else curve.values:
            if measure_named(name).curve is None:
                raise InvalidParameter(f"the '{name}' measure of a run has no curve; got one")
        with self._transaction() as cursor:
            cursor.execute("SELECT status FROM runs WHERE key = ?", (run.key,))
            if cursor.fetchone() == ("done",):
                raise FileProblem(f"{self.path}: run {run.key} is done and is not overwritten")
            cursor.execute("DELETE FROM runs WHERE key = ?", (run.key,))
            # The row in runs comes last: it seals what came before (schema.py).
            cursor.executemany(
                "INSERT INTO measures VALUES (?, ?, ?)",
                [(run.key, name, value) for name, value in measures.items()],
            )
            if curve is not None:
                cursor.executemany(
                    "INSERT INTO curves VALUES (?, ?, ?, ?)",
                    [
                        (run.key, name, t, value)
                        for name, points in curve.values.items()
                        for t, value in zip(curve.t.tolist(), points.tolist(), strict=True)
                    ],
                )
            values = [
                canonical_json(getattr(run, name)) if name in _JSON_COLUMNS else getattr(run, name)
                for name in _RUN_COLUMNS
            ]
            places = ", ".join("?" * len(values))
            cursor.execute(
                f"INSERT INTO runs ({', '.join(_RUN_COLUMNS)}) VALUES ({places})", values
            )
            if recording is not None:
                cursor.executemany(
                    "INSERT INTO recordings VALUES (?, ?, ?, ?, ?)",
                    [
                        (run.key, *_packed(field.name, getattr(recording, field.name)))
                        for field in fields(recording)
                    ],
                )

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


def _checked(connection: sqlite3.Connection, path: Path, read_only: bool) -> sqlite3.Connection:
    """A connection to a sound store of this version: as it is, migrated, or a migrated copy."""
    try:
        (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        if verdict != "ok":
            raise FileProblem(f"{path}: is damaged or half-written: {verdict}")
        version = schema.version_of(connection)
        if version is None or version > SCHEMA_VERSION or version < min(schema.MIGRATIONS):
            raise FileProblem(
                f"{path}: has schema version {'none' if version is None else version}; "
                f"this fmdp reads versions up to {SCHEMA_VERSION}"
            )
        if version < SCHEMA_VERSION:
            connection = _migrated(connection, path, read_only)
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


def _migrated(connection: sqlite3.Connection, path: Path, read_only: bool) -> sqlite3.Connection:
    try:
        if not read_only:
            # A sweep of an older fmdp that is under way would find its tables gone.
            with _only_writer(path):
                schema.migrate(connection)
            return connection
        copy = sqlite3.connect(":memory:", isolation_level=None)
        with contextlib.closing(connection):
            connection.backup(copy)
        schema.migrate(copy)
        copy.execute("PRAGMA query_only = ON")
        return copy
    except sqlite3.Error as error:
        raise FileProblem(
            f"{path}: cannot be brought to schema version {SCHEMA_VERSION}: {error}"
        ) from None


@contextlib.contextmanager
def _only_writer(path: Path) -> Iterator[None]:
    """An exclusive transaction on an empty database beside the store: it needs no code for each
    system and does not keep readers out of the store itself."""
    lock = sqlite3.connect(path.with_suffix(".lock"), timeout=0.0, isolation_level=None)
    try:
        try:
            lock.execute("BEGIN EXCLUSIVE")
        except sqlite3.OperationalError:
            raise FileProblem(
                f"{path}: another process is writing to this store; "
                f"wait for it, or use another directory"
            ) from None
        yield
    finally:
        lock.close()


def _create(path: Path) -> None:
    """Make the store under another name and move it into place: it is never there half-made."""
    unfinished = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with contextlib.closing(sqlite3.connect(unfinished, isolation_level=None)) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            schema.create(connection, {"format": "fmdp-runs", "made_by": f"fmdp {__version__}"})
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
