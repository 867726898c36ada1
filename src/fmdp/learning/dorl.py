"""DORL (Xu & Tewari 2020, Algorithm 1): optimism over the discrete set of extreme transitions.

At the start of an episode the widths (delta_p) and (delta_r) define a one-sided confidence set {P
>= p-minus}. Planning over it is planning in the extended FMDP, in which the free mass of each
factor goes to a target that is chosen like an action. Regret O~(D (l + m sqrt W) sqrt(L T)) with
probability 1 - rho for the constants 18 and 12. The paper's figure uses one constant, c = 0.03, in
place of both, which is far less cautious.
"""

from __future__ import annotations

from fmdp._base.parameters import number_text
from fmdp._base.settings import setting
from fmdp.errors import InvalidParameter
from fmdp.learning.agent import Agent
from fmdp.learning.confidence import REWARD_CONSTANT, TRANSITION_CONSTANT, confidence_tables
from fmdp.learning.learner import OptimisticLearner
from fmdp.model import OptimisticTables

C = 0.03  # the constant of the paper's figure


class DORL(OptimisticLearner):
    """Discrete optimism: plans over the extreme transitions of a confidence set."""

    c: float = setting(C, "value of both constants of the confidence widths", low=0.0)
    rho: float = setting(
        0.1, "failure probability of the confidence set", low=0.0, high=1.0, low_open=True
    )
    transition_constant: float | None = setting(
        None,
        f"constant of the transition widths instead of c; {TRANSITION_CONSTANT:g} in the theorem",
        low=0.0,
    )
    reward_constant: float | None = setting(
        None,
        f"constant of the reward widths instead of c; {REWARD_CONSTANT:g} in the theorem",
        low=0.0,
    )

    def check(self) -> None:
        super().check()
        constants = (self.transition_constant, self.reward_constant)
        if self.c != C and None not in constants:
            transition, reward = (number_text(value) for value in constants if value is not None)
            raise InvalidParameter(
                f"the 'c' parameter of {self.owner()} stands in place of a constant that is not "
                f"given; got c={number_text(self.c)}, transition_constant={transition} and "
                f"reward_constant={reward}"
            )

    def tables(self, agent: Agent) -> OptimisticTables:
        constants = (self.transition_constant, self.reward_constant)
        transition, reward = (self.c if value is None else value for value in constants)
        return confidence_tables(
            agent.statistics,
            t=agent.steps + 1,
            rho=self.rho,
            transition_constant=transition,
            reward_constant=reward,
        )
