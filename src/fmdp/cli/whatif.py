"""`fmdp whatif`: plans against a parameter of a problem."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fmdp._base.parameters import Integer
from fmdp.cli import options
from fmdp.cli.inspect import page_in, percent
from fmdp.cli.output import interval_text, known_number, print_json, print_people, table
from fmdp.cli.plan_output import exit_status
from fmdp.cli.progress import progress
from fmdp.errors import InvalidParameter, did_you_mean

if TYPE_CHECKING:
    from fmdp.simulation.whatif import Point, WhatIf

_MOST_POINTS = 1000


def whatif(
    problem: options.Problem,
    vary: Annotated[
        str | None,
        typer.Option(
            "--vary",
            metavar="KEY=FIRST:LAST:COUNT",
            help="The parameter of the problem id, its first and last value, and their number.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="DIR",
            help="Write whatif.csv, and a figure if Matplotlib is installed, to this directory, "
            "created if missing.",
        ),
    ] = None,
    json: options.Json = False,
) -> int:
    """Plan for several values of a parameter and compare.

    The table has the gain with its bounds, and the share of states and of time in which the policy
    differs from that of the first value.
    """
    from fmdp.problems import problem as problem_of
    from fmdp.simulation.whatif import vary as vary_parameter

    key, values = _values(vary)
    head, settings = _without(problem, key)
    texts = [f"{value:.12g}" for value in values]
    target = None if out is None else page_in(out, "whatif.csv")
    with progress(f"varying {key}") as report:
        varied = vary_parameter(
            lambda text: problem_of(",".join([head, *settings, f"{key}={text}"])),
            key,
            texts,
            progress=report,
        )
    if target is not None:
        _write(varied, target)
    if json:
        points = [_keys(point) for point in varied.points]
        print_json({"problem": problem, "parameter": key, "points": points})
    else:
        print_people(_table(varied))
    return max(exit_status(point.status) for point in varied.points)


def _values(vary: str | None) -> tuple[str, list[float]]:
    """Return the key and the values of KEY=FIRST:LAST:COUNT."""
    import numpy as np

    form = "--vary must be KEY=FIRST:LAST:COUNT, as in alpha1=0.05:0.3:6"
    key, sign, span = (vary or "").partition("=")
    parts = span.split(":")
    if not sign or not key.strip() or len(parts) != 3:
        raise InvalidParameter(f"{form}; got {vary!r}" if vary else f"{form}; it is missing")
    try:
        first, last = float(parts[0]), float(parts[1])
    except ValueError:
        raise InvalidParameter(f"{form}; got {vary!r}, whose ends are no numbers") from None
    if not np.isfinite([first, last]).all():
        raise InvalidParameter(f"{form}; got {vary!r}, whose ends are not finite")
    declared = Integer("COUNT", 2, "number of values", low=1, high=_MOST_POINTS)
    count = declared.parse(parts[2], "--vary")
    return key.strip(), np.linspace(first, last, count).tolist()


def _without(problem: str, key: str) -> tuple[str, list[str]]:
    """Return the head of an id and its settings without one; raise if it has no such parameter."""
    from fmdp.problems.ids import is_path, parse_id

    if is_path(problem) or problem.startswith("rddl:"):
        raise InvalidParameter(
            f"whatif varies a parameter of a problem id such as circle:4; {problem!r} has none "
            f"(in Python, fmdp.whatif takes any function that returns a model)"
        )
    names = [parameter.name for parameter in parse_id(problem).options()]
    if key not in names:
        raise InvalidParameter(
            f"--vary: {problem} has no parameter {key!r}; it has {', '.join(names)}"
            f"{did_you_mean(key, names)}"
        )
    head, *settings = problem.split(",")
    return head, [text for text in settings if text.partition("=")[0].strip() != key]


def _keys(point: Point) -> dict[str, Any]:
    keys = {name: value for name, value in vars(point).items() if name not in ("value", "summary")}
    summary = None if point.summary is None else point.summary.to_dict()
    return {"value": float(point.value), **keys, "summary": summary}


def _table(varied: WhatIf) -> Any:
    rows = []
    for point in varied.points:
        bounds = (point.gain_lower, point.gain_upper)
        gain = "not known" if point.gain is None else known_number(point.gain, *bounds)
        known = "" if None in bounds else interval_text(*bounds)  # type: ignore[arg-type]
        changes = ["" if s is None else percent(s) for s in (point.changed, point.changed_time)]
        rows.append((str(point.value), gain, known, *changes))
    head = (varied.parameter, "gain", "certified bounds", "states changed", "time in them")
    return table(head, rows, right=(varied.parameter, "states changed", "time in them"))


def _write(varied: WhatIf, target: Path) -> None:
    from fmdp.errors import FmdpError
    from fmdp.model.io.files import write_atomically
    from fmdp.reports.figures import require_matplotlib
    from fmdp.reports.whatif_figure import whatif_figure

    write_atomically(target, varied.to_csv().encode())
    try:
        require_matplotlib()
    except FmdpError:
        return
    for ending, content in whatif_figure(varied).items():
        write_atomically(target.with_suffix(f".{ending.lstrip('.')}"), content)
