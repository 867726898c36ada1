"""The tables of a store, and the migration of stores that fmdp 0.2.0 wrote.

The version of the schema is stored in `meta`. A store of version 3 is migrated in one transaction:
a crash leaves the old store. The migration computes no results, so numbers stay the same to the
bit. A changed row of a stored run is detected by its digest (digests.py).
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from functools import cache
from typing import Any

from fmdp.experiments import digests

SCHEMA_VERSION = 4
APPLICATION_ID = 0x464D4450  # "FMDP", in the header of the file

_SHARED = """
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

CREATE TABLE recordings (
    run TEXT NOT NULL REFERENCES runs (key),
    array TEXT NOT NULL,
    dtype TEXT NOT NULL,
    shape TEXT NOT NULL,
    data BLOB NOT NULL,
    PRIMARY KEY (run, array)
) STRICT, WITHOUT ROWID;
"""

_RUNS_TABLES = """
CREATE TABLE runs (
    key TEXT PRIMARY KEY,
    model TEXT NOT NULL REFERENCES models (hash),
    problem TEXT NOT NULL,
    learner TEXT NOT NULL,
    role TEXT NOT NULL CHECK (role IN ('learner', 'upper', 'lower', 'baseline')),
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
    error TEXT CHECK ((error IS NULL) = (status = 'done'))
) STRICT, WITHOUT ROWID;

