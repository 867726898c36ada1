"""Problem ids: `NAME:SIZE[,key=value...]`, `module:Class[:SIZE][,key=value...]`, or a file.

    circle:7    circle:7,dynamics=guestrin,reward=mean    large-diameter    my/model.json
    my_queues:Queues:3,arrival=0.3    rddl:SysAdmin_MDP_ippc2011:1

The canonical id is the name of the model, and reading it again gives the same model. A SIZE is a
number, so what has a word after its first colon is module:Class; the names of fmdp's own families
come first all the same. A text is a path if it ends in .json; else an id if it begins with the name
of a family; else a path if a file of that name exists; else an id if it begins with module:Class;
else a path if it has a path separator. What begins or ends as the formats of other programs do
(`foreign.py`) is theirs before all this.

Code that is not fmdp's own may raise anything: it is told in one line, with where it happened.
"""

from __future__ import annotations

import inspect
import os
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fmdp._base.foreign_code import is_own
from fmdp._base.parameters import quoted, resolve, split_assignments
from fmdp._base.registries import is_place
from fmdp.errors import (
    FmdpError,
    InvalidModel,
    InvalidParameter,
    TooLarge,
    UnknownName,
    did_you_mean,
)
from fmdp.model.factored import FactoredMDP
from fmdp.model.io.files import load
from fmdp.problems.family import Problem
from fmdp.problems.foreign import FORMATS, format_of
from fmdp.problems.registry import HOMES, PROBLEMS


def problem(
    problem: str | os.PathLike[str] | Problem, *, folder: str | os.PathLike[str] | None = None
) -> FactoredMDP:
    """The model of a problem.

    Parameters
    ----------
    problem
        An id ("circle:7"), the path of a model file, one of another program's formats
        (rddl:NAME:INSTANCE, DOMAIN.rddl+INSTANCE.rddl, MODEL.prism), or an object such as
        fmdp.problems.Circle(size=7). module:Class in an id is imported.
    folder
        Where modules, and files of other formats, are looked for too, beside the current folder
        and the installed ones; None: nowhere else.

    Returns
    -------
    FactoredMDP
        With the canonical id as its name, if it was not read from a file.

    Raises
    ------
    UnknownName
        Where there is no such problem; the text says which is meant, if one is near.
    InvalidParameter
        Where a setting of the id is not allowed.
    FileProblem
        Where the file cannot be read.
    TooLarge
        Where the tables would be larger than what is built.
    """
    if isinstance(problem, Problem):
        return _built(problem)
    foreign = format_of(problem)
    if foreign is not None:
        return foreign.read(os.fspath(problem), None if folder is None else Path(folder))
    if isinstance(problem, str) and not is_path(problem):
        return _built(parse_id(problem, None if folder is None else Path(folder)))
    if not isinstance(problem, str | os.PathLike):
        raise InvalidParameter(
            f"a problem must be an id, the path of a model file, or an object such as "
            f"Circle(size=7); got {quoted(problem)}"
        )
    return load(problem)


def import_family(text: str) -> None:
    """Import what an id names, where it is fmdp's own: no part of building its model."""
    place, _, _ = _split(text.partition(",")[0].strip())
    if place in HOMES:
        PROBLEMS.find(place)


def parse_id(text: str, folder: Path | None = None) -> Problem:
    """The problem of an id, read and checked, without building its model."""
    head, *assignments = (part.strip() for part in text.split(","))
    place, colon, size = _split(head)
    if not PROBLEMS.knows(place):
        known = PROBLEMS.names()
        raise UnknownName(
            f"unknown problem {quoted(place)}; known are {', '.join(known)}, "
            f"{', '.join(one.forms for one in FORMATS)}, and paths of model files"
            f"{did_you_mean(place, known)}"
        )
    kind = PROBLEMS.find(place, folder)
    given = split_assignments(assignments, kind.owner())
    declared = kind.size_parameter()
    values: dict[str, Any] = {}
    if declared is None and colon:
        raise InvalidParameter(f"{place} takes no size, must be '{place}'; got {quoted(head)}")
    if declared is not None and colon:
        values["size"] = declared.parse(size, kind.owner())
    elif declared is not None and declared.required:
        raise InvalidParameter(
            f"{place} needs a size, the {declared.meaning}, {declared.allowed}; "
            f"got {quoted(text)}, must be like '{kind.example_id()}'"
        )
    values |= resolve(kind.options(), given, kind.owner())
    with _told(kind, f"problem {quoted(text)}", passing=FmdpError):
        try:
            return kind(**values)
        except FmdpError:
            raise
        except ValueError as error:  # what a `check` of one's own refuses
            raise InvalidParameter(f"problem {quoted(text)}: {error}") from error


def _split(head: str) -> tuple[str, str, str]:
    """ "circle:7" -> "circle", ":", "7"; "my_queues:Queues" -> "my_queues:Queues", "", ""."""
    name, colon, rest = (part.strip() for part in head.partition(":"))
    if name not in HOMES:
        word, second_colon, size = (part.strip() for part in rest.partition(":"))
        if is_place(f"{name}:{word}"):
            return f"{name}:{word}", second_colon, size
    return name, colon, rest


def is_path(text: str) -> bool:
    """Whether a text is the path of a file, and no id."""
    foreign = format_of(text)
    if foreign is not None:
        return not foreign.is_id(text)
    place, _, _ = _split(text.partition(",")[0].strip())
    if place in HOMES:
        return text.endswith(".json")
    exists = os.path.exists(text)  # noqa: PTH110 - Path.exists raises on a name that is too long
    if place in PROBLEMS.names():
        return text.endswith(".json") and (exists or "," not in text)
    if is_place(place) and "," in text:  # a value may be a path, and end in .json
        return exists
    if exists or text.endswith(".json"):
        return True
    separators = {"/", os.sep, os.altsep or os.sep}
    return not is_place(place) and any(separator in text for separator in separators)


def _built(one: Problem) -> FactoredMDP:
    name = str(one)
    with _told(type(one), f"problem {quoted(name)}: build()", passing=TooLarge):
        model: Any = one.build()
    if not isinstance(model, FactoredMDP):
        raise InvalidModel(
            f"problem {quoted(name)}: build() must return a FactoredMDP; got {quoted(model)}"
            f"{_place_of_build(type(one))}"
        )
    if model.name == name:
        return model
    return FactoredMDP(
        model.structure, model.transitions, model.rewards, model.noise, model.initial_state, name
    )


@contextmanager
def _told(kind: type[Problem], what: str, passing: type[FmdpError]) -> Iterator[None]:
    """What code that is not fmdp's own raises, as one line with its place; `passing` is a refusal
    of what was asked for, and no failure of the code."""
    try:
        yield
    except passing:
        raise
    except Exception as error:
        if is_own(kind):
            raise
        said = str(error) if isinstance(error, FmdpError) else f"{type(error).__name__}: {error}"
        raise InvalidModel(f"{what}: {said}{_line_of(kind, error)}") from error


def _line_of(kind: type[Problem], error: Exception) -> str:
    """ " (my_queues.py, line 21)": the last line of the problem's own file that was reached."""
    try:
        own = inspect.getfile(kind)
    except (OSError, TypeError):  # typed into a prompt
        return ""
    frames = [one for one in traceback.extract_tb(error.__traceback__) if one.filename == own]
    return f" ({Path(own).name}, line {frames[-1].lineno})" if frames else ""


def _place_of_build(kind: type[Problem]) -> str:
    code = getattr(kind.build, "__code__", None)  # none where it was wrapped in something else
    return f" ({Path(code.co_filename).name}, line {code.co_firstlineno})" if code else ""
