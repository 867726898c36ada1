"""f-Rmax with learned scopes: SLF-Rmax and LSE-RMax, two rules for scopes over the same counts.

Both plan as f-Rmax does with the scopes that they choose: an entry with m visits is as estimated,
all others are optimistic.

SLF-Rmax (Strehl, Diuk & Littman 2007) knows the number of parents. A scope is refuted if, for a
superset of at most twice as many state variables, a row with at least m visits differs from the
scope's own estimate by more than epsilon (refutation.py). The most probable scope that is left is
used. Simplified: the paper predicts nothing for a row until all supersets have m visits there.

LSE-RMax (Chakraborty & Stone 2011) need not know the number of parents; `parents` only limits what
is counted. A scope is refuted if one more variable changes an estimate by more than the widths of
the two estimates allow (Weissman et al. 2003),

    |P-hat_Z'(. | x) - P-hat_Z(. | x[Z])|_1 > w(N_Z'(x)) + w(N_Z(x[Z])),
    w(N) = sqrt(2 log((2^|S_i| - 2) / delta) / N),    delta = rho / (2 m |X[Z']|).

The smallest scope that is left is used; of equally small ones the most probable. The rule is from
the paper; its constants and its order of candidates are ours.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from fmdp._base.settings import setting
from fmdp.learning.agent import Agent
from fmdp.learning.frmax import FRmax
from fmdp.learning.unknown.evidence import Evidence, Floats, Scope
from fmdp.learning.unknown.learner import (
    UNKNOWN,
    FullSizeScopes,
    ScopeLearner,
    ScopePosterior,
    evidence_of,
)
from fmdp.learning.unknown.refutation import (
    Allowed,
    Bools,
    distance_excess,
    refuted_by_supersets,
)
from fmdp.model import Structure


class SLFRmax(FullSizeScopes, FRmax):
    """Factored Rmax with the most probable scopes that no row with enough visits refutes."""

    name = "slf-rmax"

    epsilon: float = setting(
        0.3, "largest distance of two estimates of one row, a sum of absolute differences", low=0.0
    )

    def counted_parents(self, structure: Structure) -> int:
        return min(2 * self.parents, structure.m)

    def choose_scopes(self, agent: Agent) -> list[Scope]:
        seen = evidence_of(agent)
        excess = distance_excess(seen.evidence, self.m, lambda rows, visits, pooled: self.epsilon)
        ranked = [_ranked(posterior) for posterior in self.scope_posteriors(seen)]
        return _first_left(ranked, lambda scope: refuted_by_supersets(seen.evidence, scope, excess))


class LSERmax(ScopeLearner, FRmax):
    """Factored Rmax with the smallest scopes that no further variable refutes."""

    name = "lse-rmax"
    scopes = UNKNOWN

    rho: float = setting(
        0.1, "failure probability of the rule for scopes", low=0.0, high=1.0, low_open=True
    )

    def choose_scopes(self, agent: Agent) -> list[Scope]:
        seen = evidence_of(agent)
        excess = distance_excess(seen.evidence, 1, _weissman_widths(seen.evidence, self.rho))
        ranked = [sorted(_ranked(posterior), key=len) for posterior in self.scope_posteriors(seen)]
        return _first_left(
            ranked, lambda scope: refuted_by_supersets(seen.evidence, scope, excess, most=1)
        )


def _weissman_widths(evidence: Evidence, rho: float) -> Allowed:
    """Return the largest distances that are allowed, given rows and visits."""
    sizes = np.diff([*evidence.columns, evidence.width]).astype(np.float64)
    # A variable with one value has one estimate, at distance 0.
    patterns = np.log(np.maximum(2.0**sizes - 2.0, 1.0))

    def allowed(rows: int, visits: Floats, pooled: Floats) -> Floats:
        terms = 2.0 * (patterns + math.log(2.0 * evidence.m * rows / rho))
        widths: Floats = np.sqrt(terms / visits) + np.sqrt(terms / pooled)
        return widths

    return allowed


def _ranked(posterior: ScopePosterior) -> list[Scope]:
    """Return the candidates, the most probable one first."""
    order = np.argsort(-posterior.weights, kind="stable")
    return [posterior.scopes[z] for z in order.tolist()]


def _first_left(
    ranked: Sequence[Sequence[Scope]], refuted_by: Callable[[Scope], Bools]
) -> list[Scope]:
    """Return the first scope of every variable that is not refuted; the last if all are.

    `refuted_by` returns, for a scope, whether it is refuted for each variable.
    """
    refuted: dict[Scope, Bools] = {}
    chosen = []
    for i, scopes in enumerate(ranked):
        for scope in scopes:
            if scope not in refuted:
                refuted[scope] = refuted_by(scope)
            if not refuted[scope][i]:
                break
        chosen.append(scope)
    return chosen
