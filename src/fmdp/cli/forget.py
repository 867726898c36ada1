"""`fmdp forget`: list the specs of a store, and hide or delete what one of them asks for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fmdp.cli.options import Json
from fmdp.cli.output import columns, print_json, print_people, table
from fmdp.errors import InvalidParameter

if TYPE_CHECKING:
    from fmdp.experiments.results import Results

_HEAD = ("spec", "hash", "runs", "done", "asked for last (UTC)", "")


def forget(
    directory: Annotated[
        Path,
        typer.Argument(
            metavar="DIR", help="Directory of the store (`fmdp sweep --out`).", show_default=False
        ),
    ],
    spec: Annotated[
        str | None,
        typer.Argument(
            metavar="SPEC", help="Name or hash of a spec. Default: list them.", show_default=False
        ),
    ] = None,
    delete_runs: Annotated[
        bool,
        typer.Option(
            "--delete-runs", help="Delete its runs too, unless another spec asks for them."
        ),
    ] = False,
    json: Json = False,
) -> int:
    """Stop showing the runs of a spec; a new sweep brings them back."""
    from fmdp.experiments.results import load_results

    if spec is None and delete_runs:
        raise InvalidParameter("--delete-runs needs a spec: fmdp forget DIR SPEC --delete-runs")
    with load_results(directory) as results:
        count = None if spec is None else results.forget(spec, delete_runs=delete_runs)
        remaining = _specs(results)
    if json:
        print_json({"forgotten": spec, "runs": count, "deleted": delete_runs, "specs": remaining})
    elif count is None:
        print_people(table(_HEAD, [_row(one) for one in remaining], right=("runs", "done")))
    else:
        what = "deleted" if delete_runs else "not shown any more, and kept in the store"
        print_people(columns([("forgotten", str(spec)), ("runs", f"{count} {what}")]))
    return 0


def _specs(results: Results) -> list[dict[str, Any]]:
    found = {name: column.tolist() for name, column in results.specs_table().items()}
    return [dict(zip(found, row, strict=True)) for row in zip(*found.values(), strict=True)]


def _row(spec: dict[str, Any]) -> tuple[str, ...]:
    return (
        spec["name"],
        spec["hash"][:12],
        str(spec["runs"]),
        str(spec["done"]),
        spec["asked"][:19],
        "forgotten" if spec["forgotten"] else "",
    )
