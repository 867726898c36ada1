"""Random factored MDPs for tests and benchmarks, without structure that a method could exploit.

m state variables, m reward factors in [0, 1]. Every scope, transition or reward, has `parents`
state variables (all m if there are fewer) and one of the action variables, drawn at random. Every
row is uniform on the simplex, every mean uniform on [0, 1]. With probability 1 no entry is zero, so
every policy is ergodic.

Only uniform doubles are drawn, in a fixed order, so that an id gives the same model under every
release of NumPy, whose other samplers may change.
"""

from __future__ import annotations

import math

import numpy as np

from fmdp._base.parameters import REQUIRED
from fmdp._base.settings import setting
from fmdp.model.factored import FactoredMDP
from fmdp.model.noise import Noise
from fmdp.model.spaces import FloatArray
from fmdp.model.structure import Structure
from fmdp.problems.family import (
    HIGHEST_SEED,
    Problem,
    refuse_if_too_large,
    reward_divisor,
    reward_setting,
)

GAUSSIAN_SCALE = 0.1
"""Standard deviation of Gaussian rewards, before division by the size."""


def _subset(generator: np.random.Generator, n: int, k: int) -> tuple[int, ...]:
    """Return a uniform random k-subset of 0..n-1 by Floyd's algorithm, from k uniforms."""
    chosen: set[int] = set()
    for last in range(n - k, n):
        pick = int(generator.random() * (last + 1))
        chosen.add(last if pick in chosen else pick)
    return tuple(sorted(chosen))


def _simplex(generator: np.random.Generator, rows: int, values: int) -> FloatArray:
    """Return rows uniform on the simplex: normalised exponentials."""
    # The C library's log1p, not NumPy's, whose last bit depends on the processor.
    uniforms = generator.random(rows * values).tolist()
    exponentials = np.array([-math.log1p(-u) for u in uniforms]).reshape(rows, values)
    table: FloatArray = exponentials / exponentials.sum(axis=1, keepdims=True)
    return table


class RandomModel(Problem):
    """Random scopes, random tables."""

    name = "random"
    summary = "random scopes, random tables"
    example = "random:6,seed=0"

    size: int = setting(REQUIRED, "number of state variables", low=1)
    values: int = setting(2, "values of each state variable", low=1)
    parents: int = setting(2, "state variables in each scope, or all if fewer", low=0, high=30)
    actions: int = setting(3, "values of each action variable", low=1)
    agents: int = setting(1, "number of action variables; one is in each scope", low=1)
    seed: int = setting(0, "seed of the scopes and tables", low=0, high=HIGHEST_SEED)
    noise: str = setting(
        "deterministic",
        f"law of the rewards given the means (gaussian: deviation {GAUSSIAN_SCALE})",
        choices=("deterministic", "bernoulli", "gaussian"),
    )
    reward: str = reward_setting()

    def build(self) -> FactoredMDP:
        m = self.size
        k = min(self.parents, m)
        rows = self.values**k * self.actions
        refuse_if_too_large(str(self), m * rows * (self.values + 1), 2 * m + self.agents)
        generator = np.random.Generator(np.random.PCG64(self.seed))

        def scope() -> tuple[int, ...]:
            return (*_subset(generator, m, k), m + int(generator.random() * self.agents))

        transition_scopes = tuple(scope() for _ in range(m))
        reward_scopes = tuple(scope() for _ in range(m))
        transitions = [_simplex(generator, rows, self.values) for _ in range(m)]
        divisor = reward_divisor(self.reward, m)
        means = [generator.random(rows) / divisor for _ in range(m)]
        laws = {
            "deterministic": Noise("deterministic"),
            "bernoulli": Noise("bernoulli"),
            "gaussian": Noise("gaussian", GAUSSIAN_SCALE / divisor),
        }
        structure = Structure(
            state_sizes=(self.values,) * m,
            action_sizes=(self.actions,) * self.agents,
            transition_scopes=transition_scopes,
            reward_scopes=reward_scopes,
            reward_ranges=((0.0, 1.0 / divisor),) * m,
        )
        return FactoredMDP(structure, transitions, means, noise=laws[self.noise], name=str(self))
