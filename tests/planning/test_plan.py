"""A plan and a policy as they are shown: few lines, only digits that are known, no arrays."""

from __future__ import annotations

import dataclasses
import inspect
import math
import re
from typing import Any

import numpy as np
import pytest

import fmdp
from fmdp._base.numerals import interval_text, lower_text, rounded_number, upper_text
from fmdp.model import Intervals
from fmdp.planning.plan import Plan
from fmdp.planning.policies.files import policy_of
from fmdp.planning.status import Status, middle_of_bounds
from fmdp.testing.checks import awkward_models


def test_a_plan_in_words() -> None:
    plan = Plan(
        "exact",
        Status.CONVERGED,
        fmdp.TablePolicy((2, 2), (3,), np.zeros(4, dtype=np.int64)),
        gain=1.25 + 2**-21,
        gain_lower=1.25,
        gain_upper=1.25 + 2**-20,
        span=2.5,
        factored_spans=(1.5, 2.0),
        objective=7.25,
        iterations=12345,
        seconds=0.25,
        policy_gain=1.25,
        stats={"policy_gain_bounds": (1.25, 1.25 + 2**-20)},
        bias=np.zeros(4),
    )
    assert repr(plan).splitlines() == [
        "Plan of planner exact: converged, as precise as the tolerance asks",
        "  gain      1.25, certified 1.25 to 1.25000096",
        "  objective 7.25",
        "  policy    TablePolicy(4 states, 3 actions), sure to gain 1.25",
        "  span      2.5; factored 1.5, 2, sum 3.5",
        "  effort    12,345 iterations, 250 ms",
    ]


def test_what_is_not_known_is_not_shown() -> None:
    assert repr(Plan("mine", Status.INFEASIBLE)).splitlines() == [
        "Plan of planner mine: infeasible, the linear program has no solution",
        "  policy    none",
        "  effort    0 iterations, 0 ms",
    ]
    assert "gain      certified at most 1.125\n" in repr(
        Plan("mine", Status.TIME_LIMIT, gain_upper=1.125)
    )
    assert "gain      certified at least 1.125\n" in repr(
        Plan("mine", Status.TIME_LIMIT, gain_lower=1.125)
    )


def test_bounds_are_rounded_to_their_own_side() -> None:
    assert (lower_text(2 / 3), upper_text(2 / 3)) == ("0.666666666", "0.666666667")
    assert (lower_text(-2 / 3), upper_text(-2 / 3)) == ("-0.666666667", "-0.666666666")


@pytest.mark.parametrize("planner", ["exact", "alp", "span,budget=1", "exact,max_iterations=2"])
@pytest.mark.parametrize("model", awkward_models(), ids=lambda model: model.name)
def test_every_plan_has_at_most_six_lines_and_what_they_say_holds(
    model: fmdp.FactoredMDP, planner: str
) -> None:
    plan = fmdp.plan(model, planner)
    head, *lines = repr(plan).splitlines()
    assert head.startswith(f"Plan of planner {plan.planner}: {plan.status.value}, ")
    assert len(lines) <= 5
    assert "array" not in repr(plan)
    assert all(len(line) < 200 for line in lines)
    shown = re.search(r"certified (\S+) to (\S+?)(,|$)", lines[0])
    assert shown is not None
    assert plan.gain_lower is not None
    assert plan.gain_upper is not None
    assert float(shown[1]) <= plan.gain_lower <= plan.gain_upper <= float(shown[2])
    if plan.gain is not None:
        number = float(lines[0].split()[1].rstrip(","))
        slack = 1e-9 * max(1.0, abs(number))
        assert plan.gain_lower - slack <= number <= plan.gain_upper + slack


def test_every_field_has_its_meaning() -> None:
    told = inspect.getdoc(Plan)  # Python 3.13 has taken the indent away already
    assert told is not None
    for field in dataclasses.fields(Plan):
        assert f"\n{field.name} : " in told
        if field.name not in ("planner", "status"):
            assert field.default is not field.default_factory  # it may be left out


def test_a_policy_is_one_line() -> None:
    model = fmdp.problem("circle:40")
    greedy = fmdp.plan(model, "alp,basis=singles").policy
    assert repr(greedy) == "GreedyPolicy(1,099,511,627,776 states, 41 actions)"

    def nothing(state: tuple[int, ...]) -> int:
        return 40

    assert repr(policy_of(nothing, model.structure, "it")) == "Rule(nothing)"
    table = fmdp.plan(fmdp.problem("circle:3")).policy
    assert repr(table) == "TablePolicy(8 states, 4 actions)"


