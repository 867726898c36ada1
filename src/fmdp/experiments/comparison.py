"""A comparison: learners on problems, those pairs that fit, as one sweep.

    problems x (all that are registered, or those that are named) x seeds, without what cannot run

It is a sweep like any other, with the same keys, store and report; what is new is who is asked. By
default that is every registered learner with its default settings, and the two ends, the optimal
policy and random actions. Which pairs do not fit is found out before anything runs (fitting.py),
and each is kept in the spec with its reason. A learner that somebody names and that fits nowhere is
refused; of the registered ones it is only told.

What makes it fair: runs of one seed share the luck of the environment, plans inside learners have
one tolerance in units of the rewards (learning/learner.py), and the time of a run is that of
acting, observing and planning alone.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

from fmdp.errors import FmdpError, InvalidParameter
from fmdp.experiments.api import as_toml, learners_of, problems_of, run_spec
from fmdp.experiments.fitting import why_not
from fmdp.experiments.results import Results
from fmdp.experiments.spec import (
    Cell,
    NamedModel,
    Spec,
    cell_of,
    check_seeds,
    parse_spec,
    refuse_repeated,
    whole,
)
from fmdp.experiments.store import LeftOut
from fmdp.experiments.suites import SUITES, Suite, suite_named
from fmdp.learning.learner import Learner
from fmdp.learning.registry import LEARNERS

SEEDS = 20
STEPS = 10_000
EVERYBODY = "all"
"""In a list of learners: all that take part where none is named."""

_ENDS = ("upper", "lower")


class Candidate(NamedTuple):
    """Who is to be compared; without a learner, why it cannot be made."""

    label: str
    learner: Learner | None
    reason: str
    named: bool
    """Whether somebody has asked for it by name."""


def compare(
    problems: Any = None,
    learners: Any = None,
    *,
    suite: str | None = None,
    seeds: int | Sequence[int] = SEEDS,
    steps: int = STEPS,
    out: str | os.PathLike[str],
    name: str = "comparison",
    title: str | None = None,
    workers: int | None = None,
    retry_failed: bool = False,
    progress: Any = True,
) -> Results:
    """Compare learners: a sweep over all pairs of learner and problem that fit.

    `results.standings()` then has who is ahead on which problem, and what a step costs; pairs that
    do not fit are in `results.left_out`.

    Parameters
    ----------
    problems
        As for `sweep`: ids, paths of model files, models, one or several; or a mapping from names.
        None with a suite.
    learners
        As for `sweep`; in a list "all" stands for everybody. None: everybody, that is every
        registered learner with its defaults, the optimal policy and random actions.
    suite
        In the place of problems: "paper", the problems of Xu & Tewari (2020) with the learners of
        `fmdp reproduce` beside everybody else, or "wide", problems of every family.
    seeds
        How many (0, 1, ...), or which. Runs of one seed have the same luck.
    steps
        How many steps every run takes.
    out
        The directory of the store, new or begun earlier, also by a sweep.
    name
        What the comparison is called in the store.
    title
        What stands above its reports; what the suite is called, or the name, if None.
    workers
        Worker processes, as for `sweep`.
    retry_failed
        Whether runs that failed earlier are run again.
    progress
        True shows a bar, a function is called with what is known so far; None for silence.

    Returns
    -------
    Results
        The store's runs as frames. Where a learner that was named does not fit a problem, a warning
        says so.

    Raises
    ------
    FmdpError
        Where a problem, a learner, a suite, a seed or a number of steps is none, a learner that was
        named fits none of the problems, or `out` is no store; nothing is run then.
    """
    spec = comparison_of(
        problems, learners, suite=suite, seeds=seeds, steps=steps, name=name, title=title
    )
    if learners is not None and spec.left_out:
        first = spec.left_out[0]
        warnings.warn(
            f"{len(spec.left_out)} pairs of learner and problem do not fit and are left out, such "
            f"as {first.label} on {first.problem}: {first.reason}; left_out of the results has "
            f"them all",
            stacklevel=2,
        )
    return run_spec(spec, out, workers=workers, retry_failed=retry_failed, progress=progress)


def comparison_of(
    problems: Any = None,
    learners: Any = None,
    *,
    suite: str | None = None,
    seeds: int | Sequence[int] = SEEDS,
    steps: int = STEPS,
    name: str = "comparison",
    title: str | None = None,
) -> Spec:
    """The validated sweep that `compare` runs, with what is left out of it; nothing is run."""
    chosen = None if suite is None else suite_named(suite)
    if (problems is None) == (chosen is None):
        got = "neither" if chosen is None else "both"
        raise InvalidParameter(
            f"a comparison needs problems or a suite ({', '.join(SUITES)}), one of the two; "
            f"got {got}"
        )
    n_steps, all_seeds = whole(steps, "steps", 1), check_seeds(seeds)
    candidates = everybody() if learners is None else _asked_for(learners)
    others = ""
    given: tuple[Cell, ...] = ()
    if chosen is None:
        models = problems_of(problems, "a comparison")
    elif chosen.learners and learners is None:
        others = chosen.learners
        base = _spec_of(chosen, n_steps, all_seeds)
        models, given = base.problems, base.cells
        there = {type(cell.learner) for cell in given}
        candidates = [one for one in candidates if type(one.learner) not in there]
    else:
        models = problems_of(chosen.problems, "a comparison")
    cells, left_out = _sorted_out(models, candidates, given, n_steps)
    _refuse_if_useless(cells, left_out, candidates, models)
    refuse_repeated(cells)
    asked = {
        one.label: (one.learner, where)
        for one in candidates
        if one.learner is not None and (where := _where(one.label, cells))
    }
    text = as_toml("made by compare", name, n_steps, all_seeds, models, asked, others)
    text += "".join(f"# {one.label} does not fit {one.problem}: {one.reason}\n" for one in left_out)
    told = title or (name if chosen is None else chosen.title)
    return Spec(name, told, text, n_steps, all_seeds, models, cells, left_out)


def everybody() -> list[Candidate]:
    """Every registered learner with its defaults, then the ends."""
    found = []
    kinds = LEARNERS.kinds()
    learners = [kind for kind in kinds if kind.role == "learner"]
    ends = [kind for role in _ENDS for kind in kinds if kind.role == role]
    for kind in (*learners, *ends):
        try:
            found.append(Candidate(kind.name, kind.make({}), "", named=False))
        except FmdpError as error:  # it has a setting that has to be given
            found.append(Candidate(kind.name, None, str(error), named=False))
    return found


def split_learners(texts: Sequence[str]) -> list[str]:
    """ "psrl,dorl,c=0.1" are two learners: a part without "=" begins the next one."""
    found: list[str] = []
    for text in texts:
        begun = False
        for part in text.split(","):
            if begun and "=" in part:
                found[-1] += f",{part.strip()}"
            else:
                found.append(part.strip())
                begun = True
    return found


def _asked_for(given: Any) -> list[Candidate]:
    several = [given] if isinstance(given, str) else given
    if isinstance(several, list | tuple) and any(_is_everybody(one) for one in several):
        rest = [one for one in several if not _is_everybody(one)]
        return [*everybody(), *(_asked_for(rest) if rest else ())]
    pairs = learners_of(several, "a comparison")
    return [Candidate(label, learner, "", named=True) for label, learner in pairs]


def _is_everybody(given: object) -> bool:
    return isinstance(given, str) and given == EVERYBODY


def _spec_of(suite: Suite, steps: int, seeds: Sequence[int]) -> Spec:
    """The runs of a suite's own learners."""
    problems = ", ".join(f'"{one}"' for one in suite.problems)
    head = f"steps = {steps}\nseeds = {[*seeds]}\nproblems = [{problems}]\n"
    return parse_spec(head + suite.learners, f"suite {suite.name}", name=suite.name)


