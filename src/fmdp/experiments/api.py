"""Sweeps from Python: problems x learners x seeds into a store, and the results as frames.

    results = fmdp.sweep(["circle:4", model], [fmdp.PSRL(), "dorl,c=0.1", rule], out="runs")
    results.curves()

A spec in TOML with the same content makes the same runs, with the same keys, in the same store.
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
from fmdp.experiments.priors import DirichletPrior, Prior
from fmdp.experiments.progress import progress_line
from fmdp.experiments.results import Results
from fmdp.experiments.spec import (
    NamedModel,
    Spec,
    cell_of,
    check_checkpoints,
    check_seeds,
    label_of,
    prior_of,
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
    checkpoints: Sequence[int] = (),
    out: str | os.PathLike[str],
    name: str = "sweep",
    title: str | None = None,
    workers: int | None = None,
    retry_failed: bool = False,
    progress: Any = True,
) -> Results:
    """Run every learner on every problem with every seed; make only the runs that the store lacks.

    Parameters
    ----------
    problems
        Ids such as "circle:7", paths of model files, models, or a single one. A mapping gives them
        names: {"ours": model}. Priors, such as fmdp.DirichletPrior("circle:4"), and ids with
        `seed=*` draw a model per seed.
    learners
        Learners such as fmdp.PSRL(c=0.1), their texts ("psrl,c=0.1", "module:Class"), and
        baselines: policies, policy files, functions state -> action. A mapping gives them labels:
        {"mine": MyLearner(), "never": rule}.
    seeds
        Their number (0, 1, ...), or a list. Runs with one seed share the random numbers of the
        environment.
    steps
        Number of steps of every run.
    checkpoints
        Steps at which every measure is stored, beside 20 per decade.
    out
        Directory of the store; created if missing, otherwise resumed.
    name
        Name of the sweep in the store and in reports.
    title
        Title of its reports; by default the name.
    workers
        Number of worker processes: one per core by default, 0 for this process. Learners and rules
        that are defined in a script or a notebook cannot be sent to other processes and run in this
        one. After Ctrl-C (KeyboardInterrupt) the same call resumes.
    retry_failed
        Whether to repeat runs that failed earlier.
    progress
        True shows a bar, a callback receives the state of the sweep; None for silence.

    Returns
    -------
    Results
        The runs of the store as frames. A failed run does not stop the sweep: a warning reports it,
        and `results.failures` has the errors.

    Raises
    ------
    FmdpError
        If a problem, learner, seed or number of steps is invalid, or `out` is not a store. Nothing
        is run then.
    """
    spec = spec_of(
        problems,
        learners,
        seeds=seeds,
        steps=steps,
        checkpoints=checkpoints,
        name=name,
        title=title,
    )
    return run_spec(spec, out, workers=workers, retry_failed=retry_failed, progress=progress)


def run_spec(
    spec: Spec,
    out: str | os.PathLike[str],
    *,
    workers: int | None,
    retry_failed: bool,
    progress: Any,
) -> Results:
    """Make the missing runs of a spec, with a progress bar and a warning about failures."""
    team = _team(spec, workers)
    with reporting(progress, spec.name, "sweep", progress_line) as report:
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
    checkpoints: Sequence[int] = (),
    name: str = "sweep",
    title: str | None = None,
) -> Spec:
    """Return the validated spec of a sweep."""
    n_steps, all_seeds = whole(steps, "steps", 1), check_seeds(seeds)
    marks = check_checkpoints(checkpoints, n_steps)
    models = problems_of(problems, "a sweep", all_seeds)
    labelled = learners_of(learners, "a sweep")
    cells = tuple(
        cell_of(model, label, learner, n_steps, marks)
        for model, (label, learner) in itertools.product(models, labelled)
    )
    refuse_repeated(cells)
    where = {label: (learner, models) for label, learner in labelled}
    text = as_toml("made in Python", name, n_steps, all_seeds, models, where, checkpoints=marks)
    return Spec(name, title or name, text, n_steps, all_seeds, models, cells, checkpoints=marks)


def problems_of(given: Any, what: str, seeds: Sequence[int]) -> tuple[NamedModel, ...]:
    """Return the named problems of an argument of `sweep` or `compare`."""
    if isinstance(given, Mapping):
        by_name = {text_line(label, "a problem"): item for label, item in given.items()}
        models = [
            replace(_problem(item, label, seeds), id=label) for label, item in by_name.items()
        ]
    else:
        single = isinstance(given, str | os.PathLike | FactoredMDP)
        items = [given] if single or not isinstance(given, Iterable) else given
        models = [_problem(item, f"model {number + 1}", seeds) for number, item in enumerate(items)]
    if not models:
        raise InvalidParameter(f"{what} needs at least one problem")
    names = [model.id for model in models]
    for repeated in {name for name in names if names.count(name) > 1}:
        raise InvalidParameter(
            f"the problem {quoted(repeated)} is given twice; once is enough, and different models "
            f"are told apart by a mapping: {{name: model}}"
        )
    return tuple(models)


def _problem(given: Any, name: str, seeds: Sequence[int]) -> NamedModel:
    """Return a problem with its name; `name` is for a model without one."""
    if isinstance(given, Prior):
        return prior_of(given, seeds)
    if isinstance(given, str | os.PathLike):
        return problem_of(os.fspath(given), Path(), seeds)
    model = given if isinstance(given, FactoredMDP) else problem(given)
    return NamedModel(model.name or name, model)


def learners_of(given: Any, what: str) -> tuple[tuple[str, Learner], ...]:
    """Return (label, learner) pairs of an argument of `sweep` or `compare`."""
    if isinstance(given, Mapping):
        pairs = [(text_line(label, "a label"), _learner(item)) for label, item in given.items()]
    else:
        is_list = isinstance(given, Iterable) and not isinstance(given, str | os.PathLike)
        learners = [_learner(item) for item in (given if is_list else [given])]
        pairs = [(label_of(learner), learner) for learner in learners]
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
    local = sorted({name for cell in spec.cells for name in _not_importable(cell.learner)})
    if workers == 0 or (workers is None and local):
        return InThisProcess()
    if local:
        raise InvalidParameter(
            f"{local[0]} is defined in this script or notebook and cannot travel to other "
            f"processes; put it into a module, or leave workers out"
        )
    return Processes(workers)


def _not_importable(learner: Learner) -> Iterable[str]:
    """Yield names of code in __main__ or inside a function, which other processes cannot import."""
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
    checkpoints: Sequence[int] = (),
) -> str:
    """Return a sweep as TOML, for readers of the store.

    `learners` has each learner with its problems by label; `others` is TOML of further learners.
    """
    lines = [
        f"# {made}",
        f"name = {_quoted(name)}",
        f"steps = {steps}",
        f"seeds = [{', '.join(map(str, seeds))}]",
        *([f"checkpoints = {[*checkpoints]}"] if checkpoints else []),
        f"problems = {_list(problems)}",
        *([others.rstrip()] if others else []),
    ]
    for label, (learner, where) in learners.items():
        lines += ["", "[[learners]]", f"label = {_quoted(label)}"]
        if len(where) < len(problems):
            names = ", ".join(_quoted(problem.id) for problem in where)
            lines.append(f"problems = [{names}]")
        if isinstance(learner, Follow):
            lines.append(f"# plays {learner.label}")
            continue
        lines.append(f"name = {_quoted(learner.registry.place(type(learner)))}")
        if learner.words():
            words = (word.partition("=") for word in learner.words())
            lines.append(f"set = {{ {', '.join(f'{k} = {_quoted(v)}' for k, _, v in words)} }}")
        planner = getattr(learner, "planner", None)
        if planner is not None:
            lines.append(f"# planner {planner!r}")
    return "\n".join(lines) + "\n"


def _list(problems: Sequence[NamedModel]) -> str:
    return f"[{', '.join(map(_entry, problems))}]"


def _entry(problem: NamedModel) -> str:
    """Return the entry of a problem: a table for a Dirichlet prior, else its name."""
    prior = problem.prior
    if not isinstance(prior, DirichletPrior):
        return _quoted(problem.id)
    settings = {"prior": _quoted(prior.model.name), "concentration": repr(prior.concentration)}
    settings |= {"rewards": _quoted(prior.rewards), "label": _quoted(problem.id)}
    return f"{{ {', '.join(f'{key} = {value}' for key, value in settings.items())} }}"


def _quoted(text: str) -> str:
    plain = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{plain}"'
