"""Posterior of rows that differ only in the action, with learned similarity.

An action variable usually matters to few state variables, so most rows P_i(. | z, a) with the same
state part z are equal or nearly so, and a learner that treats each separately has to learn all of
them. Here the similarity is learned. The rows of one z form a pool, and row x of it is

    theta_x ~ Dirichlet(kappa_x mu_z),    kappa_x in {4, 16, 64, 256, 1024},
    theta_x ~ Dirichlet(1/|S_i|, ..., 1/|S_i|),    independent of the pool,

in unknown proportions, initially even odds for "independent". The proportions are learned for each
factor and, around those, for each action of a factor: an action that affects a variable in one
context z affects it in others, too. Empirical Bayes, in rounds: mu_z is estimated from the other
rows of the pool, each weighted by what it tells about mu (N kappa / (N + kappa) samples). The
uncertainty of that estimate, from R samples, reduces kappa, as the variances of the two add:

    1 / (k + 1) = 1 / (kappa + 1) + 1 / (R + 1);

a row's odds for each kappa are its Dirichlet-multinomial likelihoods times the proportions of its
action; these are the mean odds of the action's rows with visits, and of one more row with the mean
odds of the factor. The result for each row is a mixture of six Dirichlet distributions. A sample of
the row itself moves it by at least 1 / (N + 1025): the prior is never stronger than about a
thousand samples, and its influence is O(1 / N).

Rows that the structure knows to be alike are one row here. A class of rows that belongs to several
pools is treated as independent.

Cost: a few passes over the cells, and six Dirichlet-multinomial likelihoods per row and round.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fmdp._base.compiled import njit
from fmdp.learning.statistics import Floats
from fmdp.model import Structure
from fmdp.model.entries import Index, entries_of
from fmdp.model.spaces import count

CONCENTRATIONS = (4.0, 16.0, 64.0, 256.0, 1024.0)
"""kappa: how many samples of a row its pool is worth."""
INDEPENDENT_PRIOR = 0.5
"""Prior probability that a row is independent of its pool."""
PRIOR_ROWS = 2.0
"""Number of rows that the prior odds of a factor count as."""
PRIOR_CONTEXTS = 1.0
"""Number of rows that the proportions of a factor count as among those of one action."""
ROW_WEIGHT = 1.0
"""Total weight of the prior of an independent row, in samples, uniform over the values."""
ROUNDS = 3
"""Rounds of empirical Bayes; each costs six likelihoods per row."""
FACTORS = 40
"""Largest number of factors of a rising factorial that are multiplied; more could overflow."""
SERIES = 16.0
"""From here on four terms of Stirling's series give log Gamma to the last digit."""


class Pools(NamedTuple):
    """Pools of equal shape: G pools of K rows with W values each."""

    rows: Index
    """[G, K]: transition entries."""
    cells: Index
    """[G, K, W]."""
    factor: Index
    """[G]: the (first) factor of the rows."""
    action: Index
    """[G, K]: the action of each row, among those of its factor; 0 if that is not known."""


class Mixture(NamedTuple):
    """The posterior of rows of one shape: a mixture of C Dirichlet distributions for each."""

    pools: Pools
    odds: Floats
    """[C, G, K], summing to 1 over the first axis."""
    parameters: Floats
    """[C, G, K, W]."""

    def mean(self) -> Floats:
        """Return the mean of every row: [G, K, W]."""
        totals = self.parameters.sum(axis=-1)
        mean: Floats = ((self.odds / totals)[..., None] * self.parameters).sum(axis=0)
        return mean

    def moments(self, worth: Floats) -> tuple[Floats, Floats]:
        """Return mean and variance of <theta, worth>, for a worth of every cell [G, K, W]: two
        [G, K]."""
        totals = self.parameters.sum(axis=-1)
        of_law = (self.parameters * worth).sum(axis=-1) / totals
        squares = (self.parameters * worth**2).sum(axis=-1) / totals
        # Var <theta, g> = Var_p(g) / (A + 1) for theta ~ Dirichlet(A p).
        within = np.maximum(squares - of_law**2, 0.0) / (totals + 1.0)
        mean: Floats = (self.odds * of_law).sum(axis=0)
        variance: Floats = (self.odds * (within + (of_law - mean) ** 2)).sum(axis=0)
        return mean, variance


def posterior(
    structure: Structure, cell_counts: NDArray[Any], possible: NDArray[np.bool_] | None = None
) -> Iterator[Mixture]:
    """Yield the posterior of every transition entry, shape by shape.

    `cell_counts` [cells] need not be whole numbers. Cells that are not `possible` get no mass: the
    posterior is conditioned on that.
    """
    for pools in pools_of(structure):
        counts = cell_counts[pools.cells].astype(np.float64)
        mixture = pooled(pools, counts, structure.m)
        if possible is not None:
            mixture = mixture._replace(parameters=mixture.parameters * possible[pools.cells])
        yield mixture


