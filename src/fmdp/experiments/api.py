"""Sweeps from Python: problems x learners x seeds into a store, and the results as frames.

    results = fmdp.sweep(["circle:4", model], [fmdp.PSRL(), "dorl,c=0.1", rule], out="runs")
    results.curves()

The same sweep as a spec in TOML makes: the same keys, the same runs, resumable in the same store.
"""

from __future__ import annotations

import itertools
import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fmdp._base.parameters import quoted
from fmdp._base.progress import reporting
from fmdp.errors import InvalidParameter
from fmdp.experiments.executors import InThisProcess, Processes, Workers
from fmdp.experiments.news import line_of
from fmdp.experiments.results import Results
from fmdp.experiments.spec import (
    NamedModel,
    Spec,
    cell_of,
    check_seeds,
    label_of,
    problem_of,
    refuse_repeated,
    text_line,
    whole,
)
from fmdp.experiments.sweep import run_sweep
from fmdp.learning.follow import Follow, learner_of
from fmdp.learning.learner import Learner
from fmdp.model import FactoredMDP
from fmdp.problems import problem


def sweep(
    problems: Any,
    learners: Any,
    *,
    seeds: int | Sequence[int] = 20,
    steps: int = 10_000,
    out: str | os.PathLike[str],
    name: str = "sweep",
    title: str | None = None,
    workers: int | None = None,
    retry_failed: bool = False,
    progress: Any = True,
) -> Results:
    """Run every learner on every problem with every seed; what is done already is not run again.

    Parameters
    ----------
    problems
        Ids such as "circle:7", paths of model files, models, or one of these. A mapping gives them
        names: {"ours": model}.
    learners
        Learners such as fmdp.PSRL(c=0.1), their texts ("psrl,c=0.1", "module:Class"), and
        baselines: policies, policy files, functions state -> action. A mapping gives them labels:
        {"mine": MyLearner(), "never": rule}.
    seeds
        How many (0, 1, ...), or which. Runs of one seed have the same luck.
    steps
        How many steps every run takes.
    out
        The directory of the store, new or begun earlier.
    name
        What the sweep is called in the store and in reports.
    title
        What stands above its reports; the name if None.
    workers
        Worker processes: one a core by default, 0 for this process. Learners and rules that are
        defined in a script or a notebook cannot travel and are run in this process. After Ctrl-C
        (KeyboardInterrupt) the same call goes on.
    retry_failed
        Whether runs that failed earlier are run again.
    progress
        True shows a bar, a function is called with what is known so far; None for silence.

    Returns
    -------
    Results
        The store's runs as frames. A run that fails stops nothing: a warning says so, and
        `results.failures` has the errors.

    Raises
    ------
    FmdpError
        Where a problem, a learner, a seed or a number of steps is none, or `out` is no store;
        nothing is run then.
    """
    spec = spec_of(problems, learners, seeds=seeds, steps=steps, name=name, title=title)
    return run_spec(spec, out, workers=workers, retry_failed=retry_failed, progress=progress)


def run_spec(
    spec: Spec,
    out: str | os.PathLike[str],
    *,
    workers: int | None,
    retry_failed: bool,
    progress: Any,
) -> Results:
    """Run what is missing of a spec for somebody in Python: a bar, a warning of failures."""
    team = _team(spec, workers)
    with reporting(progress, spec.name, "sweep", line_of) as report:
        summary = run_sweep(spec, out, workers=team, retry_failed=retry_failed, progress=report)
    if summary.failed:
        run, error = next(iter(summary.errors.items()))
        warnings.warn(
            f"{summary.failed} of {summary.total} runs failed, such as {run}: "
            f"{error.strip().splitlines()[-1]}; failures of the results has them all, "
            f"retry_failed=True runs them again",
            stacklevel=3,
        )
    return Results.open(out)


def spec_of(
    problems: Any,
    learners: Any,
    *,
    seeds: int | Sequence[int],
    steps: int,
    name: str = "sweep",
    title: str | None = None,
) -> Spec:
    """The validated sweep that `sweep` runs, without running it."""
    found = problems_of(problems, "a sweep")
    labelled = learners_of(learners, "a sweep")
    n_steps, all_seeds = whole(steps, "steps", 1), check_seeds(seeds)
    cells = tuple(
        cell_of(one, label, learner, n_steps)
        for one, (label, learner) in itertools.product(found, labelled)
    )
    refuse_repeated(cells)
    asked = {label: (learner, found) for label, learner in labelled}
    text = as_toml("made in Python", name, n_steps, all_seeds, found, asked)
    return Spec(name, title or name, text, n_steps, all_seeds, found, cells)


