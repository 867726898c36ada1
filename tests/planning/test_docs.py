"""What the pages say of planners is true: their Python runs.

Of docs/own-planner.md every block runs, in its order, in an empty directory.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fmdp.cli import main
from fmdp.planning.registry import PLANNERS

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "own-planner.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```(python|toml|sh)\n(.*?)^```$", flags=re.DOTALL | re.MULTILINE)
FILE = re.compile(r"# (\w+\.\w+)\n")


def rounded(text: str) -> str:
    """Numbers with the digits that do not depend on the machine."""
    return re.sub(r"\d\.\d{6,}", lambda number: f"{float(number[0]):.6f}", text)


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    yield tmp_path
    sys.modules.pop("lookahead", None)
    PLANNERS.forget("lookahead")


def test_every_block_about_a_planner_of_ones_own_runs(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names: dict[str, Any] = {}
    ran = []
    for language, text in BLOCK.findall(PAGE):
        file = FILE.match(text)
        if file is not None:
            (directory / file[1]).write_text(text)
        elif language == "python":
            exec(compile(text, "own-planner.md", "exec"), names)
        else:
            for line in text.splitlines():
                program, *arguments = shlex.split(line)
                assert program == "fmdp"
                assert main(arguments) == 0, line
        ran.append(language)
    assert sorted(ran) == ["python"] * 4 + ["sh"] * 2 + ["toml"]
    out = rounded(capsys.readouterr().out)
    (shown,) = re.findall(r"^```\n(Plan of .*?)^```$", PAGE, flags=re.DOTALL | re.MULTILINE)
    for line in rounded(shown).splitlines()[:-1]:  # the last has the time that it took
        assert line in out
    assert '"planner": "lookahead"' in out
    assert (directory / "out").exists()


@pytest.mark.parametrize("page", ["exact.md", "approximate.md"])
def test_the_settings_are_given_as_the_page_says(page: str) -> None:
    blocks = BLOCK.findall((DOCS / page).read_text(encoding="utf-8"))
    assert [language for language, _ in blocks] == ["python"]
    for _, text in blocks:
        assert "assert " in text
        exec(compile(text, page, "exec"), {})
