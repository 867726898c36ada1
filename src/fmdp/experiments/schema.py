"""What the file of a store looks like inside, and how an older one becomes that.

The schema has a version, kept in `meta`. A store of an older version is brought up to date by the
migrations in their order, all in one transaction: a death in the middle leaves the old store. A
migration moves what is there and computes no result, so numbers stay the same to the bit.

A run is put together the other way round: first its measures and curves, the row in `runs` last.
Triggers then see a run whole when it comes, refuse one that lacks what it must have, and seal it:
nothing of a run that is stored can be added to or changed, and one that is done cannot be removed.
Only one that is damaged (digests.py) gives way, with the triggers away for that transaction.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
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

# Of versions 2 to 4. A later version that changes these keeps this text for the migration to 2.
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

_RUNS_TRIGGERS = """
CREATE TRIGGER runs_done_stay BEFORE UPDATE ON runs
    WHEN OLD.status = 'done' OR NEW.status = 'done'
    BEGIN SELECT RAISE (ABORT, 'a run that is done is never changed'); END;
CREATE TRIGGER runs_done_remain BEFORE DELETE ON runs WHEN OLD.status = 'done'
    BEGIN SELECT RAISE (ABORT, 'a run that is done is never removed'); END;
CREATE TRIGGER runs_done_whole BEFORE INSERT ON runs
    WHEN NEW.status = 'done'
    AND NOT EXISTS (SELECT 1 FROM measures WHERE run = NEW.key AND name = 'regret')
    BEGIN SELECT RAISE (ABORT, 'a run that is done has its regret'); END;
CREATE TRIGGER runs_failed_bare BEFORE INSERT ON runs
    WHEN NEW.status = 'failed'
    AND (EXISTS (SELECT 1 FROM measures WHERE run = NEW.key)
         OR EXISTS (SELECT 1 FROM curves WHERE run = NEW.key))
    BEGIN SELECT RAISE (ABORT, 'a run that failed has no measures'); END;

CREATE TRIGGER measures_sealed BEFORE INSERT ON measures
    WHEN EXISTS (SELECT 1 FROM runs WHERE key = NEW.run)
    BEGIN SELECT RAISE (ABORT, 'a run that is stored gets no more measures'); END;
CREATE TRIGGER measures_stay BEFORE UPDATE ON measures
    BEGIN SELECT RAISE (ABORT, 'a run that is done is never changed'); END;
CREATE TRIGGER measures_remain BEFORE DELETE ON measures
    BEGIN SELECT RAISE (ABORT, 'a run that is done is never changed'); END;
CREATE TRIGGER curves_sealed BEFORE INSERT ON curves
    WHEN EXISTS (SELECT 1 FROM runs WHERE key = NEW.run)
    BEGIN SELECT RAISE (ABORT, 'a run that is stored gets no more curves'); END;
CREATE TRIGGER curves_stay BEFORE UPDATE ON curves
    BEGIN SELECT RAISE (ABORT, 'a run that is done is never changed'); END;
CREATE TRIGGER curves_remain BEFORE DELETE ON curves
    BEGIN SELECT RAISE (ABORT, 'a run that is done is never changed'); END;
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
    """Create everything that a new store has, in one transaction."""
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute("BEGIN IMMEDIATE")
    tables = _SHARED + _RUNS_TABLES + _RUNS_TRIGGERS + _REQUESTS_AND_CODE + _DIGESTS
    _execute(connection, tables)
    connection.executemany(
        "INSERT INTO meta VALUES (?, ?)",
        [*meta.items(), ("schema_version", str(SCHEMA_VERSION))],
    )
    connection.execute("COMMIT")


def version_of(connection: sqlite3.Connection) -> int | None:
    """The schema version that the file has; None if it says none."""
    found = connection.execute("SELECT value FROM meta WHERE key = 'schema_version'").fetchone()
    said = str(found[0]) if found else ""
    # Python refuses to read numbers of thousands of digits.
    return int(said) if said.isdecimal() and len(said) < 10 else None


