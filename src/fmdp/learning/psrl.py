"""PSRL (Xu & Tewari 2020, Algorithm 1; Osband & Van Roy 2014): plan for a sampled model.

At the start of an episode one model is drawn from the posterior (posterior.py) and its optimal
policy is played: over a horizon as published in 2014 (`episodes=fixed` with `horizon`), else
without one. Bayesian regret O~(D (l + m sqrt W) sqrt(L T)) when the prior is the true one. The
constants are heuristic, as in the paper's experiments: c = 0.75, and a prior of 0.01 per value
(larger ones explore more).
"""

from __future__ import annotations

from fmdp._base.settings import setting
from fmdp.learning.agent import Agent
from fmdp.learning.posterior import drawn_model
from fmdp.learning.unknown.learner import ScopeLearner
from fmdp.model import FactoredMDP


class PSRL(ScopeLearner):
    """Posterior sampling: plans for a model drawn from the posterior."""

    plans_for_models = True
    draws_scopes = True

    c: float = setting(0.75, "divisor of the counts: larger explores more", low=0.0, low_open=True)
    prior: float = setting(0.01, "Dirichlet parameter of every value before any count", low=1e-9)

    def tables(self, agent: Agent) -> FactoredMDP:
        return drawn_model(agent.statistics, self.c, self.prior, agent.randomness)
