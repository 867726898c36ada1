"""`fmdp serve`: a learner on a live system, with JSON lines on standard input and output.

The protocol is described in service/lines.py, the durability promise in service/service.py.
Standard output carries answers only; messages for the operator, and whatever a user's learner
prints, go to standard error. At the end of the input the service saves a snapshot and exits with
status 0; on Ctrl-C and SIGTERM it does the same with status 130 and 143.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fmdp._base.interrupts import held
from fmdp.cli import options
from fmdp.cli.learn import make_learner
from fmdp.cli.output import refuse_unwritable, results
from fmdp.cli.progress import progress
from fmdp.cli.signals import say
from fmdp.errors import FileProblem, FmdpError, InvalidParameter

if TYPE_CHECKING:
    from collections.abc import Callable

    from fmdp.service import Observations


@options.with_planner_options
def serve(
    dir: Annotated[
        Path,
        typer.Option(
            "--dir",
            metavar="DIR",
            help="Directory of the learner's state; created if missing, otherwise resumed.",
        ),
    ],
    model: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL",
            help="The system: a model file or a problem id, of which names and structure are used.",
        ),
    ] = None,
    learner: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="The learner, as for `fmdp learn`.",
            autocompletion=options.complete_learner,
        ),
    ] = None,
    export: Annotated[
        Path | None,
        typer.Option(
            metavar="LOG",
            help="Write the observations in --dir as a CSV file for `fmdp fit`, and end.",
        ),
    ] = None,
    migrate: Annotated[
        Path | None,
        typer.Option(
            metavar="OLD",
            help="Begin a new --dir with the observations in OLD, whose model may differ.",
        ),
    ] = None,
    seed: Annotated[str, typer.Option(metavar="S", help="Seed of the learner.")] = "0",
    set: options.LearnerSettings = None,
    batch: Annotated[
        str,
        typer.Option(
            metavar="N",
            help="Maximum number of waiting lines that are written to disk together.",
        ),
    ] = "1000",
    snapshot_every: Annotated[
        str, typer.Option(metavar="N", help="Events between two snapshots of the learner.")
    ] = "10000",
    request: options.PlannerRequest = options.NO_REQUEST,
) -> None:
    """Run a learner on a live system with JSON lines.

    Reads requests from standard input and writes answers to standard output. Everything that has
    been acknowledged survives a crash.
    """
    from fmdp import service as services
    from fmdp._base.parameters import Integer
    from fmdp.problems import problem
    from fmdp.service.lines import serve as serve_lines

    if export is not None:
        if model is not None or learner is not None or migrate is not None:
            raise InvalidParameter(
                "--export needs --dir alone; got --model, --learner or --migrate"
            )
        _export(services.export_log, dir, export)
        return
    if model is None or learner is None:
        raise InvalidParameter("fmdp serve needs --model MODEL and --learner NAME")
    lines = Integer("batch", 1000, "", low=1).parse(batch, "fmdp serve")
    if sys.stdin is None:
        raise FileProblem("cannot read standard input: it is closed")
    with progress(f"opening {dir}"):
        system = problem(model)
        chosen, _ = make_learner(learner, set or (), request, system)
        every: Any = snapshot_every  # the service parses both texts
        start: Any = seed
        service = services.Service(system, chosen, dir, start, snapshot_every=every, say=say)
    try:
        if migrate is not None:
            for line in services.migrate(service, migrate):
                say(line)
        serve_lines(service, _reserved_input(), _write, batch=lines)
    except FmdpError:
        service.close(snapshot=False)
        raise
    finally:
        with held():  # another Ctrl-C must not interrupt the saving
            service.close()


def _export(export_log: Callable[[Path, Path], Observations], folder: Path, out: Path) -> None:
    """Write the observations of a folder as a log."""
    refuse_unwritable(out)
    with progress(f"reading {folder}", compiles=False):
        stored = export_log(folder, out)
    missing = ""
    if stored.missing:
        missing = f"; the first {stored.missing:,} events were not kept"
    say(f"{len(stored.steps):,} observations in {out}{missing}")


def _reserved_input() -> int:
    """Return a descriptor of standard input that only the protocol reads.

    A process that a user's learner starts would otherwise read lines that it inherits.
    """
    source = os.dup(sys.stdin.fileno())
    with open(os.devnull, "rb") as nothing:  # noqa: PTH123
        os.dup2(nothing.fileno(), sys.stdin.fileno())
    return source


def _write(answers: bytes) -> None:
    stream = results()
    stream.write(answers.decode())
    stream.flush()
