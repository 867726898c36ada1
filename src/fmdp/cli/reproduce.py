"""`fmdp reproduce`: the figure of Xu & Tewari (2020), computed anew, with a report.

It makes the exact plans of the four problems, which regret is measured against, runs the sweep,
which resumes if it was interrupted, and writes the report.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from fmdp._base.memory import describe_count
from fmdp.cli import options
from fmdp.cli.output import print_people, seconds_text, short_number, table
from fmdp.cli.plan import run
from fmdp.cli.plan_output import exit_status
from fmdp.cli.progress import progress
from fmdp.cli.report import print_report, warn_of_figures
from fmdp.cli.signals import say
from fmdp.cli.sweep import make_workers, print_summary, run_spec

# Tight enough to compare the gains digit by digit; it costs a few more sweeps.
TOLERANCE = 1e-9


def reproduce(
    out: Annotated[
        Path,
        typer.Option(
            metavar="DIR", help="Directory of the runs and the report; resumed if it exists."
        ),
    ] = Path("out/reproduce"),
    runs: options.Runs = 20,
    steps: options.Steps = 10_000,
    workers: options.WorkerCount = None,
    search: Annotated[
        bool, typer.Option("--search", help="Also repeat the paper's search over constants.")
    ] = False,
) -> int:
    """Reproduce the figure of the paper (Xu & Tewari, 2020).

    The report shows the learners of fmdp beside those of the paper.
    """
    started = time.perf_counter()
    from fmdp.experiments.paper import figure_spec
    from fmdp.reports.report import write_report

    spec = figure_spec(runs=runs, steps=steps, search=search)
    status = print_plans([problem.id for problem in spec.problems])
    summary = run_spec(spec, out, make_workers(workers), retry_failed=True)
    with progress(f"report of {out}", compiles=False):
        written = write_report(out, waiting=say)
    print()
    print_report(written)
    print()
    print_summary(summary, retried=True)
    from fmdp.experiments.progress import duration

    print(f"total  {duration(time.perf_counter() - started)}")
    status = max(status, warn_of_figures(written))
    return 1 if summary.failed else status


def print_plans(problems: list[str]) -> int:
    """Print the certified optimal gains and return the largest exit status of the plans."""
    rows = []
    status = 0
    for problem in problems:
        result: dict[str, Any] = {"problem": problem}
        request = options.PlannerRequest("exact", {"tolerance": TOLERANCE})
        status = max(status, exit_status(run(result, request).status))
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
        *("problem", "states", "actions", "gain", "certified bounds"),
        *("span", "Q", "sweeps", "time", "status"),
    )
    print_people(table(heads, rows, right=heads[1:4] + heads[5:9]))
    return status
