"""Continuing PSRL (Xu, Dong & Van Roy 2022): posterior sampling at random times.

PSRL with c = 1, discounted plans, and geometric episodes with the same discount: after every step
the model is replaced by another draw from the posterior with probability 1 - discount. So an
episode is on average as long as a plan looks ahead, and no counts are needed to end it. Bayesian
regret O~(tau S sqrt(A T)) against the best average reward, tau the time in which every policy's
average shows, if the discount is chosen for T (the paper has joint states, as with `Flat`). With a
fixed discount, as here, the loss of a discounted plan per step remains.

The paper leaves the prior to its user; here it is Dirichlet(.1) in every cell, as in TSDE. The
discount .99 is our choice. `length` sets the mean length of an episode independently of it.
"""

from __future__ import annotations

from fmdp._base.settings import setting
from fmdp.learning.discounted import Discounted, plan_discount_setting
from fmdp.learning.episodes import RULES, RULES_MEANING, EpisodeRule
from fmdp.learning.psrl import PSRL
from fmdp.model import Structure


class CPSRL(Discounted, PSRL):
    """Posterior sampling at random times, by Xu, Dong and Van Roy: plans under a discount."""

    name = "cpsrl"

    c = 1.0
    prior = 0.1
    discount: float = plan_discount_setting(0.99)
    episodes: str = setting("geometric", RULES_MEANING, choices=RULES)

    def check_episodes(self) -> None:
        """Raise InvalidParameter for a missing length, unless the discount determines it."""
        if self.episodes != "geometric" or self.length is not None:
            super().check_episodes()

    def rule(self, structure: Structure) -> EpisodeRule:
        if self.episodes == "geometric" and self.length is None:
            return EpisodeRule(chance=1.0 - self.discount)
        return super().rule(structure)
