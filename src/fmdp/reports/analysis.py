"""What the runs say: each cell summed up, each two learners of a problem compared in pairs.

A comparison takes the seeds that both cells have: with one seed the environment's luck is the
same, so the difference of two regrets is about the learners. All comparisons of one measure in a
report are one family for Holm's correction. The estimate beside the p-value is the median of the
differences with its bootstrap interval: whether, and by how much.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from fmdp.reports.cells import Cell, Compared, Runs
from fmdp.reports.statistics import (
    PairedTest,
    Summary,
    bootstrap_median,
    holm,
    signed_rank,
    smallest_p_value,
    summarise,
)

SIGNIFICANT = 0.05


@dataclass(frozen=True, eq=False)
class CellSummary:
    cell: Cell
    by_measure: Mapping[str, Summary]


@dataclass(frozen=True)
class Comparison:
    """First minus second, on the seeds of both: negative where the first has less regret."""

    problem: str
    measure: str
    first: str
    second: str
    test: PairedTest
    median: float
    interval: tuple[float, float]
    adjusted: float
    """The p-value after Holm's correction over all comparisons of this measure."""

    @property
    def verdict(self) -> str:
        if self.adjusted > SIGNIFICANT:
            return "no difference shown"
        # The rank sum decides, not the median: the test is about it.
        middle = (self.test.lower + self.test.higher) * (self.test.lower + self.test.higher + 1) / 4
        return f"{self.first if self.test.statistic < middle else self.second} is better"


@dataclass(frozen=True)
class Analysis:
    summaries: tuple[CellSummary, ...]
    comparisons: tuple[Comparison, ...]
    notes: tuple[str, ...]

    def summary(self, problem: str, label: str) -> CellSummary:
        return next(
            found
            for found in self.summaries
            if (found.cell.problem, found.cell.label) == (problem, label)
        )


def analyse(runs: Runs) -> Analysis:
    summaries = tuple(
        CellSummary(
            cell,
            {
                measure: summarise(ends)
                for measure in runs.measures
                if (ends := cell.ends(measure)) is not None
            },
        )
        for cell in runs.cells
    )
    comparisons = tuple(
        comparison for measure in runs.measures for comparison in _family(runs, measure)
    )
    return Analysis(summaries, comparisons, tuple(_notes(comparisons)))


def _family(runs: Runs, measure: str) -> list[Comparison]:
    raw = [found for problem in runs.problems for found in _pairs(problem, measure)]
    adjusted = holm([comparison.test.p_value for comparison in raw])
    return [replace(comparison, adjusted=p) for comparison, p in zip(raw, adjusted, strict=True)]


def _pairs(problem: Compared, measure: str) -> list[Comparison]:
    found = []
    for one, two in combinations(problem.cells, 2):
        ends = {}
        for cell in (one, two):
            values = cell.ends(measure)
            ends[cell.label] = {} if values is None else dict(zip(cell.seeds, values, strict=True))
        shared = sorted(ends[one.label].keys() & ends[two.label].keys())
        # Regrets after different numbers of steps are no pair.
        if not shared or one.steps != two.steps:
            continue
        differences = [float(ends[one.label][s] - ends[two.label][s]) for s in shared]
        low, high = bootstrap_median(differences)
        median = float(np.median(differences))
        test = signed_rank(differences)
        found.append(
            Comparison(
                problem.name, measure, one.label, two.label, test, median, (low, high), test.p_value
            )
        )
    return found


def _notes(comparisons: tuple[Comparison, ...]) -> list[str]:
    notes = []
    by_measure: dict[str, list[Comparison]] = {}
    for comparison in comparisons:
        by_measure.setdefault(comparison.measure, []).append(comparison)
    # Both measures have the same pairs; one sentence is enough.
    for family in list(by_measure.values())[:1]:
        hopeless = [c for c in family if smallest_p_value(c.test.n) * len(family) > SIGNIFICANT]
        if hopeless:
            least = min(c.test.n for c in hopeless)
            notes.append(
                f"{len(hopeless):,} of {len(family):,} comparisons have so few shared seeds (as "
                f"few as {least}) that hardly any difference could be called significant after the "
                f"correction: {least} pairs give no p-value below {smallest_p_value(least):.2g}."
            )
    return notes
