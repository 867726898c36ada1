"""`fmdp report`: figures, tables and the web page of stored runs; nothing is run."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fmdp.cli.options import Json
from fmdp.cli.output import print_json, print_people, table
from fmdp.cli.progress import progress
from fmdp.cli.signals import say
from fmdp.errors import printable

if TYPE_CHECKING:
    from fmdp.experiments.statistics import SampleSummary
    from fmdp.reports.report import Report

# A table for a terminal; the page and cells.csv have every row.
MOST_ROWS = 40
MOST_COLUMNS = 6


def report(
    directory: Annotated[
        Path,
        typer.Argument(
            metavar="DIR", help="Directory of the store (`fmdp sweep --out`).", show_default=False
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Where to write. Default: DIR/report.", show_default=False
        ),
    ] = None,
    json: Json = False,
) -> int:
    """Figures, tables (CSV too) and a web page from stored runs."""
    from fmdp.reports.report import write_report

    with progress(f"report of {directory}", compiles=False):
        written = write_report(directory, out, waiting=say)
    if json:
        print_json(as_json(written))
    else:
        print_report(written)
    if written.without_figures is not None:
        print(f"fmdp: {written.without_figures}", file=sys.stderr)
        return 1
    return 0


def as_json(written: Report) -> dict[str, Any]:
    return {
        "page": str(written.page),
        "files": [str(path) for path in written.files],
        "notes": written.notes,
        "paragraphs": written.paragraphs,
        "cells": [
            {
                "problem": found.cell.problem,
                "label": found.cell.label,
                "learner": found.cell.learner,
                "steps": found.cell.steps,
                "runs": len(found.cell.runs),
                "regret": _summary(found.by_measure.get("regret")),
                "gap_regret": _summary(found.by_measure.get("gap_regret")),
            }
            for found in written.analysis.summaries
        ],
    }


def _summary(summary: SampleSummary | None) -> dict[str, Any] | None:
    if summary is None:
        return None
    return {
        "median": summary.median,
        "interval": summary.interval,
        "lower_quartile": summary.lower_quartile,
        "upper_quartile": summary.upper_quartile,
        "worst": summary.worst,
        "mean": summary.mean,
        "mean_interval": summary.mean_interval,
    }


def print_report(written: Report) -> None:
    from fmdp.experiments.measures import title_of

    names = [problem.name for problem in written.runs.problems]
    for number, measure in enumerate(written.runs.measures):
        found = {
            (summary.cell.label, summary.cell.problem): summary.by_measure[measure]
            for summary in written.analysis.summaries
            if measure in summary.by_measure
        }
        if number:
            print()
        print(f"{title_of(measure)} after the last step: median (mean, worst run)")
        if len(names) <= MOST_COLUMNS:
            print_across(found, names)
        else:
            print_down(found)
    for paragraph in (*written.notes, *written.paragraphs):
        print(f"\n{printable(paragraph)}")
    kinds: dict[str, list[str]] = {}
    for path in written.files[1:]:
        kinds.setdefault(path.stem, []).append(path.suffix)
    beside = ", ".join(stem + " ".join(suffixes) for stem, suffixes in kinds.items())
    print(f"\npage    {printable(str(written.page))}\nbeside  {beside}")


def print_across(found: Mapping[tuple[str, str], SampleSummary], names: Sequence[str]) -> None:
    """A row a learner, a column a problem."""
    labels = list(dict.fromkeys(label for label, _ in found))
    rows = [
        (label, *(short(found.get((label, name))) for name in names))
        for label in labels[:MOST_ROWS]
    ]
    print_people(table(("learner", *names), rows, right=names))
    print_rest(len(labels))


def print_down(found: Mapping[tuple[str, str], SampleSummary]) -> None:
    """A row a cell, for more problems than a terminal has room for."""
    rows = [(name, label, short(summary)) for (label, name), summary in found.items()]
    rows.sort(key=lambda row: row[0])
    print_people(table(("problem", "learner", "regret"), rows[:MOST_ROWS], right=("regret",)))
    print_rest(len(rows))


def print_rest(count: int) -> None:
    if count > MOST_ROWS:
        print(f"... {count - MOST_ROWS:,} more rows in cells.csv")


def short(summary: SampleSummary | None) -> str:
    if summary is None:
        return "-"
    form = ",.0f" if abs(summary.median) + abs(summary.worst) < 1e15 else ".3g"
    return f"{summary.median:{form}} ({summary.mean:{form}}, {summary.worst:{form}})"