def problems_of(given: Any, what: str) -> tuple[NamedModel, ...]:
    """The problems that somebody hands over for a sweep or a comparison, each by its name."""
    if isinstance(given, Mapping):
        named = {text_line(label, "a problem"): one for label, one in given.items()}
        found = [replace(_problem(one, label), id=label) for label, one in named.items()]
    else:
        single = isinstance(given, str | os.PathLike | FactoredMDP)
        several = [given] if single or not isinstance(given, Iterable) else given
        found = [_problem(one, f"model {number + 1}") for number, one in enumerate(several)]
    if not found:
        raise InvalidParameter(f"{what} needs at least one problem")
    names = [one.id for one in found]
    for repeated in {name for name in names if names.count(name) > 1}:
        raise InvalidParameter(
            f"the problem {quoted(repeated)} is given twice; once is enough, and different models "
            f"are told apart by a mapping: {{name: model}}"
        )
    return tuple(found)


def _problem(given: Any, name: str) -> NamedModel:
    """A problem, and what it is called; `name` is for a model that has none."""
    if isinstance(given, str | os.PathLike):
        return problem_of(os.fspath(given), Path())
    model = given if isinstance(given, FactoredMDP) else problem(given)
    return NamedModel(model.name or name, model)


def learners_of(given: Any, what: str) -> tuple[tuple[str, Learner], ...]:
    """(label, learner) of what somebody hands over."""
    if isinstance(given, Mapping):
        pairs = [(text_line(label, "a label"), _learner(one)) for label, one in given.items()]
    else:
        several = isinstance(given, Iterable) and not isinstance(given, str | os.PathLike)
        found = [_learner(one) for one in (given if several else [given])]
        pairs = [(label_of(one), one) for one in found]
    if not pairs:
        raise InvalidParameter(f"{what} needs at least one learner")
    return tuple(pairs)


def _learner(given: Any) -> Learner:
    learner = learner_of(given, "sweep")
    if learner is None:
        raise InvalidParameter(
            f"sweep starts every run anew: it needs a learner and not an agent; got {quoted(given)}"
        )
    return learner


def _team(spec: Spec, workers: int | None) -> Workers:
    if workers is not None:
        workers = whole(workers, "workers", 0)
    at_home = sorted({thing for cell in spec.cells for thing in _not_travelling(cell.learner)})
    if workers == 0 or (workers is None and at_home):
        return InThisProcess()
    if at_home:
        raise InvalidParameter(
            f"{at_home[0]} is defined in this script or notebook and cannot travel to other "
            f"processes; put it into a module, or leave workers out"
        )
    return Processes(workers)


def _not_travelling(learner: Learner) -> Iterable[str]:
    """Names of what lives in __main__ or inside a function, which no other process can import."""
    things = [type(learner), type(getattr(learner, "planner", None))]
    if isinstance(learner, Follow) and hasattr(learner.policy, "__qualname__"):
        things.append(learner.policy)
    for thing in things:
        if thing.__module__ == "__main__" or "<" in thing.__qualname__:
            yield thing.__qualname__


def as_toml(
    made: str,
    name: str,
    steps: int,
    seeds: Sequence[int],
    problems: Sequence[NamedModel],
    learners: Mapping[str, tuple[Learner, Sequence[NamedModel]]],
    others: str = "",
) -> str:
    """The sweep in words, as a spec would have it, for those who read the store later: learners by
    label, with where they run; `others` is the TOML of learners that are written down already."""
    lines = [
        f"# {made}",
        f"name = {_quoted(name)}",
        f"steps = {steps}",
        f"seeds = [{', '.join(map(str, seeds))}]",
        f"problems = {_list(problems)}",
        *([others.rstrip()] if others else []),
    ]
    for label, (learner, where) in learners.items():
        lines += ["", "[[learners]]", f"label = {_quoted(label)}"]
        if len(where) < len(problems):
            lines.append(f"problems = {_list(where)}")
        if isinstance(learner, Follow):
            lines.append(f"# plays {learner.label}")
            continue
        lines.append(f"name = {_quoted(learner.registry.place(type(learner)))}")
        if learner.words():
            own = (word.partition("=") for word in learner.words())
            lines.append(f"set = {{ {', '.join(f'{k} = {_quoted(v)}' for k, _, v in own)} }}")
        planner = getattr(learner, "planner", None)
        if planner is not None:
            lines.append(f"# planner {planner!r}")
    return "\n".join(lines) + "\n"


def _list(problems: Sequence[NamedModel]) -> str:
    return f"[{', '.join(_quoted(one.id) for one in problems)}]"


def _quoted(text: str) -> str:
    plain = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{plain}"'
