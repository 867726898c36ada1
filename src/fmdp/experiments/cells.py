"""Cells: the runs of a store grouped by problem and learner, each with a unique name.

A cell is one learner with one set of parameters, one planner with its settings and one number of
steps, on one model (by content) or one prior; its runs differ only in their seeds. Of runs that
differ only in `results_version`, the newest counts. Of runs under one label that differ only in the
user's code, the code requested last counts: after reverting an edit and sweeping again, the old
runs are back.
The spec that requested a cell last names it; cells with the same name get the differing settings
appended. Runs that only forgotten specs request are hidden. Frames and reports take their names
from here, so they agree.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmdp.experiments.measures import PRIOR
from fmdp.experiments.store import (
    Damaged,
    LeftOut,
    Role,
    Store,
    StoredRun,
    StoredSpec,
    canonical_json,
)

CellKey = tuple[str, int, str, str, str, str, str]


@dataclass(frozen=True, eq=False)
class Cell:
    """The runs of one learner on one problem."""

    problem: str
    label: str
    runs: tuple[StoredRun, ...]
    """Finished runs by seed; never empty."""

    @property
    def model(self) -> str:
        """The content hash of the model; with a prior, of the one that the first run drew."""
        return self.runs[0].model

    @property
    def prior(self) -> str | None:
        """The prior from which every run drew its model, as JSON; None for one model."""
        return self.runs[0].measure(PRIOR)

    @property
    def source(self) -> str:
        """The prior that the runs share, or the content hash of their model."""
        return self.prior or self.model

    @property
    def learner(self) -> str:
        return self.runs[0].learner

    @property
    def role(self) -> Role:
        return self.runs[0].role

    @property
    def parameters(self) -> Mapping[str, Any]:
        return self.runs[0].parameters

    @property
    def planner(self) -> str | None:
        return self.runs[0].planner

    @property
    def planner_settings(self) -> Mapping[str, Any]:
        return self.runs[0].planner_settings

    @property
    def steps(self) -> int:
        return self.runs[0].steps

    @property
    def seeds(self) -> tuple[int, ...]:
        return tuple(run.seed for run in self.runs)

    def ends(self, measure: str) -> NDArray[np.float64] | None:
        """Return the final value of each run, [n], or None unless all runs have it."""
        values = [run.measures.get(measure) for run in self.runs]
        return None if None in values else np.array(values, dtype=np.float64)


@dataclass(frozen=True)
class GroupedRuns:
    """The runs of a store, or of some specs, as cells."""

    cells: tuple[Cell, ...]
    """The cells of a model are adjacent; otherwise in the order of the specs."""
    failed: tuple[tuple[str, str, StoredRun], ...]
    """(problem, label, run), without failures that a newer version has repaired."""
    missing: int
    """Number of requested runs that are not stored yet."""
    damaged: int
    """Number of damaged runs that no spec requests; they are left out."""
    superseded: int
    """Number of runs hidden by a newer results version, or by code that was requested later."""
    left_out: tuple[LeftOut, ...]
    """Pairs of a comparison that do not fit and have no runs."""


def group_runs(store: Store, specs: Sequence[StoredSpec] | None = None) -> GroupedRuns:
    """Group all runs of the store, or those that these specs request.

    Raise Damaged if one of them is not what was stored.
    """
    with store.snapshot():
        return _group(store, specs)


def _group(store: Store, specs: Sequence[StoredSpec] | None) -> GroupedRuns:
    all_specs = store.specs() if specs is None else specs
    requests = _Requests(store, all_specs)
    places = requests.places
    damaged = store.damaged()
    wanted = [key for key in damaged if key in places or (specs is None and not places)]
    if wanted:
        more = f" ({len(wanted) - 1:,} more are damaged)" if len(wanted) > 1 else ""
        raise Damaged(damaged[wanted[0]] + more)
    runs = list(store.runs(skipping=damaged))
    if specs is None:
        runs = _without_hidden(runs, store.hidden(), requests)
    else:
        runs = [run for run in runs if run.key in places]
    older = _of_older_code(runs, requests)
    done = sorted(
        (run for run in runs if run.status == "done"),
        key=lambda run: places.get(run.key, len(places)),
    )
    by_cell: dict[CellKey, list[StoredRun]] = {}
    for run in done:
        if run.key not in older:
            by_cell.setdefault(cell_key(run), []).append(run)
    newest = {key: _newest(members, requests.numbers) for key, members in by_cell.items()}
    cells = _uniquely_named(
        {key: _named(members, requests) for key, members in newest.items()}, requests.numbers
    )
    failed = []
    for run in runs:
        counts = run.key in places or not places
        if run.status == "failed" and counts and run.key not in older:
            cell = cells.get(cell_key(run)) or _named((run,), requests)
            failed.append((cell.problem, cell.label, run))
    return GroupedRuns(
        cells=tuple(cells.values()),
        failed=tuple(failed),
        missing=len(places.keys() - {run.key for run in done} - store.keys("failed")),
        damaged=len(damaged),
        superseded=len(done) - sum(len(members) for members in newest.values()),
        left_out=_left_out(all_specs, cells.values()),
    )


class _Requests:
    """Labels and order of the runs that some specs request, by run key.

    Of several specs that request a run, the latest request gives its label, and the spec that was
    added first gives its place.
    """

    def __init__(self, store: Store, specs: Sequence[StoredSpec]) -> None:
        self.labels: dict[str, str] = {}
        self.problems: dict[str, str] = {}
        self.numbers: dict[str, int] = {}
        """The number of the last request for a run."""
        self.places: dict[str, int] = {}
        """The number of the cell of a run, the same for all seeds, so that a failed first seed does
        not move the cell."""
        members = {spec.hash: store.members(spec.hash) for spec in specs}
        for number, spec in enumerate(specs):
            for member in members[spec.hash]:
                self.labels[member.key] = member.label
                self.problems[member.key] = member.problem
                self.numbers[member.key] = number
        cells: dict[tuple[str, str, str], int] = {}
        for spec in sorted(specs, key=lambda spec: (spec.added, spec.hash)):
            for member in members[spec.hash]:
                cell = (spec.hash, member.problem, member.label)
                self.places.setdefault(member.key, cells.setdefault(cell, len(cells)))


def _without_hidden(
    runs: Sequence[StoredRun], hidden: Collection[str], requests: _Requests
) -> list[StoredRun]:
    """Drop the runs that only forgotten specs request, and unrequested runs of the same cells
    (those of an older results version)."""
    if not hidden:
        return list(runs)
    shown = {cell_key(run) for run in runs if run.key in requests.places}
    dropped = {cell_key(run) for run in runs if run.key in hidden} - shown
    return [run for run in runs if run.key not in hidden and cell_key(run) not in dropped]


def _of_older_code(runs: Iterable[StoredRun], requests: _Requests) -> set[str]:
    """Return the keys of runs that differ only in their code from runs that were requested later
    under the same label."""
    latest: dict[tuple[CellKey, str | None], tuple[int, CellKey]] = {}
    current: dict[CellKey, set[CellKey]] = {}
    with_code = [run for run in runs if run.code]
    for run in with_code:
        if run.key in requests.labels:
            same = _without_code(run), requests.labels[run.key]
            request = requests.numbers[run.key], cell_key(run)
            latest[same] = max(latest.get(same, request), request)
    for (base, _), (_, key) in latest.items():
        current.setdefault(base, set()).add(key)
    # A run that no spec requests any more has no label.
    return {
        run.key
        for run in with_code
        if _without_code(run) in current and cell_key(run) not in current[_without_code(run)]
    }


def _left_out(specs: Iterable[StoredSpec], cells: Iterable[Cell]) -> tuple[LeftOut, ...]:
    running = {(cell.problem, cell.label) for cell in cells}
    pairs = {
        (entry["problem"], entry["label"]): LeftOut(**entry)
        for spec in specs
        for entry in spec.resolved.get("left_out", ())
    }
    return tuple(entry for pair, entry in pairs.items() if pair not in running)


def canonical_ids(store: Store, cells: Iterable[Cell]) -> dict[str, str]:
    """Return the canonical id of every problem by the name that its cells have.

    It is the name of the model, or of the prior; the name itself for a model without one.
    """
    names = store.model_names()
    ids = {}
    for cell in cells:
        run = cell.runs[0]
        name = names.get(run.model, "")
        if cell.prior is not None:
            # The model of a draw is named after its prior and seed (priors.py).
            name = json.loads(cell.prior).get("name") or name.removesuffix(f", seed {run.seed}")
        ids[cell.problem] = name or cell.problem
    return ids


def cell_key(run: StoredRun) -> CellKey:
    """Return a key that is equal exactly for the runs of one cell."""
    code = canonical_json(run.code) if run.code else ""
    return (*_without_code(run)[:-1], code)


def _without_code(run: StoredRun) -> CellKey:
    parameters, settings = canonical_json(run.parameters), canonical_json(run.planner_settings)
    source = run.measure(PRIOR) or run.model
    return source, run.steps, run.learner, parameters, run.planner or "", settings, ""


def _newest(runs: Iterable[StoredRun], requests: Mapping[str, int]) -> tuple[StoredRun, ...]:
    """Return the run of the newest results_version for each seed, by seed.

    Runs that differ only in their checkpoints are the same run; the one requested last counts.
    """
    by_seed: dict[int, StoredRun] = {}

    def rank(run: StoredRun) -> tuple[int, int]:
        return run.results_version, requests.get(run.key, -1)

    for run in runs:
        other = by_seed.get(run.seed)
        if other is None or rank(run) > rank(other):
            by_seed[run.seed] = run
    return tuple(by_seed[seed] for seed in sorted(by_seed))


def _named(runs: tuple[StoredRun, ...], requests: _Requests) -> Cell:
    first = runs[0]
    requested = next((run.key for run in runs if run.key in requests.labels), None)
    if requested is not None:
        return Cell(requests.problems[requested], requests.labels[requested], runs)
    # No spec in the store names this learner.
    default = " ".join([first.learner, *([first.planner] if first.planner else [])])
    return Cell(first.problem, default, runs)


def _uniquely_named(
    cells: Mapping[CellKey, Cell], requests: Mapping[str, int]
) -> dict[CellKey, Cell]:
    """Return the cells model by model, with unique names of problems and labels.

    The last request for any cell of a model or prior names the problem.
    """
    by_model: dict[str, dict[CellKey, Cell]] = {}
    for key, cell in cells.items():
        by_model.setdefault(cell.source, {})[key] = cell

    def last_request(cell: Cell) -> int:
        return max(requests.get(run.key, -1) for run in cell.runs)

    called = {
        source: max(members.values(), key=last_request).problem
        for source, members in by_model.items()
    }
    names = Counter(called.values())
    named: dict[CellKey, Cell] = {}
    for source, members in by_model.items():
        name = called[source]
        if names[name] > 1:  # a model file that changed between sweeps
            name = f"{name} ({next(iter(members.values())).model[:8]})"
        cells_of_model = [replace(cell, problem=name) for cell in members.values()]
        named |= zip(members, _with_unique_labels(cells_of_model), strict=True)
    return named


def _with_unique_labels(cells: list[Cell]) -> list[Cell]:
    """Append the differing settings to labels that several cells of a problem share."""
    counts = Counter(cell.label for cell in cells)
    result = []
    for cell in cells:
        label = cell.label
        if counts[label] > 1:
            alike = [other for other in cells if other.label == label]
            differing = [
                f"{name}={_shown(value)}"
                for name, value in _settings(cell).items()
                if any(_settings(other).get(name, _ABSENT) != value for other in alike)
            ]
            label = ", ".join([label, *differing])
        result.append(replace(cell, label=label))
    return result


_ABSENT = object()


def _settings(cell: Cell) -> dict[str, Any]:
    return {
        "learner": cell.learner,
        **cell.parameters,
        "planner": cell.planner,
        **cell.planner_settings,
        "steps": cell.steps,
    }


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else canonical_json(value)
