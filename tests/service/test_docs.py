"""The page about live systems runs: its Python, its command with its lines, and what both print."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ..pages import Page


def test_its_python_prints_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    page = Page("live.md")
    page.run_python()
    (printed,) = [text for language, text in page.blocks if language == "text"]
    assert capsys.readouterr().out == printed


def test_its_command_answers_what_it_says(tmp_path: Path) -> None:
    page = Page("live.md")
    (lines,) = [text for language, text in page.blocks if language == "json"]
    (shown,) = [text for language, text in page.blocks if not language and text.startswith("$ ")]
    command, *answers = shown.splitlines()
    words = command.removeprefix("$ fmdp ").partition(" < ")[0].split()
    ran = subprocess.run(
        [sys.executable, "-m", "fmdp", *words],
        input=lines,
        cwd=tmp_path,
        env=os.environ,
        capture_output=True,
        text=True,
        check=True,
    )
    assert list(map(json.loads, ran.stdout.splitlines())) == list(map(json.loads, answers))
