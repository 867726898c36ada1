"""UCRL2 (Jaksch, Auer & Ortner 2010): optimism over a ball around every joint row, factors unused.

    |P(. | s, a) - P-hat|_1 <= sqrt(14 S log(2 A t / rho) / max{1, N(s, a)})
    |R(s, a) - R-hat| <= (hi - lo) sqrt(7 log(2 S A t / rho) / (2 max{1, N(s, a)}))

with t the first step of the episode, and [lo, hi] the range of the summed reward. Regret O(D S
sqrt(A T log(T / rho))) with probability 1 - rho.

S A is the number of joint rows, or of classes of them if rows are known to be alike (and A that
number divided by S); the paper has no such rows. Ties go to the least tried action, as in the
public code of StatisticalRL.

Defaults that differ from the paper, and the choices of `faithful=True`:

* an episode ends when the count of a joint state and action has doubled; in the paper it ends when
  such a pair is about to be played again (`episodes=before-doubling`);
* all plans have the same precision; in the paper they stop at 1 / sqrt(t), in the public code,
  whose choice is taken, at 1 / t (`stopping`);
* rho = .1; in the experiments of the public code it is .05.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from fmdp._base.portable_math import log
from fmdp.learning.agent import Agent
from fmdp.learning.confidence import scaled, shares_of, tables_of_balls
from fmdp.learning.flat import Flat
from fmdp.learning.sets import SetLearner
from fmdp.learning.statistics import Floats, Statistics
from fmdp.model import OptimisticTables


def ball_radius(states: int, visits: ArrayLike, log_term: ArrayLike) -> Floats:
    """Return sqrt(14 S log_term / max{1, N}); broadcasts."""
    radius: Floats = np.sqrt(14.0 * states * np.asarray(log_term) / np.maximum(1, visits))
    return radius


def reward_width(visits: ArrayLike, log_term: ArrayLike) -> Floats:
    """Return sqrt(7 log_term / (2 N)) in units of the range, infinite for N = 0; broadcasts."""
    with np.errstate(divide="ignore"):
        width: Floats = np.sqrt(3.5 * np.asarray(log_term) / np.asarray(visits))
    return width


def ucrl2_tables(statistics: Statistics, t: int, rho: float, c: float) -> OptimisticTables:
    """Return the set at step t of a structure with one factor, its widths times c."""
    shares, states = shares_of(statistics.structure), statistics.structure.n_states
    log_terms = log(2.0 * np.maximum(1.0, shares.transitions / states) * t / rho)
    reward_log_terms = log(2.0 * shares.rewards * t / rho)
    return tables_of_balls(
        statistics,
        scaled(c, ball_radius(states, statistics.transition_visits, log_terms)),
        scaled(c, reward_width(statistics.reward_visits, reward_log_terms)),
    )


class UCRL2(Flat, SetLearner):
    """Optimism over balls around the joint rows, by Jaksch, Auer and Ortner: flat."""

    name = "ucrl2"
    ties = "least-tried"  # as in the public code of StatisticalRL
    published: ClassVar[Mapping[str, object]] = {
        "rho": 0.05,
        "episodes": "before-doubling",
        "stopping": "inverse",
    }

    def tables(self, agent: Agent) -> OptimisticTables:
        return ucrl2_tables(agent.statistics, agent.steps + 1, self.rho, self.c)
