"""The numbers of a report as CSV: cells, comparisons, curves, single runs, standings.

Every number is written so that reading it back gives the same float. A column that does not apply
is empty; where an interval is missing, `interval_note` says why. A text that a spreadsheet would
take for a formula gets an apostrophe in front. Rows are in the order of the report, so the same
store gives the same bytes. New columns are added at the end.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import astuple, fields

import numpy as np

from fmdp.experiments.confidence_intervals import (
    TOO_SMALL,
    Interval,
    mean_interval,
    mean_of,
    median_coverage,
)
from fmdp.experiments.measures import declared
from fmdp.experiments.standings import Standing
from fmdp.experiments.store import LeftOut, canonical_json
from fmdp.reports.analysis import Analysis
from fmdp.reports.cells import Runs
from fmdp.reports.statistics import Summary

Row = Sequence[object]

_STANDINGS = tuple(one.name for one in fields(Standing))
_LEFT_OUT = tuple(one.name for one in fields(LeftOut))


def tables(runs: Runs, analysis: Analysis) -> dict[str, str]:
    """File name -> CSV text."""
    return {
        "cells.csv": as_csv(_CELLS, _cells(analysis)),
        "comparisons.csv": as_csv(_COMPARISONS, _comparisons(analysis)),
        "curves.csv": as_csv(_CURVES, _curves(runs)),
        "runs.csv": as_csv(_runs_head(), _runs(runs)),
        "standings.csv": as_csv(_STANDINGS, map(astuple, runs.standings)),
    } | ({"left-out.csv": as_csv(_LEFT_OUT, map(astuple, runs.left_out))} if runs.left_out else {})


def as_csv(head: Row, rows: Iterable[Row]) -> str:
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(head)
    writer.writerows([inert(value) for value in row] for row in rows)
    return buffer.getvalue()


def inert(value: object) -> object:
    """The value of a cell; a text that begins like a formula is marked as text."""
    formula = isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r"))
    return f"'{value}" if formula else value


_CELLS = (
    "problem",
    "label",
    "learner",
    "parameters",
    "planner",
    "planner_settings",
    "steps",
    "measure",
    "runs",
    "median",
    "interval_low",
    "interval_high",
    "lower_quartile",
    "upper_quartile",
    "best",
    "worst",
    "mean",
    "results_versions",
    "interval_note",
    "interval_coverage",
    "mean_low",
    "mean_high",
)


def _cells(analysis: Analysis) -> Iterable[Row]:
    for found in analysis.summaries:
        cell = found.cell
        versions = sorted({run.results_version for run in cell.runs})
        for measure, summary in found.by_measure.items():
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


def _about_median(summary: Summary) -> Row:
    """Return the note in the place of a missing interval, and the exact coverage of one."""
    return "" if summary.interval else TOO_SMALL, median_coverage(summary.n)


_COMPARISONS = (
    "problem",
    "measure",
    "first",
    "second",
    "seeds",
    "median_difference",
    "interval_low",
    "interval_high",
    "first_lower",
    "equal",
    "second_lower",
    "signed_rank",
    "p",
    "p_holm",
    "exact",
    "finding",
    "comparisons_in_question",
    "interval_note",
    "interval_coverage",
    "mean_difference",
    "mean_low",
    "mean_high",
)


def _comparisons(analysis: Analysis) -> Iterable[Row]:
    for found in analysis.comparisons:
        test = found.test
        yield (
            found.problem,
            found.measure,
            found.first,
            found.second,
            test.n,
            found.median,
            *_ends(found.interval),
            test.lower,
            test.equal,
            test.higher,
            test.statistic,
            test.p_value,
            found.adjusted,
            test.exact,
            found.verdict,
            found.family,
            *_about_median(found.differences),
            found.differences.mean,
            *_ends(found.differences.mean_interval),
        )


_CURVES = (
    "problem",
    "label",
    "measure",
    "t",
    "runs",
    "median",
    "lower_quartile",
    "upper_quartile",
    "mean",
    "mean_low",
    "mean_high",
)


def _curves(runs: Runs) -> Iterable[Row]:
    for cell in runs.cells:
        for measure, values in cell.curves.items():
            low, median, high = np.quantile(values, (0.25, 0.5, 0.75), axis=0).tolist()
            columns = values.T.tolist()
            means = [(mean_of(own), *_ends(mean_interval(own))) for own in columns]
            for t, *row, mean in zip(cell.t.tolist(), median, low, high, means, strict=True):
                yield (cell.problem, cell.label, measure, t, len(values), *row, *mean)


_BEFORE = ("problem", "label", "seed", "steps")
_AFTER = ("seconds", "fmdp_version", "results_version", "machine", "key")


def _runs_head() -> Row:
    return (*_BEFORE, *(measure.name for measure in declared()), *_AFTER)


def _runs(runs: Runs) -> Iterable[Row]:
    for cell in runs.cells:
        for run in cell.runs:
            measures = [run.measures.get(measure.name) for measure in declared()]
            about = [getattr(run, name) for name in _AFTER]
            yield (cell.problem, cell.label, run.seed, run.steps, *measures, *about)
