"""Reading and writing of PRISM files: `fmdp plan model.prism`, `fmdp convert circle:4 c.prism`.

    MODEL.prism[,CONSTANT=VALUE...][,rewards=NAME]

PRISM and Storm read the files that are written; read back, they give the same model, bit for bit
(writing.py). The part of the language that describes a factored MDP can be read: modules that
synchronise on labels (reading.py). Everything else is refused by name and line.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fmdp.errors import InvalidModel, InvalidParameter, TooLarge
from fmdp.interop.limits import nesting
from fmdp.interop.paths import located
from fmdp.interop.prism.program import parse
from fmdp.interop.prism.reading import model_of
from fmdp.interop.prism.writing import text_of
from fmdp.model.expansion import expand
from fmdp.model.factored import FactoredMDP, check_model
from fmdp.model.io.files import path_of, read_text, write_atomically

__all__ = ["dumps", "load", "loads", "save"]

SUFFIX = ".prism"


def loads(
    text: str,
    constants: Mapping[str, Any] | None = None,
    rewards: str | None = None,
    name: str = "",
) -> FactoredMDP:
    """Return the model in the text of a PRISM file.

    Parameters
    ----------
    text
        An mdp or dtmc whose modules synchronise.
    constants
        Values of the constants that the text does not define, by name.
    rewards
        The reward structure; None if there is at most one.
    name
        Name of the model if the text has none.

    Raises
    ------
    InvalidModel
        If it is not such a model; the message has the line.
    InvalidParameter
        If the text has no such constant or reward structure.
    TooLarge
        If a table would be too large.
    """
    with nesting():
        return model_of(parse(text, constants), rewards, name)


def load(
    path: str | os.PathLike[str],
    constants: Mapping[str, Any] | None = None,
    rewards: str | None = None,
) -> FactoredMDP:
    """Return the model of a PRISM file.

    Parameters
    ----------
    path
        The file.
    constants, rewards
        As in `loads`.

    Raises
    ------
    FileProblem
        If it cannot be read.
    InvalidModel, InvalidParameter, TooLarge
        As in `loads`; the message names the file.
    """
    where = path_of(path, "a PRISM file")
    text = read_text(where, "a PRISM file")
    try:
        return loads(text, constants, rewards, where.stem)
    except (InvalidModel, InvalidParameter) as error:
        raise type(error)(f"{where}: {error}") from None
    except TooLarge as error:
        raise TooLarge(f"{where}: {error}", error.needed_bytes, error.limit_bytes) from None


def dumps(model: FactoredMDP) -> str:
    """Return the text of the PRISM file of a model.

    Parameters
    ----------
    model
        A model without intervals.

    Raises
    ------
    InvalidParameter
        If it is not a model, or has intervals.
    TooLarge
        If there are too many joint actions for one label each.
    """
    check_model(model, "dumps")
    return text_of(expand(model))


def save(model: FactoredMDP, path: str | os.PathLike[str]) -> None:
    """Write a model to a PRISM file atomically.

    Parameters
    ----------
    model
        As in `dumps`.
    path
        The file, which is replaced if it exists.

    Raises
    ------
    FileProblem
        If it cannot be written.
    InvalidParameter, TooLarge
        As in `dumps`.
    """
    check_model(model, "save")
    write_atomically(path_of(path, "a PRISM file"), text_of(expand(model)))


def read(text: str, folder: Path | None) -> FactoredMDP:
    """Return the model of MODEL.prism[,CONSTANT=VALUE...][,rewards=NAME]."""
    path, comma, rest = text.rpartition(SUFFIX + ",")
    path = path + SUFFIX if comma else text
    constants: dict[str, str] = {}
    for part in rest.split(",") if comma else []:
        key, sign, value = map(str.strip, part.partition("="))
        if not sign or not key or key in constants:
            raise InvalidParameter(
                f"{text}: {part!r} must be CONSTANT=VALUE or rewards=NAME, each once"
            )
        constants[key] = value
    rewards = constants.pop("rewards", None)
    return load(located(path, folder), constants, rewards)


def write(model: FactoredMDP, paths: Sequence[Path]) -> None:
    """Write a model (see `fmdp.problems.foreign`)."""
    if paths[0].suffix != SUFFIX:
        raise InvalidParameter(f"cannot write {paths[0]}: the name must end in {SUFFIX}")
    save(model, paths[0])
