"""The store: one SQLite file, DIR/runs.sqlite, with runs, curves and recordings.

The key of a run is the hash of its resolved spec (spec.py). A run is written in one transaction
with its measures, curve and recording, so a kill leaves all of it or nothing. A finished run is
never overwritten; a failed one is kept with its error until the same run succeeds. Reports can read
while a sweep writes; one process writes at a time (`Store.writing`).

Everything read is checked against its digest (digests.py). What changed since it was stored is
damaged: one line says so, and it never becomes a number. A damaged run counts as not done, and
`add_run` replaces it. database.py opens the file, schema.py has its tables, and docs/experiments.md
describes every column.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import sqlite3
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from fmdp.errors import FileProblem, FmdpError, InvalidParameter
from fmdp.experiments import database, digests
from fmdp.experiments.database import Notify, RetryWhileLocked
from fmdp.experiments.measures import Measure, T, Value, checked, measure_named
from fmdp.model import FactoredMDP
from fmdp.model.io.files import dumps, loads

FILE_NAME = "runs.sqlite"

Role = Literal["learner", "upper", "lower", "baseline"]
"""Part of a run in a comparison: a learner; the upper end, which knows the model; the lower end,
which acts at random; or a fixed policy or rule. It is not part of a run's key."""


@dataclass(frozen=True)
class LeftOut:
    """A learner and a problem that do not fit, with the reason in one line."""

    problem: str
    label: str
    reason: str


@dataclass(frozen=True)
class StoredSpec:
    """A spec that was run into the store."""

    hash: str
    name: str
    title: str
    text: str
    """The TOML as given, or an equivalent TOML for a spec made in Python."""
    resolved: Mapping[str, Any]
    fmdp_version: str
    added: str
    """ISO 8601, UTC."""
    asked: str = field(default="", compare=False)
    """Time of the last request; ISO 8601, UTC."""
    forgotten: bool = field(default=False, compare=False)
    """True after `Store.forget`, until the next request."""


@dataclass(frozen=True)
class Member:
    """One run that a spec requests, stored or not."""

    position: int
    key: str
    problem: str
    """The problem as written in the spec: an id, or the path of a model file."""
    model: str
    """Content hash of the model."""
    label: str
    """The learner's label in the spec; one problem and one label make a cell."""
    seed: int


@dataclass(frozen=True)
class StoredRun:
    """A run with its measures (measures.py), or with the error that it failed with."""

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
    """By name; measures that do not apply are missing."""
    code: Mapping[str, str] = field(default_factory=dict)
    """Digests of the code outside fmdp that made the run, by module:Class."""

    def measure(self, which: Measure[T]) -> T | None:
        """Return the value of a measure, or None if it does not apply."""
        return cast("T | None", self.measures.get(which.name))


@dataclass(frozen=True, eq=False)
class Curve:
    """Measures after t steps, at log-spaced t and at the exact end."""

    t: NDArray[np.int64]  # [K]
    values: Mapping[str, NDArray[np.float64]]
    """Measure -> [K]; measures that do not apply are missing."""


@dataclass(frozen=True, eq=False)
class Recording:
    """A complete run, for a replay: T steps, K frames, m transition and l reward factors."""

    states: NDArray[np.unsignedinteger[Any]]  # [T + 1, m], the initial state first
    actions: NDArray[np.unsignedinteger[Any]]  # [T, number of action variables]
    rewards: NDArray[np.float64]  # [T, l]
    times: NDArray[np.int64]  # [K], 0 first and T last
    visited: NDArray[np.int64]
    """[K, m]: number of rows of transition factor i visited by time t."""
    uncertainty: NDArray[np.float64]
    """[K, m]: mean over the rows of factor i of 1 / sqrt(max(1, visits by time t))."""


_RUN_COLUMNS = tuple(f.name for f in fields(StoredRun) if f.name not in ("measures", "code"))
_PARTS = ("recordings", "curves", "measures", "run_code", "run_sources")
"""Tables with rows of a run, beside `runs`."""
_JSON_COLUMNS = ("parameters", "planner_settings")

