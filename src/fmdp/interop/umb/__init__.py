"""Reading and writing of UMB files, the unified Markov binary format (extra `umb`).

    MODEL.umb[,rewards=NAME or ,min=NAME][,max-states=N]

A UMB file lists states, choices and branches one by one; Storm and PRISM read and write it. It
becomes a model with one state variable (reading.py), and a model is written with all of its states
(writing.py). The package umbi reads and writes the parts of a file.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from fmdp.errors import InvalidModel, InvalidParameter, TooLarge
from fmdp.interop.choosing import settings_behind, taken_options
from fmdp.interop.paths import located
from fmdp.interop.umb.archives import contents_of
from fmdp.interop.umb.reading import model_of
from fmdp.interop.umb.writing import bytes_of
from fmdp.model.expansion import expand
from fmdp.model.factored import FactoredMDP, check_model
from fmdp.model.io.files import path_of, write_atomically

__all__ = ["load", "save"]

SUFFIX = ".umb"


def load(
    path: str | os.PathLike[str],
    rewards: str | None = None,
    *,
    minimise: str | None = None,
    max_states: int | None = None,
) -> FactoredMDP:
    """Return the model of a UMB file.

    Its `remarks` say how it was read. Rewards that are not chosen, and atomic propositions, become
    quantities.

    Parameters
    ----------
    path
        The file: an MDP, a Markov chain, or one of them in continuous time.
    rewards
        The rewards, or atomic proposition, to maximise; None for those called "reward", or the
        only ones.
    minimise
        The rewards, or atomic proposition, to minimise instead: rewards are its negatives.
    max_states
        Most states; None for 10,000 and a table of at most 2^26 numbers.

    Raises
    ------
    FileProblem
        If it cannot be read, or is no UMB file.
    InvalidModel
        If it is another kind of model, or its parts do not fit together.
    InvalidParameter
        If the file has no such rewards.
    TooLarge
        If it has too many states.
    FmdpError
        If umbi is not installed.
    """
    where = path_of(path, "a UMB file")
    try:
        return model_of(contents_of(where, max_states), where.stem, rewards, minimise, max_states)
    except TooLarge as error:
        raise TooLarge(f"{where}: {error}", error.needed_bytes, error.limit_bytes) from None
    except (InvalidModel, InvalidParameter) as error:
        raise type(error)(f"{where}: {error}") from None


def save(model: FactoredMDP, path: str | os.PathLike[str]) -> None:
    """Write a model to a UMB file atomically, with all of its states.

    Parameters
    ----------
    model
        A model without intervals.
    path
        The file, which is replaced if it exists.

    Raises
    ------
    FileProblem
        If it cannot be written.
    InvalidParameter
        If it is not a model, or has intervals.
    TooLarge
        If it has too many states, actions and successors.
    FmdpError
        If umbi is not installed.
    """
    check_model(model, "save")
    write_atomically(path_of(path, "a UMB file"), bytes_of(expand(model)))


def read(text: str, folder: Path | None) -> FactoredMDP:
    """Return the model of a file with settings behind its name, as above."""
    forms = "rewards=NAME, min=NAME or max-states=N"
    path, settings = settings_behind(text, SUFFIX, forms)
    options = taken_options(settings, text)
    if settings:
        raise InvalidParameter(f"{text}: {next(iter(settings))!r} must be {forms}")
    return load(located(path, folder), **options)


def write(model: FactoredMDP, paths: Sequence[Path]) -> list[str]:
    """Write a model (see `fmdp.problems.foreign`)."""
    if paths[0].suffix != SUFFIX:
        raise InvalidParameter(f"cannot write {paths[0]}: the name must end in {SUFFIX}")
    save(model, paths[0])
    return left_out(model)


def left_out(model: FactoredMDP) -> list[str]:
    """Return what a UMB file cannot express of a model."""
    s = model.structure
    omissions = []
    if s.m > 1 or len(s.action_sizes) > 1:
        omissions.append("the scopes of variables, and action variables (all states are listed)")
    if s.l > 1:
        omissions.append("the single reward factors (their sum is written)")
    if any(law.kind != "deterministic" for law in model.noise):
        omissions.append("noise")
    if s.alike is not None:
        omissions.append("rows that are alike")
    return omissions
