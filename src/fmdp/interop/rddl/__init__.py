"""Reading of RDDL problems (files and rddlrepository) as factored MDPs, and writing."""

from __future__ import annotations

from pathlib import Path

from fmdp.errors import InvalidModel, TooLarge
from fmdp.interop.limits import nesting
from fmdp.interop.rddl.building import Imported, build
from fmdp.interop.rddl.instance import grounded
from fmdp.interop.rddl.sources import files_of, parsed
from fmdp.interop.rddl.writing import write
from fmdp.model.factored import FactoredMDP

__all__ = ["Imported", "horizon", "imported", "read", "write"]


def imported(text: str, folder: Path | None = None) -> Imported:
    """Return the model of a problem in RDDL, and the fluents that its variables stand for.

    Parameters
    ----------
    text
        `rddl:NAME:INSTANCE`, an instance of rddlrepository, or `DOMAIN.rddl+INSTANCE.rddl`.
    folder
        Folder in which files are searched after the current one.

    Raises
    ------
    InvalidModel
        If it is not a discrete model with observed states; the message names the reason.
    TooLarge
        If a table would be too large; the message names its variable.
    UnknownName
        If rddlrepository has no such problem or instance.
    FileProblem
        If a file is missing or not RDDL.
    """
    domain, instance, name = files_of(text, folder)
    try:
        with nesting():
            return build(grounded(parsed(domain, instance)), name)
    except InvalidModel as error:
        raise InvalidModel(f"{name}: {error}") from None
    except TooLarge as error:
        raise TooLarge(f"{name}: {error}", error.needed_bytes, error.limit_bytes) from None


def read(text: str, folder: Path | None = None) -> FactoredMDP:
    """Return the model of a problem in RDDL; see `imported`."""
    return imported(text, folder).model


def horizon(text: str, folder: Path | None = None) -> int | None:
    """Return the horizon of an instance, or None."""
    domain, instance, _ = files_of(text, folder)
    steps = getattr(parsed(domain, instance).instance, "horizon", None)
    return steps if isinstance(steps, int) else None