_INVALID_VALUES = (
    sqlite3.IntegrityError,
    sqlite3.DataError,
    sqlite3.InterfaceError,
    sqlite3.ProgrammingError,
    UnicodeEncodeError,  # a lone surrogate
    OverflowError,  # an integer of more than 64 bits
)


def canonical_json(value: object) -> str:
    """Return the canonical JSON text: keys sorted, no spaces, shortest floats, no NaN."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


class Damaged(FileProblem):
    """A run, spec or model differs from what was stored; the file itself is sound."""


class Unstorable(FileProblem):
    """A value that no store can hold; the file itself is sound."""


class Store:
    """An open store. Use as a context manager, or `close` it."""

    def __init__(
        self, path: Path, connection: sqlite3.Connection, read_only: bool, retry: RetryWhileLocked
    ) -> None:
        self.path = path
        self._connection = connection
        self._read_only = read_only
        self._retry = retry
        # Key -> the digest of the run when it was last checked, and the run.
        self._sound: dict[str, tuple[str, StoredRun]] = {}

    @classmethod
    def open(
        cls,
        directory: str | os.PathLike[str],
        *,
        read_only: bool = True,
        waiting: Notify = database.warn,
    ) -> Store:
        """Open the store in this directory; raise FileProblem (one line) if there is no sound one.

        `waiting` is called with a line when a lock of another process has to be waited for.
        """
        path = Path(directory) / FILE_NAME
        database.require_store(path)
        retry = RetryWhileLocked(path, waiting)
        try:
            return cls(path, database.connect(path, read_only, retry), read_only, retry)
        except database.SQLITE_ERRORS as error:
            raise database.file_problem(path, error) from None

    @classmethod
    def create(cls, directory: str | os.PathLike[str], *, waiting: Notify = database.warn) -> Store:
        """Open the store in this directory for writing; create it if missing."""
        path = Path(directory) / FILE_NAME
        try:
            exists = path.exists()
        except (OSError, ValueError) as error:
            raise FileProblem(f"{path}: cannot be made: {error}") from None
        if not exists:
            database.create(path)
        return cls.open(directory, read_only=False, waiting=waiting)

    def close(self) -> None:
        database.close(self._connection, read_only=self._read_only)

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # Reading

    def _rows(self, query: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Return all rows of a query; wait for locks, and turn SQLite errors into FileProblem."""
        try:
            return self._retry(lambda: self._connection.execute(query, values).fetchall())
        except database.SQLITE_ERRORS as error:
            raise database.file_problem(self.path, error) from None

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[None]:
        """Read one consistent state, even while a sweep writes."""
        within_another = self._connection.in_transaction
        if not within_another:
            self._rows("BEGIN")
        try:
            yield
        finally:
            if not within_another:
                # SQLite may have ended the transaction after an error.
                with contextlib.suppress(sqlite3.Error):
                    self._connection.execute("ROLLBACK")

    @contextlib.contextmanager
    def _decoding(self, what: str, advice: str) -> Iterator[None]:
        """Raise Damaged, with the name of the thing read, for any error in stored data."""
        try:
            yield
        except sqlite3.Error as error:
            raise database.file_problem(self.path, error) from None
        except Damaged:
            raise
        except (FmdpError, ValueError, TypeError, LookupError, zlib.error, RecursionError) as error:
            raise Damaged(f"{self.path}: {what} is damaged: {error}; {advice}") from None

    def _check(self, kind: digests.Kind, name: str) -> str:
        """Return the stored digest; raise ValueError if the rows do not match it."""
        noted = digests.stated(self._connection, kind, name)
        if noted is None:
            raise ValueError("it has no digest")
        if digests.computed(self._connection, kind, name) != noted:
            raise ValueError("it is not what was stored, by its digest")
        return noted

    def specs(self, *, forgotten: bool = False) -> list[StoredSpec]:
        """Return the specs in the order of their last requests, optionally with forgotten ones."""
        with self.snapshot():
            rows = self._rows(
                "SELECT hash, name, title, text, resolved, fmdp_version, added, "
                "coalesce(asked, added), coalesce(forgotten, 0) "
                "FROM specs LEFT JOIN requests ON requests.spec = specs.hash "
                "WHERE coalesce(forgotten, 0) <= ? ORDER BY coalesce(number, 0), added, hash",
                (int(forgotten),),
            )
            return [self._spec(row) for row in rows]

    def _spec(self, row: Sequence[Any]) -> StoredSpec:
        spec, name, title, text, resolved, version, added, asked, forgotten = row
        with self._decoding(f"the spec {name!r}", "the same sweep again mends it"):
            self._check("spec", spec)
            content = _table(resolved)
            return StoredSpec(
                spec, name, title, text, content, version, added, asked, bool(forgotten)
            )

    def members(self, spec: str) -> list[Member]:
        """Return the runs that a spec requests, in its order."""
        with self.snapshot(), self._decoding(f"the spec {spec}", "the same sweep again mends it"):
            rows = self._rows(
                "SELECT position, key, problem, model, label, seed FROM members "
                "WHERE spec = ? ORDER BY position",
                (spec,),
            )
            if rows:
                self._check("spec", spec)
            return [Member(*row) for row in rows]

    def runs(
        self,
        *,
        spec: str | None = None,
        status: Literal["done", "failed"] | None = None,
        skipping: Collection[str] = (),
    ) -> Iterator[StoredRun]:
        """Yield stored runs: those of a spec in its order, or all by problem, learner and seed.

        A damaged run raises Damaged unless it is in `skipping`.
        """
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
        keys = self._rows(f"SELECT runs.key FROM {source}{condition} ORDER BY {order}", values)
        for (key,) in keys:
            run = None if key in skipping else self.run(key)
            if run is not None:
                yield run

    def run(self, key: str) -> StoredRun | None:
        """Return the run with this key, or None; raise Damaged if it is not what was stored."""
        what, advice = f"run {key}", "`fmdp sweep` with --retry-failed makes it again"
        with self.snapshot(), self._decoding(what, advice):
            noted = digests.stated(self._connection, "run", key)
            if key in self._sound and self._sound[key][0] == noted:
                return self._sound[key][1]
            columns = ", ".join(_RUN_COLUMNS)
            rows = self._rows(f"SELECT {columns} FROM runs WHERE key = ?", (key,))
            if not rows:
                return None
            values = dict(zip(_RUN_COLUMNS, rows[0], strict=True))
            digest = self._check("run", key)
            values |= {name: _table(values[name]) for name in _JSON_COLUMNS}
            measures = self._rows("SELECT name, value FROM measures WHERE run = ?", (key,))
            code = self._rows("SELECT place, digest FROM run_code WHERE run = ?", (key,))
            run = StoredRun(**values, measures=dict(measures), code=dict(code))
            self._sound[key] = digest, run
            return run

    def damaged(self) -> dict[str, str]:
        """Return one line for every damaged run, by key."""
        lines = {}
        with self.snapshot():
            for (key,) in self._rows("SELECT key FROM runs ORDER BY key"):
                try:
                    self.run(key)
                except Damaged as error:
                    lines[key] = str(error)
        return lines

    def keys(self, status: Literal["done", "failed"]) -> set[str]:
        """Return the keys of the runs with this status, damaged runs included."""
        return {key for (key,) in self._rows("SELECT key FROM runs WHERE status = ?", (status,))}

    def curve(self, key: str) -> Curve:
        """Return the curves of a finished run; empty for any other."""
        points: dict[str, list[tuple[int, float]]] = {}
        with self.snapshot():
            self.run(key)
            for measure, t, value in self._rows(
                "SELECT measure, t, value FROM curves WHERE run = ? ORDER BY measure, t", (key,)
            ):
                points.setdefault(measure, []).append((t, value))
        times = {tuple(t for t, _ in curve) for curve in points.values()}
        if len(times) > 1:
            raise Damaged(f"{self.path}: the curves of run {key} have different checkpoints")
        with self._decoding(f"the curves of run {key}", "a sweep into a new directory makes them"):
            return Curve(
                np.array(times.pop() if times else (), dtype=np.int64),
                {
                    measure: np.array([value for _, value in curve], dtype=np.float64)
                    for measure, curve in points.items()
                },
            )

    def recorded(self) -> set[str]:
        """Return the keys of the runs that have a recording."""
        return {key for (key,) in self._rows("SELECT DISTINCT run FROM recordings")}

    def recording(self, key: str) -> Recording | None:
        """Return the recording of a run, or None; the first seed of each cell has one."""
        with self.snapshot(), self._decoding(f"the recording of run {key}", "see --retry-failed"):
            self.run(key)
            arrays = {
                name: _unpacked(dtype, shape, data)
                for name, dtype, shape, data in self._rows(
                    "SELECT array, dtype, shape, data FROM recordings WHERE run = ?", (key,)
                )
            }
            return Recording(**arrays) if arrays else None

    def sources(self, key: str) -> dict[str, str]:
        """Return the source texts of the code outside fmdp that made a run, by module name.

        Empty for code without source text and for runs stored by fmdp 0.2.
        """
        with self.snapshot(), self._decoding(f"the code of run {key}", "see --retry-failed"):
            self.run(key)
            rows = self._rows(
                "SELECT name, hash, text FROM run_sources JOIN sources ON hash = source "
                "WHERE run = ? ORDER BY name",
                (key,),
            )
            texts = {name: zlib.decompress(text).decode() for name, _, text in rows}
            for name, source, _ in rows:
                if _text_hash(texts[name]) != source:
                    raise ValueError(f"the source of {name} is not what was stored, by its hash")
            return texts

    def hidden(self) -> set[str]:
        """Return the keys of the runs that only forgotten specs request."""
        rows = self._rows(
            "SELECT key FROM members LEFT JOIN requests USING (spec) "
            "GROUP BY key HAVING min(coalesce(forgotten, 0)) = 1"
        )
        return {key for (key,) in rows}

    def model(self, model_hash: str) -> FactoredMDP:
        """Return the model with this content hash."""
        rows = self._rows("SELECT document FROM models WHERE hash = ?", (model_hash,))
        if not rows:
            raise FileProblem(f"{self.path}: has no model with the hash {model_hash}")
        with self._decoding(f"model {model_hash}", "the same sweep again mends it"):
            self._check("model", model_hash)
            model = loads(zlib.decompress(rows[0][0]).decode(), f"{self.path}, model {model_hash}")
            if model.content_hash != model_hash:
                raise ValueError(f"its content has the hash {model.content_hash}")
            return model

    def model_names(self) -> dict[str, str]:
        """Return the name of every model, which may be empty, by its content hash."""
        return dict(self._rows("SELECT hash, name FROM models"))

    # Writing

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Keep other processes from writing; the death of this process releases the lock."""
        with database.writer_lock(self.path):
            database.remove_leftovers(self.path)
            yield

    def add_spec(
        self, spec: StoredSpec, members: Sequence[Member], models: Iterable[FactoredMDP]
    ) -> None:
        """Store a spec and its members, and make it the latest request.

        Storing the same spec again repairs damage and changes nothing else.
        """
        with self._transaction() as cursor:
            for model in models:
                self._add_model(cursor, model)
            sound = digests.is_sound(self._connection, "spec", spec.hash)
            # Another results_version gives the same spec other keys.
            cursor.execute("DELETE FROM members WHERE spec = ?", (spec.hash,))
            if not sound:
                cursor.execute("DELETE FROM specs WHERE hash = ?", (spec.hash,))
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
            cursor.executemany(
                "INSERT INTO members VALUES (?, ?, ?, ?, ?, ?, ?)",
                [
                    (spec.hash, m.position, m.key, m.problem, m.model, m.label, m.seed)
                    for m in members
                ],
            )
            cursor.execute(
                "INSERT OR REPLACE INTO requests "
                "SELECT ?, coalesce(max(number), 0) + 1, ?, 0 FROM requests",
                (spec.hash, spec.asked or spec.added),
            )
            digests.note(self._connection, "spec", spec.hash)

    def forget(self, spec: str, *, delete_runs: bool = False) -> int:
        """Hide a spec and the runs that no other spec requests; return the number of these runs.

        Running the same sweep again brings them back. With `delete_runs` the spec and the runs that
        no other spec requests, forgotten or not, are deleted for good.
        """
        others = "spec != :spec" if delete_runs else "spec != :spec AND NOT coalesce(forgotten, 0)"
        with self._transaction() as cursor:
            rows = cursor.execute(
                "SELECT key FROM members JOIN runs USING (key) WHERE spec = :spec AND key NOT IN "
                f"(SELECT key FROM members LEFT JOIN requests USING (spec) WHERE {others})",
                {"spec": spec},
            ).fetchall()
            if delete_runs:
                self._delete_runs(cursor, [key for (key,) in rows])
                for table, column in (("members", "spec"), ("specs", "hash")):
                    cursor.execute(f"DELETE FROM {table} WHERE {column} = ?", (spec,))
                cursor.execute("DELETE FROM digests WHERE kind = 'spec' AND name = ?", (spec,))
            else:
                cursor.execute("UPDATE requests SET forgotten = 1 WHERE spec = ?", (spec,))
                digests.note(self._connection, "spec", spec)
        return len(rows)

    def _delete_runs(self, cursor: sqlite3.Cursor, keys: Iterable[str]) -> None:
        # Compared as bytes, since the key of a damaged run may not be valid text.
        names = [(key.encode("utf-8", "surrogateescape"),) for key in keys]
        for table, column in (*((table, "run") for table in _PARTS), ("runs", "key")):
            cursor.executemany(f"DELETE FROM {table} WHERE CAST({column} AS BLOB) = ?", names)
        cursor.executemany(
            "DELETE FROM digests WHERE kind = 'run' AND CAST(name AS BLOB) = ?", names
        )
        cursor.execute("DELETE FROM sources WHERE hash NOT IN (SELECT source FROM run_sources)")

    def add_run(
        self,
        run: StoredRun,
        curve: Curve | None = None,
        recording: Recording | None = None,
        sources: Mapping[str, str] | None = None,
    ) -> None:
        """Store a run, with the source texts of the code outside fmdp that made it.

        Replace a failed or damaged run of the same key; raise FileProblem if it is done already.
        Raise Unstorable or InvalidParameter if this run can never be stored.
        """
        measures = checked(run.measures, done=run.status == "done")
        if curve is not None and run.status != "done":
            raise InvalidParameter("a failed run must have no curves; got some")
        for name, points in {} if curve is None else curve.values.items():
            if measure_named(name).curve is None:
                raise InvalidParameter(f"the '{name}' measure of a run has no curve; got one")
            if not np.isfinite(points).all():
                raise InvalidParameter(f"the curve of '{name}' must have finite numbers alone")
        with self._transaction() as cursor:
            self._remove_unfinished(cursor, run.key)
            self._insert_run(cursor, run)
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
            if recording is not None:
                cursor.executemany(
                    "INSERT INTO recordings VALUES (?, ?, ?, ?, ?)",
                    [
                        (run.key, *_packed(field.name, getattr(recording, field.name)))
                        for field in fields(recording)
                    ],
                )
            self._add_code(cursor, run, sources or {})
            digests.note(self._connection, "run", run.key)

    def _insert_run(self, cursor: sqlite3.Cursor, run: StoredRun) -> None:
        values = [
            canonical_json(getattr(run, name)) if name in _JSON_COLUMNS else getattr(run, name)
            for name in _RUN_COLUMNS
        ]
        places = ", ".join("?" * len(values))
        cursor.execute(f"INSERT INTO runs ({', '.join(_RUN_COLUMNS)}) VALUES ({places})", values)

    def _add_code(self, cursor: sqlite3.Cursor, run: StoredRun, sources: Mapping[str, str]) -> None:
        cursor.executemany(
            "INSERT INTO run_code VALUES (?, ?, ?)",
            [(run.key, place, digest) for place, digest in run.code.items()],
        )
        for name, text in sources.items():
            source = _text_hash(text)
            row = (source, zlib.compress(text.encode()))
            # A damaged text is replaced under its hash. Replacing a sound one would look for its
            # runs among all runs.
            if not self._rows("SELECT 1 FROM sources WHERE (hash, text) = (?, ?)", row):
                cursor.execute("INSERT OR REPLACE INTO sources VALUES (?, ?)", row)
            cursor.execute("INSERT INTO run_sources VALUES (?, ?, ?)", (run.key, name, source))

    def clear_away(self) -> None:
        """Remove damage that no sweep can repair: specs without a digest, and damaged runs that no
        spec requests."""
        with self._transaction() as cursor:
            unknown = self._rows(
                "SELECT hash FROM specs "
                "WHERE hash NOT IN (SELECT name FROM digests WHERE kind = 'spec')"
            )
            for table, column in (("members", "spec"), ("specs", "hash")):
                cursor.executemany(f"DELETE FROM {table} WHERE {column} = ?", unknown)
            requested = {key for (key,) in self._rows("SELECT key FROM members")}
            lost = self.damaged().keys() - requested
            if lost:
                self._delete_runs(cursor, lost)

    def _remove_unfinished(self, cursor: sqlite3.Cursor, key: str) -> None:
        """Remove a failed or damaged run; raise FileProblem for one that is done and sound."""
        with contextlib.suppress(Damaged):
            stored = self.run(key)
            if stored is not None and stored.status == "done":
                raise FileProblem(f"{self.path}: run {key} is done and is not overwritten")
        # Damage may have left rows of any table.
        for table in _PARTS:
            cursor.execute(f"DELETE FROM {table} WHERE run = ?", (key,))
        cursor.execute("DELETE FROM runs WHERE key = ?", (key,))
        cursor.execute("DELETE FROM digests WHERE kind = 'run' AND name = ?", (key,))

    def _add_model(self, cursor: sqlite3.Cursor, model: FactoredMDP) -> None:
        name = model.content_hash
        if not digests.is_sound(self._connection, "model", name):
            # Runs and members may refer to it, so it is replaced under its hash.
            cursor.execute(
                "INSERT INTO models VALUES (?, ?, ?) ON CONFLICT (hash) DO UPDATE "
                "SET name = excluded.name, document = excluded.document",
                (name, model.name, zlib.compress(dumps(model).encode())),
            )
            digests.note(self._connection, "model", name)

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """Write everything that is stored meanwhile to the disk once, at the end.

        Each change is still complete or not made at all, whatever happens to the others.
        """
        self._write("BEGIN IMMEDIATE")
        try:
            yield
        finally:
            # SQLite may have ended the transaction after an error.
            if self._connection.in_transaction:
                self._write("COMMIT")

    def _write(self, statement: str) -> None:
        try:
            self._retry(lambda: self._connection.execute(statement))
        except sqlite3.Error as error:
            raise database.file_problem(self.path, error, "written") from None

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Cursor]:
        cursor = self._connection.cursor()
        begin, end, undo = "BEGIN IMMEDIATE", "COMMIT", "ROLLBACK"
        if self._connection.in_transaction:  # within `together`
            begin, end, undo = "SAVEPOINT part", "RELEASE part", "ROLLBACK TO part"
        try:
            self._retry(lambda: cursor.execute(begin))
            yield cursor
            self._retry(lambda: cursor.execute(end))
        except BaseException as error:
            if self._connection.in_transaction:
                cursor.execute(undo)
            if isinstance(error, _INVALID_VALUES):
                raise Unstorable(f"{self.path}: this cannot be stored: {error}") from None
            if isinstance(error, database.SQLITE_ERRORS):
                raise database.file_problem(self.path, error, "written") from None
            raise
        finally:
            cursor.close()


def _text_hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _table(text: object) -> dict[str, Any]:
    """Return the JSON object in a column."""
    value = json.loads(text) if isinstance(text, str) else None
    if not isinstance(value, dict):
        raise ValueError("a column that must be a JSON object is none")
    return value


def _unpacked(dtype: str, shape: str, data: bytes) -> NDArray[Any]:
    """Return an array that `_packed` wrote; never decompress more bytes than its shape needs."""
    kind, sizes = np.dtype(dtype), tuple(json.loads(shape))
    expected = math.prod(sizes) * kind.itemsize
    unpacker = zlib.decompressobj()
    content = unpacker.decompress(data, expected + 1)
    if len(content) != expected or kind.hasobject:
        raise ValueError(f"an array of shape {shape} has other bytes than it must have")
    return np.frombuffer(content, kind).reshape(sizes)


def _packed(name: str, array: NDArray[Any]) -> tuple[str, str, str, bytes]:
    little = np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<"), copy=False)
    shape = json.dumps(list(array.shape))
    return name, little.dtype.str, shape, zlib.compress(little.tobytes(), level=6)
