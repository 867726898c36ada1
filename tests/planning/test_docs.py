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


@pytest.mark.parametrize("name", ["exact.md", "approximate.md"])
def test_the_settings_are_given_as_the_page_says(name: str) -> None:
    page = Page(name)
    assert len(page.python) == 1
    assert "assert " in page.python[0]
    page.run_python()
