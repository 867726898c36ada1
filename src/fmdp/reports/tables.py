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

from fmdp.experiments.analysis import (
    COMPARISON_COLUMNS,
    Analysis,
    about_median,
    comparison_rows,
    interval_ends,
)
from fmdp.experiments.dataset import CellCurves, Dataset
from fmdp.experiments.measures import declared
from fmdp.experiments.standings import Standing
from fmdp.experiments.statistics import SampleSummary, mean_interval, mean_of, summarise
from fmdp.experiments.store import LeftOut, canonical_json
from fmdp.experiments.studies import Slope, slopes

Row = Sequence[object]
AtCheckpoint = tuple[CellCurves, str, int, SampleSummary]
"""A cell, a measure, a number of steps, and the summary of the measure after it."""

_SLOPES = tuple(field.name for field in fields(Slope))
_STANDINGS = tuple(field.name for field in fields(Standing))
_LEFT_OUT = tuple(field.name for field in fields(LeftOut))


def tables(data: Dataset, analysis: Analysis) -> dict[str, str]:
    """Return the CSV text of each file, by name."""
    left_out = data.grouped.left_out
    return (
        {
            "cells.csv": as_csv(_CELLS, _cells(analysis)),
            "comparisons.csv": as_csv(COMPARISON_COLUMNS, comparison_rows(analysis)),
            "curves.csv": as_csv(_CURVES, _curves(data)),
            "runs.csv": as_csv((*_BEFORE, *(m.name for m in declared()), *_AFTER), _runs(data)),
            "standings.csv": as_csv(_STANDINGS, map(astuple, data.standings)),
            "slopes.csv": as_csv(_SLOPES, map(astuple, slopes(data.cells, data.measures))),
        }
        | _checkpoints_csv(data)
        | ({"left-out.csv": as_csv(_LEFT_OUT, map(astuple, left_out))} if left_out else {})
    )


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
                *interval_ends(summary.interval),
                summary.lower_quartile,
                summary.upper_quartile,
                summary.best,
                summary.worst,
                summary.mean,
                " ".join(map(str, versions)),
                *about_median(summary),
                *interval_ends(summary.mean_interval),
            )


_CURVES = (
    *("problem", "label", "measure", "t", "runs"),
    *("median", "lower_quartile", "upper_quartile", "mean", "mean_low", "mean_high"),
)


def _curves(data: Dataset) -> Iterable[Row]:
    for cell in data.cells:
        for measure, values in cell.curves.items():
            low, median, high = np.quantile(values, (0.25, 0.5, 0.75), axis=0).tolist()
            means = [
                (mean_of(at_t), *interval_ends(mean_interval(at_t))) for at_t in values.T.tolist()
            ]
            for t, *row, mean in zip(cell.t.tolist(), median, low, high, means, strict=True):
                yield (cell.problem, cell.label, measure, t, len(values), *row, *mean)


def _checkpoints_csv(data: Dataset) -> dict[str, str]:
    """Return the statistics of every cell after the steps that the specs ask for, if any."""
    rows = [
        (
            *(cell.problem, cell.label, measure, t, summary.n),
            *(summary.median, *interval_ends(summary.interval)),
            *(summary.lower_quartile, summary.upper_quartile, summary.best, summary.worst),
            *(summary.mean, *interval_ends(summary.mean_interval)),
        )
        for cell, measure, t, summary in at_checkpoints(data)
    ]
    return {"checkpoints.csv": as_csv(_CHECKPOINTS, rows)} if rows else {}


_CHECKPOINTS = (
    *("problem", "label", "measure", "t", "runs", "median", "interval_low", "interval_high"),
    *("lower_quartile", "upper_quartile", "best", "worst", "mean", "mean_low", "mean_high"),
)


def at_checkpoints(data: Dataset) -> Iterable[AtCheckpoint]:
    """Yield the summary of every cell and measure after every step that its specs ask for."""
    asked = {spec.hash: spec.resolved.get("checkpoints", ()) for spec in data.specs}
    for cell in data.cells:
        marks = sorted({mark for spec in cell.specs for mark in asked.get(spec, ())})
        places = [(mark, np.flatnonzero(cell.t == mark)) for mark in marks]
        for measure, values in cell.curves.items():
            for mark, place in places:
                if place.size:
                    yield cell, measure, mark, summarise(values[:, place[0]])


_BEFORE = ("problem", "label", "seed", "steps")
_AFTER = ("seconds", "fmdp_version", "results_version", "machine", "key")


def _runs(data: Dataset) -> Iterable[Row]:
    for cell in data.cells:
        for run in cell.runs:
            measures = [run.measures.get(measure.name) for measure in declared()]
            about = [getattr(run, name) for name in _AFTER]
            yield (cell.problem, cell.label, run.seed, run.steps, *measures, *about)
