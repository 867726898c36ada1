"""`fmdp forget`: list the specs of a store, and hide or delete the runs of one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from fmdp.cli.options import Json, StoreDirectory
from fmdp.cli.output import columns, print_json, print_people, table
from fmdp.errors import InvalidParameter

if TYPE_CHECKING:
    from fmdp.experiments.results import Results

_HEAD = ("spec", "hash", "runs", "done", "last requested (UTC)", "")


def forget(
    directory: StoreDirectory,
    spec: Annotated[
        str | None,
        typer.Argument(
            metavar="SPEC", help="Name or hash of a spec (a sweep). Default: list all specs."
        ),
    ] = None,
    delete_runs: Annotated[
        bool,
        typer.Option("--delete-runs", help="Also delete the runs that no other spec asks for."),
    ] = False,
    json: Json = False,
) -> int:
    """Hide or delete the stored runs of one sweep.

    Hidden runs are not reported any more; running the same sweep again brings them back.
    """
    from fmdp.experiments.results import load_results

    if spec is None and delete_runs:
        raise InvalidParameter("--delete-runs needs a spec: fmdp forget DIR SPEC --delete-runs")
    with load_results(directory) as results:
        count = None if spec is None else results.forget(spec, delete_runs=delete_runs)
        remaining = _specs(results)
    if json:
        print_json({"forgotten": spec, "runs": count, "deleted": delete_runs, "specs": remaining})
    elif count is None:
        print_people(table(_HEAD, [_row(spec) for spec in remaining], right=("runs", "done")))
    else:
        what = "deleted" if delete_runs else "hidden, but kept in the store"
        print_people(columns([("forgotten", str(spec)), ("runs", f"{count} {what}")]))
    return 0


def _specs(results: Results) -> list[dict[str, Any]]:
    table = {name: column.tolist() for name, column in results.specs_table().items()}
    return [dict(zip(table, row, strict=True)) for row in zip(*table.values(), strict=True)]


def _row(spec: dict[str, Any]) -> tuple[str, ...]:
    return (
        spec["name"],
        spec["hash"][:12],
        str(spec["runs"]),
        str(spec["done"]),
        spec["asked"][:19],
        "forgotten" if spec["forgotten"] else "",
    )
