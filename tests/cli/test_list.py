"""`fmdp list`: everything that can be named, with the parameters that are really taken."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from typing import Any

import pytest

from fmdp._base.settings import setting
from fmdp.model import Structure
from fmdp.planning.exact.planner import Exact
from fmdp.planning.plan import Planner, Prepared
from fmdp.planning.registry import PLANNERS
from fmdp.problems import PROBLEMS, problem


def test_every_family_and_planner_is_listed_with_its_parameters(run: Any) -> None:
    listed = run("list", "--json").json
    assert [entry["name"] for entry in listed["problems"]] == [f.name for f in PROBLEMS.kinds()]
    assert [entry["name"] for entry in listed["planners"]] == [p.name for p in PLANNERS.kinds()]
    by_name = {entry["name"]: entry for entry in listed["problems"]}
    seed = {p["name"]: p for p in by_name["circle"]["parameters"]}["seed"]
    assert seed["default"] == 1
    assert seed["required"] is False
    assert "integer" in seed["allowed"]


def test_every_setting_of_a_planner_is_listed_as_it_is_declared(run: Any) -> None:
    listed = run("list", "--json").json["planners"]
    for entry, kind in zip(listed, PLANNERS.kinds(), strict=True):
        assert entry["summary"] == kind.summary
        assert [one["name"] for one in entry["parameters"]] == [p.name for p in kind.parameters]
        for one, parameter in zip(entry["parameters"], kind.parameters, strict=True):
            assert one["required"] is parameter.required
            assert one["meaning"] == parameter.meaning


class Theirs(Planner):
    """What a package has added."""

    name = "theirs"
    depth: int = setting(2, "how far it looks", low=1)

    def prepare(self, structure: Structure) -> Prepared:
        return Exact().prepare(structure)


def test_what_packages_add_is_listed_and_what_is_broken_is_said(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = {"theirs": f"{__name__}:Theirs", "gone": "nowhere_at_all:Planner"}
    points = {name: EntryPoint(name, place, "fmdp.planners") for name, place in places.items()}
    monkeypatch.setitem(PLANNERS.__dict__, "_entry_points", points)
    listed = run("list", "--json")
    assert listed.status == 0
    assert listed.json["planners"][-1]["name"] == "theirs"
    assert listed.json["planners"][-1]["parameters"][0]["default"] == 2
    (reason,) = listed.json["broken"]["planners"].values()
    assert "nowhere_at_all" in reason
    shown = run("list").out
    assert "  theirs  what a package has added\n" in shown
    assert "  gone  cannot be used: planner 'gone = nowhere_at_all:Planner'" in shown
    assert run("plan", "jao:2", "--planner", "theirs,depth=3", "--json").json["planner"] == "theirs"
    assert "'gone = nowhere_at_all:Planner'" in run("plan", "jao:2", "--planner", "gone").refusal


def test_the_examples_work(run: Any) -> None:
    for entry in run("list", "--json").json["problems"]:
        assert problem(entry["example"]).structure.m >= 1


def test_people_see_names_defaults_and_choices(run: Any) -> None:
    text = run("list").out
    for family in PROBLEMS.kinds():
        assert family.example in text
    assert "dynamics=xu" in text
    assert "guestrin" in text
    assert not any(line.endswith(" ") for line in text.splitlines())
