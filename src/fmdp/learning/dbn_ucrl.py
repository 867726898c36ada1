"""DBN-UCRL (Talebi, Jonsson & Maillard 2021): optimism over a Bernstein interval for every cell.

    |P_i(s | x) - P-hat| <= sqrt(2 P-hat (1 - P-hat) b / N) + 7 b / (3 N),
        b = eta log(log(N) log(eta N) / (delta log^2 eta)),   eta = 1.12, N = max{2, N(x)},
    R_k(x) <= R-hat + (hi - lo) sqrt((1 + 1/N) log(sqrt(N + 1) / delta') / (2 N)),

delta = rho / (2 m |X[Z_i]| |S_i|) and delta' = rho / (2 l |X[Z_k]|): half of rho for the rows and
half for the rewards, divided over factors, entries and values. (The authors' public code gives rho
to either, does not divide it over values, and has rewards without noise, which it takes as known
after one visit.) The set of a row is a box. Episodes end when a count has doubled. Regret
O~(sum over factors of D sqrt(sum over x of K_x T)), K_x the number of values that can follow x.
"""

from __future__ import annotations

import numpy as np

from fmdp.learning.agent import Agent
from fmdp.learning.concentration import empirical_bernstein_width, laplace_width, peeling_term
from fmdp.learning.confidence import scaled, shares_of, tables_of_boxes
from fmdp.learning.sets import SetLearner
from fmdp.model import OptimisticTables


class DBNUCRL(SetLearner):
    """Optimism over Bernstein intervals of every probability, by Talebi, Jonsson and Maillard."""

    name = "dbn-ucrl"

    def tables(self, agent: Agent) -> OptimisticTables:
        seen, of_cell = agent.statistics, agent.statistics.entries.cell_entry
        shares, values = shares_of(seen.structure), np.diff(seen.entries.first_cell)
        delta = self.rho / (2.0 * shares.transitions * values)
        visits = np.maximum(2, seen.transition_visits)
        estimate = seen.transition_means()
        widths = self.c * empirical_bernstein_width(
            estimate, visits[of_cell], peeling_term(visits, delta)[of_cell]
        )
        rewards = laplace_width(seen.reward_visits, self.rho / (2.0 * shares.rewards))
        return tables_of_boxes(seen, estimate - widths, estimate + widths, scaled(self.c, rewards))
