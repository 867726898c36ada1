"""Comparisons: a sweep over all pairs of learner and problem that fit.

A comparison is a sweep with the usual keys, store and report. By default it has every registered
learner with its default settings, and the two ends, the optimal policy and random actions. Pairs
that do not fit are found before anything runs (compatibility.py) and kept in the spec with their
reasons. A named learner that fits no problem is refused.

The comparison is fair: runs with one seed share the random numbers of the environment, plans inside
learners have one tolerance in units of the rewards (learning/learner.py), and the time of a run
covers acting, observing and planning only.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

from fmdp.errors import FmdpError, InvalidParameter
from fmdp.experiments.api import as_toml, learners_of, problems_of, run_spec
from fmdp.experiments.compatibility import incompatibility
from fmdp.experiments.results import Results
from fmdp.experiments.spec import (
    NamedModel,
    PlannedCell,
    Spec,
    cell_of,
    check_checkpoints,
    check_seeds,
    parse_spec,
    refuse_repeated,
    whole,
)
from fmdp.experiments.store import LeftOut
from fmdp.experiments.suites import SUITES, suite_named
from fmdp.learning.learner import Learner
from fmdp.learning.registry import LEARNERS

SEEDS = 20
STEPS = 10_000
EVERYBODY = "all"
"""In a list of learners: all registered ones and the two ends."""

_ENDS = ("upper", "lower")


class Candidate(NamedTuple):
    """A learner to be compared, or the reason why it cannot be made."""

    label: str
    learner: Learner | None
    reason: str
    named: bool
    """True if the user named it."""


def compare(
    problems: Any = None,
    learners: Any = None,
    *,
    suite: str | None = None,
    seeds: int | Sequence[int] = SEEDS,
    steps: int = STEPS,
    checkpoints: Sequence[int] = (),
    out: str | os.PathLike[str],
    name: str = "comparison",
    title: str | None = None,
    workers: int | None = None,
    retry_failed: bool = False,
    progress: Any = True,
) -> Results:
    """Compare learners: run a sweep over all pairs of learner and problem that fit.

    `results.standings()` then ranks the learners of each problem, with the time per step;
    `results.left_out` has the pairs that do not fit.

    Parameters
    ----------
    problems
        As for `sweep`: ids, paths of model files, models, or a mapping from names. None with a
        suite.
    learners
        As for `sweep`. None, or "all" in a list: every registered learner with its defaults, the
        optimal policy and random actions.
    suite
        Instead of problems: "paper", the problems of Xu & Tewari (2020) with the learners of
        `fmdp reproduce` beside all others, or "wide", problems of every family.
    seeds, steps, checkpoints, out, name, workers, retry_failed, progress
        As for `sweep`.
    title
        Title of its reports; by default that of the suite, or the name.

    Returns
    -------
    Results
        The runs of the store as frames. A warning reports named learners that do not fit a
        problem.

    Raises
    ------
    FmdpError
        If a problem, learner, suite, seed or number of steps is invalid, a named learner fits none
        of the problems, or `out` is not a store. Nothing is run then.
    """
    spec = comparison_of(
        problems,
        learners,
        suite=suite,
        seeds=seeds,
        steps=steps,
        checkpoints=checkpoints,
        name=name,
        title=title,
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
    checkpoints: Sequence[int] = (),
    name: str = "comparison",
    title: str | None = None,
) -> Spec:
    """Return the validated spec of a comparison, including the pairs that do not fit."""
    chosen = None if suite is None else suite_named(suite)
    if (problems is None) == (chosen is None):
        got = "neither" if chosen is None else "both"
        raise InvalidParameter(
            f"a comparison needs problems or a suite ({', '.join(SUITES)}), one of the two; "
            f"got {got}"
        )
    n_steps, all_seeds = whole(steps, "steps", 1), check_seeds(seeds)
    marks = check_checkpoints(checkpoints, n_steps)
    candidates = everybody() if learners is None else _requested(learners)
    others = ""
    given: tuple[PlannedCell, ...] = ()
    if chosen is None:
        models = problems_of(problems, "a comparison", all_seeds)
    elif chosen.learners and learners is None:
        others = chosen.learners
        # The suite's own learners are written as a spec.
        ids = ", ".join(f'"{problem}"' for problem in chosen.problems)
        head = (
            f"steps = {n_steps}\nseeds = {[*all_seeds]}\ncheckpoints = {[*marks]}\n"
            f"problems = [{ids}]\n"
        )
        base = parse_spec(head + others, f"suite {chosen.name}", name=chosen.name)
        models, given = base.problems, base.cells
        present = {type(cell.learner) for cell in given}
        candidates = [c for c in candidates if type(c.learner) not in present]
    else:
        models = problems_of(chosen.problems, "a comparison", all_seeds)
    cells, left_out = _fitting(models, candidates, given, n_steps, marks)
    _refuse_if_useless(cells, left_out, candidates, models)
    refuse_repeated(cells)
    where = {
        c.label: (c.learner, places)
        for c in candidates
        if c.learner is not None
        and (places := [cell.problem for cell in cells if cell.label == c.label])
    }
    text = as_toml("made by compare", name, n_steps, all_seeds, models, where, others, marks)
    text += "".join(f"# {p.label} does not fit {p.problem}: {p.reason}\n" for p in left_out)
    title = title or (name if chosen is None else chosen.title)
    return Spec(name, title, text, n_steps, all_seeds, models, cells, left_out, marks)


def everybody() -> list[Candidate]:
    """Return every registered learner with its defaults, then the two ends."""
    candidates = []
    kinds = LEARNERS.kinds()
    learners = [kind for kind in kinds if kind.role == "learner"]
    ends = [kind for role in _ENDS for kind in kinds if kind.role == role]
    for kind in (*learners, *ends):
        try:
            candidates.append(Candidate(kind.name, kind.make({}), "", named=False))
        except FmdpError as error:  # a setting has no default
            candidates.append(Candidate(kind.name, None, str(error), named=False))
    return candidates


def split_learners(texts: Sequence[str]) -> list[str]:
    """Split "psrl,dorl,c=0.1" into learners: a part without "=" begins the next one."""
    learners: list[str] = []
    for text in texts:
        begun = False
        for part in text.split(","):
            if begun and "=" in part:
                learners[-1] += f",{part.strip()}"
            else:
                learners.append(part.strip())
                begun = True
    return learners


def _requested(given: Any) -> list[Candidate]:
    items = [given] if isinstance(given, str) else given
    if isinstance(items, list | tuple) and any(_is_everybody(item) for item in items):
        rest = [item for item in items if not _is_everybody(item)]
        return [*everybody(), *(_requested(rest) if rest else ())]
    pairs = learners_of(items, "a comparison")
    return [Candidate(label, learner, "", named=True) for label, learner in pairs]


def _is_everybody(given: object) -> bool:
    return isinstance(given, str) and given == EVERYBODY


def _fitting(
    models: Sequence[NamedModel],
    candidates: Sequence[Candidate],
    given: Sequence[PlannedCell],
    steps: int,
    checkpoints: Sequence[int],
) -> tuple[tuple[PlannedCell, ...], tuple[LeftOut, ...]]:
    """Return the cells of all pairs that fit, and the pairs that do not."""
    cells: list[PlannedCell] = []
    left_out: list[LeftOut] = []
    for problem in models:
        cells += [cell for cell in given if cell.problem is problem]
        for label, learner, unmade, _ in candidates:
            reason = unmade if learner is None else _misfit(learner, problem)
            if reason:
                left_out.append(LeftOut(problem.id, label, reason))
            elif learner is not None:
                cells.append(cell_of(problem, label, learner, steps, checkpoints))
    return tuple(cells), tuple(left_out)


def _misfit(learner: Learner, problem: NamedModel) -> str | None:
    """Return the first reason why the learner cannot run on a model of the problem, or None."""
    reasons = (incompatibility(learner, model) for model in problem.models)
    return next((reason for reason in reasons if reason), None)


def _refuse_if_useless(
    cells: Sequence[PlannedCell],
    left_out: Sequence[LeftOut],
    candidates: Sequence[Candidate],
    models: Sequence[NamedModel],
) -> None:
    """Raise InvalidParameter if a named learner fits nowhere, or no learner fits at all."""
    many = "the problem" if len(models) == 1 else f"none of the {len(models)} problems"
    running = {cell.label for cell in cells}
    for candidate in candidates:
        if candidate.named and candidate.label not in running:
            reason = next(pair.reason for pair in left_out if pair.label == candidate.label)
            verb = "does not fit" if len(models) == 1 else "fits"
            raise InvalidParameter(f"{candidate.label} {verb} {many}: {reason}")
    if not any(candidate.named for candidate in candidates) and not any(
        cell.learner.role == "learner" for cell in cells
    ):
        first = left_out[0]
        raise InvalidParameter(
            f"no learner fits: {first.label} on {first.problem}, for one: {first.reason}"
        )
