"""The page about RDDL and the example: what they print, and the table from the stored values."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from fmdp.interop.rddl.sources import archive

from ...pages import Page

pytest.importorskip("pyRDDLGym")
pytest.importorskip("rddlrepository")

ROOT = Path(__file__).parents[3]


def test_the_python_of_the_page_runs(capsys: pytest.CaptureFixture[str]) -> None:
    page = Page("rddl.md")
    page.run_python()
    (printed,) = (text for language, text in page.blocks if language == "text")
    assert capsys.readouterr().out == printed


@pytest.mark.parametrize(
    ("benchmark", "page"), [("rddl_values", "rddl.md"), ("rddl_table", "rddl-table.md")]
)
def test_the_tables_are_those_of_the_stored_results(
    benchmark: str, page: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(ROOT)
    module = importlib.import_module(f"benchmarks.{benchmark}")
    assert module.table(json.loads(module.FILE.read_text())) in Page(page).text


def test_every_problem_of_the_repository_is_in_the_table() -> None:
    stored = json.loads((ROOT / "docs" / "figures" / "rddl-table.json").read_text())
    assert list(stored) == list(archive())
    assert all(entry["first"]["simulator"] == "equal" for entry in stored.values() if entry["read"])


def test_the_example_plays_as_well_as_it_promises() -> None:
    ran = subprocess.run(
        [sys.executable, "examples/rddl_policy.py", "rddl:Navigation_MDP_ippc2011:1", "30"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
        check=True,
    )
    promised, played = ran.stdout.splitlines()[0], ran.stdout.splitlines()[-1]
    assert "-9.567 is the best over 40 steps" in promised
    mean, _, error = played.partition(" on average")[0].partition(" +- ")
    assert abs(float(mean) + 9.567) < 5 * float(error)
