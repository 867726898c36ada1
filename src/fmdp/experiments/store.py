"""The store: one SQLite file, DIR/runs.sqlite, that keeps runs, curves and recordings.

A run is keyed by the hash of its resolved spec (see spec.py) and is written in one transaction,
measures, curve and recording included: it is there whole or not at all, whatever kills the writer.
A run that is done is never changed; triggers in the file itself refuse it. A failed run is kept
with its error until the same run is done. Foreign keys are on, the journal is a write-ahead log, so
that reports read while a sweep writes. One process writes at a time (`Store.writing`).

Reading is typed: `Store.open(directory)` and then `specs`, `runs`, `curve`, `recording`, `model`;
results.py makes frames of it. All that is read is checked against its digest (digests.py): what has
changed since it was stored is damaged, which is said in one line and never becomes a number. A
damaged run is not done; `add_run` puts the same run, made again, into its place. How the file is
opened is in opening.py, how one of an older version is read in schema.py; docs/experiments.md
describes every table and column.
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
from types import TracebackType
from typing import Any, Literal, cast, get_args

import numpy as np
from numpy.typing import NDArray

from fmdp.errors import FileProblem, FmdpError, InvalidParameter
from fmdp.experiments import digests, opening, schema
from fmdp.experiments.measures import Measure, T, Value, checked, is_declared, measure_named
from fmdp.experiments.opening import Patience, Say
from fmdp.model import FactoredMDP
from fmdp.model.io.files import dumps, loads

FILE_NAME = "runs.sqlite"

Role = Literal["learner", "upper", "lower", "baseline"]
"""What a run is in a comparison: a learner; the upper end, which knows the model; the lower end,
which draws its actions; or a fixed policy or rule. It is no part of a run's key."""
ROLES: tuple[Role, ...] = get_args(Role)


@dataclass(frozen=True)
class LeftOut:
    """A learner that does not fit a problem, in one line; a comparison goes on without the pair."""

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
    """The TOML as it was given; of a spec made in Python, the TOML that it stands for."""
    resolved: Mapping[str, Any]
    fmdp_version: str
    added: str
    """ISO 8601, UTC."""
    asked: str = field(default="", compare=False)
    """When it was asked for last; ISO 8601, UTC."""
    forgotten: bool = field(default=False, compare=False)
    """Whether it was forgotten (`Store.forget`) and not asked for again since then."""


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
    code: Mapping[str, str] = field(default_factory=dict)
    """Digests of the code that made it, by module:Class, where that is not part of fmdp."""

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


_RUN_COLUMNS = tuple(one.name for one in fields(StoredRun) if one.name not in ("measures", "code"))
_PARTS = ("recordings", "curves", "measures", "run_code", "run_sources")
_JSON_COLUMNS = ("parameters", "planner_settings")


_FAULTS_OF_WHAT_IS_STORED = (
    sqlite3.IntegrityError,
    sqlite3.DataError,
    sqlite3.InterfaceError,
    sqlite3.ProgrammingError,
    UnicodeEncodeError,  # half of a character
    OverflowError,  # a whole number of more than 64 bits
)


