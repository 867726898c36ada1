"""Results of sweeps as frames: runs, curves with every seed, summaries, recorded trajectories.

    results = Results.open("DIR")
    results.runs()          # one row per run: problem, label, learner, ..., every measure
    results.curves()        # one row per checkpoint of a run
    results.summary()       # one row per problem, label and measure: median and quartiles
    results.standings()     # one row per problem and label: its place, and the time per step
    results.comparisons()   # one row per two labels of a problem, compared on the same seeds
    results.slopes()        # one row per problem, label and measure: growth with the steps
    results.against("c")    # one row per value of a parameter
    results.latex("standings")                # any of these tables for a paper
    results.recording("circle:4", "PSRL")     # one row per step of a recorded run

Frames are pandas' (the extra `frames`). Each has a twin ending in `_table` that needs only NumPy: a
mapping from the same columns to arrays. A missing number is NaN, a missing text None. cells.py
decides which runs are shown and how problems and labels are named.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from textwrap import shorten
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from fmdp._base.html import html_lines
from fmdp._base.parameters import quoted
from fmdp.errors import InvalidParameter, UnknownName, did_you_mean
from fmdp.experiments.analysis import (
    COMPARISON_COLUMNS,
    analyse,
    comparison_rows,
    interval_ends,
)
from fmdp.experiments.cells import GroupedRuns, canonical_ids, group_runs
from fmdp.experiments.dataset import Dataset, gather
from fmdp.experiments.latex import LAYOUTS, latex
from fmdp.experiments.measures import curve_names, declared
from fmdp.experiments.standings import Standing, standings
from fmdp.experiments.statistics import summarise
from fmdp.experiments.store import Store, StoredRun, StoredSpec
from fmdp.experiments.studies import Slope, against, slopes
from fmdp.simulation.frames import needs_pandas
from fmdp.simulation.trajectory import columns_of

if TYPE_CHECKING:
    import pandas as pd

Table = dict[str, NDArray[Any]]
"""Arrays of one length, by column."""
Parameters = Literal["varied", "all"]

_WIDTH = 100
"""Characters after which a line of `repr` is cut."""
_SHORTEST_HASH = 6
"""Least number of digits that identify a spec by its hash."""


@dataclass(frozen=True)
class _Row:
    """A run with the names of its cell."""

    problem: str
    label: str
    run: StoredRun


class Results:
    """The runs of a store as frames (pandas) or arrays.

    `fmdp.sweep` and `fmdp.load_results` return one. `close` it, or use it as a context manager.
    Methods that return frames raise ImportError if pandas is not installed.

    Parameters
    ----------
    store
        An open store; it is closed with the results.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self._closed = weakref.finalize(self, store.close)

    @classmethod
    def open(cls, directory: str | os.PathLike[str]) -> Results:
        """Open the results in the directory of a sweep; the same as `fmdp.load_results`.

        Parameters
        ----------
        directory
            The `out` directory of `fmdp.sweep` or `fmdp sweep`.

        Raises
        ------
        FileProblem
            If there are none.
        """
        return cls(Store.open(directory))

    def close(self) -> None:
        """Close the store. Closing twice does no harm."""
        self._closed()

    def __enter__(self) -> Results:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _repr_html_(self) -> str:
        return html_lines(repr(self))

    def __repr__(self) -> str:
        if not self._closed.alive:
            return f"results in {self.store.path}, closed"
        grouped = group_runs(self.store)
        rows = list(_rows(grouped))
        specs = [f"{spec.name} ({spec.added[:10]})" for spec in self.store.specs()]
        done, failed = len(rows) - len(grouped.failed), len(grouped.failed)
        missing = f"{grouped.missing:,} not there yet"
        older = f"; {grouped.superseded:,} older not shown" if grouped.superseded else ""
        lines = [
            f"results in {self.store.path}",
            f"  runs      {done:,} done, {failed:,} failed, {missing}{older}",
            _line("problems", (row.problem for row in rows)),
            _line("labels", (row.label for row in rows)),
            _line("measures", _measures(rows)),
            _line("specs", specs),
        ]
        return "\n".join(lines)

    @property
    def failures(self) -> dict[str, str]:
        """Errors of the failed runs by "problem, label, seed"; the last line has the cause."""
        return {
            f"{problem}, {label}, seed {run.seed}": str(run.error)
            for problem, label, run in group_runs(self.store).failed
        }

    @property
    def left_out(self) -> dict[str, str]:
        """Reasons why a learner of a comparison does not fit a problem, by "problem, label"."""
        pairs = group_runs(self.store).left_out
        return {f"{pair.problem}, {pair.label}": pair.reason for pair in pairs}

    def sources(self, key: str) -> dict[str, str]:
        """Return the source texts of the code outside fmdp that made a run.

        Parameters
        ----------
        key
            The key of the run, from `runs`.

        Returns
        -------
        dict[str, str]
            The text of each file when the run was made, by module name.

        Raises
        ------
        UnknownName
            If the store has no such run.
        """
        if self.store.run(key) is None:
            raise UnknownName(f"{self.store.path}: has no run {quoted(key)}; `runs` has the keys")
        return self.store.sources(key)

    def forget(self, spec: str, *, delete_runs: bool = False) -> int:
        """Hide a spec and the runs that no other spec requests.

        Running the same sweep again brings them back.

        Parameters
        ----------
        spec
            The hash of a spec from `specs`, its first digits, or a unique name.
        delete_runs
            Whether to delete the spec and these runs from the store for good. Runs that another
            spec requests are kept.

        Returns
        -------
        int
            Number of runs that were hidden or deleted.

        Raises
        ------
        UnknownName
            If the store has no such spec, or several of this name.
        FileProblem
            If a sweep is writing to the store, or it cannot be written.
        """
        directory = self.store.path.parent
        with Store.open(directory, read_only=False) as store, store.writing():
            count = store.forget(_unique_spec(store, spec).hash, delete_runs=delete_runs)
        # A store of an older version was read from a copy, which does not see the change.
        self.close()
        self.store = Store.open(directory)
        self._closed = weakref.finalize(self, self.store.close)
        return count

    # ---- frames -----------------------------------------------------------------------------

    def specs(self) -> pd.DataFrame:
        """Return one row per spec of the store, the one requested last at the end.

        Returns
        -------
        pd.DataFrame
            Columns name, hash; runs, the number requested; done, the number of these that are
            done; added and asked, the times of the first and last request (UTC); forgotten.
        """
        return _frame(self.specs_table())

    def runs(self, spec: str | None = None, *, parameters: Parameters = "varied") -> pd.DataFrame:
        """Return one row per run, including failed runs.

        Parameters
        ----------
        spec
            Name or hash of a spec, for its runs under its labels. None: all.
        parameters
            Which settings have a column: "varied", those that differ between runs, or "all".

        Returns
        -------
        pd.DataFrame
            Columns problem, label, learner, role, seed, steps; `set.NAME` for the settings of the
            learner; planner, and `planner.NAME` for its settings; status, error; every measure;
            seconds, results_version, key.

        Raises
        ------
        UnknownName
            If the store has no such spec.
        InvalidParameter
            If `parameters` is neither.
        """
        return _frame(self.runs_table(spec, parameters=parameters))

    def curves(self, measure: str | None = None, spec: str | None = None) -> pd.DataFrame:
        """Return one row per checkpoint of each finished run.

        Parameters
        ----------
        measure
            Name of a measure; None: all that have a curve.
        spec
            Name or hash of a spec, for its runs under its labels. None: all.

        Returns
        -------
        pd.DataFrame
            Columns problem, label, learner, role, seed; t; and every measure after t steps.

        Raises
        ------
        UnknownName
            If there is no such measure or spec.
        """
        return _frame(self.curves_table(measure, spec))

    def summary(
        self, measure: str | None = None, spec: str | None = None, *, at: int | None = None
    ) -> pd.DataFrame:
        """Return one row per problem, label and measure: statistics of the finished runs.

        Parameters
        ----------
        measure
            Name of a measure; None: all that are numbers.
        spec
            Name or hash of a spec, for its runs under its labels. None: all.
        at
            A checkpoint: the statistics are those after this many steps, of the measures with a
            curve. None: after the last step.

        Returns
        -------
        pd.DataFrame
            Columns problem, label, learner, role, steps, measure; runs, their number; least,
            lower_quartile, median, upper_quartile, most; interval_low and interval_high, the 95 %
            interval of the median, none below six runs; mean, and mean_low and mean_high, its 95 %
            interval (Student's t), none for one run; problem_id, the canonical id of the problem.

        Raises
        ------
        UnknownName
            If there is no such measure, spec or checkpoint.
        """
        return _frame(self.summary_table(measure, spec, at=at))

    def standings(self, spec: str | None = None) -> pd.DataFrame:
        """Return one row per problem and label: its place by regret, and the time per step.

        Parameters
        ----------
        spec
            Name or hash of a spec, for its runs under its labels. None: all.

        Returns
        -------
        pd.DataFrame
            Problem by problem, the lowest median first. Columns problem, steps; measure, either
            gap_regret, or regret where some run has no gap regret; place, 1 for the learner with
            the lowest median, none for the ends and baselines; label, learner, role; runs, their
            number; median, mean, worst, lower_quartile, upper_quartile; ratio of the median to
            that of the best learner; seconds_per_step and clock, processor or wall; planner_calls,
            the median, and unconverged_plans, the sum over the runs; interval_low, interval_high,
            mean_low and mean_high as in `summary`; problem_id.

        Raises
        ------
        UnknownName
            If the store has no such spec.
        """
        return _frame(self.standings_table(spec))

    def comparisons(self, measure: str | None = None, spec: str | None = None) -> pd.DataFrame:
        """Return one row per two labels of a problem, compared on the seeds that both have.

        Parameters
        ----------
        measure
            Name of a measure; None: all that have a curve.
        spec
            Name or hash of a spec, for its runs under its labels. None: all.

        Returns
        -------
        pd.DataFrame
            Columns problem, measure, first, second; seeds, the number of pairs; median_difference
            of first minus second with interval_low and interval_high; first_lower, equal and
            second_lower, numbers of seeds; signed_rank and p of Wilcoxon's test; p_holm, corrected
            over the comparisons_in_question; exact; finding, in words; interval_note,
            interval_coverage; mean_difference with mean_low and mean_high; problem_id.

        Raises
        ------
        UnknownName
            If there is no such measure or spec.
        """
        return _frame(self.comparisons_table(measure, spec))

    def slopes(self, measure: str | None = None, spec: str | None = None) -> pd.DataFrame:
        """Return one row per problem, label and measure: the growth of its mean with the steps.

        Parameters
        ----------
        measure
            Name of a measure; None: all that have a curve.
        spec
            Name or hash of a spec, for its runs under its labels. None: all.

        Returns
        -------
        pd.DataFrame
            Columns problem, label, learner, role, steps, measure, runs; first_step, a tenth of the
            steps; slope of log(mean) against log(t) from there on, by least squares (1/2: like the
            square root of t), none where a mean is not positive; slope_low and slope_high, its 95 %
            interval by the jackknife over the runs; problem_id.

        Raises
        ------
        UnknownName
            If there is no such measure or spec.
        """
        return _frame(self.slopes_table(measure, spec))

    def against(
        self, parameter: str, measure: str | None = None, spec: str | None = None
    ) -> pd.DataFrame:
        """Return one row per value of a parameter, for cells that differ in nothing else.

        Parameters
        ----------
        parameter
            A numeric setting of learners ("c"), of planners ("planner.tolerance"), or in the ids of
            fmdp's own problems ("problem.size", "problem.actions").
        measure
            Name of a measure; None: gap regret, or regret where some run has no gap regret.
        spec
            Name or hash of a spec, for its runs under its labels. None: all.

        Returns
        -------
        pd.DataFrame
            Columns parameter; series, what the cells share; value; problem, label, measure, runs;
            median with interval_low and interval_high, and mean with mean_low and mean_high, as in
            `summary`; problem_id.

        Raises
        ------
        UnknownName
            If no cells differ in this parameter alone; the message has those that do.
        """
        return _frame(self.against_table(parameter, measure, spec))

    def latex(self, table: str, measure: str | None = None, spec: str | None = None) -> str:
        """Return a table as LaTeX, a tabular with the rules of the package booktabs.

        Parameters
        ----------
        table
            "standings", "summary", "comparisons" or "slopes".
        measure
            Name of a measure; None: all of the table. Standings have their own.
        spec
            Name or hash of a spec, for its runs under its labels. None: all.

        Returns
        -------
        str
            The text of a file that a paper can \\input.

        Raises
        ------
        UnknownName
            If there is no such table, measure or spec.
        """
        if table not in LAYOUTS:
            raise UnknownName(
                f"no table {quoted(table)} has a LaTeX form; those that have are "
                f"{', '.join(LAYOUTS)}{did_you_mean(str(table), LAYOUTS)}"
            )
        if table == "standings":
            return latex(table, self.standings_table(spec))
        columns: Table = getattr(self, f"{table}_table")(measure, spec)
        return latex(table, columns)

    def recording(
        self,
        problem: str | None = None,
        label: str | None = None,
        *,
        seed: int | None = None,
        key: str | None = None,
    ) -> pd.DataFrame:
        """Return one row per step of a recorded run. The first seed of every cell is recorded.

        Parameters
        ----------
        problem, label, seed, key
            Names of the run in `runs`; None matches all. Exactly one run must match.

        Returns
        -------
        pd.DataFrame
            Columns t = 0, 1, ...; the state before the step and the action, one column per
            variable; the reward of every factor as `reward.NAME`, and `reward`, their sum.

        Raises
        ------
        UnknownName
            If no run matches, or several do; the message lists them.
        """
        return _frame(self.recording_table(problem, label, seed=seed, key=key))

    # ---- the same as arrays -----------------------------------------------------------------

    def specs_table(self) -> Table:
        """Return `specs` without pandas, as arrays by column."""
        with self.store.snapshot():
            specs = self.store.specs(forgotten=True)
            requested = [{m.key for m in self.store.members(spec.hash)} for spec in specs]
            done = self.store.keys("done")
        table = {name: _array(getattr(spec, name) for spec in specs) for name in ("name", "hash")}
        table["runs"] = _array(len(keys) for keys in requested)
        table["done"] = _array(len(keys & done) for keys in requested)
        for name in ("added", "asked", "forgotten"):
            table[name] = _array(getattr(spec, name) for spec in specs)
        return table

    def runs_table(self, spec: str | None = None, *, parameters: Parameters = "varied") -> Table:
        """Return `runs` without pandas, as arrays by column.

        Parameters
        ----------
        spec, parameters
            As in `runs`.
        """
        if parameters not in ("varied", "all"):
            raise InvalidParameter(
                f"the 'parameters' parameter of runs must be varied or all; "
                f"got {quoted(parameters)}"
            )
        rows = self._rows(spec)
        settings = _shown([_prefixed("set", row.run.parameters) for row in rows], parameters)
        planners = _shown([_prefixed("planner", r.run.planner_settings) for r in rows], parameters)
        measures = {
            name: _array(row.run.measures.get(name) for row in rows) for name in _measures(rows)
        }
        return self._with_ids(
            _names(rows)
            | _of_runs(rows, "steps")
            | settings
            | _of_runs(rows, "planner")
            | planners
            | _of_runs(rows, "status", "error")
            | measures
            | _of_runs(rows, "seconds", "results_version", "key"),
            spec,
        )

    def curves_table(self, measure: str | None = None, spec: str | None = None) -> Table:
        """Return `curves` without pandas, as arrays by column.

        Parameters
        ----------
        measure, spec
            As in `curves`.
        """
        rows = [row for row in self._rows(spec) if row.run.status == "done"]
        curves = [self.store.curve(row.run.key) for row in rows]
        stored = {name for curve in curves for name in curve.values}
        known = curve_names()
        names = _chosen(measure, [*known, *sorted(stored - {*known})], "has a curve")
        lengths = [len(curve.t) for curve in curves]
        table = {name: np.repeat(column, lengths) for name, column in _names(rows).items()}
        table["t"] = np.concatenate([np.zeros(0, dtype=np.int64), *(c.t for c in curves)])
        for name in names:
            missing = (np.full(length, np.nan) for length in lengths)
            pieces = (c.values.get(name, gap) for c, gap in zip(curves, missing, strict=True))
            table[name] = np.concatenate([np.zeros(0), *pieces])
        return self._with_ids(table, spec)

    def summary_table(
        self, measure: str | None = None, spec: str | None = None, *, at: int | None = None
    ) -> Table:
        """Return `summary` without pandas, as arrays by column.

        Parameters
        ----------
        measure, spec, at
            As in `summary`.
        """
        by_cell: dict[tuple[str, str], list[StoredRun]] = {}
        rows = [row for row in self._rows(spec) if row.run.status == "done"]
        for row in rows:
            by_cell.setdefault((row.problem, row.label), []).append(row.run)
        if at is None:
            numbers = [name for name in _measures(rows) if _is_number(rows, name)]
            names = _chosen(measure, numbers, "is a number")
            after: Mapping[str, Mapping[str, Any]] = {row.run.key: row.run.measures for row in rows}
        else:
            names = _chosen(measure, curve_names(), "has a curve")
            after = self._after(at, rows)
        summaries = []
        for (problem, label), runs in by_cell.items():
            for name in names:
                values = [after[run.key][name] for run in runs if name in after[run.key]]
                if values:
                    s = summarise(values)
                    steps = runs[0].steps if at is None else at
                    about = (problem, label, runs[0].learner, runs[0].role, steps)
                    quartiles = (s.best, s.lower_quartile, s.median, s.upper_quartile, s.worst)
                    of_median = s.interval or (np.nan, np.nan)
                    of_mean = s.mean_interval or (np.nan, np.nan)
                    summaries.append((*about, name, s.n, *quartiles, *of_median, s.mean, *of_mean))
        columns = (
            *("problem", "label", "learner", "role", "steps", "measure", "runs"),
            *("least", "lower_quartile", "median", "upper_quartile", "most"),
            *("interval_low", "interval_high", "mean", "mean_low", "mean_high"),
        )
        return self._with_ids(_columns(columns, summaries), spec)

    def _after(self, at: int, rows: Sequence[_Row]) -> dict[str, dict[str, float]]:
        """Return the measures of every run after `at` steps; empty if its curve has none there."""
        after: dict[str, dict[str, float]] = {}
        for row in rows:
            curve = self.store.curve(row.run.key)
            places = np.flatnonzero(curve.t == at)
            after[row.run.key] = {
                name: float(values[place])
                for name, values in curve.values.items()
                for place in places
            }
        if not any(after.values()):
            raise UnknownName(
                f"no run has a checkpoint at {quoted(at)} steps; `curves` has those that are "
                f"there, and 'checkpoints' of a sweep adds others"
            )
        return after

    def standings_table(self, spec: str | None = None) -> Table:
        """Return `standings` without pandas, as arrays by column.

        Parameters
        ----------
        spec
            As in `standings`.
        """
        rows = standings(self._grouped(spec).cells)
        return self._with_ids(_of_records(Standing, rows), spec)

    def comparisons_table(self, measure: str | None = None, spec: str | None = None) -> Table:
        """Return `comparisons` without pandas, as arrays by column.

        Parameters
        ----------
        measure, spec
            As in `comparisons`.
        """
        names = _chosen(measure, curve_names(), "has a curve")
        data = self._data(spec)
        rows = () if data is None else comparison_rows(analyse(data))
        place = COMPARISON_COLUMNS.index("measure")
        chosen = [row for row in rows if row[place] in names]
        return self._with_ids(_columns(COMPARISON_COLUMNS, chosen), spec)

    def slopes_table(self, measure: str | None = None, spec: str | None = None) -> Table:
        """Return `slopes` without pandas, as arrays by column.

        Parameters
        ----------
        measure, spec
            As in `slopes`.
        """
        names = _chosen(measure, curve_names(), "has a curve")
        data = self._data(spec)
        rows = [] if data is None else slopes(data.cells, names)
        return self._with_ids(_of_records(Slope, rows), spec)

    def against_table(
        self, parameter: str, measure: str | None = None, spec: str | None = None
    ) -> Table:
        """Return `against` without pandas, as arrays by column.

        Parameters
        ----------
        parameter, measure, spec
            As in `against`.
        """
        cells = self._grouped(spec).cells
        if measure is not None:
            _chosen(measure, [m.name for m in declared() if m.kind is not str], "is a number")
        points = against(cells, parameter, measure, canonical_ids(self.store, cells))
        rows = [
            (
                *(point.parameter, point.series, point.value),
                *(point.cell.problem, point.cell.label, point.measure),
                *(point.summary.n, point.summary.median),
                *interval_ends(point.summary.interval),
                point.summary.mean,
                *interval_ends(point.summary.mean_interval),
            )
            for point in points
        ]
        columns = (
            *("parameter", "series", "value", "problem", "label", "measure", "runs"),
            *("median", "interval_low", "interval_high", "mean", "mean_low", "mean_high"),
        )
        return self._with_ids(_columns(columns, rows), spec)

    def recording_table(
        self,
        problem: str | None = None,
        label: str | None = None,
        *,
        seed: int | None = None,
        key: str | None = None,
    ) -> Table:
        """Return `recording` without pandas, as arrays by column.

        Parameters
        ----------
        problem, label, seed, key
            As in `recording`.
        """
        recorded = self.store.recorded()
        rows = [row for row in self._rows(None) if row.run.key in recorded]
        ids = self._ids(None)
        matching = [
            row
            for row in rows
            if problem in (None, row.problem, ids.get(row.problem))
            and label in (None, row.label)
            and seed in (None, row.run.seed)
            and key in (None, row.run.key)
        ]
        if len(matching) != 1:
            names = "; ".join(
                f"{r.problem}, {r.label}, seed {r.run.seed}" for r in matching or rows
            )
            raise UnknownName(
                f"{len(matching) or 'no'} recorded runs fit, and it must be one; "
                f"{'they' if matching else 'there'} are: {shorten(names, 400) or 'none'}"
            )
        run = matching[0].run
        recording = self.store.recording(run.key)
        assert recording is not None
        structure = self.store.model(run.model).structure
        return columns_of(structure, recording.states, recording.actions, recording.rewards)

    # ---- which runs -------------------------------------------------------------------------

    def _rows(self, spec: str | None) -> list[_Row]:
        return list(_rows(self._grouped(spec)))

    def _grouped(self, spec: str | None) -> GroupedRuns:
        return group_runs(self.store, self._specs(spec))

    def _specs(self, spec: str | None) -> list[StoredSpec] | None:
        return None if spec is None else [self._spec(spec)]

    def _data(self, spec: str | None) -> Dataset | None:
        """Return the cells with their curves; None if no run is done."""
        return gather(self.store, self._specs(spec)) if self._grouped(spec).cells else None

    def _ids(self, spec: str | None) -> dict[str, str]:
        """Return the canonical ids of all problems by name."""
        return canonical_ids(self.store, self._grouped(spec).cells)

    def _with_ids(self, table: Table, spec: str | None) -> Table:
        """Return the table with the canonical ids of its problems as the last column."""
        ids = self._ids(spec)
        return table | {"problem_id": _array(ids.get(name, name) for name in table["problem"])}

    def _spec(self, text: str) -> StoredSpec:
        specs = self.store.specs()
        matching = [s for s in specs if text == s.hash] or [s for s in specs if text == s.name]
        if not matching:
            raise _no_such_spec(self.store, text, specs)
        # Of several specs of one name the last request counts.
        return matching[-1]


