"""What a report is about: the done runs of a store, sorted into problems and cells.

A cell is one learner with one set of parameters, one planner with its settings and one number of
steps, on one model (by content); its runs differ in their seeds alone. Of runs that differ in
nothing but the `results_version` the newest counts and the others are left out. Whatever the
reader of a number should know about how it came about (versions mixed, runs failed or missing,
regret against an upper bound) is collected as a note, in words.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmdp.errors import FileProblem
from fmdp.experiments.store import Recording, Store, StoredRun, StoredSpec, canonical_json
from fmdp.model import FactoredMDP

REALISED, GAP = "regret", "gap_regret"
MEASURES = {REALISED: "realised regret", GAP: "gap regret"}

CellKey = tuple[str, int, str, str, str, str]


@dataclass(frozen=True, eq=False)
class Cell:
    """The runs of one learner on one problem, a row a seed."""

    problem: str
    model: str
    label: str
    learner: str
    parameters: Mapping[str, Any]
    planner: str | None
    planner_settings: Mapping[str, Any]
    steps: int
    runs: tuple[StoredRun, ...]
    """By seed."""
    t: NDArray[np.int64]
    """[K]: the checkpoints that all runs have."""
    curves: Mapping[str, NDArray[np.float64]]
    """Measure -> [n, K]; gap regret is there only if every run has it."""
    recorded: str | None
    """Key of the first run that is kept whole."""

    @property
    def seeds(self) -> tuple[int, ...]:
        return tuple(run.seed for run in self.runs)

    def ends(self, measure: str) -> NDArray[np.float64] | None:
        """The regret of each run after all steps, [n]; None where it is not known for all."""
        values = [getattr(run, measure) for run in self.runs]
        return None if None in values else np.array(values, dtype=np.float64)


@dataclass(frozen=True)
class Problem:
    """A model and the cells on it, in the order of the specs."""

    name: str
    model_hash: str
    gain: float | None
    gain_kind: str | None
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class Runs:
    """All that a report says comes from here (and from `recording` and `model` of the store)."""

    problems: tuple[Problem, ...]
    specs: tuple[StoredSpec, ...]
    failed: tuple[StoredRun, ...]
    missing: int
    notes: tuple[str, ...]
    """What a reader must know, most important first."""

    @property
    def cells(self) -> tuple[Cell, ...]:
        return tuple(cell for problem in self.problems for cell in problem.cells)

    @property
    def labels(self) -> tuple[str, ...]:
        """Every label once; its place is its colour, the same in all panels."""
        return tuple(dict.fromkeys(cell.label for cell in self.cells))

    @property
    def measures(self) -> tuple[str, ...]:
        """Realised regret, and gap regret if any cell has it."""
        has_gap = any(GAP in cell.curves for cell in self.cells)
        return (REALISED, GAP) if has_gap else (REALISED,)


@dataclass(frozen=True, eq=False)
class Replay:
    """A run kept whole, with the model that it ran on."""

    run: StoredRun
    model: FactoredMDP
    recording: Recording


def replay(store: Store, cell: Cell) -> Replay | None:
    """The recorded run of a cell, if there is one."""
    if cell.recorded is None:
        return None
    recording = store.recording(cell.recorded)
    if recording is None:
        return None
    run = next(run for run in cell.runs if run.key == cell.recorded)
    return Replay(run, store.model(cell.model), recording)


def gather(store: Store) -> Runs:
    """Everything that is done in the store, as cells."""
    specs = store.specs()
    labels: dict[str, str] = {}
    # Where a spec first asks for the cell of a run; a first seed that failed moves nothing.
    places: dict[str, int] = {}
    first: dict[tuple[str, str, str], int] = {}
    for spec in specs:
        for member in store.members(spec.hash):
            labels.setdefault(member.key, member.label)
            cell = (spec.hash, member.model, member.label)
            places.setdefault(member.key, first.setdefault(cell, len(first)))
    by_cell: dict[CellKey, list[StoredRun]] = {}
    done = sorted(store.runs(status="done"), key=lambda run: places.get(run.key, len(first)))
    if not done:
        raise FileProblem(f"{store.path}: has no run that is done, so there is nothing to report")
    for run in done:
        by_cell.setdefault(cell_key(run), []).append(run)
    kept = {key: _newest(runs) for key, runs in by_cell.items()}
    cells = [_cell(store, runs, labels) for runs in kept.values()]
    stored = {run.key for run in done}
    # A failure that a newer version has made good is history.
    failed = tuple(run for run in store.runs(status="failed") if not places or run.key in places)
    missing = len(set(places) - stored - {run.key for run in failed})
    left_out = len(done) - sum(len(runs) for runs in kept.values())
    return Runs(
        problems=_problems(cells),
        specs=tuple(specs),
        failed=failed,
        missing=missing,
        notes=tuple(_notes(cells, failed, missing, left_out)),
    )


def cell_key(run: StoredRun) -> CellKey:
    """Equal exactly for the runs of one cell."""
    parameters, settings = canonical_json(run.parameters), canonical_json(run.planner_settings)
    return run.model, run.steps, run.learner, parameters, run.planner or "", settings


def _newest(runs: Iterable[StoredRun]) -> tuple[StoredRun, ...]:
    """One run a seed, of the newest results_version, by seed."""
    by_seed: dict[int, StoredRun] = {}
    for run in runs:
        other = by_seed.get(run.seed)
        if other is None or run.results_version > other.results_version:
            by_seed[run.seed] = run
    return tuple(by_seed[seed] for seed in sorted(by_seed))


def _cell(store: Store, runs: tuple[StoredRun, ...], labels: Mapping[str, str]) -> Cell:
    first = runs[0]
    curves = [store.curve(run.key) for run in runs]
    # Checkpoints depend on the number of steps alone, unless versions are mixed.
    common = sorted(set.intersection(*(set(curve.t.tolist()) for curve in curves)))
    t = np.array(common, dtype=np.int64)
    picks = [np.searchsorted(curve.t, t) for curve in curves]
    found = {
        REALISED: np.array([curve.regret[pick] for curve, pick in zip(curves, picks, strict=True)])
    }
    if all(curve.gap_regret is not None for curve in curves):
        found[GAP] = np.array(
            [
                curve.gap_regret[pick]
                for curve, pick in zip(curves, picks, strict=True)
                if curve.gap_regret is not None
            ]
        )
    named = next((labels[run.key] for run in runs if run.key in labels), None)
    recorded = next((run.key for run in runs if store.recording(run.key) is not None), None)
    return Cell(
        problem=first.problem,
        model=first.model,
        label=named or _spelled(first),
        learner=first.learner,
        parameters=first.parameters,
        planner=first.planner,
        planner_settings=first.planner_settings,
        steps=first.steps,
        runs=runs,
        t=t,
        curves=found,
        recorded=recorded,
    )


def _spelled(run: StoredRun) -> str:
    """A name for a learner that no spec in the store names."""
    return " ".join([run.learner, *([run.planner] if run.planner else [])])


def _problems(cells: Iterable[Cell]) -> tuple[Problem, ...]:
    by_model: dict[str, list[Cell]] = {}
    for cell in cells:
        by_model.setdefault(cell.model, []).append(cell)
    names = Counter(own[0].problem for own in by_model.values())
    problems = []
    for model, own in by_model.items():
        name = own[0].problem
        if names[name] > 1:  # a model file that has changed between sweeps
            name = f"{name} ({model[:8]})"
        run = own[0].runs[0]
        told_apart = _told_apart([replace(cell, problem=name) for cell in own])
        problems.append(Problem(name, model, run.gain, run.gain_kind, tuple(told_apart)))
    return tuple(problems)


def _told_apart(cells: list[Cell]) -> list[Cell]:
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


def _notes(
    cells: list[Cell], failed: tuple[StoredRun, ...], missing: int, left_out: int
) -> Iterable[str]:
    runs = [run for cell in cells for run in cell.runs]
    versions = Counter(run.results_version for run in runs)
    if len(versions) > 1:
        parts = ", ".join(f"{versions[v]} of version {v}" for v in sorted(versions))
        yield (
            f"Results versions are mixed: {parts}. A newer version gives other numbers for the "
            f"same run; compare with care, or sweep again with one version."
        )
    if left_out:
        yield (
            f"{_runs(left_out)} of an older results version left out: the same run is there with "
            f"a newer one."
        )
    if failed:
        yield f"{_runs(len(failed))} failed and {_are(len(failed))} not in any number here."
    if missing:
        yield f"{_runs(missing)} that the spec asks for {_are(missing)} not in the store (yet)."
    sizes = Counter(len(cell.runs) for cell in cells)
    if len(sizes) > 1:
        yield (
            f"Cells have different numbers of runs, {min(sizes)} to {max(sizes)}; "
            f"learners are compared on the seeds that they share."
        )
    bounded = sum(run.gain_kind == "upper_bound" for run in runs)
    if bounded:
        yield (
            f"{_runs(bounded)} measured against an upper bound of the gain: their realised regret "
            f"is too high by at most the bound's error times the steps."
        )
    unconverged = sum(run.unconverged_plans or 0 for run in runs)
    if unconverged:
        calls = sum(run.planner_calls or 0 for run in runs)
        yield f"{unconverged:,} of {calls:,} plans inside the learners did not converge in time."


def _runs(n: int) -> str:
    return f"{n:,} run{'' if n == 1 else 's'}"


def _are(n: int) -> str:
    return "is" if n == 1 else "are"
