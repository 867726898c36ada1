"""docs/learning.md is true: its Python runs, and it names every parameter of every learner."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from fmdp.learning.registry import LEARNERS

PAGE = (Path(__file__).parents[2] / "docs" / "learning.md").read_text()


def test_the_examples_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE, flags=re.DOTALL | re.MULTILINE)
    assert len(blocks) >= 2
    for block in blocks:
        exec(compile(block, "learning.md", "exec"), names)
    assert (tmp_path / "agent.npz").exists()
    assert names["agent"].steps == 100
    assert capsys.readouterr().out.startswith("Run of DORL() on circle:4, seed 0\n")


def test_every_parameter_is_explained() -> None:
    for kind in LEARNERS.own():
        for parameter in kind.parameters:
            assert f"`{parameter.name}`" in PAGE, (kind.name, parameter.name)
