"""Summaries of all cells, and paired comparisons of every two cells of a problem.

A comparison uses the seeds that both cells have: with one seed the random numbers of the
environment are the same, so the difference of two regrets is due to the learners. Beside the
p-value there are the median and the mean of the differences with their intervals.

Holm's correction is per question. A question is one problem, one measure and one spec; its family
are all pairs of its learners. So an answer does not change because the store has other problems, or
other learners that another spec requested. A pair that several specs request is shown with the
correction of the newest one. A pair that no single spec requests is a question of the report
itself, which compares all cells of the problem.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from fmdp.experiments.dataset import CellCurves, Dataset, ProblemCells
from fmdp.experiments.standings import Standing, learners_of
from fmdp.experiments.statistics import (
    TOO_SMALL,
    Interval,
    PairedTest,
    SampleSummary,
    holm,
    median_coverage,
    signed_rank,
    summarise,
)

SIGNIFICANT = 0.05
"""Largest adjusted p-value of a finding."""
NO_DIFFERENCE = "no difference shown"

Row = Sequence[object]


@dataclass(frozen=True, eq=False)
class CellSummary:
    """A cell with the summary of each of its measures."""

    cell: CellCurves
    by_measure: Mapping[str, SampleSummary]


@dataclass(frozen=True)
class Comparison:
    """First minus second on the shared seeds: negative where the first has less regret."""

    problem: str
    measure: str
    first: str
    second: str
    test: PairedTest
    differences: SampleSummary
    adjusted: float
    """The p-value after Holm's correction over the pairs of the question."""
    family: int
    """Number of pairs of the question."""

    @property
    def verdict(self) -> str:
        """Say which learner is better, if the adjusted p-value is significant."""
        if self.adjusted > SIGNIFICANT:
            return NO_DIFFERENCE
        # The test is about the rank sum, so the rank sum names the better learner.
        middle = (self.test.lower + self.test.higher) * (self.test.lower + self.test.higher + 1) / 4
        return f"{self.first if self.test.statistic < middle else self.second} is better"


@dataclass(frozen=True)
class Analysis:
    """All summaries and comparisons of a report."""

    summaries: tuple[CellSummary, ...]
    comparisons: tuple[Comparison, ...]

    def verdict(self, problem: str, measure: str, one: str, two: str) -> str:
        """Return the verdict on two labels of a problem, in either order."""
        for comparison in self.comparisons:
            if (comparison.problem, comparison.measure) == (problem, measure) and {
                comparison.first,
                comparison.second,
            } == {one, two}:
                return comparison.verdict
        return NO_DIFFERENCE

    def verdict_on_first(self, standings: Sequence[Standing]) -> str:
        """Return whether the first learner of a problem differs from the second."""
        learners = learners_of(standings)
        if len(learners) < 2:
            return "no other learner is there"
        first, second = learners[:2]
        return self.verdict(first.problem, first.measure, first.label, second.label)


def analyse(data: Dataset) -> Analysis:
    """Summarise all cells and compare every two cells of a problem."""
    summaries = tuple(
        CellSummary(
            cell,
            {
                measure: summarise(ends)
                for measure in data.measures
                if (ends := cell.ends(measure)) is not None
            },
        )
        for cell in data.cells
    )
    comparisons = tuple(
        comparison
        for measure in data.measures
        for problem in data.problems
        for comparison in _compared(problem, measure, [spec.hash for spec in data.specs])
    )
    return Analysis(summaries, comparisons)


def _compared(problem: ProblemCells, measure: str, specs: Sequence[str]) -> list[Comparison]:
    """Compare every two cells of a problem, with Holm's correction question by question.

    `specs` are the hashes of the specs of the report, the newest last.
    """
    pairs = [
        (first, second, comparison)
        for first, second in combinations(problem.cells, 2)
        if (comparison := _comparison(problem, measure, first, second)) is not None
    ]
    corrected = [comparison for _, _, comparison in pairs]
    done: set[int] = set()
    for question in (*reversed(specs), None):
        # None is the report itself, which asks for all pairs.
        family = [
            i
            for i, (first, second, _) in enumerate(pairs)
            if question is None or (question in first.specs and question in second.specs)
        ]
        adjusted = holm([pairs[i][2].test.p_value for i in family])
        for i, p_value in zip(family, adjusted, strict=True):
            if i not in done:
                corrected[i] = replace(corrected[i], adjusted=p_value, family=len(family))
        done.update(family)
    return corrected


def _comparison(
    problem: ProblemCells, measure: str, one: CellCurves, two: CellCurves
) -> Comparison | None:
    """Compare two cells on the seeds that they share; None if they cannot be paired."""
    first, second = _by_seed(one, measure), _by_seed(two, measure)
    shared = sorted(first.keys() & second.keys())
    # Regrets after different numbers of steps cannot be paired.
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


def _by_seed(cell: CellCurves, measure: str) -> dict[int, float]:
    ends = cell.ends(measure)
    return {} if ends is None else dict(zip(cell.seeds, ends.tolist(), strict=True))


COMPARISON_COLUMNS = (
    *("problem", "measure", "first", "second", "seeds"),
    *("median_difference", "interval_low", "interval_high"),
    *("first_lower", "equal", "second_lower", "signed_rank", "p", "p_holm", "exact", "finding"),
    *("comparisons_in_question", "interval_note", "interval_coverage"),
    *("mean_difference", "mean_low", "mean_high"),
)


def comparison_rows(analysis: Analysis) -> Iterator[Row]:
    """Yield the columns of every comparison; a value that does not apply is None."""
    for comparison in analysis.comparisons:
        test = comparison.test
        yield (
            comparison.problem,
            comparison.measure,
            comparison.first,
            comparison.second,
            test.n,
            comparison.differences.median,
            *interval_ends(comparison.differences.interval),
            test.lower,
            test.equal,
            test.higher,
            test.statistic,
            test.p_value,
            comparison.adjusted,
            test.exact,
            comparison.verdict,
            comparison.family,
            *about_median(comparison.differences),
            comparison.differences.mean,
            *interval_ends(comparison.differences.mean_interval),
        )


def interval_ends(interval: Interval | None) -> Row:
    """Return the two ends of an interval, or None twice."""
    return (None, None) if interval is None else interval


def about_median(summary: SampleSummary) -> Row:
    """Return the note in place of a missing interval, and the exact coverage of the interval."""
    return "" if summary.interval else TOO_SMALL, median_coverage(summary.n)
