"""`fmdp fit`: estimate a model with intervals from a log, its structure given or learned."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fmdp.cli import options
from fmdp.cli.output import columns, print_json, print_people, refuse_unwritable
from fmdp.cli.progress import progress
from fmdp.errors import InvalidParameter

if TYPE_CHECKING:
    from fmdp.model import Structure


FIT_KEYS = ("steps", "runs", "rows", "rows_seen", "rho")
"""Keys of the JSON object that are attributes of the fitted model."""


def fit(
    log: Annotated[
        str,
        typer.Argument(
            metavar="LOG",
            help="A CSV file with a header, or a Parquet file: one column per variable and reward.",
        ),
    ],
    out: Annotated[Path, typer.Option(metavar="MODEL", help="Model file to write (.json).")],
    model: Annotated[
        str | None,
        typer.Option(
            metavar="SKELETON",
            help="A model file or problem id that gives the structure; its tables are not used.",
        ),
    ] = None,
    structure: Annotated[
        str | None,
        typer.Option(
            metavar="learn", help="Learn variables, values and scopes from the log instead."
        ),
    ] = None,
    max_parents: Annotated[
        str | None,
        typer.Option(
            metavar="K", help="learn: largest number of variables in a scope. Default: 2."
        ),
    ] = None,
    actions: Annotated[
        str | None,
        typer.Option(metavar="A[,A...]", help="learn: the columns that are action variables."),
    ] = None,
    rewards: Annotated[
        str | None,
        typer.Option(metavar="R[,R...]", help="learn: the columns that are rewards."),
    ] = None,
    prior: Annotated[
        str, typer.Option(metavar="W", help="Prior count (Dirichlet parameter) of every value.")
    ] = "0.5",
    rho: Annotated[
        str,
        typer.Option(
            metavar="P",
            help="Probability that any interval is wrong; 0.1 is 90 % joint confidence.",
        ),
    ] = "0.1",
    ignore: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN", help="A column to ignore; may be repeated."),
    ] = None,
    json: options.Json = False,
) -> None:
    """Estimate a model with confidence intervals from a log."""
    if (model is None) == (structure is None):
        raise InvalidParameter("fmdp fit needs --model SKELETON or --structure learn, one of them")
    if structure not in (None, "learn"):
        raise InvalidParameter(f"--structure must be learn; got {structure!r}")
    if out.suffix != ".json":
        raise InvalidParameter(
            f"cannot write {out}: its ending must be that of a model file, .json"
        )
    refuse_unwritable(out, log, model)
    from fmdp.logs import fit as fit_to
    from fmdp.logs.fit import MAX_PARENTS, PRIOR, RHO
    from fmdp.model import save
    from fmdp.problems import problem

    most = None if max_parents is None else MAX_PARENTS.parse(max_parents, "fit")
    weight, failure = PRIOR.parse(prior, "fit"), RHO.parse(rho, "fit")
    with progress(f"reading {log}", compiles=False):
        # Loaded here because a model file may be called "learn".
        known: Any = "learn" if model is None else problem(model)
        fitted = fit_to(
            log,
            known,
            max_parents=most,
            actions=_split(actions),
            rewards=_split(rewards),
            prior=weight,
            rho=failure,
            ignore=ignore or (),
        )
        save(fitted.model, out)
    scopes = _scopes(fitted.model.structure) if model is None else None
    if json:
        print_json(
            {
                "log": log,
                "out": str(out),
                **{key: getattr(fitted, key) for key in FIT_KEYS},
                "scopes": scopes,
                "notes": fitted.notes,
            }
        )
        return
    streams = f" in {fitted.runs:,} stream{'s' * (fitted.runs > 1)}" if fitted.runs else ""
    rows = [
        ("log", f"{log}, {fitted.steps:,} steps{streams}"),
        ("rows", f"{fitted.rows_seen:,} of {fitted.rows:,} visited"),
        ("intervals", f"all hold together with probability {1 - fitted.rho:g}"),
    ]
    for name, scope in (scopes or {}).items():
        rows.append(("scope", f"{name}: {', '.join(scope) or 'none'}"))
    rows += [("note", note) for note in fitted.notes]
    print_people(columns([*rows, ("saved", f"the model, in {out}")]))


def _scopes(structure: Structure) -> dict[str, list[str]]:
    """Return the names of the variables in the scope of every factor."""
    names = (*structure.state_names, *structure.reward_names)
    scopes = (*structure.transition_scopes, *structure.reward_scopes)
    return {
        name: [structure.names[v] for v in scope] for name, scope in zip(names, scopes, strict=True)
    }


def _split(names: str | None) -> tuple[str, ...]:
    return () if names is None else tuple(name.strip() for name in names.split(","))