def pooled(pools: Pools, counts: Floats, n_factors: int) -> Mixture:
    """Return the mixture of every row of these pools, from its counts [G, K, W]."""
    n_pools, n_rows, n_values = counts.shape
    if n_rows == 1:
        alone = counts + ROW_WEIGHT / n_values
        return Mixture(pools, np.ones((1, n_pools, 1)), alone[None])
    kappas = np.array(CONCENTRATIONS)
    laws = np.array([INDEPENDENT_PRIOR, *[(1.0 - INDEPENDENT_PRIOR) / len(kappas)] * len(kappas)])
    odds = np.empty((len(laws), n_pools, n_rows))
    parameters = np.empty((len(laws), *counts.shape))
    groups = (pools.factor, pools.action, n_factors)
    _mixtures(counts, groups, kappas, laws, (odds, parameters))
    return Mixture(pools, odds, parameters)


@njit(nogil=True)
def _mixtures(counts: Floats, groups: Any, kappas: Floats, laws: Floats, out: Any) -> None:
    """Fill odds [C, G, K] and parameters [C, G, K, W]; law 0 is "independent"."""
    odds, parameters = out
    factor, action, n_factors = groups
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
    prior = np.empty((n_pools, n_rows, n_values))  # counts of the other rows, plus `alone`
    independent = np.empty((n_pools, n_rows))
    weights, log_odds = np.empty(n_laws), np.empty(n_laws)
    proportions = np.empty((n_factors, n_rows, n_laws))  # of the actions of every factor
    for g in range(n_pools):
        for k in range(n_rows):
            independent[g, k] = log_likelihood(counts[g, k], alone)
            for law in range(n_laws):
                odds[law, g, k] = laws[law]
        _set_prior(g, counts, visits, odds, kappas, prior)
    for f in range(n_factors):
        for k in range(n_rows):
            for law in range(n_laws):
                proportions[f, k, law] = laws[law]
    for _ in range(ROUNDS):
        for g in range(n_pools):
            for k in range(n_rows):
                for law in range(n_laws):
                    log_odds[law] = math.log(proportions[factor[g], action[g, k], law])
                weights[0] = independent[g, k]
                size = _weigh_laws(
                    counts[g, k], prior[g, k], visits[g, k], log_odds, kappas, weights
                )
                for law in range(n_laws):
                    odds[law, g, k] = weights[law] / size
            _set_prior(g, counts, visits, odds, kappas, prior)
        _set_proportions(odds, visits, factor, action, laws, proportions)
    for g in range(n_pools):
        for k in range(n_rows):
            _fill_parameters(counts[g, k], prior[g, k], alone, kappas, parameters[:, g, k])


@njit(nogil=True)
def _set_proportions(
    odds: Floats, visits: Floats, factor: Index, action: Index, laws: Floats, proportions: Floats
) -> None:
    """Set the proportions [factors, actions, laws] to the mean odds of the rows with visits."""
    n_factors, n_actions, n_laws = proportions.shape
    of_factor = np.empty((n_factors, n_laws))
    for f in range(n_factors):
        for law in range(n_laws):
            of_factor[f, law] = PRIOR_ROWS * laws[law]
    for g in range(visits.shape[0]):
        for k in range(visits.shape[1]):
            if visits[g, k] > 0.0:
                for law in range(n_laws):
                    of_factor[factor[g], law] += odds[law, g, k]
    for f in range(n_factors):
        _normalise(of_factor[f])
        for k in range(n_actions):
            for law in range(n_laws):
                proportions[f, k, law] = PRIOR_CONTEXTS * of_factor[f, law]
    for g in range(visits.shape[0]):
        for k in range(visits.shape[1]):
            if visits[g, k] > 0.0:
                for law in range(n_laws):
                    proportions[factor[g], action[g, k], law] += odds[law, g, k]
    for f in range(n_factors):
        for k in range(n_actions):
            _normalise(proportions[f, k])


@njit(nogil=True)
def _normalise(weights: Floats) -> None:
    """Divide the weights by their sum, in place."""
    total = 0.0
    for law in range(weights.size):
        total += weights[law]
    for law in range(weights.size):
        weights[law] /= total


@njit(nogil=True)
def _weigh_laws(
    counts: Floats, prior: Floats, visits: float, log_odds: Floats, kappas: Floats, weights: Floats
) -> float:
    """Replace `weights` by the posterior weights of the laws of one row, and return their sum.

    On entry weights[0] is the log-likelihood of law 0.
    """
    samples = 0.0
    for v in range(counts.size):
        samples += prior[v]
    weights[0] = log_odds[0] + weights[0]
    best = weights[0]
    for law in range(1, weights.size):
        concentration = with_uncertain_mean(kappas[law - 1], samples)
        likelihood = -_log_rising(concentration, visits)
        for v in range(counts.size):
            likelihood += _log_rising(concentration / samples * prior[v], counts[v])
        weights[law] = log_odds[law] + likelihood
        best = max(best, weights[law])
    size = 0.0
    for law in range(weights.size):
        weights[law] = math.exp(weights[law] - best)
        size += weights[law]
    return size


