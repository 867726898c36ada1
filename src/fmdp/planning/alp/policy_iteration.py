"""Approximate policy iteration with max-norm projection (Guestrin, Koller & Parr 2001).

Evaluation: the weights whose V_w = w_0 + h_w has the smallest max-norm Bellman residual under the
policy, min delta subject to |R_pi + g P_pi V_w - V_w| <= delta for all states, a linear program
separated by elimination. Improvement: the greedy policy of these weights as a decision list. The
max-norm is the norm in which the usual error bounds of policy iteration hold.
"""

from __future__ import annotations

from fmdp.planning.alp.decisions import DecisionList, PolicyConstraints
from fmdp.planning.alp.question import Part
from fmdp.planning.alp.residual import ResidualPlanner, ResidualSearch


class PolicyIteration(ResidualPlanner):
    """Approximate policy iteration with max-norm projection."""

    def parts(self, search: ResidualSearch, policy: DecisionList) -> tuple[Part, ...]:
        return tuple(
            PolicyConstraints(search.decisions, policy, self.discount, sign) for sign in (1.0, -1.0)
        )
