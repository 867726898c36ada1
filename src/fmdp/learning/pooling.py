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

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

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
    alone = np.full(n_values, ROW_WEIGHT / n_values)
    if n_rows == 1:
        return Mixture(pools, np.ones((1, n_pools, 1)), (counts + alone)[None])
    visits = counts.sum(axis=-1)
    kappas = np.array(CONCENTRATIONS)[:, None, None]
    first = np.array([FOR_ITSELF, *[(1.0 - FOR_ITSELF) / len(kappas)] * len(kappas)])
    proportions = np.tile(first, (n_factors, 1))  # [factors, C]
    odds = np.repeat(proportions[pools.factor].T[:, :, None], n_rows, axis=2)
    prior = np.empty((len(first), *counts.shape))
    prior[0] = alone
    likelihood = np.empty(odds.shape)
    likelihood[0] = log_likelihood(counts, prior[0])
    prior[1:] = _of_the_others(counts, visits, odds[1:], kappas, alone)
    seen = visits > 0
    for _ in range(ROUNDS):
        likelihood[1:] = log_likelihood(counts, prior[1:])
        odds = likelihood + np.log(proportions[pools.factor].T)[:, :, None]
        odds = np.exp(odds - odds.max(axis=0))
        odds /= odds.sum(axis=0)
        for law, share in enumerate(odds):
            found = np.bincount(pools.factor, (share * seen).sum(axis=1), n_factors)
            proportions[:, law] = found + PRIOR_ROWS * first[law]
        proportions /= proportions.sum(axis=1, keepdims=True)
        prior[1:] = _of_the_others(counts, visits, odds[1:], kappas, alone)
    return Mixture(pools, odds, counts + prior)


def log_likelihood(counts: Floats, parameters: Floats) -> Floats:
    """log of the Dirichlet-multinomial probability of a sequence with these counts; the last axis
    is that of the values. Broadcasts."""
    totals = parameters.sum(axis=-1)
    each: Floats = (gammaln(counts + parameters) - gammaln(parameters)).sum(axis=-1)
    likelihood: Floats = each - (gammaln(counts.sum(axis=-1) + totals) - gammaln(totals))
    return likelihood


def with_uncertain_mean(kappa: Floats, samples: Floats) -> Floats:
    """k with 1 / (k + 1) = 1 / (kappa + 1) + 1 / (samples + 1)."""
    concentration: Floats = 1.0 / (1.0 / (kappa + 1.0) + 1.0 / (samples + 1.0)) - 1.0
    return concentration


def _of_the_others(
    counts: Floats, visits: Floats, odds: Floats, kappas: Floats, alone: Floats
) -> Floats:
    """The prior that every row has from the other rows of its pool, for each kappa: [C - 1, ...]"""
    tells = (odds * (kappas / (visits + kappas))).sum(axis=0)  # [G, K]
    told = tells[..., None] * counts
    others = told.sum(axis=1, keepdims=True) - told + alone
    # What is left of a sum after its largest part is rounding, at worst a little below zero.
    others = np.maximum(others, alone)
    samples = others.sum(axis=-1)
    concentration = with_uncertain_mean(kappas, samples)
    prior: Floats = (concentration / samples)[..., None] * others
    return prior


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
