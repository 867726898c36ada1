"""A policy in the place of a learner: what a fixed rule costs, as a baseline.

A table, or a policy that a planner made, is played in compiled code like the policy of an episode
that never ends. A function of one's own is asked in every step, since it may be anything.
"""

from __future__ import annotations

from collections.abc import Sequence

from fmdp.learning.episodes import NO_LIMITS
from fmdp.learning.learner import Offer, Table, action_table
from fmdp.model import Structure
from fmdp.planning.policy import Policy, Rule


class Baseline:
    """Plays one policy for ever and learns nothing."""

    def __init__(self, policy: Policy, structure: Structure) -> None:
        self.policy = policy
        self.structure = structure
        self._actions: Table | None = None
        if not isinstance(policy, Rule):
            self._actions = action_table(policy, structure)

    def act(self, state: Sequence[int]) -> tuple[int, ...]:
        return self.policy(state)

    def observe(
        self,
        state: Sequence[int],
        action: Sequence[int],
        rewards: Sequence[float],
        next_state: Sequence[int],
    ) -> None:
        return None

    def offer(self, at_most: int) -> Offer | None:
        if self._actions is None:
            return None
        return Offer(self._actions, True, at_most, NO_LIMITS, None, self.policy)

    def absorb(self, taken: int, limit_reached: bool) -> None:
        return None
