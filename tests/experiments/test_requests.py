"""Runs of a user's own code stay visible: the code that was asked for last is what is shown, the
store keeps its source, and a spec can be forgotten without losing a run."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

import fmdp
from fmdp import Results, load_results
from fmdp.cli import main
from fmdp.errors import FileProblem, UnknownName
from fmdp.experiments import schema
from fmdp.experiments.store import FILE_NAME, Damaged, Store
from fmdp.reports.report import write_report

RULE = """
def rule(state):
    # A comment.
    return len(state)
"""
OTHER_RULE = RULE.replace("return len(state)", "return 0")

Load = Callable[[str], ModuleType]


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Load:
    """Write and import a module of this text, anew at every call."""
    import importlib
    import linecache
    import sys

    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def loaded(text: str) -> ModuleType:
        (tmp_path / "own_rule.py").write_text(text)
        sys.modules.pop("own_rule", None)
        importlib.invalidate_caches()
        linecache.clearcache()
        return importlib.import_module("own_rule")

    return loaded


def sweep(module: ModuleType, out: Path, seeds: int, label: str = "mine") -> Results:
    return fmdp.sweep(
        "circle:2",
        {label: module.rule},
        seeds=seeds,
        steps=5,
        out=out,
        workers=0,
        progress=None,
    )


def test_runs_are_back_after_an_edit_is_tried_and_reverted(load: Load, tmp_path: Path) -> None:
    """The finding: ten runs, a trial of one seed with edited code, the edit reverted."""
    out = tmp_path / "out"
    first = sweep(load(RULE), out, 10).runs_table()
    trial = sweep(load(OTHER_RULE), out, 1)
    assert len(trial.runs_table()["key"]) == 1  # the code that was asked for last
    assert "1 done, 0 failed, 0 not there yet; 10 older not shown" in repr(trial)
    again = sweep(load(RULE), out, 10)
    assert again.runs_table()["key"].tolist() == first["key"].tolist()
    assert again.runs_table()["regret"].tolist() == first["regret"].tolist()
    assert again.runs_table("sweep")["key"].tolist() == first["key"].tolist()
    report = write_report(out)
    (cell,) = report.runs.cells
    assert len(cell.runs) == 10
    page = report.page.read_text()
    assert page.count("Code of own_rule, for circle:2: mine") == 1
    assert page.count("def rule(state):") == 1
    assert "return len(state)" in page
    with Store.open(out) as store:
        assert len(store.keys("done")) == 11  # the trial is kept


def test_a_comment_is_no_reason_to_run_again(load: Load, tmp_path: Path) -> None:
    out = tmp_path / "out"
    first = sweep(load(RULE), out, 2).runs_table()["key"].tolist()
    edited = sweep(load(RULE.replace("A comment.", "Another comment.")), out, 3)
    assert edited.runs_table()["key"].tolist()[:2] == first
    with Store.open(out) as store:
        assert len(store.keys("done")) == 3
    # Each run has the text that it was made with.
    texts = [edited.sources(key)["own_rule"] for key in edited.runs_table()["key"]]
    assert texts[:2] == [RULE, RULE]
    assert "Another comment." in texts[2]


def test_the_source_of_every_run_is_kept(load: Load, tmp_path: Path) -> None:
    out = tmp_path / "out"
    sweep(load(RULE), out, 1)
    results = sweep(load(OTHER_RULE), out, 1)
    with Store.open(out) as store:
        runs = list(store.runs())
        texts = {run.code["own_rule:rule"]: store.sources(run.key) for run in runs}
    assert sorted(text["own_rule"] for text in texts.values()) == sorted([RULE, OTHER_RULE])
    with pytest.raises(UnknownName, match="has no run"):
        results.sources("a" * 64)
    assert Results.open(out).sources(runs[0].key) == texts[runs[0].code["own_rule:rule"]]
    fmdp.sweep("circle:2", "random", seeds=1, steps=5, out=out, workers=0, progress=None)
    with Store.open(out) as store:
        (own,) = [run for run in store.runs() if run.learner == "random"]
        assert (own.code, store.sources(own.key)) == ({}, {})


def test_a_source_that_has_changed_on_the_disk_is_damaged(load: Load, tmp_path: Path) -> None:
    (key,) = sweep(load(RULE), tmp_path / "out", 1).runs_table()["key"]
    with closing(sqlite3.connect(tmp_path / "out" / FILE_NAME)) as connection, connection:
        connection.execute("UPDATE run_code SET digest = 'another'")
    with Store.open(tmp_path / "out") as store, pytest.raises(Damaged, match="by its digest"):
        store.sources(key)


def test_the_label_of_the_spec_that_was_asked_for_last_counts(load: Load, tmp_path: Path) -> None:
    out = tmp_path / "out"
    sweep(load(RULE), out, 2)
    renamed = sweep(load(RULE), out, 2, label="new name")
    assert set(renamed.runs_table()["label"]) == {"new name"}
    back = sweep(load(RULE), out, 2)
    assert set(back.runs_table()["label"]) == {"mine"}


# ---- forgetting ------------------------------------------------------------------------------


def test_a_forgotten_spec_is_not_shown_and_nothing_is_lost(load: Load, tmp_path: Path) -> None:
    out = tmp_path / "out"
    sweep(load(RULE), out, 3)
    results = sweep(load(OTHER_RULE), out, 1)
    old, trial = results.specs_table()["hash"]
    assert results.forget(trial[:8]) == 1
    assert len(results.runs_table()["key"]) == 3  # the trial does not count any more
    assert results.specs_table()["forgotten"].tolist() == [False, True]
    assert results.forget(old) == 3
    assert len(results.runs_table()["key"]) == 0
    with Store.open(out) as store:
        assert len(store.keys("done")) == 4
    # The same sweep again brings it back, and makes no run.
    again = sweep(load(RULE), out, 3)
    assert len(again.runs_table()["key"]) == 3
    with Store.open(out) as store:
        assert len(store.keys("done")) == 4


def test_runs_that_another_spec_asks_for_stay(load: Load, tmp_path: Path) -> None:
    out = tmp_path / "out"
    sweep(load(RULE), out, 2)
    results = sweep(load(RULE), out, 5)
    small, large = results.specs_table()["hash"]
    assert results.forget(small) == 0
    assert len(results.runs_table()["key"]) == 5
    assert results.forget(large, delete_runs=True) == 3  # the small spec may be asked for again
    with Store.open(out) as store:
        assert len(store.keys("done")) == 2
        assert store.damaged() == {}
    assert results.forget(small, delete_runs=True) == 2
    with closing(sqlite3.connect(out / FILE_NAME)) as connection:
        tables = ("runs", "measures", "curves", "recordings", "run_code", "sources", "specs")
        counts = {t: connection.execute(f"SELECT count(*) FROM {t}").fetchone()[0] for t in tables}
        kinds = connection.execute("SELECT DISTINCT kind FROM digests").fetchall()
    assert counts == dict.fromkeys(tables, 0)
    assert kinds == [("model",)]
    assert len(sweep(load(RULE), out, 2).runs_table()["key"]) == 2  # and it can begin anew


def test_runs_of_an_older_results_version_are_hidden_with_their_cell(
    load: Load, tmp_path: Path
) -> None:
    """Such a run is of no spec any more: the same spec asks for the new version now."""
    out = tmp_path / "out"
    sweep(load(RULE), out, 1)
    results = fmdp.sweep("circle:2", "random", seeds=1, steps=5, out=out, workers=0, progress=None)
    with Store.create(out) as store:
        (run,) = [one for one in store.runs() if one.learner == "random"]
        older = replace(run, key="a" * 64, seed=1, results_version=run.results_version - 1)
        store.add_run(older, store.curve(run.key))
    assert sorted(results.runs_table()["label"]) == ["mine", "random", "random"]
    results.forget(results.specs_table()["hash"][-1])
    assert results.runs_table()["label"].tolist() == ["mine"]


def test_what_cannot_be_forgotten_is_said_in_one_line(load: Load, tmp_path: Path) -> None:
    out = tmp_path / "out"
    sweep(load(RULE), out, 1)
    results = sweep(load(OTHER_RULE), out, 1)
    with pytest.raises(UnknownName, match=r"has 2 specs 'sweep'; say which by its hash: [0-9a-f]+"):
        results.forget("sweep")
    with pytest.raises(UnknownName, match=r"has no spec 'swep'.*did you mean"):
        results.forget("swep")
    with (
        Store.open(out, read_only=False) as store,
        store.writing(),
        pytest.raises(FileProblem, match="another process is writing"),
    ):
        results.forget(results.specs_table()["hash"][0])


def test_the_command_lists_specs_and_forgets_one(
    load: Load, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    sweep(load(RULE), out, 2)
    sweep(load(OTHER_RULE), out, 1)
    assert main(["forget", str(out)]) == 0
    shown = capsys.readouterr().out
    assert shown.splitlines()[0].split()[:4] == ["spec", "hash", "runs", "done"]
    assert shown.count("sweep") == 2
    assert main(["forget", str(out), "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [spec["done"] for spec in listed["specs"]] == [2, 1]
    trial = listed["specs"][1]["hash"]
    assert main(["forget", str(out), trial[:10], "--delete-runs", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["runs"], said["deleted"], len(said["specs"])) == (1, True, 1)
    assert len(load_results(out).runs_table()["key"]) == 2
    assert main(["forget", str(out), "sweep"]) == 0
    assert "2 hidden, but kept in the store" in capsys.readouterr().out
    assert main(["forget", str(out), "--delete-runs"]) == 2
    assert main(["forget", str(tmp_path / "nowhere")]) == 2


# ---- stores of version 3 ---------------------------------------------------------------------


def as_version_3(path: Path) -> None:
    """Take away what version 4 added, as fmdp 0.2 would have written the store."""
    from fmdp.experiments import digests

    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN")
        for table in ("run_sources", "run_code", "sources", "requests"):
            connection.execute(f"DELETE FROM {table}")
        for kind, name in connection.execute("SELECT kind, name FROM digests").fetchall():
            digests.note(connection, kind, name)
        for table in ("run_sources", "run_code", "sources", "requests"):
            connection.execute(f"DROP TABLE {table}")
        connection.execute("UPDATE meta SET value = '3' WHERE key = 'schema_version'")
        connection.execute("COMMIT")


def test_a_store_of_version_3_keeps_its_runs_and_learns_their_code(
    load: Load, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    sweep(load(RULE), out, 3)
    with Store.open(out) as store:
        before = {run.key: run for run in store.runs()}
    as_version_3(out / FILE_NAME)
    with Store.open(out) as store:
        assert {run.key: run for run in store.runs()} == before  # the code too, from the spec
        assert [spec.forgotten for spec in store.specs()] == [False]
        assert store.damaged() == {}
        assert all(store.sources(key) == {} for key in before)
    sweep(load(OTHER_RULE), out, 1)
    assert len(sweep(load(RULE), out, 3).runs_table()["key"]) == 3


def test_a_damaged_run_of_version_3_stays_damaged(load: Load, tmp_path: Path) -> None:
    out = tmp_path / "out"
    key, *_ = sweep(load(RULE), out, 2).runs_table()["key"]
    as_version_3(out / FILE_NAME)
    with closing(sqlite3.connect(out / FILE_NAME, isolation_level=None)) as connection:
        schema.remove_triggers(connection)
        connection.execute(
            "UPDATE measures SET value = 0.5 WHERE run = ? AND name = 'gain'", (key,)
        )
    with Store.open(out) as store:
        assert store.damaged().keys() == {key}


def test_a_spec_of_a_store_of_version_3_can_be_forgotten(load: Load, tmp_path: Path) -> None:
    """Such a store is read from a copy, and brought up to date when it is written."""
    out = tmp_path / "out"
    sweep(load(RULE), out, 1).close()
    sweep(load(OTHER_RULE), out, 2).close()
    as_version_3(out / FILE_NAME)
    with load_results(out) as results:
        assert results.forget(results.specs_table()["hash"][-1]) == 2
        assert len(results.runs_table()["key"]) == 1
        assert results.specs_table()["forgotten"].tolist() == [False, True]
