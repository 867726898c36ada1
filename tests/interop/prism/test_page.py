"""The page about PRISM files: its commands and its Python do what it says."""

from __future__ import annotations

from pathlib import Path

import pytest

import fmdp

from ...pages import Page


@pytest.mark.usefixtures("folder")
def test_the_page_from_top_to_bottom(capsys: pytest.CaptureFixture[str]) -> None:
    page = Page("prism.md")
    page.run(capsys)
    assert (page.commands, page.printed) == (3, 1)
    assert fmdp.load(Path("circle.json")) == fmdp.problem("circle:4,dynamics=guestrin")


def test_the_example_of_the_page_is_the_file() -> None:
    (shown,) = [
        text for language, text in Page("prism.md").blocks
        if language == "none" and text.startswith("mdp\n")
    ]  # fmt: skip
    file = (Path(__file__).parents[3] / "examples" / "machines.prism").read_text()
    assert shown in file
