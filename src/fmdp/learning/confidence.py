"""Confidence sets of a factored MDP: one formula a function, and the tables they make.

Xu & Tewari 2020, Algorithm 1, with t the first step of the episode (counted from 1):

    W_P(s | x) = sqrt(18 P-hat(s | x) log(6 m |S_i| |X[Z_i]| t / rho) / max{1, N_P(x)})
                 + 18 log(6 m |S_i| |X[Z_i]| t / rho) / max{1, N_P(x)}          (delta_p)
    W_R(x) = sqrt(12 log(6 l |X[Z_k]| t / rho) / max{1, N_R(x)})                (delta_r)

Where the structure knows rows to be alike, x is a class of rows and |X[Z_i]| the number of classes
among the rows of factor i (the largest of these numbers, for a class that several factors share;
docs/theory.md has the union bound).

Both are returned uncapped. The set that planning uses is one-sided: P >= P-hat - min(W_P, P-hat)
holds wherever |P - P-hat| <= W_P does. Capping the width first and reading it as two-sided would
lose the truth wherever P-hat = 0 < P. Reward widths are in units of the range hi - lo.
An entry that was never visited says nothing: all its mass is free, its reward is at the top.

Other learners have other formulas, each in its learner's file, for other shapes of sets: a box
around every row (`tables_of_boxes`), or a ball (`tables_of_balls`).
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fmdp._base.portable_math import log
from fmdp.learning.statistics import Statistics
from fmdp.model import OptimisticTables, Structure
from fmdp.model.entries import (
    Index,
    split_cells,
    split_reward_entries,
    split_transition_entries,
)

Floats = NDArray[np.float64]

TRANSITION_CONSTANT = 18.0
REWARD_CONSTANT = 12.0


def transition_log_terms(structure: Structure, t: int, rho: float) -> Floats:
    """log(6 m |S_i| |X[Z_i]| t / rho) of every transition factor: [m]."""
    sizes = np.array(structure.state_sizes, dtype=np.float64)
    terms: Floats = log(6.0 * structure.m * sizes * _homes(structure).n_classes * t / rho)
    return terms


def reward_log_terms(structure: Structure, t: int, rho: float) -> Floats:
    """log(6 l |X[Z_k]| t / rho) of every reward factor: [l]."""
    terms: Floats = log(6.0 * structure.l * _homes(structure).n_reward_classes * t / rho)
    return terms


class _Homes(NamedTuple):
    """How many classes the rows of every factor are in, and whose log term an entry has: of the
    factors that it has rows of, the one with most classes."""

    n_classes: Floats  # [m]
    n_reward_classes: Floats  # [l]
    factor: Index  # [transition entries]
    reward_factor: Index  # [reward entries]


@lru_cache(maxsize=8)  # asked for in every plan
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
        np.array([len(own) for own in classes], dtype=np.float64)
        for classes in (transitions, rewards)
    )
    return _Homes(n_classes, n_rewards, *homes)


class Shares(NamedTuple):
    """Among how many entries a failure probability is divided: m |X[Z_i]| and l |X[Z_k]|."""

    transitions: Floats  # [transition entries]
    rewards: Floats  # [reward entries]


def shares_of(structure: Structure) -> Shares:
    """rho / (m |X[Z_i]|) for every transition entry, and rho / (l |X[Z_k]|) for every reward
    entry, sum to at most rho each; |X[Z_i]| counts classes of alike rows, as everywhere here."""
    homes = _homes(structure)
    return Shares(
        structure.m * homes.n_classes[homes.factor],
        structure.l * homes.n_reward_classes[homes.reward_factor],
    )


def scaled(c: float, widths: Floats) -> Floats:
    """c times every width; what is infinite, because nothing was seen, stays so at c = 0 too."""
    smaller: Floats = np.multiply(c, widths, out=widths.copy(), where=np.isfinite(widths))
    return smaller


def transition_width(
    estimate: ArrayLike,
    visits: ArrayLike,
    log_term: ArrayLike,
    constant: float = TRANSITION_CONSTANT,
) -> Floats:
    """(delta_p) before it is capped at P-hat; broadcasts."""
    rate = constant * np.asarray(log_term) / np.maximum(1, np.asarray(visits))
    width: Floats = np.sqrt(np.asarray(estimate) * rate) + rate
    return width


def reward_width(
    visits: ArrayLike, log_term: ArrayLike, constant: float = REWARD_CONSTANT
) -> Floats:
    """(delta_r); broadcasts."""
    width: Floats = np.sqrt(constant * np.asarray(log_term) / np.maximum(1, np.asarray(visits)))
    return width


def all_or_nothing_width(visits: ArrayLike, enough: int) -> Floats:
    """f-Rmax (Strehl 2007): nothing is known of an entry before `enough` visits, then all."""
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
    """The set of (delta_p) and (delta_r) at step t: what DORL and FSRL plan with."""
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
    """Entries of at least `enough` visits as estimated, all others free: what f-Rmax plans with."""
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
    """OptimisticTables.from_widths for flat arrays over cells and reward entries, all at once."""
    s = statistics.structure
    lower = estimate - np.minimum(widths, estimate)
    return OptimisticTables.trusted(
        s,
        split_cells(s, lower),
        split_transition_entries(s, _free(statistics, lower)),
        split_reward_entries(s, _best_rewards(statistics, reward_widths)),
    )


def tables_of_boxes(
    statistics: Statistics, lower: Floats, upper: Floats, reward_widths: Floats
) -> OptimisticTables:
    """lower <= p <= upper in every cell; both are cut to [0, 1], and a row that was never visited
    may be anything."""
    s = statistics.structure
    unseen = (statistics.transition_visits == 0)[statistics.entries.cell_entry]
    lower = np.where(unseen, 0.0, np.maximum(lower, 0.0))
    upper = np.where(unseen, 1.0, np.minimum(upper, 1.0))
    return OptimisticTables.trusted(
        s,
        split_cells(s, lower),
        split_transition_entries(s, _free(statistics, lower)),
        split_reward_entries(s, _best_rewards(statistics, reward_widths)),
        split_cells(s, upper),
    )


def tables_of_balls(
    statistics: Statistics, radius: Floats, reward_widths: Floats
) -> OptimisticTables:
    """OptimisticTables.from_balls for flat arrays over entries: |p - p-hat|_1 <= radius."""
    s, entries = statistics.structure, statistics.entries
    unseen = statistics.transition_visits == 0
    values = np.diff(entries.first_cell)
    of_cell = entries.cell_entry
    centre = np.where(unseen[of_cell], 1.0 / values[of_cell], statistics.transition_means())
    radius = np.where(unseen, 2.0, np.minimum(radius, 2.0))  # no two distributions are further
    half = 0.5 * radius[of_cell]
    lower = np.maximum(centre - half, 0.0)
    return OptimisticTables.trusted(
        s,
        split_cells(s, lower),
        split_transition_entries(s, _free(statistics, lower)),
        split_reward_entries(s, _best_rewards(statistics, reward_widths)),
        split_cells(s, np.minimum(centre + half, 1.0)),
        split_cells(s, centre),
        split_transition_entries(s, radius),
    )


def _free(statistics: Statistics, lower: Floats) -> Floats:
    sure = np.add.reduceat(lower, statistics.entries.first_cell[:-1])
    free: Floats = np.maximum(1.0 - sure, 0.0)
    return free


def _best_rewards(statistics: Statistics, widths: Floats) -> Floats:
    """min(hi, mean + width * (hi - lo)); widths of what was never seen have to be infinite."""
    lo, hi = statistics.reward_lo, statistics.reward_hi
    # A factor of range 0 is known, whatever its width (inf * 0 is not a number).
    bonus = np.multiply(widths, hi - lo, out=np.zeros_like(hi), where=hi > lo)
    rewards: Floats = np.clip(statistics.reward_means() + bonus, lo, hi)
    return rewards
