"""Specs of sweeps: TOML that names problems, learners, their parameters, seeds and steps.

    problems x learners x values of their parameters x seeds -> runs

A problem is one model, or a prior from which every seed draws its own (priors.py).

A spec is read and checked completely before anything runs, and refused with one line that names the
place. The result is resolved: every parameter and planner setting has its value, defaults included,
and models, policies and code outside fmdp are identified by their content. The hash of a spec is
that of its resolved content, so the order of keys, comments and spaces do not matter. The key of a
run is the hash of its own part and RESULTS_VERSION. docs/experiments.md describes the format.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import math
import os
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from fmdp._base.foreign_code import code_digest, content_digest, is_own, place_of, source_texts
from fmdp._base.parameters import Parameter, quoted, resolve
from fmdp._base.registries import attribute_at, is_place
from fmdp.errors import FileProblem, FmdpError, InvalidParameter, UnknownName, did_you_mean
from fmdp.experiments import RESULTS_VERSION
from fmdp.experiments.priors import (
    DirichletPrior,
    FamilyPrior,
    Prior,
    draws_of,
    has_every_seed,
)
from fmdp.experiments.store import LeftOut, canonical_json
from fmdp.learning.agent import Agent
from fmdp.learning.follow import Follow
from fmdp.learning.learner import Learner
from fmdp.learning.registry import LEARNERS
from fmdp.model import FactoredMDP
from fmdp.model.io.files import read_text
from fmdp.model.spaces import whole_number
from fmdp.planning.plan import Planner
from fmdp.planning.registry import PLANNERS
from fmdp.problems import problem
from fmdp.problems.ids import is_path
from fmdp.simulation.loop import checkpoints as usual_checkpoints

HIGHEST = 2**63 - 1
"""Largest seed and number of steps: the largest integer of an SQLite column."""

MOST_CELLS = 10_000
MOST_RUNS = 1_000_000
"""Most cells (settings of learners on problems) and runs of a spec."""
_DEEP_KEY = re.compile(r"""(?<![\w-])(?:(?:[\w-]+|"[^"\n]*"|'[^'\n]*')[ \t]*\.[ \t]*){64}""")
"""A key of 64 parts, for which tomllib would take quadratic memory."""

KEYS = ("name", "title", "steps", "seeds", "checkpoints", "problems", "learners")
PROBLEM_KEYS = ("problem", "prior", "label", "concentration", "rewards")
LEARNER_KEYS = ("name", "policy", "rule", "label", "problems", "planner", "set")


def resolved_learner(agent: Agent) -> dict[str, Any]:
    """Return the learner and planner of an agent with all their settings, in JSON types.

    Settings at one of their `unkeyed` values are omitted, so that runs that were stored before the
    setting existed keep their keys.
    """
    learner, planner = agent.learner, agent.planner
    parameters = learner.as_dict()
    if isinstance(learner, Follow):
        parameters["policy"], _ = learner.identity(agent.structure)
    content: dict[str, Any] = {
        "learner": learner.class_place(),
        "planner": None if planner is None else PLANNERS.place(type(planner)),
        "planner_settings": _planner_settings(planner),
        "parameters": _keyed(parameters, getattr(learner, "parameters", ())),
    }
    # RESULTS_VERSION identifies fmdp's own code; other code is identified by its digest.
    digests = {place_of(thing): code_digest(thing) for thing in _foreign_code(agent)}
    return {**content, "code": digests} if digests else content


def _planner_settings(planner: Any) -> dict[str, Any]:
    if planner is None:
        return {}
    if not is_dataclass(planner):  # it declares no settings
        return {"content": content_digest(planner)}
    settings = {field.name: getattr(planner, field.name) for field in fields(planner)}
    # Settings of planners outside fmdp are always part of the key.
    return _keyed(settings, getattr(planner, "parameters", ()) if is_own(type(planner)) else ())


def _keyed(values: Mapping[str, Any], parameters: Sequence[Parameter]) -> dict[str, Any]:
    unkeyed = {parameter.name: parameter.unkeyed for parameter in parameters}
    return {n: _plain(value) for n, value in values.items() if value not in unkeyed.get(n, ())}


def _foreign_code(agent: Agent) -> list[Any]:
    """Return the classes of the agent's learner and planner, and its rule, that are not fmdp's."""
    code = [type(thing) for thing in (agent.learner, agent.planner) if thing is not None]
    if isinstance(agent.learner, Follow):
        _, rule = agent.learner.identity(agent.structure)
        code += [] if rule is None else [rule]
    return [thing for thing in code if not is_own(thing)]


