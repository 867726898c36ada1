"""The oracle: a learner that knows the model and plays its optimal policy."""

from __future__ import annotations

from fmdp._base.settings import part
from fmdp.learning.agent import Agent, Decision
from fmdp.learning.learner import PLANNER_MEANING, Learner
from fmdp.model import Structure
from fmdp.planning.choice import choose_planner
from fmdp.planning.plan import Planner
from fmdp.planning.registry import planner_of
from fmdp.planning.settings import refuse_targets, without_search


class Oracle(Learner):
    """Knows the model and plays its best policy: the upper end of every comparison."""

    summary = "knows the model and plays its best policy"
    role = "upper"
    knows_model = True

    planner: Planner | str | None = part(None, PLANNER_MEANING)

    def check(self) -> None:
        object.__setattr__(self, "planner", planner_of(self.planner, self.owner()))
        refuse_targets(self.planner, self.owner())

    def planner_for(self, structure: Structure) -> tuple[Planner | None, str | None]:
        # With a single plan there is no reason to relax the tolerance.
        if self.planner is None:
            planner, reason = choose_planner(structure)
            return without_search(planner), reason
        assert not isinstance(self.planner, str)
        return without_search(self.planner), None

    def decide(self, agent: Agent) -> Decision:
        assert agent.model is not None
        return Decision(agent.plan(agent.model).policy)  # type: ignore[arg-type]
