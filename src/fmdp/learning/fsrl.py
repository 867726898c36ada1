"""FSRL (Xu & Tewari 2020, Algorithm 2): optimism under a budget Q for the factored span.

The confidence set is DORL's. The program max lambda subject to Q(h) <= Q, which the paper leaves
open, is relaxed to the truncated iteration of planning/span.py: each factor gets a budget c_i with
sum c_i = Q, and the same regret argument holds, O~(Q sqrt(W L T)), as soon as sp_i(h*) <= c_i for
every i. Under the uniform split that asks for Q >= m max_i sp_i(h*).

Without a budget Q is doubled whenever more reward comes in than it can explain (budgets.py), and is
at least Q(t) = growth * (sum of the reward ranges) * log2(1 + t). From the first t at which it is
enough the plans are optimistic, so the regret is O~(sqrt(W L T)) with log T or twice the needed Q
in the place of Q, plus what is lost before: a number that does not depend on T.
"""

from __future__ import annotations

from fmdp._base.settings import setting
from fmdp.learning.budgeted import SpanBudgeted
from fmdp.learning.dorl import DORL
from fmdp.learning.learner import with_targets
from fmdp.model import Structure
from fmdp.planning.plan import Planner


class FSRL(SpanBudgeted, DORL):
    """Optimism under a budget for the factored span of the bias.

    The planner may be a SpanConstrained, whose budget counts where none is set here; a budget of 0,
    under which nothing could be learned, stands for none.
    """

    split: str | None = setting(
        None,
        "how one budget is divided between the state variables; uniform by default",
        choices=("uniform", "given", "search"),
    )

    def planner_for(self, structure: Structure) -> tuple[Planner | None, str | None]:
        planner, reason = super().planner_for(structure)
        assert planner is not None
        return with_targets(planner, self.targets), reason
