"""A small model in exact integers, with equivalent states merged.

A model's tables are doubles, which are fractions. Each row of a factor is divided by its exact sum,
so a joint row is a list of integer weights over their total, and every reward is an integer over
one common power of two. Nothing is rounded.

Two states are equivalent (bisimilar) if their actions have the same rewards and the same
probabilities of moving to each group of equivalent states. They have the same optimal values, and
actions that differ only in which of several equivalent states they lead to are tied. Candidates for
the groups are found with arithmetic modulo a prime, without rounding, and are then checked exactly.

Cost: states x distinct actions x successors for each of a few passes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from fmdp.model import FactoredMDP
from fmdp.model.spaces import project_some, strides

Indices = NDArray[np.int64]
Distribution = tuple[list[int], list[int]]
"""Steps in the joint index and integer weights of one row of a factor."""

_PRIME = 2**31 - 1  # products of two residues fit into int64


@dataclass(frozen=True)
class Row:
    """One action in one state: the probability of group t is weights[t] / total."""

    reward: int
    total: int
    weights: tuple[tuple[int, int], ...]
    """(group, weight) in the order of the groups."""


@dataclass(frozen=True, eq=False)
class IntegerModel:
    """Groups of equivalent states, and the distinct rows of each."""

    rows: list[list[Row]]
    """For each group the distinct rows of its actions."""
    group: Indices
    """[S]: the group of each state."""
    row: Indices
    """[S, A]: the number of the row of each action among those of its group."""
    reward_scale: int
    """Denominator of the rewards of the rows."""


def integer_model(model: FactoredMDP, entry_limit: int) -> IntegerModel | None:
    """Return the model in integers; None if it has more entries than the limit.

    An entry is a successor of a state and an action; equal actions of a state count once.
    """
    structure = model.structure
    pairs = structure.allowed_pairs()
    tables = [np.unique(table, axis=0, return_inverse=True) for table in model.transitions]
    places = [
        inverse.reshape(-1)[project_some(structure.sizes, scope, pairs)]
        for (_, inverse), scope in zip(tables, structure.transition_scopes, strict=True)
    ]
    means = [
        table[project_some(structure.sizes, scope, pairs)]
        for table, scope in zip(model.rewards, structure.reward_scopes, strict=True)
    ]
    number, first = _distinct(np.arange(len(pairs)) // structure.n_actions, places, means)
    width = math.prod(int((rows > 0).sum(axis=1).max()) for rows, _ in tables)
    if len(first) * width > entry_limit:
        return None
    factors = [
        [_weights(row, step) for row in rows]
        for (rows, _), step in zip(tables, strides(structure.state_sizes), strict=True)
    ]
    scale = max(
        (mean.as_integer_ratio()[1] for table in model.rewards for mean in np.unique(table)),
        default=1,
    )
    laws = [[rows[place[k]] for rows, place in zip(factors, places, strict=True)] for k in first]
    rewards = [sum(_times(mean[k], scale) for mean in means) for k in first]
    owner = first // structure.n_actions
    group = _candidates(laws, rewards, owner, structure.n_states)
    merged = _merged(laws, rewards, owner, group)
    if merged is None:
        group = np.arange(structure.n_states)
        merged = _merged(laws, rewards, owner, group)
        assert merged is not None
    rows, row_of = merged
    numbers = row_of[number].reshape(structure.n_states, structure.n_actions)
    return IntegerModel(rows, group, numbers, scale)


def _distinct(
    states: Indices, places: list[Indices], means: list[NDArray[np.float64]]
) -> tuple[Indices, Indices]:
    """Number the pairs that differ in state, row or reward; return also the first pair of each
    number."""
    key = states
    for place in (*places, *(np.unique(mean, return_inverse=True)[1] for mean in means)):
        key = np.unique(key * (int(place.max()) + 1) + place, return_inverse=True)[1]
    _, first, key = np.unique(key, return_index=True, return_inverse=True)
    return key, first


def _weights(row: NDArray[np.float64], step: int) -> Distribution:
    """Return a row of a factor as integer weights without a common divisor."""
    values = np.flatnonzero(row)
    ratios = [float(row[value]).as_integer_ratio() for value in values]
    scale = max(bottom for _, bottom in ratios)
    weights = [top * (scale // bottom) for top, bottom in ratios]
    common = math.gcd(*weights)
    return [int(value) * int(step) for value in values], [weight // common for weight in weights]


def _times(value: float, scale: int) -> int:
    top, bottom = float(value).as_integer_ratio()
    return top * (scale // bottom)


def _joint(laws: list[Distribution]) -> Distribution:
    """Return the successors and weights of a joint row."""
    columns, weights = [0], [1]
    for steps, factors in laws:
        columns = [column + step for column in columns for step in steps]
        weights = [weight * factor for weight in weights for factor in factors]
    return columns, weights


def _candidates(
    laws: list[list[Distribution]], rewards: list[int], owner: Indices, n_states: int
) -> Indices:
    """Group the states that are equivalent when all numbers are taken modulo a prime.

    A row is represented by the sum of p(t) x(group of t), with two random numbers x for each group.
    Equivalent states are never separated; others may be merged by accident, which the exact check
    finds.
    """
    lists = [_joint_residues(law) for law in laws]
    lengths = np.array([len(columns) for columns, _ in lists])
    columns = np.concatenate([successors for successors, _ in lists])
    residues = np.concatenate([probabilities for _, probabilities in lists])
    starts = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    generator = np.random.default_rng(0)
    group, count = np.zeros(n_states, dtype=np.int64), 1
    first_of_state = np.searchsorted(owner, np.arange(n_states + 1))
    while True:
        sums = []
        for _ in range(2):
            marks = generator.integers(1, _PRIME, size=count)
            terms = residues * marks[group[columns]] % _PRIME
            sums.append((np.add.reduceat(terms, starts) % _PRIME).tolist())
        keys = list(zip(rewards, *sums, strict=True))
        seen: dict[tuple[int, frozenset[tuple[int, int, int]]], int] = {}
        new = [
            seen.setdefault(
                (int(group[s]), frozenset(keys[first_of_state[s] : first_of_state[s + 1]])),
                len(seen),
            )
            for s in range(n_states)
        ]
        group = np.array(new, dtype=np.int64)
        if len(seen) == count:
            return group
        count = len(seen)


def _joint_residues(laws: list[Distribution]) -> tuple[Indices, Indices]:
    """Return the successors of a joint row and their probabilities modulo the prime."""
    columns, residues = np.zeros(1, dtype=np.int64), np.ones(1, dtype=np.int64)
    for steps, weights in laws:
        inverse = pow(sum(weights) % _PRIME, -1, _PRIME) if sum(weights) % _PRIME else 0
        probabilities = np.array([weight % _PRIME * inverse % _PRIME for weight in weights])
        columns = (columns[:, None] + np.array(steps)).ravel()
        residues = (residues[:, None] * probabilities % _PRIME).ravel()
    return columns, residues


def _merged(
    laws: list[list[Distribution]], rewards: list[int], owner: Indices, group: Indices
) -> tuple[list[list[Row]], Indices] | None:
    """Return the rows of each group and the number of each row; None if a group is not
    equivalent."""
    numbers: list[dict[Row, int]] = [{} for _ in range(int(group.max()) + 1)]
    row_of = np.zeros(len(laws), dtype=np.int64)
    groups = group.tolist()
    first_of_state = np.searchsorted(owner, np.arange(len(group) + 1)).tolist()
    for state, number in enumerate(groups):
        rows_of_group = numbers[number]
        complete = bool(rows_of_group)
        used = set()
        for k in range(first_of_state[state], first_of_state[state + 1]):
            row = _row(laws[k], rewards[k], groups)
            if complete and row not in rows_of_group:
                return None
            row_of[k] = rows_of_group.setdefault(row, len(rows_of_group))
            used.add(int(row_of[k]))
        if len(used) < len(rows_of_group):
            return None
    return [list(rows) for rows in numbers], row_of


def _row(laws: list[Distribution], reward: int, groups: list[int]) -> Row:
    weights: dict[int, int] = {}
    for column, weight in zip(*_joint(laws), strict=True):
        target = groups[column]
        weights[target] = weights.get(target, 0) + weight
    common = reduce(math.gcd, weights.values())
    reduced = tuple((target, weights[target] // common) for target in sorted(weights))
    return Row(reward, sum(weight for _, weight in reduced), reduced)
