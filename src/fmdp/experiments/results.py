"""Results of sweeps as frames: runs, curves with every seed, summaries, recorded trajectories.

    results = Results.open("DIR")
    results.runs()          # one row per run: problem, label, learner, ..., every measure
    results.curves()        # one row per checkpoint of a run
    results.summary()       # one row per problem, label and measure: median and quartiles
    results.standings()     # one row per problem and label: its place, and the time per step
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
from fmdp.experiments.cells import GroupedRuns, group_runs
from fmdp.experiments.measures import curve_names, declared
from fmdp.experiments.standings import Standing, standings
from fmdp.experiments.statistics import summarise
from fmdp.experiments.store import Store, StoredRun, StoredSpec
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

    def summary(self, measure: str | None = None, spec: str | None = None) -> pd.DataFrame:
        """Return one row per problem, label and measure: statistics of the finished runs.

        Parameters
        ----------
        measure
            Name of a measure; None: all that are numbers.
        spec
            Name or hash of a spec, for its runs under its labels. None: all.

        Returns
        -------
        pd.DataFrame
            Columns problem, label, learner, role, steps, measure; runs, their number; least,
            lower_quartile, median, upper_quartile, most; interval_low and interval_high, the 95 %
            interval of the median, none below six runs; mean, and mean_low and mean_high, its 95 %
            interval (Student's t), none for one run.

        Raises
        ------
        UnknownName
            If there is no such measure or spec.
        """
        return _frame(self.summary_table(measure, spec))

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
            mean_low and mean_high as in `summary`.

        Raises
        ------
        UnknownName
            If the store has no such spec.
        """
        return _frame(self.standings_table(spec))

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
        return (
            _names(rows)
            | _of_runs(rows, "steps")
            | settings
            | _of_runs(rows, "planner")
            | planners
            | _of_runs(rows, "status", "error")
            | measures
            | _of_runs(rows, "seconds", "results_version", "key")
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
        return table

    def summary_table(self, measure: str | None = None, spec: str | None = None) -> Table:
        """Return `summary` without pandas, as arrays by column.

        Parameters
        ----------
        measure, spec
            As in `summary`.
        """
        by_cell: dict[tuple[str, str], list[StoredRun]] = {}
        rows = [row for row in self._rows(spec) if row.run.status == "done"]
        for row in rows:
            by_cell.setdefault((row.problem, row.label), []).append(row.run)
        names = _chosen(measure, [n for n in _measures(rows) if _is_number(rows, n)], "is a number")
        summaries = []
        for (problem, label), runs in by_cell.items():
            for name in names:
                values = [run.measures[name] for run in runs if name in run.measures]
                if values:
                    s = summarise(values)
                    about = (problem, label, runs[0].learner, runs[0].role, runs[0].steps)
                    quartiles = (s.best, s.lower_quartile, s.median, s.upper_quartile, s.worst)
                    of_median = s.interval or (np.nan, np.nan)
                    of_mean = s.mean_interval or (np.nan, np.nan)
                    summaries.append((*about, name, s.n, *quartiles, *of_median, s.mean, *of_mean))
        columns = (
            *("problem", "label", "learner", "role", "steps", "measure", "runs"),
            *("least", "lower_quartile", "median", "upper_quartile", "most"),
            *("interval_low", "interval_high", "mean", "mean_low", "mean_high"),
        )
        return {n: _array(row[place] for row in summaries) for place, n in enumerate(columns)}

    def standings_table(self, spec: str | None = None) -> Table:
        """Return `standings` without pandas, as arrays by column.

        Parameters
        ----------
        spec
            As in `standings`.
        """
        rows = standings(self._grouped(spec).cells)
        names = [field.name for field in fields(Standing)]
        return {name: _array(getattr(row, name) for row in rows) for name in names}

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
        matching = [
            row
            for row in rows
            if problem in (None, row.problem)
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
        return group_runs(self.store, None if spec is None else [self._spec(spec)])

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
