"""The lower baseline: every action variable uniform at random in every step."""

from __future__ import annotations

from fmdp.learning.agent import Agent, Decision
from fmdp.learning.learner import Learner
from fmdp.planning.policies.randomised import UniformPolicy


class Random(Learner):
    """Uniform random actions."""

    role = "lower"
    counts = False

    def decide(self, agent: Agent) -> Decision:
        return Decision(UniformPolicy.of(agent.structure))
