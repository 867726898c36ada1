"""The page about Gymnasium and its example run."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

from ..pages import Page

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_the_python_of_the_page_runs(capsys: pytest.CaptureFixture[str]) -> None:
    page = Page("gymnasium.md")
    page.run_python()
    printed = capsys.readouterr().out
    shown = [text for language, text in page.blocks if language == "text"]
    assert printed == "".join(text for text in shown if "stable_baselines3" not in text)


def test_the_example_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["gymnasium_taxi.py", "10"])
    runpy.run_path(str(EXAMPLES / "gymnasium_taxi.py"), run_name="__main__")
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["flat", "factored", "alike"]
