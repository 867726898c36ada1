"""Precomputed actions for bulk simulation.

Between two decisions of a learner, and in the evaluation of a policy, the action in every state is
known beforehand. A `StepBatch` holds it in arrays, and the simulator's compiled loop plays it.
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
from fmdp.planning.policies.policy import Policy, TablePolicy
from fmdp.planning.policies.rule import Rule

TABLE_STATES = 1 << 18
"""Most states for which a policy is converted to a table, one state at a time when first met."""
MOST_ACTIONS = 1 << 62
"""Most joint actions: their indices must fit into int64 in compiled code."""
NO_ACTIONS: Index = np.zeros(0, dtype=np.int64)
_NO_TABLE: NDArray[np.uint8] = np.zeros(0, dtype=np.uint8)
"""Of the type of most policies' tables: the simulation is compiled once for each type."""
_NO_TABLE.flags.writeable = False


class ActionTable:
    """Joint action indices by state; -1 for states for which the policy was not called yet."""

    def __init__(self, policy: Policy, structure: Structure) -> None:
        self.policy = policy
        self.structure = structure
        self.actions: NDArray[np.integer[Any]]
        if isinstance(policy, TablePolicy):
            self.actions = policy.actions
            if structure.constraints:  # checked once per table, not in every step
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
    """Return the policy as a table that is filled on use; None for too many states or actions."""
    if structure.n_actions > MOST_ACTIONS:
        return None
    if isinstance(policy, TablePolicy) or structure.n_states <= TABLE_STATES:
        return ActionTable(policy, structure)
    return None


@dataclass(frozen=True, eq=False)
class StepBatch:
    """Steps whose actions are known beforehand."""

    steps: int
    """Most steps."""
    table: ActionTable | None = None
    drawn: Index = field(default_factory=lambda: NO_ACTIONS)
    """[steps]: the joint action of each step, -1 to use the table; or empty."""
    counts: Counts = NOT_COUNTED
    """The counts to which every step is added."""
    joined: Entries = NOT_JOINED
    """The entries of joint states and actions, if these are counted."""
    limits: Index = field(default_factory=lambda: NO_LIMITS)
    """[entries]: the batch ends when the visits of an entry reach its limit; or empty."""

    @property
    def actions(self) -> NDArray[np.integer[Any]]:
        return _NO_TABLE if self.table is None else self.table.actions
