"""Flat: a learner that does not use the factors, because its state and its action are one variable.

    class UCRL2(Flat, SetLearner): ...          class FlatDORL(Flat, DORL): ...

Any planning learner becomes flat by this base before its own. Joint states and joint actions (both
in C order, last variable fastest) are the values of one variable each, the reward is the sum of the
factors' rewards, with the sum of their ranges: the structure is that of `flat_model`, and the
learner is the factored one on it, with its own sets, posterior, episodes and planner. What is
counted, by the compiled loop as by `observe`, are joint states and actions; what is played is the
plan's table (over a horizon, one a step), which is the same table in either numbering. Rows that
are known to be alike in every factor are one row here too, and constraints hold.

On a model with one factor flat and factored are the same learner, step by step. Otherwise the
counts cost A S^2 numbers, a sweep of the planner A S^2 operations: refused above 2^24 cells.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from fmdp.errors import InvalidParameter, TooLarge
from fmdp.learning.agent import Agent, Decision
from fmdp.learning.learner import PlanningLearner
from fmdp.learning.statistics import Floats, Statistics
from fmdp.model import FactoredMDP, Structure
from fmdp.model.entries import Index
from fmdp.model.naming import Assignment
from fmdp.model.products import flat_structure
from fmdp.model.spaces import encode, project, shown
from fmdp.planning.exact.planner import Exact
from fmdp.planning.plan import Planner
from fmdp.planning.policies.policy import TablePolicy
from fmdp.planning.policies.timed import TimedPolicy
from fmdp.planning.span import SpanConstrained

CELLS = 1 << 24
"""Up to so many numbers are counted, A S^2."""


class JointStatistics(Statistics):
    """Counts of joint states and actions; steps are told in the variables that they have.

    Parameters
    ----------
    structure
        Of the model that the steps are taken in.
    """

    def __init__(self, structure: Structure) -> None:
        super().__init__(flat_structure(structure))
        self.joined = self.entries
        self._told = Statistics(structure)

    def check(
        self,
        state: Assignment,
        action: Assignment,
        rewards: Sequence[float] | Mapping[str, float],
        next_state: Assignment,
    ) -> Floats:
        observed = self._told.check(state, action, rewards, next_state)
        s = self._told.structure
        before, done = s.check_state(state), s.check_action(action)
        self._joint[:] = encode(before, s.state_sizes), encode(done, s.action_sizes)
        self._next[0] = encode(s.check_state(next_state), s.state_sizes)
        # One after the other, as the compiled loop adds: np.sum would add in pairs.
        return np.array([sum(observed.tolist(), start=0.0)])

    def entries_of(self, state: Sequence[int], action: Sequence[int]) -> Index:
        s = self._told.structure
        joint = encode(state, s.state_sizes), encode(action, s.action_sizes)
        return super().entries_of(joint[:1], joint[1:])

    def rewards_of(self, model: FactoredMDP) -> Floats:
        s = model.structure
        joint = np.zeros(s.n_states * s.n_actions)
        for table, scope in zip(model.rewards, s.reward_scopes, strict=True):
            joint += np.asarray(table, dtype=np.float64).reshape(-1)[project(s.sizes, scope)]
        return self._known(joint)

    def rewards_in_order(self, rewards: Sequence[float] | Mapping[str, float]) -> Sequence[float]:
        return self._told.rewards_in_order(rewards)


class Flat(PlanningLearner):
    """A planning learner on joint states and actions; a base to be named before the learner's."""

    def check_planner(self) -> None:
        """Refuse a planner that makes no table of the joint states."""
        super().check_planner()
        planner = self.planner
        if planner is not None and not isinstance(planner, Exact | SpanConstrained):
            raise InvalidParameter(
                f"{self.owner()} is flat: it plays a table of the joint states; got planner "
                f"{getattr(planner, 'name', planner)}, must be exact or span"
            )

    def statistics_for(self, structure: Structure) -> Statistics:
        cells = structure.n_actions * structure.n_states**2
        if cells > CELLS:
            raise TooLarge(
                f"{self.owner()} is flat: {shown(structure.n_states)} joint states and "
                f"{shown(structure.n_actions)} joint actions make {shown(cells)} counts; at most "
                f"{CELLS} are allowed",
                8 * cells,
                8 * CELLS,
            )
        return JointStatistics(structure)

    def planner_for(self, structure: Structure) -> tuple[Planner | None, str | None]:
        planner, reason = super().planner_for(structure)
        if not isinstance(planner, Exact | SpanConstrained):
            raise InvalidParameter(
                f"{self.owner()} is flat: it needs the exact planner; {reason}; give "
                f"planner=exact to try all the same"
            )
        return planner, reason

    def decide(self, agent: Agent) -> Decision:
        made = super().decide(agent)
        s, planned = agent.structure, made.policy

        def told(table: TablePolicy) -> TablePolicy:
            return TablePolicy(s.state_sizes, s.action_sizes, table.actions)

        return replace(made, policy=each_table(planned, told))


def each_table(
    policy: object, changed: Callable[[TablePolicy], TablePolicy]
) -> TablePolicy | TimedPolicy:
    """The policy with its table changed, or each of those that it plays one after the other."""
    if isinstance(policy, TimedPolicy):
        stages = [changed(table) for table in policy.stages]
        steps = [stages[number] for number in policy.stage_numbers.tolist()]
        return TimedPolicy(steps, policy.discount)
    assert isinstance(policy, TablePolicy)
    return changed(policy)
