"""`fmdp sweep`: run a spec into a store, resumably; progress goes to standard error."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fmdp.cli import options
from fmdp.cli.output import columns, print_people
from fmdp.cli.progress import progress
from fmdp.cli.signals import say
from fmdp.errors import InvalidParameter

if TYPE_CHECKING:
    from fmdp.experiments.executors import Workers
    from fmdp.experiments.spec import Spec
    from fmdp.experiments.sweep import SweepSummary

# Errors of failed runs that are printed; the store has all.
_MOST_ERRORS = 5


def sweep(
    spec: Annotated[
        Path,
        typer.Argument(
            metavar="SPEC.toml",
            help="The problems, learners and seeds to run (docs/experiments.md).",
        ),
    ],
    out: Annotated[
        Path,
        typer.Option(
            metavar="DIR",
            help="Directory of the stored runs; created if missing, otherwise resumed.",
        ),
    ],
    workers: options.WorkerCount = None,
    dask: options.DaskAddress = None,
    retry_failed: options.RetryFailed = False,
) -> int:
    """Run many learners on many problems, resumably.

    Finished runs are stored and never repeated. After Ctrl-C the same command continues.
    """
    from fmdp.experiments.spec import read_spec

    team = make_workers(workers, dask)
    with progress(f"reading {spec}", compiles=False):
        read = read_spec(spec)
    summary = run_spec(read, out, team, retry_failed=retry_failed)
    print_summary(summary, retry_failed)
    return 1 if summary.failed else 0


def make_workers(workers: int | None, dask: str | None = None) -> Workers:
    if dask is not None and workers is not None:
        raise InvalidParameter("--workers and --dask exclude each other; give one of them")
    from fmdp.experiments.executors import Dask, Processes

    return Processes(workers) if dask is None else Dask(dask)


def run_spec(
    spec: Spec, out: Path, workers: Workers, *, retry_failed: bool = False
) -> SweepSummary:
    """Run what is missing, with progress; Ctrl-C prints how to continue."""
    from fmdp.experiments.progress import progress_line
    from fmdp.experiments.sweep import run_sweep

    try:
        with progress(spec.name, progress_line) as report:
            return run_sweep(
                spec, out, workers=workers, retry_failed=retry_failed, progress=report, waiting=say
            )
    except KeyboardInterrupt:
        raise KeyboardInterrupt(
            f"interrupted; finished runs are in {out}: the same command continues"
        ) from None


def print_summary(summary: SweepSummary, retried: bool) -> None:
    from fmdp.experiments.progress import duration

    runs = f"{summary.total} runs: {summary.done} done, {summary.failed} failed"
    if summary.already:
        runs += f" ({summary.already} were done before)"
    rows = [("runs", runs), ("time", duration(summary.seconds)), ("store", str(summary.path))]
    for number, (run, error) in enumerate(summary.errors.items()):
        if number == _MOST_ERRORS:
            rows.append(("", f"and {summary.failed - number} more"))
            break
        # The last line of a traceback names the error; the store has all of it.
        rows.append(("failed", f"{run}: {error.strip().splitlines()[-1]}"))
    if summary.failed and not retried:
        rows.append(("", "--retry-failed runs these again"))
    print_people(columns(rows))
