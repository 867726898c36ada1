"""Standings: the learners of every problem by their median regret, with the time per step.

On each problem the cells with the same number of steps are compared by gap regret, which does not
contain the luck of the rewards, or by realised regret where some cell has no gap regret. The place
of a learner is one more than the number of learners with a lower median; medians that differ only
by rounding share a place. The optimal policy, random actions and baselines have no place. `ratio`
is the median divided by that of the best learner of the problem, so that problems of any reward
scale and length can be combined:

    over problems: geometric mean of the ratios, their largest, and the number of first places

Theory bounds expected regret, so the mean is given beside the median; both have 95 % intervals.

Time is the median over the runs of processor time per step; wall clock where some run of the
problem was stored before that measure existed. Neither includes computing the reference of regret.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from fmdp.experiments.cells import Cell
from fmdp.experiments.measures import (
    CPU_SECONDS,
    GAP_REGRET,
    PLANNER_CALLS,
    REGRET,
    UNCONVERGED_PLANS,
    Measure,
)
from fmdp.experiments.statistics import summarise
from fmdp.experiments.store import StoredRun

SAME = 1e-9
"""Relative difference of medians that may be due to rounding; they share a place."""


@dataclass(frozen=True)
class Standing:
    """One learner on one problem; a value that does not apply is None."""

    problem: str
    steps: int
    measure: str
    """gap_regret or regret, after the last step."""
    place: int | None
    label: str
    learner: str
    role: str
    runs: int
    median: float
    mean: float
    worst: float
    lower_quartile: float
    upper_quartile: float
    ratio: float | None
    """Median divided by that of the best learner; None unless that is positive."""
    seconds_per_step: float
    clock: str
    """The clock of `seconds_per_step`: processor or wall."""
    planner_calls: float | None
    """Median over the runs."""
    unconverged_plans: int | None
    """Sum over the runs."""
    interval_low: float | None = None
    interval_high: float | None = None
    """Order-statistic interval of the median; None if n is too small."""
    mean_low: float | None = None
    mean_high: float | None = None
    """Student's t interval of the mean; None for a single run."""


@dataclass(frozen=True)
class Overall:
    """One learner over all problems on which it ran."""

    label: str
    learner: str
    role: str
    problems: int
    """Number of problems on which it ran."""
    wins: int
    """Number of problems on which no other learner has a lower median."""
    ratio_mean: float | None
    """Geometric mean of its ratios; None if one is unknown."""
    ratio_largest: float | None
    seconds_per_step: float
    """Median over the problems."""


OnProblem = TypeVar("OnProblem", Cell, Standing)


def standings(cells: Iterable[Cell]) -> list[Standing]:
    """Return the standings problem by problem, the lowest median first."""
    return [row for members in by_problem(cells).values() for row in _of_problem(members)]


def _of_problem(cells: Sequence[Cell]) -> list[Standing]:
    runs = [run for cell in cells for run in cell.runs]
    measure = GAP_REGRET if _have(runs, GAP_REGRET) else REGRET
    timed = _have(runs, CPU_SECONDS)
    ends = {cell.label: _values(cell.runs, measure) for cell in cells}
    medians = {label: float(np.median(values)) for label, values in ends.items()}
    learning = [medians[cell.label] for cell in cells if cell.role == "learner"]
    rows = []
    for cell in cells:
        values, median = ends[cell.label], medians[cell.label]
        summary = summarise(values)
        of_median = summary.interval or (None, None)
        of_mean = summary.mean_interval or (None, None)
        seconds = [
            (run.measure(CPU_SECONDS) or 0.0 if timed else run.seconds) / run.steps
            for run in cell.runs
        ]
        plans = _values(cell.runs, PLANNER_CALLS)
        unconverged = _values(cell.runs, UNCONVERGED_PLANS)
        rows.append(
            Standing(
                problem=cell.problem,
                steps=cell.steps,
                measure=measure.name,
                place=place_among(median, learning) if cell.role == "learner" else None,
                label=cell.label,
                learner=cell.learner,
                role=cell.role,
                runs=len(cell.runs),
                median=median,
                mean=summary.mean,
                worst=summary.worst,
                lower_quartile=summary.lower_quartile,
                upper_quartile=summary.upper_quartile,
                ratio=ratio_to_best(median, learning),
                seconds_per_step=float(np.median(seconds)),
                clock="processor" if timed else "wall",
                planner_calls=float(np.median(plans)) if plans else None,
                unconverged_plans=int(sum(unconverged)) if unconverged else None,
                interval_low=of_median[0],
                interval_high=of_median[1],
                mean_low=of_mean[0],
                mean_high=of_mean[1],
            )
        )
    return sorted(rows, key=lambda row: row.median)


