"""Coverage of every confidence set, in exact binomial arithmetic.

A learner is shown counts, not runs: for every n up to N and every number k of successes its own
`tables` say which laws it still holds for possible. A true probability p is *lost* at (n, k) where
it is outside. For fixed p the chance to be lost at some n <= N is computed exactly, by dynamic
programming over k (`chance_of_loss`), and compared with the share of rho that the learner gives to
one row, or to one mean reward. Sets whose widths grow with the time t are asked at the earliest
t = n + 1 at which a row can have n visits, where they are narrowest.

The chance jumps where p leaves the interval of some (n, k). So p takes a fixed grid of values and,
beside it, values just outside of ends that the learner itself gives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import fmdp
from fmdp.learning.pmevi import within_span
from fmdp.logs.intervals import mean_width, proportion_interval
from fmdp.logs.intervals import shares as shares_over_visits
from fmdp.model.divergence import largest_within
from referee.ledger import Ledger

Floats = NDArray[np.float64]

ROUNDING = 1e-9
"""A probability this close to an end counts as inside."""
SPAN = 1.0
"""Of the bias that PMEVI's Bernstein bound is asked about."""

SMALL = np.array([1e-6, 1e-4, 1e-3, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.45])
GRID: Floats = np.concatenate([SMALL, [0.5], 1.0 - SMALL[::-1]])
"""The values of p that every set is asked about."""


@dataclass(frozen=True)
class Setup:
    """A learner, the size of its problem, and how many visits are looked at."""

    learner: Any
    values: int
    actions: int
    visits: int

    @property
    def name(self) -> str:
        return (
            f"{self.learner!r}, {self.values} values, {self.actions} actions, {self.visits} visits"
        )

    @property
    def n_states(self) -> int:
        """For `Ledger.smallest`, which shows small cases first."""
        return self.values

    @property
    def n_actions(self) -> int:
        return self.actions

    @property
    def rows(self) -> int:
        return self.values * self.actions


class Ends(NamedTuple):
    """The least and the largest probability of success held for possible, for [n, k]; of a mean
    reward, and by PMEVI's Bernstein bound. Entries with k > n are 0 and 1."""

    lower: Floats
    upper: Floats


class Asked(NamedTuple):
    """All that a learner says about counts up to (N, N)."""

    row: Ends
    reward: Ends
    bernstein: Ends | None


@lru_cache(maxsize=8)
def _structure(values: int, actions: int) -> fmdp.Structure:
    text = f"random:1,values={values},parents=1,actions={actions},seed=0,noise=bernoulli"
    return fmdp.problem(text).structure


def row_ends(tables: Any) -> tuple[Floats, Floats]:
    """For every row the least and the largest p such that the law with p at value 1 and 1 - p at
    value 0 is in the set."""
    lower, ones = tables.lower[0], np.ones(len(tables.lower[0]))
    upper = np.ones_like(lower) if tables.upper is None else tables.upper[0]
    least = np.maximum(lower[:, 1], ones - upper[:, 0])
    most = np.minimum(upper[:, 1], ones - lower[:, 0])
    if tables.radius is not None and tables.distance == "kl":
        # On this line KL(centre, p) is the divergence of two coins.
        apart = tables.radius[0]
        most = np.minimum(most, largest_within(tables.centre[0][:, 1], apart))
        least = np.maximum(least, ones - largest_within(tables.centre[0][:, 0], apart))
    elif tables.radius is not None:
        # On this line |p - centre|_1 is 2 |p - p-hat| where the centre is on it too.
        apart = 0.5 * tables.radius[0]
        least = np.maximum(least, tables.centre[0][:, 1] - apart)
        most = np.minimum(most, tables.centre[0][:, 1] + apart)
    return least, most


def _batches(visits: int, rows: int) -> Iterator[tuple[int, NDArray[np.int64]]]:
    for n in range(1, visits + 1):
        for first in range(0, n + 1, rows):
            yield n, np.arange(first, min(first + rows, n + 1))


