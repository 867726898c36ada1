"""Fit a model with intervals to a log of steps.

    P(v | x) = (N(x, v) + prior) / (N(x) + prior |S_i|),    R(x) = mean of the rewards at x,

counted by class where rows are known to be alike. A row without visits is uniform, and an unseen
reward is the middle of its range. Every number has an interval, and all of them hold together with
probability 1 - rho (intervals.py) if the structure is right and rewards stay inside their ranges.

Cost: one pass over the log, constant memory beside the tables; a log whose structure is to be
learned is kept, with a byte or two per value (scopes.py).
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
from fmdp.logs.scopes import learn_structure
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
        Assumptions, one line each.
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
        Columns that are action variables and reward factors, for a learned structure; all others
        are state variables.
    prior
        Dirichlet parameter of every value before any count; 0 for the frequencies themselves.
    rho
        Failure probability of all intervals together.
    ignore
        Columns to ignore.

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
    weight, failure = PRIOR.check(prior, _OWNER), RHO.check(rho, _OWNER)
    ignored, acts = _names(ignore, "ignore"), _names(actions, "actions")
    paid = _names(rewards, "rewards")
    table = table_of(log)
    if isinstance(structure, str) and structure == LEARN:
        most = MAX_PARENTS.check(2 if max_parents is None else max_parents, _OWNER)
        learned = learn_structure(table, acts, paid, most, ignored)
        counts = Counts(learned.structure, has_rewards=True)
        counts.add(learned.steps)
        return _fitted(table, counts, None, learned.initial_state, weight, failure, learned.notes)
    for name, given in (("max_parents", max_parents), ("actions", acts), ("rewards", paid)):
        if given:
            raise InvalidParameter(
                f"the '{name}' parameter of {_OWNER} is for structure=learn alone; got "
                f"{quoted(given)}"
            )
    known, skeleton = _known(structure)
    reader = Reader(table, known, ignored)
    if not reader.has_rewards and skeleton is None:
        raise InvalidParameter(
            f"{table.name}: lacks the rewards {', '.join(known.reward_names)}, and a structure has "
            f"none to keep; give a model"
        )
    counts = Counts(known, reader.has_rewards)
    for steps in reader.steps():
        counts.add(steps)
    initial = None if skeleton is None else skeleton.initial_state
    notes = () if reader.has_rewards else ("the log has no rewards: those of the model are kept",)
    return _fitted(table, counts, skeleton, initial, weight, failure, notes)


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
        return given, None
    model = given if isinstance(given, FactoredMDP) else problem(given)
    return model.structure, model


# ---- counting ------------------------------------------------------------------------------------


class Counts:
    """Counts of a log for every class of alike rows; by default each row is a class."""

    def __init__(self, structure: Structure, has_rewards: bool) -> None:
        s = structure
        self.structure = s
        self.has_rewards = has_rewards
        self.steps = self.runs = 0
        self.values = np.zeros(s.n_transition_classes, dtype=np.int64)
        """[classes]: number of values of a row of the class."""
        for i, size in enumerate(s.state_sizes):
            self.values[s.transition_classes_of(i)] = size
        self.first = np.concatenate([[0], np.cumsum(self.values)])
        """[classes + 1]: index of the first cell of each class."""
        self.cells = np.zeros(self.first[-1], dtype=np.int64)
        self.paid = np.zeros(s.n_reward_classes, dtype=np.int64)
        self.sums = np.zeros(s.n_reward_classes)
        self.squares = np.zeros(s.n_reward_classes)
        """Sums of squares of rewards, scaled to [0, 1] by their range; so are `sums`."""

    def add(self, steps: Steps) -> None:
        """Count some steps."""
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
        """[classes]: number of visits."""
        return np.add.reduceat(self.cells, self.first[:-1])

    @property
    def events(self) -> int:
        """Number of events that share the failure probability."""
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
    """Return the means, and the lower and upper ends, one table per factor."""
    s = counts.structure
    if not counts.has_rewards:
        assert skeleton is not None
        return skeleton.rewards, (skeleton.rewards, skeleton.rewards)
    n = counts.paid.astype(np.float64)
    mean = np.where(n > 0, counts.sums / np.maximum(n, 1.0), 0.5)
    spread = np.maximum(counts.squares - n * mean * mean, 0.0) / np.maximum(n - 1.0, 1.0)
    width = mean_width(n, spread, shares(n, share))
    parts: list[list[Floats]] = [[], [], []]
    for k, (lo, hi) in enumerate(s.reward_ranges):
        classes = s.reward_classes_of(k)
        for tables, shift in zip(parts, (0.0, -1.0, 1.0), strict=True):
            scaled = mean[classes] + shift * width[classes]
            tables.append(np.clip(lo + (hi - lo) * scaled, lo, hi))
    means, lower, upper = (tuple(tables) for tables in parts)
    return means, (lower, upper)
