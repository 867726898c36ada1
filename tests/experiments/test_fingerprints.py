"""When results move, `RESULTS_VERSION` moves: fingerprints of every learner with every planner."""

from __future__ import annotations

import copy
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from fmdp import DORL, experiments
from fmdp.learning.learner import Learner
from fmdp.learning.registry import LEARNERS
from fmdp.planning.exact.planner import Exact
from fmdp.planning.registry import PLANNERS
from fmdp.problems import problem
from fmdp.simulation.regret import reference_for

HOW = (
    "raise results_version: RESULTS_VERSION in src/fmdp/experiments/__init__.py, with the reason "
    "in CHANGELOG.md; then `make fingerprints` (it refuses without that)"
)


def _load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"fmdp_tests_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


prints = _load(Path(__file__).with_name("fingerprints.py"))
STORED: dict[str, Any] = prints.read()
FINGERPRINTS: dict[str, dict[str, Any]] = STORED["fingerprints"]


def compare(stored: dict[str, Any], found: dict[str, Any]) -> None:
    moved = prints.moved(stored, found)
    assert not moved, f"{HOW}. {len(moved)} have moved: {moved[:5]}"
    new = sorted(set(found) - set(stored))
    assert not new, f"no fingerprint yet, `make fingerprints` adds it: {new[:5]}"


@pytest.mark.parametrize("kind", LEARNERS.own(), ids=lambda kind: kind.name)
def test_runs_are_what_they_were(kind: type[Learner]) -> None:
    own = {
        name: numbers
        for name, numbers in FINGERPRINTS.items()
        if not name.startswith("plan |") and name.split(" | ")[1].split()[0] == kind.name
    }
    compare(own, dict(prints.of_learner(kind)))


def test_plans_are_what_they_were() -> None:
    own = {name: row for name, row in FINGERPRINTS.items() if name.startswith("plan |")}
    compare(own, dict(prints.of_plans()))


def test_every_learner_and_every_planner_has_one() -> None:
    """From the registries: whoever registers a learner or a planner is told to add one, and a
    fingerprint of what is no longer registered does not stay."""
    parts = [name.split(" | ") for name in FINGERPRINTS]
    ran = {words.split()[0] for first, words, *_ in parts if first != "plan"}
    planned_with = {words[2].split()[0] for words in parts} - {"its"}
    assert ran == {kind.name for kind in LEARNERS.own()}
    assert planned_with == {kind.name for kind in PLANNERS.own()}


def test_the_version_is_that_of_the_file_and_its_history_is_whole() -> None:
    assert STORED["results_version"] == experiments.RESULTS_VERSION, HOW
    versions = sorted(map(int, STORED["history"]))
    assert versions[0] == prints.FIRST_VERSION
    assert versions[-1] == experiments.RESULTS_VERSION
    digest = STORED["history"][str(experiments.RESULTS_VERSION)]
    assert prints.digest(FINGERPRINTS) == digest, "fingerprints.json was edited by hand"


@pytest.mark.parametrize(
    ("key", "by", "seen"),
    [
        ("regret", 1e-4, True),
        ("regret", 1e-13, False),
        ("gap_regret", 1e-4, True),
        ("planner_calls", 1, True),
    ],
)
def test_what_counts_as_moved(key: str, by: float, seen: bool) -> None:
    name = "circle:4 | dorl | exact | seed 0"
    found = copy.deepcopy(FINGERPRINTS)
    found[name][key] += by
    told = prints.moved(FINGERPRINTS, found)
    assert [line.partition(":")[0] for line in told] == (["circle"] if seen else [])
    if seen:
        with pytest.raises(AssertionError, match="raise results_version"):
            compare(FINGERPRINTS, found)


def test_a_learner_without_a_fingerprint_is_seen() -> None:
    with pytest.raises(AssertionError, match="no fingerprint yet"):
        compare(FINGERPRINTS, {**FINGERPRINTS, "circle:4 | new | exact | seed 0": {}})
    fewer = dict(list(FINGERPRINTS.items())[1:])
    with pytest.raises(AssertionError, match="is not made any more"):
        compare(FINGERPRINTS, fewer)


def test_a_changed_default_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control: constants of DORL's widths that are 1 % larger."""
    from fmdp.learning import confidence

    real = confidence.transition_width
    monkeypatch.setattr(confidence, "transition_width", lambda *a, **k: 1.01 * real(*a, **k))
    name = "circle:4 | dorl | exact | seed 0"
    model = problem("circle:4")
    learner = DORL(episodes="arithmetic", planner=Exact())
    found = prints.run_of(model, reference_for(model), learner, 0, prints.STEPS)
    assert prints.moved({name: FINGERPRINTS[name]}, {name: found})


def test_the_script_does_not_overwrite_what_has_moved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "fingerprints.json"
    old = {"a": {"scale": 1.0, "regret": 1.0}, "b": {"scale": 1.0, "regret": 2.0}}
    prints.write(old, path)
    before = path.read_bytes()
    for changed in ({**old, "a": {"scale": 1.0, "regret": 1.5}}, {"a": old["a"]}):
        with pytest.raises(prints.Refused, match="raise results_version"):
            prints.write(changed, path)
        assert path.read_bytes() == before
    # A new one is added; the last bits of another machine change nothing.
    prints.write({**old, "a": {"scale": 1.0, "regret": 1 + 1e-14}, "c": {"scale": 1.0}}, path)
    assert prints.read(path)["fingerprints"] == {**old, "c": {"scale": 1.0}}
    monkeypatch.setattr(experiments, "RESULTS_VERSION", experiments.RESULTS_VERSION + 1)
    prints.write(changed, path)
    stored = prints.read(path)
    assert stored["fingerprints"] == changed
    assert stored["results_version"] == experiments.RESULTS_VERSION
    assert len(stored["history"]) == 2