@cache
def _whole() -> dict[tuple[str, str], str]:
    """(type, name) -> SQL of everything that a sound store has inside."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    create(connection, {})
    found = _inside(connection)
    connection.close()
    return found


def _inside(connection: sqlite3.Connection) -> dict[tuple[str, str], str]:
    rows = connection.execute("SELECT type, name, sql FROM sqlite_master WHERE sql IS NOT NULL")
    return {(kind, name): sql for kind, name, sql in rows}


def flaw(connection: sqlite3.Connection) -> str | None:
    """What is not as this version has it, tables and indices; None if nothing is."""
    found = _inside(connection)
    for (kind, name), sql in _whole().items():
        if kind != "trigger" and found.get((kind, name)) != sql:
            return f"its {kind} {name} is not what schema version {SCHEMA_VERSION} has"
    return None


def seal(connection: sqlite3.Connection) -> None:
    """Put the triggers back where one is missing or changed; inside a transaction."""
    found = _inside(connection)
    if any(
        kind == "trigger" and found.get((kind, n)) != sql for (kind, n), sql in _whole().items()
    ):
        unseal(connection)
        _execute(connection, _RUNS_TRIGGERS)


def unseal(connection: sqlite3.Connection) -> None:
    """Take the triggers away, for a damaged run to give way; inside a transaction."""
    for kind, name in _whole():
        if kind == "trigger":
            connection.execute(f"DROP TRIGGER IF EXISTS {name}")


def migrate(connection: sqlite3.Connection) -> None:
    """Bring a store of a known older version up to date, whole or not at all."""
    # Tables are replaced under their names; what refers to them is to go on doing so.
    connection.execute("PRAGMA foreign_keys = OFF")
    connection.execute("PRAGMA legacy_alter_table = ON")
    connection.execute("BEGIN IMMEDIATE")
    try:
        # Asked again: another process may have been faster.
        version = version_of(connection)
        if version is not None and version < 4:
            # All versions at once need these tables: digests are computed over them too.
            _execute(connection, _REQUESTS_AND_CODE)
        while version is not None and version < SCHEMA_VERSION:
            MIGRATIONS[version](connection)
            version += 1
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
    finally:
        connection.execute("PRAGMA legacy_alter_table = OFF")


def _measures_by_name(connection: sqlite3.Connection) -> None:
    """1 to 2: the columns of results become rows of `measures` and `curves`; runs get a role."""
    names = (
        "regret",
        "gap_regret",
        "gain",
        "gain_kind",
        "episodes",
        "planner_calls",
        "unconverged_plans",
    )
    kept = (
        "key",
        "model",
        "problem",
        "learner",
        "parameters",
        "planner",
        "planner_settings",
        "seed",
        "steps",
        "fmdp_version",
        "results_version",
        "machine",
        "finished",
        "seconds",
        "status",
        "error",
    )
    columns = ", ".join(kept)
    _execute(
        connection,
        f"""
        DROP TRIGGER IF EXISTS runs_done_stay;
        DROP TRIGGER IF EXISTS runs_done_remain;
        ALTER TABLE runs RENAME TO runs_of_version_1;
        ALTER TABLE curves RENAME TO curves_of_version_1;
        {_RUNS_TABLES}
        INSERT INTO runs ({columns}, role)
            SELECT {columns},
                CASE learner WHEN 'oracle' THEN 'upper' WHEN 'random' THEN 'lower'
                ELSE 'learner' END
            FROM runs_of_version_1;
        INSERT INTO curves
            SELECT run, 'regret', t, regret FROM curves_of_version_1;
        INSERT INTO curves
            SELECT run, 'gap_regret', t, gap_regret FROM curves_of_version_1
            WHERE run NOT IN (SELECT run FROM curves_of_version_1 WHERE gap_regret IS NULL);
        """,
    )
    for name in names:
        connection.execute(
            f"INSERT INTO measures SELECT key, ?, {name} FROM runs_of_version_1 "
            f"WHERE {name} IS NOT NULL AND status = 'done'",
            (name,),
        )
    _execute(
        connection,
        f"""
        DROP TABLE curves_of_version_1;
        DROP TABLE runs_of_version_1;
        {_RUNS_TRIGGERS}
        """,
    )


def _with_digests(connection: sqlite3.Connection) -> None:
    """2 to 3: everything gets the digest of what it is now."""
    _execute(connection, _DIGESTS)
    for hashed in connection.execute("SELECT hash FROM models").fetchall():
        digests.note(connection, "model", *hashed)
    for hashed in connection.execute("SELECT hash FROM specs").fetchall():
        digests.note(connection, "spec", *hashed)
    for key in connection.execute("SELECT key FROM runs").fetchall():
        digests.note(connection, "run", *key)


def _with_requests_and_code(connection: sqlite3.Connection) -> None:
    """3 to 4: specs get the order in which they were asked for, runs the digests of their code.

    Older versions noted neither: a spec was asked for when it was added, as far as is known, and
    the code of a run is what the specs that ask for it say. There are no source texts.
    """
    specs = connection.execute("SELECT hash, added, resolved FROM specs ORDER BY added, hash")
    for number, (spec, added, resolved) in enumerate(specs.fetchall(), start=1):
        sound = _is_sound(connection, "spec", spec)
        connection.execute("INSERT INTO requests VALUES (?, ?, ?, 0)", (spec, number, added))
        if sound:
            digests.note(connection, "spec", spec)
            _note_code(connection, spec, json.loads(resolved))


def _note_code(connection: sqlite3.Connection, spec: str, resolved: Any) -> None:
    """Note the code of the runs that a spec of version 3 asks for."""
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
        if (problem, label) in code and _is_sound(connection, "run", key):
            connection.executemany(
                "INSERT OR IGNORE INTO run_code VALUES (?, ?, ?)",
                [(key, *pair) for pair in code[problem, label].items()],
            )
            digests.note(connection, "run", key)


def _is_sound(connection: sqlite3.Connection, kind: digests.Kind, name: str) -> bool:
    return digests.stated(connection, kind, name) == digests.computed(connection, kind, name)


MIGRATIONS: dict[int, Callable[[sqlite3.Connection], None]] = {
    1: _measures_by_name,
    2: _with_digests,
    3: _with_requests_and_code,
}
"""Version -> what makes the next one of it, inside a transaction, foreign keys off."""


def _execute(connection: sqlite3.Connection, script: str) -> None:
    """Run several statements inside the transaction; `executescript` would end it."""
    for statement in _statements(script):
        connection.execute(statement)


def _statements(script: str) -> Iterator[str]:
    pending = ""
    for piece in script.split(";")[:-1]:
        pending += f"{piece};"
        if sqlite3.complete_statement(pending):
            yield pending.strip()
            pending = ""
