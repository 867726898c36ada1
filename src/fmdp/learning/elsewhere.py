"""Elsewhere: the model in which whatever is unknown leads away (Kearns & Koller 1999).

A factored model has no joint state to absorb what is unknown. But every variable can have one value
more, `elsewhere`, and then nothing that concerns the known part is lost:

    s'_i = elsewhere    where row x[Z_i] is unknown, or s_i or a variable of Z_i is elsewhere,
    s'_i ~ P-hat_i(x)   else,
    R_k(x) = `outside`  where entry x[Z_k] is unknown, or a variable of Z_k is elsewhere,
    R_k(x) = R-hat(x)   else.

So elsewhere is for ever, and spreads along the scopes. Where `outside` is the upper end of each
range this is heaven (Strehl 2007), where it is the lower end the known model of E3.

Theorem. Let known entries be as they are. For every state, horizon and discount
V*(known model) <= V* <= V*(heaven). Proof: let both processes take the same actions, and draw a
variable that is not elsewhere with the same luck; then it has the same value in both, and every
reward factor pays the same, or `outside` against something in its range. A policy for the model
with elsewhere can be followed in the true one, where one sees more; a policy for the true one can
be followed with elsewhere by drawing what is not seen as the truth would, and such randomised
policies gain nothing on the best.

With one variable elsewhere is the one absorbing state of E3 and Rmax. With several it is less
extreme than a joint one: reward factors that the unknown does not reach pay as they are known to.
The price is one value more for each variable, prod (|S_i| + 1) states in all.

Where constraints look at a variable that is elsewhere, they forbid what they forbid for all of its
values: the second inequality stays, the first may not.
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


class Known(NamedTuple):
    """Which rows are known."""

    transitions: Sequence[Mask]
    """For each state variable [|X[Z_i]|]."""
    rewards: Sequence[Mask]
    """For each reward factor [|X[Z_k]|]."""


@lru_cache(maxsize=8)  # asked for in every plan
def structure_with_elsewhere(structure: Structure) -> Structure:
    """The structure with one value more for each state variable, which is its last."""
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
        constraints=tuple(_loosened(one, s) for one in s.constraints),
    )


def _loosened(constraint: Constraint, s: Structure) -> Constraint:
    """Elsewhere forbids what every value forbids, so that every state keeps an action."""
    if not isinstance(constraint, Forbidden):
        return constraint
    cube = constraint.table.reshape([s.sizes[v] for v in constraint.scope])
    for axis, variable in enumerate(constraint.scope):
        if variable < s.m:
            cube = np.concatenate([cube, cube.all(axis=axis, keepdims=True)], axis=axis)
    return Forbidden(constraint.scope, cube.reshape(-1), constraint.name)


@lru_cache(maxsize=8)
def states_here(structure: Structure) -> Index:
    """Where the states of the structure are among those of the one with elsewhere: [S]."""
    sizes = structure.state_sizes
    return weighted_index(sizes, strides([size + 1 for size in sizes]))


@lru_cache(maxsize=8)
def _old_rows(structure: Structure) -> tuple[list[Index], list[Index]]:
    """For every row of every table with elsewhere the row of the table without, -1 where there is
    none because a variable is elsewhere: of transition factors, and of reward factors."""
    larger = structure_with_elsewhere(structure)
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


def model_with_elsewhere(
    structure: Structure,
    transitions: Sequence[FloatArray],
    rewards: Sequence[FloatArray],
    known: Known,
    outside: Sequence[float],
) -> FactoredMDP:
    """The model above, of `structure_with_elsewhere`.

    `transitions`, `rewards`: tables of the structure, of which unknown rows are not looked at;
    `outside`: what each reward factor pays for what is unknown, and elsewhere.
    """
    rows_of, means_of = _old_rows(structure)
    tables, means = [], []
    for rows, table, sure in zip(rows_of, transitions, known.transitions, strict=True):
        here = (rows >= 0) & sure[rows]
        made = np.zeros((len(rows), table.shape[1] + 1))
        made[here, :-1] = table[rows[here]]
        made[~here, -1] = 1.0
        tables.append(made)
    for rows, table, sure, paid in zip(means_of, rewards, known.rewards, outside, strict=True):
        means.append(np.where((rows >= 0) & sure[rows], table[rows], paid))
    return FactoredMDP.trusted(structure_with_elsewhere(structure), tables, means)


def known_entries(statistics: Statistics, enough: int) -> Mask:
    """Whether each entry has `enough` visits, or is a reward that has one value only: [entries]."""
    sure = statistics.visits >= enough
    sure[len(statistics.transition_visits) :] |= statistics.reward_lo == statistics.reward_hi
    return sure


def estimated_parts(
    statistics: Statistics, sure: Mask
) -> tuple[Structure, Sequence[FloatArray], Sequence[FloatArray], Known]:
    """Structure, rows, means and what is known of them, for the models with elsewhere."""
    s, n = statistics.structure, len(statistics.transition_visits)
    # A mean of rewards at an end of the range may pass it by rounding.
    means = np.clip(statistics.reward_means(), statistics.reward_lo, statistics.reward_hi)
    known = Known(split_transition_entries(s, sure[:n]), split_reward_entries(s, sure[n:]))
    rows = split_cells(s, statistics.transition_means())
    return s, rows, split_reward_entries(s, means), known
