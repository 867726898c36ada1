"""`fmdp compare`: what it runs, prints and refuses; who takes part is tested in experiments."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fmdp import Results
from fmdp.cli import main
from fmdp.experiments.executors import InThisProcess
from fmdp.experiments.spec import parse_spec
from fmdp.experiments.sweep import run_sweep
from fmdp.reports import figures

from .conftest import Ran

Runner = Callable[..., Ran]

KEYS = {
    "problems",
    "learners",
    "steps",
    "seeds",
    "runs",
    "seconds",
    "left_out",
    "standings",
    "winners",
    "overall",
    "sentences",
    "notes",
    "errors",
    "store",
    "page",
    "files",
}
ASKED = ("circle:2", "circle:14", "--learners", "psrl,dorl,c=0.1,ucrl2", "--learners", "oracle")
SMALL = ("--seeds", "2", "--steps", "40")


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs in this process, and figures in one format: both have tests of their own."""
    _hurry(monkeypatch)


def _hurry(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("fmdp.experiments.executors.Processes", lambda *_: InThisProcess())
    patch.setattr(figures, "FORMATS", ("svg",))


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory in which a comparison has been made."""
    out = tmp_path_factory.mktemp("compare") / "out"
    with pytest.MonkeyPatch.context() as patch:
        _hurry(patch)
        assert main(["compare", *ASKED, *SMALL, "--out", str(out)]) == 0
    return out


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_the_same_again_runs_nothing_and_says_all_in_one_object(
    compared: Path, run: Runner
) -> None:
    ran = run("compare", *ASKED, *SMALL, "--out", str(compared), "--json")
    assert ran.status == 0
    found = ran.json
    assert found.keys() == KEYS
    assert found["runs"] == {"total": 14, "done": 14, "failed": 0, "already": 14}
    assert found["learners"] == ["psrl", "dorl c=0.1", "ucrl2", "oracle"]
    (left_out,) = found["left_out"]
    assert (left_out["problem"], left_out["label"]) == ("circle:14", "ucrl2")
    assert "is flat: 16384 joint states" in left_out["reason"]
    assert all(Path(name).exists() for name in found["files"])
    check_standings(found, compared)


def check_standings(found: dict[str, Any], compared: Path) -> None:
    with Results.open(compared) as results:
        runs = results.runs_table()
    assert len(found["standings"]) == 7
    for row in found["standings"]:
        own = (runs["problem"] == row["problem"]) & (runs["label"] == row["label"])
        ends = runs["gap_regret"][own]
        assert row["measure"] == "gap_regret"
        assert (row["runs"], row["steps"], row["clock"]) == (2, 40, "processor")
        assert row["median"] == pytest.approx(np.median(ends))
        assert (row["mean"], row["worst"]) == (pytest.approx(ends.mean()), ends.max())
        assert row["seconds_per_step"] == pytest.approx(np.median(runs["cpu_seconds"][own]) / 40)
        assert row["planner_calls"] == np.median(runs["planner_calls"][own])
        assert row["unconverged_plans"] == runs["unconverged_plans"][own].sum()
    for winner in found["winners"]:
        own = [row for row in found["standings"] if row["problem"] == winner["problem"]]
        medians = [row["median"] for row in own]
        assert medians == sorted(medians)
        learning = [row for row in own if row["role"] == "learner"]
        assert winner["labels"][0] == learning[0]["label"]
        assert learning[0]["ratio"] == 1.0
        assert learning[0]["place"] == 1
    assert {row["label"]: row["problems"] for row in found["overall"]} == {
        "oracle": 2,
        "psrl": 2,
        "dorl c=0.1": 2,
        "ucrl2": 1,
    }
    written = rows(compared / "report" / "standings.csv")
    assert [row["label"] for row in written] == [row["label"] for row in found["standings"]]


def test_what_people_read(compared: Path, run: Runner) -> None:
    ran = run("compare", *ASKED, *SMALL, "--out", str(compared))
    assert ran.status == 0
    lines = ran.out.splitlines()
    assert lines[0] == "learners  4: psrl, dorl c=0.1, ucrl2, oracle"
    assert lines[2] == "runs      14 of 40 steps, 2 per learner and problem"
    refused = next(line for line in lines if line.startswith("ucrl2 "))
    assert "circle:14" in refused
    assert "is flat" in refused
    assert any(line.startswith("circle:2: gap regret after 40 steps, processor") for line in lines)
    assert any(line.startswith(("1   psrl ", "1   dorl")) for line in lines)
    assert any(line.startswith("ucrl2") and " 1 of 2 " in line for line in lines)
    assert "(14 were done before)" in ran.out
    (left_out,) = rows(compared / "report" / "left-out.csv")
    assert left_out["label"] == "ucrl2"
    page = (compared / "report" / "index.html").read_text()
    assert ">Standings</h2>" in page
    assert "ucrl2 on circle:14: learner ucrl2 is flat" in page


@pytest.mark.slow
def test_of_many_problems_a_line_each(tmp_path: Path, run: Runner) -> None:
    problems = ("circle:2", "circle:3", "star:3", "tree:3", "jao:1", "jao:2", "riverswim:1")
    learners = ("--learners", "psrl,random")
    ran = run(
        "compare", *problems, *learners, "--seeds", "1", "--steps", "5", "--out", str(tmp_path)
    )
    assert ran.status == 0
    lines = ran.out.splitlines()
    for name in problems:
        (line,) = [line for line in lines if line.startswith(f"{name} ")]
        assert " psrl " in line
        assert "no other learner is there" in line
    assert not any(line.startswith("circle:2: ") for line in lines)


def test_the_report_is_about_what_was_asked(tmp_path: Path, run: Runner) -> None:
    """Another sweep's runs in the same store are used where they are the same, and not told of."""
    other = 'steps = 20\nseeds = 2\nproblems = ["circle:2", "jao:1"]\nlearners = ["psrl", "random"]'
    run_sweep(parse_spec(other), tmp_path, workers=InThisProcess())
    asked = ("circle:2", "--learners", "random,psrl", "--seeds", "3", "--steps", "20", "--json")
    ran = run("compare", *asked, "--out", str(tmp_path))
    assert ran.status == 0
    assert ran.json["runs"] == {"total": 6, "done": 6, "failed": 0, "already": 4}
    assert {row["problem"] for row in ran.json["standings"]} == {"circle:2"}
    assert {row["problem"] for row in rows(tmp_path / "report" / "runs.csv")} == {"circle:2"}


def test_a_run_that_fails_is_status_1(folder: Path, run: Runner) -> None:
    Path("odd.py").write_text(
        "import fmdp\n"
        "class Odd(fmdp.Learner):\n"
        '    """Fails."""\n'
        "    def decide(self, agent):\n"
        "        raise RuntimeError('no idea')\n"
    )
    asked = ("circle:2", "--learners", "random,odd:Odd", "--seeds", "1", "--steps", "5", "--json")
    ran = run("compare", *asked, "--out", str(folder / "out"))
    assert ran.status == 1
    (error,) = ran.json["errors"].values()
    assert error.strip().endswith("RuntimeError: no idea")


def refused(run: Runner, tmp_path: Path, *arguments: str) -> str:
    out = tmp_path / "never"
    line = run("compare", *arguments, "--out", str(out)).refusal
    assert not out.exists()
    return line


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("circle:3", "--learners", "psrll"), 'did you mean "psrl"?'),
        (("circle:3", "--learners", "psrl,c=-1"), "'c' parameter of learner psrl"),
        (("circle:3", "--learners", "psrl,psrl,c=0.75"), "are the same learner on circle:3"),
        (("circle:3", "--learners", ""), "unknown learner ''"),
        (("--suite", "wider"), "no suite 'wider'; there are paper, wide, theory"),
        (("circle:3", "--suite", "wide"), "(paper, wide, theory), one of the two; got both"),
        ((), "problems or a suite (paper, wide, theory), one of the two; got neither"),
        (("circle:3", "--seeds", "0"), "'--seeds' parameter of fmdp compare must be"),
        (("circle:3", "--steps", "0"), "'--steps' parameter of fmdp compare must be"),
        (("circle:3", "--steps", "many"), "'--steps' parameter of fmdp compare must be"),
        (("circl:3",), 'did you mean "circle"?'),
        (("circle:3", "circle:3"), "given twice"),
        (
            ("circle:14", "--learners", "psrl,ucrl2"),
            "ucrl2 does not fit the problem: learner ucrl2 is flat: 16384 joint states",
        ),
        (
            ("circle:20", "circle:21", "--learners", "fsrl"),
            "fsrl fits none of the 2 problems: learner fsrl plans over all states",
        ),
        (("circle:3", "--workers", "2", "--dask", "tcp://nowhere:1"), "exclude each other"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line(
    arguments: tuple[str, ...], told: str, tmp_path: Path, run: Runner
) -> None:
    assert told in refused(run, tmp_path, *arguments)


def test_no_workers_are_refused(
    tmp_path: Path, run: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    assert "at least 1; got 0" in refused(run, tmp_path, "circle:3", "--workers", "0")


def test_an_out_that_is_a_file_is_refused_and_stays(tmp_path: Path, run: Runner) -> None:
    out = tmp_path / "taken"
    out.write_text("mine")
    asked = ("circle:2", "--learners", "random", *SMALL, "--out", str(out))
    assert str(out) in run("compare", *asked).refusal
    assert out.read_text() == "mine"


def test_where_nobody_fits_it_is_refused(
    tmp_path: Path, run: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The optimal policy and random actions alone are no comparison."""
    monkeypatch.setattr("fmdp.experiments.comparison.incompatibility", lambda learner, model: (
        None if learner.role in ("upper", "lower") else f"{learner.owner()} cannot"
    ))  # fmt: skip
    assert "no learner fits: default on circle:3, for one: learner default cannot" in refused(
        run, tmp_path, "circle:3"
    )


def test_ctrl_c_says_how_to_go_on(
    tmp_path: Path, run: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("fmdp.experiments.sweep.run_sweep", interrupted)
    ran = run(
        "compare", "circle:2", "--learners", "random", *SMALL, "--out", str(tmp_path), "--json"
    )
    assert ran.status == 130
    assert ran.out == ""
    assert f"finished runs are in {tmp_path}: the same command continues" in ran.err


def test_json_is_json(compared: Path, run: Runner) -> None:
    """No NaN, and nothing beside the object."""
    ran = run("compare", *ASKED, *SMALL, "--out", str(compared), "--json")
    assert json.loads(ran.out)["steps"] == 40
    assert ran.out.count("\n") == 1
