"""The page about simulators runs, and its numbers are the stored ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ..pages import DOCS, Page

NUMBERS: dict[str, Any] = json.loads((DOCS / "figures" / "simulator.json").read_text())


@pytest.mark.usefixtures("folder")
def test_the_page_runs(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("gymnasium")
    page = Page("simulator.md")
    page.run(capsys)
    assert page.printed == 2


def coverage_rows() -> list[str]:
    """The table of the page, made from the stored numbers."""
    return [
        f"| {name} | {kind['samples']:,} | {way} | {kind[way]['scopes']:.3f} | "
        f"{kind[way]['rows']:.5f} | {kind[way]['all']:.3f} |"
        for name, kind in NUMBERS["coverage"].items()
        for way in ("chosen", "trajectory")
    ]


def test_the_table_has_the_stored_numbers() -> None:
    text = Page("simulator.md").text
    assert "\n".join(coverage_rows()) in text
    (repeats,) = {kind["repeats"] for kind in NUMBERS["coverage"].values()}
    assert f"{repeats} samplings each" in text


def test_the_intervals_hold_as_often_as_the_page_says() -> None:
    for kind in NUMBERS["coverage"].values():
        for way in ("chosen", "trajectory"):
            assert kind[way]["all"] >= 0.9


def test_chosen_states_are_never_worse_by_median() -> None:
    """What the page concludes from the figure."""
    for curves in NUMBERS["gains"].values():
        for chosen, trajectory in zip(curves["chosen"], curves["trajectory"], strict=True):
            assert sorted(chosen)[2] >= sorted(trajectory)[2] - 0.02 * curves["optimal"]


def test_the_figure_is_there() -> None:
    assert Path(DOCS / "figures" / "simulator.png").read_bytes().startswith(b"\x89PNG")
