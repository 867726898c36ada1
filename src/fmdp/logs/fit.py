"""Fit a model with intervals to a log of steps.

    P(v | x) = (N(x, v) + w) / (N(x) + w |S_i|),    R(x) = mean of the rewards at x,

with a prior w, counted by class where rows are known to be alike. A row without visits is uniform,
and an unseen reward is the middle of its range. If the skeleton's zeros are kept, S_i is the set of
values that it holds possible after x. Every number has an interval, and all of them hold together
with probability 1 - rho (intervals.py) if the structure is right and rewards stay in their ranges.

Cost: one pass over the log, constant memory beside the tables; a log whose structure is to be
learned is kept, with a byte or two per value (scopes.py).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmdp._base.html import html_table
from fmdp._base.parameters import Flag, Integer, Number, quoted
from fmdp.errors import InvalidParameter
from fmdp.logs.intervals import mean_width, proportion_interval, shares
from fmdp.logs.ordering import in_order
from fmdp.logs.scopes import learn_scopes, learn_structure
from fmdp.logs.steps import Reader, Steps, rows_of
from fmdp.logs.tables import BadCell, Table, table_of
from fmdp.model import FactoredMDP, Intervals, Noise, Structure
from fmdp.model.expansion import with_derived_values
from fmdp.problems import Problem, problem

Floats = NDArray[np.float64]

LEARN = "learn"
_OWNER = "fit"
# The default is no number: 1/r^2 for r possible values. A larger prior spreads mass over values
# that never follow, which biases the gain; with none, a value that was not seen yet is impossible.
PRIOR = Number("prior", 0.5, "Dirichlet parameter of every value before any count", low=0.0)
RHO = Number(
    "rho", 0.1, "failure probability of all intervals together", low=0.0, high=1.0,
    low_open=True, high_open=True,
)  # fmt: skip
SKIP_BAD = Flag("skip_bad", False, "whether steps with a bad cell are skipped")
ZEROS = Flag("zeros_from_model", False, "whether impossible moves of the model stay impossible")
MAX_PARENTS = Integer("max_parents", 2, "most variables in a scope that is learned", low=0)


@dataclass(frozen=True, eq=False)
class Fit:
    """A model fitted to a log.

    Attributes
    ----------
    model
        The fitted model, with `model.intervals`.
    steps, runs
        Numbers of steps and of streams; 0 streams if every row has its own next state.
    rows, rows_seen
        Number of rows of the transition tables that may differ, and number of them visited.
    rho
        All intervals hold together with probability at least 1 - rho.
    notes
        Assumptions, and what was found in the log, one line each.
    skipped
        Bad cells whose steps were skipped: row, column, value and reason.
    """

    model: FactoredMDP
    steps: int
    runs: int
    rows: int
    rows_seen: int
    rho: float
    notes: tuple[str, ...]
    skipped: tuple[BadCell, ...] = ()

    def __repr__(self) -> str:
        streams = f" in {self.runs:,} stream{'s' * (self.runs > 1)}" if self.runs else ""
        return (
            f"Fit of {self.steps:,} steps{streams}: {self.rows_seen:,} of {self.rows:,} rows "
            f"visited; intervals hold with probability {1 - self.rho:g}"
        )

    def _repr_html_(self) -> str:
        caption, _, more = repr(self).partition(": ")
        visited, intervals = more.split("; ")
        rows = [("rows", visited), ("intervals", intervals.removeprefix("intervals "))]
        return html_table(caption, (), [*rows, *(("note", note) for note in self.notes)])


def fit(
    log: Any,
    structure: Structure | FactoredMDP | Problem | str | os.PathLike[str],
    *,
    max_parents: int | None = None,
    actions: Iterable[str] = (),
    rewards: Iterable[str] = (),
    prior: float | None = None,
    rho: float = 0.1,
    ignore: Iterable[str] = (),
    time: str | None = None,
    skip_bad: bool = False,
    zeros_from_model: bool = False,
    model: FactoredMDP | Problem | str | os.PathLike[str] | None = None,
    known: Iterable[str] = (),
) -> Fit:
    """Fit a model with intervals to a log of (state, action, rewards, next state).

    Parameters
    ----------
    log
        The path of a CSV or Parquet file, a data frame, or an iterable of mappings. It has a column
        for every variable, one for every reward (or none at all), and the next state in columns
        next_NAME. Without these the rows are a stream; a column `episode` or `run` may mark its
        ends.
    structure
        A structure, or a model (file, id or object) whose tables are ignored, except for its
        rewards if the log has none. "learn" finds variables, values and scopes in the log.
    max_parents
        Most variables in a learned scope; 2 by default.
    actions, rewards
        Columns that are action variables and reward factors, for a learned structure without
        `model`; all others are state variables.
    prior
        Dirichlet parameter of every value before any count; 0 for the frequencies themselves. By
        default 1/r^2 for r possible values, so that all of them weigh 1/r of an observation.
    rho
        Failure probability of all intervals together.
    ignore
        Columns to ignore.
    time
        Column of times, numbers or ISO dates, by which the rows are sorted. Holes and duplicates
        are reported in the notes.
    skip_bad
        Whether steps with a bad cell are skipped and listed in `skipped`, instead of refused.
    zeros_from_model
        Whether what the tables of the model hold impossible stays impossible: probability 0, with
        the interval [0, 0]. A step that contradicts is a bad row.
    model
        For structure="learn": a skeleton that gives variables, values, ranges, groups, constraints
        and the initial state, so that scopes alone are learned.
    known
        With `model`: names of transition and reward factors whose scopes stay as in the skeleton.

    Returns
    -------
    Fit
        The model, with counts and assumptions.

    Raises
    ------
    InvalidParameter
        If a column is missing or unknown, or a value is invalid; the message says where.
    FileProblem
        If the log cannot be read.
    TooLarge
        If a log whose structure is to be learned does not fit into memory.
    """
    weight = None if prior is None else PRIOR.check(prior, _OWNER)
    failure = RHO.check(rho, _OWNER)
    ignored, acts = _names(ignore, "ignore"), _names(actions, "actions")
    paid, kept_scopes = _names(rewards, "rewards"), _names(known, "known")
    learns = isinstance(structure, str) and structure == LEARN
    _refuse_idle(
        learns,
        model is not None,
        {"max_parents": max_parents, "actions": acts, "rewards": paid},
        {"model": model, "known": kept_scopes},
        zeros_from_model,
    )
    table = table_of(log, skip=SKIP_BAD.check(skip_bad, _OWNER))
    order_notes: tuple[str, ...] = ()
    if time is not None:
        ordered = in_order(table, _names([time], "time")[0], ignored)
        table, order_notes = ordered.table, ordered.notes
        ignored = (*ignored, time)
    most = MAX_PARENTS.check(2 if max_parents is None else max_parents, _OWNER)
    if learns and model is None:
        learned = learn_structure(table, acts, paid, most, ignored)
        counts = Counts(learned.structure, has_rewards=True)
        counts.add(learned.steps)
        notes = (*order_notes, *learned.notes, *_chain_notes(counts, time))
        return _fitted(table, counts, None, learned.initial_state, weight, failure, notes)
    known_structure, skeleton = _known(model if learns else structure)
    if zeros_from_model and skeleton is None:
        raise InvalidParameter(
            "zeros_from_model needs a model with tables; got a structure, which has none"
        )
    possible = None if skeleton is None or learns else possible_moves(skeleton)
    reader = Reader(table, known_structure, ignored, possible, zeros_from_model)
    if not reader.has_rewards and skeleton is None:
        raise InvalidParameter(
            f"{table.name}: lacks the rewards {', '.join(known_structure.reward_names)}, and a "
            f"structure has none to keep; give a model"
        )
    learned_notes: tuple[str, ...] = ()
    if learns:
        learned_structure, steps, learned_notes = learn_scopes(
            table, reader, known_structure, most, kept_scopes
        )
        counts = Counts(learned_structure, reader.has_rewards)
        counts.add(steps)
    else:
        counts = Counts(known_structure, reader.has_rewards)
        if zeros_from_model and possible is not None:
            counts.allow(possible)
        for steps in reader.steps():
            counts.add(steps)
    notes = (*order_notes, *learned_notes, *_chain_notes(counts, time))
    if reader.impossible and not zeros_from_model:
        notes += (
            (
                f"{reader.impossible:,} of {counts.steps:,} steps are impossible in the model, "
                f"the first at {table.place} {reader.first_impossible}: is the log in order, "
                f"and of this system?"
            ),
        )
    if not reader.has_rewards:
        notes += ("the log has no rewards: those of the model are kept",)
    initial = None if skeleton is None else skeleton.initial_state
    return _fitted(table, counts, skeleton, initial, weight, failure, notes)


def _refuse_idle(
    learns: bool,
    has_model: bool,
    of_columns: Mapping[str, Any],
    of_skeleton: Mapping[str, Any],
    zeros: bool,
) -> None:
    """Raise InvalidParameter for a parameter that would have no effect."""
    for name, given in (*of_columns.items(), *of_skeleton.items()):
        absent = given is None or (isinstance(given, tuple) and not given)
        if not absent and not learns:
            raise InvalidParameter(
                f"the '{name}' parameter of {_OWNER} is for structure=learn alone; got "
                f"{quoted(given)}"
            )
    for name in ("actions", "rewards"):
        if of_columns[name] and has_model:
            raise InvalidParameter(
                f"the '{name}' of {_OWNER} are those of the model; got {quoted(of_columns[name])}"
            )
    if of_skeleton["known"] and not has_model:
        raise InvalidParameter(
            f"the 'known' scopes of {_OWNER} are those of a model; got "
            f"{quoted(of_skeleton['known'])} without a model"
        )
    if ZEROS.check(zeros, _OWNER) and learns:
        raise InvalidParameter(
            "zeros_from_model needs the scopes of the model; they are not known with "
            "structure=learn"
        )


def _chain_notes(counts: Counts, time: str | None) -> tuple[str, ...]:
    if not counts.unchained:
        return ()
    many = f"{counts.unchained:,} of {counts.steps:,} rows"
    if counts.runs:
        return (
            (
                f"{many} are not later than the row before by their column 't', and successive "
                f"rows are taken for steps: is the log in order? (time='t' sorts it)"
            ),
        )
    hint = "" if time is not None else " (a column of times would put them in order)"
    return (
        (
            f"{many} do not begin in the next state of the row before{hint}; every row is a step "
            f"of its own"
        ),
    )


def possible_moves(model: FactoredMDP) -> tuple[NDArray[np.bool_], ...]:
    """Return whether each next value has a positive probability, [rows, |S_i|] per factor."""
    tables = model.transitions if model.intervals is None else model.intervals.upper
    return tuple(table > 0.0 for table in tables)


def _names(given: Iterable[str], what: str) -> tuple[str, ...]:
    try:
        names = (given,) if isinstance(given, str) else tuple(given)
    except TypeError:
        names = (None,)  # type: ignore[assignment]
    if not all(isinstance(name, str) for name in names):
        raise InvalidParameter(
            f"the '{what}' of {_OWNER} must be names of columns; got {quoted(given)}"
        )
    return names


def _known(given: Any) -> tuple[Structure, FactoredMDP | None]:
    if isinstance(given, Structure):
        structure, model = given, None
    else:
        model = given if isinstance(given, FactoredMDP) else problem(given)
        structure = model.structure
    refuse_unobserved(structure, _OWNER)
    return structure, model


def refuse_unobserved(structure: Structure, owner: str) -> None:
    """Raise InvalidParameter if a derived variable does not follow from the state and action."""
    for variable in structure.derived:
        if not variable.deterministic:
            raise InvalidParameter(
                f"{owner} does not observe {variable.name!r}, a derived variable that is drawn at "
                f"random; the others follow from the state and action"
            )


# ---- counting ------------------------------------------------------------------------------------


class Counts:
    """Counts of a log for every class of alike rows; by default each row is a class.

    `fixed_visits` says that the number of visits of every row was fixed before any outcome was
    seen, as with a simulator that is asked about chosen states.
    """

    def __init__(self, structure: Structure, has_rewards: bool, fixed_visits: bool = False) -> None:
        s = structure
        self.structure = s
        self.has_rewards = has_rewards
        self.fixed_visits = fixed_visits
        self.steps = self.runs = 0
        self.unchained = 0
        self.values = np.zeros(s.n_transition_classes, dtype=np.int64)
        """[classes]: number of values of a row of the class."""
        for i, size in enumerate(s.state_sizes):
            self.values[s.transition_classes_of(i)] = size
        self.first = np.concatenate([[0], np.cumsum(self.values)])
        """[classes + 1]: index of the first cell of each class."""
        self.cells = np.zeros(self.first[-1], dtype=np.int64)
        self.possible = np.ones(self.first[-1], dtype=np.bool_)
        """[cells]: whether a value may follow."""
        self.paid = np.zeros(s.n_reward_classes, dtype=np.int64)
        self.sums = np.zeros(s.n_reward_classes)
        self.squares = np.zeros(s.n_reward_classes)
        """Sums of squares of rewards, scaled to [0, 1] by their range; so are `sums`."""

    def allow(self, possible: Sequence[NDArray[np.bool_]]) -> None:
        """Hold all other moves impossible: [rows, |S_i|] per factor."""
        s = self.structure
        self.possible[:] = False
        for i, table in enumerate(possible):
            starts = self.first[s.transition_classes_of(i)]
            rows, values = np.nonzero(table)
            self.possible[starts[rows] + values] = True

    def add(self, steps: Steps) -> None:
        """Count some steps."""
        s = self.structure
        self.unchained = steps.unchained
        self.steps += len(steps.states)
        self.runs = steps.runs
        joint = np.concatenate([steps.states, steps.actions], axis=1, dtype=np.int64)
        joint = with_derived_values(s, joint)
        for i, scope in enumerate(s.transition_scopes):
            classes = s.transition_classes_of(i)[rows_of(s, joint, scope)]
            np.add.at(self.cells, self.first[classes] + steps.next_states[:, i], 1)
        if not steps.rewards.shape[1]:
            return
        for k, scope in enumerate(s.reward_scopes):
            classes = s.reward_classes_of(k)[rows_of(s, joint, scope)]
            lo, hi = s.reward_ranges[k]
            share = (steps.rewards[:, k] - lo) / ((hi - lo) or 1.0)
            np.add.at(self.paid, classes, 1)
            np.add.at(self.sums, classes, share)
            np.add.at(self.squares, classes, share * share)

    def failures(self, visits: Floats, share: float) -> Floats:
        """Return the failure probability of the interval of each row or cell with these visits."""
        return np.full(visits.shape, share) if self.fixed_visits else shares(visits, share)

    @property
    def visits(self) -> NDArray[np.int64]:
        """[classes]: number of visits."""
        return np.add.reduceat(self.cells, self.first[:-1])

    @property
    def choices(self) -> NDArray[np.int64]:
        """[classes]: number of possible values."""
        return np.add.reduceat(self.possible.astype(np.int64), self.first[:-1])

    @property
    def events(self) -> int:
        """Number of events that share the failure probability."""
        values = self.choices
        of_rows = int(np.where(values == 2, 1, np.where(values == 1, 0, values)).sum())
        return of_rows + (len(self.paid) if self.has_rewards else 0)


def _fitted(
    table: Table,
    counts: Counts,
    skeleton: FactoredMDP | None,
    initial_state: tuple[int, ...] | None,
    prior: float | None,
    rho: float,
    notes: tuple[str, ...],
) -> Fit:
    if not counts.steps:
        bad = len(table.problems.rows)
        raise InvalidParameter(
            f"{table.name}: has no step; a step needs a row with its next state, or two rows"
            f"{f'; {bad:,} bad rows were skipped' if bad else ''}"
        )
    model = fitted_model(
        counts,
        prior,
        rho,
        skeleton=skeleton,
        noise=None if skeleton is None else skeleton.noise,
        initial_state=initial_state,
        name=Path(table.name).name if table.place == "line" else "fitted",
    )
    return fit_of(counts, model, rho, notes, table.problems.cells())


def fit_of(
    counts: Counts,
    model: FactoredMDP,
    rho: float,
    notes: tuple[str, ...],
    skipped: tuple[BadCell, ...] = (),
) -> Fit:
    """Return a model together with the counts that it was fitted to."""
    seen = int((counts.visits > 0).sum())
    return Fit(model, counts.steps, counts.runs, len(counts.values), seen, rho, notes, skipped)


def fitted_model(
    counts: Counts,
    prior: float | None,
    rho: float,
    *,
    skeleton: FactoredMDP | None,
    noise: Sequence[Noise] | None,
    initial_state: tuple[int, ...] | None,
    name: str,
) -> FactoredMDP:
    """Return the model of the counts, with intervals; `skeleton` has the rewards if they do not."""
    s = counts.structure
    share = rho / max(counts.events, 1)
    of_cell = np.repeat(np.arange(len(counts.values)), counts.values)
    visits = counts.visits[of_cell].astype(np.float64)
    values = counts.choices[of_cell].astype(np.float64)
    added = 1.0 / values**2 if prior is None else np.full(len(values), prior)
    weight = visits + added * values
    rows = np.where(weight > 0, (counts.cells + added) / np.maximum(weight, 1e-300), 1.0 / values)
    rows = np.where(counts.possible, rows, 0.0)
    lower, upper = proportion_interval(counts.cells, visits, counts.failures(visits, share))
    single = values == 1
    lower, upper = np.where(single, 1.0, lower), np.where(single, 1.0, upper)
    lower = np.where(counts.possible, lower, 0.0)
    upper = np.where(counts.possible, upper, 0.0)
    # A strong prior may pull a mean out of its interval, which is then extended to it.
    lower, upper = np.minimum(lower, rows), np.maximum(upper, rows)

    def spread(cells: Floats) -> tuple[Floats, ...]:
        """Return one table [|X[Z_i]|, |S_i|] per factor from the cells of the classes."""
        tables = []
        for i, size in enumerate(s.state_sizes):
            starts = counts.first[s.transition_classes_of(i)]
            tables.append(cells[starts[:, None] + np.arange(size)])
        return tuple(tables)

    means, ends = _rewards(counts, skeleton, share)
    return FactoredMDP(
        s,
        spread(rows),
        means,
        noise,
        initial_state,
        name,
        Intervals(spread(lower), spread(upper), *ends),
    )


def _rewards(
    counts: Counts, skeleton: FactoredMDP | None, share: float
) -> tuple[tuple[Floats, ...], tuple[tuple[Floats, ...], tuple[Floats, ...]]]:
    """Return the means, and the lower and upper ends, one table per factor."""
    s = counts.structure
    if not counts.has_rewards:
        assert skeleton is not None
        return skeleton.rewards, (skeleton.rewards, skeleton.rewards)
    n = counts.paid.astype(np.float64)
    mean = np.where(n > 0, counts.sums / np.maximum(n, 1.0), 0.5)
    spread = np.maximum(counts.squares - n * mean * mean, 0.0) / np.maximum(n - 1.0, 1.0)
    width = mean_width(n, spread, counts.failures(n, share))
    parts: list[list[Floats]] = [[], [], []]
    for k, (lo, hi) in enumerate(s.reward_ranges):
        classes = s.reward_classes_of(k)
        for tables, shift in zip(parts, (0.0, -1.0, 1.0), strict=True):
            scaled = mean[classes] + shift * width[classes]
            tables.append(np.clip(lo + (hi - lo) * scaled, lo, hi))
    means, lower, upper = (tuple(tables) for tables in parts)
    return means, (lower, upper)
