"""What the pages say of planners is true: docs/own-planner.md runs whole, of others the Python."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from fmdp.planning.registry import PLANNERS

from ..pages import Page


@pytest.mark.usefixtures("folder")
def test_the_page_from_top_to_bottom(capsys: pytest.CaptureFixture[str]) -> None:
    page = Page("own-planner.md")
    page.run(capsys)
    assert (page.commands, page.printed) == (4, 1)
    assert Path("out").exists()
    points = tomllib.loads(Path("pyproject.toml").read_text())["project"]["entry-points"]
    ((name, place),) = points["fmdp.planners"].items()
    assert PLANNERS.find(name) is PLANNERS.find(place) is page.names["Lookahead"]


@pytest.mark.parametrize(("name", "blocks"), [("exact.md", 7), ("approximate.md", 2)])
def test_the_settings_are_given_as_the_page_says(name: str, blocks: int) -> None:
    page = Page(name)
    assert len(page.python) == blocks
    assert all("assert " in block for block in page.python)
    page.run_python()


@pytest.mark.usefixtures("folder")
def test_the_page_about_inspecting(capsys: pytest.CaptureFixture[str]) -> None:
    page = Page("inspect.md")
    page.run(capsys)
    assert Path("seen/inspect.html").exists()
