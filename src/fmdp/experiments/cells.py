"""The runs of a store sorted into cells, each with a problem and a label that tell it from others.

A cell is one learner with one set of parameters, one planner with its settings and one number of
steps, on one model (by content); its runs differ in their seeds alone. Of runs that differ in
nothing but the `results_version` the newest counts and the others are left out; so it is with a
learner or rule of one's own whose code has changed between sweeps under one label. A cell is called
what the first spec that asks for it calls it; where two would be called the same, what differs
between them is added. Frames and reports take their names from here, so they agree.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
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
    """Runs of an older results version, or of older code, where there is a newer one."""
    left_out: tuple[LeftOut, ...]
    """Pairs that a comparison asked for and that do not fit; none that there are runs of."""


def sorted_runs(store: Store, specs: Sequence[StoredSpec] | None = None) -> SortedRuns:
    """All runs of the store, or those that these specs ask for.

    Damaged (one line) if one of those is not what was stored.
    """
    with store.snapshot():
        return _sorted(store, specs)


def _sorted(store: Store, specs: Sequence[StoredSpec] | None) -> SortedRuns:
    labels: dict[str, str] = {}
    # Where a spec first asks for the cell of a run; a first seed that failed moves nothing.
    places: dict[str, int] = {}
    first: dict[tuple[str, str, str], int] = {}
    codes: dict[str, str] = {}
    asked: dict[str, int] = {}
    all_specs = store.specs() if specs is None else specs
    for number, spec in enumerate(all_specs):
        own_code = _codes(spec)
        for member in store.members(spec.hash):
            labels.setdefault(member.key, member.label)
            cell = (spec.hash, member.model, member.label)
            places.setdefault(member.key, first.setdefault(cell, len(first)))
            codes[member.key] = own_code.get((member.problem, member.label), "")
            asked[member.key] = number
    damaged = store.damaged()
    wanted = [key for key in damaged if key in places or (specs is None and not places)]
    if wanted:
        more = f" ({len(wanted) - 1:,} more are damaged)" if len(wanted) > 1 else ""
        raise Damaged(damaged[wanted[0]] + more)
    # Of what is called the same and differs in its code alone, the newest spec's counts.
    newest: dict[tuple[CellKey, str], tuple[int, str]] = {}
    for run in store.runs(skipping=damaged):
        if code := codes.get(run.key, ""):
            same = cell_key(run), labels[run.key]
            newest[same] = max(newest.get(same, (-1, "")), (asked[run.key], code))

    def superseded(run: StoredRun) -> bool:
        code = codes.get(run.key, "")
        return bool(code) and newest[cell_key(run), labels[run.key]][1] != code

    sound = store.runs(status="done", skipping=damaged)
    stored = sorted(sound, key=lambda run: places.get(run.key, len(first)))
    if specs is not None:
        stored = [run for run in stored if run.key in places]
    done = [run for run in stored if not superseded(run)]
    by_cell: dict[CellKey, list[StoredRun]] = {}
    for run in done:
        by_cell.setdefault(cell_key(run, codes.get(run.key, "")), []).append(run)
    kept = {key: _newest(runs) for key, runs in by_cell.items()}
    cells = {key: _called(runs, labels) for key, runs in kept.items()}
    named = _by_problem(cells)
    asked_for = places or None if specs is None else places
    failed = []
    for run in store.runs(status="failed", skipping=damaged):
        if (asked_for is None or run.key in asked_for) and not superseded(run):
            own = named.get(cell_key(run, codes.get(run.key, ""))) or _called((run,), labels)
            failed.append((own.problem, own.label, run))
    return SortedRuns(
        cells=tuple(named.values()),
        failed=tuple(failed),
        missing=len(set(places) - {run.key for run in stored} - store.keys("failed")),
        damaged=len(damaged),
        superseded=len(stored) - sum(len(runs) for runs in kept.values()),
        left_out=_left_out(all_specs, named.values()),
    )


def _codes(spec: StoredSpec) -> dict[tuple[str, str], str]:
    """(problem, label) -> the digests of its code, where that is not fmdp's own."""
    return {
        (cell["problem"], cell["label"]): canonical_json(cell["code"])
        for cell in spec.resolved.get("cells", ())
        if "code" in cell
    }


def _left_out(specs: Iterable[StoredSpec], cells: Iterable[CellRuns]) -> tuple[LeftOut, ...]:
    running = {(cell.problem, cell.label) for cell in cells}
    found = {
        (one["problem"], one["label"]): LeftOut(**one)
        for spec in specs
        for one in spec.resolved.get("left_out", ())
    }
    return tuple(one for pair, one in found.items() if pair not in running)


def cell_key(run: StoredRun, code: str = "") -> CellKey:
    """Equal exactly for the runs of one cell; `code` is that of a learner of one's own."""
    parameters, settings = canonical_json(run.parameters), canonical_json(run.planner_settings)
    return run.model, run.steps, run.learner, parameters, run.planner or "", settings, code


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
