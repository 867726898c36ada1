"""A learner that sleeps, for measurements of sweeps without their runs."""

from __future__ import annotations

import time

import fmdp
from fmdp.learning.random import Random


class Sleeper(Random):
    """Acts at random, after a pause that takes no core."""

    seconds: float = fmdp.setting(0.1, "seconds that the run takes", low=0.0)

    def decide(self, agent: fmdp.Agent) -> fmdp.Decision:
        time.sleep(self.seconds)
        return super().decide(agent)
