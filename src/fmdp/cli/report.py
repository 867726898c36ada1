"""`fmdp report`: figures, tables and a web page from stored runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fmdp.cli.options import Json, Latex, StoreDirectory
from fmdp.cli.output import print_json, print_people, table
from fmdp.cli.progress import progress
from fmdp.cli.signals import say
from fmdp.errors import printable

if TYPE_CHECKING:
    from fmdp.experiments.statistics import SampleSummary
    from fmdp.reports.report import Report

# Largest table that is printed; the page and cells.csv have every row.
MOST_ROWS = 40
MOST_COLUMNS = 6
SUMMARY_KEYS = (
    *("median", "interval", "lower_quartile", "upper_quartile"),
    *("worst", "mean", "mean_interval"),
)
"""Keys of a summary in JSON, which are its attributes."""


def report(
    directory: StoreDirectory,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Directory to write to. Default: DIR/report."),
    ] = None,
    latex: Latex = False,
    json: Json = False,
) -> int:
    """Write figures, tables (CSV) and a web page of stored runs."""
    from fmdp.reports.report import write_report

    with progress(f"report of {directory}", compiles=False):
        written = write_report(directory, out, latex=latex, waiting=say)
    if json:
        print_json(as_json(written))
    else:
        print_report(written)
    return warn_of_figures(written)


def warn_of_figures(written: Report) -> int:
    """Print why there are no figures, if so, and return the exit status."""
    if written.without_figures is None:
        return 0
    say(written.without_figures)
    return 1


def as_json(written: Report) -> dict[str, Any]:
    return {
        "page": str(written.page),
        "files": [str(path) for path in written.files],
        "notes": written.notes,
        "paragraphs": written.paragraphs,
        "cells": [
            {
                "problem": cell_summary.cell.problem,
                "label": cell_summary.cell.label,
                "learner": cell_summary.cell.learner,
                "steps": cell_summary.cell.steps,
                "runs": len(cell_summary.cell.runs),
                "regret": _summary(cell_summary.by_measure.get("regret")),
                "gap_regret": _summary(cell_summary.by_measure.get("gap_regret")),
            }
            for cell_summary in written.analysis.summaries
        ],
    }


def _summary(summary: SampleSummary | None) -> dict[str, Any] | None:
    if summary is None:
        return None
    return {key: getattr(summary, key) for key in SUMMARY_KEYS}


def print_report(written: Report) -> None:
    from fmdp.experiments.measures import title_of

    names = [problem.name for problem in written.runs.problems]
    for number, measure in enumerate(written.runs.measures):
        summaries = {
            (summary.cell.label, summary.cell.problem): summary.by_measure[measure]
            for summary in written.analysis.summaries
            if measure in summary.by_measure
        }
        if number:
            print()
        print(f"{title_of(measure)} after the last step: median (mean, worst run)")
        if len(names) <= MOST_COLUMNS:
            print_across(summaries, names)
        else:
            print_down(summaries)
    print_checkpoints(written, title_of(written.runs.measures[-1]))
    for paragraph in (*written.notes, *written.paragraphs):
        print(f"\n{printable(paragraph)}")
    kinds: dict[str, list[str]] = {}
    for path in written.files[1:]:
        kinds.setdefault(path.stem, []).append(path.suffix)
    beside = ", ".join(stem + " ".join(suffixes) for stem, suffixes in kinds.items())
    print(f"\npage    {printable(str(written.page))}\nfiles   {beside}")


def print_checkpoints(written: Report, title: str) -> None:
    """Print the last measure after the steps that a spec asks for."""
    measure = written.runs.measures[-1]
    rows = [entry for entry in written.checkpoints if entry[1] == measure]
    if not rows:
        return
    marks = sorted({mark for _, _, mark, _ in rows})
    by_cell: dict[tuple[str, str], dict[int, str]] = {}
    for cell, _, mark, summary in rows:
        by_cell.setdefault((cell.problem, cell.label), {})[mark] = short(summary)
    heads = [f"t = {mark:,}" for mark in marks[:MOST_COLUMNS]]
    lines = [
        (*names, *(texts.get(mark, "-") for mark in marks[:MOST_COLUMNS]))
        for names, texts in by_cell.items()
    ]
    print(f"\n{title} after t steps: median (mean, worst run)")
    print_people(table(("problem", "learner", *heads), lines[:MOST_ROWS], right=heads))
    if len(lines) > MOST_ROWS or len(marks) > MOST_COLUMNS:
        print("checkpoints.csv has every row")


def print_across(summaries: Mapping[tuple[str, str], SampleSummary], names: Sequence[str]) -> None:
    """Print one row per learner and one column per problem."""
    labels = list(dict.fromkeys(label for label, _ in summaries))
    rows = [
        (label, *(short(summaries.get((label, name))) for name in names))
        for label in labels[:MOST_ROWS]
    ]
    print_people(table(("learner", *names), rows, right=names))
    print_rest(len(labels))


def print_down(summaries: Mapping[tuple[str, str], SampleSummary]) -> None:
    """Print one row per problem and learner, for more problems than fit on a terminal."""
    rows = [(name, label, short(summary)) for (label, name), summary in summaries.items()]
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
