"""FSRL (Xu & Tewari 2020, Algorithm 2): optimism under a budget Q for the factored span.

The confidence set is that of DORL. The program max lambda subject to Q(h) <= Q, which the paper
leaves open, is relaxed to the truncated iteration of planning/span.py: each factor gets a budget
c_i with sum c_i = Q, and the same regret argument holds, O~(Q sqrt(W L T)), as soon as sp_i(h*) <=
c_i for every i. Under the uniform split that needs Q >= m max_i sp_i(h*).

Without a given budget, Q is doubled whenever the reward refutes it (budgets.py), and is at least
Q(t) = growth * (sum of the reward ranges) * log2(1 + t). From the first t at which it is enough the
plans are optimistic, so the regret is O~(sqrt(W L T)), times log T or twice the needed Q, plus a
constant for the time before.
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

    The planner may be a SpanConstrained, whose budget counts if none is set here; a budget of 0,
    under which nothing can be learned, means none.
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
