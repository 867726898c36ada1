"""`fmdp serve`: a learner on a live system, by lines on standard input and output.

The protocol is service/lines.py, the promise service/service.py. Standard output has answers alone;
what an operator should know goes to standard error. The end of the input is the end of the service,
with a snapshot and status 0; Ctrl-C and SIGTERM the same with 130 and 143.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from fmdp._base.interrupts import held
from fmdp.cli import options
from fmdp.cli.learn import learner_of
from fmdp.cli.progress import progress
from fmdp.cli.signals import say
from fmdp.errors import FileProblem, FmdpError


def serve(
    model: Annotated[
        str,
        typer.Option(
            metavar="MODEL",
            help="The system: a model file or a problem id; its names and structure count.",
        ),
    ],
    learner: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="A learner (see `fmdp list`), e.g. psrl or psrl,c=0.1; one's own as module:Class.",
            autocompletion=options.complete_learner,
        ),
    ],
    dir: Annotated[
        Path,
        typer.Option(
            "--dir",
            metavar="DIR",
            help="What the learner knows, durable; made if it is not there, else gone on with.",
        ),
    ],
    seed: Annotated[str, typer.Option(metavar="S", help="Seed of the learner.")] = "0",
    set: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="A parameter of the learner; repeatable.",
            autocompletion=options.complete_setting,
        ),
    ] = None,
    batch: Annotated[
        str,
        typer.Option(
            metavar="N", help="Lines that wait together and share one fsync; 1: one each."
        ),
    ] = "1000",
    snapshot_every: Annotated[
        str, typer.Option(metavar="N", help="Events between two snapshots of the learner.")
    ] = "10000",
    planner: options.Planner = None,
    span_budget: options.SpanBudget = None,
    span_split: options.SpanSplit = None,
    basis: options.Basis = None,
    method: options.Method = None,
    criterion: options.Criterion = None,
    horizon: options.Horizon = None,
    discount: options.Discount = None,
    tolerance: options.Tolerance = None,
    max_iterations: options.MaxIterations = None,
    max_seconds: options.MaxSeconds = None,
    memory_limit: options.MemoryLimit = None,
    ties: options.Ties = None,
    tie_seed: options.TieSeed = None,
) -> None:
    """A learner on a live system: JSON lines in and out, durable."""
    settings = options.planner_settings(locals())
    from fmdp._base.parameters import Integer
    from fmdp.problems import problem
    from fmdp.service import Service
    from fmdp.service.lines import serve as serve_lines

    lines = Integer("batch", 1000, "", low=1).parse(batch, "fmdp serve")
    if sys.stdin is None:
        raise FileProblem("cannot read standard input: it is closed")
    with progress(f"opening {dir}"):
        found = problem(model)
        chosen, _ = learner_of(learner, set or (), planner, settings, found)
        service = Service(found, chosen, dir, seed, snapshot_every=snapshot_every, say=say)  # type: ignore[arg-type]
    try:
        serve_lines(service, sys.stdin.fileno(), _write, batch=lines)
    except FmdpError:
        service.close(snapshot=False)
        raise
    finally:
        with held():  # a second Ctrl-C does not end the saving
            service.close()


def _write(answers: bytes) -> None:
    sys.stdout.write(answers.decode())
    sys.stdout.flush()
