"""`fmdp whatif`: gains against a parameter, its files and its refusals."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest

import fmdp


def test_points_are_the_plans_of_the_ids(run: Any, tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    ran = run(
        "whatif", "circle:3,reward=mean", "--vary", "alpha1=0.1:0.3:3", "--out", out, "--json"
    )
    assert ran.status == 0
    points = ran.json["points"]
    assert [point["value"] for point in points] == pytest.approx([0.1, 0.2, 0.3])
    plans = [fmdp.plan(fmdp.problem(f"circle:3,reward=mean,alpha1={v}")) for v in (0.1, 0.2, 0.3)]
    policies: list[Any] = [plan.policy for plan in plans]
    for point, plan, policy in zip(points, plans, policies, strict=True):
        assert point["gain"] == pytest.approx(plan.gain)
        assert point["gain_lower"] <= point["summary"]["gain"] + 1e-9
        differs = policy.actions != policies[0].actions
        assert point["changed"] == pytest.approx(differs.mean())
        assert 0.0 <= point["changed_time"] <= 1.0
    with (tmp_path / "out" / "whatif.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [float(row["gain"]) for row in rows] == pytest.approx([p["gain"] for p in points])
    assert "certified bounds" in run("whatif", "circle:3", "--vary", "alpha1=0.1:0.2:2").out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["circle:3", "--vary", "alpha=0.1:0.2:2"], 'did you mean "alpha'),
        (["circle:3", "--vary", "alpha1=0.1:0.2"], "KEY=FIRST:LAST:COUNT"),
        (["circle:3", "--vary", "alpha1=a:b:3"], "no numbers"),
        (["circle:3", "--vary", "alpha1=0.1:0.2:0"], "COUNT"),
        (["circle:3"], "missing"),
        (["model.json", "--vary", "alpha1=0.1:0.2:2"], "parameter of a problem id"),
    ],
)
def test_refusals(run: Any, arguments: list[str], message: str) -> None:
    assert message in run("whatif", *arguments).refusal


def test_the_text_has_one_line_per_value() -> None:
    varied = fmdp.whatif(lambda p: fmdp.problem(f"circle:3,alpha1={p}"), alpha1=[0.1, 0.2])
    head, *lines = (line.split() for line in str(varied).splitlines())
    assert head[:4] == ["alpha1", "gain", "gain_lower", "gain_upper"]
    for line, point in zip(lines, varied.points, strict=True):
        assert point.gain_lower is not None
        assert point.gain_upper is not None
        assert float(line[2]) <= point.gain_lower
        assert float(line[3]) >= point.gain_upper


def test_python_refuses_anything_but_one_list() -> None:
    def build(value: float) -> fmdp.FactoredMDP:
        return fmdp.problem(f"circle:2,alpha1={value}")

    with pytest.raises(fmdp.FmdpError, match="one parameter"):
        fmdp.whatif(build)
    with pytest.raises(fmdp.FmdpError, match="list of values"):
        fmdp.whatif(build, alpha1=0.1)  # type: ignore[arg-type]
    varied = fmdp.whatif(build, alpha1=[0.1, 0.1])
    assert (varied.points[1].changed, varied.points[1].changed_time) == (0.0, 0.0)
