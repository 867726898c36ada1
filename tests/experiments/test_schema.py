"""A store of fmdp 0.2.0 (schema version 3) opens: the same numbers to the bit, whole or as it was,
and a reader leaves the file alone.

assets/store-0.2.0.sql is the dump of a store that fmdp 0.2.0 made."""

from __future__ import annotations

import hashlib
import os
import re
import signal
import sqlite3
import subprocess
import sys
import textwrap
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fmdp import Results
from fmdp.errors import FileProblem
from fmdp.experiments import schema
from fmdp.experiments.executors import InThisProcess
from fmdp.experiments.schema import APPLICATION_ID
from fmdp.experiments.spec import parse_spec
from fmdp.experiments.store import FILE_NAME, Store
from fmdp.experiments.sweep import run_sweep

DUMP = Path(__file__).with_name("assets") / "store-0.2.0.sql"
ROLES = {"psrl": "learner", "oracle": "upper", "random": "lower"}


def written(directory: Path, script: str) -> Path:
    """A file of version 3 in this directory, with the content of the script."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / FILE_NAME
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.executescript(script)
    return path


def raw(path: Path) -> dict[str, list[tuple[Any, ...]]]:
    """Every row of every table, as SQLite has it."""
    with closing(sqlite3.connect(path)) as connection:
        names = [
            row[0]
            for row in connection.execute(
                "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name"
            )
        ]
        return {name: connection.execute(f"SELECT * FROM {name}").fetchall() for name in names}


@pytest.fixture
def old(tmp_path: Path) -> Path:
    return written(tmp_path / "old", DUMP.read_text())


def assert_the_same(directory: Path, *, read_only: bool) -> None:
    """What the store says is what the dump says, read without any code of the store."""
    with closing(sqlite3.connect(":memory:")) as dump:
        dump.executescript(DUMP.read_text())
        dump.row_factory = sqlite3.Row
        expected = dump.execute("SELECT * FROM runs").fetchall()
        assert len(expected) == 7
        with Store.open(directory, read_only=read_only) as store:
            for row in expected:
                run = store.run(row["key"])
                assert run is not None
                assert run.role == ROLES[run.learner]
                rows = dump.execute("SELECT name, value FROM measures WHERE run = ?", [run.key])
                # repr tells 1 from 1.0, and every float from every other
                known = sorted(tuple(pair) for pair in rows)
                assert repr(sorted(run.measures.items())) == repr(known)
                for name in ("problem", "seed", "steps", "seconds", "status", "error", "finished"):
                    assert repr(getattr(run, name)) == repr(row[name])
                curve = store.curve(run.key)
                for name in ("regret", "gap_regret"):
                    points = dump.execute(
                        "SELECT t, value FROM curves WHERE run = ? AND measure = ? ORDER BY t",
                        [run.key, name],
                    ).fetchall()
                    assert (name in curve.values) == bool(points)
                    if points:
                        assert curve.t.tolist() == [point["t"] for point in points]
                        assert curve.values[name].tolist() == [point["value"] for point in points]
            assert store.keys("done") == {r["key"] for r in expected if r["status"] == "done"}
            (spec,) = store.specs()
            assert [member.label for member in store.members(spec.hash)] == [
                "PSRL",
                "oracle",
                "random",
            ] * 2
            assert len(store.recorded()) == 3
            recording = store.recording(min(store.recorded()))
            assert recording is not None
            assert recording.actions.shape == (4, 1)
            assert store.model(next(store.runs()).model).name == "circle:2"


def test_an_old_store_is_read_and_not_touched(old: Path) -> None:
    before = old.read_bytes()
    assert_the_same(old.parent, read_only=True)
    assert old.read_bytes() == before
    assert raw(old)["meta"][-1] == ("schema_version", "3")
    with Store.open(old.parent) as reader, pytest.raises(FileProblem, match="readonly"):
        reader.add_spec(reader.specs()[0], [], [])


def test_an_old_store_is_read_where_nothing_can_be_written(
    old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = old.read_bytes()
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may write anywhere
    assert_the_same(old.parent, read_only=True)
    assert old.read_bytes() == before
    assert [path.name for path in old.parent.iterdir()] == [FILE_NAME]


def test_an_old_store_is_migrated_when_it_is_opened_for_writing(old: Path) -> None:
    Store.create(old.parent).close()
    assert raw(old)["meta"][-1] == ("schema_version", "4")
    assert_the_same(old.parent, read_only=True)
    once = raw(old)
    assert_the_same(old.parent, read_only=False)
    assert raw(old) == once  # nothing is left to migrate


def test_a_migrated_store_has_the_schema_of_a_new_one(old: Path, tmp_path: Path) -> None:
    Store.create(old.parent).close()
    Store.create(tmp_path / "new").close()

    def inside(path: Path) -> set[tuple[str, ...]]:
        with closing(sqlite3.connect(path)) as connection:
            rows = connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_master")
            return set(rows.fetchall())

    assert inside(old) == inside(tmp_path / "new" / FILE_NAME)


def test_a_migrated_store_goes_on_as_any_other(old: Path) -> None:
    with Store.create(old.parent) as store:
        failed = next(store.runs(status="failed"))
        done = next(run for run in store.runs(status="done") if run.learner == "psrl")
        with pytest.raises(FileProblem, match="is done and is not overwritten"):
            store.add_run(done)
        store.add_run(replace(done, key=failed.key, seed=failed.seed), store.curve(done.key))
        assert store.keys("failed") == set()
        np.testing.assert_array_equal(
            store.curve(failed.key).values["regret"], store.curve(done.key).values["regret"]
        )


def test_an_old_store_has_frames(old: Path) -> None:
    with Results.open(old.parent) as results:
        runs = results.runs_table()
        # The failed run of the dump is one that no spec asks for.
        assert sorted(runs["role"]) == ["learner"] * 2 + ["lower"] * 2 + ["upper"] * 2
        assert not np.isnan(runs["gap_regret"]).any()


def downgraded(directory: Path) -> Path:
    """Make the store of a sweep one of version 3, with the triggers that 0.2.0 created."""
    path = directory / FILE_NAME
    triggers = re.findall(r"CREATE TRIGGER .*?END;", DUMP.read_text(), re.S)
    with closing(sqlite3.connect(path)) as connection:
        for table in ("requests", "run_sources", "run_code", "sources"):
            connection.execute(f"DROP TABLE {table}")
        for (spec,) in connection.execute("SELECT hash FROM specs").fetchall():
            digest = hashlib.sha256()
            for query in (
                "SELECT * FROM specs WHERE hash = ?",
                "SELECT * FROM members WHERE spec = ? ORDER BY position",
            ):
                digest.update(ascii(connection.execute(query, (spec,)).fetchall()).encode("ascii"))
            connection.execute(
                "UPDATE digests SET digest = ? WHERE kind = 'spec'", (digest.hexdigest(),)
            )
        connection.execute("UPDATE meta SET value = '3' WHERE key = 'schema_version'")
        connection.executescript("".join(triggers))
        connection.commit()
    assert len(triggers) > 3
    return path


def test_a_sweep_finds_the_runs_of_an_old_store_done(tmp_path: Path) -> None:
    spec = parse_spec("""
        steps = 30
        seeds = 2
        problems = ["circle:2"]
        learners = ["psrl", "oracle", "random"]
    """)
    run_sweep(spec, tmp_path, workers=InThisProcess())
    with Store.open(tmp_path) as store:
        before = {run.key: run for run in store.runs()}
    path = downgraded(tmp_path)
    assert raw(path)["meta"][-1] == ("schema_version", "3")
    with Store.open(path.parent) as reader:
        assert {run.key: run for run in reader.runs()} == before
    summary = run_sweep(spec, path.parent, workers=InThisProcess())
    assert (summary.done, summary.already) == (6, 6)
    with Store.open(path.parent) as store:
        assert {run.key: run for run in store.runs()} == before
    with closing(sqlite3.connect(path)) as connection:
        query = "SELECT count(*) FROM sqlite_master WHERE type = 'trigger'"
        assert connection.execute(query).fetchone() == (0,)
    more = parse_spec(spec.text.replace("seeds = 2", "seeds = 3"))
    assert run_sweep(more, path.parent, workers=InThisProcess()).already == 6


def test_killed_in_the_middle_of_a_migration_nothing_is_lost(old: Path) -> None:
    """The process is killed when all is migrated, before the commit."""
    program = textwrap.dedent("""
        import os, signal, sys
        from fmdp.experiments import schema
        from fmdp.experiments.store import Store
        whole = schema.MIGRATIONS[3]
        def killed(connection):
            whole(connection)
            names = {row[0] for row in connection.execute("SELECT name FROM sqlite_master")}
            assert "requests" in names
            os.kill(os.getpid(), signal.SIGKILL)
        schema.MIGRATIONS[3] = killed
        Store.create(sys.argv[1])
    """)
    ended = subprocess.run([sys.executable, "-c", program, str(old.parent)], check=False)
    assert ended.returncode == -signal.SIGKILL
    assert raw(old)["meta"][-1] == ("schema_version", "3")
    assert_the_same(old.parent, read_only=True)
    assert_the_same(old.parent, read_only=False)  # and now it goes through


def test_a_migration_that_fails_leaves_the_old_store(
    old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = raw(old)

    def broken(connection: sqlite3.Connection) -> None:
        connection.execute("DELETE FROM members")
        raise sqlite3.OperationalError("disk is full")

    monkeypatch.setitem(schema.MIGRATIONS, 3, broken)
    with pytest.raises(FileProblem, match="cannot be brought to schema version 4: disk is full"):
        Store.create(old.parent)
    assert raw(old) == before


def test_a_migration_that_would_leave_rows_without_their_run_is_undone(
    old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = schema.MIGRATIONS[3]

    def forgetful(connection: sqlite3.Connection) -> None:
        whole(connection)
        schema.remove_triggers(connection)
        connection.execute("DELETE FROM runs WHERE learner = 'oracle'")

    monkeypatch.setitem(schema.MIGRATIONS, 3, forgetful)
    with pytest.raises(FileProblem, match="refers to nothing in runs"):
        Store.create(old.parent)
    assert raw(old)["meta"][-1] == ("schema_version", "3")
    monkeypatch.undo()
    assert_the_same(old.parent, read_only=False)


def test_a_store_that_is_being_written_is_not_migrated_under_the_writer(old: Path) -> None:
    lock = sqlite3.connect(old.with_suffix(".lock"), isolation_level=None)
    lock.execute("BEGIN EXCLUSIVE")  # as a sweep of an older fmdp holds it
    try:
        with pytest.raises(FileProblem, match="another process is writing"):
            Store.create(old.parent)
        assert_the_same(old.parent, read_only=True)  # readers are not kept out
    finally:
        lock.close()
    assert raw(old)["meta"][-1] == ("schema_version", "3")
