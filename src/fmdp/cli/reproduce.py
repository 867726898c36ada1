"""`fmdp reproduce`: the figure of Xu & Tewari (2020), run into a store, drawn and told.

First the exact plans of its four problems, which regret is measured against; then the sweep, which
goes on where it was interrupted; then the report.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from fmdp._base.memory import describe_count
from fmdp.cli.output import print_people, seconds_text, short_number, table
from fmdp.cli.plan import exit_status, run
from fmdp.cli.progress import progress
from fmdp.cli.report import print_report
from fmdp.cli.signals import say
from fmdp.cli.sweep import WorkerCount, print_summary, run_spec, team

# So tight that the gains can be compared digit by digit; it costs a few more sweeps.
TOLERANCE = 1e-9


def reproduce(
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="Directory of the store and the report.")
    ] = Path("out/reproduce"),
    runs: Annotated[int, typer.Option(metavar="N", help="Runs of each learner.", min=1)] = 20,
    steps: Annotated[int, typer.Option(metavar="T", help="Steps of each run.", min=1)] = 10_000,
    workers: WorkerCount = None,
    search: Annotated[
        bool, typer.Option("--search", help="The paper's search over constants, too.")
    ] = False,
) -> int:
    """The paper's figure and table, and ours beside them."""
    started = time.perf_counter()
    from fmdp.experiments.paper import figure_spec
    from fmdp.reports.report import write_report

    spec = figure_spec(runs=runs, steps=steps, search=search)
    status = print_plans([problem.id for problem in spec.problems])
    summary = run_spec(spec, out, team(workers), retry_failed=True)
    with progress(f"report of {out}", compiles=False):
        written = write_report(out, waiting=say)
    print()
    print_report(written)
    print()
    print_summary(summary, retried=True)
    from fmdp.experiments.progress import duration

    print(f"in all {duration(time.perf_counter() - started)}")
    if written.without_figures is not None:
        print(f"fmdp: {written.without_figures}", file=sys.stderr)
        status = 1
    return 1 if summary.failed else status


def print_plans(problems: list[str]) -> int:
    """The optimal gains, certified; the exit status of the worst of the plans."""
    rows = []
    status = 0
    for problem in problems:
        result: dict[str, Any] = {"problem": problem}
        found = run(result, "exact", {"tolerance": TOLERANCE})
        status = max(status, exit_status(found.status))
        lower, upper = (short_number(result[key], 10) for key in ("gain_lower", "gain_upper"))
        rows.append(
            (
                problem,
                describe_count(result["states"]),
                describe_count(result["actions"]),
                short_number(result["gain"], 8),
                f"{lower} to {upper}",
                short_number(result["span"], 5),
                short_number(result["factored_span_sum"], 5),
                f"{result['iterations']:,}",
                seconds_text(result["seconds"]),
                result["status"],
            )
        )
    heads = (
        "problem",
        "states",
        "actions",
        "gain",
        "certified bounds",
        "span",
        "Q",
        "sweeps",
        "time",
        "status",
    )
    print_people(table(heads, rows, right=heads[1:4] + heads[5:9]))
    return status
