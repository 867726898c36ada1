"""PSRL (Xu & Tewari 2020, Algorithm 1; Osband & Van Roy 2014): plan for a sampled model.

At the start of an episode one model is drawn from the posterior (posterior.py) and its best policy
is played. Bayesian regret O~(D (l + m sqrt W) sqrt(L T)) when the prior is the true one. Several
constants are heuristic, as in the paper's experiments: c = 0.75, a prior of 0.01 a value (larger
ones explore more).
"""

from __future__ import annotations

import numpy as np

from fmdp.learning.episodes import EPISODES, LENGTH, EpisodeRule, episode_rule
from fmdp.learning.learner import PlanningLearner
from fmdp.learning.posterior import sample_model
from fmdp.model import FactoredMDP, Structure
from fmdp.parameters import Number
from fmdp.planning.plan import Planner


class PSRL(PlanningLearner):
    """Posterior sampling; parameters c, prior, episodes, length (`fmdp list` says what they mean).

    Outside `simulate` a generator has to be given, or a seed for one.
    """

    name = "psrl"
    summary = "posterior sampling: plans for a model drawn from the posterior"
    plans_for_models = True
    parameters = (
        Number("c", 0.75, "counts are divided by it: larger explores more", low=0.0, low_open=True),
        Number("prior", 0.01, "Dirichlet parameter of every value before any count", low=1e-9),
        EPISODES,
        LENGTH,
    )

    def __init__(
        self,
        structure: Structure,
        *,
        planner: Planner | str | None = None,
        generator: np.random.Generator | int | None = None,
        **settings: object,
    ) -> None:
        super().__init__(structure, settings, generator, planner)

    def episode_rule(self) -> EpisodeRule:
        return episode_rule(
            self.settings["episodes"], self.settings["length"], self.structure,
            f"learner {self.name}",
        )  # fmt: skip

    def tables(self) -> FactoredMDP:
        c, prior = self.settings["c"], self.settings["prior"]
        return sample_model(self.statistics, c, prior, self.randomness)
