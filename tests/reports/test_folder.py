"""A report is replaced whole, and text from users is text wherever it is shown."""

from __future__ import annotations

import csv
import io
import signal
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from fmdp.cli import main
from fmdp.errors import FileProblem
from fmdp.experiments.store import FILE_NAME, Store
from fmdp.reports import folder
from fmdp.reports.folder import Replacement
from fmdp.reports.report import is_ours, write_report
from fmdp.reports.tables import as_csv


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def any_name(name: str) -> bool:
    return True


def test_the_old_files_go_when_the_new_come(tmp_path: Path) -> None:
    target = tmp_path / "report"
    for new in ({"a": "1", "b": "1"}, {"b": b"2"}):
        with Replacement(target, any_name) as replacement:
            replacement.write(new)
    assert contents(target) == {"b": b"2"}
    assert list(tmp_path.iterdir()) == [target]  # nothing is left beside it


def test_until_all_is_written_the_old_report_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "report"
    with Replacement(target, any_name) as replacement:
        replacement.write({"a": "1", "b": "1"})
    genuine = folder.write_atomically

    def fails(path: Path, content: str | bytes) -> None:
        if path.name == "b":
            raise KeyboardInterrupt
        genuine(path, content)

    monkeypatch.setattr(folder, "write_atomically", fails)
    with pytest.raises(KeyboardInterrupt), Replacement(target, any_name) as replacement:
        replacement.write({"a": "2", "b": "2"})
    assert contents(target) == {"a": b"1", "b": b"1"}
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.slow
@pytest.mark.parametrize("exchange", [True, False])
def test_killed_at_any_file_it_is_the_old_report_or_the_new(tmp_path: Path, exchange: bool) -> None:
    """Killed before the nth call that changes the disk, for every n; then a writer cleans up."""
    program = textwrap.dedent("""
        import os, pathlib, signal, sys
        from fmdp.reports import folder
        target, last, exchange = pathlib.Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "True"
        if not exchange:
            folder._exchanged = lambda one, other: False
        calls = 0
        def counted(event, args):
            global calls
            if event in ("os.rename", "os.remove", "os.rmdir", "os.mkdir", "shutil.rmtree"):
                calls += 1
                if calls == last:
                    os.kill(os.getpid(), signal.SIGKILL)
        sys.addaudithook(counted)
        with folder.Replacement(target, lambda name: True) as replacement:
            replacement.write({"a": "2", "b": "2"})
    """)
    target = tmp_path / "report"
    old, new = {"a": b"1", "b": b"1"}, {"a": b"2", "b": b"2"}
    seen = []
    for last in range(1, 40):
        with Replacement(target, any_name) as replacement:
            replacement.write({"a": "1", "b": "1"})
        assert list(tmp_path.iterdir()) == [target]  # the kill's leftovers are gone
        words = [sys.executable, "-c", program, str(target), str(last), str(exchange)]
        status = subprocess.run(words, check=False, timeout=300).returncode
        # Without an exchange there is a moment without any report; there is none with two in one.
        seen.append(contents(target) if exchange or target.exists() else old)
        assert seen[-1] in (old, new)
        if status == 0:
            break
        assert status == -signal.SIGKILL
    assert seen[0] == old
    assert seen[-1] == new
    assert len(seen) > 4


def test_a_directory_with_other_files_is_refused_before_the_work(
    two_problems: Path, tmp_path: Path
) -> None:
    mine = tmp_path / "notes.md"
    mine.write_text("mine")
    with pytest.raises(FileProblem, match=r"holds 'notes\.md', which is no part of a report"):
        write_report(two_problems, tmp_path)
    assert contents(tmp_path) == {"notes.md": b"mine"}
    with pytest.raises(FileProblem, match="is no directory"):
        write_report(two_problems, mine)
    (tmp_path / "directory").mkdir()
    mine.unlink()
    with pytest.raises(FileProblem, match="holds 'directory'"):
        write_report(two_problems, tmp_path)


