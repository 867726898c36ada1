"""DBN-UCRL (Talebi, Jonsson & Maillard 2021): optimism over a Bernstein interval for every cell.

    |P_i(s | x) - P-hat| <= sqrt(2 P-hat (1 - P-hat) b / N) + 7 b / (3 N),
        b = eta log(log(N) log(eta N) / (delta log^2 eta)),   eta = 1.12, N = max{2, N(x)},
    R_k(x) <= R-hat + (hi - lo) sqrt((1 + 1/N) log(sqrt(N + 1) / delta') / (2 N)),

delta = rho / (2 m |X[Z_i]| |S_i|) and delta' = rho / (2 l |X[Z_k]|): half of rho for the rows and
half for the rewards, divided over factors, entries and values. The set of a row is a box. Episodes
end when a count has doubled. Regret O~(sum over factors of D sqrt(sum over x of K_x T)), K_x the
number of values that can follow x.

The authors' public code differs. `faithful=True` takes its choices if possible:

* `bounds=public`: the box is the intersection of the one above with that of Bernstein's inequality
  for a Bernoulli variable, q with |P-hat - q| <= sqrt(2 q (1 - q) b / N) + b / (3 N). Both are at
  delta = rho / (m |X[Z_i]|) and delta' = rho / (l |X[Z_k]|): rows and rewards each get all of rho,
  and it is not divided over values, nor over the two bounds.
* rho = .01, plans that stop at 1 / sqrt(t), and the first of several tied actions.

Two things of the public code are not offered. It multiplies the ends of the factors to one box
around every joint row and plans over that; here the plan is over the product of the factors' boxes
(nested targets). And it does not cut an optimistic reward at the top of its range. Both learn the
rewards, by the bound above.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from fmdp._base.settings import setting
from fmdp.learning.agent import Agent
from fmdp.learning.concentration import (
    bernstein_width,
    empirical_bernstein_width,
    ends_of,
    laplace_width,
    peeling_term,
)
from fmdp.learning.confidence import scaled, shares_of, tables_of_boxes
from fmdp.learning.sets import SetLearner
from fmdp.learning.statistics import Floats
from fmdp.model import OptimisticTables
from fmdp.model.entries import Index


class DBNUCRL(SetLearner):
    """Optimism over Bernstein intervals of every probability, by Talebi, Jonsson and Maillard."""

    name = "dbn-ucrl"
    published: ClassVar[Mapping[str, object]] = {
        "bounds": "public",
        "rho": 0.01,
        "stopping": "inverse-root",
        "planner": "exact,ties=first",
    }

    bounds: str = setting(
        "proven",
        "one Bernstein interval per cell, with total failure probability rho; or the intersection "
        "of two, each with a larger share of rho, as in the public code",
        choices=("proven", "public"),
        unkeyed=("proven",),
    )

    def tables(self, agent: Agent) -> OptimisticTables:
        seen, of_cell = agent.statistics, agent.statistics.entries.cell_entry
        shares, values = shares_of(seen.structure), np.diff(seen.entries.first_cell)
        public = self.bounds == "public"
        parts = 1.0 if public else 2.0 * values
        lower, upper = bernstein_box(
            seen.transition_means(),
            seen.transition_visits[of_cell],
            (self.rho / (parts * shares.transitions))[of_cell],
            self.c,
            public,
        )
        parts = 1.0 if public else 2.0
        rewards = laplace_width(seen.reward_visits, self.rho / (parts * shares.rewards))
        return tables_of_boxes(seen, lower, upper, scaled(self.c, rewards))


def bernstein_box(
    estimate: Floats, visits: Index, delta: Floats, c: float, public: bool
) -> tuple[Floats, Floats]:
    """Return the ends of the interval of every probability, not cut to [0, 1].

    `estimate`, `visits` (of the row) and `delta` have one number per cell; `c` multiplies the
    widths. `public` says whether the interval is intersected with the second one.
    """
    visits = np.maximum(2, visits)
    peeling = peeling_term(visits, delta)
    widths = c * empirical_bernstein_width(estimate, visits, peeling)
    lower, upper = estimate - widths, estimate + widths
    if public:
        rate = peeling / visits

        def width(q: Floats) -> Floats:
            return c * bernstein_width(q, rate)

        least, most = ends_of(estimate, width, width)
        lower, upper = np.maximum(lower, least), np.minimum(upper, most)
    return lower, upper
