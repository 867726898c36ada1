"""The numbers of a report as CSV: cells, comparisons, curves, single runs, standings.

Every number is written so that reading it back gives the same float. A column that does not apply
is empty; `interval_note` gives the reason for a missing interval. Rows are in the order of the
report, so the same store gives the same bytes. New columns are added at the end, except new
measures (measures.py), which runs.csv lists after those declared before them.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import astuple, fields

import numpy as np

from fmdp.experiments.analysis import Analysis
from fmdp.experiments.dataset import Dataset
from fmdp.experiments.measures import declared
from fmdp.experiments.standings import Standing
from fmdp.experiments.statistics import (
    TOO_SMALL,
    Interval,
    SampleSummary,
    mean_interval,
    mean_of,
    median_coverage,
)
from fmdp.experiments.store import LeftOut, canonical_json

Row = Sequence[object]

_STANDINGS = tuple(field.name for field in fields(Standing))
_LEFT_OUT = tuple(field.name for field in fields(LeftOut))


def tables(data: Dataset, analysis: Analysis) -> dict[str, str]:
    """Return the CSV text of each file, by name."""
    left_out = data.grouped.left_out
    return {
        "cells.csv": as_csv(_CELLS, _cells(analysis)),
        "comparisons.csv": as_csv(_COMPARISONS, _comparisons(analysis)),
        "curves.csv": as_csv(_CURVES, _curves(data)),
        "runs.csv": as_csv((*_BEFORE, *(m.name for m in declared()), *_AFTER), _runs(data)),
        "standings.csv": as_csv(_STANDINGS, map(astuple, data.standings)),
    } | ({"left-out.csv": as_csv(_LEFT_OUT, map(astuple, left_out))} if left_out else {})


def as_csv(head: Row, rows: Iterable[Row]) -> str:
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(head)
    writer.writerows([inert(value) for value in row] for row in rows)
    return buffer.getvalue()


def inert(value: object) -> object:
    """Return the value, with an apostrophe before a text that begins like a formula."""
    formula = isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r"))
    return f"'{value}" if formula else value


_CELLS = (
    *("problem", "label", "learner", "parameters", "planner", "planner_settings", "steps"),
    *("measure", "runs", "median", "interval_low", "interval_high"),
    *("lower_quartile", "upper_quartile", "best", "worst", "mean"),
    *("results_versions", "interval_note", "interval_coverage", "mean_low", "mean_high"),
)


def _cells(analysis: Analysis) -> Iterable[Row]:
    for summaries in analysis.summaries:
        cell = summaries.cell
        versions = sorted({run.results_version for run in cell.runs})
        for measure, summary in summaries.by_measure.items():
            yield (
                cell.problem,
                cell.label,
                cell.learner,
                canonical_json(cell.parameters),
                cell.planner,
                canonical_json(cell.planner_settings),
                cell.steps,
                measure,
                summary.n,
                summary.median,
                *_ends(summary.interval),
                summary.lower_quartile,
                summary.upper_quartile,
                summary.best,
                summary.worst,
                summary.mean,
                " ".join(map(str, versions)),
                *_about_median(summary),
                *_ends(summary.mean_interval),
            )


def _ends(interval: Interval | None) -> Row:
    return (None, None) if interval is None else interval


def _about_median(summary: SampleSummary) -> Row:
    """Return the note in place of a missing interval, and the exact coverage of the interval."""
    return "" if summary.interval else TOO_SMALL, median_coverage(summary.n)


_COMPARISONS = (
    *("problem", "measure", "first", "second", "seeds"),
    *("median_difference", "interval_low", "interval_high"),
    *("first_lower", "equal", "second_lower", "signed_rank", "p", "p_holm", "exact", "finding"),
    *("comparisons_in_question", "interval_note", "interval_coverage"),
    *("mean_difference", "mean_low", "mean_high"),
)


def _comparisons(analysis: Analysis) -> Iterable[Row]:
    for comparison in analysis.comparisons:
        test = comparison.test
        yield (
            comparison.problem,
            comparison.measure,
            comparison.first,
            comparison.second,
            test.n,
            comparison.differences.median,
            *_ends(comparison.differences.interval),
            test.lower,
            test.equal,
            test.higher,
            test.statistic,
            test.p_value,
            comparison.adjusted,
            test.exact,
            comparison.verdict,
            comparison.family,
            *_about_median(comparison.differences),
            comparison.differences.mean,
            *_ends(comparison.differences.mean_interval),
        )


_CURVES = (
    *("problem", "label", "measure", "t", "runs"),
    *("median", "lower_quartile", "upper_quartile", "mean", "mean_low", "mean_high"),
)


def _curves(data: Dataset) -> Iterable[Row]:
    for cell in data.cells:
        for measure, values in cell.curves.items():
            low, median, high = np.quantile(values, (0.25, 0.5, 0.75), axis=0).tolist()
            means = [(mean_of(at_t), *_ends(mean_interval(at_t))) for at_t in values.T.tolist()]
            for t, *row, mean in zip(cell.t.tolist(), median, low, high, means, strict=True):
                yield (cell.problem, cell.label, measure, t, len(values), *row, *mean)


_BEFORE = ("problem", "label", "seed", "steps")
_AFTER = ("seconds", "fmdp_version", "results_version", "machine", "key")


def _runs(data: Dataset) -> Iterable[Row]:
    for cell in data.cells:
        for run in cell.runs:
            measures = [run.measures.get(measure.name) for measure in declared()]
            about = [getattr(run, name) for name in _AFTER]
            yield (cell.problem, cell.label, run.seed, run.steps, *measures, *about)
