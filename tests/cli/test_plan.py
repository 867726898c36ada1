"""`fmdp plan`: the contract's keys, statuses and exit codes, on problems with known gains."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fmdp import SpanConstrained
from fmdp.cli.output import interval_text, known_number
from fmdp.model import FactoredMDP, Structure, save
from fmdp.planning.alp import ALP
from fmdp.planning.exact.planner import Exact
from fmdp.planning.exact.small import TabularBackup
from fmdp.planning.registry import PLANNERS

CONTRACT = (
    "problem",
    "planner",
    "status",
    "gain",
    "gain_lower",
    "gain_upper",
    "span",
    "factored_spans",
    "factored_span_sum",
    "objective",
    "policy_gain",
    "iterations",
    "seconds",
    "states",
    "actions",
    "ties",
    "seconds_startup",
    "seconds_evaluation",
)


def test_the_jao_product_has_its_closed_forms(run: Any) -> None:
    """delta = .2, epsilon = .1: gain .6 n and span 2 n, additive, so Q is the span."""
    ran = run("plan", "jao:3", "--json", "--tolerance", "1e-9")
    assert ran.status == 0
    assert ran.err == ""
    plan = ran.json
    assert set(CONTRACT) <= plan.keys()
    assert plan["problem"] == "jao:3"
    assert (plan["planner"], plan["status"], plan["ties"]) == ("exact", "converged", "random")
    assert (plan["states"], plan["actions"]) == (8, 8)
    assert plan["gain_lower"] <= 1.8 <= plan["gain_upper"] <= plan["gain_lower"] + 1e-9
    assert plan["gain"] == pytest.approx((plan["gain_lower"] + plan["gain_upper"]) / 2)
    assert plan["policy_gain"] == pytest.approx(1.8, abs=1e-8)
    assert plan["span"] == pytest.approx(6, abs=1e-6)
    assert plan["factored_spans"] == pytest.approx([2, 2, 2], abs=1e-6)
    assert plan["factored_span_sum"] == pytest.approx(6, abs=1e-6)
    assert plan["objective"] is None
    assert plan["iterations"] >= 1
    assert all(plan[key] >= 0 for key in ("seconds", "seconds_startup", "seconds_evaluation"))


def test_the_discounted_objective_is_the_mean_of_the_value(run: Any) -> None:
    """One machine that is 1 surely from the first step on, if it is restarted: V = (0, 1) +
    discount / (1 - discount), so the mean over both states is .5 + 9 at .9."""
    discounted = ("--criterion", "discounted", "--discount", ".9", "--tolerance", "1e-9")
    plan = run("plan", "circle:1,dynamics=guestrin", *discounted, "--json").json
    assert plan["objective"] == pytest.approx(9.5, abs=1e-8)
    assert (
        "9.5, the mean over all states"
        in run("plan", "circle:1,dynamics=guestrin", *discounted).out
    )


@pytest.mark.parametrize(
    ("options", "gain", "spans"),
    [
        (["--span-budget", "4"], 0.770383, [1, 1, 1, 1]),
        (["--span-budget", "1,1,1,1"], 0.770383, [1, 1, 1, 1]),
        (["--span-budget", "8", "--span-split", "search"], 0.914944, [1.479512] * 4),
    ],
)
def test_the_span_planner_prints_its_own_gain_and_that_of_its_policy(
    run: Any, options: list[str], gain: float, spans: list[float]
) -> None:
    """The uniform split, the same split given, and a search with a budget above Q(h*) = 5.918."""
    problem = "circle:4,dynamics=guestrin,reward=mean"
    ran = run("plan", problem, "--planner", "span", *options, "--json")
    assert ran.status == 0
    plan = ran.json
    assert set(CONTRACT) <= plan.keys()
    assert (plan["planner"], plan["status"]) == ("span", "converged")
    assert plan["gain_lower"] <= plan["gain"] <= plan["gain_upper"]
    assert plan["gain"] == pytest.approx(gain, abs=1e-6)
    assert plan["policy_gain"] == pytest.approx(0.914944, abs=1e-6)
    assert plan["factored_spans"] == pytest.approx(spans, abs=1e-5)
    assert plan["attained"] is (gain > 0.9)
    assert sum(plan["budgets"]) == pytest.approx(8 if gain > 0.9 else 4)
    assert plan["objective"] is None
    shown = run("plan", problem, "--planner", "span", *options).out
    assert ("the budgets do not bind" in shown) is (gain > 0.9)


def test_stopping_early_is_status_1_and_the_bounds_hold(run: Any) -> None:
    ran = run("plan", "jao:3", "--max-iterations", "2", "--json")
    assert ran.status == 1
    assert ran.json["status"] == "iteration_limit"
    assert ran.json["gain_lower"] <= 1.8 <= ran.json["gain_upper"]


def test_an_interrupt_gives_the_bounds_so_far(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second chunk of sweeps is interrupted."""
    calls = []
    original = TabularBackup.iterate

    def interrupted(self: TabularBackup, *args: Any, **kwargs: Any) -> int:
        calls.append(self)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return original(self, *args, **kwargs)

    monkeypatch.setattr(TabularBackup, "iterate", interrupted)
    ran = run("plan", "riverswim:2", "--json", "--tolerance", "1e-12")
    assert ran.status == 130
    assert ran.json["status"] == "interrupted"
    assert ran.json["gain_lower"] <= 2 * 0.428622434 <= ran.json["gain_upper"]


