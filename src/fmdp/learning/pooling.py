"""Posterior of the rows of a factor that differ in the action alone: how alike are they?

An action variable usually matters to few state variables, so most rows P_i(. | z, a) with the same
state part z are the same or nearly so, and a learner that takes each for itself has to learn all of
them. Nobody says which; here it is learned. The rows of one z are a pool, and row x of it is

    theta_x ~ Dirichlet(kappa_x mu_z),    kappa_x in {4, 16, 64, 256, 1024},
    theta_x ~ Dirichlet(1/|S_i|, ..., 1/|S_i|),    the row for itself,

in proportions that are one unknown distribution for each factor, even odds for "for itself" at
first. Empirical Bayes, in rounds: mu_z is estimated from the other rows of the pool, each counted
as often as it tells of mu (N kappa / (N + kappa) samples); the uncertainty of that estimate, from R
samples, is put into kappa, as the variances of the two add:

    1 / (k + 1) = 1 / (kappa + 1) + 1 / (R + 1);

a row's odds for each kappa are its Dirichlet-multinomial likelihoods times the proportions; the
proportions are the mean odds of the rows that were seen. The result for each row is a mixture of
six Dirichlet laws. An own sample moves it by at least 1 / (N + 1025): what is assumed is never
stronger than a thousand samples, and is forgotten like O(1 / N).

Rows that the structure knows to be alike are one row here. A class of rows that stands in several
pools is in none: where it belongs was said.

Cost: a few passes over the cells, six Dirichlet-multinomial likelihoods a row and round.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fmdp._base.compiled import njit
from fmdp.learning.statistics import Statistics
from fmdp.model import Structure
from fmdp.model.entries import Index, entries_of

Floats = NDArray[np.float64]

CONCENTRATIONS = (4.0, 16.0, 64.0, 256.0, 1024.0)
"""kappa: how many samples of a row its pool is worth."""
FOR_ITSELF = 0.5
"""The odds, before anything is seen, that a row has nothing to do with its pool."""
PRIOR_ROWS = 2.0
"""How many rows the first odds of a factor count as."""
ROW_WEIGHT = 1.0
"""Of the prior of a row for itself, in samples, evenly on the values."""
ROUNDS = 3
FACTORS = 40
"""Up to so many the rising factorial is multiplied out; more of them could overflow."""
SERIES = 16.0
"""From here on four terms of Stirling's series are log Gamma to the last digit."""


class Pools(NamedTuple):
    """Pools of one shape: G pools of K rows with W values each."""

    rows: Index
    """[G, K]: transition entries."""
    cells: Index
    """[G, K, W]."""
    factor: Index
    """[G]: the (first) factor whose rows these are."""


class Mixture(NamedTuple):
    """The posterior of rows of one shape: a mixture of C Dirichlet laws for each."""

    pools: Pools
    odds: Floats
    """[C, G, K], summing to 1 over the first axis."""
    parameters: Floats
    """[C, G, K, W]."""

    def mean(self) -> Floats:
        """Of every row: [G, K, W]."""
        totals = self.parameters.sum(axis=-1)
        mean: Floats = ((self.odds / totals)[..., None] * self.parameters).sum(axis=0)
        return mean

    def moments(self, worth: Floats) -> tuple[Floats, Floats]:
        """Mean and variance of <theta, worth>, for a worth of every cell [G, K, W]: two [G, K]."""
        totals = self.parameters.sum(axis=-1)
        of_law = (self.parameters * worth).sum(axis=-1) / totals
        squares = (self.parameters * worth**2).sum(axis=-1) / totals
        # Var <theta, g> = Var_p(g) / (A + 1) for theta ~ Dirichlet(A p).
        within = np.maximum(squares - of_law**2, 0.0) / (totals + 1.0)
        mean: Floats = (self.odds * of_law).sum(axis=0)
        variance: Floats = (self.odds * (within + (of_law - mean) ** 2)).sum(axis=0)
        return mean, variance


def posterior(statistics: Statistics) -> Iterator[Mixture]:
    """The posterior of every transition entry, shape by shape."""
    structure = statistics.structure
    for pools in pools_of(structure):
        counts = statistics.cell_counts[pools.cells].astype(np.float64)
        yield pooled(pools, counts, structure.m)