@dataclass(frozen=True, eq=False)
class NamedModel:
    """A model under its name: its canonical id, the path of its file, or the label in the spec.

    With a prior every seed has its own model in `drawn`, and `model` is that of the first seed.
    """

    id: str
    model: FactoredMDP
    prior: Prior | None = None
    drawn: Mapping[int, FactoredMDP] = field(default_factory=dict)

    def of_seed(self, seed: int) -> FactoredMDP:
        """Return the model that a run with this seed acts in."""
        return self.drawn.get(seed, self.model)

    @property
    def models(self) -> tuple[FactoredMDP, ...]:
        """All models: one, or one per seed."""
        return tuple(self.drawn.values()) or (self.model,)

    @property
    def resolved(self) -> dict[str, Any]:
        if self.prior is None:
            return {"id": self.id, "model": self.model.content_hash}
        hashes = [model.content_hash for model in self.models]
        return {"id": self.id, "prior": self.prior.identity, "models": hashes}


@dataclass(frozen=True, eq=False)
class PlannedCell:
    """One learner with all its settings on one problem; a run is a cell and a seed."""

    problem: NamedModel
    label: str
    learner: Learner
    steps: int
    resolved: Mapping[str, Any]
    """Everything except the seed that the numbers of a run depend on; with a prior, what its draws
    share."""
    sources: Mapping[str, str] = field(default_factory=dict)
    """Source texts of code outside fmdp, by module name."""
    checkpoints: tuple[int, ...] = ()
    """Steps at which measures are stored, beside the usual ones."""
    drawn: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    """With a prior: `resolved` of the model of each seed."""


@dataclass(frozen=True, eq=False)
class PlannedRun:
    """One run of a spec. `record` marks the first seed of a cell, whose steps are all kept."""

    cell: PlannedCell
    seed: int
    record: bool

    @property
    def model(self) -> FactoredMDP:
        return self.cell.problem.of_seed(self.seed)

    @property
    def resolved(self) -> Mapping[str, Any]:
        return self.cell.drawn.get(self.seed, self.cell.resolved)

    @cached_property
    def key(self) -> str:
        content = {**self.resolved, "seed": self.seed, "results_version": RESULTS_VERSION}
        return _hash(content)


@dataclass(frozen=True, eq=False)
class Spec:
    """A validated sweep."""

    name: str
    title: str
    text: str
    steps: int
    seeds: tuple[int, ...]
    problems: tuple[NamedModel, ...]
    cells: tuple[PlannedCell, ...]
    left_out: tuple[LeftOut, ...] = ()
    """Pairs of a comparison that do not fit and are not run."""
    checkpoints: tuple[int, ...] = ()
    """Steps at which the spec asks for every measure."""

    @cached_property
    def resolved(self) -> dict[str, Any]:
        left_out = [asdict(pair) for pair in self.left_out]
        return self._requested | ({"left_out": left_out} if left_out else {})

    @property
    def _requested(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "title": self.title,
            "steps": self.steps,
            "seeds": list(self.seeds),
            "problems": [problem.resolved for problem in self.problems],
            "cells": [
                {"problem": cell.problem.id, "label": cell.label, **cell.resolved}
                for cell in self.cells
            ],
            **({"checkpoints": list(self.checkpoints)} if self.checkpoints else {}),
        }

    @cached_property
    def hash(self) -> str:
        # Reasons are omitted: they may state the free memory, which changes.
        pairs = [[pair.problem, pair.label] for pair in self.left_out]
        return _hash(self._requested | ({"left_out": pairs} if pairs else {}))

    def runs(self) -> Iterator[PlannedRun]:
        """Yield every run, seed by seed, so that early results compare all cells."""
        for seed in self.seeds:
            for cell in self.cells:
                yield PlannedRun(cell, seed, record=seed == self.seeds[0])


def read_spec(path: str | os.PathLike[str]) -> Spec:
    """Read a spec file; paths of model files are relative to it."""
    path = Path(path)
    return parse_spec(read_text(path, "a sweep spec"), str(path), path.parent, name=path.stem)


