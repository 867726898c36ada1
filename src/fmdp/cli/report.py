"""`fmdp report`: figures, tables and the web page of stored runs; nothing is run."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fmdp.cli.options import Json
from fmdp.cli.output import print_json, print_people, table

if TYPE_CHECKING:
    from fmdp.reports.report import Report

# A table for a terminal; the page and cells.csv have every row.
MOST_ROWS = 40


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

    written = write_report(directory, out)
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


def _summary(summary: Any) -> dict[str, Any] | None:
    if summary is None:
        return None
    return {
        "median": summary.median,
        "interval": summary.interval,
        "lower_quartile": summary.lower_quartile,
        "upper_quartile": summary.upper_quartile,
        "worst": summary.worst,
    }


def print_report(written: Report) -> None:
    from fmdp.reports.cells import GAP, REALISED

    rows = []
    for found in written.analysis.summaries[:MOST_ROWS]:
        cells = [found.cell.problem, found.cell.label, f"{len(found.cell.runs)}"]
        for measure in (REALISED, GAP):
            summary = found.by_measure.get(measure)
            if summary is None:
                cells += ["-", "-", "-"]
            else:
                quartiles = f"{summary.lower_quartile:,.0f} to {summary.upper_quartile:,.0f}"
                cells += [f"{summary.median:,.0f}", quartiles, f"{summary.worst:,.0f}"]
        rows.append(cells)
    # A space tells the two columns of quartiles apart for the table, not for the eye.
    heads = (
        "problem", "learner", "runs", "regret", "quartiles", "worst", "gap regret", "quartiles ",
        "worst ",
    )  # fmt: skip
    print_people(table(heads, rows, right=heads[2:]))
    more = len(written.analysis.summaries) - MOST_ROWS
    if more > 0:
        print(f"... {more:,} more rows in cells.csv")
    for paragraph in (*written.notes, *written.paragraphs):
        print(f"\n{paragraph}")
    kinds: dict[str, list[str]] = {}
    for path in written.files[1:]:
        kinds.setdefault(path.stem, []).append(path.suffix)
    beside = ", ".join(stem + " ".join(suffixes) for stem, suffixes in kinds.items())
    print(f"\npage    {written.page}\nbeside  {beside}")