def asked(setup: Setup) -> Asked:
    """Ask the learner about every number of successes in every number of visits."""
    shape = (setup.visits + 1, setup.visits + 1)
    arrays = [np.zeros(shape) if number % 2 == 0 else np.ones(shape) for number in range(6)]
    learner = setup.learner
    agent = learner.start(_structure(setup.values, setup.actions), 0)
    counts = agent.statistics.counts
    with_bernstein = hasattr(learner, "mitigation")
    for n, hits in _batches(setup.visits, setup.rows):
        successes = np.full(setup.rows, hits[-1])
        successes[: len(hits)] = hits
        cells = np.zeros((setup.rows, setup.values), dtype=np.int64)
        cells[:, 0], cells[:, 1] = n - successes, successes
        counts.cells[:] = cells.reshape(-1)
        counts.visits[:] = n
        counts.reward_sums[:] = successes
        agent.counters.steps = n
        tables = learner.tables(agent)
        at = (np.full(len(hits), n), hits)
        for array, end in zip(arrays, row_ends(tables), strict=False):
            array[at] = end[: len(hits)]
        arrays[3][at] = tables.rewards[0][: len(hits)]
        if with_bernstein:
            widest = within_span(setup.values, SPAN)
            width = learner.mitigation(agent, widest, SPAN).reshape(-1)[: len(hits)] / SPAN
            arrays[4][at], arrays[5][at] = hits / n - width, hits / n + width
    return Asked(
        Ends(*arrays[:2]), Ends(*arrays[2:4]), Ends(*arrays[4:]) if with_bernstein else None
    )


def chance_of_loss(ends: Ends, p: Floats) -> Floats:
    """P(p is outside the ends at some n = 1, ..., N), exactly but for rounding: one per p."""
    visits = len(ends.lower) - 1
    alive = np.zeros((len(p), visits + 1))
    alive[:, 0] = 1.0
    lost = np.zeros(len(p))
    column = p[:, None]
    for n in range(1, visits + 1):
        moved = alive * (1.0 - column)
        moved[:, 1:] += alive[:, :-1] * column
        outside = (column < ends.lower[n] - ROUNDING) | (column > ends.upper[n] + ROUNDING)
        lost += np.where(outside, moved, 0.0).sum(axis=1)
        alive = np.where(outside, 0.0, moved)
    return lost


def grid(ends: Ends, extra: int) -> Floats:
    """GRID, and `extra` values just outside of the ends, evenly spread over all (n, k)."""
    inside = np.tril_indices(len(ends.lower))
    outside = np.concatenate([ends.lower[inside] - 1e-7, ends.upper[inside] + 1e-7])
    outside = np.unique(outside[(outside > 0.0) & (outside < 1.0)])
    chosen = np.linspace(0, max(0, len(outside) - 1), min(extra, len(outside))).astype(np.int64)
    return np.concatenate([GRID, outside[chosen]])


def row_share(setup: Setup) -> float:
    """How much of rho the learner promises to one row; the rest of it goes to the rewards."""
    name = setup.learner.name
    if name == "ucrl3":
        return setup.values / (1.0 + setup.values) / setup.rows
    return (1.0 / 6.0 if name == "pmevi" else 0.5) / setup.rows


def reward_share(setup: Setup) -> float:
    """How much of rho the learner promises to one mean reward."""
    if setup.learner.name == "ucrl3":
        return 1.0 / (1.0 + setup.values) / setup.rows
    return row_share(setup)


def worst(ends: Ends, extra: int) -> tuple[float, float]:
    """The largest chance of loss, and the p that has it."""
    p = grid(ends, extra)
    lost = chance_of_loss(ends, p)
    return float(lost.max()), float(p[lost.argmax()])


