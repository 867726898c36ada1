"""The statistics of a report: every cell summarised, every two cells of a problem compared.

A comparison takes the seeds that both cells have: with one seed the random numbers of the
environment are the same, so the difference of two regrets is about the learners. Beside the p-value
stand the median and the mean of the differences with their intervals.

Holm's correction is per question. A question is one problem, one measure and one comparison that
was asked for (a spec); its family are all pairs of its learners. So an answer does not change
because the store has other problems, or other learners that another spec asked for. A pair that
several specs ask for is shown with the correction of the newest one. A pair that no single spec
asks for is a question of the report itself, which compares all cells of the problem.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from fmdp.experiments.confidence_intervals import TOO_SMALL, Interval, interval_rank
from fmdp.reports.cells import Cell, Compared, Runs
from fmdp.reports.statistics import (
    PairedTest,
    Summary,
    holm,
    signed_rank,
    smallest_p_value,
    summarise,
)

SIGNIFICANT = 0.05


@dataclass(frozen=True, eq=False)
class CellSummary:
    """A cell with the summary of each of its measures."""

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
    differences: Summary
    adjusted: float
    """The p-value after Holm's correction over the pairs of the question."""
    family: int
    """How many pairs the question has."""

    @property
    def median(self) -> float:
        """The median of the differences."""
        return self.differences.median

    @property
    def interval(self) -> Interval | None:
        """The interval of the median of the differences; None if n is too small."""
        return self.differences.interval

    @property
    def verdict(self) -> str:
        """Say which learner is better, if the adjusted p-value is significant."""
        if self.adjusted > SIGNIFICANT:
            return "no difference shown"
        # The test is about the rank sum, so the rank sum names the better learner.
        middle = (self.test.lower + self.test.higher) * (self.test.lower + self.test.higher + 1) / 4
        return f"{self.first if self.test.statistic < middle else self.second} is better"


@dataclass(frozen=True)
class Analysis:
    """All summaries and comparisons of a report, and the notes about them."""

    summaries: tuple[CellSummary, ...]
    comparisons: tuple[Comparison, ...]
    notes: tuple[str, ...]

    def summary(self, problem: str, label: str) -> CellSummary:
        """Return the summary of the cell with this problem and label."""
        return next(
            found
            for found in self.summaries
            if (found.cell.problem, found.cell.label) == (problem, label)
        )


def analyse(runs: Runs) -> Analysis:
    """Summarise all cells and compare every two cells of a problem."""
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
        comparison
        for measure in runs.measures
        for problem in runs.problems
        for comparison in _compared(problem, measure, [spec.hash for spec in runs.specs])
    )
    notes = (*_notes_on_intervals(summaries), *_notes_on_seeds(comparisons))
    return Analysis(summaries, comparisons, notes)


def _compared(problem: Compared, measure: str, specs: Sequence[str]) -> list[Comparison]:
    """Compare every two cells of a problem, with Holm's correction question by question.

    `specs` are the hashes of the specs of the report, the newest last.
    """
    pairs = [
        (one, two, comparison)
        for one, two in combinations(problem.cells, 2)
        if (comparison := _comparison(problem, measure, one, two)) is not None
    ]
    corrected = [comparison for _, _, comparison in pairs]
    done: set[int] = set()
    for question in (*reversed(specs), None):
        family = [i for i, (one, two, _) in enumerate(pairs) if _asks(question, one, two)]
        adjusted = holm([pairs[i][2].test.p_value for i in family])
        for i, p_value in zip(family, adjusted, strict=True):
            if i not in done:
                corrected[i] = replace(corrected[i], adjusted=p_value, family=len(family))
        done.update(family)
    return corrected


def _asks(question: str | None, one: Cell, two: Cell) -> bool:
    """Return whether the spec asks for both cells; the report itself (None) asks for all."""
    return question is None or (question in one.specs and question in two.specs)


def _comparison(problem: Compared, measure: str, one: Cell, two: Cell) -> Comparison | None:
    """Compare two cells on the seeds that they share; None if they cannot be paired."""
    first, second = _by_seed(one, measure), _by_seed(two, measure)
    shared = sorted(first.keys() & second.keys())
    # Regrets after different numbers of steps are no pair.
    if not shared or one.steps != two.steps:
        return None
    largest = max(abs(regrets[seed]) for regrets in (first, second) for seed in shared)
    resolution = problem.resolution(one.steps, largest)
    raw = [first[seed] - second[seed] for seed in shared]
    differences = [0.0 if abs(value) <= resolution else value for value in raw]
    test = signed_rank(differences, resolution)
    return Comparison(
        problem.name,
        measure,
        one.label,
        two.label,
        test,
        summarise(differences),
        adjusted=test.p_value,
        family=1,
    )


def _by_seed(cell: Cell, measure: str) -> dict[int, float]:
    ends = cell.ends(measure)
    return {} if ends is None else dict(zip(cell.seeds, ends.tolist(), strict=True))


def _notes_on_intervals(summaries: Sequence[CellSummary]) -> Iterable[str]:
    """Say which cells have too few runs for an interval of the median."""
    small = [len(found.cell.runs) for found in summaries if not interval_rank(len(found.cell.runs))]
    if small:
        yield (
            f"{len(small):,} of {len(summaries):,} cells have no 95 % interval of the median, "
            f"{TOO_SMALL}: it takes six runs, and they have {_range(small)}."
        )


def _notes_on_seeds(comparisons: Sequence[Comparison]) -> Iterable[str]:
    """Say for how many comparisons no result could be significant after the correction."""
    if not comparisons:
        return
    # Both measures have the same pairs; one sentence is enough.
    pairs = [c for c in comparisons if c.measure == comparisons[0].measure]
    hopeless = [c for c in pairs if smallest_p_value(c.test.n) * c.family > SIGNIFICANT]
    if hopeless:
        least = min(c.test.n for c in hopeless)
        yield (
            f"{len(hopeless):,} of {len(pairs):,} comparisons have so few shared seeds (as "
            f"few as {least}) that hardly any difference could be called significant after the "
            f"correction: {least} pairs give no p-value below {smallest_p_value(least):.2g}."
        )


def _range(counts: Sequence[int]) -> str:
    low, high = min(counts), max(counts)
    return f"{low}" if low == high else f"{low} to {high}"
