"""UCRL-Factored (Osband & Van Roy 2014): optimism over a ball around every row of every factor.

    |P_i(. | x) - P-hat_i(. | x)|_1 <= sqrt(4 |S_i| log(4 m |X[Z_i]| t / rho) / N(x))
    |R_k(x) - R-hat_k(x)| <= (hi - lo) sqrt(log(4 l |X[Z_k]| t / rho) / N(x))

The second is the paper's 4 sigma^2 log(4 l |X[Z_k]| k / rho) at sigma = (hi - lo) / 2, which holds
for every reward inside [lo, hi]. t, the first step of the episode, takes the place of the paper's
k, the number of the episode. It is at least N(x) + 1 (m t is, where factors share a row), so that
by Weissman et al. 2003 one union over N = 1, 2, ... gives the guarantee with a margin: a row fails
with probability at most

    sum_N 2^|S_i| (rho / (4 m |X[Z_i]| N))^(2 |S_i|)  <=  rho^2 / (4 m^2 |X[Z_i]|^2).

The paper plans for H steps and resets the state: `episodes=fixed` with `horizon` does that, except
for the resets. By default plans have no horizon and episodes end when a count has doubled, as in
the public code of Talebi, Jonsson & Maillard 2021. `faithful=True` takes that code's other choices:
rho = .01, plans that stop at 1 / sqrt(t), and the first of several tied actions. Its radii are
those above, but its set is not: it adds the whole radius, not half of it, to the probability of
every value, multiplies the upper ends of all factors and plans over joint rows with these ends.
Such a set of joint rows is not offered.

Regret in the episodic setting O~(sum over factors of |S_i| sqrt(|X[Z_i]| T)), times a diameter.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from fmdp._base.portable_math import log
from fmdp.learning.agent import Agent
from fmdp.learning.confidence import scaled, shares_of, tables_of_balls
from fmdp.learning.sets import SetLearner
from fmdp.learning.statistics import Floats
from fmdp.model import OptimisticTables


def ball_radius(values: ArrayLike, visits: ArrayLike, log_term: ArrayLike) -> Floats:
    """Return sqrt(4 |S_i| log_term / N), infinite for N = 0; broadcasts."""
    with np.errstate(divide="ignore"):
        radius: Floats = np.sqrt(
            4.0 * np.asarray(values) * np.asarray(log_term) / np.asarray(visits)
        )
    return radius


def reward_width(visits: ArrayLike, log_term: ArrayLike) -> Floats:
    """Return sqrt(log_term / N) in units of the range, infinite for N = 0; broadcasts."""
    with np.errstate(divide="ignore"):
        width: Floats = np.sqrt(np.asarray(log_term) / np.asarray(visits))
    return width


class UCRLFactored(SetLearner):
    """Optimism over balls around the rows of every factor, by Osband and Van Roy."""

    name = "ucrl-factored"
    published: ClassVar[Mapping[str, object]] = {
        "rho": 0.01,
        "stopping": "inverse-root",
        "planner": "exact,ties=first",
    }

    def tables(self, agent: Agent) -> OptimisticTables:
        seen, t = agent.statistics, agent.steps + 1
        shares = shares_of(seen.structure)
        values = np.diff(seen.entries.first_cell)
        log_terms = log(4.0 * shares.transitions * t / self.rho)
        reward_log_terms = log(4.0 * shares.rewards * t / self.rho)
        return tables_of_balls(
            seen,
            scaled(self.c, ball_radius(values, seen.transition_visits, log_terms)),
            scaled(self.c, reward_width(seen.reward_visits, reward_log_terms)),
        )