def judge(ledger: Ledger, setup: Setup, extra: int) -> None:
    """Enter whether the sets of a learner keep their promise."""
    said, rho, name = asked(setup), setup.learner.rho, setup.learner.name
    parts: list[tuple[str, Ends, float]] = [
        ("rows", said.row, rho * row_share(setup)),
        ("rewards", said.reward, rho * reward_share(setup)),
    ]
    if said.bernstein is not None:
        parts.append(("Bernstein bound", said.bernstein, rho / 3.0 / setup.rows))
    for part, ends, allowed in parts:
        _enter(ledger, f"coverage: {part} of {name}", setup, ends, allowed, extra)


def _enter(ledger: Ledger, claim: str, setup: Any, ends: Ends, allowed: float, extra: int) -> None:
    chance, p = worst(ends, extra)
    ledger.judge(
        claim,
        setup,
        chance <= allowed * (1.0 + 1e-9),
        chance / allowed,
        f"p = {p:.9g} is lost with probability {chance:.3g}, {chance / allowed:.3g} times the "
        f"allowed {allowed:.3g}",
    )


@dataclass(frozen=True)
class FitSetup:
    """The intervals of `fmdp fit` with this failure probability for one number."""

    failure: float
    visits: int
    n_states: int = 2
    n_actions: int = 1

    @property
    def name(self) -> str:
        return f"fit, failure {self.failure}, {self.visits} visits"


def judge_fit(ledger: Ledger, setup: FitSetup, extra: int) -> None:
    """Enter whether the intervals of a fitted model keep their promise at every n together."""
    n = np.arange(setup.visits + 1, dtype=np.float64)[:, None]
    k = np.minimum(np.arange(setup.visits + 1, dtype=np.float64)[None], n)
    failure = shares_over_visits(n, setup.failure)
    _enter(
        ledger,
        "coverage: probabilities of fit",
        setup,
        Ends(*proportion_interval(k, n, failure)),
        setup.failure,
        extra,
    )
    mean = k / np.maximum(1.0, n)
    variance = mean * (1.0 - mean) * n / np.maximum(1.0, n - 1.0)
    width = mean_width(n, variance, failure)
    ends = Ends(mean - width, mean + width)
    _enter(ledger, "coverage: means of fit", setup, ends, setup.failure, extra)


KINDS: tuple[Callable[..., Any], ...] = (
    fmdp.UCRL2,
    fmdp.UCRL3,
    fmdp.UCRLFactored,
    fmdp.DBNUCRL,
    lambda rho: fmdp.DBNUCRL(rho=rho, bounds="public"),
    fmdp.SCAL,
    fmdp.REGAL,
    fmdp.PMEVI,
    fmdp.KLUCRL,
    lambda rho: fmdp.KLUCRL(rho=rho, bounds="public"),
    fmdp.KLUCRLFactored,
    lambda rho: fmdp.DORL(rho=rho, transition_constant=18.0, reward_constant=12.0),
    lambda rho: fmdp.FSRL(rho=rho, transition_constant=18.0, reward_constant=12.0),
)
"""The learners whose sets have a promise, with the constants that it is for."""
LEVELS = (0.9, 0.1, 0.001)
SHORT = ((2, 1, 40), (2, 30, 60))
FULL = ((2, 1, 120), (2, 10, 250), (3, 8, 150), (2, 150, 600), (6, 20, 200))
"""Values, actions and visits."""


def play(short: bool) -> Ledger:
    """Judge every set over a grid of p, n and rho."""
    ledger = Ledger()
    extra = 20 if short else 120
    for kind in KINDS:
        for rho in LEVELS[1:2] if short else LEVELS:
            for values, actions, visits in SHORT if short else FULL:
                judge(ledger, Setup(kind(rho=rho), values, actions, visits), extra)
    for failure in LEVELS[1:2] if short else LEVELS:
        judge_fit(ledger, FitSetup(failure, 100 if short else 600), extra)
    return ledger
