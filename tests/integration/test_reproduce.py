"""`fmdp reproduce`, small: the paper's figure from nothing to the page."""

from __future__ import annotations

from pathlib import Path

import pytest

from fmdp.cli import main
from fmdp.experiments.paper import figure_spec
from fmdp.experiments.store import Store

PROBLEMS = ["circle:4", "circle:7", "three-leg:4", "three-leg:7"]


def test_the_spec_is_the_papers() -> None:
    spec = figure_spec()
    assert [problem.id for problem in spec.problems] == PROBLEMS
    assert (len(spec.seeds), spec.steps) == (20, 10_000)
    theirs = {
        (cell.problem.id, cell.learner.name): cell.resolved
        for cell in spec.cells
        if cell.resolved["planner"] == "alp"
    }
    assert len(theirs) == 4 * 3
    for resolved in theirs.values():
        settings = resolved["planner_settings"]
        assert (settings["basis"], settings["criterion"]) == ("singles", "discounted")
        assert settings["discount"] == 0.95
    for problem, m in zip(PROBLEMS, (300, 500, 500, 500), strict=True):
        assert theirs[problem, "psrl"]["parameters"]["c"] == 0.75
        assert theirs[problem, "dorl"]["parameters"]["c"] == 0.03
        assert theirs[problem, "frmax"]["parameters"]["m"] == m


def test_fsrl_stands_beside_them_without_a_budget() -> None:
    third = [cell.resolved for cell in figure_spec().cells if cell.learner.name == "fsrl"]
    assert len(third) == 4
    for resolved in third:
        assert resolved["planner"] == "span"
        assert resolved["parameters"]["c"] == 0.03
        assert resolved["parameters"]["budget"] is None


def test_the_search_covers_the_papers_grids_and_contains_the_figure() -> None:
    figure, search = figure_spec(), figure_spec(search=True)
    assert {run.key for run in figure.runs()} < {run.key for run in search.runs()}
    for problem in PROBLEMS:
        tried = {
            (cell.learner.name, name, cell.resolved["parameters"][name])
            for cell in search.cells
            if cell.problem.id == problem and cell.resolved["planner"] == "alp"
            for name in ("c", "m")
            if name in cell.resolved["parameters"]
        }
        assert tried == {
            *(("psrl", "c", c) for c in (0.05, 0.1, 0.3, 0.75, 1, 5, 20)),
            *(("dorl", "c", c) for c in (0.03, 0.05, 0.1, 0.3, 0.5, 1, 5, 20)),
            *(("frmax", "m", m) for m in (100, 300, 500, 700)),
        }


def test_reproduce_small(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    arguments = ["reproduce", "--out", str(out), "--runs", "2", "--steps", "40"]
    assert main([*arguments, "--workers", "1"]) == 0
    printed = capsys.readouterr().out
    assert "3.9200237" in printed  # the gain of three-leg 4, published
    assert str(out / "report" / "index.html") in printed
    with Store.open(out) as store:
        (spec,) = store.specs()
        assert len(store.keys("done")) == len(store.members(spec.hash))
    for name in ("index.html", "figure-2.png", "figure-2.svg", "figure-2.pdf"):
        assert (out / "report" / name).stat().st_size > 1000
