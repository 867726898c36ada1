"""UCRL3 (Bourel, Maillard & Talebi 2020): the tightest published box around every joint row.

A value q of P(s' | s, a) is plausible while |P-hat - q| is at most the smaller of a Bernstein and a
sub-Gaussian bound with the variance of a Bernoulli variable of mean q itself (`bernoulli_ends` of
concentration.py), each for all N(s, a) at once; the reward has Laplace's bound. All at the level

    delta = rho / (S A (3 + 3 S)),

three for the reward of a joint row and three for each of its S cells, as in the authors' code.
Regret O~((D + sqrt(sum over s, a of D_s^2 L_{s,a})) sqrt(T)), with local diameters D_s and the
effective supports L of the rows.

The peeling term is that of concentration.py, from N = 2 on; the authors' code has
log(eta N) log(eta^2 N) in it, from N = 1 on.

Two things of the paper are left out: the empirical Bernstein bound of the rewards, for which our
statistics do not keep squares, and the near-optimistic support selection, a heuristic inside the
paper's value iteration that leaves out states of little probability; optimism here is that of the
box, exactly. Ends are computed once for every different pair of counts.
"""

from __future__ import annotations

import numpy as np

from fmdp.learning.agent import Agent
from fmdp.learning.concentration import bernoulli_ends, laplace_width
from fmdp.learning.confidence import scaled, shares_of, tables_of_boxes
from fmdp.learning.flat import Flat
from fmdp.learning.sets import SetLearner
from fmdp.model import OptimisticTables


class UCRL3(Flat, SetLearner):
    """Optimism over boxes of two bounds around the joint rows, by Bourel and others: flat."""

    name = "ucrl3"

    def tables(self, agent: Agent) -> OptimisticTables:
        seen, of_cell = agent.statistics, agent.statistics.entries.cell_entry
        shares, states = shares_of(seen.structure), seen.structure.n_states
        delta = self.rho / (float(shares.transitions[0]) * (3 + 3 * states))
        most = int(seen.transition_visits.max()) + 1
        pairs, place = np.unique(
            seen.transition_visits[of_cell] * most + seen.cell_counts, return_inverse=True
        )
        visits, counts = np.divmod(pairs, most)
        estimate = counts / np.maximum(1, visits)
        lower, upper = bernoulli_ends(estimate, visits.astype(np.float64), delta, self.c)
        rewards = laplace_width(seen.reward_visits, self.rho / (shares.rewards * (3 + 3 * states)))
        return tables_of_boxes(seen, lower[place], upper[place], scaled(self.c, rewards))
