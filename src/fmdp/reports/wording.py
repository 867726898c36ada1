"""Sentences about standings, and texts of numbers, for the page and the command line."""

from __future__ import annotations

from collections.abc import Sequence

from fmdp.experiments.analysis import NO_DIFFERENCE, Analysis
from fmdp.experiments.dataset import Dataset
from fmdp.experiments.measures import REGRET, title_of
from fmdp.experiments.standings import (
    Standing,
    by_problem,
    first_of,
    is_comparison,
    learners_of,
    overall,
    ranked,
)
from fmdp.reports.notes import counts_text

MOST_NAMED = 6
"""Most problems that a sentence lists by name."""


def headline(data: Dataset, analysis: Analysis) -> tuple[str, ...]:
    """Return at most three short sentences for the top of the page."""
    rows = data.standings
    if not is_comparison(rows):
        return (_of_best_cell(data),)
    return (_winners(rows), _significance(rows, analysis), _cost(rows))


def _winners(rows: Sequence[Standing]) -> str:
    problems = by_problem(rows)
    if len(problems) == 1:
        first, second = learners_of(rows)[:2]
        return (
            f"{first.label} has the lowest median {measures_text(rows)}, "
            f"{number_text(first.median)}, before {second.label} with "
            f"{number_text(second.median)}."
        )
    ordered = _won(rows)
    shown = [f"{label} on {len(names)}" for label, names in ordered[:3]]
    others = len(ordered) - len(shown)
    rest = [f"{others} other{'s' if others > 1 else ''} on the rest"] if others else []
    return (
        f"Lowest median {measures_text(rows)} on {len(problems)} problems: "
        f"{listed([*shown, *rest])}."
    )


def _won(rows: Sequence[Standing]) -> list[tuple[str, list[str]]]:
    """Return the learners in first place with their problems, most problems first."""
    won: dict[str, list[str]] = {}
    for (name, _), members in by_problem(rows).items():
        for row in first_of(members):
            won.setdefault(row.label, []).append(name)
    return sorted(won.items(), key=lambda item: -len(item[1]))


def _significance(rows: Sequence[Standing], analysis: Analysis) -> str:
    problems = [m for m in by_problem(rows).values() if len(learners_of(m)) > 1]
    clear = sum(analysis.verdict_on_first(m) != NO_DIFFERENCE for m in problems)
    if len(problems) == 1:
        verdict = "is" if clear else "is not"
        return f"The difference between the two {verdict} significant on the same seeds."
    return (
        f"The first learner differs significantly from the second, on the same seeds, on "
        f"{share_text(clear, len(problems))}."
    )


def _of_best_cell(data: Dataset) -> str:
    """Return a sentence on the cell with the lowest median, where no two learners compete."""
    row = min(learners_of(data.standings) or data.standings, key=lambda row: row.median)
    runs = f"{row.runs} run{'s' if row.runs > 1 else ''}"
    return (
        f"{row.label} on {row.problem}: median {title_of(row.measure)} {number_text(row.median)} "
        f"after {row.steps:,} steps, over {runs}."
    )


def sentences(data: Dataset, analysis: Analysis) -> tuple[str, ...]:
    """Return sentences on the lowest medians and the time per step; none without a comparison."""
    rows = data.standings
    if not is_comparison(rows):
        return ()
    problems = by_problem(rows)
    if len(problems) == 1:
        return (_one_problem(next(iter(problems.values())), analysis), _cost(rows))
    return (_all_problems(rows), *_mean_ratios(rows, len(problems)), _cost(rows))


def _one_problem(rows: Sequence[Standing], analysis: Analysis) -> str:
    first, second = learners_of(rows)[:2]

    def numbers(row: Standing) -> str:
        worst = number_text(row.worst)
        return f"{number_text(row.median)} (mean {mean_text(row)}, worst run {worst})"

    return (
        f"On {first.problem} {first.label} has the lowest median {title_of(first.measure)}, "
        f"{numbers(first)}, before {second.label} with {numbers(second)}; on the same seeds "
        f"(signed-rank, Holm): {analysis.verdict_on_first(rows)}."
    )