def parse_spec(
    text: str, source: str = "spec", folder: Path | None = None, *, name: str = "sweep"
) -> Spec:
    """Parse a spec in TOML; `source` is its name in messages."""
    with _at(source):
        try:
            if _DEEP_KEY.search(text):
                raise RecursionError
            document = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise FileProblem(f"is not TOML: {error}") from None
        except RecursionError:
            raise FileProblem("has arrays or tables nested too deeply to be a spec") from None
        except ValueError:
            raise FileProblem(
                f"has a number of more than {sys.get_int_max_str_digits():,} digits; "
                f"no number of a spec is that long"
            ) from None
        return _spec(document, text, folder or Path(), name)


def _spec(document: Mapping[str, Any], text: str, folder: Path, name: str) -> Spec:
    _only(document, KEYS, "a spec")
    for key in ("steps", "seeds", "problems", "learners"):
        if key not in document:
            raise InvalidParameter(f"'{key}' is missing; a spec needs it")
    name = text_line(document.get("name", name), "name")
    title = text_line(document.get("title", name), "title")
    steps = whole(document["steps"], "steps", 1)
    seeds = check_seeds(document["seeds"])
    marks = check_checkpoints(document.get("checkpoints", []), steps)
    problems = _problems(document["problems"], folder, seeds)
    entries = document["learners"]
    if not isinstance(entries, list) or not entries:
        raise InvalidParameter(f"'learners' must be a list of learners; got {quoted(entries)}")
    _refuse_many(entries, len(problems), len(seeds))
    by_problem: dict[str, list[PlannedCell]] = {p.id: [] for p in problems.values()}
    for number, entry in enumerate(entries):
        with _at(f"learners[{number}]"):
            for cell in _cells(entry, problems, steps, folder, marks):
                by_problem[cell.problem.id].append(cell)
    cells = tuple(itertools.chain.from_iterable(by_problem.values()))
    refuse_repeated(cells)
    named = tuple(problems.values())
    return Spec(name, title, text, steps, seeds, named, cells, checkpoints=marks)


def _refuse_many(entries: Sequence[Any], n_problems: int, n_seeds: int) -> None:
    """Raise InvalidParameter if the lists of a spec make too many runs.

    They are counted before they are checked, so anything that is not as it should be counts as one.
    """

    def product(table: Any) -> int:
        values = table.values() if isinstance(table, Mapping) else ()
        return math.prod(len(value) for value in values if isinstance(value, list))

    cells = 0
    for entry in entries:
        settings = entry if isinstance(entry, Mapping) else {}
        planners, chosen = (settings.get(key) for key in ("planner", "problems"))
        n_chosen = len(chosen) if isinstance(chosen, list) else 1 if chosen else n_problems
        n_planners = (
            sum(map(product, planners)) if isinstance(planners, list) else product(planners)
        )
        cells += product(settings.get("set")) * n_planners * n_chosen
    for n, what, most in ((cells, "cells", MOST_CELLS), (cells * n_seeds, "runs", MOST_RUNS)):
        if n > most:
            raise InvalidParameter(f"the spec has {n:,} {what}; at most {most:,} are possible")


def _problems(given: Any, folder: Path, seeds: Sequence[int]) -> dict[str, NamedModel]:
    """Return the problems by their text or label in the spec."""
    if not isinstance(given, list) or not given:
        raise InvalidParameter(
            f"'problems' must be a list of problem ids and model files; got {quoted(given)}"
        )
    problems: dict[str, NamedModel] = {}
    for number, entry in enumerate(given):
        with _at(f"problems[{number}]"):
            if isinstance(entry, Mapping):
                named = _problem_table(entry, folder, seeds)
                text = named.id
            else:
                text = text_line(entry, "a problem")
                named = problem_of(text, folder, seeds)
            if named.id in {other.id for other in problems.values()}:
                raise InvalidParameter(f"{quoted(named.id)} is given twice; once is enough")
            problems[text] = named
    return problems


