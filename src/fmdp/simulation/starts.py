"""Initial states of simulated runs of one policy, and bounds on their rewards.

Both follow from the values that each variable can take (`model.check.reachable_values`). Every
reachable state has such values (the converse need not hold).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from fmdp.model import FactoredMDP
from fmdp.model.check import Values, rows_with
from fmdp.model.check import reachable_values as values_from


def reachable_values(model: FactoredMDP) -> Values:
    """Return a superset of the values that each state variable can take, in increasing order."""
    return values_from(model.structure, model.initial_state, model.transitions)


def factor_bounds(model: FactoredMDP, values: Values) -> list[tuple[float, float]]:
    """Return the least and the largest mean of every reward factor over these values and all
    actions."""
    tables = [
        table[rows_with(model.structure, scope, values)]
        for scope, table in zip(model.structure.reward_scopes, model.rewards, strict=True)
    ]
    return [(float(table.min()), float(table.max())) for table in tables]


def rare_values(model: FactoredMDP, values: Values, probability: float) -> list[tuple[int, int]]:
    """Return (variable, value) pairs entered with less than the given probability, rarest first.
    Values that a variable can never change to are left out."""
    structure = model.structure
    pairs = []
    for i, scope in enumerate(structure.transition_scopes):
        rows = rows_with(structure, scope, values)
        entering = model.transitions[i][rows]
        if i in scope:  # staying is not entering
            behind = scope[scope.index(i) + 1 :]
            step = math.prod(structure.all_sizes[v] for v in behind)
            entering[np.arange(len(rows)), rows // step % structure.sizes[i]] = 0.0
        largest = entering.max(axis=0)
        rare = np.flatnonzero((largest > 0.0) & (largest < probability))
        pairs += [(float(largest[value]), i, int(value)) for value in rare]
    return [(i, value) for _, i, value in sorted(pairs)]


def dispersed_starts(
    model: FactoredMDP,
    values: Values,
    number: int,
    rare: Sequence[tuple[int, int]],
    generator: np.random.Generator,
) -> list[tuple[int, ...]]:
    """Return the initial state, the states of all lowest and all highest values, and random ones.

    In a random state each variable is uniform over its values, except that one variable has a rare
    value, by turns, because runs from elsewhere would hardly ever reach it. Of many rare values the
    first ones are taken.
    """
    lowest = tuple(int(possible[0]) for possible in values)
    highest = tuple(int(possible[-1]) for possible in values)
    starts = [tuple(model.initial_state), lowest, highest]
    for index in range(number - len(starts)):
        state = [int(possible[generator.integers(len(possible))]) for possible in values]
        if rare:
            variable, value = rare[index % len(rare)]
            state[variable] = value
        starts.append(tuple(state))
    return starts