def pooled(pools: Pools, counts: Floats, n_factors: int) -> Mixture:
    """The mixture of every row of these pools, from its counts [G, K, W]."""
    n_pools, n_rows, n_values = counts.shape
    if n_rows == 1:
        alone = counts + ROW_WEIGHT / n_values
        return Mixture(pools, np.ones((1, n_pools, 1)), alone[None])
    kappas = np.array(CONCENTRATIONS)
    laws = np.array([FOR_ITSELF, *[(1.0 - FOR_ITSELF) / len(kappas)] * len(kappas)])
    odds = np.empty((len(laws), n_pools, n_rows))
    parameters = np.empty((len(laws), *counts.shape))
    _mixtures(counts, pools.factor, n_factors, kappas, laws, (odds, parameters))
    return Mixture(pools, odds, parameters)


@njit(nogil=True)
def _mixtures(
    counts: Floats, factor: Index, n_factors: int, kappas: Floats, laws: Floats, found: Any
) -> None:
    """Fill odds [C, G, K] and parameters [C, G, K, W]; law 0 is "for itself"."""
    odds, parameters = found
    n_pools, n_rows, n_values = counts.shape
    n_laws = laws.shape[0]
    alone = np.empty(n_values)
    for v in range(n_values):
        alone[v] = ROW_WEIGHT / n_values
    # Loops and not NumPy's sums: those take two seconds to compile.
    visits = np.zeros((n_pools, n_rows))
    for g in range(n_pools):
        for k in range(n_rows):
            for v in range(n_values):
                visits[g, k] += counts[g, k, v]
    prior = np.empty((n_pools, n_rows, n_values))  # counts of the others, and `alone`
    for_itself = np.empty((n_pools, n_rows))
    own, log_odds = np.empty(n_laws), np.empty(n_laws)
    proportions = np.empty((n_factors, n_laws))
    shares = np.empty((n_factors, n_laws))
    for g in range(n_pools):
        for k in range(n_rows):
            for_itself[g, k] = log_likelihood(counts[g, k], alone)
            for law in range(n_laws):
                odds[law, g, k] = laws[law]
        _of_the_others(g, counts, visits, odds, kappas, prior)
    for f in range(n_factors):
        for law in range(n_laws):
            proportions[f, law] = laws[law]
    for _ in range(ROUNDS):
        for f in range(n_factors):
            for law in range(n_laws):
                shares[f, law] = PRIOR_ROWS * laws[law]
        for g in range(n_pools):
            for law in range(n_laws):
                log_odds[law] = math.log(proportions[factor[g], law])
            for k in range(n_rows):
                samples = 0.0
                for v in range(n_values):
                    samples += prior[g, k, v]
                own[0] = log_odds[0] + for_itself[g, k]
                best = own[0]
                for law in range(1, n_laws):
                    concentration = with_uncertain_mean(kappas[law - 1], samples)
                    likelihood = -_log_rising(concentration, visits[g, k])
                    for v in range(n_values):
                        likelihood += _log_rising(
                            concentration / samples * prior[g, k, v], counts[g, k, v]
                        )
                    own[law] = log_odds[law] + likelihood
                    best = max(best, own[law])
                size = 0.0
                for law in range(n_laws):
                    own[law] = math.exp(own[law] - best)
                    size += own[law]
                for law in range(n_laws):
                    odds[law, g, k] = own[law] / size
                    if visits[g, k] > 0.0:
                        shares[factor[g], law] += own[law] / size
            _of_the_others(g, counts, visits, odds, kappas, prior)
        for f in range(n_factors):
            total = 0.0
            for law in range(n_laws):
                total += shares[f, law]
            for law in range(n_laws):
                proportions[f, law] = shares[f, law] / total
    for g in range(n_pools):
        for k in range(n_rows):
            samples = 0.0
            for v in range(n_values):
                samples += prior[g, k, v]
            for v in range(n_values):
                parameters[0, g, k, v] = counts[g, k, v] + alone[v]
            for law in range(1, n_laws):
                scale = with_uncertain_mean(kappas[law - 1], samples) / samples
                for v in range(n_values):
                    parameters[law, g, k, v] = counts[g, k, v] + scale * prior[g, k, v]


