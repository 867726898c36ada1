"""What README.md shows is what happens: its Python runs, its commands and links exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fmdp.cli.commands import COMMANDS

from .pages import Page

ROOT = Path(__file__).parent.parent
README = Page("../README.md")
SHELL = "".join(text for language, text in README.blocks if language == "")


def test_the_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    assert len(README.python) == 1
    README.run_python()
    out = capsys.readouterr().out
    assert "6.7443" in out
    assert "Run of Default()" in out


def test_every_command_shown_exists() -> None:
    shown = set(re.findall(r"^fmdp ([a-z]+)", SHELL, flags=re.MULTILINE))
    assert len(shown) >= 6
    assert shown <= set(COMMANDS)


def test_every_make_target_exists() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"^make ([a-z-]+)", SHELL, flags=re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE)