@njit(nogil=True)
def _fill_parameters(
    counts: Floats, prior: Floats, alone: Floats, kappas: Floats, parameters: Floats
) -> None:
    """Fill the Dirichlet parameters [C, W] of one row under every law."""
    samples = 0.0
    for v in range(counts.size):
        samples += prior[v]
    for v in range(counts.size):
        parameters[0, v] = counts[v] + alone[v]
    for law in range(1, parameters.shape[0]):
        scale = with_uncertain_mean(kappas[law - 1], samples) / samples
        for v in range(counts.size):
            parameters[law, v] = counts[v] + scale * prior[v]


@njit(nogil=True)
def _set_prior(
    g: int, counts: Floats, visits: Floats, odds: Floats, kappas: Floats, prior: Floats
) -> None:
    """Set the prior of every row of pool g: what the other rows tell about mu, in samples per
    value."""
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
            # Rounding may leave a difference slightly below 0.
            prior[g, k, v] = max(total[v] - prior[g, k, v], 0.0) + ROW_WEIGHT / n_values


@njit(nogil=True)
def log_likelihood(counts: Floats, parameters: Floats) -> float:
    """Return the log Dirichlet-multinomial probability of a sequence with these counts."""
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
    """Return log of start (start + 1) ... (start + count - 1), or of Gamma(start + count) /
    Gamma(start) if the count is not a whole number."""
    product = 1.0
    if count <= FACTORS and count == int(count):
        for j in range(int(count)):
            product *= start + j
        return math.log(product)
    end = start + count
    while start < SERIES:
        product *= start
        start += 1.0
    while end < SERIES:  # only where counts are faded
        product /= end
        end += 1.0
    return float(math.log(product) + _log_gamma(end) - _log_gamma(start))


@njit(nogil=True)
def _log_gamma(x: float) -> float:
    """Return log Gamma(x) - log(2 pi) / 2 by Stirling's series; 16 digits from SERIES on."""
    y = 1.0 / (x * x)
    series = (1.0 / 12.0 - y * (1.0 / 360.0 - y * (1.0 / 1260.0 - y / 1680.0))) / x
    return (x - 0.5) * math.log(x) - x + series


@njit(nogil=True)
def with_uncertain_mean(kappa: float, samples: float) -> float:
    """Return k with 1 / (k + 1) = 1 / (kappa + 1) + 1 / (samples + 1)."""
    return 1.0 / (1.0 / (kappa + 1.0) + 1.0 / (samples + 1.0)) - 1.0


@lru_cache(maxsize=8)  # used in every plan
def pools_of(structure: Structure) -> tuple[Pools, ...]:
    """Return pools that contain every transition entry once."""
    entries = entries_of(structure)
    shapes: dict[tuple[int, int], list[tuple[Index, Index]]] = {}
    for rows, factor in _groups(structure):
        shape = (rows.shape[1], structure.state_sizes[factor])
        shapes.setdefault(shape, []).append((rows, np.full(len(rows), factor)))
    pools = []
    for (n_rows, n_values), parts in shapes.items():
        rows = np.concatenate([part for part, _ in parts])
        cells = entries.first_cell[rows][..., None] + np.arange(n_values)
        factors = np.concatenate([factor for _, factor in parts])
        actions = np.arange(n_rows)
        if structure.alike is not None:
            actions[:] = 0  # a class of alike rows may contain several actions
        pools.append(Pools(rows, cells, factors, np.tile(actions, (len(rows), 1))))
    return tuple(pools)


def _groups(structure: Structure) -> Iterator[tuple[Index, int]]:
    """Yield arrays [pools, rows per pool] of entries, with their factor."""
    s = structure
    of_factor = []
    for i, scope in enumerate(s.transition_scopes):
        n_actions = count(s.scope_sizes([v for v in scope if s.m <= v < len(s.sizes)]))
        n_derived = count(s.scope_sizes([v for v in scope if v >= len(s.sizes)]))
        # A scope is sorted (states, actions, derived variables), and the last one is fastest.
        rows = s.transition_classes_of(i).reshape(-1, n_actions, n_derived)
        of_factor.append(rows.swapaxes(1, 2).reshape(-1, n_actions))
    if s.alike is None:
        yield from ((rows, i) for i, rows in enumerate(of_factor))
        return
    pools: dict[tuple[int, ...], int] = {}
    for i, table in enumerate(of_factor):
        for row in table:
            pools.setdefault(tuple(np.unique(row).tolist()), i)
    n_pools_of = np.bincount(np.concatenate([np.array(pool) for pool in pools]))
    alone = set(np.flatnonzero(n_pools_of > 1).tolist())
    for pool, factor in pools.items():
        together = [entry for entry in pool if n_pools_of[entry] == 1]
        if together:
            yield np.array([together], dtype=np.int64), factor
        for entry in [entry for entry in pool if entry in alone]:
            alone.remove(entry)
            yield np.array([[entry]], dtype=np.int64), factor