def _problem_table(entry: Mapping[str, Any], folder: Path, seeds: Sequence[int]) -> NamedModel:
    """Return the problem of a table with `problem` or `prior`."""
    _only(entry, PROBLEM_KEYS, "a problem")
    heads = [key for key in ("problem", "prior") if key in entry]
    if len(heads) != 1:
        got = " and ".join(f"'{key}'" for key in heads) or "neither"
        raise InvalidParameter(f"a problem needs 'problem' or 'prior', one of the two; got {got}")
    text = text_line(entry[heads[0]], heads[0])
    settings = {key: entry[key] for key in ("concentration", "rewards") if key in entry}
    if heads == ["problem"]:
        if settings:
            raise InvalidParameter(f"'{next(iter(settings))}' is for a 'prior', not a 'problem'")
        named = problem_of(text, folder, seeds)
    else:
        base = problem_of(text, folder, seeds)
        if base.prior is not None:
            raise InvalidParameter(
                f"'prior' takes one model, whose structure the draws have; got {quoted(text)}"
            )
        model = base.model if base.model.name else replace(base.model, name=base.id)
        named = prior_of(DirichletPrior(model, **settings), seeds)
    label = entry.get("label")
    return named if label is None else replace(named, id=text_line(label, "label"))


def prior_of(prior: Prior, seeds: Sequence[int]) -> NamedModel:
    """Return a prior as a problem, with the model of every seed."""
    drawn = draws_of(prior, seeds)
    return NamedModel(str(prior), drawn[seeds[0]], prior, drawn)


def problem_of(text: str, folder: Path, seeds: Sequence[int] = (0,)) -> NamedModel:
    """Return the problem of an id, of a model file relative to the folder, or of an id with
    `seed=*`."""
    file = folder / text
    is_file = _is_file(file)
    if has_every_seed(text) and not is_file:
        return prior_of(FamilyPrior(text, folder=folder), seeds)
    model = problem(file if is_file else text, folder=folder)
    named = model.name and not is_file and not is_path(text)
    return NamedModel(model.name if named else text, model)


def _is_file(path: Path) -> bool:
    # os.path, because Path.is_file raises for a name that is too long.
    return os.path.isfile(path)  # noqa: PTH113


def _cells(
    entry: Any,
    problems: Mapping[str, NamedModel],
    steps: int,
    folder: Path,
    checkpoints: Sequence[int],
) -> Iterator[PlannedCell]:
    if isinstance(entry, str):
        entry = {"name": entry}
    entry = _table(entry, "a learner", "the name of a learner or a table")
    _only(entry, LEARNER_KEYS, "a learner", hint="; its own parameters go under 'set'")
    name, given = _named(entry, folder)
    kind = LEARNERS.find(name, folder)
    label = text_line(entry["label"], "label") if "label" in entry else None
    chosen = _chosen(entry.get("problems"), problems)
    grid = list(_grid(kind.parameters, given, kind.owner()))
    planners = list(_planners(entry.get("planner"), kind, folder))
    for values, planner in itertools.product(grid, planners):
        others = {} if planner is None else {"planner": _taken_by(kind, planner)}
        learner = kind(**values, **others)
        shown = {p.name: p.show(values[p.name]) for p in kind.parameters}
        varied = [key for key, value in given.items() if isinstance(value, list)]
        if label is None:
            words = label_of(learner, varied)
        else:
            text, used = _filled(label, shown)
            rest = [f"{key}={shown[key]}" for key in varied if key not in used]
            words = _words(text, rest, kind, planner if len(planners) > 1 else None)
        for named in chosen:
            yield cell_of(named, words, learner, steps, checkpoints)


def cell_of(
    problem: NamedModel,
    label: str,
    learner: Learner,
    steps: int,
    checkpoints: Sequence[int] = (),
) -> PlannedCell:
    """Return the cell of a learner on a problem; the learner is started to resolve it.

    With a prior it is started on the model of every seed, whose structures may differ.
    """
    planner = getattr(learner, "planner", None)
    if getattr(planner, "max_seconds", None) is not None:
        raise InvalidParameter(
            f"the planner of {quoted(label)} has 'max_seconds', which would make a run depend on "
            f"the speed of the machine; a sweep takes 'max_iterations'"
        )
    # The usual checkpoints are in every curve, so only others make another run.
    marks = sorted({*checkpoints} - {*usual_checkpoints(steps)})
    shared: dict[str, Any] = {"steps": steps} | ({"checkpoints": marks} if marks else {})
    agent = learner.start(problem.model)
    sources = {
        name: text for thing in _foreign_code(agent) for name, text in source_texts(thing).items()
    }
    drawn: dict[int, Mapping[str, Any]] = {}
    if problem.prior is None:
        content = {"model": problem.model.content_hash, **shared, **resolved_learner(agent)}
    else:
        shared["prior"] = problem.prior.identity
        content = {**shared, **resolved_learner(agent)}
        drawn = {
            seed: {"model": model.content_hash, **shared, **resolved_learner(learner.start(model))}
            for seed, model in problem.drawn.items()
        }
    return PlannedCell(problem, label, learner, steps, content, sources, tuple(marks), drawn)


