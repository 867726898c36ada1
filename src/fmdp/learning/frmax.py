"""f-Rmax (Guestrin et al. 2002; Strehl 2007): an entry is unknown until it has m visits.

Unknown entries have all their mass free and the highest reward; known ones are as estimated, with
no width. The same optimistic planner as DORL's serves, so the plan is optimistic for the model
whose known entries are as estimated. Plans again whenever an entry becomes known.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fmdp.learning.confidence import all_or_nothing_tables
from fmdp.learning.episodes import EPISODES, LENGTH, RULES, EpisodeRule, episode_rule
from fmdp.learning.learner import TARGETS, PlanningLearner
from fmdp.model import OptimisticTables, Structure
from fmdp.parameters import Integer
from fmdp.planning.plan import Planner


class FRmax(PlanningLearner):
    """Factored Rmax; parameters m, episodes, length, targets."""

    name = "frmax"
    summary = "factored Rmax: optimistic about every entry with fewer than m visits"
    parameters = (
        Integer("m", 300, "visits after which an entry is known", low=1),
        replace(
            EPISODES,
            default="known",
            meaning="when to plan again: when an entry becomes known, or as in other learners",
            choices=("known", *RULES),
        ),
        LENGTH,
        TARGETS,
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
            f"learner {self.name}", enough=self.settings["m"],
        )  # fmt: skip

    def tables(self) -> OptimisticTables:
        return all_or_nothing_tables(self.statistics, self.settings["m"])
