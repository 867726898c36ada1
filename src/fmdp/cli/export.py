"""`fmdp export`: write a saved policy as CSV, decision tree or Python function."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from fmdp._base.parameters import Integer, Number
from fmdp.cli.options import PolicyFile
from fmdp.cli.output import refuse_unwritable
from fmdp.cli.progress import progress
from fmdp.errors import InvalidParameter, did_you_mean

_KINDS = ("csv", "tree", "python")
_LEAVES = Integer("max_leaves", 1, "most leaves of the tree", low=1)
_ERROR = Number("max_error", 0.0, "largest share of wrong states", low=0.0, high=1.0)


def export(
    policy: PolicyFile,
    out: Annotated[
        str,
        typer.Argument(metavar="OUT", help="File to write; - is standard output."),
    ],
    kind: Annotated[
        str | None,
        typer.Option(
            "--as",
            metavar="csv|tree|python",
            help="csv: one row per state; tree: a decision tree; python: a function without "
            "dependencies.",
        ),
    ] = None,
    problem: Annotated[
        str | None,
        typer.Option(
            "--problem",
            metavar="PROBLEM",
            help="Problem of the policy: gives the names if the policy was saved without them, the "
            "constraints that a smaller tree must keep, and the model that evaluates its gain.",
        ),
    ] = None,
    max_leaves: Annotated[
        str | None,
        typer.Option(
            "--max-leaves",
            metavar="N",
            help="tree, python: most leaves; too few make it wrong in some states. Default: "
            "no limit.",
        ),
    ] = None,
    max_error: Annotated[
        str | None,
        typer.Option(
            "--max-error",
            metavar="E",
            help="tree, python: share of states, from 0 to 1, in which the tree may be wrong. "
            "Default: 0, or no limit with --max-leaves.",
        ),
    ] = None,
) -> int:
    """Write a saved policy as CSV, decision tree or Python code."""
    if kind not in _KINDS:
        hint = "" if kind is None else did_you_mean(kind, _KINDS)
        got = "is missing; it" if kind is None else f"is {kind!r}{hint}; it"
        raise InvalidParameter(f"--as {got} must be one of {', '.join(_KINDS)}")
    if kind == "csv" and (max_leaves, max_error) != (None, None):
        raise InvalidParameter("--max-leaves and --max-error are for trees; a CSV is never wrong")
    leaves = None if max_leaves is None else _LEAVES.parse(max_leaves, "fmdp export")
    error = None if max_error is None else _ERROR.parse(max_error, "fmdp export")
    from fmdp.model.io.files import write_atomically
    from fmdp.planning.explain.export import exported
    from fmdp.planning.policies.files import load_policy
    from fmdp.problems import problem as problem_of

    model = None if problem is None else problem_of(problem)
    saved = load_policy(policy, None if model is None else model.structure)
    if out != "-":
        refuse_unwritable(Path(out), policy, problem)
    with progress(f"writing {policy} as {kind}"):
        parts, what = exported(saved, kind, max_leaves=leaves, max_error=error, model=model)
        if out == "-":
            for part in parts:
                sys.stdout.write(part)
            return 0
        write_atomically(out, parts)
    print(f"{kind}: {what}; saved in {out}")
    return 0
