"""A run lived again: the environment written anew from the tables, on the same random streams.

SeedSequence(seed) is spawned into a stream for the environment and one for the learner. In every
step the environment takes m uniforms for the next state, one a variable (the smallest value whose
cumulative probability is above it), and l for the rewards: Bernoulli on the range, or Gaussian
around the mean and clipped symmetrically to stay in the range.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtri

from referee.recipes import Recipe


@dataclass(frozen=True)
class Lived:
    """Indices of states and actions, and the reward, of every step."""

    states: list[int]
    actions: list[int]
    paid: list[float]


def streams(seed: int) -> tuple[np.random.Generator, np.random.Generator]:
    """The environment's and the learner's."""
    children = np.random.SeedSequence(seed).spawn(2)
    environment, learner = (np.random.Generator(np.random.PCG64(child)) for child in children)
    return environment, learner


def live(
    recipe: Recipe, make: Callable[[np.random.Generator], Any], steps: int, seed: int
) -> Lived:
    """Act, draw, observe; `make` is handed the learner's stream."""
    luck, own = streams(seed)
    learner = make(own)
    sizes = recipe.state_sizes + recipe.action_sizes
    state = recipe.start
    lived = Lived([], [], [])
    for _ in range(steps):
        action = tuple(int(v) for v in learner.act(state))
        if not recipe.allows(state, action):
            raise AssertionError(f"{recipe.name}: {action} in {state} is forbidden")
        joint = state + action
        following = []
        for scope, table in recipe.transitions:
            u, total = luck.random(), 0.0
            row = table[_index(scope, joint, sizes)]
            value = 0
            for value, p in enumerate(row):  # noqa: B007 - the last value catches rounding
                total += p
                if u < total:
                    break
            following.append(value)
        rewards = []
        for (scope, table), (lo, hi) in zip(recipe.rewards, recipe.ranges, strict=True):
            u, mean = luck.random(), float(table[_index(scope, joint, sizes)])
            if recipe.noise == "bernoulli":
                rewards.append(hi if u * (hi - lo) < mean - lo else lo)
            elif recipe.noise == "gaussian":
                room = min(mean - lo, hi - mean)
                rewards.append(mean + float(np.clip(0.2 * recipe.unit * ndtri(u), -room, room)))
            else:
                rewards.append(mean)
        lived.states.append(_index(range(len(state)), state, sizes))
        lived.actions.append(_index(range(len(action)), action, recipe.action_sizes))
        lived.paid.append(sum(rewards))
        after = tuple(following)
        learner.observe(state, action, tuple(rewards), after)
        state = after
    return lived


def _index(scope: Sequence[int], joint: Sequence[int], sizes: Sequence[int]) -> int:
    index = 0
    for v in scope:
        index = index * sizes[v] + joint[v]
    return index
