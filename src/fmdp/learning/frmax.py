"""f-Rmax (Guestrin et al. 2002; Strehl 2007): an entry is unknown until it has m visits.

Known entries are taken as estimated. A new plan is made whenever an entry becomes known.

* form=extreme: unknown entries have all their mass free and the highest reward, as in DORL's
  optimistic planner. The plan is optimistic for the model whose known entries are as estimated,
  also for the average reward.
* form=heaven (Strehl 2007, for discounted rewards): unknown entries lead to heaven, which pays the
  most for ever; with one factor they are worth R_max / (1 - discount). In factored form every
  variable has its own heaven, which spreads along the scopes (absorbing.py). It is optimistic by
  the theorem there, and less so than a joint heaven, which would ignore what is known of the other
  factors. For the average reward every plan that can reach heaven, however rarely, has the largest
  gain, and all of them tie: this combination is refused.
"""

from __future__ import annotations

import numpy as np

from fmdp._base.settings import setting
from fmdp.errors import InvalidParameter
from fmdp.learning.absorbing import (
    estimated_parts,
    known_entries,
    model_with_absorbing_values,
    original_states,
    structure_with_absorbing_values,
)
from fmdp.learning.agent import Agent, Decision
from fmdp.learning.confidence import all_or_nothing_tables
from fmdp.learning.discounted import for_learning_discounted, refuse_horizon, with_discount
from fmdp.learning.episodes import RULES, EpisodeRule, episode_rule
from fmdp.learning.learner import OptimisticLearner, require_planner
from fmdp.learning.planning_budget import planner_for_learning
from fmdp.model import OptimisticTables, Structure
from fmdp.model.spaces import shown
from fmdp.planning.exact.planner import Exact
from fmdp.planning.plan import Planner
from fmdp.planning.policies.policy import TablePolicy
from fmdp.planning.settings import DISCOUNT


class FRmax(OptimisticLearner):
    """Factored Rmax: optimistic about every entry with fewer than m visits."""

    name = "frmax"

    m: int = setting(300, "visits after which an entry is known", low=1)
    episodes: str = setting(
        "known",
        "when to plan again: when an entry becomes known, or as in other learners",
        choices=("known", *RULES),
    )
    form: str = setting(
        "extreme",
        "what an unknown entry leads to: the best next value, or heaven, which pays the most for "
        "ever, under a discount (0.95 unless the planner has another)",
        choices=("extreme", "heaven"),
        unkeyed=("extreme",),
    )

    def rule(self, structure: Structure) -> EpisodeRule:
        return episode_rule(self.episodes, self.length, structure, enough=self.m)

    def check_planner(self) -> None:
        """Raise InvalidParameter unless form=heaven has an exact planner under a discount."""
        super().check_planner()
        planner = self.planner
        if self.form != "heaven":
            return
        refuse_horizon(self.horizon, f"{self.owner()} with form=heaven")
        if self.targets is not None:
            raise InvalidParameter(
                f"the 'targets' parameter of {self.owner()} is for form=extreme alone; "
                f"form=heaven has no free mass, got targets={self.targets}"
            )
        if planner is not None and getattr(planner, "criterion", None) != "discounted":
            raise InvalidParameter(
                f"the 'form' parameter of {self.owner()}: under average reward whatever ever "
                f"reaches heaven is best; form=heaven needs planner=exact,criterion=discounted"
            )
        reason = f"{self.owner()} with form=heaven plays a table of states"
        require_planner(planner, Exact, reason, "exact with criterion=discounted")

    def planned_structure(self, structure: Structure) -> Structure:
        return structure if self.form == "extreme" else structure_with_absorbing_values(structure)

    def planner_for(self, structure: Structure) -> tuple[Planner | None, str | None]:
        if self.form == "extreme":
            return super().planner_for(structure)
        if structure.derived:
            raise InvalidParameter(
                f"{self.owner()} with form=heaven does not take models with derived variables; "
                f"fmdp.expand(model) is the same model without them"
            )
        larger = structure_with_absorbing_values(structure)
        planner = self.planner
        if planner is None:
            planner, reason = planner_for_learning(larger)
            if not isinstance(planner, Exact):
                raise InvalidParameter(
                    f"{self.owner()} with form=heaven needs the exact planner, for "
                    f"{shown(larger.n_states)} states with one value more for each variable "
                    f"({reason}); give planner=exact,criterion=discounted to try all the same"
                )
            planner = with_discount(planner, DISCOUNT, self.owner())
        return for_learning_discounted(planner, larger), None

    def tables(self, agent: Agent) -> OptimisticTables:
        seen = agent.statistics
        if self.form == "extreme":
            return all_or_nothing_tables(seen, self.m)
        highs = [hi for _, hi in seen.structure.reward_ranges]
        parts = estimated_parts(seen, known_entries(seen, self.m))
        heaven = model_with_absorbing_values(*parts, highs)
        free = [np.zeros(rows) for rows in heaven.structure.transition_rows]
        return OptimisticTables.trusted(heaven.structure, heaven.transitions, free, heaven.rewards)

    def decide(self, agent: Agent) -> Decision:
        if self.form == "extreme":
            return super().decide(agent)
        policy, s = agent.plan(self.tables(agent)).policy, agent.statistics.structure
        assert isinstance(policy, TablePolicy)
        actions = np.asarray(policy.actions[original_states(s)], dtype=np.int64)
        return self.episode(agent, TablePolicy(s.state_sizes, s.action_sizes, actions))
