"""Sort the columns of tables into kinds that are alike, across factors and actions.

The *column* of a factor and an action is the rows of that action: one row per context, where a
context is one assignment of the other variables in the scope. Many systems have parts of the same
make. "Restart machine 3" does to machine 3 what "restart machine 5" does to machine 5, and every
other action leaves both machines alone. So the columns of such a system are of two *kinds*, and
columns of one kind have the same rows, or nearly so. Nobody tells the learner. Here columns are
sorted into kinds by what was counted:

* Columns are compared if their factors have the same *form*: the same number of values, parents of
  the same sizes, and action variables of the same sizes. Parents are taken in the cyclic order that
  begins with the variable itself, so that in a ring every machine has its neighbour second. Actions
  are known by their number among the actions of the factor.
* A column joins a kind with n columns with prior odds n, and forms a new kind with prior odds 1.
  Rows of one kind in one context are equal, with a Dirichlet(1/W, ..., 1/W) prior. The columns are
  assigned one by one, those with most visits first, and then every column is taken out and
  assigned again, PASSES times. Of equal columns the first one comes first. At most KINDS kinds are
  formed; a column that fits none of them is of no kind.

Then two means are estimated for each row, each with a spread. Both average over the kinds that the
column may belong to. The first mean is that of the kind. The second one keeps to the columns of the
kind that belong to the same action, if there are any: a kind may contain columns that differ a
little, and then those of one action are more alike, as in copies of one problem. Their mean is
believed to lie around that of the kind with concentration AROUND_KIND.

The counts of a column are left out of the means of its own rows. But they decide which kinds it may
belong to, so a row has some influence on its means: one sample that fits a kind speaks for that
kind. The kinds of a column without counts have odds in proportion to their sizes.

The spread of a mean is its variance, relative to the largest one that a law with this mean can
have. It is that of a Dirichlet law with as many samples as the mean comes from, plus that between
the kinds.

Cost: a few likelihoods for every column, kind and context.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from fmdp._base.compiled import njit
from fmdp.learning.dirichlet import log_likelihood
from fmdp.learning.statistics import Floats
from fmdp.model import Structure
from fmdp.model.entries import Index
from fmdp.model.spaces import all_assignments, strides

KINDS = 16
"""Largest number of kinds among the columns of one form."""
PASSES = 2
"""How often every column is assigned again."""
AROUND_KIND = 16.0
"""How many samples of the columns of one action their kind is worth."""
LEAST_CONCENTRATION = 0.01
"""Smallest concentration: below it, nearly all mass is on rows with one value."""
INDEPENDENT, KIND, KIND_AND_ACTION = -1, 0, 1
"""What a row is drawn around: nothing, or one of the two means."""


class Form(NamedTuple):
    """The columns of all factors of one form, in pools of one shape."""

    rows: Index
    """[columns, contexts]: places of the rows, pool by pool."""
    actions: Index
    """[columns]: the action of each column, among those of its factor."""


def forms_of(
    structure: Structure, factors: Index, n_actions: int
) -> tuple[tuple[Form, ...], Index]:
    """Return the forms of `factors`, and the form of each factor of the structure: [m].

    `factors` has the factor of every pool. The pools of a factor follow one another, one pool per
    context in lexicographic order, with one row per action each.
    """
    members: dict[Any, list[Index]] = {}
    form_of = np.zeros(structure.m, dtype=np.int64)
    for factor in dict.fromkeys(factors.tolist()):
        key, contexts = _contexts_of(structure, factor)
        pools = np.flatnonzero(factors == factor)
        in_order = np.empty_like(pools)
        in_order[contexts] = pools
        columns = members.setdefault(key, [])
        form_of[factor] = list(members).index(key)
        columns.append(in_order * n_actions + np.arange(n_actions)[:, None])
    forms = []
    for columns in members.values():
        actions = np.tile(np.arange(n_actions), len(columns))
        forms.append(Form(np.concatenate(columns), actions))
    return tuple(forms), form_of


def _contexts_of(structure: Structure, factor: int) -> tuple[Any, Index]:
    """Return the form of a factor, and the number of each of its contexts among those of the form.

    A scope is sorted, so contexts are numbered by state variables in their order, then by derived
    variables. The contexts of the form have the state variables in cyclic order.
    """
    s, scope = structure, structure.transition_scopes[factor]
    states = [v for v in scope if v < s.m]
    derived = [v for v in scope if v >= len(s.sizes)]
    actions = [v for v in scope if s.m <= v < len(s.sizes)]
    cyclic = sorted(states, key=lambda v: (v - factor) % s.m) + derived
    sizes = s.scope_sizes(cyclic)
    step = dict(zip(cyclic, strides(sizes), strict=True))
    values = all_assignments(s.scope_sizes([*states, *derived]))
    contexts: Index = values @ np.array([step[v] for v in [*states, *derived]], dtype=np.int64)
    own = s.state_sizes[factor], factor in states
    return (own, tuple(sizes), len(derived), tuple(s.scope_sizes(actions))), contexts


def forms_of_pools(n_pools: int, n_rows: int) -> tuple[Form, ...]:
    """Return every pool as a form of its own, with one context: only its own rows are compared."""
    return tuple(
        Form(pool * n_rows + np.arange(n_rows)[:, None], np.arange(n_rows))
        for pool in range(n_pools)
    )


def kind_means(forms: tuple[Form, ...], counts: Floats) -> tuple[Floats, Floats]:
    """Return the means [2, rows, values] and spreads [2, rows] of every row.

    `counts` has the counts of the rows, pool by pool: [rows, values].
    """
    n_rows, n_values = counts.shape
    means = np.empty((2, n_rows, n_values))
    spreads = np.empty((2, n_rows))
    for form in forms:
        columns = counts[form.rows]
        # Stable sorts: equal counts give equal kinds on every machine.
        kind = kinds_of(columns, np.argsort(-columns.sum(axis=(1, 2)), kind="stable"))
        by_action = np.argsort(form.actions, kind="stable")
        _fill_means(columns, kind, form, by_action, means, spreads)
    return means, spreads


@njit(nogil=True)
def kinds_of(columns: Floats, order: Index) -> Index:
    """Return the kind of every column, -1 for none: [columns], from counts [columns, contexts,
    values], assigned in this order."""
    n_columns, n_contexts, n_values = columns.shape
    n_kinds = min(KINDS, n_columns)
    kind = np.full(n_columns, -1)
    totals = np.zeros((n_kinds, n_contexts, n_values))
    known = np.zeros((n_kinds, n_contexts))
    sizes = np.zeros(n_kinds)
    scores = np.empty(n_kinds + 1)
    for _ in range(1 + PASSES):
        for column in order:
            if columns[column].sum() == 0.0:
                continue
            if kind[column] >= 0:
                _move(columns[column], -1.0, kind[column], totals, known, sizes)
            _score(columns[column], totals, known, sizes, scores)
            best, free = n_kinds, -1
            for k in range(n_kinds):
                if sizes[k] == 0.0 and free < 0:
                    free = k
                if sizes[k] > 0.0 and scores[k] > scores[best]:
                    best = k
            kind[column] = free if best == n_kinds else best
            if kind[column] >= 0:
                _move(columns[column], 1.0, kind[column], totals, known, sizes)
    return kind


@njit(nogil=True)
def _fill_means(
    columns: Floats, kind: Index, form: Form, by_action: Index, means: Floats, spreads: Floats
) -> None:
    """Fill the means and spreads of the rows of one form; `by_action` sorts its columns."""
    n_columns, n_contexts, n_values = columns.shape
    n_kinds = min(KINDS, n_columns)
    totals = np.zeros((n_kinds, n_contexts, n_values))
    same = np.empty((n_kinds, n_contexts, n_values))  # of the columns of one action
    known = np.zeros((n_kinds, n_contexts))
    sizes = np.zeros(n_kinds)
    for column in range(n_columns):
        if kind[column] >= 0:
            _move(columns[column], 1.0, kind[column], totals, known, sizes)
    odds = np.empty(n_kinds + 1)
    centre = np.empty((2, n_kinds, n_values))
    first = 0
    while first < n_columns:
        end = first
        same[:] = 0.0
        while end < n_columns and form.actions[by_action[end]] == form.actions[by_action[first]]:
            if kind[by_action[end]] >= 0:
                _add(columns[by_action[end]], 1.0, same[kind[by_action[end]]])
            end += 1
        for column in by_action[first:end]:
            k = kind[column]
            if k >= 0:
                _move(columns[column], -1.0, k, totals, known, sizes)
                _add(columns[column], -1.0, same[k])
            _score(columns[column], totals, known, sizes, odds)
            _to_odds(odds[:n_kinds])
            for z in range(n_contexts):
                row = form.rows[column, z]
                _fill_row(
                    odds[:n_kinds], totals[:, z], same[:, z], centre, means[:, row], spreads[:, row]
                )
            if k >= 0:
                _move(columns[column], 1.0, k, totals, known, sizes)
                _add(columns[column], 1.0, same[k])
        first = end


@njit(nogil=True)
def _to_odds(scores: Floats) -> None:
    """Replace log odds by probabilities; all are 0 if all kinds are empty."""
    best = scores.max()
    total = 0.0
    for k in range(scores.size):
        scores[k] = math.exp(scores[k] - best) if scores[k] > -np.inf else 0.0
        total += scores[k]
    for k in range(scores.size):
        if total > 0.0:
            scores[k] /= total


@njit(nogil=True)
def _fill_row(
    odds: Floats, totals: Floats, same: Floats, centre: Floats, means: Floats, spreads: Floats
) -> None:
    """Fill the means [2, values] and spreads [2] of one row.

    `totals` and `same` have the counts of each kind in its context, of all actions and of the same
    action: [kinds, values]. `centre` [2, kinds, values] is for the means of the kinds. If no other
    column has counts, the mean is uniform and the spread that of one sample.
    """
    n_values = totals.shape[1]
    known = odds.sum() > 0.0
    means[:] = 0.0 if known else 1.0 / n_values
    spreads[:] = 0.0 if known else 0.5
    for k in range(odds.size):
        if odds[k] == 0.0:
            continue
        of_all = 1.0  # samples of the kind, and one for its prior
        of_action = 0.0
        for v in range(n_values):
            of_all += totals[k, v]
            of_action += same[k, v]
        weight = with_spread(AROUND_KIND, 1.0 / (of_all + 1.0)) if of_action > 0.0 else of_all
        for v in range(n_values):
            of_kind = (totals[k, v] + 1.0 / n_values) / of_all
            centre[KIND, k, v] = of_kind
            centre[KIND_AND_ACTION, k, v] = (same[k, v] + weight * of_kind) / (of_action + weight)
            for which in range(2):
                means[which, v] += odds[k] * centre[which, k, v]
        spreads[KIND] += odds[k] / (of_all + 1.0)
        spreads[KIND_AND_ACTION] += odds[k] / (of_action + weight + 1.0)
    for which in range(2):
        largest = 1.0
        between = 0.0
        for v in range(n_values):
            largest -= means[which, v] ** 2
            for k in range(odds.size):
                if odds[k] > 0.0:
                    between += odds[k] * (centre[which, k, v] - means[which, v]) ** 2
        if largest > 1e-12:
            spreads[which] += between / largest


@njit(nogil=True)
def _score(column: Floats, totals: Floats, known: Floats, sizes: Floats, scores: Floats) -> None:
    """Set the log odds that a column belongs to each kind, and last that it is of a new one.

    `known` has the log-likelihoods of the totals [kinds, contexts].
    """
    n_contexts, n_values = column.shape
    n_kinds = sizes.size
    prior = np.full(n_values, 1.0 / n_values)
    together = np.empty(n_values)
    scores[n_kinds] = 0.0
    for k in range(n_kinds):
        scores[k] = math.log(sizes[k]) if sizes[k] > 0.0 else -np.inf
    for z in range(n_contexts):
        if column[z].sum() == 0.0:
            continue
        scores[n_kinds] += log_likelihood(column[z], prior)
        for k in range(n_kinds):
            if sizes[k] > 0.0:
                for v in range(n_values):
                    together[v] = totals[k, z, v] + column[z, v]
                scores[k] += log_likelihood(together, prior) - known[k, z]


@njit(nogil=True)
def _move(
    column: Floats, sign: float, k: int, totals: Floats, known: Floats, sizes: Floats
) -> None:
    """Add a column to kind k, or take it out if the sign is -1."""
    n_values = column.shape[1]
    prior = np.full(n_values, 1.0 / n_values)
    sizes[k] += sign
    _add(column, sign, totals[k])
    for z in range(column.shape[0]):
        if column[z].sum() > 0.0:
            known[k, z] = log_likelihood(totals[k, z], prior)


@njit(nogil=True)
def _add(column: Floats, sign: float, totals: Floats) -> None:
    """Add the counts of a column to `totals`, or take them out if the sign is -1."""
    for z in range(column.shape[0]):
        for v in range(column.shape[1]):
            # Counts that fade are not whole numbers: rounding may leave less than 0.
            totals[z, v] = max(totals[z, v] + sign * column[z, v], 0.0)


@njit(nogil=True)
def with_spread(kappa: float, spread: float) -> float:
    """Return the concentration k of a law of concentration kappa around an uncertain mean, whose
    spread adds: 1 / (k + 1) = 1 / (kappa + 1) + spread; at least LEAST_CONCENTRATION."""
    return max(1.0 / (1.0 / (kappa + 1.0) + spread) - 1.0, LEAST_CONCENTRATION)
