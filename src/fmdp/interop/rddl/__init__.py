"""RDDL, in and out: problems of rddlrepository and files, as factored MDPs, and back."""

from __future__ import annotations

from pathlib import Path

from fmdp.errors import InvalidModel, TooLarge
from fmdp.interop.rddl.building import Imported, build
from fmdp.interop.rddl.instance import grounded
from fmdp.interop.rddl.sources import files_of, parsed
from fmdp.interop.rddl.writing import write
from fmdp.model.factored import FactoredMDP

__all__ = ["Imported", "horizon", "imported", "read", "write"]


def imported(text: str, folder: Path | None = None) -> Imported:
    """A problem in RDDL: the model, and the fluents that its variables stand for.

    Parameters
    ----------
    text
        `rddl:NAME:INSTANCE`, an instance of rddlrepository, or `DOMAIN.rddl+INSTANCE.rddl`.
    folder
        Where files are looked for too, beside the current folder.

    Raises
    ------
    InvalidModel
        Where it is no discrete model with observed states; the text names what is not.
    TooLarge
        Where a table would be too large; the text names its variable.
    UnknownName
        Where rddlrepository has no such problem, or it no such instance.
    FileProblem
        Where a file is missing, or no RDDL.
    """
    domain, instance, name = files_of(text, folder)
    try:
        return build(grounded(parsed(domain, instance)), name)
    except InvalidModel as error:
        raise InvalidModel(f"{name}: {error}") from None
    except TooLarge as error:
        raise TooLarge(f"{name}: {error}", error.needed_bytes, error.limit_bytes) from None


def read(text: str, folder: Path | None = None) -> FactoredMDP:
    """The model alone."""
    return imported(text, folder).model


def horizon(text: str, folder: Path | None = None) -> int | None:
    """How many steps an instance is for."""
    domain, instance, _ = files_of(text, folder)
    found = getattr(parsed(domain, instance).instance, "horizon", None)
    return found if isinstance(found, int) else None
