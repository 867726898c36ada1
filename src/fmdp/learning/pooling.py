"""Compute the posterior of the rows of a model, and learn on the way which rows are alike.

A learner that treats each row separately has to learn all of them, but many are alike. An action
variable usually matters to few state variables, so most rows P_i(. | z, a) with the same context z
are equal or nearly so. And many systems have parts of the same make, whose tables are alike. Here
the similarity is learned. Row x is drawn from one of several laws:

* theta_x ~ Dirichlet(1/|S_i|, ..., 1/|S_i|): it is independent of all others;
* theta_x ~ Dirichlet(kappa mu), where mu is an estimate from the rows of its kind, of any factor
  and action, or from those of them that belong to the same action (kinds.py). The concentration
  kappa is one of a few. The spread of the estimate reduces it, because variances add, nearly:
  1 / (k + 1) = 1 / (kappa + 1) + spread.

The proportions of the laws are unknown. Those of an action are believed to be near those of its
factor, and these near those of all factors of its form: an action that affects a variable in one
context affects it in others, too. Empirical Bayes: a row's odds for each law are its
Dirichlet-multinomial likelihoods times the proportions of its action; these are the mean odds of
the action's rows with visits, and of one more row with the mean odds of the factor. Odds and
proportions are renewed in turn. They have to come near their limit: after a few steps "independent"
still has much of its prior probability, because a row with few visits says little against it, and
then every row is explored for itself for hundreds of steps of a run.

The result for each row is a mixture of Dirichlet distributions. The mean of a row with N samples is
within 128 / (N + 128) of their frequencies: what is learned from other rows is never worth more
than 128 samples. If it could be worth a thousand, rows that are nearly alike, as the good and the
bad action of a JAO copy, would be believed to be alike for too long.

Rows that the structure knows to be alike are one row here, and are compared only with those that
differ in the action alone. A class of rows that belongs to several pools is treated as independent.

Cost: the kinds, a Dirichlet-multinomial likelihood per row and law, and STEPS passes over the odds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fmdp._base.compiled import njit
from fmdp._base.portable_math import exp
from fmdp.learning.dirichlet import log_likelihood
from fmdp.learning.kinds import (
    INDEPENDENT,
    KIND,
    KIND_AND_ACTION,
    Form,
    forms_of,
    forms_of_pools,
    kind_means,
    with_spread,
)
from fmdp.learning.statistics import Floats
from fmdp.model import Structure
from fmdp.model.entries import Index, entries_of
from fmdp.model.spaces import count

CONCENTRATIONS = (16.0, 128.0)
"""How many samples of a row its kind may be worth."""
PRIOR_ODDS = {INDEPENDENT: 5.0, KIND: 1.0, KIND_AND_ACTION: 4.0}
"""Prior odds that a row is independent, and that it is drawn around either mean of kinds.py."""
PRIOR_ROWS = 2.0
"""Number of rows that the prior odds count as in a form, and those of the form in a factor."""
PRIOR_CONTEXTS = 1.0
"""Number of rows that the proportions of a factor count as among those of one action."""
ROW_WEIGHT = 1.0
"""Total weight of the prior of an independent row, in samples, uniform over the values."""
STEPS = 60
"""Renewals of odds and proportions."""


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
    form_of: Index
    """[m]: the form of each factor that has rows here."""
    forms: tuple[Form, ...]
    """Columns that are compared."""


class Laws(NamedTuple):
    """The laws that a row may be drawn from; law 0 is "independent"."""

    odds: Floats
    """[C]: prior probabilities."""
    around: Index
    """[C]: which mean of kinds.py each law is drawn around; INDEPENDENT for law 0."""
    kappa: Floats
    """[C]: its concentration; 0 for law 0."""


class Groups(NamedTuple):
    """Which rows share proportions; only factors with rows here have a number."""

    factor: Index
    """[rows]."""
    action: Index
    """[rows]."""
    form_of: Index
    """[factors]: their forms."""


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

    def believed_alike(self, log_factor: Floats) -> Mixture:
        """Return the mixture with the odds that a row is independent divided by a factor.

        `log_factor` [G, K] has its logarithms.
        """
        odds = self.odds.copy()
        odds[0] *= np.maximum(exp(-log_factor), 1e-300)  # not 0: it may be the only law
        return self._replace(odds=odds / odds.sum(axis=0))

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
        mixture = pooled(pools, counts)
        if possible is not None:
            mixture = mixture._replace(parameters=mixture.parameters * possible[pools.cells])
        yield mixture


def pooled(pools: Pools, counts: Floats) -> Mixture:
    """Return the mixture of every row of these pools, from its counts [G, K, W]."""
    n_pools, n_rows, n_values = counts.shape
    laws = laws_of(pools)
    rows = counts.reshape(-1, n_values)
    odds = np.ones((len(laws.odds), len(rows)))
    parameters = np.empty((len(laws.odds), *rows.shape))
    parameters[0] = rows + ROW_WEIGHT / n_values
    if len(laws.odds) > 1:
        present, factor = np.unique(pools.factor, return_inverse=True)
        groups = Groups(np.repeat(factor, n_rows), pools.action.ravel(), pools.form_of[present])
        _mixtures(rows, groups, laws, *kind_means(pools.forms, rows), odds, parameters)
    shape = (-1, n_pools, n_rows)
    return Mixture(pools, odds.reshape(shape), parameters.reshape(*shape, n_values))


def laws_of(pools: Pools) -> Laws:
    """Return the laws that rows of these pools may be drawn from."""
    laws = [(PRIOR_ODDS[INDEPENDENT], INDEPENDENT, 0.0)]
    if any(len(form.actions) > 1 for form in pools.forms):
        share = 1.0 / len(CONCENTRATIONS)
        for mean in (KIND, KIND_AND_ACTION):
            laws += [(PRIOR_ODDS[mean] * share, mean, kappa) for kappa in CONCENTRATIONS]
    odds, means, kappas = (np.array(column) for column in zip(*laws, strict=True))
    return Laws(odds / odds.sum(), means, kappas)


@njit(nogil=True)
def _mixtures(
    counts: Floats,
    groups: Groups,
    laws: Laws,
    means: Floats,
    spreads: Floats,
    odds: Floats,
    parameters: Floats,
) -> None:
    """Fill odds [C, rows] and parameters [C, rows, W] from counts [rows, W]; those of law 0 are
    filled already.

    `means` and `spreads` are those of kinds.py.
    """
    n_laws, n_rows, n_values = parameters.shape
    visits = np.zeros(n_rows)
    likely = np.zeros((n_rows, n_laws))
    start = np.empty(n_values)  # parameters without the counts
    for row in range(n_rows):
        for v in range(n_values):
            visits[row] += counts[row, v]
        for law in range(n_laws):
            start[:] = ROW_WEIGHT / n_values
            if law > 0:
                mean = laws.around[law]
                concentration = with_spread(laws.kappa[law], spreads[mean, row])
                for v in range(n_values):
                    start[v] = concentration * means[mean, row, v]
                    parameters[law, row, v] = counts[row, v] + start[v]
            if visits[row] > 0.0:
                likely[row, law] = log_likelihood(counts[row], start)
    weights = np.empty((n_rows, n_laws))
    _renew(likely, visits, groups, laws.odds, weights)
    for row in range(n_rows):
        for law in range(n_laws):
            odds[law, row] = weights[row, law]


@njit(nogil=True)
def _renew(likely: Floats, visits: Floats, groups: Groups, prior: Floats, weights: Floats) -> None:
    """Fill the odds `weights` [rows, C] from the log-likelihoods of the rows and `prior` odds [C].

    On return `likely` has likelihoods, the largest one of each row 1.
    """
    factor, action = groups.factor, groups.action
    n_rows, n_laws = likely.shape
    for row in range(n_rows):
        best = likely[row].max()
        for law in range(n_laws):
            likely[row, law] = math.exp(likely[row, law] - best)
    proportions = np.empty((groups.form_of.size, action.max() + 1, n_laws))
    proportions[:] = prior
    for _ in range(STEPS):
        for row in range(n_rows):
            for law in range(n_laws):
                weights[row, law] = likely[row, law] * proportions[factor[row], action[row], law]
            _normalise(weights[row])
        _set_proportions(weights, visits, groups, prior, proportions)


@njit(nogil=True)
def _set_proportions(
    weights: Floats, visits: Floats, groups: Groups, prior: Floats, proportions: Floats
) -> None:
    """Set the proportions [factors, actions, C] to the mean odds of the rows with visits."""
    factor, action, form_of = groups.factor, groups.action, groups.form_of
    n_factors, n_actions, n_laws = proportions.shape
    of_form = np.empty((form_of.max() + 1, n_laws))
    of_factor = np.zeros((n_factors, n_laws))
    of_action = np.zeros((n_factors, n_actions, n_laws))
    for row in range(visits.size):
        if visits[row] > 0.0:
            for law in range(n_laws):
                of_action[factor[row], action[row], law] += weights[row, law]
    of_form[:] = PRIOR_ROWS * prior
    for f in range(n_factors):
        for k in range(n_actions):
            for law in range(n_laws):
                of_factor[f, law] += of_action[f, k, law]
        for law in range(n_laws):
            of_form[form_of[f], law] += of_factor[f, law]
    for form in range(of_form.shape[0]):
        _normalise(of_form[form])
    for f in range(n_factors):
        for law in range(n_laws):
            of_factor[f, law] += PRIOR_ROWS * of_form[form_of[f], law]
        _normalise(of_factor[f])
        for k in range(n_actions):
            for law in range(n_laws):
                proportions[f, k, law] = of_action[f, k, law] + PRIOR_CONTEXTS * of_factor[f, law]
            _normalise(proportions[f, k])


@njit(nogil=True)
def _normalise(weights: Floats) -> None:
    """Divide the weights by their sum."""
    total = 0.0
    for law in range(weights.size):
        total += weights[law]
    for law in range(weights.size):
        weights[law] /= total


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
        actions = np.tile(np.arange(n_rows), (len(rows), 1))
        if structure.alike is None:
            forms, form_of = forms_of(structure, factors, n_rows)
        else:
            actions[:] = 0  # a class of alike rows may contain several actions
            forms, form_of = forms_of_pools(len(rows), n_rows), np.zeros(structure.m, np.int64)
        pools.append(Pools(rows, cells, factors, actions, form_of, forms))
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
