"""docs/compare.md has the stored numbers, of the suite as it is."""

from __future__ import annotations

import copy
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from fmdp.experiments.standings import Standing
from fmdp.experiments.suites import SUITES
from fmdp.learning.registry import LEARNERS
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


def test_the_page_has_the_numbers_that_are_stored() -> None:
    assert script.filled(TEXT, script.stored()) == TEXT, (
        "`python -m benchmarks.compare_wide --write` writes them"
    )


def test_the_numbers_are_of_the_suite_as_it_is() -> None:
    """Every learner and variant is on every problem, or is listed as left out."""
    numbers = script.stored()
    names = [problem(name).name for name in SUITES["wide"].problems]
    assert numbers["problems"] == names
    assert sorted(name for members in script.FAMILIES.values() for name in members) == sorted(names)
    assert numbers["failed"] == 0
    pairs = [(row["problem"], row["label"]) for row in numbers["standings"]]
    absent = [(row["problem"], row["label"]) for row in numbers["left_out"]]
    labels = [label for label, _ in script.entries(problem("circle:3"))]
    expected = {(name, label) for name in names for label in labels}
    assert len({*pairs, *absent}) == len(pairs) + len(absent)
    assert {*pairs, *absent} == expected
    for row in numbers["standings"]:
        assert row["runs"] == script.FEWER.get(row["label"], numbers["seeds"]), row["label"]


def test_every_learner_of_the_literature_is_compared() -> None:
    labels = {row["label"] for row in script.stored()["standings"]}
    assert {kind.name for kind in LEARNERS.kinds() if kind.role == "learner"} <= labels


def test_pairs_that_are_left_out_for_their_time_are_those_of_the_script() -> None:
    slow = {
        (pair["problem"], pair["label"])
        for pair in script.stored()["left_out"]
        if pair["reason"] == script.SLOW
    }
    unfit = {(pair["problem"], pair["label"]) for pair in script.stored()["left_out"]} - slow
    expected = {(name, label) for label, names in script.TOO_SLOW.items() for name in names}
    assert slow == expected - unfit


@pytest.mark.parametrize("what", ["median", "mean", "seconds_per_step"])
def test_another_stored_number_is_seen(what: str) -> None:
    """The control."""
    other: dict[str, Any] = copy.deepcopy(script.stored())
    for row in other["standings"]:
        row[what] *= 3.0 if row["label"] == "psrl" else 1.0
    assert script.filled(TEXT, other) != TEXT


def test_a_page_without_a_block_is_refused() -> None:
    with pytest.raises(SystemExit, match="the block 'winners' once; it has 0"):
        script.filled(TEXT.replace("<!-- compare: winners -->", ""), script.stored())


def test_ratios_are_of_the_same_problem() -> None:
    def row(problem: str, label: str, median: float) -> Standing:
        numbers = script.stored()["standings"][0]
        values = {"problem": problem, "label": label, "median": median, "mean": 2.0 * median}
        return Standing(**(numbers | values | {"role": "learner"}))

    rows = [row("a", "x", 4.0), row("a", "x published", 2.0), row("b", "x published", 3.0)]
    assert script.published_ratios(rows) == {"x": [0.5]}
    assert script.mean_ratios(rows) == {"x": [2.0], "x published": [1.0, 1.0]}