def place_among(median: float, learning: Sequence[float]) -> int:
    """Return one more than the number of medians below this one, by more than rounding."""
    return 1 + sum(
        other < median and not math.isclose(other, median, rel_tol=SAME) for other in learning
    )


def ratio_to_best(median: float, learning: Sequence[float]) -> float | None:
    """Return the median divided by the lowest of the learners'; None unless that is positive."""
    best = min(learning, default=0.0)
    return median / best if best > 0 else None


def overall(rows: Sequence[Standing]) -> list[Overall]:
    """Return every label once, by increasing geometric mean; unknown means last."""
    by_label: dict[str, list[Standing]] = {}
    for row in rows:
        by_label.setdefault(row.label, []).append(row)
    totals = [_overall(members) for members in by_label.values()]
    return sorted(totals, key=lambda row: math.inf if row.ratio_mean is None else row.ratio_mean)


def _overall(rows: Sequence[Standing]) -> Overall:
    ratios = [row.ratio for row in rows if row.ratio is not None]
    known = len(ratios) == len(rows)
    return Overall(
        label=rows[0].label,
        learner=rows[0].learner,
        role=rows[0].role,
        problems=len(rows),
        wins=sum(row.place == 1 for row in rows),
        ratio_mean=geometric_mean(ratios) if known else None,
        ratio_largest=max(ratios) if known else None,
        seconds_per_step=float(np.median([row.seconds_per_step for row in rows])),
    )


def is_comparison(rows: Sequence[Standing]) -> bool:
    """Return whether two learners ran on the same problem."""
    return any(
        len({row.label for row in learners_of(members)}) > 1
        for members in by_problem(rows).values()
    )


def by_problem(rows: Iterable[OnProblem]) -> dict[tuple[str, int], list[OnProblem]]:
    """Return the cells or standings of each (problem, steps), in their order."""
    groups: dict[tuple[str, int], list[OnProblem]] = {}
    for row in rows:
        groups.setdefault((row.problem, row.steps), []).append(row)
    return groups


def learners_of(rows: Sequence[Standing]) -> list[Standing]:
    """Return the rows of learners, without the ends and baselines."""
    return [row for row in rows if row.role == "learner"]


def first_of(rows: Sequence[Standing]) -> list[Standing]:
    """Return the learners in first place: one, except for ties."""
    return [row for row in rows if row.place == 1]


def ranked(rows: Sequence[Standing]) -> list[Overall]:
    """Return the optimal policy, the learners, baselines and random actions over all problems.

    Learners that ran on more problems come first, then those with the lower mean ratio.
    """
    order = {"upper": 0, "learner": 1, "baseline": 2, "lower": 3}
    return sorted(overall(rows), key=lambda row: (order[row.role], -row.problems))


def geometric_mean(values: Sequence[float]) -> float:
    """Return the geometric mean; zero if a value is not positive."""
    if min(values) <= 0:
        return 0.0
    return math.exp(math.fsum(math.log(value) for value in values) / len(values))


def _have(runs: Sequence[StoredRun], measure: Measure[float]) -> bool:
    return all(run.measure(measure) is not None for run in runs)


def _values(runs: Sequence[StoredRun], measure: Measure[float] | Measure[int]) -> list[float]:
    values = (run.measures.get(measure.name) for run in runs)
    return [float(value) for value in values if value is not None]
