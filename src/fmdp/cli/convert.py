"""`fmdp convert`: write any problem as a model file or in another program's format."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fmdp._base.memory import describe_count
from fmdp.cli.output import refuse_unwritable
from fmdp.cli.progress import progress
from fmdp.errors import InvalidParameter


def convert(
    source: Annotated[
        str,
        typer.Argument(
            metavar="IN",
            help="A problem id, a model file, or a file in another format (see `fmdp list`).",
        ),
    ],
    target: Annotated[
        str,
        typer.Argument(
            metavar="OUT",
            help="File to write, whose ending is the format: MODEL.json, "
            "DOMAIN.rddl+INSTANCE.rddl, MODEL.prism, MODEL.umb, or a network (MODEL.gum, .bifxml, "
            ".bif).",
        ),
    ],
) -> None:
    """Convert a problem to a model file (JSON) or another format."""
    from fmdp.problems.foreign import FORMATS, format_of

    foreign = format_of(target)
    if foreign is None and not target.endswith(".json"):
        endings = ", ".join(format.suffix for format in FORMATS)
        raise InvalidParameter(
            f"cannot write {target}: its ending must be that of a format, .json, {endings}"
        )
    paths = (Path(target),) if foreign is None else foreign.paths(target)
    if foreign is not None and (foreign.is_id(target) or len(paths) != foreign.files):
        files = "one file" if foreign.files == 1 else f"{foreign.files} files"
        raise InvalidParameter(
            f"cannot write {target}: {foreign.name} goes to {files}, must be like "
            f"{'+'.join([f'NAME{foreign.suffix}'] * foreign.files)}"
        )
    if len(set(paths)) != len(paths):
        raise InvalidParameter(f"cannot write {target}: the files must be different ones")
    for path in paths:
        refuse_unwritable(path)
    from fmdp.model import save
    from fmdp.problems import problem

    left_out: list[str] = []
    with progress(f"converting {source}", compiles=False):
        model = problem(source)
        if foreign is None:
            save(model, target)
        else:
            left_out = foreign.write(model, paths)
    structure = model.structure
    print(
        f"wrote {target}: {model.name or source}, {describe_count(structure.n_states)} states, "
        f"{describe_count(structure.n_actions)} actions"
    )
    for remark in model.remarks:
        print(f"remark: {remark}")
    if foreign is not None and left_out:
        print(f"left out, because {foreign.name} cannot express it: {', '.join(left_out)}")
