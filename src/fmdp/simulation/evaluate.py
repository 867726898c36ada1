"""Evaluation of a policy: exactly by elimination if the states fit, else by simulation.

A simulation has several independent runs: from the initial state, from the states of all lowest and
of all highest values, and from random states, some of them with rare values. `replications.py`
derives the interval and states its assumption. Policies that answer many states at once
(`copies.BatchedPolicy`) play all runs together, with the same numbers as one run after the other.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from fmdp._base.deadlines import NEVER, Deadline, TimeUp
from fmdp._base.parameters import Integer, Number, resolve
from fmdp._base.progress import reporting
from fmdp.errors import InvalidParameter, TooLarge
from fmdp.model import FactoredMDP
from fmdp.model.factored import check_model
from fmdp.model.structure import outward_sums
from fmdp.planning.counts.policy_chain import NotOnCounts, chain_of
from fmdp.planning.evaluate import TABULATED_STATES, Evaluation, evaluate_exactly
from fmdp.planning.exact.planner import Exact
from fmdp.planning.policies.counts import CountPolicy
from fmdp.planning.policies.files import policy_of
from fmdp.planning.policies.mixed import MixedPolicy
from fmdp.planning.policies.playing import ActionTable, StepBatch, action_table
from fmdp.planning.policies.policy import Policy
from fmdp.planning.policies.rule import Rule
from fmdp.planning.policies.timed import TimedPolicy
from fmdp.planning.status import Progress, Status
from fmdp.simulation.copies import BatchedPolicy, Copies
from fmdp.simulation.counts import CountEnvironment
from fmdp.simulation.environment import Environment
from fmdp.simulation.replications import counted, interval
from fmdp.simulation.starts import (
    dispersed_starts,
    factor_bounds,
    rare_values,
    reachable_values,
)

CONFIDENCE = 0.99
"""Confidence of a simulated interval."""
RUNS = 16
"""Independent runs of one simulation."""
_SHORTEST_BATCH = 64
"""Steps of the shortest batch, if the runs are long enough for 64 of them."""
_MOST_BATCHES = 1 << 16
"""Most batches per run, which bounds the memory of their means."""
_RARE = 5
"""Values that all steps together are expected to reach less often than this are rare: some runs
begin with them."""
_REPORTED_STEPS = 1 << 10
"""Steps between two progress reports, since a policy without a table takes milliseconds per step.
Rewards are summed over at most this many steps before the sum restarts at zero."""


STEPS = Integer("steps", 1_000_000, "steps of the simulation", low=4 * RUNS, high=2**53)
SEED = Integer("seed", 0, "seed of the simulation", low=0)
GAIN_UPPER = Number("gain_upper", None, "certified upper bound on the gain of every policy")
_EXACT_NAMES = ("tolerance", "max_iterations", "max_seconds", "memory_limit")
MAX_SECONDS = next(one for one in Exact.parameters if one.name == "max_seconds")
_LIMITS = tuple(parameter for parameter in Exact.parameters if parameter.name in _EXACT_NAMES)


def evaluate(
    model: FactoredMDP,
    policy: Policy | MixedPolicy | Callable[[tuple[int, ...]], Any] | str | os.PathLike[str],
    *,
    tolerance: float | None = None,
    max_iterations: int | None = None,
    max_seconds: float | None = None,
    memory_limit: int | None = None,
    steps: int = 1_000_000,
    seed: int = 0,
    gain_upper: float | None = None,
    progress: bool | Progress | None = None,
) -> Evaluation:
    """Evaluate a policy: exactly if it fits into memory, else by simulation.

    The choice depends on the memory, so the arguments of both may be given; `kind` of the result
    says which it was. A policy with a horizon has no gain but a value, the expected sum over its
    steps, which is never simulated.

    A simulation ends with status `simulated` and a confidence interval, or with `unmixed` and
    certified bounds if its runs disagree, drift or are too short. `batch_steps` and `caveat` of the
    result state what the interval assumes and what no simulation can exclude. Most runs begin in
    random states, so the policy must handle states that the initial state does not lead to.

    Parameters
    ----------
    model
        The model that the policy acts in.
    policy
        A policy, such as `plan.policy`; a deterministic function from a state (a tuple of ints) to
        an action; or the path of a policy file.
    tolerance
        Exact: largest gap between the bounds, in the unit of the reward. None is 1e-6 times the
        largest range of a reward factor.
    max_iterations
        Exact: most sweeps, at least 1. None is 100,000.
    max_seconds
        Most seconds, above 0; the bounds of an evaluation that is stopped hold, and a simulation
        that is stopped has certified bounds alone. None is no limit.
    memory_limit
        Exact: most bytes; above, the policy is simulated. None is half of the free memory.
    steps
        Simulated: most steps of all 16 runs together, at least 64. The first eighth of each run is
        not counted.
    seed
        Simulated: seed of the runs, at least 0.
    gain_upper
        Simulated: a certified upper bound on the gain of every policy of the model, such as
        `plan.gain_upper`; no interval reaches beyond it.
    progress
        True shows a bar; a function receives a mapping of the state of the work at intervals; None
        is silent.

    Returns
    -------
    Evaluation
        The gain from the initial state, its bounds, and their status.

    Raises
    ------
    InvalidParameter
        If an argument is out of range, or the policy has other sizes or returns an invalid action.
    FileProblem
        If the policy file is missing or of another format.
    TooLarge
        If a policy with a horizon does not fit into the memory limit.
    """
    check_model(model, "evaluate")
    limits = resolve(
        _LIMITS,
        {
            "tolerance": tolerance,
            "max_iterations": max_iterations,
            "max_seconds": max_seconds,
            "memory_limit": memory_limit,
        },
        "evaluate",
    )
    STEPS.check(steps, "evaluate")
    SEED.check(seed, "evaluate")
    GAIN_UPPER.check(gain_upper, "evaluate")
    deadline = Deadline.after(limits["max_seconds"])
    checked = policy_of(policy, model.structure, "evaluate")
    what = f"evaluating a policy of {model.name or 'the model'}"
    with reporting(progress, what, "evaluate") as report:
        if isinstance(checked, TimedPolicy):
            return evaluate_exactly(model, checked, **limits, progress=report)
        on_counts = isinstance(checked, CountPolicy)
        if on_counts or model.structure.n_states <= TABULATED_STATES:
            with suppress(TooLarge):
                return evaluate_exactly(model, checked, **limits, progress=report)
        return evaluate_by_simulation(
            model,
            checked,
            steps=steps,
            seed=seed,
            gain_upper=gain_upper,
            deadline=deadline,
            progress=report,
        )


def evaluate_by_simulation(
    model: FactoredMDP,
    policy: Policy | MixedPolicy,
    *,
    steps: int = 1_000_000,
    seed: int = 0,
    gain_upper: float | None = None,
    deadline: Deadline = NEVER,
    progress: Progress | None = None,
) -> Evaluation:
    """Estimate the gain of a policy from independent runs that begin in different states.

    The arguments are those of `evaluate`. At the deadline the result is the certified bounds: the
    runs so far would give an interval that depends on the speed of the machine.
    """
    started = time.perf_counter()
    steps = STEPS.check(steps, "evaluate")
    seed = SEED.check(seed, "evaluate")
    values = reachable_values(model)
    factors = factor_bounds(model, values)
    rewards = outward_sums(factors)
    certified = _certified(rewards, GAIN_UPPER.check(gain_upper, "evaluate"))
    (child,) = np.random.SeedSequence(seed).spawn(1)
    rare = rare_values(model, values, _RARE / steps)
    generator = np.random.Generator(np.random.PCG64(child))
    starts = dispersed_starts(model, values, RUNS, rare, generator)
    if isinstance(policy, Rule):
        for start in starts:
            policy.confirm(start, policy(start))
    drawn = isinstance(policy, MixedPolicy)
    if isinstance(policy, MixedPolicy):
        policy = _Drawing(policy.under(model.structure), generator)
    batches, batch_steps = batches_of(steps // RUNS)
    runs = _runs(model, policy, drawn, seed, starts, batches * batch_steps, deadline)
    try:
        means = _batch_means(runs, batches, batch_steps, deadline, progress)
    except TimeUp:
        return Evaluation(
            gain=None,
            gain_lower=certified[0],
            gain_upper=certified[1],
            kind="simulated",
            status=Status.TIME_LIMIT,
            iterations=runs.steps,
            seconds=time.perf_counter() - started,
            certified_bounds=certified,
        )
    rounding = _rounding(len(factors)) * sum(max(abs(lo), abs(hi)) for lo, hi in factors)
    estimate = interval(means, rewards, CONFIDENCE, rounding)
    outcome: dict[str, Any]
    if estimate is None:
        outcome = {"gain": None, "status": Status.UNMIXED}
        lower, upper = certified
    else:
        memory = batch_steps * (batches // estimate.batches)
        outcome = {
            "gain": float(np.clip(counted(means).mean(), *certified)),
            "status": Status.SIMULATED,
            "confidence": CONFIDENCE,
            "batch_steps": memory,
            "caveat": _caveat(memory),
        }
        lower, upper = np.clip((estimate.lower, estimate.upper), *certified).tolist()
    return Evaluation(
        gain_lower=lower,
        gain_upper=upper,
        kind="simulated",
        iterations=runs.steps,
        seconds=time.perf_counter() - started,
        certified_bounds=certified,
        run_gains=tuple(np.clip(counted(means).mean(axis=1), *rewards).tolist()),
        **outcome,
    )


class _Drawing:
    """A randomised policy with its generator; unlike a policy, it may answer differently."""

    def __init__(self, policy: MixedPolicy, generator: np.random.Generator) -> None:
        self._policy = policy
        self._generator = generator

    def __call__(self, state: Any) -> Any:
        return self._policy(state, self._generator)

    def save(self, path: str | os.PathLike[str]) -> None:
        self._policy.save(path)


def _certified(rewards: tuple[float, float], gain_upper: float | None) -> tuple[float, float]:
    """Return the bounds on the gain that follow from the rewards and the given upper bound."""
    low, high = rewards
    if gain_upper is None:
        return rewards
    if gain_upper < low:
        raise InvalidParameter(
            f"the 'gain_upper' parameter of evaluate must be at least the least reward of a step, "
            f"{low!r}; got {gain_upper!r}"
        )
    return low, min(high, gain_upper)


def _caveat(batch_steps: int) -> str:
    return (
        "simulation cannot exclude states that all runs missed, that pay differently and that are "
        f"left more slowly than after {batch_steps:,} steps; only the certified bounds hold then"
    )


def _rounding(reward_factors: int) -> float:
    """Return a bound on the relative rounding error of a mean of at most `_REPORTED_STEPS` rewards,
    each a sum of factors, and of means of such means."""
    return (_REPORTED_STEPS + reward_factors + 64) * 2.0**-53


_World = TypeVar("_World", Environment, CountEnvironment)


class _OneByOne(Generic[_World]):
    """Runs that one environment makes, one after the other."""

    def __init__(self, environment: _World, starts: Sequence[tuple[int, ...]]) -> None:
        self._environment: _World = environment
        self._starts = starts

    @property
    def steps(self) -> int:
        return self._environment.steps

    def groups(self) -> Iterator[slice]:
        """Yield the numbers of the runs that `walk` moves, and begin them."""
        for run, start in enumerate(self._starts):
            self._environment.move_to(start)
            yield slice(run, run + 1)


class _Alone(_OneByOne[Environment]):
    """The runs in the model, step by step or with a table of actions."""

    def __init__(
        self,
        model: FactoredMDP,
        policy: Policy,
        seed: int,
        starts: Sequence[tuple[int, ...]],
        actions: ActionTable | None,
    ) -> None:
        super().__init__(Environment(model, seed), starts)
        self._policy = policy
        self._actions = actions

    def walk(self, steps: int) -> list[float]:
        """Return the sum of the expected rewards of so many steps, for each run of the group."""
        self._environment.clear_sums()
        while steps > 0:
            if self._actions is None:
                self._environment.step(self._policy(self._environment.state))
                steps -= 1
            else:
                steps -= self._environment.play(StepBatch(steps, self._actions))[0]
        return [self._environment.total_expected_reward]


class _Together:
    """The runs as copies that are stepped together."""

    def __init__(
        self,
        model: FactoredMDP,
        policy: BatchedPolicy,
        seed: int,
        starts: Sequence[tuple[int, ...]],
        length: int,
    ) -> None:
        self._copies = Copies(model, seed, starts, length)
        self._policy = policy

    @property
    def steps(self) -> int:
        return self._copies.steps

    def groups(self) -> Iterator[slice]:
        yield slice(None)

    def walk(self, steps: int) -> list[float]:
        self._copies.clear_sums()
        for _ in range(steps):
            self._copies.step(self._policy)
        totals: list[float] = self._copies.expected.tolist()
        return totals


class _OnCounts(_OneByOne[CountEnvironment]):
    """The runs of a policy on counts, as count processes."""

    def walk(self, steps: int) -> list[float]:
        return [self._environment.play(steps)]


def _runs(
    model: FactoredMDP,
    policy: Policy,
    drawn: bool,
    seed: int,
    starts: Sequence[tuple[int, ...]],
    length: int,
    deadline: Deadline,
) -> _Alone | _Together | _OnCounts:
    """Return the fastest runs of a policy; `drawn` says that it draws its actions."""
    if isinstance(policy, CountPolicy):
        with suppress(NotOnCounts, TooLarge):
            chain = chain_of(model, policy, deadline=deadline)
            return _OnCounts(CountEnvironment(chain, 0, seed), starts)
    actions = None if drawn else action_table(policy, model.structure)
    if actions is None and isinstance(policy, BatchedPolicy) and not drawn:
        return _Together(model, policy, seed, starts, length)
    return _Alone(model, policy, seed, starts, actions)


def _batch_means(
    runs: _Alone | _Together | _OnCounts,
    batches: int,
    batch_steps: int,
    deadline: Deadline,
    progress: Progress | None,
) -> NDArray[np.float64]:
    """Return the mean expected reward of every batch, [runs, batches]."""
    means = np.empty((RUNS, batches))
    steps = means.size * batch_steps
    for group in runs.groups():
        for number in range(batches):
            sums = []
            for left in range(batch_steps, 0, -_REPORTED_STEPS):
                deadline.check()
                sums.append(runs.walk(min(left, _REPORTED_STEPS)))
                if progress is not None:
                    progress({"step": runs.steps, "steps": steps})
            totals = [math.fsum(of_run) for of_run in zip(*sums, strict=True)]
            means[group, number] = np.array(totals) / batch_steps
    return means


def batches_of(length: int) -> tuple[int, int]:
    """Return the number of batches of a run of this length, a power of two, and their steps.
    Batches have at least `_SHORTEST_BATCH` steps, or fewer if that gives up to 64 batches."""
    wanted = max(length // _SHORTEST_BATCH, min(length, 64))
    batches = min(1 << (wanted.bit_length() - 1), _MOST_BATCHES)
    return batches, length // batches
