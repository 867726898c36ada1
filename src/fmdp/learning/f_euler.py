"""F-EULER (Tian, Qian & Sra 2020), FMDP-BF (Chen et al. 2021): a Bernstein bonus per factor.

F-UCBVI (f_ucbvi.py) with another bonus for the error of factor i alone,

    b_i(x) = sqrt(2 var_i(x) L / N) + 3 V L / N + (m - 1) V (|S_i| log 2 + L) / (2 N),   at most V,

L = log(12 m S A N (N + 1) / rho), and var_i(x) the variance, under P-hat_i(. | x), of what the next
value of variable i is worth: the bias of the last plan, averaged over the other variables (over a
horizon, its values at the first step). The first two terms are the empirical Bernstein bound of
Audibert, Munos & Szepesvari 2009 for that function. A factor whose value hardly matters, or whose
row is nearly deterministic, costs next to nothing. Before the first plan var_i is V^2 / 4.

The papers are episodic, have the variance of the values of the next step of the same plan, given
all of (s, a), and add a term for their error, which makes the plan optimistic with high
probability. A factored plan has room for bonuses over Z_i only, and finishes before its values are
known; therefore the average, and the last plan. For that there is no proof: `f-ucbvi` is the one
with a guarantee. The texts of the papers were not at hand beyond their introductions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fmdp.learning.agent import Agent, Decision
from fmdp.learning.f_ucbvi import FUCBVI, bonus_log_term, cross_terms, log_of_pairs
from fmdp.learning.statistics import Floats, Statistics
from fmdp.model import Structure
from fmdp.model.entries import Index
from fmdp.planning.policies.archive import array_in


def bernstein_bonus(variance: ArrayLike, visits: ArrayLike, log_term: ArrayLike) -> Floats:
    """Return sqrt(2 var L / N) + 3 L / N, values in units of their span V; broadcasts."""
    rate = np.asarray(log_term) / np.maximum(1.0, np.asarray(visits, dtype=np.float64))
    bonus: Floats = np.sqrt(2.0 * np.asarray(variance) * rate) + 3.0 * rate
    return bonus


def variances(statistics: Statistics, worth: Floats) -> Floats:
    """Return the variance of what the next value is worth under every row: [transition entries].

    `worth` has a number for every value of every state variable, one variable after the other. An
    entry that several factors share has the largest of their variances.
    """
    s, entries = statistics.structure, statistics.entries
    estimate = statistics.transition_means()
    result = np.zeros(entries.n_transition_entries)
    ends = np.cumsum(s.state_sizes)
    for i, (end, size) in enumerate(zip(ends, s.state_sizes, strict=True)):
        rows: Index = np.unique(s.transition_classes_of(i))
        cells = entries.first_cell[rows][:, None] + np.arange(size)
        law, value = estimate[cells], worth[end - size : end]
        mean = (law * value).sum(axis=1)
        spread = (law * np.square(value - mean[:, None])).sum(axis=1)
        result[rows] = np.maximum(result[rows], spread)
    return result


class FEULER(FUCBVI):
    """The estimated model with a Bernstein bonus per factor, after Tian, Qian and Sra."""

    name = "f-euler"

    def remember(self, structure: Structure) -> dict[str, Any]:
        return {"planned": False, "worth": np.zeros(sum(structure.state_sizes))}

    def check_memory(self, structure: Structure, memory: Mapping[str, Any]) -> None:
        super().check_memory(structure, memory)
        array_in(memory, "worth", "f", (sum(structure.state_sizes),))

    def bonuses(self, agent: Agent, reach: float) -> Floats:
        seen = agent.statistics
        visits = seen.transition_visits
        terms = bonus_log_term(visits, log_of_pairs(seen.structure), self.rho, 12.0)
        largest = 0.25  # of a function with span V, in units of V^2
        variance: Floats = np.full(len(visits), largest)
        if agent.memory["planned"]:
            variance = np.minimum(variances(seen, agent.memory["worth"] / reach), largest)
        return reach * (bernstein_bonus(variance, visits, terms) + cross_terms(seen, terms))

    def decide(self, agent: Agent) -> Decision:
        plan = agent.plan(self.tables(agent), marginals=True)
        assert plan.marginals is not None
        agent.memory.update(planned=True, worth=np.concatenate(plan.marginals))
        return self.episode(agent, plan.policy)
