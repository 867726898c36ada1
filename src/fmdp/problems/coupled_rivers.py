"""Coupled RiverSwims (Talebi, Jonsson and Maillard 2021): a bonus for being at all right ends.

n rivers as in riverswim.py, left reward .05 by default, each with its own action. One more reward
factor, over all variables, pays `bonus` times n in every step in which all rivers are in their last
state and swim right. The gain is therefore not a sum over the rivers. The public code of the paper
has bonus = 1 for two and for three rivers, and divides the whole reward by 2 n.
"""

from __future__ import annotations

import numpy as np

from fmdp._base.parameters import REQUIRED
from fmdp._base.settings import setting
from fmdp.model.factored import FactoredMDP
from fmdp.model.structure import Structure
from fmdp.problems.family import (
    Problem,
    refuse_if_too_large,
    reward_divisor,
    reward_setting,
)
from fmdp.problems.riverswim import (
    ACTIONS,
    RIGHT,
    river_left_setting,
    river_length_setting,
    river_tables,
)


class CoupledRivers(Problem):
    """RiverSwims with a bonus for being at all right ends together."""

    name = "coupled-rivers"
    summary = "RiverSwims that pay more if all are at their right ends together"
    example = "coupled-rivers:2,length=4"

    size: int = setting(REQUIRED, "number of rivers", low=2)
    length: int = river_length_setting()
    left: float = river_left_setting(0.05)
    bonus: float = setting(
        1.0, "reward per river while all are at their right ends and swim right", low=0.0, high=1e6
    )
    reward: str = reward_setting()

    def build(self) -> FactoredMDP:
        n, length = self.size, self.length
        tables = 2 * length * n * (length + 1) + (2 * length) ** n
        refuse_if_too_large(str(self), tables, 2 * n + 1)
        transition, means = river_tables(length, self.left)
        divisor = reward_divisor(self.reward, n)
        together = np.zeros((length,) * n + (2,) * n)
        together[(length - 1,) * n + (RIGHT,) * n] = self.bonus * n / divisor
        structure = Structure(
            state_sizes=(length,) * n,
            action_sizes=(2,) * n,
            transition_scopes=tuple((i, n + i) for i in range(n)),
            reward_scopes=(*((i, n + i) for i in range(n)), tuple(range(2 * n))),
            reward_ranges=(*((0.0, 1.0 / divisor),) * n, (0.0, self.bonus * n / divisor)),
            reward_names=(*(f"river_{i}" for i in range(n)), "together"),
            action_values=(ACTIONS,) * n,
        )
        return FactoredMDP(
            structure,
            transitions=[transition] * n,
            rewards=[*[means / divisor] * n, together],
            initial_state=(0,) * n,
            name=str(self),
        )
