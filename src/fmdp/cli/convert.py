"""`fmdp convert`: a problem id or a model file, written as a model file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fmdp.cli.plan import refuse_unwritable
from fmdp.cli.progress import progress
from fmdp.errors import InvalidParameter
from fmdp.memory import describe_count


def convert(
    source: Annotated[
        str, typer.Argument(metavar="IN", help="A problem id or a model file.", show_default=False)
    ],
    target: Annotated[
        Path,
        typer.Argument(metavar="OUT", help="The model file to write (.json).", show_default=False),
    ],
) -> None:
    """Write a problem as a model file (fmdp-model, JSON)."""
    if target.suffix != ".json":
        raise InvalidParameter(
            f"cannot write {target}: the format of the output must be told by its ending, .json"
        )
    refuse_unwritable(target)
    from fmdp.model import save
    from fmdp.problems import problem

    with progress(f"converting {source}", compiles=False):
        model = problem(source)
        save(model, target)
    structure = model.structure
    print(
        f"wrote {target}: {model.name or source}, {describe_count(structure.n_states)} states, "
        f"{describe_count(structure.n_actions)} actions"
    )