def test_what_exact_cannot_hold_is_planned_approximately(run: Any) -> None:
    """2^23 states of machines that all differ: an upper bound on the gain, and no policy gain."""
    plan = run("plan", "circle:23", "--json").json
    assert (plan["planner"], plan["status"], plan["states"]) == ("alp", "converged", 2**23)
    assert 20.0 < plan["gain_upper"] < 23.0
    assert plan["gain"] is None
    assert plan["gain_lower"] is None
    assert plan["policy_gain"] is None
    assert plan["objective"] > 0


def test_parts_that_are_exchangeable_are_planned_on_counts(run: Any) -> None:
    """2^23 states are 24 counts; the gain is .6 each."""
    plan = run("plan", "jao:23", "--json").json
    assert (plan["planner"], plan["status"], plan["counts"]) == ("counts", "converged", 24)
    assert plan["gain"] == pytest.approx(0.6 * 23, abs=1e-6)
    assert plan["policy_gain"] == pytest.approx(0.6 * 23, abs=1e-6)
    assert "counts (8,388,608 states as 24 counts)" in run("plan", "jao:23").out


def test_the_approximate_bounds_enclose_the_gain(run: Any) -> None:
    """jao:3 has gain 1.8, and singles represent its additive bias exactly."""
    plan = run("plan", "jao:3", "--planner", "alp", "--criterion", "average", "--json").json
    assert plan["gain_upper"] == pytest.approx(1.8, abs=1e-5)
    assert plan["gain"] == plan["gain_lower"] == plan["policy_gain"]
    assert plan["policy_gain"] == pytest.approx(1.8, abs=1e-5)


