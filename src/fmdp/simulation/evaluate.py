"""The gain of a given policy: exact by elimination where the states fit, else simulated.

Simulated: one long run from the initial state, cut into batches; the interval is Student's t on the
batch means of the expected reward after a burn-in, at the stated confidence. It is an estimate and
is labelled so.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from fmdp.errors import TooLarge
from fmdp.model import FactoredMDP
from fmdp.model.factored import check_model
from fmdp.parameters import Integer, resolve
from fmdp.planning.evaluate import TABULATED_STATES, Evaluation, evaluate_exactly
from fmdp.planning.exact import Exact
from fmdp.planning.plan import Progress, Status
from fmdp.planning.playing import ActionTable, Stretch, action_table
from fmdp.planning.policy import Policy, policy_of
from fmdp.planning.timed import TimedPolicy
from fmdp.progress import reporting
from fmdp.simulation.environment import Environment

CONFIDENCE = 0.99
BATCHES = 32
_BURNT_IN = 0.1
_REPORTED_STEPS = 1 << 10
"""Steps between two reports: a policy that is asked state by state takes milliseconds a step."""


STEPS = Integer("steps", 1_000_000, "steps of the simulation", low=2 * BATCHES, high=2**53)
SEED = Integer("seed", 0, "seed of the simulation", low=0)
_LIMITS = tuple(
    one for one in Exact.parameters if one.name in ("tolerance", "max_iterations", "memory_limit")
)


def evaluate(
    model: FactoredMDP,
    policy: Policy | Callable[[tuple[int, ...]], Any] | str | os.PathLike[str],
    *,
    tolerance: float | None = None,
    max_iterations: int | None = None,
    memory_limit: int | None = None,
    steps: int = 1_000_000,
    seed: int = 0,
    progress: bool | Progress | None = None,
) -> Evaluation:
    """The gain of a policy: exact where it fits into memory, else simulated.

    Which of the two it is depends on the memory, so the arguments of both may be given; `kind` of
    the result says which it was. A policy with a horizon has no gain but a value, the expected sum
    over its steps, which is never simulated.

    Parameters
    ----------
    model
        The model that the policy acts in.
    policy
        A policy, such as `plan.policy`; a function that answers a state (a tuple of ints) with an
        action, the same one whenever it is asked; or the path of a policy file.
    tolerance
        Exact: largest gap between the bounds, in the unit of the reward. None is 1e-6 times the
        largest range of a reward factor.
    max_iterations
        Exact: most sweeps, at least 1. None is 100,000.
    memory_limit
        Exact: most bytes; above, it is simulated. None is half of what is free.
    steps
        Simulated: steps of the one long run, at least 64; the first tenth is not counted.
    seed
        Simulated: seed of the run, at least 0.
    progress
        True shows a bar; a function is called now and then with a mapping of what is known so
        far; None is silent.

    Returns
    -------
    Evaluation
        The gain from the initial state, its bounds, and what they are worth.

    Raises
    ------
    InvalidParameter
        Where an argument is out of its range, or the policy is for other sizes or answers with
        what is no action.
    FileProblem
        Where the policy file is missing or of another format.
    TooLarge
        Where a policy with a horizon does not fit into the memory limit.
    """
    check_model(model, "evaluate")
    limits = resolve(
        _LIMITS,
        {"tolerance": tolerance, "max_iterations": max_iterations, "memory_limit": memory_limit},
        "evaluate",
    )
    STEPS.check(steps, "evaluate")
    SEED.check(seed, "evaluate")
    asked = policy_of(policy, model.structure, "evaluate")
    what = f"evaluating a policy of {model.name or 'the model'}"
    with reporting(progress, what, "evaluate") as report:
        return _evaluated(model, asked, limits, steps, seed, report)


def _evaluated(
    model: FactoredMDP,
    policy: Policy,
    limits: Mapping[str, Any],
    steps: int,
    seed: int,
    progress: Progress | None,
) -> Evaluation:
    if isinstance(policy, TimedPolicy):
        return evaluate_exactly(model, policy, **limits, progress=progress)
    if model.structure.n_states <= TABULATED_STATES:
        try:
            return evaluate_exactly(model, policy, **limits, progress=progress)
        except TooLarge:
            pass
    return evaluate_by_simulation(model, policy, steps=steps, seed=seed, progress=progress)


def evaluate_by_simulation(
    model: FactoredMDP,
    policy: Policy,
    *,
    steps: int = 1_000_000,
    seed: int = 0,
    progress: Progress | None = None,
) -> Evaluation:
    """Batch means of the expected reward along one run; a tenth of the steps is burnt in.

    Parameters
    ----------
    model
        The model that the policy acts in.
    policy
        What is played.
    steps
        Length of the run, at least 64.
    seed
        Seed of the run, at least 0.
    progress
        Called now and then with a mapping of what is known so far.
    """
    from scipy import stats

    started = time.perf_counter()
    steps = STEPS.check(steps, "evaluate")
    environment = Environment(model, SEED.check(seed, "evaluate"))
    batch = int((1.0 - _BURNT_IN) * steps) // BATCHES
    actions = action_table(policy, model.structure)

    def walk(many: int) -> None:
        for left in range(many, 0, -_REPORTED_STEPS):
            _walk(environment, policy, actions, min(left, _REPORTED_STEPS))
            if progress is not None:
                progress({"step": environment.steps, "steps": steps})

    walk(steps - batch * BATCHES)
    means = np.empty(BATCHES)
    for number in range(BATCHES):
        before = environment.total_expected_reward
        walk(batch)
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


def _walk(
    environment: Environment, policy: Policy, actions: ActionTable | None, steps: int
) -> None:
    while steps > 0:
        if actions is None:
            environment.step(policy(environment.state))
            steps -= 1
        else:
            steps -= environment.play(Stretch(steps, actions))[0]