def label_of(learner: Learner, varied: Sequence[str] = ()) -> str:
    """Return the default label of a learner, such as "psrl c=0.5 (alp basis=pairs)".

    It contains the settings that differ from their defaults, and those in `varied`.
    """
    if isinstance(learner, Follow):
        return learner.label
    values = learner.as_dict()
    named = {*varied, *(word.partition("=")[0] for word in learner.words())}
    words = [f"{p.name}={p.show(values[p.name])}" for p in learner.parameters if p.name in named]
    return _words(learner.name, words, type(learner), getattr(learner, "planner", None))


def _named(entry: Mapping[str, Any], folder: Path) -> tuple[str, Mapping[str, Any]]:
    """Return the name of a learner and its parameters; a policy or a rule is a baseline."""
    heads = [key for key in ("name", "policy", "rule") if key in entry]
    if len(heads) != 1:
        got = " and ".join(f"'{key}'" for key in heads) or "none of them"
        raise InvalidParameter(f"a learner needs one of 'name', 'policy' and 'rule'; got {got}")
    given = _table(entry.get("set", {}), "'set'")
    text = text_line(entry[heads[0]], heads[0])
    if heads == ["name"]:
        if text == Follow.name and "policy" in given:
            given = {**given, "policy": _each(given["policy"], folder)}
        return text, given
    if given:
        raise InvalidParameter(f"'set' is for learners; a {heads[0]} has no parameters")
    if heads == ["rule"] and not is_place(text):
        raise InvalidParameter(f"'rule' must be module:function; got {quoted(text)}")
    if heads == ["policy"] and is_place(text) and not _is_file(folder / text):
        raise InvalidParameter(f"'policy' must be a policy file; {quoted(text)} is for 'rule'")
    return Follow.name, {"policy": _each(text, folder)}


def _each(given: Any, folder: Path) -> Any:
    """Return the paths of policy files relative to the spec; import a rule's module from there."""
    if isinstance(given, list):
        return [_each(item, folder) for item in given]
    if not isinstance(given, str):
        return given
    if _is_file(folder / given):
        return str(folder / given)
    if is_place(given):
        attribute_at(given, "rule", folder)
    return given


def _taken_by(kind: type[Learner], planner: Planner) -> Planner:
    if "planner" not in {field.name for field in fields(kind)}:
        raise InvalidParameter(
            f"{kind.owner()} does not plan; got planner {planner.name}, must be none"
        )
    return planner


def _filled(label: str, values: Mapping[str, str]) -> tuple[str, set[str]]:
    """Return a label such as "PSRL c={c}" with the values filled in, and the names used."""
    used = set(re.findall(r"\{(.*?)\}", label))
    for name in used:
        if name not in values:
            raise UnknownName(
                f"the label {quoted(label)} has {{{name}}}, which is no parameter of the learner"
                f"{did_you_mean(name, values)}"
            )
        label = label.replace(f"{{{name}}}", values[name])
    return label, used


def _words(head: str, words: Iterable[str], kind: type[Learner], planner: Any) -> str:
    text = " ".join([head, *words])
    if planner is None:
        return text
    defaults = {
        name
        for name, value in kind.planner_defaults.items()
        if getattr(planner, name, None) == value
    }
    settings = planner.words() if isinstance(planner, Planner) else ()
    shown = (word for word in settings if word.partition("=")[0] not in defaults)
    return f"{text} ({' '.join([planner.name, *shown])})"


def _chosen(given: Any, problems: Mapping[str, NamedModel]) -> Sequence[NamedModel]:
    if given is None:
        return list(problems.values())
    names = [given] if isinstance(given, str) else given
    if not isinstance(names, list) or not names:
        raise InvalidParameter(f"'problems' must be a list of problems; got {quoted(given)}")
    for name in names:
        if text_line(name, "a problem") not in problems:
            raise UnknownName(
                f"'problems' has {quoted(name)}, which is not among the problems of the spec"
                f"{did_you_mean(name, problems)}"
            )
    return [problems[name] for name in names]


