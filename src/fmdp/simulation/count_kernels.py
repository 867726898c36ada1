"""The count process in compiled code: how many parts are in each local state, step by step.

Given the state and the action, the parts of one class (local state and action) move independently
with one law, so their next counts are multinomial: a chain of binomial draws. A step costs one
uniform per draw, whatever the number of parts, plus the walk of the inversion.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fmdp._base.compiled import njit
from fmdp.simulation.pcg64 import double, times_plus

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Words = NDArray[np.uint64]


class Moves(NamedTuple):
    """What can happen in each state, under one policy.

    The next counts of class c are binomial draws: `sizes[state, c]` parts with the conditional
    probabilities of law `laws[state, c]`, which go to the bins from `first_bin[c]` on.
    """

    reward: Floats
    """[states]: expected reward."""
    sizes: Ints
    """[states, classes]: parts of each class, 0 for unused ones."""
    laws: Ints
    """[states, classes]"""
    first_bin: Ints
    """[classes]"""
    n_bins: Ints
    """[classes]: local states of the group of the class."""
    conditional: Floats
    """[laws, bins]: probability of each bin given that no earlier bin was drawn."""
    common: Floats
    """[laws of the common variables, joint values]: cumulative; no rows without such variables."""
    common_law: NDArray[np.int32]
    """[states]: the law of the next common values."""


class Numbering(NamedTuple):
    """How states are numbered: the rank of the counts of each group, and the common values."""

    group_first: Ints
    """[groups + 1]: first bin of each group."""
    parts: Ints
    """[groups]: number of parts."""
    group_step: Ints
    """[groups]: stride of the rank of its counts."""
    choose: Ints
    """[largest number of parts + 1, bins]: C(r + j, j)."""
    log_factorial: Floats
    """[largest number of parts + 1]"""


@njit(nogil=True)
def _uniform(words, increment):  # type: ignore[no-untyped-def]
    """Return the next double of PCG64, and advance the state (high, low) in place."""
    high, low = times_plus(
        words[0], words[1], increment[0], increment[1], increment[2], increment[3]
    )
    words[0], words[1] = high, low
    return double(high, low)


@njit(nogil=True)
def binomial(n, p, u, log_factorial):  # type: ignore[no-untyped-def]
    """Return a binomial variate by inversion of u, from the mode outwards.

    The values are taken in the order mode, mode + 1, mode - 1, ...: about sqrt(n p (1 - p)) of
    them are visited on average.
    """
    if p <= 0.0 or n == 0:
        return 0
    if p >= 1.0:
        return n
    odds = p / (1.0 - p)
    mode = min(n, np.int64((n + 1) * p))
    start = math.exp(
        log_factorial[n]
        - log_factorial[mode]
        - log_factorial[n - mode]
        + mode * math.log(p)
        + (n - mode) * math.log1p(-p)
    )
    u -= start
    if u < 0.0:
        return mode
    up, down, above, below = mode, mode, start, start
    while up < n or down > 0:
        if up < n:
            above *= (n - up) * odds / (up + 1)
            up += 1
            u -= above
            if u < 0.0:
                return up
        if down > 0:
            below *= down / ((n - down + 1) * odds)
            down -= 1
            u -= below
            if u < 0.0:
                return down
    return mode  # rounding has left a remainder of the order of 1e-16


@njit(nogil=True)
def binomials(n, p, uniforms, log_factorial, out):  # type: ignore[no-untyped-def]
    """out[i] <- the binomial variate of uniforms[i]."""
    for i in range(uniforms.shape[0]):
        out[i] = binomial(n, p, uniforms[i], log_factorial)


@njit(nogil=True)
def state_number(numbering, counts, common):  # type: ignore[no-untyped-def]
    """Return the number of a state: the ranks of the counts, and the joint common value."""
    index = common
    for g in range(numbering.parts.shape[0]):
        first, end = numbering.group_first[g], numbering.group_first[g + 1]
        left, rank = numbering.parts[g], 0
        for b in range(first, end - 1):
            after = left - counts[b]
            rank += numbering.choose[left, end - 1 - b] - numbering.choose[after, end - 1 - b]
            left = after
        index += rank * numbering.group_step[g]
    return index


@njit(nogil=True)
def play_counts(  # type: ignore[no-untyped-def]
    moves, numbering, state, steps, words, increment, counts, totals
):
    """Take some steps from a state, and return the last state.

    `totals[0]` is increased by the expected rewards; `counts` is a workspace.
    """
    moves, numbering = Moves(*moves), Numbering(*numbering)
    for _ in range(steps):
        totals[0] += moves.reward[state]
        counts[:] = 0
        for c in range(moves.sizes.shape[1]):
            left = moves.sizes[state, c]
            first, last = moves.first_bin[c], moves.n_bins[c] - 1
            law = moves.laws[state, c]
            for k in range(last):
                if left == 0:
                    break
                p = moves.conditional[law, k]
                if p > 0.0:
                    u = _uniform(words, increment)
                    drawn = binomial(left, p, u, numbering.log_factorial)
                    counts[first + k] += drawn
                    left -= drawn
            counts[first + last] += left
        value = 0
        if moves.common.shape[0] > 0:
            u = _uniform(words, increment)
            law = moves.common_law[state]
            while value < moves.common.shape[1] - 1 and u >= moves.common[law, value]:
                value += 1
        state = state_number(numbering, counts, value)
    return state
