"""Fit: a model with intervals from a log of steps.

    P(v | x) = (N(x, v) + prior) / (N(x) + prior |S_i|),    R(x) = the mean of what was paid at x,

counted by class where rows are known to be alike; a row that was never visited is uniform, a reward
that was never seen in the middle of its range. Every number has an interval, and all of them hold
together with probability 1 - rho (intervals.py), if the structure is right: rows are laws of their
own, and rewards stay inside their ranges.

Cost: one pass over the log, constant memory beside the tables; a log whose structure is to be
learned is kept, a byte or two a value (scopes.py).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmdp._base.parameters import Integer, Number, quoted
from fmdp.errors import InvalidParameter
from fmdp.logs.intervals import mean_width, proportion_interval, shares
from fmdp.logs.scopes import learned
from fmdp.logs.steps import Reader, Steps
from fmdp.logs.tables import Table, table_of
from fmdp.model import FactoredMDP, Intervals, Structure
from fmdp.model.spaces import strides
from fmdp.problems import Problem, problem

Floats = NDArray[np.float64]

LEARN = "learn"
_OWNER = "fit"
PRIOR = Number("prior", 0.5, "Dirichlet parameter of every value before any count", low=0.0)
RHO = Number(
    "rho", 0.1, "failure probability of all intervals together", low=0.0, high=1.0,
    low_open=True, high_open=True,
)  # fmt: skip
MAX_PARENTS = Integer("max_parents", 2, "most variables in a scope that is learned", low=0)


@dataclass(frozen=True, eq=False)
class Fit:
    """What a log says.

    Attributes
    ----------
    model
        The fitted model, with `model.intervals`.
    steps, runs
        How many steps were counted, and in how many streams; 0 streams where every row has its own
        next state.
    rows, rows_seen
        Rows of the transition tables that may differ, and how many of them were visited.
    rho
        All intervals hold together with probability at least 1 - rho.
    notes
        What was taken for granted, a line each.
    """

    model: FactoredMDP
    steps: int
    runs: int
    rows: int
    rows_seen: int
    rho: float
    notes: tuple[str, ...]

    def __repr__(self) -> str:
        streams = f" in {self.runs:,} stream{'s' * (self.runs > 1)}" if self.runs else ""
        return (
            f"Fit of {self.steps:,} steps{streams}: {self.rows_seen:,} of {self.rows:,} rows "
            f"visited; intervals hold with probability {1 - self.rho:g}"
        )


def fit(
    log: Any,
    structure: Structure | FactoredMDP | Problem | str | os.PathLike[str],
    *,
    max_parents: int | None = None,
    actions: Iterable[str] = (),
    rewards: Iterable[str] = (),
    prior: float = 0.5,
    rho: float = 0.1,
    ignore: Iterable[str] = (),
) -> Fit:
    """A model with intervals from a log of (state, action, rewards, next state).

    Parameters
    ----------
    log
        The path of a CSV or Parquet file, a data frame, or an iterable of mappings, with a column
        for every variable by its name, rewards by name (or none at all), and the next state in
        columns next_NAME; without these the rows are a stream, whose ends a column `episode` or
        `run` may mark.
    structure
        What is known: a structure, or a model (its file, id or object) whose tables do not count;
        its rewards are kept where the log has none. "learn" finds variables, values and scopes in
        the log.
    max_parents
        Most variables in a scope, where the structure is learned; 2 by default.
    actions, rewards
        Which columns are action variables and reward factors, where the structure is learned; all
        others are state variables.
    prior
        Dirichlet parameter of every value before any count; 0 for the frequencies themselves.
    rho
        Failure probability of all intervals together.
    ignore
        Columns that stand for nothing here.

    Returns
    -------
    Fit
        The model, and what its numbers rest on.

    Raises
    ------
    InvalidParameter
        Where a column is missing or not known, or a value is none; the text says where.
    FileProblem
        Where the log cannot be read.
    TooLarge
        Where a log whose structure is to be learned does not fit into memory.
    """
    weight, failure = PRIOR.check(prior, _OWNER), RHO.check(rho, _OWNER)
    ignored, acts = _names(ignore, "ignore"), _names(actions, "actions")
    paid = _names(rewards, "rewards")
    table = table_of(log)
    if isinstance(structure, str) and structure == LEARN:
        most = MAX_PARENTS.check(2 if max_parents is None else max_parents, _OWNER)
        found = learned(table, acts, paid, most, ignored)
        counts = Counts(found.structure, has_rewards=True)
        counts.add(found.steps)
        return _fitted(table, counts, None, found.initial_state, weight, failure, found.notes)
    for name, given in (("max_parents", max_parents), ("actions", acts), ("rewards", paid)):
        if given:
            raise InvalidParameter(
                f"the '{name}' parameter of {_OWNER} is for structure=learn alone; got "
                f"{quoted(given)}"
            )
    told, skeleton = _told(structure)
    reader = Reader(table, told, ignored)
    if not reader.has_rewards and skeleton is None:
        raise InvalidParameter(
            f"{table.name}: lacks the rewards {', '.join(told.reward_names)}, and a structure has "
            f"none to keep; give a model"
        )
    counts = Counts(told, reader.has_rewards)
    for steps in reader.steps():
        counts.add(steps)
    initial = None if skeleton is None else skeleton.initial_state
    notes = () if reader.has_rewards else ("the log has no rewards: those of the model are kept",)
    return _fitted(table, counts, skeleton, initial, weight, failure, notes)


def _names(given: Iterable[str], what: str) -> tuple[str, ...]:
    try:
        found = (given,) if isinstance(given, str) else tuple(given)
    except TypeError:
        found = (None,)  # type: ignore[assignment]
    if not all(isinstance(one, str) for one in found):
        raise InvalidParameter(
            f"the '{what}' of {_OWNER} must be names of columns; got {quoted(given)}"
        )
    return found


def _told(given: Any) -> tuple[Structure, FactoredMDP | None]:
    if isinstance(given, Structure):
        return given, None
    model = given if isinstance(given, FactoredMDP) else problem(given)
    return model.structure, model


# ---- counting ------------------------------------------------------------------------------------


class Counts:
    """What a log has of every class of alike rows; rows are their own classes by default."""

    def __init__(self, structure: Structure, has_rewards: bool) -> None:
        s = structure
        self.structure = s
        self.has_rewards = has_rewards
        self.steps = self.runs = 0
        self.values = np.zeros(s.n_transition_classes, dtype=np.int64)
        """[classes]: how many values a row of the class has."""
        for i, size in enumerate(s.state_sizes):
            self.values[s.transition_classes_of(i)] = size
        self.first = np.concatenate([[0], np.cumsum(self.values)])
        """[classes + 1]: where the cells of each class begin."""
        self.cells = np.zeros(self.first[-1], dtype=np.int64)
        self.paid = np.zeros(s.n_reward_classes, dtype=np.int64)
        self.sums = np.zeros(s.n_reward_classes)
        self.squares = np.zeros(s.n_reward_classes)
        """Of rewards in units of their range, from its lower end."""

    def add(self, steps: Steps) -> None:
        s = self.structure
        self.steps += len(steps.states)
        self.runs = steps.runs
        joint = np.concatenate([steps.states, steps.actions], axis=1, dtype=np.int64)
        for i, scope in enumerate(s.transition_scopes):
            classes = s.transition_classes_of(i)[self._rows(joint, scope)]
            np.add.at(self.cells, self.first[classes] + steps.next_states[:, i], 1)
        if not steps.rewards.shape[1]:
            return
        for k, scope in enumerate(s.reward_scopes):
            classes = s.reward_classes_of(k)[self._rows(joint, scope)]
            lo, hi = s.reward_ranges[k]
            share = (steps.rewards[:, k] - lo) / ((hi - lo) or 1.0)
            np.add.at(self.paid, classes, 1)
            np.add.at(self.sums, classes, share)
            np.add.at(self.squares, classes, share * share)

    def _rows(self, joint: NDArray[np.int64], scope: Sequence[int]) -> NDArray[np.int64]:
        steps = np.array(strides(self.structure.scope_sizes(scope)), dtype=np.int64)
        rows: NDArray[np.int64] = joint[:, list(scope)] @ steps
        return rows

    @property
    def visits(self) -> NDArray[np.int64]:
        """[classes]."""
        return np.add.reduceat(self.cells, self.first[:-1])

    @property
    def events(self) -> int:
        """What the failure probability is shared between."""
        values = self.values
        of_rows = int(np.where(values == 2, 1, np.where(values == 1, 0, values)).sum())
        return of_rows + (len(self.paid) if self.has_rewards else 0)


def _fitted(
    table: Table,
    counts: Counts,
    skeleton: FactoredMDP | None,
    initial_state: tuple[int, ...] | None,
    prior: float,
    rho: float,
    notes: tuple[str, ...],
) -> Fit:
    s = counts.structure
    if not counts.steps:
        raise InvalidParameter(
            f"{table.name}: has no step; a step needs a row with its next state, or two rows"
        )
    share = rho / max(counts.events, 1)
    of_cell = np.repeat(np.arange(len(counts.values)), counts.values)
    visits = counts.visits[of_cell].astype(np.float64)
    values = counts.values[of_cell].astype(np.float64)
    weight = visits + prior * values
    rows = np.where(weight > 0, (counts.cells + prior) / np.maximum(weight, 1e-300), 1.0 / values)
    lower, upper = proportion_interval(counts.cells, visits, shares(visits, share))
    single = values == 1
    lower, upper = np.where(single, 1.0, lower), np.where(single, 1.0, upper)
    # A strong prior may pull a mean out of its interval, which then reaches to it.
    lower, upper = np.minimum(lower, rows), np.maximum(upper, rows)

    def spread(cells: Floats) -> tuple[Floats, ...]:
        """[classes' cells] -> a table [|X[Z_i]|, |S_i|] a factor."""
        tables = []
        for i, size in enumerate(s.state_sizes):
            starts = counts.first[s.transition_classes_of(i)]
            tables.append(cells[starts[:, None] + np.arange(size)])
        return tuple(tables)

    means, ends = _rewards(counts, skeleton, share)
    model = FactoredMDP(
        s,
        spread(rows),
        means,
        None if skeleton is None else skeleton.noise,
        initial_state,
        Path(table.name).name if table.place == "line" else "fitted",
        Intervals(spread(lower), spread(upper), *ends),
    )
    seen = int((counts.visits > 0).sum())
    return Fit(model, counts.steps, counts.runs, len(counts.values), seen, rho, notes)


def _rewards(
    counts: Counts, skeleton: FactoredMDP | None, share: float
) -> tuple[tuple[Floats, ...], tuple[tuple[Floats, ...], tuple[Floats, ...]]]:
    """Means, and lower and upper ends, a table a factor."""
    s = counts.structure
    if not counts.has_rewards:
        assert skeleton is not None
        return skeleton.rewards, (skeleton.rewards, skeleton.rewards)
    n = counts.paid.astype(np.float64)
    mean = np.where(n > 0, counts.sums / np.maximum(n, 1.0), 0.5)
    spread = np.maximum(counts.squares - n * mean * mean, 0.0) / np.maximum(n - 1.0, 1.0)
    width = mean_width(n, spread, shares(n, share))
    found: list[list[Floats]] = [[], [], []]
    for k, (lo, hi) in enumerate(s.reward_ranges):
        classes = s.reward_classes_of(k)
        for tables, shift in zip(found, (0.0, -1.0, 1.0), strict=True):
            part = mean[classes] + shift * width[classes]
            tables.append(np.clip(lo + (hi - lo) * part, lo, hi))
    means, lower, upper = (tuple(tables) for tables in found)
    return means, (lower, upper)