def test_a_plan_for_intervals_promises_its_lower_bound_and_no_more() -> None:
    exact = fmdp.problem("jao:1")
    off = np.zeros_like(exact.transitions[0])
    off[:2] = 0.1
    known = Intervals(
        (exact.transitions[0] - off,), (exact.transitions[0] + off,), exact.rewards, exact.rewards
    )
    model = fmdp.FactoredMDP(exact.structure, exact.transitions, exact.rewards, intervals=known)
    plan = fmdp.plan(model, fmdp.Exact(intervals="robust"))
    assert plan.gain_lower < plan.policy_gain  # type: ignore[operator]
    assert "sure to gain" not in str(plan)
    assert "in the model as it is" in str(plan)


# ---- numbers that are known ----------------------------------------------------------------------


def _robust(problem: str = "circle:3") -> fmdp.FactoredMDP:
    """A model whose probabilities are known within 0.1."""
    model = fmdp.problem(problem)
    known = fmdp.Intervals(
        tuple(np.maximum(table - 0.1, 0.0) for table in model.transitions),
        tuple(np.minimum(table + 0.1, 1.0) for table in model.transitions),
        model.rewards,
        model.rewards,
    )
    return fmdp.FactoredMDP(model.structure, model.transitions, model.rewards, intervals=known)


@pytest.mark.parametrize(
    ("planner", "model"),
    [
        ("exact,max_iterations=1", fmdp.problem("circle:3")),
        ("exact,max_seconds=1e-9", fmdp.problem("circle:3")),
        ("exact,intervals=robust,max_iterations=1", _robust()),
        ("exact,intervals=robust,max_iterations=3", _robust()),
        ("exact,intervals=optimistic,max_iterations=1", _robust()),
        ("span,budget=4,max_iterations=1", fmdp.problem("circle:3")),
    ],
)
def test_the_middle_of_bounds_that_say_nothing_is_no_gain(planner: str, model: Any) -> None:
    plan = fmdp.plan(model, planner)
    lower, upper = plan.gain_bounds
    assert plan.status is not Status.CONVERGED
    assert lower is not None
    assert upper is not None
    assert upper - lower > 3.0 / 20.0  # rewards are between 0 and 3
    assert plan.gain is None
    assert f"gain      certified {interval_text(lower, upper)}" in repr(plan)


def test_bounds_that_are_close_have_a_middle_whatever_the_status() -> None:
    plan = fmdp.plan(fmdp.problem("circle:3"), "exact,max_iterations=3")
    assert plan.status is Status.ITERATION_LIMIT
    lower, upper = plan.gain_bounds
    assert lower is not None
    assert upper is not None
    assert upper - lower < 3.0 / 20.0
    assert plan.gain == 0.5 * (lower + upper)


def test_the_middle_of_bounds_is_judged_by_the_range_and_the_tolerance() -> None:
    structure = fmdp.problem("circle:4").structure  # rewards are between 0 and 4
    assert middle_of_bounds(1.0, 1.2, structure, 0.0) == pytest.approx(1.1)
    assert middle_of_bounds(1.0, 1.25, structure, 0.0) is None
    assert middle_of_bounds(1.0, 1.25, structure, 0.3) == pytest.approx(1.125)
    assert middle_of_bounds(None, 1.25, structure, 0.3) is None


def test_the_span_of_a_bias_that_is_not_unique_has_the_digits_that_are_known() -> None:
    """Two rooms of one gain that are never left: value iteration decides between the biases, and
    one room comes to its limit slowly: when the bounds meet, the span is 1e-4 short of 30."""
    slow = 0.995
    moves = np.zeros((4, 1, 4))
    moves[0, 0, :2] = moves[1, 0, :2] = 0.5
    moves[2, 0, 2:], moves[3, 0, 2:] = [slow, 1 - slow], [1 - slow, slow]
    rewards = [0.0, 1.0, 0.65, 0.35]
    model = fmdp.FactoredMDP.from_factors([4], [1], [([0, 1], moves)], [([0], rewards)])
    plan = fmdp.plan(model)
    assert plan.status is Status.CONVERGED
    h = np.zeros(4)
    for _ in range(100_000):
        h = np.array(rewards) + moves[:, 0] @ h
        h -= h.min()
    error = plan.stats["span_error"]
    assert plan.span == pytest.approx(np.ptp(h), abs=error)
    assert error < 1e-8
    printed = plan._span_text()
    assert printed is not None
    assert float(printed.partition(";")[0]) == pytest.approx(np.ptp(h), abs=1e-5)


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        (27.79479, 7e-5, "27.79"),
        (27.79479, None, "27.79479"),
        (27.79479, 0.0, "27.79479"),
        (0.4000244, 1e-4, "0.4"),
        (0.4000244, 1e-9, "0.4000244"),
        (123456.0, 60.0, "1.2e+05"),
        (-0.04, 0.01, "0"),
        (0.0, 1e-9, "0"),
        (3.0, math.inf, "unknown"),
        (math.inf, 1.0, "infinite"),
    ],
)
def test_a_number_has_no_digits_below_its_error(
    value: float, error: float | None, text: str
) -> None:
    assert rounded_number(value, error) == text
