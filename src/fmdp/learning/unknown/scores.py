"""Scores of candidate scopes: how well a set of parents explains the counts of a variable.

The logarithm of the probability of the counts N(x, v) under independent Dirichlet priors is

    sum_x [ G(a_x) - G(a_x + N(x)) + sum_v G(a_xv + N(x, v)) - G(a_xv) ],   G = log Gamma,

for q rows of r values; a row that was never visited adds 0. Two priors are used:

* BDeu (Buntine 1991; Heckerman, Geiger & Chickering 1995): a_x = 1/q and a_xv = 1/(q r), for logs.
* One sample per row: a_x = 1 and a_xv = 1/r, for learners. It is the prior of an independent row of
  the default learner. With few steps BDeu, whose rows are nearly deterministic a priori, needs
  about three times as many steps to find a scope with noisy rows.

An action variable usually has few values that matter to a state variable: of the actions of
SysAdmin one restarts machine i, and under all others it behaves alike. With a separate row for each
of n actions the evidence for a parent is divided among n rows, and found late. Learners therefore
mix three cases with equal weights, for the joint actions of a scope:

* all actions have the same rows,
* one action has rows of its own and all others have the same ones; each is equally probable,
* all actions have rows of their own.

Each case is the probability of the observed values under a fixed prior, and so is their mean. (The
pooled posterior of the default learner, pooling.py, is finer, but no probability of sequences.)

`bdeu` and `log_likelihood` take the table of one scope; `score_tables` is one compiled pass over
the tables of all candidate scopes and all variables.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fmdp._base.compiled import njit
from fmdp._base.portable_math import log

Floats = NDArray[np.float64]


def subsets(variables: int, most: int) -> Iterator[tuple[int, ...]]:
    """Yield all sets of at most `most` of the variables 0, 1, ..., small ones first."""
    for size in range(min(most, variables) + 1):
        yield from itertools.combinations(range(variables), size)


def bdeu(counts: NDArray[np.int64], rows: int) -> float:
    """Return the score of a table of counts [visited rows, r] of a scope with so many rows.

    Terms that cancel are subtracted from each other first, so that the score of a variable with one
    value is exactly 0.
    """
    from scipy.special import gammaln  # Imported on use: most commands need no SciPy.

    values = counts.shape[1]
    of_row, of_cell = 1.0 / rows, 1.0 / (rows * values)
    of_cells = (gammaln(of_cell + counts) - gammaln(of_cell)).sum(axis=1)
    of_rows = gammaln(of_row + counts.sum(axis=1)) - gammaln(of_row)
    return float((of_cells - of_rows).sum())


def log_likelihood(counts: NDArray[np.int64]) -> float:
    """Return the largest log-likelihood of a table of counts [visited rows, r], 0 or less."""
    from scipy.special import xlogy  # Imported on use: most commands need no SciPy.

    visits = counts.sum(axis=1)
    return float((xlogy(counts, counts).sum(axis=1) - xlogy(visits, visits)).sum())


def rounding(steps: int) -> float:
    """Return a bound on the rounding error of a log-likelihood or a score over so many steps.

    Both are sums of at most 4 n terms of at most 2 n log n + 40 n in all (of the logarithm of the
    Gamma function of numbers from 1/(2^62) to n), each computed to a few units in the last place.
    """
    return 1e-13 * steps * (40.0 + math.log(steps))


class CountLogs(NamedTuple):
    """Logarithms by count, which make the scores of all candidates a matter of look-ups."""

    of_cell: Floats
    """[sizes, counts]: log of a (a + 1) ... (a + count - 1) with a = 1/r, for r values each."""
    of_row: Floats
    """[counts]: the same for a = 1."""
    entropy: Floats
    """[counts]: count log(count)."""

    @staticmethod
    def up_to(most: int, sizes: Sequence[int]) -> CountLogs:
        """Return the logarithms for counts up to `most` and variables with so many values."""
        counts = np.arange(most, dtype=np.float64)
        starts = [*(1.0 / size for size in sizes), 1.0]
        sums = [np.concatenate([[0.0], np.cumsum(log(start + counts))]) for start in starts]
        positive = counts + 1.0
        entropy = np.concatenate([[0.0], positive * log(positive)])
        return CountLogs(np.array(sums[:-1]).reshape(len(sizes), most + 1), sums[-1], entropy)


@njit(nogil=True)
def score_tables(cells, starts, actions, values, logs, out):  # type: ignore[no-untyped-def]
    """Fill out = (scores, fits), [sets, variables] each, from the tables of all candidate scopes.

    cells[starts[z] : starts[z + 1]] is the table of set z, [rows, sum of values]: the counts of the
    next values of all variables, side by side. actions[z] is the number of joint values of its
    action variables. `logs` is CountLogs with the place of each variable's size among its sizes. A
    score is the pooled log-probability, a fit the largest log-likelihood.
    """
    of_cell, of_row, entropy, place = logs
    scores, fits = out
    width = 0
    for i in range(values.shape[0]):
        width += values[i]
    for z in range(starts.shape[0] - 1):
        table = cells[starts[z] : starts[z + 1]].reshape((-1, actions[z], width))
        first = 0
        for i in range(values.shape[0]):
            counts = table[:, :, first : first + values[i]]
            fits[z, i], scores[z, i] = fit_and_score(counts, of_cell[place[i]], of_row, entropy)
            first += values[i]


@njit(nogil=True)
def fit_and_score(counts, of_cell, of_row, entropy):  # type: ignore[no-untyped-def]
    """Return the largest log-likelihood and the pooled log-probability of a table of counts
    [contexts, actions, values], given the logarithms of counts (CountLogs) for so many values."""
    n_contexts, n_actions, n_values = counts.shape
    apart = np.zeros(n_actions)
    together = np.empty(n_values, dtype=np.int64)
    fit = common = separate = 0.0
    for z in range(n_contexts):
        total = 0
        for v in range(n_values):
            together[v] = 0
            for a in range(n_actions):
                together[v] += counts[z, a, v]
            total += together[v]
        if total == 0:
            continue
        of_context = -of_row[total]
        for v in range(n_values):
            of_context += of_cell[together[v]]
        common += of_context
        for a in range(n_actions):
            visits = 0
            of_action = of_others = 0.0
            for v in range(n_values):
                count = counts[z, a, v]
                visits += count
                fit += entropy[count]
                of_action += of_cell[count]
                of_others += of_cell[together[v] - count]
            if visits > 0:
                fit -= entropy[visits]
                of_action -= of_row[visits]
                separate += of_action
                apart[a] += of_action + of_others - of_row[total - visits] - of_context
    return fit, _pooled(common, separate, common + apart)


@njit(nogil=True)
def _pooled(common, separate, apart):  # type: ignore[no-untyped-def]
    """Return the logarithm of the mean of the probabilities in the three cases (see the header),
    given their logarithms: all rows the same, all separate, each action apart [actions]."""
    n_actions = apart.size
    if n_actions == 1:
        return separate
    largest = max(common, separate)
    if n_actions > 2:  # one of two actions apart is both of them apart
        largest = max(largest, apart.max())
    total, cases = math.exp(common - largest) + math.exp(separate - largest), 2.0
    if n_actions > 2:
        cases = 3.0
        for a in range(n_actions):
            total += math.exp(apart[a] - largest) / n_actions
    return largest + math.log(total / cases)
