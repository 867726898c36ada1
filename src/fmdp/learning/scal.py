"""SCAL (Fruit, Pirotta, Lazaric & Ortner 2018): Bernstein boxes under a bound on the span.

    |P(s' | s, a) - P-hat| <= sqrt(14 P-hat (1 - P-hat) b / N) + 49 b / (3 max{1, N - 1}),
        b = log(2 S A t / rho),
    R(s, a) <= R-hat + (hi - lo) sqrt(7 b / (2 N)),

N = max{1, N(s, a)}, t the first step of the episode, S A the number of joint rows (or of classes of
alike ones). The plan is that of the truncated optimistic backup min(Lv, min Lv + H), planner `span`
on one factor. `budget` is H, in units of the reward. The interval is Maurer & Pontil's (2009) with
7 b for their logarithm, so that a cell fails at some N <= t with probability at most 4 t (rho / (2
S A t))^7: all unions are inside the constant. Regret O~(min(H, D) sqrt(Gamma S A T)), Gamma the
largest number of successors of a joint row.

Defaults that differ from the paper:

* The paper and the authors' public code are given H. Here it may be left out, and then grows as in
  FSRL (budgets.py). With `faithful=True` it is required.
* In the public code the failure probability is 1 / sqrt(t), not a constant (`level`), plans stop
  at (hi - lo) / sqrt(t) (`stopping`), and an episode ends when a pair is about to be played whose
  count has doubled (`episodes=before-doubling`). `faithful=True` takes these.

Three things differ in both modes. The interval of the rewards is Hoeffding's, an option of the
public code; the published one is Bernstein's, which needs squares of rewards. The policy is greedy
for the untruncated backup; the paper mixes two actions where the truncation cuts
(docs/theory-span.md says why the regret argument does not need that). And the paper perturbs the
rows so that its operator converges, which the damped iteration does not need.
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
from fmdp.learning.budgeted import SpanBudgeted
from fmdp.learning.confidence import scaled, shares_of, tables_of_boxes
from fmdp.learning.flat import Flat
from fmdp.learning.sets import SetLearner
from fmdp.learning.statistics import Floats
from fmdp.learning.ucrl2 import reward_width
from fmdp.model import OptimisticTables


def bernstein_width(estimate: ArrayLike, visits: ArrayLike, log_term: ArrayLike) -> Floats:
    """Return sqrt(14 p-hat (1 - p-hat) b / max{1, N}) + 49 b / (3 max{1, N - 1}); broadcasts."""
    p, n, b = np.asarray(estimate), np.asarray(visits), np.asarray(log_term)
    first = np.sqrt(14.0 * p * (1.0 - p) * b / np.maximum(1, n))
    width: Floats = first + 49.0 * b / (3.0 * np.maximum(1, n - 1))
    return width


class SCAL(Flat, SpanBudgeted, SetLearner):
    """Bernstein boxes under a bound on the span, by Fruit, Pirotta, Lazaric and Ortner: flat."""

    name = "scal"
    published: ClassVar[Mapping[str, object]] = {
        "level": "inverse-root",
        "episodes": "before-doubling",
        "stopping": "inverse-root",
    }

    level: str = setting(
        "constant",
        "the failure probability in the widths: rho at every step, or 1 / sqrt(t)",
        choices=("constant", "inverse-root"),
        unkeyed=("constant",),
    )

    def tables(self, agent: Agent) -> OptimisticTables:
        seen, of_cell, t = agent.statistics, agent.statistics.entries.cell_entry, agent.steps + 1
        shares = shares_of(seen.structure)
        rho = self.rho if self.level == "constant" else 1.0 / math.sqrt(t)
        log_terms = log(2.0 * shares.transitions * t / rho)
        estimate = seen.transition_means()
        widths = self.c * bernstein_width(
            estimate, seen.transition_visits[of_cell], log_terms[of_cell]
        )
        rewards = reward_width(seen.reward_visits, log(2.0 * shares.rewards * t / rho))
        return tables_of_boxes(seen, estimate - widths, estimate + widths, scaled(self.c, rewards))