def _unique_spec(store: Store, text: str) -> StoredSpec:
    """Return the spec with this hash, beginning of a hash, or unique name."""
    specs = store.specs(forgotten=True)
    matching = [spec for spec in specs if spec.name == text]
    if len(text) >= _SHORTEST_HASH:
        matching = [spec for spec in specs if spec.hash.startswith(text)] or matching
    if len(matching) == 1:
        return matching[0]
    if not matching:
        raise _no_such_spec(store, text, specs)
    hashes = ", ".join(f"{s.hash[:12]} (asked for last {s.asked[:19]})" for s in matching)
    raise UnknownName(
        f"{store.path}: has {len(matching)} specs {quoted(text)}; say which by its hash: "
        f"{shorten(hashes, 400)}"
    )


def _no_such_spec(store: Store, text: str, specs: Sequence[StoredSpec]) -> UnknownName:
    names = [spec.name for spec in specs]
    return UnknownName(
        f"{store.path}: has no spec {quoted(text)}; there are {', '.join(names) or 'none'}"
        f"{did_you_mean(text, names)}"
    )


def _rows(grouped: GroupedRuns) -> Iterator[_Row]:
    """Yield the runs cell by cell, failed ones last; then cells with failed runs only."""
    failed: dict[tuple[str, str], list[StoredRun]] = {}
    for problem, label, run in grouped.failed:
        failed.setdefault((problem, label), []).append(run)
    for cell in grouped.cells:
        for run in (*cell.runs, *failed.pop((cell.problem, cell.label), ())):
            yield _Row(cell.problem, cell.label, run)
    for (problem, label), runs in failed.items():
        for run in runs:
            yield _Row(problem, label, run)


