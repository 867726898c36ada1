"""DORL (Xu & Tewari 2020, Algorithm 1): optimism over the discrete set of extreme transitions.

At the start of an episode the widths (delta_p) and (delta_r) make a one-sided confidence set
{P >= p-minus}; planning over it is planning in the extended FMDP, where the free mass of each
factor goes to a target that is chosen like an action. Regret O~(D (l + m sqrt W) sqrt(L T)) with
probability 1 - rho for the constants 18 and 12; one constant c = 0.03 in place of both is what the
paper's figure uses, and far less cautious.
"""

from __future__ import annotations

import numpy as np

from fmdp.errors import InvalidParameter
from fmdp.learning.confidence import REWARD_CONSTANT, TRANSITION_CONSTANT, confidence_tables
from fmdp.learning.episodes import EPISODES, LENGTH, EpisodeRule, episode_rule
from fmdp.learning.learner import TARGETS, PlanningLearner
from fmdp.model import OptimisticTables, Structure
from fmdp.parameters import Number
from fmdp.planning.plan import Planner

C = Number(
    "c", 0.03, "in place of both constants of the confidence widths", low=0.0
)  # fmt: skip
RHO = Number(
    "rho", 0.1, "failure probability of the confidence set", low=0.0, high=1.0, low_open=True
)
CONSTANTS = (
    Number(
        "transition_constant",
        None,
        f"the constant of the transition widths, in place of c; "
        f"{TRANSITION_CONSTANT:g} in the theorem",
        low=0.0,
    ),
    Number(
        "reward_constant",
        None,
        f"the constant of the reward widths, in place of c; {REWARD_CONSTANT:g} in the theorem",
        low=0.0,
    ),
)


class Optimistic(PlanningLearner):
    """A learner that plans over the confidence set of (delta_p) and (delta_r)."""

    def __init__(
        self,
        structure: Structure,
        *,
        planner: Planner | str | None = None,
        generator: np.random.Generator | int | None = None,
        **settings: object,
    ) -> None:
        super().__init__(structure, settings, generator, planner)
        c, own = self.settings["c"], [self.settings[one.name] for one in CONSTANTS]
        if c != C.default and None not in own:
            raise InvalidParameter(
                f"the 'c' parameter of learner {self.name} stands in place of a constant that is "
                f"not given; got c={C.show(c)}, transition_constant={CONSTANTS[0].show(own[0])} "
                f"and reward_constant={CONSTANTS[1].show(own[1])}"
            )

    def episode_rule(self) -> EpisodeRule:
        return episode_rule(
            self.settings["episodes"], self.settings["length"], self.structure,
            f"learner {self.name}",
        )  # fmt: skip

    def tables(self) -> OptimisticTables:
        both = self.settings["c"]
        transition, reward = (
            both if own is None else own
            for own in (self.settings["transition_constant"], self.settings["reward_constant"])
        )
        return confidence_tables(
            self.statistics,
            t=self.steps + 1,
            rho=self.settings["rho"],
            transition_constant=transition,
            reward_constant=reward,
        )


class DORL(Optimistic):
    """Discrete optimism; parameters c, rho, transition_constant, reward_constant, episodes,
    length, targets (`fmdp list` says what they mean)."""

    name = "dorl"
    summary = "discrete optimism: plans over the extreme transitions of a confidence set"
    parameters = (C, RHO, *CONSTANTS, EPISODES, LENGTH, TARGETS)
