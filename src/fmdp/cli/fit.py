"""`fmdp fit`: estimate a model with intervals from a log, its structure given or learned."""

from __future__ import annotations

import csv
import io
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fmdp.cli import options
from fmdp.cli.output import columns, print_json, print_people, refuse_unwritable
from fmdp.cli.progress import progress
from fmdp.errors import InvalidParameter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fmdp.logs.tables import BadCell
    from fmdp.model import Structure


FIT_KEYS = ("steps", "runs", "rows", "rows_seen", "rho")
"""Keys of the JSON object that are attributes of the fitted model."""
MOST_SHOWN = 10
"""Most skipped cells that are printed."""


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
            help="A model file or problem id that gives the structure; its tables are not used. "
            "With --structure learn it gives everything except scopes.",
        ),
    ] = None,
    structure: Annotated[
        str | None,
        typer.Option(
            metavar="learn",
            help="Learn scopes from the log; without --model also variables and values.",
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
    known: Annotated[
        str | None,
        typer.Option(
            metavar="F[,F...]",
            help="learn with --model: factors whose scopes stay as in the model.",
        ),
    ] = None,
    time: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Sort the rows by this column of numbers or ISO dates, and report holes and "
            "duplicates.",
        ),
    ] = None,
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Skip steps with a bad cell, and list them.")
    ] = False,
    skipped: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write all skipped cells to this CSV file."),
    ] = None,
    zeros_from_model: Annotated[
        bool,
        typer.Option(
            "--zeros-from-model",
            help="Keep impossible what the tables of --model hold impossible.",
        ),
    ] = False,
    prior: Annotated[
        str | None,
        typer.Option(
            metavar="W",
            help="Prior count (Dirichlet parameter) of every value. Default: 1/r^2 for r values.",
        ),
    ] = None,
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
    if model is None and structure is None:
        raise InvalidParameter("fmdp fit needs --model SKELETON or --structure learn, or both")
    if structure not in (None, "learn"):
        raise InvalidParameter(f"--structure must be learn; got {structure!r}")
    if out.suffix != ".json":
        raise InvalidParameter(
            f"cannot write {out}: its ending must be that of a model file, .json"
        )
    if skipped is not None and not skip_bad:
        raise InvalidParameter(f"--skipped {skipped} is for --skip-bad alone")
    refuse_unwritable(out, log, model)
    if skipped is not None:
        refuse_unwritable(skipped, log, model, str(out))
    from fmdp.logs import fit as fit_to
    from fmdp.logs.fit import MAX_PARENTS, PRIOR, RHO
    from fmdp.model.io.files import save, write_atomically
    from fmdp.problems import problem

    most = None if max_parents is None else MAX_PARENTS.parse(max_parents, "fit")
    weight = None if prior is None else PRIOR.parse(prior, "fit")
    failure = RHO.parse(rho, "fit")
    with progress(f"reading {log}", compiles=False):
        # Loaded here because a model file may be called "learn".
        skeleton = None if model is None else problem(model)
        fitted = fit_to(
            log,
            "learn" if structure is not None or skeleton is None else skeleton,
            max_parents=most,
            actions=_split(actions),
            rewards=_split(rewards),
            prior=weight,
            rho=failure,
            ignore=ignore or (),
            time=time,
            skip_bad=skip_bad,
            zeros_from_model=zeros_from_model,
            model=None if structure is None else skeleton,
            known=_split(known),
        )
        if skipped is not None:
            write_atomically(skipped, _csv(fitted.skipped))
        save(fitted.model, out)
    scopes = None if structure is None else _scopes(fitted.model.structure)
    if json:
        print_json(
            {
                "log": log,
                "out": str(out),
                **{key: getattr(fitted, key) for key in FIT_KEYS},
                "scopes": scopes,
                "notes": fitted.notes,
                "skipped": [asdict(cell) for cell in fitted.skipped],
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
    rows += _skipped(fitted.skipped)
    print_people(columns([*rows, ("saved", f"the model, in {out}")]))


def _skipped(cells: Sequence[BadCell]) -> list[tuple[str, str]]:
    """Return lines about the skipped cells: how many, and the first few."""
    if not cells:
        return []
    many = len({cell.where for cell in cells})
    lines = [("skipped", f"{many:,} row{'s' * (many > 1)} with a bad cell")]
    for cell in cells[:MOST_SHOWN]:
        column = "" if cell.column is None else f", {cell.column}"
        lines.append(("", f"{cell.where}{column}: {cell.value}: {cell.why}"))
    if len(cells) > MOST_SHOWN:
        lines.append(("", f"and {len(cells) - MOST_SHOWN:,} more (--skipped FILE has all)"))
    return lines


def _csv(cells: Sequence[BadCell]) -> bytes:
    """Return the skipped cells as a CSV file."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["row", "column", "value", "why"])
    for cell in cells:
        writer.writerow([cell.where, cell.column or "", cell.value, cell.why])
    return text.getvalue().encode()


def _scopes(structure: Structure) -> dict[str, list[str]]:
    """Return the names of the variables in the scope of every factor."""
    names = (*structure.state_names, *structure.reward_names)
    scopes = (*structure.transition_scopes, *structure.reward_scopes)
    return {
        name: [structure.names[v] for v in scope] for name, scope in zip(names, scopes, strict=True)
    }


def _split(names: str | None) -> tuple[str, ...]:
    return () if names is None else tuple(name.strip() for name in names.split(","))
