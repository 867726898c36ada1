"""Standings: the learners of every problem by their median regret, with the time per step.

On each problem the cells with the same number of steps are compared by gap regret, which does not
contain the luck of the rewards, or by realised regret where some cell has no gap regret. The place
of a learner is one more than the number of learners with a lower median; medians that differ only
by rounding share a place. The optimal policy, random actions and baselines have no place, since
they learn nothing. `ratio` is the median divided by that of the best learner of the problem, so
that problems of any reward and length can be put together:

    over problems: geometric mean of the ratios, their largest, and on how many a learner is first

Theory bounds expected regret, so the mean stands beside the median; both have 95 % intervals.

Time is processor time per step, the median over the runs; wall clock where some run of the problem
is older than that measure. Neither includes computing what regret is measured against.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from fmdp.experiments.cells import CellRuns
from fmdp.experiments.confidence_intervals import mean_interval, mean_of, median_interval
from fmdp.experiments.measures import (
    CPU_SECONDS,
    GAP_REGRET,
    PLANNER_CALLS,
    REGRET,
    UNCONVERGED_PLANS,
    Measure,
)
from fmdp.experiments.store import StoredRun

SAME = 1e-9
"""Medians whose relative difference is at most this are equal up to the rounding of their sums."""


@dataclass(frozen=True)
class Standing:
    """One learner on one problem. What does not apply is None."""

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
    """Of the medians, to the best learner of the problem; None where that is not above zero."""
    seconds_per_step: float
    clock: str
    """What is counted in it: processor or wall."""
    planner_calls: float | None
    """The median over the runs."""
    unconverged_plans: int | None
    """The sum over the runs."""
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
    """On how many it ran."""
    wins: int
    """On how many of them no other learner has a lower median."""
    ratio_mean: float | None
    """The geometric mean of its ratios; None where one is not known."""
    ratio_largest: float | None
    seconds_per_step: float
    """The median over the problems."""


def standings(cells: Iterable[CellRuns]) -> list[Standing]:
    """Of every problem, in the order of the cells; the lowest median first."""
    by_problem: dict[tuple[str, int], list[CellRuns]] = {}
    for cell in cells:
        by_problem.setdefault((cell.problem, cell.runs[0].steps), []).append(cell)
    return [one for own in by_problem.values() for one in _of_problem(own)]


def _of_problem(cells: Sequence[CellRuns]) -> list[Standing]:
    runs = [run for cell in cells for run in cell.runs]
    measure = GAP_REGRET if _have(runs, GAP_REGRET) else REGRET
    timed = _have(runs, CPU_SECONDS)
    ends = {cell.label: _values(cell.runs, measure) for cell in cells}
    medians = {label: float(np.median(values)) for label, values in ends.items()}
    learning = [medians[cell.label] for cell in cells if cell.runs[0].role == "learner"]
    found = []
    for cell in cells:
        first, values, median = cell.runs[0], ends[cell.label], medians[cell.label]
        low, high = np.quantile(values, (0.25, 0.75)).tolist()
        of_median = median_interval(values) or (None, None)
        of_mean = mean_interval(values) or (None, None)
        seconds = [
            (run.measure(CPU_SECONDS) or 0.0 if timed else run.seconds) / run.steps
            for run in cell.runs
        ]
        plans = _values(cell.runs, PLANNER_CALLS)
        unconverged = _values(cell.runs, UNCONVERGED_PLANS)
        found.append(
            Standing(
                problem=cell.problem,
                steps=first.steps,
                measure=measure.name,
                place=place_among(median, learning) if first.role == "learner" else None,
                label=cell.label,
                learner=first.learner,
                role=first.role,
                runs=len(cell.runs),
                median=median,
                mean=mean_of(values),
                worst=max(values),
                lower_quartile=low,
                upper_quartile=high,
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
    return sorted(found, key=lambda one: one.median)


def place_among(median: float, learning: Sequence[float]) -> int:
    """Return one more than the number of medians below this one, by more than rounding."""
    return 1 + sum(
        other < median and not math.isclose(other, median, rel_tol=SAME) for other in learning
    )


def ratio_to_best(median: float, learning: Sequence[float]) -> float | None:
    """The median divided by the lowest of the learners'; None where that is not above zero."""
    best = min(learning, default=0.0)
    return median / best if best > 0 else None


def overall(found: Sequence[Standing]) -> list[Overall]:
    """Every label once: those with a geometric mean first, the lowest of them first of all."""
    by_label: dict[str, list[Standing]] = {}
    for one in found:
        by_label.setdefault(one.label, []).append(one)
    rows = [_overall(own) for own in by_label.values()]
    return sorted(rows, key=lambda one: math.inf if one.ratio_mean is None else one.ratio_mean)


def _overall(own: Sequence[Standing]) -> Overall:
    ratios = [one.ratio for one in own if one.ratio is not None]
    known = len(ratios) == len(own)
    return Overall(
        label=own[0].label,
        learner=own[0].learner,
        role=own[0].role,
        problems=len(own),
        wins=sum(one.place == 1 for one in own),
        ratio_mean=geometric_mean(ratios) if known else None,
        ratio_largest=max(ratios) if known else None,
        seconds_per_step=float(np.median([one.seconds_per_step for one in own])),
    )


def geometric_mean(values: Sequence[float]) -> float:
    """Zero where a value is."""
    if min(values) <= 0:
        return 0.0
    return math.exp(math.fsum(math.log(value) for value in values) / len(values))


def _have(runs: Sequence[StoredRun], measure: Measure[float]) -> bool:
    return all(run.measure(measure) is not None for run in runs)


def _values(runs: Sequence[StoredRun], measure: Measure[float] | Measure[int]) -> list[float]:
    found = (run.measures.get(measure.name) for run in runs)
    return [float(value) for value in found if value is not None]