def test_too_large_is_refused_with_the_predicted_need(run: Any) -> None:
    ran = run("plan", "circle:40", "--planner", "exact", "--json")
    assert "memory limit" in ran.refusal
    assert set(CONTRACT) <= ran.json.keys()
    assert ran.json["status"] == "too_large"
    assert (ran.json["states"], ran.json["actions"]) == (2**40, 41)
    assert ran.json["needed_bytes"] > ran.json["memory_limit_bytes"]
    assert ran.json["gain"] is None


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--planner", "exat"], 'did you mean "exact"?'),
        (["--planner", "span"], "--span-budget"),
        (["--planner", "span", "--span-budget", "-1"], "each a number >= 0; got '-1'"),
        (["--planner", "span", "--span-budget", "much"], "got 'much'"),
        (["--planner", "span", "--span-budget", "1,2"], "budget has 2 numbers; must be one, or"),
        (["--planner", "span", "--span-budget", "1", "--span-split", "serch"], '"search"?'),
        (["--planner", "span", "--span-budget", "1,2,3", "--span-split", "uniform"], "got 3"),
        (
            ["--planner", "exact", "--span-budget", "1"],
            "planner exact has no parameter 'budget'; --span-budget is for planner span",
        ),
        (
            ["--planner", "exact", "--basis", "pairs"],
            "planner exact has no parameter 'basis'; --basis is for planner alp",
        ),
        (
            ["--planner", "span,budget=1", "--criterion", "average"],
            "planner span has no parameter 'criterion'; --criterion is for planner exact and ",
        ),
        (
            ["--tolerance", ".1", "--basis", "pairs", "--span-budget", "3"],
            "--span-budget is for planner span, --basis for planner alp; no planner takes both",
        ),
        (
            ["--planner", "alp,basis=pairs", "--basis", "pairs"],
            "planner alp must be given once; got basis=pairs with --planner, and --basis pairs",
        ),
        (["--planner", "alp,basis=pears"], "got 'pears'; did you mean \"pairs\"?"),
        (["--planner", "alp,bases=pairs"], 'did you mean "basis"?'),
        (["--planner", "exact,basis=pairs"], "planner exact has no parameter 'basis' (it takes"),
        (["--planner", "alp,pairs"], "must be given as key=value; got 'pairs'"),
        (["--planner", "nowhere_at_all:Mine"], "there is no module 'nowhere_at_all'"),
        (
            ["--planner", "fmdp.planning.plan:Planner"],
            "must say what it does in prepare, which it has not",
        ),
        (["--planner", "alp,targets=split"], "is for optimistic tables; plan plans for a model"),
        (["--tolerance", "0"], "must be a number > 0 or none; got '0'"),
        (["--tolerance", "nan"], "must be a number > 0 or none; got 'nan'"),
        (["--discount", "1"], "must be a number in [0, 1)"),
        (["--ties", "frist"], 'did you mean "first"?'),
        (["--max-iterations", "1.5"], "must be an integer >= 1 or none; got '1.5'"),
        (["--memory-limit", "lots"], "--memory-limit must be"),
        (["--out", "nowhere/policy.npz"], "there is no directory nowhere"),
        (["--out", "/dev/null"], "it is not a regular file"),
        (["--out", "."], "it is a directory"),
        (["--max-secnds", "1"], 'did you mean "--max-seconds"?'),
    ],
)
def test_a_bad_option_is_refused(run: Any, arguments: list[str], line: str) -> None:
    ran = run("plan", "circle:3", *arguments)
    assert line in ran.refusal
    assert ran.out == ""


def test_people_see_the_gain_its_bounds_and_what_the_status_means(run: Any) -> None:
    ran = run("plan", "jao:2")
    assert ran.status == 0
    for word in ("gain ", "1.2", "certified", "converged: ", "4 states, 4 actions", "time "):
        assert word in ran.out


def test_the_policy_can_be_saved_and_evaluated(run: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "policy.npz")
    assert run("plan", "jao:3", "--out", path).status == 0
    ran = run("evaluate", "jao:3", path, "--json")
    assert ran.status == 0
    assert ran.json["kind"] == "exact"
    assert ran.json["gain_lower"] <= 1.8 <= ran.json["gain_upper"]
    assert ran.json["gain"] == pytest.approx(1.8, abs=1e-6)
    assert "(by elimination)" in run("evaluate", "jao:3", path).out


def test_a_policy_of_another_problem_or_no_policy_is_refused(run: Any, tmp_path: Path) -> None:
    path = tmp_path / "policy.npz"
    run("plan", "jao:3", "--out", str(path))
    assert "state sizes" in run("evaluate", "jao:2", str(path)).refusal
    path.write_bytes(path.read_bytes()[:100])
    assert "policy.npz" in run("evaluate", "jao:3", str(path)).refusal
    assert "nowhere" in run("evaluate", "jao:3", str(tmp_path / "nowhere")).refusal


def test_the_program_prints_one_object_and_nothing_else() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "fmdp", "plan", "circle:3", "--json"],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert ran.returncode == 0
    # Where nothing is compiled yet, that is said; else nothing.
    assert all(line.startswith("planning circle:3: ") for line in ran.stderr.splitlines())
    assert ran.stdout.count("\n") == 1
    plan = json.loads(ran.stdout)
    assert plan["gain_lower"] <= 2.9330007 + 5e-8
    assert plan["gain_upper"] >= 2.9330007 - 5e-8


def test_the_declared_defaults_are_those_of_the_planner() -> None:
    assert PLANNERS.find("exact").make({}) == Exact()
    assert PLANNERS.find("alp").make({}) == ALP()
    assert PLANNERS.find("span").make({"budget": "8"}) == SpanConstrained(budget=8.0)