def _names(rows: Sequence[_Row]) -> Table:
    table = {name: _array(getattr(row, name) for row in rows) for name in ("problem", "label")}
    return table | _of_runs(rows, "learner", "role", "seed")


def _of_runs(rows: Sequence[_Row], *names: str) -> Table:
    return {name: _array(getattr(row.run, name) for row in rows) for name in names}


def _measures(rows: Iterable[_Row]) -> list[str]:
    """Return the declared measures, and others that are in the store."""
    names = [measure.name for measure in declared()]
    stored = {name for row in rows for name in row.run.measures}
    return [*names, *sorted(stored - {*names})]


def _is_number(rows: Iterable[_Row], name: str) -> bool:
    return not any(isinstance(row.run.measures.get(name), str) for row in rows)


def _chosen(measure: str | None, known: Sequence[str], what: str) -> Sequence[str]:
    if measure is None:
        return known
    if measure not in known:
        raise UnknownName(
            f"no measure {quoted(measure)} {what}; of those there are {', '.join(known)}"
            f"{did_you_mean(measure, known)}"
        )
    return [measure]


def _prefixed(prefix: str, values: Mapping[str, Any]) -> dict[str, Any]:
    return {f"{prefix}.{name}": _hashable(value) for name, value in values.items()}


def _hashable(value: Any) -> Any:
    """Return lists as tuples, so that their column can be grouped by."""
    return tuple(map(_hashable, value)) if isinstance(value, list) else value


