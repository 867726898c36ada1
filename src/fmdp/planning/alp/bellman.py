"""Direct minimisation of the Bellman error (after Schuurmans & Patrascu 2002, section on Bellman
error; Patrascu et al. 2002): min over w of max_s |V_w(s) - max_a Q_w(s, a)|.

One half is linear: "Q_w(s, a) - V_w(s) <= delta for all s, a". The other half has the maximum on
the wrong side. With the greedy policy pi of the last weights in its place, "V_w(s) - Q_w(s, pi(s))
<= delta" is linear too, and both are separated by elimination. The last weights stay feasible when
pi becomes greedy for them, so delta never rises from step to step. The search ends in a local
minimum, reported as `objective`, which certifies |V_w - V*| <= delta / (1 - g).
"""

from __future__ import annotations

from fmdp.planning.alp.constraints import BellmanConstraints
from fmdp.planning.alp.decisions import DecisionList, PolicyConstraints
from fmdp.planning.alp.program import ConstraintFamily
from fmdp.planning.alp.residual_planner import ResidualPlanner, ResidualSearch


class BellmanError(ResidualPlanner):
    """Direct minimisation of the Bellman error."""

    def constraints(
        self, search: ResidualSearch, policy: DecisionList
    ) -> tuple[ConstraintFamily, ...]:
        n = search.basis.size
        above = BellmanConstraints(
            search.advantages.residual, self.discount, rhs=n + 1, first_column=n + 2
        )
        below = PolicyConstraints(search.advantages, policy, self.discount, -1.0)
        return above, below
