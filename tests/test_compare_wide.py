"""docs/compare.md has the numbers that are stored, of the suite as it is."""

from __future__ import annotations

import copy
import importlib.util
import json
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
NUMBERS: dict[str, Any] = json.loads(script.FILE.read_text(encoding="utf-8"))
TEXT = script.PAGE.read_text(encoding="utf-8")


def test_the_page_has_the_numbers_that_are_stored() -> None:
    assert script.filled(TEXT, NUMBERS) == TEXT, (
        "`python -m benchmarks.compare_wide --write` writes them"
    )


def test_the_numbers_are_of_the_suite_as_it_is() -> None:
    assert NUMBERS["problems"] == [problem(name).name for name in SUITES["wide"].problems]
    assert NUMBERS["failed"] == 0
    pairs = [(one["problem"], one["label"]) for one in NUMBERS["standings"]]
    absent = [(one["problem"], one["label"]) for one in NUMBERS["left_out"]]
    labels = {label for _, label in pairs}
    expected = {(name, label) for name in NUMBERS["problems"] for label in labels}
    assert len(pairs) == len(set(pairs))
    assert {*pairs, *absent} == expected


@pytest.mark.parametrize("what", ["median", "seconds_per_step"])
def test_another_stored_number_is_seen(what: str) -> None:
    """The control."""
    other = copy.deepcopy(NUMBERS)
    for one in other["standings"]:
        one[what] *= 3.0
    assert script.filled(TEXT, other) != TEXT


def test_a_page_without_a_block_is_refused() -> None:
    with pytest.raises(SystemExit, match="the block 'winners' once; it has 0"):
        script.filled(TEXT.replace("<!-- compare: winners -->", ""), NUMBERS)
