"""PRISM files, in and out: `fmdp plan model.prism`, `fmdp convert circle:4 circle.prism`.

    MODEL.prism[,CONSTANT=VALUE...][,rewards=NAME]

What is written is read by PRISM and by Storm, and read back it is the same model, bit for bit
(writing.py). What is read is the part of the language that describes a factored MDP: modules that
move together on labels (reading.py); the rest is refused, by name and with its line. No other
package is needed.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fmdp.errors import InvalidModel, InvalidParameter, TooLarge
from fmdp.interop.prism.program import parse
from fmdp.interop.prism.reading import model_of
from fmdp.interop.prism.writing import text_of
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
    """The model in the text of a PRISM file.

    Parameters
    ----------
    text
        An mdp or dtmc whose modules move together.
    constants
        Values of constants that the text leaves open, by name.
    rewards
        The structure of rewards; None where there is one at most.
    name
        Of the model, where the text does not say.

    Raises
    ------
    InvalidModel
        Where it is no such model; the text of the error has the line.
    InvalidParameter
        Where constants or rewards are none of the text's.
    TooLarge
        Where a table would be too large.
    """
    return model_of(parse(text, constants), rewards, name)


def load(
    path: str | os.PathLike[str],
    constants: Mapping[str, Any] | None = None,
    rewards: str | None = None,
) -> FactoredMDP:
    """The model of a PRISM file.

    Parameters
    ----------
    path
        Where it is.
    constants, rewards
        As in `loads`.

    Raises
    ------
    FileProblem
        Where it cannot be read.
    InvalidModel, InvalidParameter, TooLarge
        As in `loads`; the text names the file.
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
    """The text of the PRISM file of a model.

    Parameters
    ----------
    model
        Without intervals.

    Raises
    ------
    InvalidParameter
        Where it is no model, or has intervals.
    TooLarge
        Where it has too many joint actions to give each a label.
    """
    check_model(model, "dumps")
    return text_of(model)


def save(model: FactoredMDP, path: str | os.PathLike[str]) -> None:
    """Write a model to a PRISM file, atomically.

    Parameters
    ----------
    model
        As in `dumps`.
    path
        Where to; a file that is there is replaced.

    Raises
    ------
    FileProblem
        Where it cannot be written.
    InvalidParameter, TooLarge
        As in `dumps`.
    """
    check_model(model, "save")
    write_atomically(path_of(path, "a PRISM file"), text_of(model))


def read(text: str, folder: Path | None) -> FactoredMDP:
    """The model of MODEL.prism[,CONSTANT=VALUE...][,rewards=NAME]: see `fmdp.problems.foreign`."""
    path, comma, rest = text.rpartition(SUFFIX + ",")
    path = path + SUFFIX if comma else text
    constants: dict[str, str] = {}
    for part in rest.split(",") if comma else []:
        key, sign, value = (own.strip() for own in part.partition("="))
        if not sign or not key or key in constants:
            raise InvalidParameter(
                f"{text}: {part!r} must be CONSTANT=VALUE or rewards=NAME, each once"
            )
        constants[key] = value
    rewards = constants.pop("rewards", None)
    where = Path(path)
    if folder is not None and not where.exists() and (folder / where).exists():
        where = folder / where
    return load(where, constants, rewards)


def write(model: FactoredMDP, paths: Sequence[Path]) -> None:
    """Write a model: see `fmdp.problems.foreign`."""
    if paths[0].suffix != SUFFIX:
        raise InvalidParameter(f"cannot write {paths[0]}: the name must end in {SUFFIX}")
    save(model, paths[0])
