"""A learner and a rule of one's own, as examples/own.toml and docs/experiments.md use them."""

from __future__ import annotations

import fmdp


class EpsilonGreedy(fmdp.PlanningLearner):
    """Plans with what it has seen, and now and then does anything."""

    epsilon: float = fmdp.setting(0.1, "how often it does anything", low=0.0, high=1.0)

    def decide(self, agent: fmdp.Agent) -> fmdp.Decision:
        policy = agent.plan(self.tables(agent)).policy
        return self.episode(agent, fmdp.ExploringPolicy(policy, self.epsilon))

    def tables(self, agent: fmdp.Agent) -> fmdp.FactoredMDP:
        return fmdp.estimated_model(agent.statistics)


def first_that_is_down(state: tuple[int, ...]) -> int:
    """Restart the first machine that is down: action i restarts machine i, n does nothing."""
    return next((i for i, works in enumerate(state) if not works), len(state))
