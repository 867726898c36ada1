"""`fmdp fit`: a model with intervals from a log, its structure given or learned."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from fmdp.cli import options
from fmdp.cli.output import columns, print_json, print_people
from fmdp.cli.plan import refuse_unwritable
from fmdp.cli.progress import progress
from fmdp.errors import InvalidParameter


def fit(
    log: Annotated[
        str,
        typer.Argument(
            metavar="LOG",
            help="A CSV file with a header, or a Parquet file: a column a variable and reward.",
            show_default=False,
        ),
    ],
    out: Annotated[Path, typer.Option(metavar="MODEL", help="The model file to write (.json).")],
    model: Annotated[
        str | None,
        typer.Option(
            metavar="SKELETON",
            help="A model file or problem id: its structure counts, its tables do not.",
            show_default=False,
        ),
    ] = None,
    structure: Annotated[
        str | None,
        typer.Option(
            metavar="learn",
            help="Find variables, values and scopes in the log.",
            show_default=False,
        ),
    ] = None,
    max_parents: Annotated[
        str | None,
        typer.Option(
            metavar="K", help="Most variables in a learned scope. Default: 2.", show_default=False
        ),
    ] = None,
    actions: Annotated[
        str | None,
        typer.Option(
            metavar="A[,A...]", help="learn: the columns of action variables.", show_default=False
        ),
    ] = None,
    rewards: Annotated[
        str | None,
        typer.Option(metavar="R[,R...]", help="learn: the columns of rewards.", show_default=False),
    ] = None,
    prior: Annotated[
        str, typer.Option(metavar="W", help="Dirichlet parameter of a value before any count.")
    ] = "0.5",
    rho: Annotated[
        str, typer.Option(metavar="P", help="Failure probability of all intervals together.")
    ] = "0.1",
    ignore: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN", help="A column that stands for nothing; repeatable."),
    ] = None,
    json: options.Json = False,
) -> None:
    """A model with intervals from a log."""
    if (model is None) == (structure is None):
        raise InvalidParameter("fmdp fit needs --model SKELETON or --structure learn, one of them")
    if structure not in (None, "learn"):
        raise InvalidParameter(f"--structure must be learn; got {structure!r}")
    if out.suffix != ".json":
        raise InvalidParameter(
            f"cannot write {out}: the format of the output must be told by its ending, .json"
        )
    refuse_unwritable(out)
    from fmdp.logs import fit as fit_to
    from fmdp.logs.fit import MAX_PARENTS, PRIOR, RHO
    from fmdp.model import save
    from fmdp.problems import problem

    most = None if max_parents is None else MAX_PARENTS.parse(max_parents, "fit")
    weight, failure = PRIOR.parse(prior, "fit"), RHO.parse(rho, "fit")
    with progress(f"reading {log}", compiles=False):
        # A skeleton that happens to be called like the word is a skeleton.
        known: Any = "learn" if model is None else problem(model)
        found = fit_to(
            log,
            known,
            max_parents=most,
            actions=_split(actions),
            rewards=_split(rewards),
            prior=weight,
            rho=failure,
            ignore=ignore or (),
        )
        save(found.model, out)
    s = found.model.structure
    scopes = {
        name: [s.names[v] for v in scope]
        for name, scope in zip(
            (*s.state_names, *s.reward_names), (*s.transition_scopes, *s.reward_scopes), strict=True
        )
    }
    if json:
        print_json(
            {
                "log": log,
                "out": str(out),
                "steps": found.steps,
                "runs": found.runs,
                "rows": found.rows,
                "rows_seen": found.rows_seen,
                "rho": found.rho,
                "scopes": scopes if model is None else None,
                "notes": found.notes,
            }
        )
        return
    streams = f" in {found.runs:,} stream{'s' * (found.runs > 1)}" if found.runs else ""
    rows = [
        ("log", f"{log}, {found.steps:,} steps{streams}"),
        ("rows", f"{found.rows_seen:,} of {found.rows:,} visited"),
        ("intervals", f"all of them hold with probability {1 - found.rho:g}"),
    ]
    if model is None:
        rows += [("scope", f"{name}: {', '.join(own) or 'none'}") for name, own in scopes.items()]
    rows += [("note", note) for note in found.notes]
    print_people(columns([*rows, ("saved", f"the model, in {out}")]))


def _split(names: str | None) -> tuple[str, ...]:
    return () if names is None else tuple(name.strip() for name in names.split(","))
