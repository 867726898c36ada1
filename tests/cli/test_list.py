"""`fmdp list`: everything that can be named, with the parameters that are really taken."""

from __future__ import annotations

from typing import Any

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