def _shown(settings: Sequence[Mapping[str, Any]], parameters: Parameters) -> Table:
    """Return one column per setting, None where a run has no such setting."""
    names = dict.fromkeys(name for of_run in settings for name in of_run)
    varied = [n for n in names if len({repr(s[n]) for s in settings if n in s}) > 1]
    chosen: Collection[str] = varied if parameters == "varied" else names
    return {name: _array(of_run.get(name) for of_run in settings) for name in chosen}


def _columns(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> Table:
    return {name: _array(row[place] for row in rows) for place, name in enumerate(names)}


def _of_records(kind: type[Standing] | type[Slope], rows: Sequence[Any]) -> Table:
    """Return one column per field of a dataclass."""
    names = [field.name for field in fields(kind)]
    return {name: _array(getattr(row, name) for row in rows) for name in names}


def _array(values: Iterable[Any]) -> NDArray[Any]:
    """Return numbers as a numeric array with NaN for None, anything else as objects."""
    column = list(values)
    known = [value for value in column if value is not None]
    if known and all(type(value) in (int, float) for value in known):
        whole = len(known) == len(column) and all(type(value) is int for value in known)
        return np.array(column, dtype=np.int64 if whole else np.float64)
    array = np.empty(len(column), dtype=object)
    array[:] = column
    return array


def _frame(table: Table) -> pd.DataFrame:
    frame: pd.DataFrame = needs_pandas().DataFrame(table)
    return frame


def _line(head: str, words: Iterable[str]) -> str:
    listed = ", ".join(dict.fromkeys(words)) or "none"
    if len(listed) > _WIDTH:
        listed = f"{listed[: _WIDTH - 4].rstrip(' ,')} ..."
    return f"  {head:9} {listed}"


def load_results(directory: str | os.PathLike[str]) -> Results:
    """Open the runs of a store as frames.

    Parameters
    ----------
    directory
        The `out` directory of `fmdp.sweep` or `fmdp sweep`.

    Returns
    -------
    Results
        All runs stored so far; a sweep may still be running.

    Raises
    ------
    FileProblem
        If there is no store.
    """
    return Results.open(directory)
