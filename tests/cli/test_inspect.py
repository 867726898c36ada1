"""`fmdp inspect`: its JSON object, its page and its refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import fmdp


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("inspect") / "policy.npz"
    policy = fmdp.plan(fmdp.problem("circle:3")).policy
    assert policy is not None
    policy.save(path)
    return str(path)


def test_json(run: Any, saved: str, tmp_path: Path) -> None:
    out = tmp_path / "new" / "folder"
    event = "first=machine_0=down"
    ran = run("inspect", "circle:3", saved, "--event", event, "--out", str(out), "--json")
    result = ran.json
    assert ran.status == 0
    assert result["kind"] == "exact"
    assert sum(result["factors"].values()) == pytest.approx(result["gain"])
    assert sum(result["actions"]["restart"].values()) == pytest.approx(1.0)
    assert result["states"]["machine_0"]["down"] == pytest.approx(
        result["events"]["first"]["share"], abs=1e-12
    )
    low, high = result["bounds"]["states"]["machine_0"]["down"]
    assert low <= result["states"]["machine_0"]["down"] <= high
    assert {"state", "share", "action", "runner_up", "gap"} == {*result["most_visited"][0]}
    page = (out / "inspect.html").read_text()
    assert result["page"] == str(out / "inspect.html")
    assert "machine_0" in page
    assert "<script" not in page


def test_people(run: Any, saved: str) -> None:
    ran = run("inspect", "circle:3", saved, "--event", "any=restart!=none")
    assert ran.status == 0
    assert "share of time" in ran.out
    assert "for ever" in ran.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["circle:3", "--event", "x"], "NAME=CONDITION"),
        (["circle:3", "--event", "x=machine_7=down"], "machine_7"),
        (["circle:3", "--event", "x=restart=none", "--event", "x=restart=0"], "same name"),
        (["circle:4"], "state sizes"),
        (["circle:3", "--most-visited", "-1"], "integer >= 0"),
    ],
)
def test_refusals(run: Any, saved: str, arguments: list[str], message: str) -> None:
    problem, *rest = arguments
    assert message in run("inspect", problem, saved, *rest).refusal
