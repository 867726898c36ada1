"""Problem ids: `NAME:SIZE[,key=value...]`, or the path of a model file.

    circle:7    circle:7,dynamics=guestrin,reward=mean    large-diameter    my/model.json

The canonical id has the parameters that differ from their defaults, in declaration order; it is
the name of the model, and reading it again gives the same model. A text is a path if it ends in
.json; else an id if it begins with the name of a family; else a path if it has a path separator
or a file of that name exists.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from fmdp.errors import InvalidParameter, UnknownName, did_you_mean
from fmdp.model.factored import FactoredMDP
from fmdp.model.files import load
from fmdp.parameters import canonical, quoted, resolve, split_assignments
from fmdp.problems import jao, large_diameter, machines, random, riverswim, sysadmin
from fmdp.problems.family import Family


@cache
def families() -> tuple[Family, ...]:
    """Every registered family, in the order in which they are listed."""
    modules = (sysadmin, machines, jao, large_diameter, riverswim, random)
    return tuple(family for module in modules for family in module.FAMILIES)


@dataclass(frozen=True)
class ProblemId:
    """A family with a value for each of its parameters."""

    family: Family
    values: Mapping[str, Any]

    def __str__(self) -> str:
        size = "" if self.family.size is None else f":{self.values['size']}"
        return ",".join((self.family.name + size, *canonical(self.family.parameters, self.values)))

    def build(self) -> FactoredMDP:
        model: FactoredMDP = self.family.build(name=str(self), **self.values)
        return model


def problem(problem: str | os.PathLike[str]) -> FactoredMDP:
    """The model that an id or the path of a model file stands for.

    Parameters
    ----------
    problem
        An id, `NAME:SIZE[,key=value...]`, such as "circle:7" or
        "circle:7,dynamics=guestrin,reward=mean" (`fmdp list` shows all); or the path of a model
        file. A text is a path if it ends in .json; else an id if it begins with the name of a
        family; else a path if it has a path separator or such a file exists.

    Returns
    -------
    FactoredMDP
        The model. Its name is the canonical id, which gives the same model again.

    Raises
    ------
    UnknownName
        Where no family, or no parameter, is called so; the text suggests the nearest name.
    InvalidParameter
        Where the size or a parameter is out of its range.
    TooLarge
        Where the tables would take more than 1 GiB.
    FileProblem
        Where the model file is missing or unreadable.
    InvalidModel
        Where what the file holds is no model.
    """
    if not isinstance(problem, str) or _is_path(problem):
        return load(problem)
    return problem_id(problem).build()


def problem_id(text: str) -> ProblemId:
    """An id, read and checked, without building its model."""
    head, *assignments = (part.strip() for part in text.split(","))
    name, colon, size = (part.strip() for part in head.partition(":"))
    by_name = {family.name: family for family in families()}
    if name not in by_name:
        raise UnknownName(
            f"unknown problem {quoted(name)}; known are {', '.join(by_name)}, "
            f"and paths of model files{did_you_mean(name, by_name)}"
        )
    family = by_name[name]
    given = split_assignments(assignments, name)
    values: dict[str, Any] = {}
    if family.size is not None:
        if not colon:
            raise InvalidParameter(
                f"{name} needs a size, the {family.size.meaning}, {family.size.allowed}; "
                f"got {quoted(text)}, must be like '{family.example}'"
            )
        values["size"] = family.size.parse(size, name)
    elif colon:
        raise InvalidParameter(f"{name} takes no size, must be '{name}'; got {quoted(head)}")
    return ProblemId(family, values | resolve(family.parameters, given, name))


def _is_path(text: str) -> bool:
    if text.endswith(".json"):
        return True
    name = text.split(",")[0].split(":")[0].strip()
    if any(family.name == name for family in families()):
        return False
    separators = {"/", os.sep, os.altsep or os.sep}
    if any(separator in text for separator in separators):
        return True
    return os.path.exists(text)  # noqa: PTH110 - Path.exists raises on a name that is too long
