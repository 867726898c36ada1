"""Operators that value iteration is run on; vectors are in the operator's order of the states."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fmdp.elimination.backup import Backup, advance, iterate_by_sweeps
from fmdp.elimination.kernels import Pace

Vector = NDArray[np.float64]


class Operator(Protocol):
    """A monotone operator L with L(h + c) = L h + c, on the states of a backup."""

    backup: Backup
    extremes: Vector
    """After `iterate`: min(L h - h), max(L h - h) and the largest |h|."""
    roundings: int
    """Largest number of roundings on the way of a number through the operator."""

    def iterate(self, h: Vector, new: Vector, scratch: Vector, pace: Pace) -> int:
        """Sweep from h until the pace ends it, with new = L h; return the number of sweeps."""

    def advance(self, h: Vector, new: Vector, pace: Pace) -> None:
        """Move h to the next iterate."""


class OptimalOperator:
    """The optimal backup: the best action in every state."""

    def __init__(self, backup: Backup) -> None:
        self.backup = backup
        self.extremes = backup.extremes
        self.roundings = backup.roundings
        self.iterate = backup.iterate
        self.advance = backup.advance


def policy_operator(
    backup: Backup, mixture: Sequence[tuple[Vector, NDArray[np.int64]]]
) -> PolicyOperator:
    """Return the backup of a policy, given as pairs (weights, actions) in C order."""
    if len(mixture) == 1:
        return PolicyOperator(backup, mixture[0][1])
    return MixedPolicyOperator(backup, mixture)


class PolicyOperator:
    """The backup of one policy, given as action indices in C order."""

    def __init__(self, backup: Backup, actions: NDArray[np.integer[Any]]) -> None:
        self.backup = backup
        self.actions = actions
        self.extremes = np.zeros(3)
        self.roundings = backup.roundings

    def iterate(self, h: Vector, new: Vector, scratch: Vector, pace: Pace) -> int:
        return iterate_by_sweeps(self.sweep, h, new, scratch, self.extremes, pace)

    def sweep(self, h: Vector, out: Vector) -> None:
        """out <- R_pi + P_pi h."""
        self.backup.policy_sweep(h, out, self.actions)

    def advance(self, h: Vector, new: Vector, pace: Pace) -> None:
        advance(h, new, self.extremes, pace)


class MixedPolicyOperator(PolicyOperator):
    """The backup of a randomised policy: the mean of the backups of tables of actions."""

    def __init__(self, backup: Backup, mixture: Sequence[tuple[Vector, NDArray[np.int64]]]) -> None:
        super().__init__(backup, mixture[0][1])
        self._mixture = [(backup.to_internal(weights), actions) for weights, actions in mixture]
        self._image = np.empty(backup.n_states)
        # A weight is a rounded quotient; then come a product, and a sum over the tables.
        self.roundings = backup.roundings + len(mixture) + 2

    def sweep(self, h: Vector, out: Vector) -> None:
        out[:] = 0.0
        for weights, actions in self._mixture:
            self.backup.policy_sweep(h, self._image, actions)
            self._image *= weights
            out += self._image
