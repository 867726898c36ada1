"""The product of n two-state MDPs of Jaksch, Auer and Ortner 2010: the lower bound (Theorem 3).

State 1 pays 1, state 0 nothing. Every action goes 1 -> 0 with probability delta and 0 -> 1 with
delta, except the last action, which goes 0 -> 1 with delta + epsilon (the last, so that breaking
ties by the lowest index does not find it). For the sum as reward: gain n (delta + epsilon) / (2
delta + epsilon), span = factored span sum = n / (2 delta + epsilon), diameter 2 sum over odd j of
C(n, j) / (1 - (1 - 2 delta)^j), which grows like 2^n.
"""

from __future__ import annotations

import numpy as np

from fmdp._base.parameters import REQUIRED, number_text
from fmdp._base.settings import setting
from fmdp.errors import InvalidParameter
from fmdp.model.factored import FactoredMDP
from fmdp.problems.copies import copies
from fmdp.problems.family import Problem, alike_setting, refuse_if_too_large, reward_setting


class JAO(Problem):
    """The product of n two-state MDPs of Jaksch, Auer and Ortner 2010."""

    summary = "product of two-state MDPs whose good action is hard to tell (lower bound)"
    example = "jao:3"

    size: int = setting(REQUIRED, "number of copies", low=1)
    delta: float = setting(
        0.2, "probability of a change of state", low=0.0, high=0.5, low_open=True
    )
    epsilon: float = setting(0.1, "what the last action adds to it in state 0", low=0.0, high=1.0)
    actions: int = setting(2, "values of each action variable", low=2)
    reward: str = reward_setting()
    alike: str = alike_setting("copies")

    def check(self) -> None:
        if self.delta + self.epsilon > 1.0 + 1e-12:
            raise InvalidParameter(
                f"the 'epsilon' parameter of {self.owner()} must be at most "
                f"1 - delta = {number_text(1 - self.delta)}; got {number_text(self.epsilon)}"
            )

    def build(self) -> FactoredMDP:
        refuse_if_too_large(str(self), self.size * (4 * self.actions + 2), 2 * self.size)
        transition = np.empty((2, self.actions, 2))
        transition[0, :, 1] = self.delta
        transition[0, -1, 1] = min(self.delta + self.epsilon, 1.0)  # .41 + .59 may exceed 1
        transition[0, :, 0] = 1.0 - transition[0, :, 1]
        transition[1] = (self.delta, 1.0 - self.delta)
        return copies(
            name=str(self),
            n=self.size,
            transition=transition,
            means=np.array([0.0, 1.0]),
            reward=self.reward,
            initial=0,
            alike=self.alike == "copies",
        )