def _all_problems(rows: Sequence[Standing]) -> str:
    parts = []
    for label, names in _won(rows):
        where = f" ({', '.join(names)})" if len(names) <= MOST_NAMED else ""
        parts.append(f"{label} on {len(names)}{where}")
    problems = len(by_problem(rows))
    return f"The lowest median {measures_text(rows)} of {problems} problems: {'; '.join(parts)}."


def _mean_ratios(rows: Sequence[Standing], problems: int) -> tuple[str, ...]:
    everywhere = [
        row
        for row in ranked(rows)
        if row.role == "learner" and row.problems == problems and row.ratio_mean is not None
    ]
    if len(everywhere) < 2:
        return ()
    best = ", ".join(
        f"{row.label} {ratio_text(row.ratio_mean)} (at most {ratio_text(row.ratio_largest)})"
        for row in everywhere[:3]
    )
    sentence = (
        f"Of the {len(everywhere)} learners that ran on all of them, the lowest medians in units "
        f"of each problem's best, geometric mean over the problems: {best}."
    )
    return (sentence,)


def _cost(rows: Sequence[Standing]) -> str:
    learners = [row for row in overall(rows) if row.role == "learner"]
    by_cost = sorted(learners, key=lambda row: row.seconds_per_step)
    cheap, dear = by_cost[0], by_cost[-1]
    clock = "processor time" if _all_timed(rows) else "wall clock, at least in part,"
    return (
        f"A step costs from {per_step(cheap.seconds_per_step)} ({cheap.label}) to "
        f"{per_step(dear.seconds_per_step)} ({dear.label}) of {clock} in the median."
    )


def _all_timed(rows: Sequence[Standing]) -> bool:
    return {row.clock for row in rows} == {"processor"}


def standings_caption(rows: Sequence[Standing], most_ratio: float) -> str:
    """Return the caption of the figure of the standings."""
    steps = sorted({row.steps for row in rows})
    clock = "processor time" if _all_timed(rows) else "time"
    return (
        f"Median {measures_text(rows)} after {' and '.join(f'{n:,}' for n in steps)} steps over "
        f"{counts_text([row.runs for row in rows])} runs, divided by that of the best learner of "
        f"the problem, which is the first line; colours are logarithmic up to {most_ratio:g}. The "
        f"first column is the geometric mean over the problems on which the learner ran; hatched: "
        f"the pair does not fit. Right: {clock} per step, the median over the problems and the "
        f"range."
    )


def measures_text(rows: Sequence[Standing]) -> str:
    """Return the titles of the compared measures."""
    names = sorted({row.measure for row in rows}) or [REGRET.name]
    return " or ".join(title_of(name) for name in names)


def listed(words: Sequence[str]) -> str:
    """Return "a", "a and b" or "a, b and c"."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def share_text(part: int, whole: int) -> str:
    """Return "all 4", "none of 4" or "3 of 4"."""
    return f"all {whole}" if part == whole else f"{part or 'none'} of {whole}"


def per_step(seconds: float) -> str:
    """Return a time with two digits: "12 µs", "3.4 ms", "1.2 s"."""
    units = ((1.0, "s"), (1e-3, "ms"))
    unit, name = next((pair for pair in units if seconds >= 0.9995 * pair[0]), (1e-6, "µs"))
    value = seconds / unit
    return f"{value:,.0f} {name}" if value >= 10 else f"{value:.2g} {name}"


def number_text(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 10 else f"{value:.3g}"


def mean_text(row: Standing) -> str:
    """Return the mean, with half the width of its 95 % interval if there is one."""
    mean = number_text(row.mean)
    if row.mean_low is None or row.mean_high is None:
        return mean
    return f"{mean} ± {number_text((row.mean_high - row.mean_low) / 2)}"


def ratio_text(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 9.95 else f"{value:.2f}" if value < 2 else f"{value:.1f}"
