"""The results of sweeps as frames: runs, curves with every seed, summaries, recorded trajectories.

    results = Results.open("DIR")
    results.runs()          # a row a run: problem, label, learner, ..., every measure
    results.curves()        # a row a checkpoint of a run
    results.summary()       # a row a problem, label and measure: median and quartiles
    results.standings()     # a row a problem and label: who is ahead, and what a step costs
    results.recording("circle:4", "PSRL")     # a row a step of a run that is kept whole

Frames are pandas' (the extra `frames`). Each has a twin that ends in `_table` and needs NumPy
alone: a mapping from the same columns to arrays. A number that is missing is NaN, a text None.
Problems and labels are called what the reports call them (cells.py), and of a run that was made
with several results versions only the newest is there; so it is with runs of a learner or rule of
the user's whose code has changed, of which the code that was asked for last counts.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from textwrap import shorten
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from fmdp._base.parameters import quoted
from fmdp.errors import InvalidParameter, UnknownName, did_you_mean
from fmdp.experiments.cells import SortedRuns, sorted_runs
from fmdp.experiments.confidence_intervals import mean_interval, mean_of, median_interval
from fmdp.experiments.measures import declared
from fmdp.experiments.standings import Standing, standings
from fmdp.experiments.store import Store, StoredRun, StoredSpec
from fmdp.simulation.frames import needs_pandas
from fmdp.simulation.trajectory import columns_of

if TYPE_CHECKING:
    import pandas as pd

Table = dict[str, NDArray[Any]]
"""Column -> its values, all of one length."""
Parameters = Literal["varied", "all"]

_WIDTH = 100
_SHORTEST_HASH = 6
"""How many digits of a hash must be given at least."""


@dataclass(frozen=True)
class _Row:
    """A run with the names that it goes by."""

    problem: str
    label: str
    run: StoredRun

    @property
    def names(self) -> dict[str, Any]:
        run = self.run
        named = {"problem": self.problem, "label": self.label, "learner": run.learner}
        return {**named, "role": run.role, "seed": run.seed}


class Results:
    """What the store of a sweep has, as frames (pandas) or as arrays.

    `fmdp.sweep` and `fmdp.load_results` give one. `close` it, or use it as a context manager.

    Parameters
    ----------
    store
        An open store, which is closed with the results.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self._closed = weakref.finalize(self, store.close)

    @classmethod
    def open(cls, directory: str | os.PathLike[str]) -> Results:
        """The results in the directory of a sweep; as `fmdp.load_results`.

        Parameters
        ----------
        directory
            What `fmdp.sweep` or `fmdp sweep` was given as `out`.

        Raises
        ------
        FileProblem
            Where there are none.
        """
        return cls(Store.open(directory))

    def close(self) -> None:
        """Close the store; nothing can be read any more. Closing twice does no harm."""
        self._closed()

    def __enter__(self) -> Results:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        if not self._closed.alive:
            return f"results in {self.store.path}, closed"
        found = sorted_runs(self.store)
        rows = list(_rows(found))
        specs = [f"{spec.name} ({spec.added[:10]})" for spec in self.store.specs()]
        done, failed = len(rows) - len(found.failed), len(found.failed)
        older = f"; {found.superseded:,} older not shown" if found.superseded else ""
        lines = [
            f"results in {self.store.path}",
            f"  runs      {done:,} done, {failed:,} failed, {found.missing:,} not there yet{older}",
            _line("problems", (row.problem for row in rows)),
            _line("labels", (row.label for row in rows)),
            _line("measures", _measures(rows)),
            _line("specs", specs),
        ]
        return "\n".join(lines)

    @property
    def failures(self) -> dict[str, str]:
        """The error of every run that failed, by "problem, label, seed"; the last line of a
        traceback says what happened."""
        return {
            f"{problem}, {label}, seed {run.seed}": str(run.error)
            for problem, label, run in sorted_runs(self.store).failed
        }

    @property
    def left_out(self) -> dict[str, str]:
        """Why a learner that was to be compared does not fit a problem, by "problem, label"."""
        found = sorted_runs(self.store)
        return {f"{one.problem}, {one.label}": one.reason for one in found.left_out}

    def sources(self, key: str) -> dict[str, str]:
        """Return the source texts of the code that made a run, where that is not part of fmdp.

        Parameters
        ----------
        key
            The key of the run, as `runs` has it.

        Returns
        -------
        dict[str, str]
            The text of each file by the name of its module, as it was when the run was made.

        Raises
        ------
        UnknownName
            Where the store has no such run.
        """
        if self.store.run(key) is None:
            raise UnknownName(f"{self.store.path}: has no run {quoted(key)}; `runs` has the keys")
        return self.store.sources(key)

    def forget(self, spec: str, *, delete_runs: bool = False) -> int:
        """Forget a spec: runs that no other spec asks for are not shown any more.

        Nothing is lost: the same sweep again brings the spec and its runs back.

        Parameters
        ----------
        spec
            The hash of a spec as `specs` has it, or its first digits, or the name of a spec that no
            other spec has.
        delete_runs
            Whether to delete the spec and these runs from the store, for good. Runs that another
            spec asks for are kept.

        Returns
        -------
        int
            How many runs are not shown any more, or were deleted.

        Raises
        ------
        UnknownName
            Where the store has no such spec, or several of this name.
        FileProblem
            Where a sweep is writing into the store, or it cannot be written.
        """
        directory = self.store.path.parent
        with Store.open(directory, read_only=False) as store, store.writing():
            found = _one_spec(store, spec)
            count = store.forget(found.hash, delete_runs=delete_runs)
        # A store of an older version was read from a copy, which does not see the change.
        self.close()
        self.store = Store.open(directory)
        self._closed = weakref.finalize(self, self.store.close)
        return count

    # ---- frames -----------------------------------------------------------------------------

    def specs(self) -> pd.DataFrame:
        """Return one row per spec that was run into the store, the one asked for last at the end.

        Returns
        -------
        pd.DataFrame
            Columns name, hash; runs, how many it asks for; done, how many of these are stored and
            done; added and asked, when it was first and last asked for (UTC); forgotten.

        Raises
        ------
        ImportError
            Where pandas is not installed.
        """
        return _frame(self.specs_table())

    def runs(self, spec: str | None = None, *, parameters: Parameters = "varied") -> pd.DataFrame:
        """A row a run, failed ones too.

        Parameters
        ----------
        spec
            The name or the hash of a spec: the runs that it asks for, in its words. None: all.
        parameters
            Which settings have a column: "varied", those that are not the same in all runs that
            have them, or "all".

        Returns
        -------
        pd.DataFrame
            Columns problem, label, learner, role, seed, steps; `set.NAME` for the settings of the
            learner; planner, and `planner.NAME` for its settings; status, error; every measure;
            seconds, results_version, key.

        Raises
        ------
        UnknownName
            Where the store has no such spec.
        InvalidParameter
            Where `parameters` is neither.
        ImportError
            Where pandas is not installed.
        """
        return _frame(self.runs_table(spec, parameters=parameters))

    def curves(self, measure: str | None = None, spec: str | None = None) -> pd.DataFrame:
        """A row a checkpoint of a run that is done.

        Parameters
        ----------
        measure
            The name of the only one; None: all that have a curve.
        spec
            The name or the hash of a spec: the runs that it asks for, in its words. None: all.

        Returns
        -------
        pd.DataFrame
            Columns problem, label, learner, role, seed; t; and every measure after t steps.

        Raises
        ------
        UnknownName
            Where there is no such measure, or no such spec.
        ImportError
            Where pandas is not installed.
        """
        return _frame(self.curves_table(measure, spec))

    def summary(self, measure: str | None = None, spec: str | None = None) -> pd.DataFrame:
        """A row a problem, label and measure: what its runs that are done came to at the end.

        Parameters
        ----------
        measure
            The name of the only one; None: all that are numbers.
        spec
            The name or the hash of a spec: the runs that it asks for, in its words. None: all.

        Returns
        -------
        pd.DataFrame
            Columns problem, label, learner, role, steps, measure; runs, how many; least,
            lower_quartile, median, upper_quartile, most; interval_low and interval_high, the 95 %
            interval of the median, none below six runs; mean, and mean_low and mean_high, its 95 %
            interval (Student's t), none for one run.

        Raises
        ------
        UnknownName
            Where there is no such measure, or no such spec.
        ImportError
            Where pandas is not installed.
        """
        return _frame(self.summary_table(measure, spec))

    def standings(self, spec: str | None = None) -> pd.DataFrame:
        """A row a problem and label: who is ahead, and what a step costs.

        Parameters
        ----------
        spec
            The name or the hash of a spec: the runs that it asks for, in its words. None: all.

        Returns
        -------
        pd.DataFrame
            Problem by problem, the lowest median first. Columns problem, steps; measure, what is
            compared: gap_regret, or regret where a gap is not known of all; place, 1 for the
            learner with the lowest median, none for what does not learn; label, learner, role;
            runs, how many; median, mean, worst, lower_quartile, upper_quartile; ratio, of the
            median to that of the best learner there; seconds_per_step and clock, processor or wall;
            planner_calls, the median, and unconverged_plans, the sum over the runs; interval_low,
            interval_high, mean_low and mean_high as in `summary`.

        Raises
        ------
        UnknownName
            Where the store has no such spec.
        ImportError
            Where pandas is not installed.
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
        """A row a step of one recorded run. The first seed of every cell is recorded.

        Parameters
        ----------
        problem, label, seed, key
            What the run is called in `runs`; None fits all. Exactly one run must fit.

        Returns
        -------
        pd.DataFrame
            Columns t = 0, 1, ...; the state before the step and the action, a column a variable,
            by name; the reward of every factor as `reward.NAME`, and `reward`, their sum.

        Raises
        ------
        UnknownName
            Where none fits or several do; the text lists them.
        ImportError
            Where pandas is not installed.
        """
        return _frame(self.recording_table(problem, label, seed=seed, key=key))

    # ---- the same as arrays -----------------------------------------------------------------

    def specs_table(self) -> Table:
        """As `specs`, without pandas.

        Returns
        -------
        Table
            The columns of `specs`, arrays of one length by name.
        """
        with self.store.snapshot():
            specs = self.store.specs(forgotten=True)
            asked = [{one.key for one in self.store.members(spec.hash)} for spec in specs]
            done = self.store.keys("done")
        table = {name: _array(getattr(spec, name) for spec in specs) for name in ("name", "hash")}
        table["runs"] = _array(len(keys) for keys in asked)
        table["done"] = _array(len(keys & done) for keys in asked)
        for name in ("added", "asked", "forgotten"):
            table[name] = _array(getattr(spec, name) for spec in specs)
        return table

    def runs_table(self, spec: str | None = None, *, parameters: Parameters = "varied") -> Table:
        """As `runs`, without pandas.

        Parameters
        ----------
        spec
            The name or the hash of a spec: the runs that it asks for, in its words. None: all.
        parameters
            As in `runs`.

        Returns
        -------
        Table
            The columns of `runs`, arrays of one length by name.

        Raises
        ------
        UnknownName
            Where the store has no such spec.
        InvalidParameter
            Where `parameters` is neither "varied" nor "all".
        """
        if parameters not in ("varied", "all"):
            raise InvalidParameter(
                f"the 'parameters' parameter of runs must be varied or all; "
                f"got {quoted(parameters)}"
            )
        rows = self._rows(spec)
        own = _shown([_prefixed("set", row.run.parameters) for row in rows], parameters)
        planners = _shown([_prefixed("planner", r.run.planner_settings) for r in rows], parameters)
        measures = _measures(rows)
        table = _names(rows)
        table |= {"steps": _array(row.run.steps for row in rows)} | own
        table |= {"planner": _array(row.run.planner for row in rows)} | planners
        for name in ("status", "error"):
            table[name] = _array(getattr(row.run, name) for row in rows)
        for name in measures:
            table[name] = _array(row.run.measures.get(name) for row in rows)
        for name in ("seconds", "results_version", "key"):
            table[name] = _array(getattr(row.run, name) for row in rows)
        return table

    def curves_table(self, measure: str | None = None, spec: str | None = None) -> Table:
        """As `curves`, without pandas.

        Parameters
        ----------
        measure
            The name of the only one; None: all that have a curve.
        spec
            The name or the hash of a spec: the runs that it asks for, in its words. None: all.

        Returns
        -------
        Table
            The columns of `curves`, arrays of one length by name.

        Raises
        ------
        UnknownName
            Where there is no such measure, or no such spec.
        """
        rows = [row for row in self._rows(spec) if row.run.status == "done"]
        curves = [self.store.curve(row.run.key) for row in rows]
        stored = {name for curve in curves for name in curve.values}
        known = [one.name for one in declared() if one.curve is not None]
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
        """As `summary`, without pandas.

        Parameters
        ----------
        measure
            The name of the only one; None: all that are numbers.
        spec
            The name or the hash of a spec: the runs that it asks for, in its words. None: all.

        Returns
        -------
        Table
            The columns of `summary`, arrays of one length by name.

        Raises
        ------
        UnknownName
            Where there is no such measure, or no such spec.
        """
        by_cell: dict[tuple[str, str], list[StoredRun]] = {}
        rows = [row for row in self._rows(spec) if row.run.status == "done"]
        for row in rows:
            by_cell.setdefault((row.problem, row.label), []).append(row.run)
        names = _chosen(measure, [n for n in _measures(rows) if _is_number(rows, n)], "is a number")
        found = []
        for (problem, label), runs in by_cell.items():
            for name in names:
                values = [run.measures[name] for run in runs if name in run.measures]
                if values:
                    numbers = np.array(values, dtype=np.float64)
                    quartiles = np.quantile(numbers, (0.0, 0.25, 0.5, 0.75, 1.0)).tolist()
                    about = (problem, label, runs[0].learner, runs[0].role, runs[0].steps)
                    of_median = median_interval(numbers.tolist()) or (np.nan, np.nan)
                    of_mean = mean_interval(numbers.tolist()) or (np.nan, np.nan)
                    means = (mean_of(numbers.tolist()), *of_mean)
                    found.append((*about, name, len(values), *quartiles, *of_median, *means))
        head = (
            "problem",
            "label",
            "learner",
            "role",
            "steps",
            "measure",
            "runs",
            "least",
            "lower_quartile",
            "median",
            "upper_quartile",
            "most",
            "interval_low",
            "interval_high",
            "mean",
            "mean_low",
            "mean_high",
        )
        return {name: _array(row[place] for row in found) for place, name in enumerate(head)}

    def standings_table(self, spec: str | None = None) -> Table:
        """As `standings`, without pandas.

        Parameters
        ----------
        spec
            The name or the hash of a spec: the runs that it asks for, in its words. None: all.

        Returns
        -------
        Table
            The columns of `standings`, arrays of one length by name.

        Raises
        ------
        UnknownName
            Where the store has no such spec.
        """
        specs = None if spec is None else [self._spec(spec)]
        found = standings(sorted_runs(self.store, specs).cells)
        names = [one.name for one in fields(Standing)]
        return {name: _array(getattr(one, name) for one in found) for name in names}

    def recording_table(
        self,
        problem: str | None = None,
        label: str | None = None,
        *,
        seed: int | None = None,
        key: str | None = None,
    ) -> Table:
        """As `recording`, without pandas.

        Parameters
        ----------
        problem, label, seed, key
            What the run is called in `runs`; None fits all. Exactly one run must fit.

        Returns
        -------
        Table
            The columns of `recording`, arrays of one length by name.

        Raises
        ------
        UnknownName
            Where none fits or several do; the text lists them.
        """
        recorded = self.store.recorded()
        rows = [row for row in self._rows(None) if row.run.key in recorded]
        wanted = {"problem": problem, "label": label, "seed": seed, "key": key}
        fitting = [row for row in rows if _fits(row, wanted)]
        if len(fitting) != 1:
            there = "; ".join(f"{r.problem}, {r.label}, seed {r.run.seed}" for r in fitting or rows)
            raise UnknownName(
                f"{len(fitting) or 'no'} recorded runs fit, and it must be one; "
                f"{'they' if fitting else 'there'} are: {shorten(there, 400) or 'none'}"
            )
        run = fitting[0].run
        recording = self.store.recording(run.key)
        assert recording is not None
        structure = self.store.model(run.model).structure
        return columns_of(structure, recording.states, recording.actions, recording.rewards)

    # ---- which runs -------------------------------------------------------------------------

    def _rows(self, spec: str | None) -> list[_Row]:
        specs = None if spec is None else [self._spec(spec)]
        return list(_rows(sorted_runs(self.store, specs)))

    def _spec(self, text: str) -> StoredSpec:
        specs = self.store.specs()
        found = [spec for spec in specs if text == spec.hash] or [
            spec for spec in specs if text == spec.name
        ]
        if not found:
            names = [spec.name for spec in specs]
            raise UnknownName(
                f"{self.store.path}: has no spec {quoted(text)}; there are "
                f"{', '.join(names) or 'none'}{did_you_mean(text, names)}"
            )
        # The same name again: the spec was changed and run once more.
        return found[-1]


def _one_spec(store: Store, text: str) -> StoredSpec:
    """Return the spec with this hash, the beginning of a hash, or a name that is unique."""
    specs = store.specs(forgotten=True)
    found = [one for one in specs if one.name == text]
    if len(text) >= _SHORTEST_HASH:
        found = [one for one in specs if one.hash.startswith(text)] or found
    if len(found) == 1:
        return found[0]
    if not found:
        names = [one.name for one in specs]
        raise UnknownName(
            f"{store.path}: has no spec {quoted(text)}; there are {', '.join(names) or 'none'}"
            f"{did_you_mean(text, names)}"
        )
    there = ", ".join(f"{one.hash[:12]} (asked for last {one.asked[:19]})" for one in found)
    raise UnknownName(
        f"{store.path}: has {len(found)} specs {quoted(text)}; say which by its hash: "
        f"{shorten(there, 400)}"
    )


def _rows(found: SortedRuns) -> Iterator[_Row]:
    """Done runs cell by cell, the failed ones of each at its end; then cells without any done."""
    failed: dict[tuple[str, str], list[StoredRun]] = {}
    for problem, label, run in found.failed:
        failed.setdefault((problem, label), []).append(run)
    for cell in found.cells:
        for run in (*cell.runs, *failed.pop((cell.problem, cell.label), ())):
            yield _Row(cell.problem, cell.label, run)
    for (problem, label), runs in failed.items():
        for run in runs:
            yield _Row(problem, label, run)


def _fits(row: _Row, wanted: Mapping[str, object]) -> bool:
    own = {**row.names, "key": row.run.key}
    return all(value is None or own[name] == value for name, value in wanted.items())


def _names(rows: Sequence[_Row]) -> Table:
    columns = ("problem", "label", "learner", "role", "seed")
    return {name: _array(row.names[name] for row in rows) for name in columns}


def _measures(rows: Iterable[_Row]) -> list[str]:
    """Every declared measure, and others that the store has of some package."""
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
    """Lists as tuples: a column of them can then be grouped by."""
    return tuple(map(_hashable, value)) if isinstance(value, list) else value


def _shown(settings: Sequence[Mapping[str, Any]], parameters: Parameters) -> Table:
    """A column a setting, None where a run has no such setting."""
    names = dict.fromkeys(name for own in settings for name in own)
    varied = [n for n in names if len({repr(own[n]) for own in settings if n in own}) > 1]
    chosen: Collection[str] = varied if parameters == "varied" else names
    return {name: _array(own.get(name) for own in settings) for name in chosen}


def _array(values: Iterable[Any]) -> NDArray[Any]:
    """Numbers as numbers, NaN where one is missing; anything else as it is."""
    found = list(values)
    known = [value for value in found if value is not None]
    if known and all(type(value) in (int, float) for value in known):
        whole = len(known) == len(found) and all(type(value) is int for value in known)
        return np.array(found, dtype=np.int64 if whole else np.float64)
    array = np.empty(len(found), dtype=object)
    array[:] = found
    return array


def _frame(table: Table) -> pd.DataFrame:
    frame: pd.DataFrame = needs_pandas().DataFrame(table)
    return frame


def _line(head: str, words: Iterable[str]) -> str:
    listed = ", ".join(dict.fromkeys(words)) or "none"
    return f"  {head:9} {_cut(listed)}"


def _cut(text: str) -> str:
    return text if len(text) <= _WIDTH else f"{text[: _WIDTH - 4].rstrip(' ,')} ..."


def load_results(directory: str | os.PathLike[str]) -> Results:
    """The runs of a store as frames.

    Parameters
    ----------
    directory
        What `fmdp.sweep` or `fmdp sweep` was given as `out`.

    Returns
    -------
    Results
        Everything that the store has so far; a sweep may still be running.

    Raises
    ------
    FileProblem
        Where there is no store.
    """
    return Results.open(directory)
