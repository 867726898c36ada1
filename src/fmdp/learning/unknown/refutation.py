"""Rules that refute scopes: each returns, for candidates and state variables, what the steps rule
out.

The likelihood ratio. Let Q be the mixture, over all candidates Z', of the Dirichlet-multinomial
probabilities of the observed next values of variable i. Z is refuted if

    log Q - (largest log-likelihood under Z) > log(m / rho).

If Z contains all parents, Q divided by the likelihood under the true rows is a non-negative
martingale, whatever the actions were, and the largest likelihood under Z is at least that of the
true rows. So the probability that Z is ever refuted is at most rho / m (Ville's inequality), and
with probability 1 - rho no true scope is refuted at any time. A wrong scope loses a constant per
visit to the rows in which it is wrong, and Q at most a multiple of log t.

Intervals (Rosenberg & Mansour 2021). Z is refuted if for a superset Z' of at most twice as many
state variables, a row x of Z' and a value v

    |P-hat_Z'(v | x) - P-hat_Z(v | x[Z])| > 2 c eps,   eps = sqrt(18 P-hat_Z' tau / N) + 18 tau / N,
    tau = log(6 m |X[Z']| t / rho),   N = N_Z'(x).

Distances (Strehl, Diuk & Littman 2007). Z is refuted if for a superset Z' and a row x of it with at
least M visits, the estimates under Z' and Z differ by more than epsilon (sum of the absolute
differences).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from fmdp._base.portable_math import log
from fmdp.learning.confidence import transition_width
from fmdp.learning.unknown.evidence import Evidence, Floats, Scope

Bools = NDArray[np.bool_]
Excess = Callable[[int, Floats, Floats, Floats, Floats], Floats]
"""(number of rows of Z'; visits under Z', under Z; estimates under Z', under Z) -> by how much the
difference of each cell exceeds what is allowed. Visits are [visited rows of Z', 1], estimates and
the result [visited rows of Z', cells]."""
Allowed = Callable[[int, Floats, Floats], Floats | float]
"""(number of rows of Z'; visits under Z', under Z) -> the largest allowed distance."""


def refuted_by_likelihood(scores: Floats, fits: Floats, variables: int, rho: float) -> Bools:
    """Return which candidates of one variable are refuted, given their scores and fits.

    `variables` is the number of state variables, among which `rho` is divided.
    """
    mixture = float(logsumexp(scores)) - math.log(len(scores))
    refuted: Bools = mixture - fits > math.log(variables / rho)
    return refuted


def refuted_by_supersets(
    evidence: Evidence, scope: Scope, excess: Excess, most: int | None = None
) -> Bools:
    """Return, for each state variable, whether a counted superset refutes `scope`: [m].

    The supersets have `most` more variables at most; any number by default.
    """
    refuted = np.zeros(evidence.m, dtype=np.bool_)
    for outer in supersets(evidence, scope, most):
        refuted |= _refuted_by(evidence, scope, outer, excess)
    return refuted


def supersets(evidence: Evidence, scope: Scope, most: int | None = None) -> Iterator[Scope]:
    """Yield the counted sets that have `most` more state variables than `scope` at most."""
    inner, last = set(scope), len(evidence.sizes) if most is None else len(scope) + most
    actions = [v for v in scope if v >= evidence.m]
    for outer in evidence.sets:
        larger = len(scope) < len(outer) <= last and inner.issubset(outer)
        if larger and [v for v in outer if v >= evidence.m] == actions:
            yield outer


def _refuted_by(evidence: Evidence, scope: Scope, outer: Scope, excess: Excess) -> Bools:
    shape = [evidence.sizes[v] for v in outer]
    extra = tuple(axis for axis, v in enumerate(outer) if v not in scope)
    counts = evidence.table(outer).astype(np.float64)
    of_all = counts.reshape(*shape, evidence.width)
    pooled = np.broadcast_to(of_all.sum(axis=extra, keepdims=True), of_all.shape)
    pooled = pooled.reshape(counts.shape)
    # Every state variable has one next value per visit; those of the first are added up.
    first = slice(0, [*evidence.columns, evidence.width][1])
    visits = counts[:, first].sum(axis=1)
    seen = visits > 0
    visits, pooled_visits = visits[seen, None], pooled[seen, first].sum(axis=1)[:, None]
    if not len(visits):
        return np.zeros(evidence.m, dtype=np.bool_)
    estimate, pooled = counts[seen] / visits, pooled[seen] / pooled_visits
    over = excess(len(counts), visits, pooled_visits, estimate, pooled)
    refuted: Bools = np.logical_or.reduceat((over > 0.0).any(axis=0), evidence.columns)
    return refuted


def interval_excess(c: float, variables: int, t: int, rho: float) -> Excess:
    """Return the rule of Rosenberg & Mansour at step `t`, with widths multiplied by `c`."""

    def excess(rows: int, visits: Floats, _: Floats, estimate: Floats, pooled: Floats) -> Floats:
        widths = transition_width(estimate, visits, log(6.0 * variables * rows * t / rho))
        over: Floats = np.abs(estimate - pooled) - 2.0 * c * widths
        return over

    return excess


def distance_excess(evidence: Evidence, enough: int, allowed: Allowed) -> Excess:
    """Return a rule for distances of estimates, for rows with `enough` visits."""
    sizes = np.diff([*evidence.columns, evidence.width])

    def excess(
        rows: int, visits: Floats, pooled_visits: Floats, estimate: Floats, pooled: Floats
    ) -> Floats:
        distances = np.add.reduceat(np.abs(estimate - pooled), evidence.columns, axis=1)
        over = distances - allowed(rows, visits, pooled_visits)
        of_cells: Floats = np.repeat(np.where(visits >= enough, over, -1.0), sizes, axis=1)
        return of_cells

    return excess
