"""The product of n RiverSwims (Strehl and Littman 2008), 6 states each.

Left moves down by one with certainty and pays .005 in state 0. Right swims against the current and
pays 1 in state 5: from 0 stay .4, up .6; from 1 to 4 down .05, stay .6, up .35; from 5 stay .6,
down .4. For the sum as reward: gain .428622434 n, span = factored span sum = 6.310324 n.
"""

from __future__ import annotations

import numpy as np

from fmdp._base.parameters import REQUIRED
from fmdp._base.settings import setting
from fmdp.model.factored import FactoredMDP
from fmdp.problems.copies import copies
from fmdp.problems.family import Problem, alike_setting, reward_setting

STATES = 6
LEFT, RIGHT = range(2)


class RiverSwim(Problem):
    """The product of n RiverSwims of 6 states."""

    name = "riverswim"
    summary = "product of 6-state RiverSwims: the large reward is far from the start"
    example = "riverswim:2"

    size: int = setting(REQUIRED, "number of copies", low=1)
    reward: str = reward_setting()
    alike: str = alike_setting("copies")

    def build(self) -> FactoredMDP:
        last = STATES - 1
        transition = np.zeros((STATES, 2, STATES))
        for s in range(STATES):
            transition[s, LEFT, max(0, s - 1)] = 1.0
        for s in range(1, last):
            transition[s, RIGHT, s - 1 : s + 2] = (0.05, 0.6, 0.35)
        transition[0, RIGHT, :2] = (0.4, 0.6)
        transition[last, RIGHT, -2:] = (0.4, 0.6)
        means = np.zeros((STATES, 2))
        means[0, LEFT] = 0.005
        means[last, RIGHT] = 1.0
        return copies(
            name=str(self),
            n=self.size,
            transition=transition,
            means=means,
            reward=self.reward,
            initial=0,
            alike=self.alike == "copies",
            action_values=("left", "right"),
        )
