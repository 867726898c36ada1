"""The product of two 4-state circles: an infinite diameter, but easy (Xu and Tewari 2020).

Each circle moves one step back or forward with certainty in every time step, and pays 1 in state 0.
The parity of s_0 + s_1 never changes, so half of the states cannot be reached from the other half.
The gain is 1 from every start, each circle's diameter is 2, and sp = Q = 2. Among the optimal
policies the largest span is 5 (docs/theory.md, section 6).
"""

from __future__ import annotations

import numpy as np

from fmdp.model.factored import FactoredMDP
from fmdp.problems.copies import copies
from fmdp.problems.family import Problem, reward_setting

CIRCLES = 2
STATES = 4


class LargeDiameter(Problem):
    """The product of two 4-state circles that each pay in one state."""

    summary = "product of two 4-state circles: infinite diameter, gain 1"
    example = "large-diameter"

    reward: str = reward_setting()

    def build(self) -> FactoredMDP:
        step = np.eye(STATES)
        transition = np.stack([np.roll(step, -1, axis=1), np.roll(step, 1, axis=1)], axis=1)
        return copies(
            name=str(self),
            n=CIRCLES,
            transition=transition,
            means=np.eye(STATES)[0],
            reward=self.reward,
            initial=0,
            action_values=("back", "forward"),
        )