def _planners(given: Any, learner: type[Learner], folder: Path) -> Iterator[Planner | None]:
    """Yield the planners of a name, a table, or a list of either."""
    if given is None:
        yield None
        return
    for entry in given if isinstance(given, list) else [given]:
        entry = {"name": entry} if isinstance(entry, str) else entry
        table = dict(_table(entry, "'planner'", "the name of a planner, a table, or a list"))
        if "name" not in table:
            raise InvalidParameter("'planner' has no 'name'; a planner needs it")
        kind = PLANNERS.find(text_line(table.pop("name"), "name"), folder)
        if kind.name == learner.only_planner:
            # The learner sets these itself at every plan.
            table = {**learner.planner_defaults, **table}
        for values in _grid(kind.parameters, table, kind.owner()):
            yield kind(**values)


def _grid(
    parameters: Sequence[Parameter], given: Mapping[str, Any], owner: str
) -> Iterator[dict[str, Any]]:
    """Yield every combination of the values given; a list holds alternatives."""
    lists = [value if isinstance(value, list) else [value] for value in given.values()]
    for name, values in zip(given, lists, strict=True):
        if not values:
            raise InvalidParameter(f"the '{name}' parameter of {owner} has an empty list of values")
    for combination in itertools.product(*lists):
        yield resolve(parameters, dict(zip(given, combination, strict=True)), owner)


def refuse_repeated(cells: Sequence[PlannedCell]) -> None:
    """Raise InvalidParameter if two cells of a problem share their label or their content."""
    labels: dict[tuple[str, str], PlannedCell] = {}
    contents: dict[str, PlannedCell] = {}
    for cell in cells:
        other = labels.setdefault((cell.problem.id, cell.label), cell)
        same = contents.setdefault(canonical_json(cell.resolved), cell)
        if same is not cell:
            raise InvalidParameter(
                f"{quoted(cell.label)} and {quoted(same.label)} are the same learner "
                f"on {cell.problem.id}; each must be there once"
            )
        if other is not cell:
            raise InvalidParameter(
                f"the label {quoted(cell.label)} stands for two learners on {cell.problem.id}; "
                f"labels must differ"
            )


def check_seeds(given: Any) -> tuple[int, ...]:
    """Return the seeds of a list, or 0, 1, ..., n - 1 for a number n."""
    if isinstance(given, int | str | float) or not isinstance(given, Iterable):
        return tuple(range(whole(given, "seeds", 1, 10**6)))
    seeds = tuple(whole(seed, "a seed", 0) for seed in given)
    if not seeds or len(set(seeds)) < len(seeds):
        raise InvalidParameter(
            f"'seeds' must be how many, or a list of seeds, each once; got {quoted(given)}"
        )
    return seeds


def check_checkpoints(given: Any, steps: int) -> tuple[int, ...]:
    """Return the steps of a list in increasing order, each once."""
    if not isinstance(given, list | tuple):
        raise InvalidParameter(f"'checkpoints' must be a list of steps; got {quoted(given)}")
    return tuple(sorted({whole(mark, "a checkpoint", 1, steps) for mark in given}))


def _only(table: Mapping[str, Any], allowed: Sequence[str], what: str, hint: str = "") -> None:
    for key in table:
        if key not in allowed:
            raise UnknownName(
                f"{what} has no key {quoted(key)} (it takes {', '.join(allowed)}{hint})"
                f"{did_you_mean(key, allowed)}"
            )


def _table(value: Any, what: str, allowed: str = "a table") -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise InvalidParameter(f"{what} must be {allowed}; got {quoted(value)}")
    return value


def text_line(value: Any, what: str) -> str:
    if not isinstance(value, str) or not value or not value.isprintable():
        raise InvalidParameter(f"{what} must be a line of text; got {quoted(value)}")
    return value


def whole(value: Any, what: str, low: int, high: int = HIGHEST) -> int:
    number = whole_number(value)
    if number is None or not low <= number <= high:
        most = f" to {high}" if high < HIGHEST else ""
        raise InvalidParameter(
            f"{what} must be a whole number from {low}{most}; got {quoted(value)}"
        )
    return number


def _plain(value: Any) -> Any:
    """Return the value in JSON types, or a digest of its content."""
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return content_digest(value)


@contextlib.contextmanager
def _at(place: str) -> Iterator[None]:
    """Prepend the place to the text of an error."""
    try:
        yield
    except FmdpError as error:
        error.args = (f"{place}: {error}",)
        raise


def _hash(content: object) -> str:
    return hashlib.sha256(canonical_json(content).encode()).hexdigest()
