"""Models in which unknown rows lead to an absorbing value (Kearns & Koller 1999).

A factored model has no joint absorbing state. Instead every state variable gets one more value,
here called lost, with

    s'_i = lost         if row x[Z_i] is unknown, or s_i or a variable of Z_i is lost,
    s'_i ~ P-hat_i(x)   else,
    R_k(x) = `outside`  if entry x[Z_k] is unknown, or a variable of Z_k is lost,
    R_k(x) = R-hat(x)   else.

A lost variable stays lost, and the loss spreads along the scopes. If `outside` is the upper end of
each reward range, this is Strehl's heaven (2007); if it is the lower end, the known model of E3.

Theorem. Let known entries be correct. For every state, horizon and discount V*(known model) <= V*
<= V*(heaven). Proof: couple both processes so that they take the same actions and draw every
variable that is not lost with the same random numbers. Such a variable then has the same value in
both, and every reward factor pays the same, or `outside` against a reward in its range. A policy
for the model with absorbing values can be followed in the true model, which shows more. A policy
for the true model can be followed in the other by drawing lost values as the truth would, and such
randomised policies are no better than the best deterministic one.

With one variable this is the absorbing state of E3 and Rmax. With several it is less extreme than a
joint absorbing state: reward factors that the unknown does not reach pay what is known. The model
has prod (|S_i| + 1) states.

A constraint on a lost variable forbids what it forbids for all values of that variable. Then the
second inequality holds, but not necessarily the first.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fmdp.learning.statistics import Statistics
from fmdp.model import FactoredMDP, Structure
from fmdp.model.constraints import Constraint, Forbidden
from fmdp.model.entries import (
    Index,
    split_cells,
    split_reward_entries,
    split_transition_entries,
)
from fmdp.model.spaces import FloatArray, all_assignments, strides, weighted_index

Mask = NDArray[np.bool_]


class KnownRows(NamedTuple):
    """Masks of the rows that are known."""

    transitions: Sequence[Mask]
    """For each state variable [|X[Z_i]|]."""
    rewards: Sequence[Mask]
    """For each reward factor [|X[Z_k]|]."""


@lru_cache(maxsize=8)  # used in every plan
def structure_with_absorbing_values(structure: Structure) -> Structure:
    """Return the structure with one more value, the last, per state variable."""
    s = structure
    sizes = tuple(size + 1 for size in s.state_sizes)
    return Structure(
        state_sizes=sizes,
        action_sizes=s.action_sizes,
        transition_scopes=tuple(
            tuple(sorted({*scope, i})) for i, scope in enumerate(s.transition_scopes)
        ),
        reward_scopes=s.reward_scopes,
        reward_ranges=s.reward_ranges,
        state_names=s.state_names,
        action_names=s.action_names,
        reward_names=s.reward_names,
        constraints=tuple(_loosened(constraint, s) for constraint in s.constraints),
    )


def _loosened(constraint: Constraint, s: Structure) -> Constraint:
    """Return the constraint for lost variables: it forbids what it forbids for every value."""
    if not isinstance(constraint, Forbidden):
        return constraint
    cube = constraint.table.reshape([s.sizes[v] for v in constraint.scope])
    for axis, variable in enumerate(constraint.scope):
        if variable < s.m:
            cube = np.concatenate([cube, cube.all(axis=axis, keepdims=True)], axis=axis)
    return Forbidden(constraint.scope, cube.reshape(-1), constraint.name)


@lru_cache(maxsize=8)
def original_states(structure: Structure) -> Index:
    """Return the indices of the original states among the larger set: [S]."""
    sizes = structure.state_sizes
    return weighted_index(sizes, strides([size + 1 for size in sizes]))


@lru_cache(maxsize=8)
def _old_rows(structure: Structure) -> tuple[list[Index], list[Index]]:
    """Return, for every row of the larger tables, the original row; -1 if a variable is lost.

    One list for the transition factors and one for the reward factors.
    """
    larger = structure_with_absorbing_values(structure)
    transitions = zip(larger.transition_scopes, structure.transition_scopes, strict=True)
    rewards = zip(larger.reward_scopes, structure.reward_scopes, strict=True)
    return (
        [_rows(structure, wide, scope) for wide, scope in transitions],
        [_rows(structure, wide, scope) for wide, scope in rewards],
    )


def _rows(s: Structure, wide: Sequence[int], scope: Sequence[int]) -> Index:
    values = all_assignments([s.sizes[v] + (v < s.m) for v in wide])
    lost = np.zeros(len(values), dtype=np.bool_)
    for column, v in enumerate(wide):
        lost |= values[:, column] == s.sizes[v]
    steps = dict(zip(scope, strides(s.scope_sizes(scope)), strict=True))
    rows: Index = values @ np.array([steps.get(v, 0) for v in wide], dtype=np.int64)
    rows[lost] = -1
    return rows


def model_with_absorbing_values(
    structure: Structure,
    transitions: Sequence[FloatArray],
    rewards: Sequence[FloatArray],
    known: KnownRows,
    outside: Sequence[float],
) -> FactoredMDP:
    """Return the model above, with `structure_with_absorbing_values`.

    `transitions` and `rewards` are tables of the original structure; unknown rows of them are not
    used. `outside` is the reward of each factor for unknown entries and lost variables.
    """
    rows_of, means_of = _old_rows(structure)
    tables, means = [], []
    for rows, table, sure in zip(rows_of, transitions, known.transitions, strict=True):
        usable = (rows >= 0) & sure[rows]
        larger = np.zeros((len(rows), table.shape[1] + 1))
        larger[usable, :-1] = table[rows[usable]]
        larger[~usable, -1] = 1.0
        tables.append(larger)
    for rows, table, sure, paid in zip(means_of, rewards, known.rewards, outside, strict=True):
        means.append(np.where((rows >= 0) & sure[rows], table[rows], paid))
    return FactoredMDP.trusted(structure_with_absorbing_values(structure), tables, means)


def known_entries(statistics: Statistics, enough: int) -> Mask:
    """Return which entries are known: [entries].

    An entry is known after `enough` visits, or if it is a reward with a range of one value.
    """
    sure = statistics.visits >= enough
    sure[len(statistics.transition_visits) :] |= statistics.reward_lo == statistics.reward_hi
    return sure


def estimated_parts(
    statistics: Statistics, sure: Mask
) -> tuple[Structure, Sequence[FloatArray], Sequence[FloatArray], KnownRows]:
    """Return structure, estimated rows and means, and the known rows, for the functions above."""
    s, n = statistics.structure, len(statistics.transition_visits)
    # Rounding may move a mean beyond the end of its range.
    means = np.clip(statistics.reward_means(), statistics.reward_lo, statistics.reward_hi)
    known = KnownRows(split_transition_entries(s, sure[:n]), split_reward_entries(s, sure[n:]))
    rows = split_cells(s, statistics.transition_means())
    return s, rows, split_reward_entries(s, means), known
