"""Standings: places, ratios and times by hand-made numbers."""

from __future__ import annotations

import math
from typing import Any

import pytest

from fmdp.experiments.cells import Cell
from fmdp.experiments.standings import (
    geometric_mean,
    overall,
    place_among,
    ratio_to_best,
    standings,
)
from fmdp.experiments.store import StoredRun


def run(seed: int, role: str, seconds: float, measures: dict[str, Any]) -> StoredRun:
    return StoredRun(
        key=f"{seed:064x}",
        model="m",
        problem="p",
        learner="psrl",
        role=role,  # type: ignore[arg-type]
        parameters={},
        planner=None,
        planner_settings={},
        seed=seed,
        steps=100,
        fmdp_version="0.1.0",
        results_version=1,
        machine="a test",
        finished="2026-01-01T00:00:00Z",
        seconds=seconds,
        status="done",
        measures={"gain": 1.0, "gain_kind": "exact", **measures},
    )


def cell(
    label: str,
    gaps: list[float | None],
    *,
    problem: str = "p",
    role: str = "learner",
    cpu: list[float | None] | None = None,
) -> Cell:
    runs = []
    for seed, gap in enumerate(gaps):
        measures: dict[str, Any] = {"regret": 1000.0 + seed, "planner_calls": 10 + seed}
        measures["unconverged_plans"] = seed
        spent = [0.2 + seed for seed, _ in enumerate(gaps)] if cpu is None else cpu
        for name, value in (("gap_regret", gap), ("cpu_seconds", spent[seed])):
            if value is not None:
                measures[name] = value
        runs.append(run(seed, role, 5.0, measures))
    return Cell(problem, label, tuple(runs))


def test_a_problem_by_hand() -> None:
    found = standings(
        [
            cell("late", [4.0, 2.0, 9.0]),
            cell("first", [2.0, 1.0, 6.0]),
            cell("chance", [8.0, 8.0, 8.0], role="lower"),
            cell("knows", [0.0, 0.0, 0.0], role="upper"),
        ]
    )
    assert [one.label for one in found] == ["knows", "first", "late", "chance"]
    assert [one.place for one in found] == [None, 1, 2, None]
    assert [one.ratio for one in found] == [0.0, 1.0, 2.0, 4.0]
    first = found[1]
    assert (first.median, first.mean, first.worst) == (2.0, 3.0, 6.0)
    assert (first.lower_quartile, first.upper_quartile) == (1.5, 4.0)
    assert (first.measure, first.clock) == ("gap_regret", "processor")
    assert first.seconds_per_step == pytest.approx(1.2 / 100)  # the median of 0.2, 1.2 and 2.2
    assert (first.planner_calls, first.unconverged_plans) == (11.0, 0 + 1 + 2)


def test_where_one_run_has_no_gap_all_are_compared_by_realised_regret() -> None:
    found = standings([cell("a", [1.0, None]), cell("b", [1.0, 2.0])])
    assert {one.measure for one in found} == {"regret"}
    assert [one.median for one in found] == [1000.5, 1000.5]
    assert [one.place for one in found] == [1, 1]  # both: nobody is ahead of either


def test_where_one_run_has_no_processor_time_all_have_wall_clock() -> None:
    found = standings([cell("a", [1.0], cpu=[None]), cell("b", [2.0], cpu=[0.1])])
    assert {one.clock for one in found} == {"wall"}
    assert [one.seconds_per_step for one in found] == [0.05, 0.05]


def test_over_problems_by_hand() -> None:
    found = overall(
        standings(
            [
                cell("a", [1.0], problem="p"),
                cell("b", [2.0], problem="p"),
                cell("a", [8.0], problem="q"),
                cell("b", [1.0], problem="q"),
                cell("c", [3.0], problem="q"),
            ]
        )
    )
    assert [(one.label, one.problems, one.wins) for one in found] == [
        ("b", 2, 1),
        ("a", 2, 1),
        ("c", 1, 0),
    ]
    # b: 2 and 1; a: 1 and 8; c: 3 alone.
    means = [one.ratio_mean for one in found]
    assert means == [pytest.approx(math.sqrt(2)), pytest.approx(math.sqrt(8)), pytest.approx(3.0)]
    assert [one.ratio_largest for one in found] == [2.0, 8.0, 3.0]


def test_a_best_that_is_not_above_zero_has_no_ratios() -> None:
    assert ratio_to_best(3.0, [0.0, 3.0]) is None
    assert ratio_to_best(3.0, []) is None
    assert ratio_to_best(3.0, [6.0, 2.0]) == 1.5
    (first, *_) = overall(standings([cell("a", [0.0]), cell("b", [1.0])]))
    assert first.ratio_mean is None


def test_formulas() -> None:
    assert geometric_mean([2.0, 8.0]) == pytest.approx(4.0)
    assert geometric_mean([0.0, 8.0]) == 0.0
    assert place_among(3.0, [1.0, 2.0, 3.0, 3.0, 4.0]) == 3


def test_medians_that_differ_by_rounding_share_a_place() -> None:
    """.1 added up three times is not .3, and nobody is first because of that."""
    found = standings([cell("a", [0.1 + 0.1 + 0.1]), cell("b", [0.3]), cell("c", [0.301])])
    assert {one.label: one.place for one in found} == {"a": 1, "b": 1, "c": 3}


def test_standings_have_the_intervals_of_median_and_mean() -> None:
    (few,) = standings([cell("a", [1.0, 2.0, 3.0])])
    assert (few.interval_low, few.interval_high) == (None, None)
    half = 4.302652729911275 / math.sqrt(3)
    assert (few.mean_low, few.mean_high) == (pytest.approx(2 - half), pytest.approx(2 + half))
    (six,) = standings([cell("a", [5.0, 1.0, 9.0, 2.0, 4.0, 3.0])])
    assert (six.interval_low, six.interval_high) == (1.0, 9.0)
