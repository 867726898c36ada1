"""F-UCBVI (Tian, Qian & Sra 2020): the estimated model with a Hoeffding bonus per factor.

A row x of factor i, visited N times, pays a bonus of its own, a reward factor over Z_i:

    b_i(x) = V sqrt(L / (2 N)) + (m - 1) V (|S_i| log 2 + L) / (2 N),   at most V,

L = log(4 m S A N (N + 1) / rho), and the mean rewards are R-hat + (hi - lo) sqrt((1 + 1/N)
log(sqrt(N + 1) / delta') / (2 N)), delta' = rho / (2 l |X[Z_k]|), at most hi. Rows without visits
are uniform and pay V. Let v be a function of the state with a span of at most V. With probability
1 - rho, for all states and actions and all N together,

    P-hat v + sum_i b_i >= P v:

the product of the estimates is the product of the laws, plus for every i the error of factor i
alone, which Hoeffding's inequality bounds for each of the S A functions that v is for it, plus for
every pair i < j a product of two errors, at most V/2 times their L1 norms, each at most a_i =
sqrt(2 (|S_i| log 2 + L) / N) (Weissman et al. 2003). a_i a_j <= (a_i^2 + a_j^2) / 2 makes the bonus
a sum over the factors, which a factored plan needs; the paper has the products.

Episodic, as published: `episodes=fixed` with `horizon=H`. V is H times the range R of the reward.
The paper cuts values at H R, which is left out here: a bonus is at most V by itself. Average
reward: V is `span`, or R t^(1/5) as in PMEVI (pmevi.py), which is enough from some t on; episodes
end when a count has doubled.

The text of the paper was not at hand: abstract and structure (a term per factor, a term per pair of
factors) are known, the constants are those of the proof above. `c` multiplies the bonuses and the
widths of the rewards.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike

from fmdp._base.portable_math import log
from fmdp._base.settings import setting
from fmdp.learning.agent import Agent
from fmdp.learning.bonuses import with_reward_factors
from fmdp.learning.concentration import laplace_width
from fmdp.learning.confidence import best_rewards, scaled, shares_of
from fmdp.learning.estimate import estimated_model
from fmdp.learning.learner import PlanningLearner
from fmdp.learning.statistics import Floats, Statistics
from fmdp.model import FactoredMDP, Structure
from fmdp.model.entries import split_reward_entries, split_transition_entries

LONGEST_RUN = 2.0**55
"""No run is longer than this; its fifth root, 2^11, bounds V in units of the reward range."""


def log_of_pairs(structure: Structure) -> float:
    """Return log(m S A) of a structure, whose numbers of states and actions may be huge."""
    sizes = (*structure.state_sizes, *structure.action_sizes)
    return math.log(structure.m) + sum(map(math.log, sizes))


def bonus_log_term(visits: ArrayLike, log_pairs: float, rho: float, parts: float = 4.0) -> Floats:
    """Return L = log(parts m S A N (N + 1) / rho), N at least 1."""
    n = np.maximum(1.0, np.asarray(visits, dtype=np.float64))
    term: Floats = math.log(parts / rho) + log_pairs + log(n * (n + 1.0))
    return term


def cross_bonus(values: ArrayLike, visits: ArrayLike, log_term: ArrayLike, others: int) -> Floats:
    """Return (m - 1) (|S_i| log 2 + L) / (2 N), the share of a factor in the products of errors."""
    n = np.maximum(1.0, np.asarray(visits, dtype=np.float64))
    share: Floats = others * (np.asarray(values) * math.log(2.0) + np.asarray(log_term)) / (2.0 * n)
    return share


def hoeffding_bonus(visits: ArrayLike, log_term: ArrayLike) -> Floats:
    """Return sqrt(L / (2 N)); broadcasts."""
    n = np.maximum(1.0, np.asarray(visits, dtype=np.float64))
    bonus: Floats = np.sqrt(np.asarray(log_term) / (2.0 * n))
    return bonus


class FUCBVI(PlanningLearner):
    """The estimated model with a Hoeffding bonus per factor, by Tian, Qian and Sra."""

    name = "f-ucbvi"
    takes_derived = False  # bonuses are reward factors over the states and actions

    c: float = setting(
        1.0, "factor of every bonus; 1 keeps the guarantee, less explores less", low=0.0
    )
    rho: float = setting(
        0.1, "failure probability of the bonuses", low=0.0, high=1.0, low_open=True
    )
    span: float | None = setting(
        None,
        "upper bound on the span of the optimal bias, in units of the reward; none: the range of "
        "the reward times the fifth root of t",
        low=0.0,
        low_open=True,
        only_with=("horizon", (None,)),
    )
    episodes = "doubling"

    def planned_structure(self, structure: Structure) -> Structure:
        return _with_bonuses(structure, self.largest_value(structure, LONGEST_RUN))

    def largest_value(self, structure: Structure, t: float) -> float:
        """Return V at step `t` in `structure`: the span of the values that bonuses are for."""
        total = structure.reward_range_total or structure.reward_unit
        if self.horizon is not None:
            return float(self.horizon * total)
        return float(total * t**0.2) if self.span is None else self.span

    def bonuses(self, agent: Agent, reach: float) -> Floats:
        """Return the bonus of every transition entry of `agent`, for V = `reach`: [entries]."""
        seen = agent.statistics
        terms = bonus_log_term(seen.transition_visits, log_of_pairs(seen.structure), self.rho)
        return reach * (hoeffding_bonus(seen.transition_visits, terms) + cross_terms(seen, terms))

    def tables(self, agent: Agent) -> FactoredMDP:
        seen = agent.statistics
        s, model = seen.structure, estimated_model(seen)
        reach = self.largest_value(s, agent.steps + 1)
        bonus = np.minimum(self.c * self.bonuses(agent, reach), reach)
        bonus[seen.transition_visits == 0] = reach
        widths = laplace_width(seen.reward_visits, 0.5 * self.rho / shares_of(s).rewards)
        rewards = split_reward_entries(s, best_rewards(seen, scaled(self.c, widths)))
        added = split_transition_entries(s, bonus)
        return FactoredMDP.trusted(self.planned_structure(s), model.transitions, (*rewards, *added))


@lru_cache(maxsize=8)  # used in every plan
def _with_bonuses(structure: Structure, largest: float) -> Structure:
    """Return the structure with a reward factor from 0 to `largest` per transition factor."""
    return with_reward_factors(
        structure, structure.transition_scopes, [(0.0, largest)] * structure.m
    )


def cross_terms(statistics: Statistics, log_terms: Floats) -> Floats:
    """Return `cross_bonus` of every transition entry."""
    values = np.diff(statistics.entries.first_cell)
    return cross_bonus(values, statistics.transition_visits, log_terms, statistics.structure.m - 1)
