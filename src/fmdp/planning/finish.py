"""What to do when value iteration stands still on a model that is small enough to be written out.

Either the gain is one number that the iteration cannot find within its lifetime (states that are
left once in a million steps, a corridor that pays a little less at one end): then policy iteration
finds an h whose bounds meet, and the iteration goes on from there.  Or it depends on the state:
then two states are shown whose certified gains differ (gains.py).  No third answer is a proof, and
none is given.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fmdp.elimination.backup import Backup, TimeUp
from fmdp.elimination.rounding import rounding_allowance, tie_slack
from fmdp.model import FactoredMDP
from fmdp.model.spaces import encode
from fmdp.planning.iteration import Rescue

if TYPE_CHECKING:  # needed seldom, and SciPy's sparse solvers take their time to load
    from fmdp.planning.flat import Flat
    from fmdp.planning.gains import Gains

Vector = NDArray[np.float64]


@dataclass(eq=False)
class Finish:
    """`iteration.solve` calls it with h when it stands still; it remembers what it found."""

    model: FactoredMDP
    backup: Backup
    deadline: float | None = None
    gains: Gains | None = None
    """Of every state, if they were proved to differ."""
    unique_bias: bool = False
    """Whether every solution of the optimality equation is the same up to a constant."""

    def __call__(self, h: Vector) -> Rescue | None:
        from fmdp.planning.flat import flat_of
        from fmdp.planning.gains import best_gains, one_gain

        flat = flat_of(self.model)
        if flat is None:
            return None
        gains = best_gains(flat, self._check)
        if gains is None:
            return None
        if gains.lower.max() > gains.upper.min():
            self.gains = gains
            return Rescue(differ=(float(gains.lower.min()), float(gains.upper.max())))
        all_states = np.ones(flat.n_states, dtype=np.bool_)
        all_pairs = np.ones((flat.n_states, flat.n_actions), dtype=np.bool_)
        whole = one_gain(flat, all_states, all_pairs, self._check, gains.actions)
        if whole is None:
            return None
        self.unique_bias = _has_unique_bias(flat, whole.h, self.model.structure.reward_unit)
        return Rescue(h=self.backup.to_internal(whole.h))

    def _check(self) -> None:
        if self.deadline is not None and time.monotonic() >= self.deadline:
            raise TimeUp

    def gain_from(self, state: tuple[int, ...]) -> tuple[float, float]:
        """Bounds on the best gain from a state, where gains differ."""
        assert self.gains is not None
        position = encode(state, self.model.structure.state_sizes)
        return float(self.gains.lower[position]), float(self.gains.upper[position])


def _has_unique_bias(flat: Flat, h: Vector, unit: float) -> bool:
    """h is unique up to a constant if the actions that are optimal at h have one end component.

    (Schweitzer & Federgruen 1978: the solutions have as many degrees of freedom as a policy that
    is as recurrent as optimal policies can be has recurrent classes.)
    """
    from fmdp.planning.flat import end_components

    values = flat.backup(h)
    size = float(np.abs(h).max() + np.abs(flat.rewards).max())
    slack = tie_slack(unit, size, flat.roundings) + 4.0 * rounding_allowance(size, flat.roundings)
    best = values.max(axis=1, keepdims=True)
    return end_components(flat, values >= best - slack).count == 1