@njit(nogil=True)
def _of_the_others(
    g: int, counts: Floats, visits: Floats, odds: Floats, kappas: Floats, prior: Floats
) -> None:
    """What every row of pool g hears of mu from the other rows, in samples of each value."""
    n_rows, n_values = counts.shape[1:]
    total = np.zeros(n_values)
    for k in range(n_rows):
        tells = 0.0
        for c in range(kappas.shape[0]):
            tells += odds[c + 1, g, k] * (kappas[c] / (visits[g, k] + kappas[c]))
        for v in range(n_values):
            prior[g, k, v] = tells * counts[g, k, v]
            total[v] += prior[g, k, v]
    for k in range(n_rows):
        for v in range(n_values):
            # What is left of a sum after its largest part is rounding, at worst a little below 0.
            prior[g, k, v] = max(total[v] - prior[g, k, v], 0.0) + ROW_WEIGHT / n_values


@njit(nogil=True)
def log_likelihood(counts: Floats, parameters: Floats) -> float:
    """log of the Dirichlet-multinomial probability of a sequence with these counts."""
    total = visits = 0.0
    for v in range(counts.shape[0]):
        total += parameters[v]
        visits += counts[v]
    likelihood = -_log_rising(total, visits)
    for v in range(counts.shape[0]):
        likelihood += _log_rising(parameters[v], counts[v])
    return float(likelihood)


@njit(nogil=True)
def _log_rising(start: float, count: float) -> float:
    """log of start (start + 1) ... (start + count - 1), the one function of all likelihoods."""
    product = 1.0
    if count <= FACTORS:
        for j in range(int(count)):
            product *= start + j
        return math.log(product)
    end = start + count
    while start < SERIES:
        product *= start
        start += 1.0
    return float(math.log(product) + _log_gamma(end) - _log_gamma(start))


@njit(nogil=True)
def _log_gamma(x: float) -> float:
    """log Gamma(x) less log(2 pi) / 2, by Stirling's series; to 16 digits from SERIES on."""
    y = 1.0 / (x * x)
    series = (1.0 / 12.0 - y * (1.0 / 360.0 - y * (1.0 / 1260.0 - y / 1680.0))) / x
    return (x - 0.5) * math.log(x) - x + series


@njit(nogil=True)
def with_uncertain_mean(kappa: float, samples: float) -> float:
    """k with 1 / (k + 1) = 1 / (kappa + 1) + 1 / (samples + 1)."""
    return 1.0 / (1.0 / (kappa + 1.0) + 1.0 / (samples + 1.0)) - 1.0


@lru_cache(maxsize=8)  # asked for in every plan
def pools_of(structure: Structure) -> tuple[Pools, ...]:
    """All transition entries, each in one pool."""
    entries = entries_of(structure)
    shapes: dict[tuple[int, int], list[tuple[Index, Index]]] = {}
    for rows, factor in _groups(structure):
        shape = (rows.shape[1], structure.state_sizes[factor])
        shapes.setdefault(shape, []).append((rows, np.full(len(rows), factor)))
    found = []
    for (_, n_values), parts in shapes.items():
        rows = np.concatenate([part for part, _ in parts])
        cells = entries.first_cell[rows][..., None] + np.arange(n_values)
        found.append(Pools(rows, cells, np.concatenate([factor for _, factor in parts])))
    return tuple(found)


def _groups(structure: Structure) -> Iterator[tuple[Index, int]]:
    """Arrays [pools, rows of each] of entries, with their factor."""
    s = structure
    of_factor = []
    for i, scope in enumerate(s.transition_scopes):
        n_actions = int(np.prod([s.sizes[v] for v in scope if v >= s.m], dtype=np.int64))
        # State variables come first in a scope, and the last variable is fastest.
        of_factor.append(s.transition_classes_of(i).reshape(-1, n_actions))
    if s.alike is None:
        yield from ((rows, i) for i, rows in enumerate(of_factor))
        return
    pools: dict[tuple[int, ...], int] = {}
    for i, table in enumerate(of_factor):
        for row in table:
            pools.setdefault(tuple(np.unique(row).tolist()), i)
    stands_in = np.bincount(np.concatenate([np.array(pool) for pool in pools]))
    alone = set(np.flatnonzero(stands_in > 1).tolist())
    for pool, factor in pools.items():
        together = [entry for entry in pool if stands_in[entry] == 1]
        if together:
            yield np.array([together], dtype=np.int64), factor
        for entry in [entry for entry in pool if entry in alone]:
            alone.remove(entry)
            yield np.array([[entry]], dtype=np.int64), factor
