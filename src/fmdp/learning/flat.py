"""Flat learners: the joint state and the joint action are one variable each.

    class UCRL2(Flat, SetLearner): ...          class FlatDORL(Flat, DORL): ...

This base, listed first, makes any planning learner flat. Joint states and joint actions (in C
order, last variable fastest) are the values of one variable each, and the reward is the sum of the
factors' rewards, with the sum of their ranges. The learner then works on the structure of
`flat_model` with its own sets, posterior, episodes and planner. Joint states and actions are
counted, by the compiled loop and by `observe`. The policy is the plan's table (one per step over a
horizon), which is the same table in both numberings. Rows that are known to be alike in every
factor are one row here too, and constraints hold.

On a model with one factor the flat and the factored learner are the same, step by step. Otherwise
the counts take A S^2 numbers and a sweep A S^2 operations; more than 2^24 cells are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from fmdp.errors import InvalidParameter, TooLarge
from fmdp.learning.agent import Agent, Decision
from fmdp.learning.learner import TABULAR, PlanningLearner, require_planner
from fmdp.learning.statistics import Floats, Statistics
from fmdp.model import FactoredMDP, Structure
from fmdp.model.entries import Index
from fmdp.model.expansion import pair_rows
from fmdp.model.naming import Assignment
from fmdp.model.products import flat_structure
from fmdp.model.spaces import encode, shown
from fmdp.planning.plan import Planner
from fmdp.planning.policies.policy import TablePolicy
from fmdp.planning.policies.timed import TimedPolicy

CELLS = 1 << 24
"""Largest number of counts, A S^2."""


class JointStatistics(Statistics):
    """Counts of joint states and actions, recorded from steps in the original variables."""

    def __init__(self, structure: Structure) -> None:
        super().__init__(flat_structure(structure))
        self.joined = self.entries
        self._factored = Statistics(structure)

    def check(
        self,
        state: Assignment,
        action: Assignment,
        rewards: Sequence[float] | Mapping[str, float],
        next_state: Assignment,
    ) -> Floats:
        observed = self._factored.check(state, action, rewards, next_state)
        s = self._factored.structure
        joint_state = encode(s.check_state(state), s.state_sizes)
        self._joint[:] = joint_state, encode(s.check_action(action), s.action_sizes)
        self._next[0] = encode(s.check_state(next_state), s.state_sizes)
        # In sequence, as in the compiled loop: np.sum would add pairwise.
        return np.array([sum(observed.tolist(), start=0.0)])

    def entries_of(self, state: Sequence[int], action: Sequence[int]) -> Index:
        s = self._factored.structure
        joint = encode(state, s.state_sizes), encode(action, s.action_sizes)
        return super().entries_of(joint[:1], joint[1:])

    def rewards_of(self, model: FactoredMDP) -> Floats:
        s = model.structure
        joint = np.zeros(s.n_states * s.n_actions)
        for table, scope in zip(model.rewards, s.reward_scopes, strict=True):
            joint += np.asarray(table, dtype=np.float64).reshape(-1)[pair_rows(s, scope)]
        return self._known(joint)

    def rewards_in_order(self, rewards: Sequence[float] | Mapping[str, float]) -> Sequence[float]:
        return self._factored.rewards_in_order(rewards)


def joint_statistics(structure: Structure, owner: str) -> JointStatistics:
    """Return empty counts of joint states and actions; raise TooLarge for too many."""
    cells = structure.n_actions * structure.n_states**2
    if cells > CELLS:
        raise TooLarge(
            f"{owner} is flat: {shown(structure.n_states)} joint states and "
            f"{shown(structure.n_actions)} joint actions make {shown(cells)} counts; at most "
            f"{CELLS} are allowed",
            8 * cells,
            8 * CELLS,
        )
    return JointStatistics(structure)


class Flat(PlanningLearner):
    """A planning learner on joint states and actions; list this base first."""

    def check(self) -> None:
        super().check()
        if getattr(self, "scopes", "known") != "known":
            raise InvalidParameter(
                f"the 'scopes' parameter of {self.owner()} must be known: it is flat, and has no "
                f"scopes to learn"
            )

    def check_planner(self) -> None:
        """Raise InvalidParameter for a planner without a table of the joint states."""
        super().check_planner()
        reason = f"{self.owner()} is flat: it plays a table of the joint states"
        require_planner(self.planner, TABULAR, reason, "exact or span")

    def statistics_for(self, structure: Structure) -> Statistics:
        return joint_statistics(structure, self.owner())

    def planner_for(self, structure: Structure) -> tuple[Planner | None, str | None]:
        planner, reason = super().planner_for(structure)
        if not isinstance(planner, TABULAR):
            raise InvalidParameter(
                f"{self.owner()} is flat: it needs the exact planner; {reason}; give "
                f"planner=exact to try all the same"
            )
        return planner, reason

    def decide(self, agent: Agent) -> Decision:
        decision = super().decide(agent)
        s = agent.structure

        def factored(table: TablePolicy) -> TablePolicy:
            return TablePolicy(s.state_sizes, s.action_sizes, table.actions)

        return replace(decision, policy=each_table(decision.policy, factored))


def each_table(
    policy: object, changed: Callable[[TablePolicy], TablePolicy]
) -> TablePolicy | TimedPolicy:
    """Return the policy with its table changed; for a TimedPolicy, each of its tables."""
    if isinstance(policy, TimedPolicy):
        stages = [changed(table) for table in policy.stages]
        steps = [stages[number] for number in policy.stage_numbers.tolist()]
        return TimedPolicy(steps, policy.discount)
    assert isinstance(policy, TablePolicy)
    return changed(policy)
