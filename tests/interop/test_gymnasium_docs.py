"""The page about Gymnasium and its example run."""

from __future__ import annotations

import importlib.util
import json
import runpy
import sys
from pathlib import Path

import pytest

from ..pages import Page

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"


def test_the_python_of_the_page_runs(capsys: pytest.CaptureFixture[str]) -> None:
    page = Page("gymnasium.md")
    page.run_python()
    printed = capsys.readouterr().out
    shown = [text for language, text in page.blocks if language == "text"]
    assert printed == "".join(text for text in shown if "stable_baselines3" not in text)


def test_the_table_of_first_tries_is_that_of_the_stored_runs() -> None:
    spec = importlib.util.spec_from_file_location("first_try", ROOT / "benchmarks" / "first_try.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.table(json.loads(module.FILE.read_text())) in Page("gymnasium.md").text


def test_the_example_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["gymnasium_taxi.py", "10"])
    runpy.run_path(str(EXAMPLES / "gymnasium_taxi.py"), run_name="__main__")
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["flat", "factored", "alike"]
