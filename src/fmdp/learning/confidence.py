"""Confidence sets of a factored MDP: one formula per function, and the tables they define.

Xu & Tewari 2020, Algorithm 1, with t the first step of the episode (counted from 1):

    W_P(s | x) = sqrt(18 P-hat(s | x) log(6 m |S_i| |X[Z_i]| t / rho) / max{1, N_P(x)})
                 + 18 log(6 m |S_i| |X[Z_i]| t / rho) / max{1, N_P(x)}          (delta_p)
    W_R(x) = sqrt(12 log(6 l |X[Z_k]| t / rho) / max{1, N_R(x)})                (delta_r)

If rows are known to be alike, x is a class of rows and |X[Z_i]| the number of classes among the
rows of factor i (the largest of these numbers, for a class that several factors share;
docs/theory.md has the union bound).

Both widths are returned uncapped. Planning uses a one-sided set: P >= P-hat - min(W_P, P-hat) holds
wherever |P - P-hat| <= W_P does. Capping the width first and reading it as two-sided would exclude
the truth wherever P-hat = 0 < P. Reward widths are in units of the range hi - lo. All mass of an
entry without visits is free, and its reward is the upper end of the range.

Learners with other formulas have them in their own files, for other shapes of sets: a box around
every row (`tables_of_boxes`), or a ball (`tables_of_balls`, `tables_of_divergences`).
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from fmdp._base.parameters import Integer, Number
from fmdp._base.portable_math import log
from fmdp.learning.statistics import Floats, Statistics, check_statistics
from fmdp.model import OptimisticTables, Structure
from fmdp.model.divergence import EVERYTHING, box_around
from fmdp.model.entries import (
    Index,
    split_cells,
    split_reward_entries,
    split_transition_entries,
)

TRANSITION_CONSTANT = 18.0  # of (delta_p), as in the paper
REWARD_CONSTANT = 12.0  # of (delta_r), as in the paper
_STEP = Integer("t", 1, "number of the next step", low=1)
_RHO = Number("rho", 0.1, "failure probability", low=0.0, high=1.0, low_open=True)
_CONSTANT = Number("constant", 1.0, "factor in the widths", low=0.0)


def transition_log_terms(structure: Structure, t: int, rho: float) -> Floats:
    """Return log(6 m |S_i| |X[Z_i]| t / rho) of every transition factor: [m]."""
    sizes = np.array(structure.state_sizes, dtype=np.float64)
    terms: Floats = log(6.0 * structure.m * sizes * _homes(structure).n_classes * t / rho)
    return terms


def reward_log_terms(structure: Structure, t: int, rho: float) -> Floats:
    """Return log(6 l |X[Z_k]| t / rho) of every reward factor: [l]."""
    terms: Floats = log(6.0 * structure.l * _homes(structure).n_reward_classes * t / rho)
    return terms


class _Homes(NamedTuple):
    """Numbers of classes of rows per factor, and the factor whose log term an entry uses.

    Of the factors that share an entry that is the one with the most classes.
    """

    n_classes: Floats  # [m]
    n_reward_classes: Floats  # [l]
    factor: Index  # [transition entries]
    reward_factor: Index  # [reward entries]


@lru_cache(maxsize=8)  # used in every plan
def _homes(structure: Structure) -> _Homes:
    s = structure
    transitions = [np.unique(s.transition_classes_of(i)) for i in range(s.m)]
    rewards = [np.unique(s.reward_classes_of(k)) for k in range(s.l)]
    homes = []
    for classes, n in ((transitions, s.n_transition_classes), (rewards, s.n_reward_classes)):
        home = np.zeros(n, dtype=np.int64)
        for factor in sorted(range(len(classes)), key=lambda factor: len(classes[factor])):
            home[classes[factor]] = factor
        homes.append(home)
    n_classes, n_rewards = (
        np.array([len(members) for members in classes], dtype=np.float64)
        for classes in (transitions, rewards)
    )
    return _Homes(n_classes, n_rewards, *homes)


class Shares(NamedTuple):
    """Numbers that the failure probability of an entry is divided by: m |X[Z_i]| and l |X[Z_k]|."""

    transitions: Floats  # [transition entries]
    rewards: Floats  # [reward entries]


def shares_of(structure: Structure) -> Shares:
    """Return the divisors of rho for every entry.

    rho / (m |X[Z_i]|) over all transition entries, and rho / (l |X[Z_k]|) over all reward entries,
    sum to at most rho each. |X[Z_i]| counts classes of alike rows.
    """
    homes = _homes(structure)
    return Shares(
        structure.m * homes.n_classes[homes.factor],
        structure.l * homes.n_reward_classes[homes.reward_factor],
    )


def scaled(c: float, widths: Floats) -> Floats:
    """Return c times every finite width; infinite widths, of unseen entries, stay infinite."""
    smaller: Floats = np.multiply(c, widths, out=widths.copy(), where=np.isfinite(widths))
    return smaller


def transition_width(
    estimate: ArrayLike,
    visits: ArrayLike,
    log_term: ArrayLike,
    constant: float = TRANSITION_CONSTANT,
) -> Floats:
    """Return (delta_p), not capped at P-hat; broadcasts."""
    rate = constant * np.asarray(log_term) / np.maximum(1, np.asarray(visits))
    width: Floats = np.sqrt(np.asarray(estimate) * rate) + rate
    return width


def reward_width(
    visits: ArrayLike, log_term: ArrayLike, constant: float = REWARD_CONSTANT
) -> Floats:
    """Return (delta_r); broadcasts."""
    width: Floats = np.sqrt(constant * np.asarray(log_term) / np.maximum(1, np.asarray(visits)))
    return width


def all_or_nothing_width(visits: ArrayLike, enough: int) -> Floats:
    """Return the width of f-Rmax (Strehl 2007): infinite before `enough` visits, then 0."""
    width: Floats = np.where(np.asarray(visits) < enough, np.inf, 0.0)
    return width


def confidence_tables(
    statistics: Statistics,
    *,
    t: int,
    rho: float,
    transition_constant: float = TRANSITION_CONSTANT,
    reward_constant: float = REWARD_CONSTANT,
) -> OptimisticTables:
    """Return the confidence set of Xu & Tewari (2020) as optimistic tables.

    DORL and FSRL plan with it. With the default constants it contains the true model at all steps
    with probability 1 - rho; smaller constants explore less and give up that guarantee.

    Parameters
    ----------
    statistics
        Counts, such as `agent.statistics`.
    t
        Number of the next step, from 1: `agent.steps + 1`.
    rho
        Failure probability.
    transition_constant
        Factor in the widths of transition probabilities, 18 in the theorem.
    reward_constant
        Factor in the widths of mean rewards, 12 in the theorem.
    """
    check_statistics(statistics, "confidence_tables")
    t, rho = _STEP.check(t, "confidence_tables"), _RHO.check(rho, "confidence_tables")
    transition_constant = _CONSTANT.check(transition_constant, "confidence_tables")
    reward_constant = _CONSTANT.check(reward_constant, "confidence_tables")
    s = statistics.structure
    estimate = statistics.transition_means()
    homes = _homes(s)
    log_terms = transition_log_terms(s, t, rho)[homes.factor]
    of_cell = statistics.entries.cell_entry
    widths = transition_width(
        estimate, statistics.transition_visits[of_cell], log_terms[of_cell], transition_constant
    )
    reward_widths = reward_width(
        statistics.reward_visits,
        reward_log_terms(s, t, rho)[homes.reward_factor],
        reward_constant,
    )
    reward_widths[statistics.reward_visits == 0] = np.inf
    return tables_of_widths(statistics, estimate, widths, reward_widths)


def all_or_nothing_tables(statistics: Statistics, enough: int) -> OptimisticTables:
    """Return the tables of f-Rmax: entries with `enough` visits as estimated, all others free."""
    widths = all_or_nothing_width(statistics.transition_visits, enough)
    return tables_of_widths(
        statistics,
        statistics.transition_means(),
        widths[statistics.entries.cell_entry],
        all_or_nothing_width(statistics.reward_visits, enough),
    )


def tables_of_widths(
    statistics: Statistics, estimate: Floats, widths: Floats, reward_widths: Floats
) -> OptimisticTables:
    """Return tables for flat arrays of widths over cells and reward entries."""
    return _tables(statistics, estimate - np.minimum(widths, estimate), reward_widths)


def tables_of_boxes(
    statistics: Statistics, lower: Floats, upper: Floats, reward_widths: Floats
) -> OptimisticTables:
    """Return tables with lower <= p <= upper, cut to [0, 1]; rows without visits are free."""
    unseen = (statistics.transition_visits == 0)[statistics.entries.cell_entry]
    lower = np.where(unseen, 0.0, np.maximum(lower, 0.0))
    upper = np.where(unseen, 1.0, np.minimum(upper, 1.0))
    return _tables(statistics, lower, reward_widths, split_cells(statistics.structure, upper))


def tables_of_balls(
    statistics: Statistics, radius: Floats, reward_widths: Floats
) -> OptimisticTables:
    """Return tables with |p - p-hat|_1 <= radius, for flat arrays over entries."""
    s, entries = statistics.structure, statistics.entries
    unseen = statistics.transition_visits == 0
    values = np.diff(entries.first_cell)
    of_cell = entries.cell_entry
    centre = np.where(unseen[of_cell], 1.0 / values[of_cell], statistics.transition_means())
    radius = np.where(
        unseen, 2.0, np.minimum(radius, 2.0)
    )  # no two distributions are farther apart
    half = 0.5 * radius[of_cell]
    lower = np.maximum(centre - half, 0.0)
    return _tables(
        statistics,
        lower,
        reward_widths,
        split_cells(s, np.minimum(centre + half, 1.0)),
        split_cells(s, centre),
        split_transition_entries(s, radius),
    )


def tables_of_divergences(
    statistics: Statistics, radius: Floats, reward_widths: Floats
) -> OptimisticTables:
    """Return tables with KL(p-hat, p) <= radius, for flat arrays over entries."""
    s, entries = statistics.structure, statistics.entries
    unseen, of_cell = statistics.transition_visits == 0, entries.cell_entry
    values = np.diff(entries.first_cell)[of_cell]
    centre = np.where(unseen[of_cell], 1.0 / values, statistics.transition_means())
    radius = np.where(unseen, EVERYTHING, np.minimum(radius, EVERYTHING))
    apart = np.sqrt(0.5 * radius)[of_cell]  # Pinsker's inequality
    lower, upper = np.maximum(centre - apart, 0.0), np.minimum(centre + apart, 1.0)
    pairs = np.flatnonzero(values == 2)
    ends = box_around(centre[pairs].reshape(-1, 2), radius[of_cell[pairs]][::2])
    lower[pairs], upper[pairs] = ends[0].reshape(-1), ends[1].reshape(-1)
    return _tables(
        statistics,
        lower,
        reward_widths,
        split_cells(s, upper),
        split_cells(s, centre),
        split_transition_entries(s, radius),
        distance="kl",
    )


def _tables(
    statistics: Statistics,
    lower: Floats,
    reward_widths: Floats,
    *others: tuple[Floats, ...],
    distance: str = "l1",
) -> OptimisticTables:
    """Return tables with these lower ends; `others` are upper ends, centres and radii."""
    s = statistics.structure
    free = np.maximum(1.0 - np.add.reduceat(lower, statistics.entries.first_cell[:-1]), 0.0)
    return OptimisticTables.trusted(
        s,
        split_cells(s, lower),
        split_transition_entries(s, free),
        split_reward_entries(s, best_rewards(statistics, reward_widths)),
        *others,
        distance=distance,
    )


def best_rewards(statistics: Statistics, widths: Floats) -> Floats:
    """Return min(hi, mean + width * (hi - lo)); the width of an unseen entry must be infinite."""
    lo, hi = statistics.reward_lo, statistics.reward_hi
    # A range of 0 needs no bonus; inf * 0 would be nan.
    bonus = np.multiply(widths, hi - lo, out=np.zeros_like(hi), where=hi > lo)
    rewards: Floats = np.clip(statistics.reward_means() + bonus, lo, hi)
    return rewards
