"""docs/learning.md and docs/default-learner.md are true: their Python runs, and the first of them
names every parameter of every learner."""

from __future__ import annotations

from pathlib import Path

import pytest

from fmdp.learning.registry import LEARNERS

from ..pages import Page


@pytest.mark.usefixtures("folder")
def test_the_page_from_top_to_bottom(capsys: pytest.CaptureFixture[str]) -> None:
    page = Page("learning.md")
    assert len(page.python) == 6
    page.run(capsys)
    assert Path("agent.npz").exists()
    assert page.names["agent"].steps == 100
    assert page.names["run"].steps == 2_000
    assert page.names["model"].structure.max_scope_size == 5


def test_every_parameter_is_explained() -> None:
    text = Page("learning.md").text
    for kind in LEARNERS.own():
        for parameter in kind.parameters:
            assert f"`{parameter.name}`" in text, (kind.name, parameter.name)


def test_the_page_of_the_default_learner_runs() -> None:
    page = Page("default-learner.md")
    page.run_python()
    assert page.names["run"].steps == 1_000
    assert page.names["agent"].learner.name == "default"
