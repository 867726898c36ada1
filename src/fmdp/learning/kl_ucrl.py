"""KL-UCRL (Filippi, Cappe & Garivier 2010; Talebi & Maillard 2018): optimism over balls of the
Kullback-Leibler divergence, flat as published, or one around every row of every factor.

    N KL(P-hat, P) <= log(1 / delta) + (K - 1) log(e (1 + N / (K - 1))),   N = N(x),
    R <= R-hat + (hi - lo) sqrt((1 + 1/N) log(sqrt(N + 1) / delta') / (2 N)),

K the number of values of a row. Both hold for all N at once: the first with probability 1 - delta
(Jonsson et al. 2020, proposition 1: a mixture over all laws), the second with 1 - delta'. delta =
rho / (2 m |X[Z_i]|) and delta' = rho / (2 l |X[Z_k]|), half of rho for each kind. The linear
maximisation over a ball is the engine's (elimination/steps.py); a value that was never seen may get
probability, but less than in an L1 ball, and the less the more it would take from values of worth.
Flat regret O~(S sqrt(A sum of the variances of the bias T)) (Talebi & Maillard 2018), without a
factor for the diameter.

`kl-ucrl-factored` has a ball for every row of every factor and plans with nested targets: our
combination, for which there is no paper. On a model with one factor both are the same learner.

The public code of StatisticalRL differs. For the flat learner `faithful=True` takes its choices:

* `bounds=public`: the radii of Filippi et al., with the step t in place of their horizon and S
  states, C_P / N and C_R / sqrt(N):
      B = log(2 e S^2 A log(t) / rho),   C_P = S (B + log(b) (1 + 1 / b)),   b = B + 1 / log(t),
      C_R = sqrt(log(4 S A log(t) / rho) / 1.99),   t at least 2;
* rho = .05, plans that stop at 1 / t, episodes that end before a count doubles. Ties go to the
  least tried action in both modes.

Two things of the public code are not offered. It does not cut an optimistic reward at the top of
its range. And its bisection for the multiplier of a ball moves away from the root: wherever the
best next value has been seen, it plans with P-hat itself, without optimism. The tests compare with
that code after its bisection was turned round.

`c` multiplies the widths of rewards, and its square the radii of rows, which are divergences.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from fmdp._base.portable_math import log
from fmdp._base.settings import setting
from fmdp.learning.agent import Agent
from fmdp.learning.concentration import laplace_width
from fmdp.learning.confidence import scaled, shares_of, tables_of_divergences
from fmdp.learning.flat import Flat
from fmdp.learning.sets import SetLearner
from fmdp.learning.statistics import Floats, Statistics
from fmdp.learning.ucrl2 import UCRL2
from fmdp.model import OptimisticTables


def divergence_radius(values: ArrayLike, visits: ArrayLike, delta: ArrayLike) -> Floats:
    """Return (log(1 / delta) + (K - 1) log(e (1 + N / (K - 1)))) / N, infinite for N = 0, 0 for
    K = 1; broadcasts."""
    n, more = np.asarray(visits, dtype=np.float64), np.asarray(values) - 1.0
    at_least = np.maximum(1.0, more)
    mixture = log(1.0 / np.asarray(delta)) + more * (1.0 + log(1.0 + n / at_least))
    radius = np.where(n > 0, mixture / np.maximum(1.0, n), np.inf)
    return np.where(more > 0, radius, 0.0)


def public_radius(states: int, actions: float, t: int, rho: float) -> float:
    """Return C_P of Filippi et al. in the form of the public code."""
    late = math.log(max(2, t))
    b = math.log(2.0 * math.e * states**2 * actions * late / rho)
    shifted = b + 1.0 / late
    return states * (b + math.log(shifted) * (1.0 + 1.0 / shifted))


def public_reward_constant(rows: float, t: int, rho: float) -> float:
    """Return C_R of the public code; `rows` is S A."""
    return math.sqrt(math.log(4.0 * rows * math.log(max(2, t)) / rho) / 1.99)


def kl_tables(statistics: Statistics, rho: float, c: float) -> OptimisticTables:
    """Return the balls around every row of every factor, the widths times c."""
    shares, values = shares_of(statistics.structure), np.diff(statistics.entries.first_cell)
    radius = divergence_radius(values, statistics.transition_visits, 0.5 * rho / shares.transitions)
    rewards = laplace_width(statistics.reward_visits, 0.5 * rho / shares.rewards)
    return tables_of_divergences(statistics, scaled(c * c, radius), scaled(c, rewards))


def public_kl_tables(statistics: Statistics, t: int, rho: float, c: float) -> OptimisticTables:
    """Return the balls of the public code, for a structure with one factor."""
    shares, states = shares_of(statistics.structure), statistics.structure.n_states
    rows = float(shares.transitions[0])
    constant = public_radius(states, rows / states, t, rho)
    radius = c * c * constant / np.maximum(1, statistics.transition_visits)
    visits = statistics.reward_visits
    width = public_reward_constant(rows, t, rho) / np.sqrt(np.maximum(1, visits))
    rewards = np.where(visits > 0, c * width, np.inf)
    return tables_of_divergences(statistics, radius, rewards)


class KLUCRLFactored(SetLearner):
    """Optimism over balls of the divergence around the rows of every factor."""

    name = "kl-ucrl-factored"
    ties = "least-tried"

    def tables(self, agent: Agent) -> OptimisticTables:
        return kl_tables(agent.statistics, self.rho, self.c)


class KLUCRL(Flat, SetLearner):
    """Optimism over balls of the divergence, by Filippi, Cappe and Garivier: flat."""

    name = "kl-ucrl"
    ties = "least-tried"  # as in the public code of StatisticalRL
    published: ClassVar[Mapping[str, object]] = {**UCRL2.published, "bounds": "public"}

    bounds: str = setting(
        "proven",
        "radii that hold for all numbers of visits at once, or those of the public code, which are "
        "larger",
        choices=("proven", "public"),
        unkeyed=("proven",),
    )

    def tables(self, agent: Agent) -> OptimisticTables:
        if self.bounds == "public":
            return public_kl_tables(agent.statistics, agent.steps + 1, self.rho, self.c)
        return kl_tables(agent.statistics, self.rho, self.c)
