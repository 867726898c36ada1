"""Approximate policy iteration with max-norm projection (Guestrin, Koller & Parr 2001).

Evaluation: the weights whose V_w = w_0 + h_w has the smallest max-norm Bellman residual under the
policy, min delta subject to |R_pi + g P_pi V_w - V_w| <= delta for all states, a linear program
separated by elimination. Improvement: the greedy policy of these weights as a decision list. The
usual error bounds of policy iteration are stated in the max-norm.
"""

from __future__ import annotations

from fmdp.planning.alp.decisions import DecisionList, PolicyConstraints
from fmdp.planning.alp.program import ConstraintFamily
from fmdp.planning.alp.residual_planner import ResidualPlanner, ResidualSearch


class PolicyIteration(ResidualPlanner):
    """Approximate policy iteration with max-norm projection."""

    def constraints(
        self, search: ResidualSearch, policy: DecisionList
    ) -> tuple[ConstraintFamily, ...]:
        return tuple(
            PolicyConstraints(search.advantages, policy, self.discount, sign)
            for sign in (1.0, -1.0)
        )
