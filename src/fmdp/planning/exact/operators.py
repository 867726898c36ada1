"""Operators that value iteration is run on; vectors are in the operator's order of the states."""

from __future__ import annotations

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


class PolicyOperator:
    """The backup of one policy, given as action indices in C order."""

    def __init__(self, backup: Backup, actions: NDArray[np.integer[Any]]) -> None:
        self.backup = backup
        self.actions = actions
        self.extremes = np.zeros(3)
        self.roundings = backup.roundings

    def iterate(self, h: Vector, new: Vector, scratch: Vector, pace: Pace) -> int:
        def sweep(source: Vector, out: Vector) -> None:
            self.backup.policy_sweep(source, out, self.actions)

        return iterate_by_sweeps(sweep, h, new, scratch, self.extremes, pace)

    def advance(self, h: Vector, new: Vector, pace: Pace) -> None:
        advance(h, new, self.extremes, pace)