def test_settings_may_follow_the_name_of_the_planner(run: Any) -> None:
    def plan(*arguments: str) -> Any:
        ran = run("plan", "circle:4,dynamics=guestrin", *arguments, "--json")
        assert ran.status == 0
        return {key: ran.json[key] for key in ("planner", "gain", "gain_upper", "span", "ties")}

    by_option = plan("--planner", "alp", "--basis", "pairs", "--ties", "first")
    assert by_option["planner"] == "alp"
    assert by_option["ties"] == "first"
    assert plan("--planner", "alp,basis=pairs,ties=first") == by_option
    assert plan("--planner", "alp,basis=pairs", "--ties", "first") == by_option
    assert plan("--planner", "fmdp.planning.alp.alp:ALP,basis=pairs,ties=first") == by_option
    assert plan("--planner", "alp,memory_limit=2G,basis=pairs,ties=first") == by_option
    assert plan("--planner", "alp") != by_option
    scopes = plan("--planner", "alp,basis=(0 1)+(1 2)+(2 3)+(0 3)")
    assert scopes["gain_upper"] <= plan("--planner", "alp,basis=pairs")["gain_upper"] + 1e-6


def test_threads_that_are_no_number_are_refused(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for setting in ("abc", "0", "-1", "1.5"):
        monkeypatch.setenv("FMDP_THREADS", setting)
        line = f"FMDP_THREADS must be an integer >= 1; got {setting!r}"
        assert line in run("plan", "circle:3").refusal
    monkeypatch.setenv("FMDP_THREADS", "")
    assert run("plan", "circle:3").status == 0


def test_an_option_that_one_planner_has_asks_for_that_planner(run: Any) -> None:
    assert run("plan", "circle:3", "--json", "--basis", "pairs").json["planner"] == "alp"
    assert run("plan", "circle:3", "--json", "--span-budget", "3").json["planner"] == "span"
    assert run("plan", "circle:3", "--json", "--tolerance", "1e-4").json["planner"] == "exact"


def test_a_gain_that_depends_on_the_state_is_said_so(run: Any, tmp_path: Path) -> None:
    """Two states that never leave: gains 0 and 1, no bias, and the start decides."""
    structure = Structure((2,), (1,), ((0,),), ((0,),))
    model = FactoredMDP(structure, [np.eye(2)], [np.array([0.0, 1.0])], initial_state=(1,))
    save(model, tmp_path / "two.json")
    ran = run("plan", str(tmp_path / "two.json"), "--json")
    assert ran.status == 1
    plan = ran.json
    assert plan["status"] == "multichain"
    assert plan["gain_from_initial_state"] == pytest.approx(1.0)
    assert (plan["gain_lower"], plan["gain_upper"]) == pytest.approx((0.0, 1.0), abs=1e-9)
    assert plan["span"] is None
    assert plan["factored_spans"] is None
    shown = run("plan", str(tmp_path / "two.json")).out
    assert "1 from the initial state; it depends on the state" in shown


@pytest.mark.parametrize(
    ("value", "lower", "upper", "text"),
    [
        (0.428621987, 0.4286215, 0.4286224, "0.428622"),
        (1.1999999, 1.1999995, 1.2000003, "1.2"),
        (6.744334893, 6.7443348926, 6.7443348933, "6.744334893"),
        (-1.6225, -1.629, -1.616, "-1.62"),
        (3.2e-10, 3.1e-10, 3.3e-10, "3.2e-10"),
        (17.55, None, None, "17.55"),
    ],
)
def test_no_more_digits_than_are_known_and_none_outside_the_bounds(
    value: float, lower: float | None, upper: float | None, text: str
) -> None:
    assert known_number(value, lower, upper) == text


@pytest.mark.parametrize(
    ("lower", "upper", "text"),
    [
        (1 / 3, 2 / 3, "0.333333333 to 0.666666667"),
        (-2 / 3, -1 / 3, "-0.666666667 to -0.333333333"),
        (0.9999999999999933, 1.0000000000000027, "0.99999999999999333 to 1.0000000000000027"),
        (2.0, 2.0, "2 to 2"),
        (0.0, 40.0, "0 to 40"),
        (-1200.0, 1e9, "-1200 to 1e+9"),
        (0.25, 123456.7891, "0.25 to 123456.79"),
    ],
)
def test_printed_bounds_are_rounded_outwards(lower: float, upper: float, text: str) -> None:
    assert interval_text(lower, upper) == text
