"""docs/own-problem.md is true: its files, its Python, its commands and what they print."""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest

from fmdp.cli import main
from fmdp.problems import PROBLEMS

PAGE = Path(__file__).parents[2] / "docs" / "own-problem.md"
BLOCKS: list[tuple[str, str]] = re.findall(
    r"^```(\w*)\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE
)


def test_the_page_from_top_to_bottom(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(folder)  # as for a script beside the module
    names: dict[str, Any] = {}
    commands = printed = 0
    for language, text in BLOCKS:
        named = re.match(r"# (\S+\.(?:py|toml))\n", text)
        if named:
            Path(named[1]).write_text(text)
        elif language == "python":
            capsys.readouterr()
            exec(compile(text, PAGE.name, "exec"), names)
        elif language == "text":
            assert capsys.readouterr().out == text
            printed += 1
        elif not text.startswith("fmdp: "):  # a refusal, which the next test brings about
            for line in text.splitlines():
                program, *arguments = shlex.split(line)
                assert program == "fmdp"
                assert main(arguments) == 0, line
                commands += 1
    assert (commands, printed) == (6, 2)
    assert Path("queues.json").exists()
    points = tomllib.loads(Path("pyproject.toml").read_text())["project"]["entry-points"]
    ((name, place),) = points["fmdp.problems"].items()
    assert PROBLEMS.find(name) is PROBLEMS.find(place) is names["Queues"]


@pytest.mark.usefixtures("folder")
def test_the_refusal_on_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    (module,) = (text for _, text in BLOCKS if text.startswith("# my_queues.py"))
    (refusal,) = (text for _, text in BLOCKS if text.startswith("fmdp: "))
    line = int(refusal.rpartition("line ")[2].rstrip(")\n")) - 1
    lines = module.splitlines()
    indent = re.match(" *", lines[line])
    assert indent is not None
    lines[line] = f"{indent[0]}1 / 0"
    Path("my_queues.py").write_text("\n".join(lines))
    assert main(["plan", "my_queues:Queues:3"]) == 2
    assert capsys.readouterr().err == refusal


def test_the_class_on_the_page_is_short() -> None:
    (module,) = (text for _, text in BLOCKS if text.startswith("# my_queues.py"))
    body = module[module.index("class Queues") :].splitlines()
    assert len([line for line in body if line.strip()]) <= 35
