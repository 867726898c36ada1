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
from typing import Annotated

import typer

from fmdp._base.interrupts import held
from fmdp.cli import options
from fmdp.cli.learn import make_learner
from fmdp.cli.output import results
from fmdp.cli.progress import progress
from fmdp.cli.signals import say
from fmdp.errors import FileProblem, FmdpError


@options.with_planner_options
def serve(
    model: Annotated[
        str,
        typer.Option(
            metavar="MODEL",
            help="The system: a model file or a problem id, of which names and structure are used.",
        ),
    ],
    learner: options.Learner,
    dir: Annotated[
        Path,
        typer.Option(
            "--dir",
            metavar="DIR",
            help="Directory of the learner's state; created if missing, otherwise resumed.",
        ),
    ],
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
    from fmdp._base.parameters import Integer
    from fmdp.problems import problem
    from fmdp.service import Service
    from fmdp.service.lines import serve as serve_lines

    lines = Integer("batch", 1000, "", low=1).parse(batch, "fmdp serve")
    if sys.stdin is None:
        raise FileProblem("cannot read standard input: it is closed")
    with progress(f"opening {dir}"):
        system = problem(model)
        chosen, _ = make_learner(learner, set or (), request, system)
        service = Service(system, chosen, dir, seed, snapshot_every=snapshot_every, say=say)  # type: ignore[arg-type]
    try:
        serve_lines(service, _reserved_input(), _write, batch=lines)
    except FmdpError:
        service.close(snapshot=False)
        raise
    finally:
        with held():  # another Ctrl-C must not interrupt the saving
            service.close()


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
