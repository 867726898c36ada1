"""The product of n RiverSwims (Strehl and Littman 2008), 6 states each by default.

Left moves down by one with certainty and pays `left` (.005) in state 0. Right swims against the
current and pays 1 in the last state: from 0 stay .4, up .6; in between down .05, stay .6, up .35;
from the last stay .6, down .4. For the sum as reward and 6 states: gain .428622434 n, span =
factored span sum = 6.310324 n. The diameter of one copy is the time from the first state to the
last: state s is left for s + 1 after 10/3 - (5/3) 7^-s steps on average, in all
10 (S - 1) / 3 - (35 / 18) (1 - 7^-(S - 1)) for S states.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fmdp._base.parameters import REQUIRED
from fmdp._base.settings import setting
from fmdp.model.factored import FactoredMDP
from fmdp.model.spaces import FloatArray
from fmdp.problems.copies import copies
from fmdp.problems.family import Problem, alike_setting, refuse_if_too_large, reward_setting

LEFT, RIGHT = range(2)
ACTIONS = ("left", "right")


def river_length_setting() -> Any:
    """Return the setting for the number of states of a river."""
    return setting(6, "states of each river", low=2)


def river_left_setting(default: float) -> Any:
    """Return the setting for the reward at the left end."""
    return setting(default, "reward for swimming left in state 0", low=0.0, high=1.0)


def river_tables(length: int, left: float) -> tuple[FloatArray, FloatArray]:
    """Return the transitions [S, A, S] and the mean rewards [S, A] of one river."""
    last = length - 1
    transition = np.zeros((length, 2, length))
    for s in range(length):
        transition[s, LEFT, max(0, s - 1)] = 1.0
    for s in range(1, last):
        transition[s, RIGHT, s - 1 : s + 2] = (0.05, 0.6, 0.35)
    transition[0, RIGHT, :2] = (0.4, 0.6)
    transition[last, RIGHT, -2:] = (0.4, 0.6)
    means = np.zeros((length, 2))
    means[0, LEFT] = left
    means[last, RIGHT] = 1.0
    return transition, means


class RiverSwim(Problem):
    """The product of n RiverSwims, of 6 states each by default."""

    name = "riverswim"
    summary = "product of RiverSwims: the large reward is far from the start"
    example = "riverswim:2"

    size: int = setting(REQUIRED, "number of copies", low=1)
    length: int = river_length_setting()
    left: float = river_left_setting(0.005)
    reward: str = reward_setting()
    alike: str = alike_setting("copies")

    def build(self) -> FactoredMDP:
        refuse_if_too_large(
            str(self), self.size * 2 * self.length * (self.length + 1), 2 * self.size
        )
        transition, means = river_tables(self.length, self.left)
        return copies(
            name=str(self),
            n=self.size,
            transition=transition,
            means=means,
            reward=self.reward,
            initial=0,
            alike=self.alike == "copies",
            action_values=ACTIONS,
        )
