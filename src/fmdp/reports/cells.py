"""The runs that a report is about, sorted into problems and cells.

Which runs make a cell, and what it is called, is decided in experiments/cells.py; here the cells
get their curves. Everything that a reader should know about the runs (versions mixed, runs failed
or missing, regret against an upper bound) is collected in notes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmdp.errors import FileProblem
from fmdp.experiments.cells import CellRuns, SortedRuns, sorted_runs
from fmdp.experiments.measures import (
    GAIN,
    GAIN_KIND,
    GAP_REGRET,
    PLANNER_CALLS,
    REGRET,
    UNCONVERGED_PLANS,
)
from fmdp.experiments.standings import Standing, standings
from fmdp.experiments.store import LeftOut, Recording, Role, Store, StoredRun, StoredSpec
from fmdp.model import FactoredMDP

REALISED, GAP = REGRET.name, GAP_REGRET.name
MEASURES = {REALISED: "realised regret", GAP: "gap regret"}


@dataclass(frozen=True, eq=False)
class Cell:
    """The runs of one learner on one problem, a row a seed."""

    problem: str
    model: str
    label: str
    learner: str
    role: Role
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
    specs: tuple[str, ...] = ()
    """Hashes of the specs that ask for this cell, in the order in which they were added."""

    @property
    def seeds(self) -> tuple[int, ...]:
        return tuple(run.seed for run in self.runs)

    def ends(self, measure: str) -> NDArray[np.float64] | None:
        """The regret of each run after all steps, [n]; None where it is not known for all."""
        values = [run.measures.get(measure) for run in self.runs]
        return None if None in values else np.array(values, dtype=np.float64)


@dataclass(frozen=True)
class Compared:
    """A model and its cells, in the order of the specs."""

    name: str
    model_hash: str
    gain: float | None
    gain_kind: str | None
    cells: tuple[Cell, ...]
    reward_size: float
    """Largest absolute reward of one step, by the ranges of the reward factors."""

    def resolution(self, steps: int, largest: float) -> float:
        """Return the size below which a difference of two regrets may be rounding alone.

        A sum of T floats is off by at most T u sum |x_t|, u = 2^-53 (Higham 2002, section 4.2). The
        sum of absolute rewards is at most T `reward_size`, that of gaps the `largest` regret. Two
        differences of two regrets each contain four such errors.
        """
        return 4 * 2.0**-53 * steps * max(steps * self.reward_size, largest)


@dataclass(frozen=True)
class Runs:
    """All that a report says comes from here (and from `recording` and `model` of the store)."""

    problems: tuple[Compared, ...]
    specs: tuple[StoredSpec, ...]
    failed: tuple[StoredRun, ...]
    missing: int
    notes: tuple[str, ...]
    """What a reader must know, most important first."""
    standings: tuple[Standing, ...] = ()
    """Problem by problem, the lowest median first."""
    left_out: tuple[LeftOut, ...] = ()
    """Pairs that a comparison asked for and that do not fit."""

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


def gather(store: Store, specs: Sequence[StoredSpec] | None = None) -> Runs:
    """Everything that is done in the store, or what these specs ask for of it, as cells."""
    found = sorted_runs(store, specs)
    if not found.cells:
        raise FileProblem(f"{store.path}: has no run that is done, so there is nothing to report")
    recorded = store.recorded()
    all_specs = tuple(store.specs() if specs is None else specs)
    asked = {spec.hash: {member.key for member in store.members(spec.hash)} for spec in all_specs}
    cells = [_cell(store, cell, recorded, asked) for cell in found.cells]
    failed = tuple(run for _, _, run in found.failed)
    return Runs(
        problems=_problems(store, cells),
        specs=all_specs,
        failed=failed,
        missing=found.missing,
        notes=tuple(_notes(cells, failed, found)),
        standings=tuple(standings(found.cells)),
        left_out=found.left_out,
    )


def _cell(
    store: Store, cell: CellRuns, recorded: Collection[str], asked: Mapping[str, Collection[str]]
) -> Cell:
    first = cell.runs[0]
    curves = [store.curve(run.key) for run in cell.runs]
    # Checkpoints depend on the number of steps alone, unless versions are mixed.
    common = sorted(set.intersection(*(set(curve.t.tolist()) for curve in curves)))
    t = np.array(common, dtype=np.int64)
    return Cell(
        problem=cell.problem,
        model=first.model,
        label=cell.label,
        learner=first.learner,
        role=first.role,
        parameters=first.parameters,
        planner=first.planner,
        planner_settings=first.planner_settings,
        steps=first.steps,
        runs=cell.runs,
        t=t,
        curves={
            measure: np.array([c.values[measure][np.searchsorted(c.t, t)] for c in curves])
            for measure in MEASURES
            if all(measure in c.values for c in curves)
        },
        recorded=next((run.key for run in cell.runs if run.key in recorded), None),
        specs=tuple(
            spec for spec, keys in asked.items() if any(run.key in keys for run in cell.runs)
        ),
    )


def _problems(store: Store, cells: Iterable[Cell]) -> tuple[Compared, ...]:
    by_model: dict[str, list[Cell]] = {}
    for cell in cells:
        by_model.setdefault(cell.model, []).append(cell)
    return tuple(
        Compared(
            own[0].problem,
            model,
            own[0].runs[0].measure(GAIN),
            own[0].runs[0].measure(GAIN_KIND),
            tuple(own),
            _reward_size(store.model(model)),
        )
        for model, own in by_model.items()
    )


def _reward_size(model: FactoredMDP) -> float:
    return float(sum(max(abs(low), abs(high)) for low, high in model.structure.reward_ranges))


def _notes(cells: list[Cell], failed: tuple[StoredRun, ...], found: SortedRuns) -> Iterable[str]:
    missing, superseded = found.missing, found.superseded
    runs = [run for cell in cells for run in cell.runs]
    versions = Counter(run.results_version for run in runs)
    if len(versions) > 1:
        parts = ", ".join(f"{versions[v]} of version {v}" for v in sorted(versions))
        yield (
            f"Results versions are mixed: {parts}. A newer version gives other numbers for the "
            f"same run; compare with care, or sweep again with one version."
        )
    if superseded:
        yield (
            f"{_runs(superseded)} of an older results version, or of older code of one's own, left "
            f"out: the same run is there with a newer version, or with the code that was asked for "
            f"last."
        )
    if failed:
        yield f"{_runs(len(failed))} failed and {_are(len(failed))} not in any number here."
    if found.damaged:
        n = found.damaged
        yield f"{_runs(n)} that no spec asks for {_are(n)} damaged and {_are(n)} left out."
    if missing:
        yield f"{_runs(missing)} that the spec asks for {_are(missing)} not in the store (yet)."
    if found.left_out:
        pairs = len(found.left_out)
        yield (
            f"{pairs:,} pair{'' if pairs == 1 else 's'} of learner and problem that {_were(pairs)} "
            f"to be compared {_do(pairs)} not fit and {_are(pairs)} left out; left-out.csv has why."
        )
    sizes = Counter(len(cell.runs) for cell in cells)
    if len(sizes) > 1:
        yield (
            f"Cells have different numbers of runs, {min(sizes)} to {max(sizes)}; "
            f"learners are compared on the seeds that they share."
        )
    bounded = sum(run.measure(GAIN_KIND) == "upper_bound" for run in runs)
    if bounded:
        yield (
            f"{_runs(bounded)} measured against an upper bound of the gain: their realised regret "
            f"is too high by at most the bound's error times the steps."
        )
    unconverged = sum(run.measure(UNCONVERGED_PLANS) or 0 for run in runs)
    if unconverged:
        calls = sum(run.measure(PLANNER_CALLS) or 0 for run in runs)
        yield f"{unconverged:,} of {calls:,} plans inside the learners did not converge in time."


def _runs(n: int) -> str:
    return f"{n:,} run{'' if n == 1 else 's'}"


def _are(n: int) -> str:
    return "is" if n == 1 else "are"


def _were(n: int) -> str:
    return "was" if n == 1 else "were"


def _do(n: int) -> str:
    return "does" if n == 1 else "do"
