"""f-Rmax (Guestrin et al. 2002; Strehl 2007): an entry is unknown until it has m visits.

Unknown entries have all their mass free and the highest reward; known ones are as estimated, with
no width. The same optimistic planner as DORL's serves, so the plan is optimistic for the model
whose known entries are as estimated. Plans again whenever an entry becomes known.
"""

from __future__ import annotations

from fmdp.learning.agent import Agent
from fmdp.learning.confidence import all_or_nothing_tables
from fmdp.learning.episodes import RULES, EpisodeRule, episode_rule
from fmdp.learning.learner import OptimisticLearner
from fmdp.model import OptimisticTables, Structure
from fmdp.settings import setting


class FRmax(OptimisticLearner):
    """Factored Rmax: optimistic about every entry with fewer than m visits."""

    name = "frmax"

    m: int = setting(300, "visits after which an entry is known", low=1)
    episodes: str = setting(
        "known",
        "when to plan again: when an entry becomes known, or as in other learners",
        choices=("known", *RULES),
    )

    def rule(self, structure: Structure) -> EpisodeRule:
        return episode_rule(self.episodes, self.length, structure, enough=self.m)

    def tables(self, agent: Agent) -> OptimisticTables:
        return all_or_nothing_tables(agent.statistics, self.m)
