"""Random factored MDPs, for tests and benchmarks: no structure that a method could be tuned to.

m state variables, m reward factors in [0, 1]. Every scope, transition or reward, has `parents`
state variables (all m where there are fewer) and one of the action variables, drawn at random;
every row is uniform on the simplex, every mean uniform on [0, 1]. With probability 1 no entry is
zero, so every policy is ergodic.

Only uniform doubles are drawn, in a fixed order, so that an id means the same model under every
release of NumPy, whose other samplers may change.
"""

from __future__ import annotations

import numpy as np

from fmdp.model.factored import FactoredMDP, Noise
from fmdp.model.spaces import FloatArray
from fmdp.model.structure import Structure
from fmdp.parameters import Choice, Integer
from fmdp.problems.family import (
    REWARD,
    Family,
    refuse_if_too_large,
    reward_divisor,
    seed_parameter,
    size_parameter,
)

GAUSSIAN_SCALE = 0.1


def _subset(generator: np.random.Generator, n: int, k: int) -> tuple[int, ...]:
    """k of 0..n-1, every subset equally likely (Floyd's algorithm): k uniforms, any n."""
    chosen: set[int] = set()
    for last in range(n - k, n):
        pick = int(generator.random() * (last + 1))
        chosen.add(last if pick in chosen else pick)
    return tuple(sorted(chosen))


def _simplex(generator: np.random.Generator, rows: int, values: int) -> FloatArray:
    """Rows uniform on the simplex: normalised exponentials."""
    exponentials = -np.log1p(-generator.random((rows, values)))
    table: FloatArray = exponentials / exponentials.sum(axis=1, keepdims=True)
    return table


def build(
    *,
    name: str,
    size: int,
    values: int,
    parents: int,
    actions: int,
    agents: int,
    seed: int,
    noise: str,
    reward: str,
) -> FactoredMDP:
    m = size
    k = min(parents, m)
    rows = values**k * actions
    refuse_if_too_large(name, m * rows * (values + 1), 2 * m + agents)
    generator = np.random.Generator(np.random.PCG64(seed))

    def scope() -> tuple[int, ...]:
        return (*_subset(generator, m, k), m + int(generator.random() * agents))

    transition_scopes = tuple(scope() for _ in range(m))
    reward_scopes = tuple(scope() for _ in range(m))
    transitions = [_simplex(generator, rows, values) for _ in range(m)]
    divisor = reward_divisor(reward, m)
    means = [generator.random(rows) / divisor for _ in range(m)]
    laws = {
        "deterministic": Noise("deterministic"),
        "bernoulli": Noise("bernoulli"),
        "gaussian": Noise("gaussian", GAUSSIAN_SCALE / divisor),
    }
    structure = Structure(
        state_sizes=(values,) * m,
        action_sizes=(actions,) * agents,
        transition_scopes=transition_scopes,
        reward_scopes=reward_scopes,
        reward_ranges=((0.0, 1.0 / divisor),) * m,
    )
    return FactoredMDP(structure, transitions, means, noise=laws[noise], name=name)


FAMILIES: tuple[Family, ...] = (
    Family(
        name="random",
        summary="random scopes, random tables",
        size=size_parameter("number of state variables"),
        parameters=(
            Integer("values", 2, "values of each state variable", low=1),
            Integer("parents", 2, "state variables in each scope, or all if fewer", low=0, high=30),
            Integer("actions", 3, "values of each action variable", low=1),
            Integer("agents", 1, "number of action variables; one is in each scope", low=1),
            seed_parameter(0, "seed of the scopes and tables"),
            Choice(
                "noise",
                "deterministic",
                f"law of the rewards given the means (gaussian: deviation {GAUSSIAN_SCALE})",
                choices=("deterministic", "bernoulli", "gaussian"),
            ),
            REWARD,
        ),
        build=build,
        example="random:6,seed=0",
    ),
)
