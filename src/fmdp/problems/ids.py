"""Problem ids: `NAME:SIZE[,key=value...]`, `module:Class[:SIZE][,key=value...]`, or a file.

    circle:7    circle:7,dynamics=guestrin,reward=mean    large-diameter    my/model.json
    my_queues:Queues:3,arrival=0.3    rddl:SysAdmin_MDP_ippc2011:1

The canonical id is the name of the model, and reading it again gives the same model. SIZE is a
number, so a word after the first colon means module:Class, except after the name of a built-in
family. A text is a path if it ends in .json; else an id if it begins with the name of a family;
else a path if a file of that name exists; else an id if it begins with module:Class; else a path if
it has a path separator. Prefixes and suffixes of foreign formats (`foreign.py`) take precedence.

Third-party code may raise anything; its errors become one line with the file and line number.
"""

from __future__ import annotations

import inspect
import os
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
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
    """Return the model of a problem.

    Parameters
    ----------
    problem
        An id ("circle:7"), the path of a model file, a problem in a foreign format
        (rddl:NAME:INSTANCE, DOMAIN.rddl+INSTANCE.rddl, MODEL.prism), or an object such as
        fmdp.problems.Circle(size=7). module:Class in an id is imported.
    folder
        Another folder in which modules and files of foreign formats are searched, beside the
        current folder and the installed packages.

    Returns
    -------
    FactoredMDP
        With the canonical id as its name, if it was not read from a file.

    Raises
    ------
    UnknownName
        If there is no such problem; the message suggests a similar name.
    InvalidParameter
        If a setting of the id is not allowed.
    FileProblem
        If the file cannot be read.
    TooLarge
        If the tables would exceed the size limit.
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
    """Import the module of a built-in family, before the time of building its model is measured."""
    name, _, _ = _split(text.partition(",")[0].strip())
    if name in HOMES:
        PROBLEMS.find(name)


def parse_id(text: str, folder: Path | None = None) -> Problem:
    """Return the problem of an id, checked, without building its model."""
    head, *assignments = (part.strip() for part in text.split(","))
    name, colon, size = _split(head)
    if not PROBLEMS.knows(name):
        known = PROBLEMS.names()
        raise UnknownName(
            f"unknown problem {quoted(name)}; known are {', '.join(known)}, "
            f"{', '.join(known_format.forms for known_format in FORMATS)}, and paths of model files"
            f"{did_you_mean(name, known)}"
        )
    kind = PROBLEMS.find(name, folder)
    given = split_assignments(assignments, kind.owner())
    declared = kind.size_parameter()
    values: dict[str, Any] = {}
    if declared is None and colon:
        raise InvalidParameter(f"{name} takes no size, must be '{name}'; got {quoted(head)}")
    if declared is not None and colon:
        values["size"] = declared.parse(size, kind.owner())
    elif declared is not None and declared.required:
        raise InvalidParameter(
            f"{name} needs a size, the {declared.meaning}, {declared.allowed}; "
            f"got {quoted(text)}, must be like '{kind.example_id()}'"
        )
    values |= resolve(kind.options(), given, kind.owner())
    with _located_errors(kind, f"problem {quoted(text)}", passing=FmdpError):
        try:
            return kind(**values)
        except FmdpError:
            raise
        except ValueError as error:  # raised by a third-party `check`
            raise InvalidParameter(f"problem {quoted(text)}: {error}") from error


def _split(head: str) -> tuple[str, str, str]:
    """Split "circle:7" into "circle", ":", "7" and "my_queues:Queues" into itself, "", ""."""
    name, colon, rest = (part.strip() for part in head.partition(":"))
    if name not in HOMES:
        word, second_colon, size = (part.strip() for part in rest.partition(":"))
        if is_place(f"{name}:{word}"):
            return f"{name}:{word}", second_colon, size
    return name, colon, rest


def is_path(text: str) -> bool:
    """Return True if a text is the path of a file and not an id."""
    foreign = format_of(text)
    if foreign is not None:
        return not foreign.is_id(text)
    name, _, _ = _split(text.partition(",")[0].strip())
    if name in HOMES:
        return text.endswith(".json")
    exists = os.path.exists(text)  # noqa: PTH110 - Path.exists raises on a name that is too long
    if name in PROBLEMS.names():
        return text.endswith(".json") and (exists or "," not in text)
    if is_place(name) and "," in text:  # a value may be a path, and end in .json
        return exists
    if exists or text.endswith(".json"):
        return True
    separators = {"/", os.sep, os.altsep or os.sep}
    return not is_place(name) and any(separator in text for separator in separators)


def _built(family: Problem) -> FactoredMDP:
    name = str(family)
    with _located_errors(type(family), f"problem {quoted(name)}: build()", passing=TooLarge):
        model: Any = family.build()
    if not isinstance(model, FactoredMDP):
        raise InvalidModel(
            f"problem {quoted(name)}: build() must return a FactoredMDP; got {quoted(model)}"
            f"{_place_of_build(type(family))}"
        )
    return model if model.name == name else replace(model, name=name)


@contextmanager
def _located_errors(kind: type[Problem], what: str, passing: type[FmdpError]) -> Iterator[None]:
    """Turn errors of third-party code into one line with their location. Exceptions of type
    `passing` refuse the input and are passed on."""
    try:
        yield
    except passing:
        raise
    except Exception as error:
        if is_own(kind):
            raise
        message = str(error) if isinstance(error, FmdpError) else f"{type(error).__name__}: {error}"
        raise InvalidModel(f"{what}: {message}{_line_of(kind, error)}") from error


def _line_of(kind: type[Problem], error: Exception) -> str:
    """Return " (my_queues.py, line 21)": the last line reached in the problem's file."""
    try:
        file = inspect.getfile(kind)
    except (OSError, TypeError):  # defined at a prompt
        return ""
    lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == file]
    return f" ({Path(file).name}, line {lines[-1]})" if lines else ""


def _place_of_build(kind: type[Problem]) -> str:
    code = getattr(kind.build, "__code__", None)  # missing if a decorator returned an object
    return f" ({Path(code.co_filename).name}, line {code.co_firstlineno})" if code else ""
