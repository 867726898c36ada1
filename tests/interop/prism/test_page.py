"""The page about PRISM files: its commands and its Python do what it says."""

from __future__ import annotations

from pathlib import Path

import pytest

import fmdp

from ...pages import Page

EXAMPLES = Path(__file__).parents[3] / "examples"


def test_the_page_from_top_to_bottom(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "examples").symlink_to(EXAMPLES)
    page = Page("prism.md")
    page.run(capsys)
    assert (page.commands, page.printed) == (3, 2)
    assert fmdp.load(Path("circle.json")) == fmdp.problem("circle:4,dynamics=guestrin")


def test_the_example_of_the_page_is_the_file() -> None:
    (shown,) = [
        text for language, text in Page("prism.md").blocks
        if language == "none" and text.startswith("mdp\n")
    ]  # fmt: skip
    assert shown in (EXAMPLES / "machines.prism").read_text()


@pytest.mark.parametrize(
    ("of", "value"), [("waiting", 66 / 65), ("served", 114 / 65), ("full", 8 / 65)]
)
def test_the_queue_has_the_averages_of_its_comment(of: str, value: float) -> None:
    model = fmdp.problem(f"{EXAMPLES}/queue.prism,rewards={of}")
    assert fmdp.plan(model).gain == pytest.approx(value, abs=1e-9)
