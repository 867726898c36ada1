"""`fmdp pareto`: the front of two long-run averages."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fmdp._base.numerals import upper_text
from fmdp.cli import options
from fmdp.cli.inspect import page_in
from fmdp.cli.output import known_number, print_json, print_people, table
from fmdp.cli.plan_output import exit_status
from fmdp.cli.progress import progress
from fmdp.errors import InvalidParameter


def pareto(
    problem: options.Problem,
    of: Annotated[
        str | None,
        typer.Option(
            "--of",
            metavar="A,B",
            help="Two reward factors or quantities, or `reward` for the total. Each is maximised; "
            "NAME:min is minimised.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="DIR",
            help="Write front.csv, the policy of each vertex, and a figure if Matplotlib is "
            "installed, to this directory, created if missing.",
        ),
    ] = None,
    json: options.Json = False,
) -> int:
    """Find the front of two long-run averages and its policies.

    Between two neighbouring vertices, mixtures of their policies attain the averages on the line.
    """
    from fmdp.planning.constrained.front import pareto as front_of
    from fmdp.problems import problem as problem_of
    from fmdp.reports.front_figure import write_front

    if of is None or len(names := [name.strip() for name in of.split(",")]) != 2:
        raise InvalidParameter(
            f"--of must be two names, as in --of reward,callouts:min; got {of!r}"
        )
    target = None if out is None else page_in(out, "front.csv")
    with progress(f"searching the front of {problem}") as report:
        model = problem_of(problem)
        front = front_of(model, names, progress=report)
    files = [] if target is None else write_front(front, target)
    if json:
        print_json(
            {
                "problem": problem,
                "of": front.names,
                "minimised": front.minimised,
                "status": front.status.value,
                "vertices": [vertex.values for vertex in front.vertices],
                "bounds": [vertex.bounds for vertex in front.vertices],
                "gap": "inf" if front.gap == float("inf") else front.gap,
                "policies": files or None,
                "remarks": model.remarks,
            }
        )
    else:
        rows = [
            [known_number(v, *ends) for v, ends in zip(vertex.values, vertex.bounds, strict=True)]
            for vertex in front.vertices
        ]
        print_people(table(front.names, rows, right=front.names))
        for remark in model.remarks:
            print(f"remark: {remark}")
        print(f"{front.status.value}: {front.status.message}")
        if front.gap < float("inf"):
            print(f"gap {upper_text(front.gap, 2)}, in shares of the ranges of the two averages")
        if target is not None:
            print(f"wrote {target} and the policies vertex-*.npz beside it")
    return exit_status(front.status)
