"""Reading and writing of PRISM files: `fmdp plan model.prism`, `fmdp convert circle:4 c.prism`.

    MODEL.prism[,CONSTANT=VALUE...][,rewards=NAME or ,min=NAME][,max-states=N]

PRISM and Storm read the files that are written; read back, they give the same model, bit for bit
(writing.py). Modules that synchronise on labels are a factored MDP (reading.py). Any other mdp,
dtmc or ctmc is explored from its initial state and becomes a model with one variable
(exploring.py). Everything else is refused by name and line.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fmdp.errors import InvalidModel, InvalidParameter, TooLarge
from fmdp.interop.choosing import settings_behind, taken_options
from fmdp.interop.limits import nesting
from fmdp.interop.paths import located
from fmdp.interop.prism.exploring import explored_model
from fmdp.interop.prism.objectives import Objective, objective_of
from fmdp.interop.prism.program import Program, parse
from fmdp.interop.prism.reading import factored_model
from fmdp.interop.prism.writing import text_of
from fmdp.model.expansion import expand
from fmdp.model.factored import FactoredMDP, check_model
from fmdp.model.io.files import path_of, read_text, write_atomically

__all__ = ["dumps", "load", "loads", "save"]

SUFFIX = ".prism"
_LONGEST_REASON = 80
"""Most characters of the reason for which a file is read state by state."""


def loads(
    text: str,
    constants: Mapping[str, Any] | None = None,
    rewards: str | None = None,
    name: str = "",
    *,
    minimise: str | None = None,
    max_states: int | None = None,
) -> FactoredMDP:
    """Return the model in the text of a PRISM file.

    Its `remarks` say how it was read. Reward structures that are not chosen, and labels, become
    quantities.

    Parameters
    ----------
    text
        An mdp, dtmc or ctmc.
    constants
        Values of the constants that the text does not define, by name.
    rewards
        The reward structure, or label, that is maximised; None if there is at most one structure.
    name
        Name of the model if the text has none.
    minimise
        The reward structure, or label, that is minimised instead: rewards are its negatives.
    max_states
        Most reachable states of a file that is read state by state; None for 10,000 and a table of
        at most 2^26 numbers.

    Raises
    ------
    InvalidModel
        If it is not such a model; the message has the line.
    InvalidParameter
        If the text has no such constant or reward structure.
    TooLarge
        If a table would be too large, or more states can be reached.
    """
    with nesting():
        program = parse(text, constants)
        objective = objective_of(program, rewards, minimise, max_states)
        return _model(program, objective, name, max_states)


def _model(
    program: Program, objective: Objective, name: str, max_states: int | None
) -> FactoredMDP:
    """Return the model with the variables of the program, or else of its reachable states."""
    unbounded = [variable.name for variable in program.variables if not variable.is_bounded]
    if program.kind == "ctmc":
        reason = "a ctmc moves one variable at a time"
    elif unbounded:
        reason = f"{unbounded[0]} is unbounded"
    else:
        try:
            return factored_model(program, objective, name)
        except (InvalidModel, TooLarge) as error:
            # Files of fmdp describe a product, whose errors must not be hidden.
            if program.notes:
                raise
            reason = f"no product of variables: {_shortened(str(error))}"
    return explored_model(program, objective, name, max_states, reason)


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST_REASON else f"{text[:_LONGEST_REASON]}..."


def load(
    path: str | os.PathLike[str],
    constants: Mapping[str, Any] | None = None,
    rewards: str | None = None,
    *,
    minimise: str | None = None,
    max_states: int | None = None,
) -> FactoredMDP:
    """Return the model of a PRISM file.

    Parameters
    ----------
    path
        The file.
    constants, rewards, minimise, max_states
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
        return loads(text, constants, rewards, where.stem, minimise=minimise, max_states=max_states)
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
    """Return the model of a file with settings behind its name, as above."""
    forms = "CONSTANT=VALUE, rewards=NAME, min=NAME or max-states=N"
    path, constants = settings_behind(text, SUFFIX, forms)
    # No constant can have the name of an option: two are keywords of PRISM, one has a hyphen.
    options = taken_options(constants, text)
    return load(located(path, folder), constants, **options)


def write(model: FactoredMDP, paths: Sequence[Path]) -> None:
    """Write a model (see `fmdp.problems.foreign`)."""
    if paths[0].suffix != SUFFIX:
        raise InvalidParameter(f"cannot write {paths[0]}: the name must end in {SUFFIX}")
    save(model, paths[0])
