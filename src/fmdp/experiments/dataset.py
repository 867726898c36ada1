"""The data of a report: cells with their curves, by problem, and the standings."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fmdp.errors import FileProblem
from fmdp.experiments.cells import Cell, GroupedRuns, canonical_ids, group_runs
from fmdp.experiments.measures import GAIN, GAIN_KIND, REGRET, curve_names
from fmdp.experiments.standings import Standing, standings
from fmdp.experiments.store import Store, StoredRun, StoredSpec
from fmdp.model import FactoredMDP


@dataclass(frozen=True, eq=False)
class CellCurves(Cell):
    """A cell with the curves of its runs."""

    t: NDArray[np.int64]
    """[K]: the checkpoints that all runs share."""
    curves: Mapping[str, NDArray[np.float64]]
    """Measure -> [n, K]; only measures that every run has."""
    recorded: StoredRun | None
    """The first run that has a recording."""
    specs: tuple[str, ...] = ()
    """Hashes of the specs that request this cell, in the order in which they were added."""


@dataclass(frozen=True)
class ProblemCells:
    """A model, or a prior, and its cells, in the order of the specs."""

    name: str
    model_hash: str
    """The model; with a prior, the one that the first run drew."""
    gain: float | None
    gain_kind: str | None
    cells: tuple[CellCurves, ...]
    reward_size: float
    """Largest absolute reward of one step, by the ranges of the reward factors."""
    prior: str | None = None
    """The prior from which every run drew its model, as JSON; the gain is then None."""

    def resolution(self, steps: int, largest: float) -> float:
        """Return the size below which a difference of two regrets may be rounding alone.

        A sum of T floats is off by at most T u sum |x_t|, u = 2^-53 (Higham 2002, section 4.2). The
        sum of absolute rewards is at most T `reward_size`, that of gaps the `largest` regret. Two
        differences of two regrets each contain four such errors.
        """
        return 4 * 2.0**-53 * steps * max(steps * self.reward_size, largest)


@dataclass(frozen=True)
class Dataset:
    """All finished runs of a store, or of some specs."""

    problems: tuple[ProblemCells, ...]
    specs: tuple[StoredSpec, ...]
    grouped: GroupedRuns
    """The same runs without curves, and what is known of runs that are not shown."""
    standings: tuple[Standing, ...]
    """Problem by problem, the lowest median first."""
    ids: Mapping[str, str]
    """Canonical ids of the problems by name."""

    @property
    def cells(self) -> tuple[CellCurves, ...]:
        return tuple(cell for problem in self.problems for cell in problem.cells)

    @property
    def labels(self) -> tuple[str, ...]:
        """Every label once; its place determines its colour in all panels."""
        return tuple(dict.fromkeys(cell.label for cell in self.cells))

    @property
    def measures(self) -> tuple[str, ...]:
        """Names of the measures with a curve in some cell; realised regret is always there."""
        return tuple(
            name
            for name in curve_names()
            if name == REGRET.name or any(name in cell.curves for cell in self.cells)
        )


def gather(store: Store, specs: Sequence[StoredSpec] | None = None) -> Dataset:
    """Read all finished runs of the store, or those that these specs request."""
    grouped = group_runs(store, specs)
    if not grouped.cells:
        raise FileProblem(f"{store.path}: has no run that is done, so there is nothing to report")
    recorded = store.recorded()
    all_specs = tuple(store.specs() if specs is None else specs)
    members = {spec.hash: {member.key for member in store.members(spec.hash)} for spec in all_specs}
    cells = [_with_curves(store, cell, recorded, members) for cell in grouped.cells]
    return Dataset(
        problems=_problems(store, cells),
        specs=all_specs,
        grouped=grouped,
        standings=tuple(standings(grouped.cells)),
        ids=canonical_ids(store, grouped.cells),
    )


def _with_curves(
    store: Store, cell: Cell, recorded: Collection[str], members: Mapping[str, Collection[str]]
) -> CellCurves:
    curves = [store.curve(run.key) for run in cell.runs]
    # Checkpoints depend only on the number of steps, unless versions are mixed.
    common = sorted(set.intersection(*(set(curve.t.tolist()) for curve in curves)))
    t = np.array(common, dtype=np.int64)
    return CellCurves(
        cell.problem,
        cell.label,
        cell.runs,
        t,
        curves={
            measure: np.array([c.values[measure][np.searchsorted(c.t, t)] for c in curves])
            for measure in curve_names()
            if all(measure in c.values for c in curves)
        },
        recorded=next((run for run in cell.runs if run.key in recorded), None),
        specs=tuple(
            spec for spec, keys in members.items() if any(run.key in keys for run in cell.runs)
        ),
    )


def _problems(store: Store, cells: Iterable[CellCurves]) -> tuple[ProblemCells, ...]:
    by_model: dict[str, list[CellCurves]] = {}
    for cell in cells:
        by_model.setdefault(cell.source, []).append(cell)
    return tuple(_problem(store, members) for members in by_model.values())


def _problem(store: Store, cells: Sequence[CellCurves]) -> ProblemCells:
    first = cells[0]
    gain, kind = first.runs[0].measure(GAIN), first.runs[0].measure(GAIN_KIND)
    models = {run.model for cell in cells for run in cell.runs}
    return ProblemCells(
        first.problem,
        first.model,
        gain if first.prior is None else None,
        kind,
        tuple(cells),
        max(_reward_size(store.model(model)) for model in sorted(models)),
        first.prior,
    )


def _reward_size(model: FactoredMDP) -> float:
    return float(sum(max(abs(low), abs(high)) for low, high in model.structure.reward_ranges))
