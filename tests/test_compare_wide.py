"""docs/compare.md has the numbers that are stored, of the suite as it is."""

from __future__ import annotations

import copy
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from fmdp.experiments.suites import SUITES
from fmdp.problems import problem


def _load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"fmdp_tests_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


script = _load(Path(__file__).resolve().parent.parent / "benchmarks" / "compare_wide.py")
TEXT = script.PAGE.read_text(encoding="utf-8")
COMPARED = pytest.mark.parametrize("suite", script.SUITES)


@COMPARED
def test_the_page_has_the_numbers_that_are_stored(suite: str) -> None:
    assert script.filled(TEXT, script.stored(suite)) == TEXT, (
        f"`python -m benchmarks.compare_wide --suite {suite} --write` writes them"
    )


@COMPARED
def test_the_numbers_are_of_the_suite_as_it_is(suite: str) -> None:
    numbers = script.stored(suite)
    assert numbers["problems"] == [problem(name).name for name in SUITES[suite].problems]
    assert numbers["failed"] == 0
    pairs = [(row["problem"], row["label"]) for row in numbers["standings"]]
    absent = [(row["problem"], row["label"]) for row in numbers["left_out"]]
    labels = {label for _, label in pairs}
    expected = {(name, label) for name in numbers["problems"] for label in labels}
    assert len(pairs) == len(set(pairs))
    assert {*pairs, *absent} == expected


@COMPARED
@pytest.mark.parametrize("what", ["median", "seconds_per_step"])
def test_another_stored_number_is_seen(suite: str, what: str) -> None:
    """The control."""
    other: dict[str, Any] = copy.deepcopy(script.stored(suite))
    for row in other["standings"]:
        row[what] *= 3.0
    assert script.filled(TEXT, other) != TEXT


def test_a_page_without_a_block_is_refused() -> None:
    with pytest.raises(SystemExit, match="the block 'wide winners' once; it has 0"):
        script.filled(TEXT.replace("<!-- compare: wide winners -->", ""), script.stored("wide"))
