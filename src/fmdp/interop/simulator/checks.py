"""Tests of samples against a fitted model: noise of rewards, and variables drawn together.

A factored model draws the next values of its variables independently, given state and action. The
test for two variables is the G statistic of their next values within the rows of both scopes,

    G = 2 sum_x sum_uv n(x, u, v) log( n(x, u, v) n(x) / (n(x, u) n(x, v)) ).

Rows with few visits do not follow the chi-squared distribution, so that a pair which looks
dependent is compared with the same pair after its values were shuffled within the rows. That keeps
all n(x, u) and n(x, v), and makes the two independent.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fmdp.logs.fit import Counts
from fmdp.logs.steps import Steps, rows_of
from fmdp.model import Noise, Structure
from fmdp.model.expansion import with_derived_values

_EXACT = 1e-9
"""Spread of a reward within a row, relative to its range, that is rounding."""
_SCREEN = 3.0
_SHUFFLES = 20
_SURE = 8.0
"""Standard deviations above the mean of the chi-squared distribution from which on a pair is
shuffled, number of shuffles, and standard deviations above their mean that are no accident."""

Integers = NDArray[np.int64]


def measured_noise(counts: Counts, steps: Steps) -> tuple[Noise, ...]:
    """Return the law of every reward factor about the means of its rows.

    It is deterministic if the rewards of each row are equal, Bernoulli if all are ends of the
    range, and otherwise Gaussian with the standard deviation within rows.
    """
    s = counts.structure
    joint = _joint(s, steps)
    laws = []
    for k, (lo, hi) in enumerate(s.reward_ranges):
        paid = steps.rewards[:, k]
        rows = s.reward_classes_of(k)[rows_of(s, joint, s.reward_scopes[k])]
        seen, rows, visits = np.unique(rows, return_inverse=True, return_counts=True)
        least, most = np.full(len(seen), np.inf), np.full(len(seen), -np.inf)
        np.minimum.at(least, rows, paid)
        np.maximum.at(most, rows, paid)
        if (most - least).max() <= _EXACT * (hi - lo):
            laws.append(Noise())
        elif ((paid == lo) | (paid == hi)).all():
            laws.append(Noise("bernoulli"))
        else:
            errors = paid - (np.bincount(rows, weights=paid) / visits)[rows]
            freedom = len(paid) - len(seen)
            laws.append(Noise("gaussian", float(np.sqrt((errors**2).sum() / freedom))))
    return tuple(laws)


def dependent_pairs(
    structure: Structure, steps: Steps, generator: np.random.Generator
) -> list[tuple[int, int]]:
    """Return the pairs of state variables whose next values are not drawn independently."""
    s = structure
    joint = _joint(s, steps)
    following = steps.next_states.astype(np.int64)
    return [
        (i, j)
        for i in range(s.m)
        for j in range(i + 1, s.m)
        if _dependent(
            rows_in_use(s, joint, {*s.transition_scopes[i], *s.transition_scopes[j]}),
            following[:, i],
            following[:, j],
            generator,
        )
    ]


def rows_in_use(structure: Structure, joint: Integers, scope: set[int]) -> Integers:
    """Return the row of every step over a scope, with the visited rows numbered 0, 1, ...."""
    rows = np.zeros(len(joint), dtype=np.int64)
    for v in sorted(scope):
        rows = _numbered(rows * structure.all_sizes[v] + joint[:, v])
    return rows


def _dependent(
    rows: Integers, first: Integers, second: Integers, generator: np.random.Generator
) -> bool:
    """Return whether two values are dependent within rows."""
    ones, others = _paired(rows, first), _paired(rows, second)
    # A value that is certain in its row depends on nothing.
    values_one, values_other = (
        np.bincount(rows[np.unique(codes, return_index=True)[1]], minlength=rows.max() + 1) - 1
        for codes in (ones, others)
    )
    freedom = int((values_one * values_other).sum())
    if not freedom:
        return False
    fixed = _entropy_sum(rows) - _entropy_sum(ones) - _entropy_sum(others)

    def statistic(values: Integers) -> float:
        return 2.0 * (_entropy_sum(_paired(ones, values)) + fixed)

    observed = statistic(second)
    if observed <= freedom + _SCREEN * np.sqrt(2.0 * freedom):
        return False
    order = np.argsort(rows, kind="stable")
    shuffled = []
    for _ in range(_SHUFFLES):
        values = np.empty_like(second)
        values[order] = second[np.lexsort([generator.random(len(rows)), rows])]
        shuffled.append(statistic(values))
    spread = max(float(np.std(shuffled)), 1e-9 * (1.0 + observed))
    return observed > float(np.mean(shuffled)) + _SURE * spread


def _entropy_sum(codes: Integers) -> float:
    """Return the sum of n log n over the numbers n of equal codes."""
    n = np.unique(codes, return_counts=True)[1].astype(np.float64)
    return float((n * np.log(n)).sum())


def _paired(rows: Integers, values: Integers) -> Integers:
    return rows * (int(values.max()) + 1) + values


def _numbered(codes: Integers) -> Integers:
    numbers: Integers = np.unique(codes, return_inverse=True)[1]
    return numbers


def _joint(structure: Structure, steps: Steps) -> Integers:
    """Return the values of all variables at the beginning of every step."""
    parts: Sequence[NDArray[np.int64]] = (steps.states, steps.actions)
    joint = np.concatenate(parts, axis=1, dtype=np.int64)
    return with_derived_values(structure, joint)
