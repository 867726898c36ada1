"""The learner that knows everything: it is given the model and plays its best policy."""

from __future__ import annotations

import numpy as np

from fmdp.errors import InvalidParameter
from fmdp.learning.episodes import FOR_EVER, EpisodeRule, Fixed
from fmdp.learning.learner import PlanningLearner
from fmdp.model import FactoredMDP
from fmdp.parameters import quoted
from fmdp.planning.choice import choose_planner
from fmdp.planning.plan import Planner


class Oracle(PlanningLearner):
    """Plans once, for the true model: the upper end of every comparison."""

    name = "oracle"
    role = "upper"
    summary = "knows the model and plays its best policy"
    plans_for_models = True

    def __init__(
        self,
        model: FactoredMDP,
        *,
        planner: Planner | str | None = None,
        generator: np.random.Generator | int | None = None,
        **settings: object,
    ) -> None:
        if not isinstance(model, FactoredMDP):
            raise InvalidParameter(
                f"learner oracle must be given a FactoredMDP, the model; got {quoted(model)}"
            )
        self.model = model
        super().__init__(model.structure, settings, generator, planner)

    def choose_planner(self, planner: Planner | None) -> Planner:
        # One plan, not hundreds: the planner's own tolerance stands.
        if planner is None:
            planner, self.planner_reason = choose_planner(self.structure)
        return planner

    def episode_rule(self) -> EpisodeRule:
        return Fixed(FOR_EVER)

    def tables(self) -> FactoredMDP:
        return self.model
