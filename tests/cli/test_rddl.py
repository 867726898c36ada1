"""RDDL on the command line: planned for, converted both ways, refused in one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyRDDLGym")
pytest.importorskip("rddlrepository")


def test_the_horizon_of_an_instance_is_its_default(run: Any) -> None:
    ran = run("plan", "rddl:Navigation:1", "--criterion", "finite", "--json")
    assert ran.status == 0
    assert ran.json["horizon"] == 40
    given = run("plan", "rddl:Navigation:1", "--criterion", "finite", "--horizon", "2", "--json")
    assert given.json["objective"] == -2.0  # two steps do not reach the goal


def test_a_problem_that_ends_says_so(run: Any) -> None:
    ran = run("plan", "rddl:Navigation:1")
    assert "states where nothing is left to decide" in ran.out
    assert run("plan", "rddl:Navigation:1", "--json").json["settled"] is True
    goes_on = run("plan", "circle:3", "--json").json
    assert goes_on["settled"] is False


def test_rddl_is_converted_both_ways(run: Any, tmp_path: Path) -> None:
    files = f"{tmp_path}/domain.rddl+{tmp_path}/instance.rddl"
    assert run("convert", "circle:3,dynamics=guestrin", files).status == 0
    back = run("convert", files, f"{tmp_path}/model.json")
    assert back.status == 0
    assert "8 states, 4 actions" in back.out
    one = run("plan", "circle:3,dynamics=guestrin", "--json").json["gain"]
    assert run("plan", files, "--json").json["gain"] == pytest.approx(one, abs=1e-9)
    assert run("plan", f"{tmp_path}/model.json", "--json").json["gain"] == pytest.approx(one)


@pytest.mark.parametrize(
    ("target", "told"),
    [
        ("model.rddl", "must be like NAME.rddl+NAME.rddl"),
        ("rddl:SysAdmin:1", "RDDL goes to 2 files"),
        ("model.yaml", "its ending must be that of a format, .json, .rddl"),
    ],
)
def test_what_cannot_be_written_is_refused(run: Any, target: str, told: str) -> None:
    assert told in run("convert", "circle:3", target).refusal


def test_an_observed_problem_is_refused_by_name(run: Any) -> None:
    assert "observ-fluent running-obs" in run("show", "rddl:SysAdmin_POMDP_ippc2011:1").refusal


def test_the_list_has_the_forms(run: Any) -> None:
    assert "rddl:NAME:INSTANCE" in run("list").out
    assert "RDDL" in {one["name"] for one in run("list", "--json").json["formats"]}
