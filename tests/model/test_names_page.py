"""docs/names.md is true: its Python, what it prints, and its commands."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from ..pages import Page


def test_the_page_from_top_to_bottom(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    page = Page("names.md")
    page.run(capsys)
    assert page.commands == 5
    assert page.printed == 3
    assert Path("pump.csv").read_text().splitlines()[0] == "pump,price,act"
    act = runpy.run_path("pump.py")["act"]
    assert act(pump="broken", price="low") == {"act": "repair"}
