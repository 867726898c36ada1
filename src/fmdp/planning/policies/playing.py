"""What is played without asking anybody: a table of actions, drawn actions, where to stop.

Between two decisions of a learner, and in the evaluation of a policy, what is done in every state
is known beforehand. A `Stretch` says it in arrays, and the simulator's compiled loop plays it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmdp.model import Structure
from fmdp.model.entries import NO_LIMITS, NOT_COUNTED, NOT_JOINED, Counts, Entries, Index
from fmdp.model.spaces import encode
from fmdp.planning.policies.policy import Policy, Rule, TablePolicy

TABLE_STATES = 1 << 18
"""Up to here a policy that is no table becomes one, state by state as states are met."""
MOST_ACTIONS = 1 << 62
"""Up to here the joint actions have numbers that compiled code can hold."""
NO_ACTIONS: Index = np.zeros(0, dtype=np.int64)
_NO_TABLE: NDArray[np.uint8] = np.zeros(0, dtype=np.uint8)
"""Of the type of most policies' tables: the simulation is compiled once for each type."""
_NO_TABLE.flags.writeable = False


class ActionTable:
    """Joint action indices by state; -1 where the policy has not been asked yet."""

    def __init__(self, policy: Policy, structure: Structure) -> None:
        self.policy = policy
        self.structure = structure
        self.actions: NDArray[np.integer[Any]]
        if isinstance(policy, TablePolicy):
            self.actions = policy.actions
            if structure.constraints:  # once a table, and not in every step
                structure.check_policy(policy.actions.astype(np.int64))
        else:
            self.actions = np.full(structure.n_states, -1, dtype=np.int64)

    def ask(self, state: Sequence[int]) -> None:
        """Fill in the action of one state."""
        structure, action = self.structure, self.policy(state)
        if isinstance(self.policy, Rule):
            self.policy.confirm(tuple(state), action)
        place, number = encode(state, structure.state_sizes), encode(action, structure.action_sizes)
        structure.check_allowed(state, action)
        self.actions[place] = number


def action_table(policy: Policy, structure: Structure) -> ActionTable | None:
    """The policy as a table, filled as states are met; None where there are too many states, or
    actions."""
    if structure.n_actions > MOST_ACTIONS:
        return None
    if isinstance(policy, TablePolicy) or structure.n_states <= TABLE_STATES:
        return ActionTable(policy, structure)
    return None


@dataclass(frozen=True, eq=False)
class Stretch:
    """Steps whose actions are known beforehand."""

    steps: int
    """At most so many."""
    table: ActionTable | None = None
    drawn: Index = field(default_factory=lambda: NO_ACTIONS)
    """[steps]: the joint action of each step, -1 where the table says it; or empty."""
    counts: Counts = NOT_COUNTED
    """Where every step is counted."""
    joined: Entries = NOT_JOINED
    """The entries of joint states and actions, where these are what is counted."""
    limits: Index = field(default_factory=lambda: NO_LIMITS)
    """[entries]: the stretch ends when the visits of an entry reach its limit; or empty."""

    @property
    def actions(self) -> NDArray[np.integer[Any]]:
        return _NO_TABLE if self.table is None else self.table.actions
