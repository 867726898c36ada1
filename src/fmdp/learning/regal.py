"""REGAL.C (Bartlett & Tewari 2009): the models of UCRL2's set with a small span.

REGAL.C needs the best gain over the set among models whose optimal bias has a span of at most H,
for which no algorithm is known. Here the relaxation by SCAL's operator (Fruit et al. 2018) is
solved, the truncated optimistic backup min(Lv, min Lv + H), which is planner `span` on one factor.
Its gain is at least REGAL.C's if the truth is in the set and H is enough, which is what the regret
bound O~(H S sqrt(A T)) needs. The set is UCRL2's (ucrl2.py). `budget` is H, in units of the reward.

There is no public code. The paper is given H; here it may be left out, and then grows as in FSRL
(budgets.py). With `faithful=True` it is required, and an episode ends as in the paper, when a pair
is about to be played whose count has doubled. By default it ends when the count doubles.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from fmdp.learning.agent import Agent
from fmdp.learning.budgeted import SpanBudgeted
from fmdp.learning.flat import Flat
from fmdp.learning.sets import SetLearner
from fmdp.learning.ucrl2 import ucrl2_tables
from fmdp.model import OptimisticTables


class REGAL(Flat, SpanBudgeted, SetLearner):
    """UCRL2's balls under a bound on the span, by Bartlett and Tewari, solved as SCAL: flat."""

    name = "regal"
    published: ClassVar[Mapping[str, object]] = {"episodes": "before-doubling"}

    def tables(self, agent: Agent) -> OptimisticTables:
        return ucrl2_tables(agent.statistics, agent.steps + 1, self.rho, self.c)
