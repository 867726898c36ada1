"""The gain of a given policy: exact by elimination where the states fit, else simulated.

Simulated: one long run from the initial state, cut into batches; the interval is Student's t on the
batch means of the expected reward after a burn-in, at the stated confidence. It is an estimate and
is labelled so.
"""

from __future__ import annotations

import math
import time

import numpy as np

from fmdp.errors import TooLarge
from fmdp.learning.episodes import NO_LIMITS
from fmdp.learning.learner import Offer, Table, action_table
from fmdp.model import FactoredMDP
from fmdp.planning.evaluate import TABULATED_STATES, Evaluation, evaluate_exactly
from fmdp.planning.plan import Progress, Status
from fmdp.planning.policy import Policy
from fmdp.simulation.environment import Environment

CONFIDENCE = 0.99
BATCHES = 32
_BURNT_IN = 0.1


def evaluate(
    model: FactoredMDP,
    policy: Policy,
    *,
    tolerance: float | None = None,
    max_iterations: int | None = None,
    memory_limit: int | None = None,
    steps: int = 1_000_000,
    seed: int = 0,
    progress: Progress | None = None,
) -> Evaluation:
    """Exact where it fits into memory, else a simulation of `steps` steps."""
    if model.structure.n_states <= TABULATED_STATES:
        try:
            return evaluate_exactly(
                model, policy, tolerance=tolerance, max_iterations=max_iterations,
                memory_limit=memory_limit, progress=progress,
            )  # fmt: skip
        except TooLarge:
            pass
    return evaluate_by_simulation(model, policy, steps=steps, seed=seed)


def evaluate_by_simulation(
    model: FactoredMDP, policy: Policy, *, steps: int = 1_000_000, seed: int = 0
) -> Evaluation:
    """Batch means of the expected reward along one run; a tenth of the steps is burnt in."""
    from scipy import stats

    started = time.perf_counter()
    environment = Environment(model, np.random.Generator(np.random.PCG64(seed)))
    batch = max(1, int((1.0 - _BURNT_IN) * steps) // BATCHES)
    actions = action_table(policy, model.structure)
    _walk(environment, policy, actions, max(0, steps - batch * BATCHES))
    means = np.empty(BATCHES)
    for number in range(BATCHES):
        before = environment.total_expected_reward
        _walk(environment, policy, actions, batch)
        means[number] = (environment.total_expected_reward - before) / batch
    half = float(stats.t.ppf(0.5 + CONFIDENCE / 2, BATCHES - 1)) * float(means.std(ddof=1))
    half /= math.sqrt(BATCHES)
    gain = float(means.mean())
    return Evaluation(
        gain=gain,
        gain_lower=gain - half,
        gain_upper=gain + half,
        kind="simulated",
        status=Status.CONVERGED,
        iterations=environment.steps,
        seconds=time.perf_counter() - started,
        confidence=CONFIDENCE,
    )


def _walk(environment: Environment, policy: Policy, actions: Table | None, steps: int) -> None:
    while steps > 0:
        if actions is None:
            environment.step(policy(environment.state))
            steps -= 1
        else:
            ready = min(steps, environment.ready())
            offer = Offer(actions, True, ready, NO_LIMITS, None, policy)
            steps -= environment.play(offer)[0]
