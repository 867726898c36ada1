"""docs/own-problem.md is true: its files, its Python, its commands and what they print."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from fmdp.cli import main
from fmdp.problems import PROBLEMS

from ..pages import Page

BLOCKS = Page("own-problem.md").blocks


@pytest.mark.usefixtures("folder")
def test_the_page_from_top_to_bottom(capsys: pytest.CaptureFixture[str]) -> None:
    page = Page("own-problem.md")
    page.run(capsys)
    assert (page.commands, page.printed) == (6, 2)
    assert Path("queues.json").exists()
    points = tomllib.loads(Path("pyproject.toml").read_text())["project"]["entry-points"]
    ((name, place),) = points["fmdp.problems"].items()
    assert PROBLEMS.find(name) is PROBLEMS.find(place) is page.names["Queues"]


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
