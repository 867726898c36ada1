"""The page about logs runs from top to bottom."""

from __future__ import annotations

from pathlib import Path

import pytest

from ..pages import Page


def test_the_page_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("pandas")
    monkeypatch.chdir(tmp_path)
    page = Page("logs.md")
    page.run(capsys)
    assert (page.commands, page.printed) == (7, 2)
