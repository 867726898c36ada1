"""Confidence sets of a factored MDP: one formula a function, and the tables they make.

Xu & Tewari 2020, Algorithm 1, with t the first step of the episode (counted from 1):

    W_P(s | x) = sqrt(18 P-hat(s | x) log(6 m |S_i| |X[Z_i]| t / rho) / max{1, N_P(x)})
                 + 18 log(6 m |S_i| |X[Z_i]| t / rho) / max{1, N_P(x)}          (delta_p)
    W_R(x) = sqrt(12 log(6 l |X[Z_k]| t / rho) / max{1, N_R(x)})                (delta_r)

Both are returned uncapped. The set that planning uses is one-sided: P >= P-hat - min(W_P, P-hat)
holds wherever |P - P-hat| <= W_P does. Capping the width first and reading it as two-sided would
lose the truth wherever P-hat = 0 < P. Reward widths are in units of the range hi - lo.
An entry that was never visited says nothing: all its mass is free, its reward is at the top.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fmdp.learning.statistics import Statistics
from fmdp.model import OptimisticTables, Structure
from fmdp.model.entries import split_cells, split_rows

Floats = NDArray[np.float64]

TRANSITION_CONSTANT = 18.0
REWARD_CONSTANT = 12.0


def transition_log_terms(structure: Structure, t: int, rho: float) -> Floats:
    """log(6 m |S_i| |X[Z_i]| t / rho) of every transition factor: [m]."""
    sizes = np.array(structure.state_sizes, dtype=np.float64)
    rows = np.array(structure.transition_rows, dtype=np.float64)
    terms: Floats = np.log(6.0 * structure.m * sizes * rows * t / rho)
    return terms


def reward_log_terms(structure: Structure, t: int, rho: float) -> Floats:
    """log(6 l |X[Z_k]| t / rho) of every reward factor: [l]."""
    rows = np.array(structure.reward_rows, dtype=np.float64)
    terms: Floats = np.log(6.0 * structure.l * rows * t / rho)
    return terms


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
    log_terms = np.repeat(transition_log_terms(s, t, rho), _numbers(s.transition_rows))
    of_cell = statistics.entries.cell_entry
    widths = transition_width(
        estimate, statistics.transition_visits[of_cell], log_terms[of_cell], transition_constant
    )
    reward_widths = reward_width(
        statistics.reward_visits,
        np.repeat(reward_log_terms(s, t, rho), _numbers(s.reward_rows)),
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
    s, entries = statistics.structure, statistics.entries
    lower = estimate - np.minimum(widths, estimate)
    free = np.maximum(1.0 - np.add.reduceat(lower, entries.first_cell[:-1]), 0.0)
    lo, hi = statistics.reward_lo, statistics.reward_hi
    # A factor of range 0 is known, whatever its width (inf * 0 is not a number).
    bonus = np.multiply(reward_widths, hi - lo, out=np.zeros_like(hi), where=hi > lo)
    rewards = np.clip(statistics.reward_means() + bonus, lo, hi)
    return OptimisticTables.trusted(
        s,
        split_cells(s, lower),
        split_rows(s.transition_rows, free),
        split_rows(s.reward_rows, rewards),
    )


def _numbers(rows: tuple[int, ...]) -> NDArray[np.int64]:
    return np.array(rows, dtype=np.int64)  # of no factors too, which NumPy would take for floats
