"""Direct minimisation of the Bellman error (after Schuurmans & Patrascu 2002, section on Bellman
error; Patrascu et al. 2002): min over w of max_s |V_w(s) - max_a Q_w(s, a)|.

Half of it is linear, "Q_w(s, a) - V_w(s) <= delta for all s, a"; the other half holds a maximum on
the wrong side. With the greedy policy pi of the last weights in its place, "V_w(s) - Q_w(s, pi(s))
<= delta" is linear too, and both are separated by elimination. The last weights stay feasible when
pi becomes greedy for them, so delta never rises from step to step: it ends in a local minimum,
reported as `objective`, and in a certified bound |V_w - V*| <= delta / (1 - g).
"""

from __future__ import annotations

from fmdp.planning.alp.constraints import Constraints
from fmdp.planning.alp.decisions import DecisionList, PolicyConstraints
from fmdp.planning.alp.question import Part
from fmdp.planning.alp.residual import ResidualPlanner, ResidualSearch


class BellmanError(ResidualPlanner):
    """Direct minimisation of the Bellman error."""

    def parts(self, search: ResidualSearch, policy: DecisionList) -> tuple[Part, ...]:
        n = search.basis.size
        every_action = Constraints(
            search.decisions.forms, self.discount, rhs=n + 1, first_column=n + 2
        )
        own = PolicyConstraints(search.decisions, policy, self.discount, -1.0)
        return every_action, own