def _sorted_out(
    models: Sequence[NamedModel],
    candidates: Sequence[Candidate],
    given: Sequence[Cell],
    steps: int,
) -> tuple[tuple[Cell, ...], tuple[LeftOut, ...]]:
    cells: list[Cell] = []
    left_out: list[LeftOut] = []
    for one in models:
        cells += [cell for cell in given if cell.problem is one]
        for label, learner, unmade, _ in candidates:
            reason = unmade if learner is None else why_not(learner, one.model)
            if reason:
                left_out.append(LeftOut(one.id, label, reason))
            elif learner is not None:
                cells.append(cell_of(one, label, learner, steps))
    return tuple(cells), tuple(left_out)


def _refuse_if_useless(
    cells: Sequence[Cell],
    left_out: Sequence[LeftOut],
    candidates: Sequence[Candidate],
    models: Sequence[NamedModel],
) -> None:
    """Refuse a learner that was named and fits nowhere, and a comparison of nobody."""
    many = "the problem" if len(models) == 1 else f"none of the {len(models)} problems"
    running = {cell.label for cell in cells}
    for one in candidates:
        if one.named and one.label not in running:
            reason = next(pair.reason for pair in left_out if pair.label == one.label)
            verb = "does not fit" if len(models) == 1 else "fits"
            raise InvalidParameter(f"{one.label} {verb} {many}: {reason}")
    if not any(one.named for one in candidates) and not any(
        cell.learner.role == "learner" for cell in cells
    ):
        first = left_out[0]
        raise InvalidParameter(
            f"no learner fits: {first.label} on {first.problem}, for one: {first.reason}"
        )


def _where(label: str, cells: Sequence[Cell]) -> list[NamedModel]:
    return [cell.problem for cell in cells if cell.label == label]
