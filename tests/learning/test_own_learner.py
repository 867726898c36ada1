"""docs/own-learner.md is true: its files, its Python and its commands."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import pytest

import fmdp

from ..pages import Page

PAGE = "own-learner.md"


@pytest.mark.usefixtures("folder")
def test_the_page_from_top_to_bottom(capsys: pytest.CaptureFixture[str]) -> None:
    page = Page(PAGE)
    page.run(capsys)
    assert page.commands == 3
    assert Path("agent.npz").exists()
    assert page.names["agent"].steps == 100
    points = tomllib.loads(Path("pyproject.toml").read_text())["project"]["entry-points"]
    ((name, place),) = points["fmdp.learners"].items()
    model = page.names["model"]
    runs = [fmdp.simulate(model, text, steps=20, seed=0) for text in (name, place)]
    assert [run.agent.learner.name for run in runs] == [name, name]
    assert runs[0].regret == runs[1].regret


def test_the_page_uses_public_names_only() -> None:
    """No import of fmdp but of fmdp itself and of fmdp.testing, and no internal module by name."""
    text = Page(PAGE).text
    assert set(re.findall(r"^\s*(?:from|import) (fmdp[\w.]*)", text, re.MULTILINE)) == {
        "fmdp",
        "fmdp.testing",
    }
    rooms = {"fmdp", "measures", "problems", "testing", "learners"}
    assert set(re.findall(r"`?fmdp\.(\w+)", text)) <= {*fmdp.__all__, *rooms}


@pytest.mark.usefixtures("folder")
def test_a_learner_of_the_psrl_kind_is_short(capsys: pytest.CaptureFixture[str]) -> None:
    """At most 25 lines besides its docstring: those of the page are far below."""
    page = Page(PAGE)
    page.run(capsys)
    module = ast.parse(page.files["my_learners.py"])
    lengths = {
        node.name: node.end_lineno - node.body[0].end_lineno  # type: ignore[operator]
        for node in module.body
        if isinstance(node, ast.ClassDef)
    }
    assert max(lengths.values()) <= 25, lengths
    assert lengths["EpsilonGreedy"] <= 10
