"""Compare a run with random actions: has the learner learned anything?

A learner whose planner is too weak for its problem collects what random actions would collect, and
nothing in its regret says so. The comparison takes the second half of the run and several runs of
uniformly random actions on the same model. Where the gaps of all actions are known it compares gap
regret per step, which has little noise, and rewards per step otherwise. The learner is ahead if

    mean of the random runs - mean of the learner's second half  >  3.5 standard errors

(in regret), where 3.5 is the quantile of Student's t for a two-sided 99 % interval from eight runs,
and the standard error is that of a run of random actions, scaled to the lengths compared.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fmdp.learning.random import Random
from fmdp.model import FactoredMDP
from fmdp.simulation.loop import simulate
from fmdp.simulation.regret import Reference
from fmdp.simulation.run import Run

LEAST_STEPS = 1000
"""Shorter runs are not compared: they still explore."""
MOST_STEPS = 20_000
"""Most steps of each run of random actions."""
REPEATS = 8
"""Runs of random actions."""
STANDARD_ERRORS = 3.5
"""Quantile of Student's t with 7 degrees of freedom for 99 %."""
_ROUNDING = 1e-9
"""Differences this small, relative to the largest reward of a step, are rounding."""
_FIRST_SEED = 1_000_003
"""First seed of the random runs, unlikely to collide with a user's."""


class AgainstRandom(NamedTuple):
    """Regret per step of a run's second half and of random actions."""

    learner: float
    random: float
    noise: float
    """Largest difference that chance explains."""

    @property
    def better(self) -> bool:
        """True if the learner is ahead of random actions by more than chance."""
        return self.random - self.learner > self.noise


def compare_with_random(run: Run, model: FactoredMDP, reference: Reference) -> AgainstRandom | None:
    """Compare a run with random actions on its model; `reference` is that of the run's regret.
    Return None for runs of fewer than 1,000 steps, and if random actions have no regret beyond
    noise, so that there is nothing to learn. Raise KeyboardInterrupt if Ctrl-C ended a run of
    random actions."""
    if run.steps < LEAST_STEPS:
        return None
    learner, length = _second_half(run)
    steps = min(run.steps, MOST_STEPS)
    regrets = []
    for number in range(REPEATS):
        other = simulate(model, Random(), steps, _FIRST_SEED + number, reference=reference)
        if other.interrupted:
            raise KeyboardInterrupt
        regret = other.regret if other.gap_regret is None else other.gap_regret
        assert regret is not None  # there is a reference
        regrets.append(regret / steps)
    mean = math.fsum(regrets) / REPEATS
    deviation = float(np.std(regrets, ddof=1))
    noise = STANDARD_ERRORS * deviation * math.sqrt(steps / length + 1.0 / REPEATS)
    noise = max(noise, _ROUNDING * model.structure.reward_size)
    return AgainstRandom(learner, mean, noise) if mean > noise else None


def _second_half(run: Run) -> tuple[float, int]:
    """Return the regret per step of the second half of a run, and its length in steps."""
    curve = run.curve if run.gap_curve is None else run.gap_curve
    half, before = max((point for point in curve if 2 * point[0] <= run.steps), default=(0, 0.0))
    return (curve[-1][1] - before) / (run.steps - half), run.steps - half
