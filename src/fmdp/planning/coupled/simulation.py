"""Simulated gains of policies of a fleet.

Several independent copies of the fleet are simulated. Half of them begin in the initial state of
the model, half in states whose parts are drawn from the occupancies of the bound's solution; the
first half of each run is not counted. The interval is Student's t on the means of the copies,
which are independent however long the fleet remembers. Copies that have not forgotten their
different beginnings widen it.

With a discount every copy begins in the initial state, and the discounted sum over the horizon is
the result of a copy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fmdp._base.deadlines import Deadline
from fmdp.model.spaces import IndexArray
from fmdp.planning.coupled.kernels import Chains, walk
from fmdp.planning.coupled.pricing import Criterion, Dual
from fmdp.planning.coupled.types import Block, Types
from fmdp.planning.policies.fleet import FleetPolicy

Floats = NDArray[np.float64]

COPIES = 8
"""Simulated copies of the fleet."""
CONFIDENCE = 0.99
PART_STEPS = 1 << 23
"""Steps of parts of one simulation, if the number of steps is not given: about a second."""
_FEWEST_STEPS, _MOST_STEPS = 96, 5_000
_UNCOUNTED = 2
"""One in this many steps, at the beginning of a run, is not counted."""
_DRAWN_AT_ONCE = 1 << 20
"""Random numbers that are drawn at once."""
_FORGOTTEN = 1e-4
"""A discounted run ends where the rest counts less than this share."""


@dataclass(frozen=True)
class Estimate:
    """A simulated gain with its confidence interval."""

    mean: float
    lower: float
    upper: float
    steps: int
    """Steps of each copy."""

    def clipped(self, most: float) -> Estimate:
        """Return the estimate with all numbers at most `most`."""
        mean, lower, upper = (min(end, most) for end in (self.mean, self.lower, self.upper))
        return Estimate(mean, lower, upper, self.steps)


class FleetSimulator:
    """Simulates policies of one fleet with common random numbers."""

    def __init__(
        self, types: Types, dual: Dual, criterion: Criterion, seed: int, steps: int | None
    ) -> None:
        self._types = types
        self._criterion = criterion
        self._seed = seed
        self._steps = self._default_steps() if steps is None else steps
        self._chains = _chains(types)
        self._dual = dual

    def _default_steps(self) -> int:
        discount = self._criterion.discount
        if discount is not None:
            return math.ceil(math.log(_FORGOTTEN) / math.log(discount)) if discount else 1
        wanted = PART_STEPS // (COPIES * self._types.fleet.n_parts)
        return min(max(wanted, _FEWEST_STEPS), _MOST_STEPS)

    def estimate(self, policy: FleetPolicy, stream: int, deadline: Deadline) -> Estimate:
        """Return the simulated gain of a policy; the same stream is the same luck.

        Raise TimeUp at the deadline.
        """
        from scipy.stats import t

        seeds = np.random.SeedSequence((self._seed, stream)).spawn(COPIES)
        generators = [np.random.Generator(np.random.PCG64(child)) for child in seeds]
        means = np.array(
            [self._run(policy, copy, source, deadline) for copy, source in enumerate(generators)]
        )
        mean = float(means.mean()) + self._scale() * self._types.constant
        half = float(t.ppf(0.5 * (1.0 + CONFIDENCE), COPIES - 1) * means.std(ddof=1))
        half /= math.sqrt(COPIES)
        return Estimate(mean, mean - half, mean + half, self._steps)

    def _scale(self) -> float:
        discount = self._criterion.discount
        return 1.0 if discount is None else float(self._weights().sum())

    def _weights(self) -> Floats:
        """Return how much each step counts."""
        discount = self._criterion.discount
        if discount is not None:
            return np.power(discount, np.arange(self._steps))
        weights = np.zeros(self._steps)
        first = self._steps // _UNCOUNTED
        weights[first:] = 1.0 / (self._steps - first)
        return weights

    def _run(
        self, policy: FleetPolicy, copy: int, source: np.random.Generator, deadline: Deadline
    ) -> float:
        n_parts = self._types.fleet.n_parts
        states = self._start(copy, source)
        rewards = np.empty(self._steps)
        workspaces = policy.workspaces()
        at_once = max(1, _DRAWN_AT_ONCE // n_parts)
        for first in range(0, self._steps, at_once):
            deadline.check()
            part = rewards[first : first + at_once]
            uniforms = source.random((len(part), n_parts))
            walk(policy.rules, self._chains, states, uniforms, part, *workspaces)
        return float(rewards @ self._weights())

    def _start(self, copy: int, source: np.random.Generator) -> IndexArray:
        states = np.zeros(self._types.fleet.n_parts, dtype=np.int64)
        drawn = copy % 2 == 1 and self._criterion.discount is None
        for number, block in enumerate(self._types.blocks):
            chosen = block.initial
            if drawn:
                law = stationary(block, self._dual.best.blocks[number].actions)
                ends = np.cumsum(law, axis=1)[block.type_of]
                uniforms = source.random(len(block.type_of))[:, None]
                chosen = np.minimum((ends <= uniforms).sum(axis=1), law.shape[1] - 1)
            states[block.shape.parts] = chosen
        return states


def stationary(block: Block, actions: IndexArray) -> Floats:
    """Return a stationary distribution of each type under its policy [T, S]."""
    n_types, n_states = actions.shape
    at = np.arange(n_types)[:, None], np.arange(n_states), actions
    restart = 1e-9  # gives multichain policies one solution
    system = np.eye(n_states) - (1.0 - restart) * block.transitions[at].transpose(0, 2, 1)
    law = np.linalg.solve(system, np.full((n_types, n_states, 1), restart / n_states))[..., 0]
    law = np.maximum(law, 0.0)
    shares: Floats = law / law.sum(axis=1, keepdims=True)
    return shares


def _chains(types: Types) -> Chains:
    n_parts = types.fleet.n_parts
    sizes = np.zeros((4, n_parts), dtype=np.int64)
    rewards, laws = [], []
    pairs = entries = 0
    for block in types.blocks:
        n_states, n_actions = block.rewards.shape[1:]
        sizes[:, block.shape.parts] = [
            np.full(len(block.type_of), n_states),
            np.full(len(block.type_of), n_actions),
            pairs + block.type_of * n_states * n_actions,
            entries + block.type_of * n_states * n_actions * n_states,
        ]
        rewards.append(block.rewards.reshape(-1))
        laws.append(np.cumsum(block.transitions, axis=3).reshape(-1))
        pairs += rewards[-1].size
        entries += laws[-1].size
    states, actions, pair_start, law_start = sizes
    return Chains(
        states, actions, pair_start, law_start, np.concatenate(rewards), np.concatenate(laws)
    )
