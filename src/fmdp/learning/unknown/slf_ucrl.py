"""SLF-UCRL (Rosenberg & Mansour 2021): optimism over all models whose scopes are not refuted.

The learner knows the number of parents. Before every decision the scopes that the steps refute
(refutation.py) are dropped, by a likelihood ratio at level rho / 3 (`test=likelihood`) or by the
paper's intervals (`test=intervals`). The true row of variable i at x is in the box of a scope that
is left, with the Bernstein intervals of DBN-UCRL at level rho / 3, so it is in the hull

    min over consistent Z of lower_Z(x[Z]) <= P_i(. | x) <= max over these Z of upper_Z(x[Z]).

The plan is over these hulls, one per row of a planned scope V_i: the union of the consistent scopes
if that has at most `union` state variables, else the most likely ones of them. What V_i leaves out
is covered: the ends of a row of V_i are taken over all x that agree with it. The plan is therefore
optimistic with probability 1 - rho at c = 1, its cost is that of a model with the scopes V_i, and
no product over the scopes of several variables is formed.

Relaxed, compared to the paper: a row may lie between the rows of two scopes, and rows of different
x may come from different scopes. The paper adds actions that choose one scope per factor; its
public code plans once for every combination of scopes, on dense matrices. When one scope is left
for every variable, all three are the same.

The public code's test divides eps by ten (`test_c`), and its sets are those of UCRL-Factored.
`faithful=True` takes its test, its rho = .01 and its precision of plans, but neither its sets nor
its product over scopes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fmdp._base.settings import setting
from fmdp.learning.agent import Agent
from fmdp.learning.concentration import laplace_width
from fmdp.learning.confidence import best_rewards, scaled, shares_of
from fmdp.learning.dbn_ucrl import DBNUCRL, bernstein_box
from fmdp.learning.unknown.evidence import Floats, Scope
from fmdp.learning.unknown.learner import UNKNOWN, FullSizeScopes, evidence_of
from fmdp.learning.unknown.refutation import (
    interval_excess,
    refuted_by_likelihood,
    refuted_by_supersets,
)
from fmdp.learning.unknown.statistics import ScopeStatistics
from fmdp.model import OptimisticTables, Structure
from fmdp.model.entries import split_reward_entries

PARTS = 3.0
"""rho is divided among scopes, rows and rewards."""


class SLFUCRL(FullSizeScopes, DBNUCRL):
    """Optimism over all models whose scopes are not refuted, by Rosenberg and Mansour."""

    name = "slf-ucrl"
    published: ClassVar[Mapping[str, object]] = {
        "test": "intervals",
        "rho": 0.01,
        "stopping": "inverse-root",
    }

    test: str = setting(
        "likelihood",
        "what refutes a scope: a likelihood ratio, or the intervals of the paper",
        choices=("likelihood", "intervals"),
        unkeyed=("likelihood",),
    )
    test_c: float = setting(
        0.1,
        "factor of the intervals; 1 keeps their guarantee, and .1 is that of the public code",
        low=0.0,
        only_with=("test", ("intervals",)),
        unkeyed=(0.1,),
    )
    union: int | None = setting(
        None,
        "largest number of state variables in a planned scope; the number of parents by default",
        low=0,
        unkeyed=(None,),
    )

    def counted_parents(self, structure: Structure) -> int:
        counted = 2 * self.parents if self.test == "intervals" else self.parents
        return min(counted, structure.m)

    def choose_scopes(self, agent: Agent) -> list[Scope]:
        seen = evidence_of(agent)
        return [self._planned(seen, consistent) for consistent in self.consistent_scopes(agent)]

    def consistent_scopes(self, agent: Agent) -> list[list[Scope]]:
        """Return the scopes of every state variable that the steps of `agent` do not refute.

        The most likely ones come first. If all are refuted, the most likely one is kept.
        """
        seen = evidence_of(agent)
        evidence = seen.evidence
        return evidence.once("consistent", self, lambda: self._consistent(seen), evidence.steps)

    def _consistent(self, seen: ScopeStatistics) -> list[list[Scope]]:
        evidence, m = seen.evidence, seen.structure.m
        scores, fits = evidence.scores()
        by_intervals: dict[int, NDArray[np.bool_]] = {}
        consistent = []
        for i, candidates in enumerate(self.candidates(seen)):
            if candidates.given:
                consistent.append(list(candidates.scopes))
                continue
            places = candidates.places
            order = places[np.argsort(-fits[places, i], kind="stable")]
            if self.test == "likelihood":
                mixed = scores[order, i], fits[order, i]
                refuted = refuted_by_likelihood(*mixed, m, self.rho / PARTS)
            else:
                for z in order.tolist():
                    if z not in by_intervals:
                        by_intervals[z] = self._refuted_by_intervals(seen, evidence.sets[z])
                refuted = np.array([by_intervals[z][i] for z in order.tolist()])
            left = order[~refuted] if not refuted.all() else order[:1]
            consistent.append([evidence.sets[z] for z in left.tolist()])
        return consistent

    def _refuted_by_intervals(self, seen: ScopeStatistics, scope: Scope) -> NDArray[np.bool_]:
        t, rho = seen.evidence.steps + 1, self.rho / PARTS
        excess = interval_excess(self.test_c, seen.structure.m, t, rho)
        return refuted_by_supersets(seen.evidence, scope, excess)

    def _planned(self, seen: ScopeStatistics, consistent: list[Scope]) -> Scope:
        """Return the union of the most likely consistent scopes, as long as it is small enough."""
        m = seen.structure.m
        most = self.parents if self.union is None else max(self.union, self.parents)
        planned = set(consistent[0])
        for scope in consistent[1:]:
            larger = planned.union(scope)
            states = sum(v < m for v in larger)
            if states <= most and len(larger) - states <= self.action_parents:
                planned = larger
        return tuple(sorted(planned))

    def tables(self, agent: Agent) -> OptimisticTables:
        if self.scopes != UNKNOWN:
            return super().tables(agent)
        seen, s = evidence_of(agent), agent.statistics.structure
        consistent = self.consistent_scopes(agent)
        ends = [self._hull(seen, i, consistent[i]) for i in range(s.m)]
        lower, upper = [least for least, _ in ends], [most for _, most in ends]
        rewards = laplace_width(seen.reward_visits, self.rho / (PARTS * shares_of(s).rewards))
        best = best_rewards(seen, scaled(self.c, rewards))
        free = [np.maximum(1.0 - table.sum(axis=1), 0.0) for table in lower]
        return OptimisticTables.trusted(s, lower, free, split_reward_entries(s, best), upper)

    def _hull(
        self, seen: ScopeStatistics, i: int, consistent: list[Scope]
    ) -> tuple[Floats, Floats]:
        """Return the ends of every row of the planned scope of variable `i`: [rows, values] each,
        over all consistent scopes and all assignments of the variables that it leaves out."""
        s, planned = seen.structure, seen.structure.transition_scopes[i]
        shape, size = s.scope_sizes(planned), s.state_sizes[i]
        lower, upper = np.ones((*shape, size)), np.zeros((*shape, size))
        for scope in consistent:
            counts = seen.transition_counts(i) if scope == planned else seen.counts_of(i, scope)
            least, most = self._box(counts, s.m)
            np.minimum(lower, _covering(least, scope, planned, s, np.min), out=lower)
            np.maximum(upper, _covering(most, scope, planned, s, np.max), out=upper)
        return lower.reshape(-1, size), upper.reshape(-1, size)

    def _box(self, counts: NDArray[np.int64], variables: int) -> tuple[Floats, Floats]:
        """Return the box of every row of a table of counts, [rows, values] each."""
        visits = counts.sum(axis=1, keepdims=True)
        estimate = counts / np.maximum(visits, 1)
        delta = self.rho / (PARTS * variables * counts.size)
        public = self.bounds == "public"
        lower, upper = bernstein_box(estimate, visits, np.array(delta), self.c, public)
        unseen = visits == 0
        least: Floats = np.where(unseen, 0.0, np.maximum(lower, 0.0))
        most: Floats = np.where(unseen, 1.0, np.minimum(upper, 1.0))
        return least, most


def _covering(ends: Floats, scope: Scope, planned: Scope, s: Structure, extreme: object) -> Floats:
    """Return the ends of rows of `scope` as ends of rows of `planned`, of broadcastable shape.

    Variables that `planned` lacks are eliminated by the extreme, min or max.
    """
    shaped = ends.reshape(*s.scope_sizes(scope), -1)
    left_out = tuple(axis for axis, v in enumerate(scope) if v not in planned)
    kept = extreme(shaped, axis=left_out) if left_out else shaped  # type: ignore[operator]
    inside = [v for v in scope if v in planned]
    sizes = [s.all_sizes[v] if v in inside else 1 for v in planned]
    covering: Floats = kept.reshape(*sizes, ends.shape[1])
    return covering
