"""The runs of a store sorted into cells, each with a problem and a label that tell it from others.

A cell is one learner with one set of parameters, one planner with its settings and one number of
steps, on one model (by content); its runs differ in their seeds alone. Of runs that differ in
nothing but the `results_version` the newest counts and the others are left out. Of runs under one
label that differ in nothing but the code of a learner or rule of the user's, the code that was
asked for last counts: after an edit is reverted and the sweep is started again, the old runs are
back. A cell is called what the spec that asked for it last calls it; where two would be called the
same, what differs between them is added. Runs that only forgotten specs ask for are not shown.
Frames and reports take their names from here, so they agree.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fmdp.experiments.store import (
    Damaged,
    LeftOut,
    Store,
    StoredRun,
    StoredSpec,
    canonical_json,
)

CellKey = tuple[str, int, str, str, str, str, str]


@dataclass(frozen=True)
class CellRuns:
    """One cell: what it is called, and its runs."""

    problem: str
    label: str
    runs: tuple[StoredRun, ...]
    """Done, by seed; never empty."""


@dataclass(frozen=True)
class SortedRuns:
    """What a store has, or what it has of some specs."""

    cells: tuple[CellRuns, ...]
    """All cells of a model beside each other; else in the order of the specs."""
    failed: tuple[tuple[str, str, StoredRun], ...]
    """(problem, label, run). A failure that a newer version has made good is not here."""
    missing: int
    """Runs that the specs ask for and that are not there yet."""
    damaged: int
    """Runs that are not what was stored and that no spec asks for; they are left out."""
    superseded: int
    """Runs that are not shown: of an older results version where there is a newer one, or of other
    code than the code that was asked for last."""
    left_out: tuple[LeftOut, ...]
    """Pairs that a comparison asked for and that do not fit; none that there are runs of."""


def sorted_runs(store: Store, specs: Sequence[StoredSpec] | None = None) -> SortedRuns:
    """All runs of the store, or those that these specs ask for.

    Damaged (one line) if one of those is not what was stored.
    """
    with store.snapshot():
        return _sorted(store, specs)


def _sorted(store: Store, specs: Sequence[StoredSpec] | None) -> SortedRuns:
    all_specs = store.specs() if specs is None else specs
    asked = _Asked(store, all_specs)
    damaged = store.damaged()
    wanted = [key for key in damaged if key in asked.places or (specs is None and not asked.places)]
    if wanted:
        more = f" ({len(wanted) - 1:,} more are damaged)" if len(wanted) > 1 else ""
        raise Damaged(damaged[wanted[0]] + more)
    runs = list(store.runs(skipping=damaged))
    if specs is None:
        runs = _remembered(runs, store.hidden(), asked)
    else:
        runs = [run for run in runs if run.key in asked.places]
    older = _of_older_code(runs, asked)
    stored = sorted(
        (run for run in runs if run.status == "done"),
        key=lambda run: asked.places.get(run.key, len(asked.places)),
    )
    by_cell: dict[CellKey, list[StoredRun]] = {}
    for run in stored:
        if run.key not in older:
            by_cell.setdefault(cell_key(run), []).append(run)
    kept = {key: _newest(own) for key, own in by_cell.items()}
    cells = {key: _called(own, asked.labels) for key, own in kept.items()}
    named = _by_problem(cells)
    failed = []
    for run in runs:
        counts = run.key in asked.places or not asked.places
        if run.status == "failed" and counts and run.key not in older:
            cell = named.get(cell_key(run)) or _called((run,), asked.labels)
            failed.append((cell.problem, cell.label, run))
    return SortedRuns(
        cells=tuple(named.values()),
        failed=tuple(failed),
        missing=len(asked.places.keys() - {run.key for run in stored} - store.keys("failed")),
        damaged=len(damaged),
        superseded=len(stored) - sum(len(own) for own in kept.values()),
        left_out=_left_out(all_specs, named.values()),
    )


class _Asked:
    """What some specs ask for: the labels and the order of runs, by their keys.

    Where several specs ask for a run, the one that was asked for last gives it its label, and the
    one that was added first its place.
    """

    def __init__(self, store: Store, specs: Sequence[StoredSpec]) -> None:
        self.labels: dict[str, str] = {}
        self.requests: dict[str, int] = {}
        """The number of the last request for a run."""
        self.places: dict[str, int] = {}
        """The number of the cell of a run. All seeds of a cell have one place, so that a first seed
        that failed moves nothing."""
        members = {spec.hash: store.members(spec.hash) for spec in specs}
        for number, spec in enumerate(specs):
            for member in members[spec.hash]:
                self.labels[member.key] = member.label
                self.requests[member.key] = number
        cells: dict[tuple[str, str, str], int] = {}
        for spec in sorted(specs, key=lambda spec: (spec.added, spec.hash)):
            for member in members[spec.hash]:
                cell = (spec.hash, member.model, member.label)
                self.places.setdefault(member.key, cells.setdefault(cell, len(cells)))


def _remembered(
    runs: Sequence[StoredRun], hidden: Collection[str], asked: _Asked
) -> list[StoredRun]:
    """Leave out the runs that only forgotten specs ask for, with runs of the same cells that no
    spec asks for any more (those of an older results version)."""
    if not hidden:
        return list(runs)
    shown = {cell_key(run) for run in runs if run.key in asked.places}
    gone = {cell_key(run) for run in runs if run.key in hidden} - shown
    return [run for run in runs if run.key not in hidden and cell_key(run) not in gone]


def _of_older_code(runs: Iterable[StoredRun], asked: _Asked) -> set[str]:
    """Return the keys of runs that differ in their code alone from runs that were asked for later
    under the same label."""
    latest: dict[tuple[CellKey, str | None], tuple[int, CellKey]] = {}
    current: dict[CellKey, set[CellKey]] = {}
    with_code = [run for run in runs if run.code]
    for run in with_code:
        if run.key in asked.labels:
            same = _without_code(run), asked.labels[run.key]
            request = asked.requests[run.key], cell_key(run)
            latest[same] = max(latest.get(same, request), request)
    for (base, _), (_, key) in latest.items():
        current.setdefault(base, set()).add(key)
    # A run that no spec asks for any more has no label of its own.
    return {
        run.key
        for run in with_code
        if _without_code(run) in current and cell_key(run) not in current[_without_code(run)]
    }


def _left_out(specs: Iterable[StoredSpec], cells: Iterable[CellRuns]) -> tuple[LeftOut, ...]:
    running = {(cell.problem, cell.label) for cell in cells}
    found = {
        (one["problem"], one["label"]): LeftOut(**one)
        for spec in specs
        for one in spec.resolved.get("left_out", ())
    }
    return tuple(one for pair, one in found.items() if pair not in running)


def cell_key(run: StoredRun) -> CellKey:
    """Return a key that is equal exactly for the runs of one cell."""
    code = canonical_json(run.code) if run.code else ""
    return (*_without_code(run)[:-1], code)


def _without_code(run: StoredRun) -> CellKey:
    parameters, settings = canonical_json(run.parameters), canonical_json(run.planner_settings)
    return run.model, run.steps, run.learner, parameters, run.planner or "", settings, ""


def _newest(runs: Iterable[StoredRun]) -> tuple[StoredRun, ...]:
    """One run a seed, of the newest results_version, by seed."""
    by_seed: dict[int, StoredRun] = {}
    for run in runs:
        other = by_seed.get(run.seed)
        if other is None or run.results_version > other.results_version:
            by_seed[run.seed] = run
    return tuple(by_seed[seed] for seed in sorted(by_seed))


def _called(runs: tuple[StoredRun, ...], labels: Mapping[str, str]) -> CellRuns:
    first = runs[0]
    label = next((labels[run.key] for run in runs if run.key in labels), None)
    # A learner that no spec in the store names.
    spelled = " ".join([first.learner, *([first.planner] if first.planner else [])])
    return CellRuns(first.problem, label or spelled, runs)


def _by_problem(cells: Mapping[CellKey, CellRuns]) -> dict[CellKey, CellRuns]:
    by_model: dict[str, dict[CellKey, CellRuns]] = {}
    for key, cell in cells.items():
        by_model.setdefault(cell.runs[0].model, {})[key] = cell
    names = Counter(next(iter(own.values())).problem for own in by_model.values())
    found: dict[CellKey, CellRuns] = {}
    for model, own in by_model.items():
        name = next(iter(own.values())).problem
        if names[name] > 1:  # a model file that has changed between sweeps
            name = f"{name} ({model[:8]})"
        told_apart = _told_apart([replace(cell, problem=name) for cell in own.values()])
        found |= zip(own, told_apart, strict=True)
    return found


def _told_apart(cells: list[CellRuns]) -> list[CellRuns]:
    """Cells of one problem with different labels: steps, parameters and settings that differ are
    added where the label alone does not tell."""
    taken = Counter(cell.label for cell in cells)
    result = []
    for cell in cells:
        label = cell.label
        if taken[label] > 1:
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


def _settings(cell: CellRuns) -> dict[str, Any]:
    run = cell.runs[0]
    return {
        "learner": run.learner,
        **run.parameters,
        "planner": run.planner,
        **run.planner_settings,
        "steps": run.steps,
    }


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else canonical_json(value)