def test_an_unwritable_target_is_noticed_before_the_work(
    two_problems: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fmdp.reports.report.gather", lambda store: pytest.fail("the work"))
    with pytest.raises(FileProblem, match="cannot be written"):
        write_report(two_problems, "/proc/nowhere/report")


@pytest.mark.slow
def test_everything_that_a_report_writes_is_known_as_its_own(
    two_problems: Path, tmp_path: Path
) -> None:
    written = write_report(two_problems, tmp_path / "report")
    assert all(is_ours(path.name) for path in written.files)
    (tmp_path / "report" / "figure-2.png").write_bytes(b"of an older report")
    write_report(two_problems, tmp_path / "report")
    assert {path.name for path in (tmp_path / "report").iterdir()} == {
        path.name for path in written.files
    }


@pytest.mark.slow
def test_a_report_leaves_the_store_as_it_was(two_problems: Path, tmp_path: Path) -> None:
    before = contents_of_files(two_problems)
    write_report(two_problems, tmp_path / "report")
    assert contents_of_files(two_problems) == before


def contents_of_files(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.is_file()}


HOSTILE = (
    "$x_",
    "$\\frac{$",
    "_under",
    "=1+1",
    "漢字 🎲 ‮",
    "a\x1b[31mred",
    "</script><b>",
    "{0}%s",
)


@pytest.fixture(scope="module")
def hostile(made: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    learners = [
        replace(made.LEARNERS[0], label=label, learner=f"own{n}", parameters={"n": n})
        for n, label in enumerate(HOSTILE)
    ]
    model = made.problem("circle:2")
    named = [replace_name(model, name) for name in ("$a_{", "@SUM(1)")]
    directory: Path = made.make_store(
        tmp_path_factory.mktemp("hostile"), problems=named[:1], learners=learners, steps=40
    )
    return directory


def replace_name(model: object, name: str) -> object:
    from fmdp.model.io.files import dumps, loads

    text = dumps(model).replace('"name": "circle:2"', f'"name": "{name}"')  # type: ignore[arg-type]
    return loads(text)


@pytest.mark.slow
def test_any_label_is_drawn_and_written(
    hostile: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(hostile), "--out", str(tmp_path / "report")]) == 0
    shown = capsys.readouterr()
    assert "\x1b" not in shown.out + shown.err
    assert "a\\x1b[31mred" in shown.out
    assert "Warning" not in shown.err
    rows = list(csv.DictReader(io.StringIO((tmp_path / "report" / "cells.csv").read_text())))
    assert {row["label"] for row in rows} == {("'" if x[0] == "=" else "") + x for x in HOSTILE}
    drawn = (tmp_path / "report" / "regret.svg").read_text()
    assert "<svg" in drawn
    assert "</script><b>" not in (tmp_path / "report" / "index.html").read_text()


def test_cells_that_begin_like_a_formula_are_marked_and_numbers_are_not() -> None:
    rows = [["=1", "+1", "-1", "@x", "\tx", "x=1", -1.5, None]]
    _, line = as_csv(["a"] * 8, rows).splitlines()
    assert line == "'=1,'+1,'-1,'@x,'\tx,x=1,-1.5,"


@pytest.mark.parametrize("command", ["report", "sweep"])
def test_damage_and_locks_end_with_status_2_and_one_line(
    two_problems: Path, tmp_path: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / FILE_NAME).write_bytes((two_problems / FILE_NAME).read_bytes()[:-1500])
    spec = tmp_path / "spec.toml"
    spec.write_text('steps = 5\nseeds = 1\nproblems = ["circle:2"]\nlearners = ["random"]\n')
    words = {
        "report": ["report", str(tmp_path)],
        "sweep": ["sweep", str(spec), "--out", str(tmp_path)],
    }
    assert main(words[command]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.count("\n") == 1
    assert FILE_NAME in shown.err


def test_a_damaged_run_ends_a_report_with_one_line_that_names_it(
    made: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made.make_store(tmp_path, problems=["circle:2"], steps=40)
    with Store.create(tmp_path) as store:
        key = next(store.runs()).key
        store._connection.execute("DELETE FROM digests WHERE name = ?", (key,))
    assert main(["report", str(tmp_path)]) == 2
    shown = capsys.readouterr()
    assert shown.err.count("\n") == 1
    assert key in shown.err
    assert not (tmp_path / "report").exists()
