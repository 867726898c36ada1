"""`--criterion finite` and `--robust` on the command line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import fmdp
from fmdp import Intervals
from fmdp.model import FactoredMDP
from fmdp.problems import problem

from .conftest import Ran

Runner = Callable[..., Ran]
FINITE = ("--criterion", "finite", "--horizon")


def test_a_finite_horizon_is_planned_saved_and_evaluated(run: Runner, tmp_path: Path) -> None:
    """One step of jao pays what the initial state pays, nothing; two, .3 for each of the copies."""
    out = str(tmp_path / "policy.npz")
    assert run("plan", "jao:3", *FINITE, "1", "--json").json["objective"] == 0.0
    ran = run("plan", "jao:3", *FINITE, "2", "--out", out, "--json")
    plan = ran.json
    assert ran.status == 0
    assert (plan["planner"], plan["status"], plan["horizon"]) == ("exact", "converged", 2)
    assert plan["objective"] == pytest.approx(0.9, abs=1e-12)
    low, high = plan["objective_bounds"]
    assert low <= plan["objective"] <= high
    for key in ("gain", "gain_lower", "gain_upper", "policy_gain", "span", "factored_spans"):
        assert plan[key] is None
    found = run("evaluate", "jao:3", out, "--json").json
    assert (found["value"], found["horizon"], found["gain"]) == (plan["objective"], 2, None)
    assert found["value_lower"] <= found["value"] <= found["value_upper"]
    assert "0.9 over 2 steps from the initial state" in run("evaluate", "jao:3", out).out
    assert "over 2 steps from the initial state" in run("plan", "jao:3", *FINITE, "2").out
    learnt = run("learn", "jao:3", "--learner", f"policy,policy={out}", "--steps", "20", "--json")
    assert learnt.json["steps"] == 20


def test_a_discount_makes_it_smaller(run: Runner) -> None:
    plain, halved = (
        run("plan", "jao:2", *FINITE, "2", *more, "--json").json["objective"]
        for more in ((), ("--discount", "0.5"))
    )
    assert halved == pytest.approx(0.5 * plain, abs=1e-12)


def test_a_plan_that_is_stopped_has_no_policy(run: Runner, tmp_path: Path) -> None:
    out = tmp_path / "policy.npz"
    ran = run("plan", "jao:2", *FINITE, "9", "--max-iterations", "4", "--out", str(out))
    assert ran.status == 1
    assert "iteration_limit" in ran.out
    assert "the last 4 of 9 steps; no policy" in ran.out
    assert "none to save" in ran.out
    assert not out.exists()


def test_too_many_stages_are_refused_with_the_predicted_need(run: Runner) -> None:
    ran = run("plan", "circle:8", *FINITE, "100000", "--memory-limit", "10M", "--json")
    assert ran.status == 2
    assert ran.json["status"] == "too_large"
    assert ran.json["needed_bytes"] > ran.json["memory_limit_bytes"] == 10 * 2**20
    assert "100,000 steps and 256 states" in ran.err


@pytest.mark.parametrize(
    ("command", "line"),
    [
        ("--criterion finite", "'horizon' parameter of planner exact (steps to plan for) must be"),
        (
            "--horizon 5",
            "is used with criterion=finite alone; got horizon=5 with criterion=average",
        ),
        ("--criterion finite --horizon 0", "must be an integer"),
        ("--criterion finite --horizon 3 --discount 1", "'discount' parameter"),
        ("--planner alp --criterion finite", "must be one of average, discounted"),
        ("--planner alp --horizon 3", "--horizon is for planner exact"),
        ("--planner span --span-budget 3 --horizon 3", "--horizon is for planner exact"),
        ("--basis pairs --horizon 3", "no planner takes both"),
        ("--robust", "has no intervals, so there is no worst and no best case"),
        ("--robust --planner alp", "--robust is for planner exact"),
        ("--robust --planner span --span-budget 3", "--robust is for planner exact"),
        ("--robust --span-budget 3", "no planner takes both"),
        ("--robust --criterion finite --horizon 3", "is used with criterion=average alone"),
        ("--robust --criterion discounted", "is used with criterion=average alone"),
        ("--robust --planner exact,intervals=optimistic", "must be given once"),
    ],
)
def test_what_does_not_go_together_is_refused(run: Runner, command: str, line: str) -> None:
    assert line in run("plan", "circle:3", *command.split()).refusal


@pytest.fixture
def uncertain(tmp_path: Path) -> str:
    """jao:1 with 0 -> 1 known to +-.1: the best action goes up with .2 to .4, and down with .2."""
    bare = problem("jao:1")
    width = np.zeros_like(bare.transitions[0])
    width[:2] = 0.1  # state 0, both actions
    ends = ((bare.transitions[0] - width,), (bare.transitions[0] + width,))
    model = FactoredMDP(
        bare.structure,
        bare.transitions,
        bare.rewards,
        intervals=Intervals(*ends, bare.rewards, bare.rewards),
    )
    path = tmp_path / "uncertain.json"
    fmdp.save(model, path)
    return str(path)


def test_the_worst_case_of_intervals(run: Runner, uncertain: str) -> None:
    """.2 / (.2 + .2) = .5 in the worst case, .4 / .6 in the best, .3 / .5 in the model itself."""
    ran = run("plan", uncertain, "--robust", "--json")
    plan = ran.json
    assert ran.status == 0
    assert (plan["status"], plan["intervals"]) == ("converged", "robust")
    assert plan["gain"] == pytest.approx(0.5, abs=1e-6)
    assert plan["gain_lower"] <= 0.5 <= plan["gain_upper"]
    assert plan["policy_gain"] == pytest.approx(0.6, abs=1e-6)
    best = run("plan", uncertain, "--planner", "exact,intervals=optimistic", "--json").json
    assert best["gain"] == pytest.approx(2 / 3, abs=1e-6)
    assert run("plan", uncertain, "--json").json["gain"] == pytest.approx(0.6, abs=1e-6)
    shown = run("plan", uncertain, "--robust").out
    assert "gain, worst case" in shown
    assert "gain of the policy in the model as it is" in shown
