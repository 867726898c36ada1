"""The page about RDDL and the example: what they print, and the table from the stored values."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

from ...pages import Page

pytest.importorskip("pyRDDLGym")
pytest.importorskip("rddlrepository")

ROOT = Path(__file__).parents[3]


def test_the_python_of_the_page_runs(capsys: pytest.CaptureFixture[str]) -> None:
    page = Page("rddl.md")
    page.run_python()
    (printed,) = (text for language, text in page.blocks if language == "text")
    assert capsys.readouterr().out == printed


def test_the_table_is_that_of_the_stored_values() -> None:
    place = ROOT / "benchmarks" / "rddl_values.py"
    spec = importlib.util.spec_from_file_location("rddl_values", place)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.table(json.loads(module.FILE.read_text())) in Page("rddl.md").text


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
