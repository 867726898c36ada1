"""`fmdp sweep`: many runs into a store, resumable; progress goes to standard error."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fmdp.cli.output import columns, print_people
from fmdp.cli.progress import progress
from fmdp.cli.signals import say
from fmdp.errors import InvalidParameter

if TYPE_CHECKING:
    from fmdp.experiments.executors import Workers
    from fmdp.experiments.spec import Spec
    from fmdp.experiments.sweep import SweepSummary

# A failed run is told with its error; of hundreds, the first few tell the story.
_MOST_ERRORS = 5

WorkerCount = Annotated[
    int | None,
    typer.Option(metavar="N", help="Worker processes. Default: one a core.", show_default=False),
]


def sweep(
    spec: Annotated[
        Path, typer.Argument(metavar="SPEC.toml", help="What to run (docs/experiments.md).")
    ],
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="Directory of the store, new or begun earlier.")
    ],
    workers: WorkerCount = None,
    dask: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Send the runs to this Dask scheduler instead."),
    ] = None,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Run those again that failed or are damaged.")
    ] = False,
) -> int:
    """Many runs, resumable: what is done is never run again."""
    from fmdp.experiments.spec import read_spec

    if dask is not None and workers is not None:
        raise InvalidParameter("--workers and --dask exclude each other; give one of them")
    with progress(f"reading {spec}", compiles=False):
        read = read_spec(spec)
    summary = run_spec(read, out, team(workers, dask), retry_failed=retry_failed)
    print_summary(summary, retry_failed)
    return 1 if summary.failed else 0


def team(workers: int | None, dask: str | None = None) -> Workers:
    from fmdp.experiments.executors import Dask, Processes

    return Processes(workers) if dask is None else Dask(dask)


def run_spec(
    spec: Spec, out: Path, workers: Workers, *, retry_failed: bool = False
) -> SweepSummary:
    """Run what is missing, with progress; on Ctrl-C, say how to go on."""
    from fmdp.experiments.progress import progress_line
    from fmdp.experiments.sweep import run_sweep

    try:
        with progress(spec.name, progress_line) as report:
            return run_sweep(
                spec,
                out,
                workers=workers,
                retry_failed=retry_failed,
                progress=report,
                waiting=say,
            )
    except KeyboardInterrupt:
        raise KeyboardInterrupt(
            f"interrupted; what is done is in {out}: the same command goes on"
        ) from None


def print_summary(summary: SweepSummary, retried: bool) -> None:
    from fmdp.experiments.progress import duration

    runs = f"{summary.total} runs: {summary.done} done, {summary.failed} failed"
    if summary.already:
        runs += f" ({summary.already} were there before)"
    rows = [("runs", runs), ("time", duration(summary.seconds)), ("store", str(summary.path))]
    for number, (run, error) in enumerate(summary.errors.items()):
        if number == _MOST_ERRORS:
            rows.append(("", f"and {summary.failed - number} more"))
            break
        # Of a traceback the last line says what happened; the store has the whole.
        rows.append(("failed", f"{run}: {error.strip().splitlines()[-1]}"))
    if summary.failed and not retried:
        rows.append(("", "--retry-failed runs these again"))
    print_people(columns(rows))
