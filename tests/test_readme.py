"""What README.md shows is what happens: its Python runs, its commands and links exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fmdp.cli.app import app

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", README, flags=re.DOTALL | re.MULTILINE)
PYTHON = [text for language, text in BLOCKS if language == "python"]
SHELL = "".join(text for language, text in BLOCKS if language == "")


@pytest.mark.parametrize("code", PYTHON)
def test_the_example_runs(code: str, capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(code, "README.md", "exec"), {})
    assert "6.7443" in capsys.readouterr().out


def test_every_command_shown_exists() -> None:
    shown = set(re.findall(r"^fmdp ([a-z]+)", SHELL, flags=re.MULTILINE))
    assert len(shown) >= 6
    assert shown <= {command.name for command in app.registered_commands}


def test_every_make_target_exists() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"^make ([a-z-]+)", SHELL, flags=re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE)
