"""What `fmdp report` writes and prints, and how it refuses."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import fmdp
from fmdp.cli import main
from fmdp.experiments.dataset import gather
from fmdp.experiments.store import Store
from fmdp.reports import figures
from fmdp.reports.report import write_report

TABLES = {"cells.csv", "comparisons.csv", "curves.csv", "runs.csv", "standings.csv", "slopes.csv"}


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures have tests of their own; one format is enough here."""
    monkeypatch.setattr(figures, "FORMATS", ("svg",))


@pytest.fixture
def without_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [*filter(lambda name: name.startswith("matplotlib"), sys.modules), "matplotlib"]:
        monkeypatch.setitem(sys.modules, name, None)


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.usefixtures("quick")
def test_files_and_printed_table(
    two_problems: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "new" / "folder"
    assert main(["report", str(two_problems), "--out", str(out)]) == 0
    printed = capsys.readouterr()
    # On a machine under load the work may take long enough to be told.
    assert all(line.startswith("report of ") for line in printed.err.splitlines())
    names = {path.name for path in out.iterdir()}
    drawn = {"regret", "regret-linear", "gap-regret", "gap-regret-linear", "figure-2", "standings"}
    drawn |= {"slopes"}
    assert names == TABLES | {f"{name}.svg" for name in drawn} | {
        "index.html",
        "captions.txt",
        "paper.txt",
    }
    assert str(out / "index.html") in printed.out
    with Store.open(two_problems) as store:
        cell = gather(store).cells[0]
    ends = cell.ends("regret")
    assert ends is not None
    line = next(line for line in printed.out.splitlines() if line.startswith("PSRL "))
    assert f" {np.median(ends):,.0f} ({ends.mean():,.0f}, {ends.max():,.0f}) " in line


@pytest.mark.usefixtures("without_matplotlib")
def test_without_matplotlib_all_but_the_figures_and_status_1(
    two_problems: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(two_problems), "--out", str(tmp_path)]) == 1
    error = capsys.readouterr().err
    assert error.startswith("fmdp: figures need Matplotlib")
    assert "fmdp[plots]" in error
    assert error.count("\n") == 1
    assert {path.name for path in tmp_path.iterdir()} == {*TABLES, "index.html", "paper.txt"}


@pytest.mark.usefixtures("without_matplotlib")
def test_tables_as_latex(
    two_problems: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["report", str(two_problems), "--out", str(tmp_path), "--latex"])
    assert "standings.tex" in capsys.readouterr().out
    with fmdp.load_results(two_problems) as results:
        for name in ("standings", "summary", "comparisons", "slopes"):
            text = (tmp_path / f"{name}.tex").read_text()
            assert text == results.latex(name)
            columns = text.splitlines()[3].count(" & ")
            body = text.splitlines()[5:-2]
            assert all(line.endswith(r" \\") for line in body)
            assert {line.count(" & ") for line in body} == {columns}
    # A report without LaTeX replaces one with it.
    main(["report", str(two_problems), "--out", str(tmp_path)])
    assert not list(tmp_path.glob("*.tex"))


@pytest.mark.usefixtures("without_matplotlib")
def test_json_is_one_object(
    two_problems: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["report", str(two_problems), "--out", str(tmp_path), "--json"])
    found = json.loads(capsys.readouterr().out)
    assert found["page"] == str(tmp_path / "index.html")
    assert len(found["cells"]) == 12
    assert found["cells"][0]["regret"]["median"] <= found["cells"][0]["regret"]["worst"]
    # Five runs: no interval of the median, one of the mean.
    assert found["cells"][0]["regret"]["interval"] is None
    low, high = found["cells"][0]["regret"]["mean_interval"]
    assert low < found["cells"][0]["regret"]["mean"] < high


@pytest.mark.usefixtures("without_matplotlib")
def test_tables_hold_every_number(two_problems: Path, tmp_path: Path) -> None:
    written = write_report(two_problems, tmp_path)
    runs = {(r["problem"], r["label"], int(r["seed"])): r for r in rows(tmp_path / "runs.csv")}
    with Store.open(two_problems) as store:
        for run in store.runs():
            row = next(r for r in runs.values() if r["key"] == run.key)
            assert float(row["regret"]) == run.measures["regret"]
            assert float(row["gap_regret"]) == run.measures["gap_regret"]
    assert len(runs) == 60
    cells = rows(tmp_path / "cells.csv")
    assert [float(row["median"]) for row in cells] == [
        summary.median
        for found in written.analysis.summaries
        for summary in found.by_measure.values()
    ]
    comparisons = rows(tmp_path / "comparisons.csv")
    assert len(comparisons) == 2 * 2 * 15
    assert {row["comparisons_in_question"] for row in comparisons} == {"15"}
    for row in (*cells, *comparisons):
        assert (row["interval_low"], row["interval_high"]) == ("", "")
        assert row["interval_note"] == "n too small"
        assert float(row["mean_low"]) <= float(row["mean_high"])
    curves = rows(tmp_path / "curves.csv")
    assert {row["t"] for row in curves} == {str(t) for t in written.runs.cells[0].t}


@pytest.mark.usefixtures("without_matplotlib")
def test_the_same_store_gives_the_same_bytes(two_problems: Path, tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_report(two_problems, tmp_path / name)
    for path in (tmp_path / "one").iterdir():
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes()


def no_store(folder: Path) -> str:
    return "there is no such file"


def half_a_store(folder: Path) -> str:
    (folder / "runs.sqlite").write_bytes(b"SQLite format 3\0" + bytes(40))
    return "runs.sqlite"


def text_file(folder: Path) -> str:
    (folder / "runs.sqlite").write_text("hello")
    return "is not a SQLite file"


@pytest.mark.parametrize("prepare", [no_store, half_a_store, text_file])
def test_what_is_no_store_is_refused_in_one_line(
    prepare: Callable[[Path], str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = prepare(tmp_path)
    before = sorted(tmp_path.iterdir())
    assert main(["report", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert error.startswith("fmdp: ")
    assert words in error
    assert error.count("\n") == 1
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.usefixtures("without_matplotlib")
def test_a_place_that_cannot_be_written_is_refused(
    two_problems: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "taken").write_text("a file")
    assert main(["report", str(two_problems), "--out", str(tmp_path / "taken")]) == 2
    assert "is no directory; must be one" in capsys.readouterr().err


@pytest.mark.usefixtures("without_matplotlib")
def test_mixed_versions_are_said_aloud(
    made: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made.make_store(tmp_path, problems=["circle:3"], learners=made.LEARNERS[:1], steps=20)
    made.make_store(
        tmp_path, problems=["circle:3"], learners=made.LEARNERS[1:2], steps=20, results_version=2
    )
    main(["report", str(tmp_path)])
    words = "Results versions are mixed: 5 of version 1, 5 of version 2."
    assert words in capsys.readouterr().out
    assert words in (tmp_path / "report" / "index.html").read_text()
