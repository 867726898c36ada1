"""A policy as weighted tables of actions: one if it is deterministic, several for a mixture."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class WeightedActions:
    """In state s the policy takes actions[k][s] with probability weights[k][s]."""

    actions: tuple[Indices, ...]
    """[S] each: the index of a joint action."""
    weights: tuple[Floats | None, ...] = (None,)
    """[S] each, nonnegative; they sum to 1 in every state. None is 1 everywhere."""

    def shares(self, mu: Floats, n_actions: int) -> Floats:
        """Return the share of time of every joint action under a law of the states: [A]."""
        total = np.zeros(n_actions)
        for actions, weights in zip(self.actions, self.weights, strict=True):
            total += np.bincount(actions, mu if weights is None else mu * weights, n_actions)
        return total
