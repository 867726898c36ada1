"""UCRL3 (Bourel, Maillard & Talebi 2020): the tightest published box around every joint row.

A value q of P(s' | s, a) is plausible while |P-hat - q| is at most the smaller of a Bernstein and a
sub-Gaussian bound with the variance of a Bernoulli variable of mean q itself (`bernoulli_ends` of
concentration.py), each for all N(s, a) at once. A reward's mean is at most R-hat plus the smaller
of Laplace's and an empirical Bernstein bound. All are at the level

    delta = rho / (S A (3 + 3 S)),

three for the reward of a joint row and three for each of its S cells, as in the authors' code.
Regret O~((D + sqrt(sum over s, a of D_s^2 L_{s,a})) sqrt(T)), with local diameters D_s and the
effective supports L of the rows. Ends are computed once for every different pair of counts.

Defaults that differ from the public code:

* The refined variance q (1 - q) for q > 1/2 belongs to the lower end of an interval. The public
  code uses it for the upper end, and excludes a q near 1 up to thousands of times too often.
* Where P-hat = 1 the public code raises the lower end to .5^(1/N). That is not a confidence bound,
  and it explains the published regret: without it plans stay optimistic about moves that always led
  to the same state.
* The peeling term is that of concentration.py, from N = 2 on; the public code has
  log(eta N) log(eta^2 N) in it, from N = 1 on.
* Episodes, the precision of plans and rho are as in UCRL2 (ucrl2.py).

`faithful=True` takes the choices of the public code; the first three are `bounds=public`. Two
things differ in both modes. Our statistics keep no squares of rewards: the variance in the
Bernstein bound of a reward is replaced by the largest that its mean allows, (hi - R-hat) (R-hat -
lo), which is exact for rewards at an end of their range. And the near-optimistic support selection,
a heuristic inside the value iteration that skips states of small probability, is left out: optimism
here is exactly that of the box. (The public code adds up the indices of states there, not their
probabilities.)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from fmdp._base.settings import setting
from fmdp.learning.agent import Agent
from fmdp.learning.concentration import (
    bernoulli_ends,
    empirical_bernstein_width,
    laplace_width,
    peeling_term,
    public_peeling_term,
    public_ucrl3_ends,
)
from fmdp.learning.confidence import scaled, shares_of, tables_of_boxes
from fmdp.learning.flat import Flat
from fmdp.learning.sets import SetLearner
from fmdp.learning.statistics import Floats, Statistics
from fmdp.learning.ucrl2 import UCRL2
from fmdp.model import OptimisticTables


def reward_width(statistics: Statistics, delta: Floats, public: bool) -> Floats:
    """Return the width of every mean reward, in units of its range; infinite without visits.

    That is the smaller of Laplace's and the empirical Bernstein bound.
    """
    visits = statistics.reward_visits
    lo, hi = statistics.reward_lo, statistics.reward_hi
    ranges = np.where(hi > lo, hi - lo, 1.0)
    mean = np.clip((statistics.reward_means() - lo) / ranges, 0.0, 1.0)
    if public:
        n, peeling = np.maximum(1, visits), public_peeling_term(visits, delta)
    else:
        n, peeling = np.maximum(2, visits), peeling_term(visits, delta)
    bernstein = empirical_bernstein_width(mean, n, peeling)
    return np.minimum(laplace_width(visits, delta), np.where(visits > 0, bernstein, np.inf))


class UCRL3(Flat, SetLearner):
    """Optimism over boxes of two bounds around the joint rows, by Bourel and others: flat."""

    name = "ucrl3"
    ties = "least-tried"  # as in the public code of StatisticalRL
    published: ClassVar[Mapping[str, object]] = {**UCRL2.published, "bounds": "public"}

    bounds: str = setting(
        "proven",
        "a confidence set, or the box of the public code, which is not one",
        choices=("proven", "public"),
        unkeyed=("proven",),
    )

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
        public = self.bounds == "public"
        ends = public_ucrl3_ends if public else bernoulli_ends
        lower, upper = ends(estimate, visits.astype(np.float64), delta, self.c)
        rewards = reward_width(seen, self.rho / (shares.rewards * (3 + 3 * states)), public)
        return tables_of_boxes(seen, lower[place], upper[place], scaled(self.c, rewards))