CREATE TABLE measures (
    run TEXT NOT NULL REFERENCES runs (key) DEFERRABLE INITIALLY DEFERRED,
    name TEXT NOT NULL,
    value ANY NOT NULL CHECK (
        CASE
            WHEN name IN ('regret', 'gap_regret', 'gain') THEN typeof(value) = 'real'
            WHEN name IN ('episodes', 'planner_calls', 'unconverged_plans')
                THEN typeof(value) = 'integer'
            WHEN name = 'gain_kind' THEN value IN ('exact', 'upper_bound')
            ELSE typeof(value) IN ('real', 'integer', 'text')
        END
    ),
    PRIMARY KEY (run, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE curves (
    run TEXT NOT NULL REFERENCES runs (key) DEFERRABLE INITIALLY DEFERRED,
    measure TEXT NOT NULL,
    t INTEGER NOT NULL,
    value REAL NOT NULL,
    PRIMARY KEY (run, measure, t)
) STRICT, WITHOUT ROWID;
"""

_DIGESTS = """
CREATE TABLE digests (
    kind TEXT NOT NULL CHECK (kind IN ('model', 'spec', 'run')),
    name TEXT NOT NULL,
    digest TEXT NOT NULL,
    PRIMARY KEY (kind, name)
) STRICT, WITHOUT ROWID;
"""

_REQUESTS_AND_CODE = """
CREATE TABLE requests (
    spec TEXT PRIMARY KEY REFERENCES specs (hash) ON DELETE CASCADE,
    number INTEGER NOT NULL UNIQUE,
    asked TEXT NOT NULL,
    forgotten INTEGER NOT NULL CHECK (forgotten IN (0, 1))
) STRICT, WITHOUT ROWID;

CREATE TABLE sources (
    hash TEXT PRIMARY KEY,
    text BLOB NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE run_code (
    run TEXT NOT NULL REFERENCES runs (key) ON DELETE CASCADE,
    place TEXT NOT NULL,
    digest TEXT NOT NULL,
    PRIMARY KEY (run, place)
) STRICT, WITHOUT ROWID;

CREATE TABLE run_sources (
    run TEXT NOT NULL REFERENCES runs (key) ON DELETE CASCADE,
    name TEXT NOT NULL,
    source TEXT NOT NULL REFERENCES sources (hash),
    PRIMARY KEY (run, name)
) STRICT, WITHOUT ROWID;
"""


def create(connection: sqlite3.Connection, meta: dict[str, str]) -> None:
    """Create all tables of a new store, in one transaction."""
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute("BEGIN IMMEDIATE")
    _execute(connection, _SHARED + _RUNS_TABLES + _REQUESTS_AND_CODE + _DIGESTS)
    connection.executemany(
        "INSERT INTO meta VALUES (?, ?)",
        [*meta.items(), ("schema_version", str(SCHEMA_VERSION))],
    )
    connection.execute("COMMIT")


def version_of(connection: sqlite3.Connection) -> int | None:
    """Return the schema version of the file, or None if it states none."""
    row = connection.execute("SELECT value FROM meta WHERE key = 'schema_version'").fetchone()
    text = str(row[0]) if row else ""
    # Python refuses to parse numbers of thousands of digits.
    return int(text) if text.isdecimal() and len(text) < 10 else None


@cache
def _expected() -> dict[tuple[str, str], str]:
    """Return the SQL of every table and index of a new store, by type and name."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    create(connection, {})
    objects = _objects(connection)
    connection.close()
    return objects


def _objects(connection: sqlite3.Connection) -> dict[tuple[str, str], str]:
    rows = connection.execute("SELECT type, name, sql FROM sqlite_master WHERE sql IS NOT NULL")
    return {(kind, name): sql for kind, name, sql in rows}


def flaw(connection: sqlite3.Connection) -> str | None:
    """Return what differs from the tables and indices of this version, or None."""
    objects = _objects(connection)
    for (kind, name), sql in _expected().items():
        if objects.get((kind, name)) != sql:
            return f"its {kind} {name} is not what schema version {SCHEMA_VERSION} has"
    return None


def remove_triggers(connection: sqlite3.Connection) -> None:
    """Drop the triggers that earlier versions created; they refuse changes that digests detect."""
    for kind, name in _objects(connection):
        if kind == "trigger":
            connection.execute(f'DROP TRIGGER IF EXISTS "{name}"')


def migrate(connection: sqlite3.Connection) -> None:
    """Migrate a store of a known older version, completely or not at all."""
    connection.execute("PRAGMA foreign_keys = OFF")
    connection.execute("BEGIN IMMEDIATE")
    try:
        # Read again inside the transaction: another process may have migrated the store.
        version = version_of(connection)
        while version is not None and version < SCHEMA_VERSION:
            MIGRATIONS[version](connection)
            version += 1
        remove_triggers(connection)
        connection.execute(
            "UPDATE meta SET value = ? WHERE key = 'schema_version'", (str(SCHEMA_VERSION),)
        )
        broken = connection.execute("PRAGMA foreign_key_check").fetchone()
        if broken is not None:
            raise sqlite3.IntegrityError(f"a row of {broken[0]} refers to nothing in {broken[2]}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _add_requests_and_code(connection: sqlite3.Connection) -> None:
    """Migrate version 3 to 4: number the requests for specs, and note the code of runs.

    Version 3 recorded neither. The time of a request is taken to be when the spec was added, and
    the code of a run is what the specs that request it state. There are no source texts.
    """
    _execute(connection, _REQUESTS_AND_CODE)
    specs = connection.execute("SELECT hash, added, resolved FROM specs ORDER BY added, hash")
    for number, (spec, added, resolved) in enumerate(specs.fetchall(), start=1):
        sound = digests.is_sound(connection, "spec", spec)
        connection.execute("INSERT INTO requests VALUES (?, ?, ?, 0)", (spec, number, added))
        if sound:
            digests.note(connection, "spec", spec)
            _note_code(connection, spec, json.loads(resolved))


def _note_code(connection: sqlite3.Connection, spec: str, resolved: Any) -> None:
    code = {
        (cell["problem"], cell["label"]): cell["code"]
        for cell in resolved.get("cells", ())
        if "code" in cell
    }
    members = connection.execute(
        "SELECT members.key, members.problem, label FROM members JOIN runs USING (key) "
        "WHERE spec = ?",
        (spec,),
    )
    for key, problem, label in members.fetchall():
        if (problem, label) in code and digests.is_sound(connection, "run", key):
            connection.executemany(
                "INSERT OR IGNORE INTO run_code VALUES (?, ?, ?)",
                [(key, *pair) for pair in code[problem, label].items()],
            )
            digests.note(connection, "run", key)


MIGRATIONS: dict[int, Callable[[sqlite3.Connection], None]] = {3: _add_requests_and_code}
"""The migration from each version to the next; it runs in a transaction, foreign keys off."""


def _execute(connection: sqlite3.Connection, script: str) -> None:
    """Run several statements inside the transaction, which `executescript` would end."""
    for statement in script.split(";")[:-1]:
        connection.execute(statement.strip())