def canonical_json(value: object) -> str:
    """The one text of a JSON value: keys sorted, no spaces, shortest floats, no NaN."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


class Damaged(FileProblem):
    """A run, spec or model is not what was stored; the file as such is sound."""


class Unstorable(FileProblem):
    """It is not the file that is at fault: what was to be stored cannot be, today or ever."""


class Store:
    """An open store. Use as a context manager, or `close` it."""

    def __init__(
        self, path: Path, connection: sqlite3.Connection, read_only: bool, patience: Patience
    ) -> None:
        self.path = path
        self._connection = connection
        self._read_only = read_only
        self._patience = patience
        # Key -> the digest under which the run was found sound, and the run.
        self._sound: dict[str, tuple[str, StoredRun]] = {}

    @classmethod
    def open(
        cls,
        directory: str | os.PathLike[str],
        *,
        read_only: bool = True,
        waiting: Say = opening.warn,
    ) -> Store:
        """The store in this directory; FileProblem (one line) if there is none that is sound.

        `waiting` is told, in one line, when a lock of another process has to be waited for.
        """
        path = Path(directory) / FILE_NAME
        opening.refuse_foreign(path)
        patience = Patience(path, waiting)
        try:
            return cls(path, opening.connect(path, read_only, patience), read_only, patience)
        except opening.SQLITE_ERRORS as error:
            raise opening.problem(path, error) from None

    @classmethod
    def create(cls, directory: str | os.PathLike[str], *, waiting: Say = opening.warn) -> Store:
        """The store in this directory, for writing; made (with the directory) if there is none."""
        path = Path(directory) / FILE_NAME
        try:
            there = path.exists()
        except (OSError, ValueError) as error:
            raise FileProblem(f"{path}: cannot be made: {error}") from None
        if not there:
            opening.make(path)
        return cls.open(directory, read_only=False, waiting=waiting)

    def close(self) -> None:
        opening.close(self._connection, read_only=self._read_only)

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

    def _rows(self, query: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """All that a query gives; locks are waited for, and what SQLite says is one line."""
        try:
            return self._patience(lambda: self._connection.execute(query, values).fetchall())
        except opening.SQLITE_ERRORS as error:
            raise opening.problem(self.path, error) from None

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[None]:
        """While this lasts, what is read is of one moment, whatever a sweep writes meanwhile."""
        within_another = self._connection.in_transaction
        if not within_another:
            self._rows("BEGIN")
        try:
            yield
        finally:
            if not within_another:
                # SQLite may have ended it already, after an error.
                with contextlib.suppress(sqlite3.Error):
                    self._connection.execute("ROLLBACK")

    @contextlib.contextmanager
    def _decoding(self, what: str, advice: str) -> Iterator[None]:
        """Whatever goes wrong when something stored is read is damage, named."""
        try:
            yield
        except sqlite3.Error as error:
            raise opening.problem(self.path, error) from None
        except Damaged:
            raise
        except (FmdpError, ValueError, TypeError, LookupError, zlib.error, RecursionError) as error:
            raise Damaged(f"{self.path}: {what} is damaged: {error}; {advice}") from None

    def _check(self, kind: digests.Kind, name: str) -> str:
        """The digest, if it is the one that was noted."""
        noted = digests.stated(self._connection, kind, name)
        if noted is None:
            raise ValueError("it has no digest")
        if digests.computed(self._connection, kind, name) != noted:
            raise ValueError("it is not what was stored, by its digest")
        return noted

    def meta(self) -> dict[str, str]:
        return dict(self._rows("SELECT key, value FROM meta"))

    def specs(self, *, forgotten: bool = False) -> list[StoredSpec]:
        """Return the specs that were run into this store, the one that was asked for last at the
        end; with `forgotten`, those that were forgotten too."""
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
        """The runs that the spec with this hash asks for, in its order."""
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
        """Stored runs: those of a spec in its order, or all by problem, learner and seed.

        A damaged run is an error (Damaged), unless it is among those to be skipped.
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
            found = None if key in skipping else self.run(key)
            if found is not None:
                yield found

    def run(self, key: str) -> StoredRun | None:
        """The run with this key, None if there is none; Damaged if it is not what was stored."""
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
            found = self._check("run", key)
            values |= {name: _table(values[name]) for name in _JSON_COLUMNS}
            measures = self._rows("SELECT name, value FROM measures WHERE run = ?", (key,))
            code = self._rows("SELECT place, digest FROM run_code WHERE run = ?", (key,))
            run = StoredRun(**values, measures=dict(measures), code=dict(code))
            _checked_run(run)
            self._sound[key] = found, run
            return run

    def damaged(self) -> dict[str, str]:
        """Key -> one line, for every run that is not what was stored."""
        found = {}
        with self.snapshot():
            for (key,) in self._rows("SELECT key FROM runs ORDER BY key"):
                try:
                    self.run(key)
                except Damaged as error:
                    found[key] = str(error)
        return found

    def keys(self, status: Literal["done", "failed"]) -> set[str]:
        """The keys of the runs that say so of themselves, damaged ones among them."""
        return {key for (key,) in self._rows("SELECT key FROM runs WHERE status = ?", (status,))}

    def curve(self, key: str) -> Curve:
        """The curves of a run that is done; empty if it is not."""
        points: dict[str, list[tuple[int, float]]] = {}
        with self.snapshot():
            self.run(key)
            for measure, t, value in self._rows(
                "SELECT measure, t, value FROM curves WHERE run = ? ORDER BY measure, t", (key,)
            ):
                points.setdefault(measure, []).append((t, value))
        times = {tuple(t for t, _ in own) for own in points.values()}
        if len(times) > 1:
            raise Damaged(f"{self.path}: the curves of run {key} have different checkpoints")
        with self._decoding(f"the curves of run {key}", "a sweep into a new directory makes them"):
            return Curve(
                np.array(times.pop() if times else (), dtype=np.int64),
                {
                    measure: np.array([value for _, value in own], dtype=np.float64)
                    for measure, own in points.items()
                },
            )

    def recorded(self) -> set[str]:
        """The keys of the runs that are kept whole."""
        return {key for (key,) in self._rows("SELECT DISTINCT run FROM recordings")}

    def recording(self, key: str) -> Recording | None:
        """The run kept whole, if it was (the first seed of each cell is)."""
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
        """Return the source texts of the code that made a run, by the name of the module.

        Empty for a run that fmdp's own code made alone, for code without source, and for runs that
        were stored by fmdp 0.2 and older.
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
        """Return the keys of the runs that only forgotten specs ask for."""
        rows = self._rows(
            "SELECT key FROM members LEFT JOIN requests USING (spec) "
            "GROUP BY key HAVING min(coalesce(forgotten, 0)) = 1"
        )
        return {key for (key,) in rows}

    def model(self, model_hash: str) -> FactoredMDP:
        """The model with this content hash."""
        rows = self._rows("SELECT document FROM models WHERE hash = ?", (model_hash,))
        if not rows:
            raise FileProblem(f"{self.path}: has no model with the hash {model_hash}")
        with self._decoding(f"model {model_hash}", "the same sweep again mends it"):
            self._check("model", model_hash)
            found = loads(zlib.decompress(rows[0][0]).decode(), f"{self.path}, model {model_hash}")
            if found.content_hash != model_hash:
                raise ValueError(f"its content has the hash {found.content_hash}")
            return found

    # Writing

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """While this lasts, no other process can sweep into the store; released by any death."""
        with opening.only_writer(self.path):
            opening.clean_up(self.path)
            with self._transaction():
                schema.seal(self._connection)
            yield

    def add_spec(
        self, spec: StoredSpec, members: Sequence[Member], models: Iterable[FactoredMDP]
    ) -> None:
        """Note the spec, what it asks for, and that it was asked for last.

        The same spec again mends what is damaged of it, and changes nothing else.
        """
        with self._transaction() as cursor:
            for model in models:
                self._add_model(cursor, model)
            sound = self._is_sound("spec", spec.hash)
            # A newer results_version gives the same spec other keys: it asks for those now.
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
        """Forget the spec with this hash: its runs are not shown any more, unless another asks for
        them. Return how many runs that concerns.

        Nothing is lost: the same sweep again brings the spec and its runs back. With `delete_runs`
        the spec and these runs are deleted from the store instead, for good. Runs that any other
        spec asks for are kept, be it forgotten or not.
        """
        others = "spec != :spec" if delete_runs else "spec != :spec AND NOT coalesce(forgotten, 0)"
        with self._transaction() as cursor:
            found = cursor.execute(
                "SELECT key FROM members JOIN runs USING (key) WHERE spec = :spec AND key NOT IN "
                f"(SELECT key FROM members LEFT JOIN requests USING (spec) WHERE {others})",
                {"spec": spec},
            ).fetchall()
            if delete_runs:
                self._delete_runs(cursor, [key for (key,) in found])
                for table, column in (("members", "spec"), ("specs", "hash")):
                    cursor.execute(f"DELETE FROM {table} WHERE {column} = ?", (spec,))
                cursor.execute("DELETE FROM digests WHERE kind = 'spec' AND name = ?", (spec,))
            else:
                cursor.execute("UPDATE requests SET forgotten = 1 WHERE spec = ?", (spec,))
                digests.note(self._connection, "spec", spec)
        return len(found)

    def _delete_runs(self, cursor: sqlite3.Cursor, keys: Iterable[str]) -> None:
        schema.unseal(self._connection)
        # By its bytes, since the key of a damaged run may be no text any more.
        names = [(key.encode("utf-8", "surrogateescape"),) for key in keys]
        for table, column in (*((table, "run") for table in _PARTS), ("runs", "key")):
            cursor.executemany(f"DELETE FROM {table} WHERE CAST({column} AS BLOB) = ?", names)
        cursor.executemany(
            "DELETE FROM digests WHERE kind = 'run' AND CAST(name AS BLOB) = ?", names
        )
        cursor.execute("DELETE FROM sources WHERE hash NOT IN (SELECT source FROM run_sources)")
        schema.seal(self._connection)

    def _is_sound(self, kind: digests.Kind, name: str) -> bool:
        try:
            self._check(kind, name)
        except ValueError:
            return False
        return True

    def add_run(
        self,
        run: StoredRun,
        curve: Curve | None = None,
        recording: Recording | None = None,
        sources: Mapping[str, str] | None = None,
    ) -> None:
        """Store a run whole, with the source texts of the code that made it.

        A run that failed or is damaged gives way; one that is done is refused, not replaced.
        Unstorable or InvalidParameter if this run can never be stored.
        """
        measures = checked(run.measures, done=run.status == "done")
        for name, points in {} if curve is None else curve.values.items():
            if measure_named(name).curve is None:
                raise InvalidParameter(f"the '{name}' measure of a run has no curve; got one")
            if not np.isfinite(points).all():
                raise InvalidParameter(f"the curve of '{name}' must have finite numbers alone")
        with self._transaction() as cursor:
            self._make_room(cursor, run.key)
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
            self._add_code(cursor, run, sources or {})
            digests.note(self._connection, "run", run.key)

    def _add_code(self, cursor: sqlite3.Cursor, run: StoredRun, sources: Mapping[str, str]) -> None:
        cursor.executemany(
            "INSERT INTO run_code VALUES (?, ?, ?)",
            [(run.key, place, digest) for place, digest in run.code.items()],
        )
        for name, text in sources.items():
            source = _text_hash(text)
            # A text that is damaged is mended under its hash.
            cursor.execute(
                "INSERT OR REPLACE INTO sources VALUES (?, ?)",
                (source, zlib.compress(text.encode())),
            )
            cursor.execute("INSERT INTO run_sources VALUES (?, ?, ?)", (run.key, name, source))

    def clear_away(self) -> None:
        """Remove what is damaged and cannot be made again, since nobody asks for it under its name:
        specs without a digest, damaged runs that are no member of any spec."""
        with self._transaction() as cursor:
            unknown = self._rows(
                "SELECT hash FROM specs "
                "WHERE hash NOT IN (SELECT name FROM digests WHERE kind = 'spec')"
            )
            for table, column in (("members", "spec"), ("specs", "hash")):
                cursor.executemany(f"DELETE FROM {table} WHERE {column} = ?", unknown)
            asked = {key for (key,) in self._rows("SELECT key FROM members")}
            lost = self.damaged().keys() - asked
            if lost:
                self._delete_runs(cursor, lost)

    def _make_room(self, cursor: sqlite3.Cursor, key: str) -> None:
        """Remove what is there under this key, unless it is done and sound."""
        try:
            stored = self.run(key)
            if stored is not None and stored.status == "done":
                raise FileProblem(f"{self.path}: run {key} is done and is not overwritten")
            damaged = stored is None
        except Damaged:
            damaged = True
        # Of a run that is damaged or gone anything may be left, which the triggers would keep.
        left = damaged and any(
            self._rows(f"SELECT 1 FROM {table} WHERE {column} = ? LIMIT 1", (key,))
            for table, column in [("runs", "key"), *((table, "run") for table in _PARTS)]
        )
        if left:
            schema.unseal(self._connection)
            for table in _PARTS:
                cursor.execute(f"DELETE FROM {table} WHERE run = ?", (key,))
        cursor.execute("DELETE FROM runs WHERE key = ?", (key,))
        cursor.execute("DELETE FROM digests WHERE kind = 'run' AND name = ?", (key,))
        if left:
            schema.seal(self._connection)

    def _add_model(self, cursor: sqlite3.Cursor, model: FactoredMDP) -> None:
        name = model.content_hash
        if not self._is_sound("model", name):
            # Runs and members may refer to it: it is mended under its hash.
            cursor.execute(
                "INSERT INTO models VALUES (?, ?, ?) ON CONFLICT (hash) DO UPDATE "
                "SET name = excluded.name, document = excluded.document",
                (name, model.name, zlib.compress(dumps(model).encode())),
            )
            digests.note(self._connection, "model", name)

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Cursor]:
        cursor = self._connection.cursor()
        try:
            self._patience(lambda: cursor.execute("BEGIN IMMEDIATE"))
            yield cursor
            self._patience(lambda: cursor.execute("COMMIT"))
        except BaseException as error:
            if self._connection.in_transaction:
                cursor.execute("ROLLBACK")
            if isinstance(error, _FAULTS_OF_WHAT_IS_STORED):
                raise Unstorable(f"{self.path}: this cannot be stored: {error}") from None
            if isinstance(error, opening.SQLITE_ERRORS):
                raise opening.problem(self.path, error, "written") from None
            raise
        finally:
            cursor.close()


def _text_hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _table(text: object) -> dict[str, Any]:
    """A JSON object as it is stored in a column."""
    found = json.loads(text) if isinstance(text, str) else None
    if not isinstance(found, dict):
        raise ValueError("a column that must be a JSON object is none")
    return found


def _checked_run(run: StoredRun) -> None:
    """Refuse what a reader of the run could not take, whatever its digest says."""
    checked({n: v for n, v in run.measures.items() if is_declared(n)}, done=run.status == "done")
    texts = ("key", "model", "problem", "learner", "fmdp_version", "machine", "finished")
    if not all(isinstance(getattr(run, name), str) for name in texts):
        raise ValueError("a column that must be a text is none")
    if not all(
        isinstance(getattr(run, name), int) for name in ("seed", "steps", "results_version")
    ):
        raise ValueError("a column that must be a whole number is none")
    if run.role not in ROLES or run.status not in ("done", "failed"):
        raise ValueError(f"its role is {run.role!r} and its status {run.status!r}")
    if not (isinstance(run.seconds, float) and math.isfinite(run.seconds)):
        raise ValueError("its seconds are no finite number")


def _unpacked(dtype: str, shape: str, data: bytes) -> NDArray[Any]:
    """An array as `_packed` has it; never more bytes than its shape says."""
    kind, sizes = np.dtype(dtype), tuple(json.loads(shape))
    expected = math.prod(sizes) * kind.itemsize
    unpacker = zlib.decompressobj()
    found = unpacker.decompress(data, expected + 1)
    if len(found) != expected or kind.hasobject:
        raise ValueError(f"an array of shape {shape} has other bytes than it must have")
    return np.frombuffer(found, kind).reshape(sizes)


def _packed(name: str, array: NDArray[Any]) -> tuple[str, str, str, bytes]:
    little = np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<"), copy=False)
    shape = json.dumps(list(array.shape))
    return name, little.dtype.str, shape, zlib.compress(little.tobytes(), level=6)
