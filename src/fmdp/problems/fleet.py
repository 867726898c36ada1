"""Fleets: many small parts that share nothing but a budget on their actions.

`fleet` has machines of random types that wear and earn; at most `budget` of them are repaired in a
step. A machine has levels 0 (new) to levels - 1 (failed). Left alone at level j it wears by one
level with a probability that depends on the type and on j. A repair makes it new, with a
probability of the type, or changes nothing. It earns less with every level and nothing when it is
failed; a repair costs. Wear is drawn from [0.05, 0.35], the chance of a repair from [0.6, 1], the
income when new from [0.5, 2] and the cost of a repair from [0, 0.5].

Parts of one type have the same arrays, so that a fleet of 100,000 parts is built in seconds. Only
uniform doubles are drawn, in a fixed order, so that an id gives the same model under every release
of NumPy.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fmdp._base.parameters import REQUIRED
from fmdp._base.settings import setting
from fmdp.errors import InvalidParameter
from fmdp.model.alike import Alike
from fmdp.model.constraints import AtMost
from fmdp.model.factored import FactoredMDP
from fmdp.model.spaces import FloatArray
from fmdp.model.structure import Structure
from fmdp.problems.family import HIGHEST_SEED, Problem, alike_setting, refuse_if_too_large

_SHARE = 0.15
"""Share of the parts that are repaired per step by default: 30 of 200."""


class Part(NamedTuple):
    """A part that is left alone (action 0) or acted on (action 1)."""

    transition: FloatArray
    """[states, 2, states]"""
    means: FloatArray
    """[states, 2]"""


class Words(NamedTuple):
    """Names in the model of a fleet."""

    state: str
    action_values: tuple[str, str]
    state_values: tuple[str, ...] = ()


def budget_setting() -> Any:
    """Return the `budget` setting of a family whose parts share one."""
    return setting(
        None, "most parts that are acted on at once; a share of the parts by default", low=0
    )


def budget_of(given: int | None, share: float, n: int) -> int:
    """Return the number of parts that may be acted on: the given one, or a share, at least 1."""
    return max(1, round(share * n)) if given is None else given


def fleet_model(
    name: str, types: Sequence[Part], n: int, budget: int, words: Words, alike: bool
) -> FactoredMDP:
    """Return n parts, of which part i is of type i modulo the number of types.

    At most `budget` parts are acted on. With `alike` the rows of parts of one type are declared
    equal.
    """
    type_of = [i % len(types) for i in range(n)]
    sizes = [len(part.means) for part in types]
    ranges = [(min(0.0, float(part.means.min())), float(part.means.max())) for part in types]
    firsts = np.cumsum([0, *(2 * size for size in sizes)])
    classes = [np.arange(first, end) for first, end in itertools.pairwise(firsts)]
    cap = AtMost(tuple(range(n, 2 * n)), budget, name="budget")
    structure = Structure(
        state_sizes=tuple(sizes[t] for t in type_of),
        action_sizes=(2,) * n,
        transition_scopes=tuple((i, n + i) for i in range(n)),
        reward_scopes=tuple((i, n + i) for i in range(n)),
        reward_ranges=tuple(ranges[t] for t in type_of),
        state_names=tuple(f"{words.state}_{i}" for i in range(n)),
        action_names=tuple(f"action_{i}" for i in range(n)),
        reward_names=tuple(f"income_{i}" for i in range(n)),
        state_values=(words.state_values,) * n if words.state_values else (),
        action_values=(words.action_values,) * n,
        alike=Alike(*(tuple(classes[t] for t in type_of),) * 2) if alike else None,
        constraints=(cap,) if budget < n else (),
    )
    return FactoredMDP(
        structure,
        [types[t].transition for t in type_of],
        [types[t].means for t in type_of],
        name=name,
    )


def machines(generator: np.random.Generator, types: int, levels: int) -> list[Part]:
    """Return random types of machines, each from 3 + 2 (levels - 1) uniforms."""
    drawn = generator.random((types, 3 + 2 * (levels - 1)))
    success, income, cost = 0.6 + 0.4 * drawn[:, 0], 0.5 + 1.5 * drawn[:, 1], 0.5 * drawn[:, 2]
    wear = 0.05 + 0.3 * drawn[:, 3 : levels + 2]
    # The income falls by random shares from that of a new machine to 0.
    falls = np.cumsum(0.1 + drawn[:, levels + 2 :], axis=1)
    transition = np.zeros((types, levels, 2, levels))
    for level in range(levels - 1):
        transition[:, level, 0, level] = 1.0 - wear[:, level]
        transition[:, level, 0, level + 1] = wear[:, level]
    transition[:, -1, 0, -1] = 1.0
    for level in range(levels):
        transition[:, level, 1, level] = 1.0 - success
        transition[:, level, 1, 0] += success
    means = np.repeat(income[:, None, None], levels, axis=1).repeat(2, axis=2)
    means[:, 1:] *= (1.0 - falls / falls[:, -1:])[:, :, None]
    means[:, :, 1] -= cost[:, None]
    return list(map(Part, transition, means))


class Fleet(Problem):
    """Machines of random types that wear; a budget limits how many are repaired in a step."""

    name = "fleet"
    summary = "machines of random types that wear and earn; at most some of them are repaired"
    example = "fleet:4,types=2,levels=3,budget=1"

    size: int = setting(REQUIRED, "number of machines", low=1)
    types: int | None = setting(
        None, "number of types, machine i is of type i modulo it; all differ by default", low=1
    )
    levels: int = setting(4, "levels of wear; the last is failed", low=2)
    budget: int | None = budget_setting()
    seed: int = setting(0, "seed of the random types", low=0, high=HIGHEST_SEED)
    alike: str = alike_setting("types")

    def check(self) -> None:
        if self.types is not None and self.types > self.size:
            raise InvalidParameter(
                f"types of fleet must be at most the number of machines, {self.size}; "
                f"got {self.types}"
            )

    def build(self) -> FactoredMDP:
        n, levels = self.size, self.levels
        types = n if self.types is None else self.types
        refuse_if_too_large(str(self), types * 2 * levels * (levels + 1), 2 * n)
        generator = np.random.Generator(np.random.PCG64(self.seed))
        values = (*map(str, range(levels - 1)), "failed")
        return fleet_model(
            str(self),
            machines(generator, types, levels),
            n,
            budget_of(self.budget, _SHARE, n),
            Words("wear", ("leave", "repair"), values),
            self.alike == "types",
        )
