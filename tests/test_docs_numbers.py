"""The numbers in the pages are those that were stored, and were stored with this version."""

from __future__ import annotations

import copy
import importlib.util
import json
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from fmdp.experiments import RESULTS_VERSION
from fmdp.learning.registry import LEARNERS

ROOT = Path(__file__).resolve().parent.parent


def _load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"fmdp_tests_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


script = _load(ROOT / "benchmarks" / "docs_numbers.py")
NUMBERS: dict[str, Any] = json.loads(script.FILE.read_text())
PAGES = {page: (ROOT / "docs" / page).read_text(encoding="utf-8") for page in script.BLOCKS}


def test_the_numbers_are_of_this_results_version() -> None:
    assert NUMBERS["results_version"] == RESULTS_VERSION, "run `make docs-numbers`"
    assert set(NUMBERS["parts"]) == set(script.PARTS)


def test_the_numbers_are_of_these_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A default that has moved moves no number by itself: the sweep has to be run again, or to say
    what it was run with."""
    monkeypatch.setattr(script, "STORES", tmp_path)  # it writes model files there
    specs = script.specs(script.SEEDS)
    found = {part: script.settings_digest(spec) for part, spec in specs.items()}
    stored = {part: NUMBERS["parts"][part]["settings"] for part in specs}
    assert found == stored, "run `make docs-numbers`"
    # The control: another default is seen.
    monkeypatch.setattr(script, "HARD", script.HARD.replace("arithmetic", "growing"))
    assert script.settings_digest(script.specs(script.SEEDS)["hard"]) != stored["hard"]


@pytest.mark.parametrize("page", script.BLOCKS)
def test_the_page_has_the_numbers_that_are_stored(page: str) -> None:
    assert script.filled(page, PAGES[page], NUMBERS) == PAGES[page], (
        f"docs/{page} does not have the numbers of docs/numbers.json: "
        f"`python -m benchmarks.docs_numbers --write` writes them, `make docs-numbers` runs them"
    )


def test_every_block_of_every_page_is_known() -> None:
    for path in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        text = path.read_text(encoding="utf-8")
        found = re.findall(r"<!-- numbers: (\S+) -->", text)
        assert found == re.findall(r"<!-- end of (\S+) -->", text), path.name
        assert sorted(found) == sorted(script.BLOCKS.get(path.name, {})), path.name


@pytest.mark.parametrize("page", script.BLOCKS)
def test_another_digit_is_seen(page: str) -> None:
    """The control: every block notices a digit that is not the stored one."""
    for name in script.BLOCKS[page]:
        head = f"<!-- numbers: {name} -->"
        start = PAGES[page].index(head) + len(head)
        end = PAGES[page].index(f"<!-- end of {name} -->")
        last = max(found.start() for found in re.finditer(r"\d", PAGES[page][start:end])) + start
        digit = (int(PAGES[page][last]) + 1) % 10
        wrong = f"{PAGES[page][:last]}{digit}{PAGES[page][last + 1 :]}"
        assert script.filled(page, wrong, NUMBERS) != wrong, name


def test_another_stored_number_is_seen() -> None:
    other = copy.deepcopy(NUMBERS)
    other["parts"]["hard"]["cells"][script.GUESTRIN]["PSRL (exact)"]["regret"]["median"] += 1.0
    page = "learning.md"
    assert script.filled(page, PAGES[page], other) != PAGES[page]


def test_the_gains_that_the_example_tells_are_those_of_the_plans() -> None:
    """examples/planner.toml says in its comment what singles, pairs and the exact planner gain."""
    text = " ".join((ROOT / "examples" / "planner.toml").read_text().replace("#", " ").split())
    plans = NUMBERS["parts"]["plans"]
    singles, pairs = (
        plans[f"guestrin circle 7 | {kind}"]["policy"] for kind in ("singles", "pairs")
    )
    exact = plans["guestrin circle 7 | exact"]["gain"]
    told = f"{singles:.3f} of gain with singles, {pairs:.3f} with pairs, {exact:.3f} exact"
    assert told in text


def test_the_table_of_rivals_has_every_learner_of_the_literature() -> None:
    registered = {kind.name for kind in LEARNERS.kinds() if kind.role == "learner"} - {"default"}
    assert {name for name, _ in script.RIVALS} == registered | {"random"}
    for cells in NUMBERS["parts"]["rivals"]["cells"].values():
        assert {re.match("`(.+?)`", label)[1] for label in cells} == registered | {"random"}


def test_how_numbers_are_written() -> None:
    assert script._percent(0.198) == "19.8 %"
    assert script._percent(-0.0004) == "-0.04 %"
    assert script._percent(-0.00001) == "0.0 %"
    assert script._between([3.2, 1.1]) == "1 to 3"
    assert script._between([1.2, 1.1]) == "1"
    assert script._summary([4.0, 1.0, 2.0, 3.0]) == {
        "lower": 1.75,
        "median": 2.5,
        "upper": 3.25,
        "worst": 4.0,
    }
    assert script._summary([1.0, None]) is None


def test_the_sweeps_are_sound_and_keep_no_recordings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every part of runs is a spec; without recordings its runs are the same runs."""
    monkeypatch.setattr(script, "STORES", tmp_path)
    asked = script.specs(2)
    assert set(asked) == set(script.PARTS) - {"plans"}
    fresh = asked["fresh"]
    quiet = script.unrecorded(fresh)
    assert [run.key for run in quiet.runs()] == [run.key for run in fresh.runs()]
    assert any(run.record for run in fresh.runs())
    assert not any(run.record for run in quiet.runs())
