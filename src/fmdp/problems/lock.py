"""Combination locks: one long sequence of right actions pays, every mistake starts it again.

A lock has `size` positions. In position s the action (s + 1) mod `actions` is the right one: it
leads to the next position with probability `success`, else back to 0. All other actions lead to 0.
The right action in the last position opens the lock if it succeeds, which pays 1 on average
`success`, and locks it again. With q = `success` the gain of one lock is that of n successes in a
row, q^n (1 - q) / (1 - q^n), and 1 / n for q = 1. Random actions open it with q / `actions` in
place of q: the learner's problem grows exponentially with n, the diameter only if q < 1. `copies`
locks side by side, each with its own action, pay the sum.
"""

from __future__ import annotations

import numpy as np

from fmdp._base.parameters import REQUIRED
from fmdp._base.settings import setting
from fmdp.model.factored import FactoredMDP
from fmdp.problems.copies import copies
from fmdp.problems.family import Problem, refuse_if_too_large, reward_setting


class Lock(Problem):
    """A combination lock, or several side by side."""

    name = "lock"
    summary = "combination lock: a sequence of right actions pays, a mistake starts it again"
    example = "lock:4"

    size: int = setting(REQUIRED, "positions of a lock", low=1)
    actions: int = setting(2, "values of each action variable", low=2)
    success: float = setting(
        1.0, "probability that the right action works", low=0.0, high=1.0, low_open=True
    )
    copies: int = setting(1, "number of locks", low=1)
    reward: str = reward_setting()

    def build(self) -> FactoredMDP:
        n = self.size
        entries = self.copies * n * self.actions * (n + 1)
        refuse_if_too_large(str(self), entries, 2 * self.copies)
        transition = np.zeros((n, self.actions, n))
        transition[:, :, 0] = 1.0
        positions = np.arange(n)
        right = (positions + 1) % self.actions
        transition[positions, right, 0] = 1.0 - self.success
        transition[positions, right, (positions + 1) % n] += self.success
        means = np.zeros((n, self.actions))
        means[-1, right[-1]] = self.success
        return copies(
            name=str(self),
            n=self.copies,
            transition=transition,
            means=means,
            reward=self.reward,
            initial=0,
        )
