"""Compiled steps of a factored MDP, for single steps and for long runs.

One step takes m + l uniforms u whatever the action. The next value of variable i is the smallest v
with u_i < P_i(0 | x) + ... + P_i(v | x). Reward k is its mean, or hi with probability (mean - lo) /
(hi - lo) and else lo, or mean + scale * Phi^-1(u) with the noise clipped at +-min(mean - lo, hi -
mean). Learners with the same seed share the uniforms.

The outcome of a pair (state, action) is looked up in the tables once and then cached as its `cuts`:
the cumulative sums above, of all variables with few values in one row. The next value is the number
of cuts that do not exceed the uniform, and the index of the next state is a sum over all cuts.

About 25 nanoseconds per step for seven machines under a fixed policy, on an idle core.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fmdp._base.compiled import njit
from fmdp.model import FactoredMDP, Structure
from fmdp.model.entries import (
    Counts,
    Entries,
    Index,
    count,
    cumulative,
    derive,
    first_rows,
    locate,
    locate_all,
)
from fmdp.model.spaces import strides
from fmdp.simulation.trajectory import Rows

DETERMINISTIC, BERNOULLI, GAUSSIAN = 0, 1, 2
_CODES = {"deterministic": DETERMINISTIC, "bernoulli": BERNOULLI, "gaussian": GAUSSIAN}

_NONE_TAKEN: Any = np.int64(0)
"""Not a literal: with one, functions that take the number of steps are compiled twice."""
ALL_TAKEN, LIMIT_REACHED, UNKNOWN_ACTION = 0, 1, 2
"""Reasons why `play` ended."""

REWARD, EXPECTED, GAP, STEPS = 0, 1, 2, 3
"""Indices in `totals`, the sums over the steps so far."""

FEW_VALUES = 16
"""Values up to which all cuts of a variable are compared; above, its row is bisected."""
MEMORY = 1 << 22
"""Bytes of the cache of outcomes; if there are more pairs than fit, they share slots by a hash."""
_MOST_PAIRS = 1 << 62
"""Pairs of state and action up to which their indices fit into an int64."""


class Law(NamedTuple):
    """Sampling tables of a model; cells and reward entries are those of model/entries.py."""

    cumulative: NDArray[np.float64]
    """[cells]: cumulative sums of a row; infinite from its last possible value on."""
    means: NDArray[np.float64]
    """[reward entries]"""
    column: Index
    """[factors]: first column of a factor's uniforms in a row of them, -1 if it uses none. A
    variable with few values has one column per cut, all with the same number."""
    weights: Index
    """[cuts]: contribution of a cut to the index of the next state."""
    kind: Index
    """[l], as the following arrays: the noise of each reward factor."""
    scale: NDArray[np.float64]
    lo: NDArray[np.float64]
    hi: NDArray[np.float64]
    derived_column: Index
    """[derived variables]: column of the uniform of a drawn one, -1 for a deterministic one."""


class OutcomeCache(NamedTuple):
    """Outcomes of pairs of state and action, in slots that pairs may share."""

    pairs: Index
    """[slots]: the cached pair, state * actions + action, or -1. Empty if pairs are too many for
    such numbers; a single slot then serves the current step."""
    cuts: NDArray[np.float64]
    """[slots, cuts]"""
    entries: Index
    """[slots, factors]: the entries that the factors read."""
    expected: NDArray[np.float64]
    """[slots]: the expected reward."""


def law_of(model: FactoredMDP) -> tuple[Law, tuple[int, ...]]:
    """Return the sampling tables, and which of the uniforms of a step each used column is.

    A step has m + l uniforms, and one more for each drawn variable.
    """
    s = model.structure
    # Parts of one type share their tables.
    sums_of = {id(table): cumulative(table) for table in model.transitions}
    sums = [sums_of[id(table)] for table in model.transitions]
    firsts: Any = slice(None)
    if s.alike is not None:
        rows, firsts = first_rows(s)
        # The first rows of the classes ascend.
        parts = np.split(rows, np.searchsorted(rows, s.row_starts[1:-1]))
        sums = [
            table[part - start]
            for table, part, start in zip(sums, parts, s.row_starts[:-1], strict=True)
        ]
    column = np.full(s.m + s.l, -1, dtype=np.int64)
    uniforms: list[int] = []
    weights: list[int] = []
    steps = strides(s.state_sizes) if has_pair_numbers(model) else (0,) * s.m
    few = [i for i, size in enumerate(s.state_sizes) if 1 < size <= FEW_VALUES]
    for i in few:
        column[i] = len(uniforms)
        uniforms += [i] * (s.state_sizes[i] - 1)
        weights += [steps[i]] * (s.state_sizes[i] - 1)
    many = [i for i, size in enumerate(s.state_sizes) if size > FEW_VALUES]
    noisy = [s.m + k for k, noise in enumerate(model.noise) if noise.kind != "deterministic"]
    for factor in many + noisy:
        column[factor] = len(uniforms)
        uniforms.append(factor)
    derived_column = np.full(len(s.derived), -1, dtype=np.int64)
    for number, j in enumerate(drawn_variables(s)):
        derived_column[j] = len(uniforms)
        uniforms.append(s.m + s.l + number)
    law = Law(
        cumulative=np.concatenate([table.reshape(-1) for table in sums]),
        means=np.concatenate([*model.rewards, np.zeros(0)])[firsts],
        column=column,
        weights=np.array(weights, dtype=np.int64),
        kind=np.array([_CODES[noise.kind] for noise in model.noise], dtype=np.int64),
        scale=np.array([noise.scale for noise in model.noise], dtype=np.float64),
        lo=np.array([lo for lo, _ in s.reward_ranges], dtype=np.float64),
        hi=np.array([hi for _, hi in s.reward_ranges], dtype=np.float64),
        derived_column=derived_column,
    )
    return law, tuple(uniforms)


def drawn_variables(structure: Structure) -> list[int]:
    """Return the places of the drawn variables among the derived ones."""
    return [j for j, variable in enumerate(structure.derived) if not variable.deterministic]


def has_pair_numbers(model: FactoredMDP) -> bool:
    """Return True if all pairs of state and action have indices that fit into an int64."""
    return model.structure.n_states * model.structure.n_actions <= _MOST_PAIRS


def empty_cache(model: FactoredMDP, law: Law, memory: int = MEMORY) -> OutcomeCache:
    """Return a cache with a slot per pair, or with as many slots as fit into `memory`.

    With drawn variables nothing is cached: a pair has different outcomes in different steps.
    """
    s = model.structure
    cuts, factors = len(law.weights), s.m + s.l
    slots = 1
    keeping = has_pair_numbers(model) and not drawn_variables(s)
    if keeping:
        most = max(2, memory // (8 * (cuts + factors + 2)))
        pairs = s.n_states * s.n_actions
        slots = pairs if pairs <= most else 1 << most.bit_length() - 1
    return OutcomeCache(
        pairs=np.full(slots if keeping else 0, -1, dtype=np.int64),
        cuts=np.empty((slots, cuts)),
        entries=np.empty((slots, factors), dtype=np.int64),
        expected=np.empty(slots),
    )


@njit(nogil=True)
def normal_quantile(u):  # type: ignore[no-untyped-def]
    """Return Phi^-1(u) by Wichura 1988 (AS 241, PPND16); relative error below 1e-15."""
    q = u - 0.5
    if abs(q) <= 0.425:
        r = 0.180625 - q * q
        top = (((((((2509.0809287301226727 * r + 33430.575583588128105) * r
              + 67265.770927008700853) * r + 45921.953931549871457) * r
              + 13731.693765509461125) * r + 1971.5909503065514427) * r
              + 133.14166789178437745) * r + 3.387132872796366608)  # fmt: skip
        bottom = (((((((5226.495278852545925 * r + 28729.085735721942674) * r
                 + 39307.89580009271061) * r + 21213.794301586595867) * r
                 + 5394.1960214247511077) * r + 687.1870074920579083) * r
                 + 42.313330701600911252) * r + 1.0)  # fmt: skip
        return q * top / bottom
    r = u if q < 0.0 else 1.0 - u
    if r <= 0.0:
        return -np.inf if q < 0.0 else np.inf
    r = np.sqrt(-np.log(r))
    if r <= 5.0:
        r -= 1.6
        top = (((((((7.7454501427834140764e-4 * r + 0.0227238449892691845833) * r
              + 0.24178072517745061177) * r + 1.27045825245236838258) * r
              + 3.64784832476320460504) * r + 5.7694972214606914055) * r
              + 4.6303378461565452959) * r + 1.42343711074968357734)  # fmt: skip
        bottom = (((((((1.05075007164441684324e-9 * r + 5.475938084995344946e-4) * r
                 + 0.0151986665636164571966) * r + 0.14810397642748007459) * r
                 + 0.68976733498510000455) * r + 1.6763848301838038494) * r
                 + 2.05319162663775882187) * r + 1.0)  # fmt: skip
    else:
        r -= 5.0
        top = (((((((2.01033439929228813265e-7 * r + 2.71155556874348757815e-5) * r
              + 0.0012426609473880784386) * r + 0.026532189526576123093) * r
              + 0.29656057182850489123) * r + 1.7848265399172913358) * r
              + 5.4637849111641143699) * r + 6.6579046435011037772)  # fmt: skip
        bottom = (((((((2.04426310338993978564e-15 * r + 1.4215117583164458887e-7) * r
                 + 1.8463183175100546818e-5) * r + 7.868691311456132591e-4) * r
                 + 0.0148753612908506148525) * r + 0.13692988092273580531) * r
                 + 0.59983220655588793769) * r + 1.0)  # fmt: skip
    x = top / bottom
    return -x if q < 0.0 else x


@njit(nogil=True)
def observed(kind, mean, scale, lo, hi, u):  # type: ignore[no-untyped-def]
    """Return a reward with its noise."""
    if kind == BERNOULLI:
        return hi if u * (hi - lo) < mean - lo else lo
    if kind == GAUSSIAN:
        largest = min(mean - lo, hi - mean)
        noise = scale * normal_quantile(u)
        # The outer bounds only keep rounding inside the range.
        return min(max(mean + min(max(noise, -largest), largest), lo), hi)
    return mean


@njit(nogil=True)
def fill_slot(entries, law, joint, cache, slot, uniforms, t):  # type: ignore[no-untyped-def]
    """Fill a slot with the outcome of joint = (state, action); row t has the uniforms of drawn
    variables."""
    read, m = cache.entries[slot], law.column.shape[0] - law.kind.shape[0]
    if law.derived_column.shape[0] > 0:
        joint = derive(entries, joint, law.derived_column, uniforms, t)
    locate_all(entries, joint, read)
    for i in range(m):
        first = entries.first_cell[read[i]]
        if entries.sizes[i] <= FEW_VALUES:
            for v in range(entries.sizes[i] - 1):
                cache.cuts[slot, law.column[i] + v] = law.cumulative[first + v]
    n_transition_entries = entries.first_cell.shape[0] - 1
    expected = 0.0
    for k in range(law.kind.shape[0]):
        expected += law.means[read[m + k] - n_transition_entries]
    cache.expected[slot] = expected


# The helpers of a step are inlined: passing the tuples would take longer than the step.
@njit(nogil=True, forceinline=True)
def _move(entries, law, cache, slot, uniforms, t, state):  # type: ignore[no-untyped-def]
    """Compute state <- the next state, by the uniforms of row t; return its index."""
    index = 0
    for i in range(state.shape[0]):
        value, size, column = 0, entries.sizes[i], law.column[i]
        if size <= FEW_VALUES:
            for c in range(column, column + size - 1):
                value += 1 if uniforms[t, c] >= cache.cuts[slot, c] else 0
        else:
            first, above = entries.first_cell[cache.entries[slot, i]], size - 1
            while value < above:
                middle = (value + above) // 2
                if uniforms[t, column] >= law.cumulative[first + middle]:
                    value = middle + 1
                else:
                    above = middle
        state[i] = value
        index = index * size + value
    return index


@njit(nogil=True)
def _assign(sizes, first, end, index, values):  # type: ignore[no-untyped-def]
    """Compute values[first:end] <- the assignment of these variables with this index."""
    for i in range(end - 1, first - 1, -1):
        values[i] = index % sizes[i]
        index //= sizes[i]


@njit(nogil=True)
def draw(entries, law, cache, joint, uniforms, t, state, means):  # type: ignore[no-untyped-def]
    """Take one step from joint = (state, action) with the uniforms of row t. Fills state, the means
    of the rewards, and the first slot. Plain tuples as in `play`."""
    entries, law, cache = Entries(*entries), Law(*law), OutcomeCache(*cache)
    fill_slot(entries, law, joint, cache, 0, uniforms, t)
    _move(entries, law, cache, 0, uniforms, t, state)
    m, first_reward = state.shape[0], entries.first_cell.shape[0] - 1
    for k in range(means.shape[0]):
        means[k] = law.means[cache.entries[0, m + k] - first_reward]


@njit(nogil=True)
def play(  # type: ignore[no-untyped-def]
    entries,
    joined,
    law,
    cache,
    actions,
    drawn,
    steps,
    state,
    uniforms,
    counts,
    limits,
    gaps,
    totals,
    rows,
):
    """Take up to `steps` steps from `state` (updated in place); count and record them if asked.

    The action of step t is drawn[t], or actions[index of the state] if that is negative. Ends
    before a step whose action is unknown (negative too), and after one in which the visits of an
    entry reach its limit. Returns the number of steps taken and the reason for the end. An empty
    array means no table, no drawn actions, no counting, no limits, no gaps, no recording. If
    `joined` has variables, the counts are over joint states, joint actions and summed rewards.

    Tuples are plain, because passing named ones to compiled code takes 2 microseconds.
    """
    entries, law, cache = Entries(*entries), Law(*law), OutcomeCache(*cache)
    counts, rows = Counts(*counts), Rows(*rows)
    source = (actions, drawn, steps, state, uniforms)
    # Without counting and recording, the index of the state replaces the values of its variables.
    plain = counts.visits.shape[0] == 0 and rows.states.shape[0] == 0
    few = True  # a loop: NumPy's maximum takes longer to compile
    for i in range(state.shape[0]):
        few = few and entries.sizes[i] <= FEW_VALUES
    if plain and few and cache.pairs.shape[0] > 0:
        return _play_indices(entries, law, cache, *source, gaps, totals)
    book = (counts, limits, gaps, totals, rows)
    return _play_values(entries, Entries(*joined), law, cache, *source, *book)


# The two loops repeat how an action is chosen and a reward is drawn. As functions of these tuples,
# inlined or not, these lines made a counted step three times as slow.
@njit(nogil=True)
def _play_indices(  # type: ignore[no-untyped-def]
    entries, law, cache, actions, drawn, steps, state, uniforms, gaps, totals
):
    """Play as `play` if all variables have few values and nothing is counted or recorded."""
    m = state.shape[0]
    n_factors = law.column.shape[0]
    n_cuts = law.weights.shape[0]
    first_reward = entries.first_cell.shape[0] - 1
    joint = np.empty(entries.sizes.shape[0], dtype=np.int64)
    rewards = np.empty(n_factors - m)
    tabulated, drawing, with_gaps = actions.shape[0] > 0, drawn.shape[0] > 0, gaps.shape[0] > 0
    noisy = _is_noisy(law)
    n_actions, direct, shift = _slotting(entries.sizes, m, cache.pairs.shape[0])
    index = _index(entries.sizes, state)
    reward, expected, gap = totals[REWARD], totals[EXPECTED], totals[GAP]
    taken, end = _NONE_TAKEN, ALL_TAKEN
    while taken < steps:
        t = taken
        action = np.int64(-1)
        if drawing:
            action = drawn[t]
        if action < 0 and tabulated:
            action = np.int64(actions[index])
        if action < 0:
            end = UNKNOWN_ACTION
            break
        pair = index * n_actions + action
        slot = _slot(pair, direct, shift)
        if cache.pairs[slot] != pair:
            _assign(entries.sizes, 0, m, index, state)
            _join(entries.sizes, state, action, joint)
            fill_slot(entries, law, joint, cache, slot, uniforms, t)
            cache.pairs[slot] = pair
        following = 0
        for c in range(n_cuts):
            following += law.weights[c] if uniforms[t, c] >= cache.cuts[slot, c] else 0
        total = cache.expected[slot]
        expected += total
        if noisy:
            total = 0.0
            for k in range(n_factors - m):
                mean = law.means[cache.entries[slot, m + k] - first_reward]
                u = uniforms[t, law.column[m + k]] if law.kind[k] != DETERMINISTIC else 0.0
                rewards[k] = observed(law.kind[k], mean, law.scale[k], law.lo[k], law.hi[k], u)
                total += rewards[k]
        reward += total
        if with_gaps:
            gap += gaps[index, action]
        taken += 1
        index = following
    _assign(entries.sizes, 0, m, index, state)
    totals[REWARD], totals[EXPECTED], totals[GAP] = reward, expected, gap
    totals[STEPS] += taken
    return taken, end


@njit(nogil=True)
def _play_values(  # type: ignore[no-untyped-def]
    entries,
    joined,
    law,
    cache,
    actions,
    drawn,
    steps,
    state,
    uniforms,
    counts,
    limits,
    gaps,
    totals,
    rows,
):
    """Play as `play`, with the value of every state variable in every step."""
    m = state.shape[0]
    n_variables = entries.sizes.shape[0]
    n_factors = law.column.shape[0]
    first_reward = entries.first_cell.shape[0] - 1
    joint = np.empty(n_variables, dtype=np.int64)
    read = np.empty(n_factors, dtype=np.int64)
    rewards = np.empty(n_factors - m)
    joint_read = np.empty(2, dtype=np.int64)
    both = np.empty(2, dtype=np.int64)
    after = np.empty(1, dtype=np.int64)
    summed = np.empty(1)
    tabulated, drawing, with_gaps = actions.shape[0] > 0, drawn.shape[0] > 0, gaps.shape[0] > 0
    counting, recording = counts.visits.shape[0] > 0, rows.states.shape[0] > 0
    limited, joining = limits.shape[0] > 0, joined.sizes.shape[0] > 0
    by_factor = counting | recording | _is_noisy(law)
    keeping = cache.pairs.shape[0] > 0
    n_actions, direct, shift = _slotting(entries.sizes, m, cache.pairs.shape[0])
    index = _index(entries.sizes, state)
    reward, expected, gap = totals[REWARD], totals[EXPECTED], totals[GAP]
    taken, end = _NONE_TAKEN, ALL_TAKEN
    while taken < steps:
        t = taken
        action = np.int64(-1)
        if drawing:
            action = drawn[t]
        if action < 0 and tabulated:
            action = np.int64(actions[index])
        if action < 0:
            end = UNKNOWN_ACTION
            break
        pair = index * n_actions + action
        slot = _slot(pair, direct, shift) if keeping else np.int64(0)
        if not keeping or cache.pairs[slot] != pair:
            _join(entries.sizes, state, action, joint)
            fill_slot(entries, law, joint, cache, slot, uniforms, t)
            if keeping:
                cache.pairs[slot] = pair
        if recording:
            for i in range(m):
                rows.states[t, i] = state[i]
            _assign(entries.sizes, m, n_variables, action, joint)
            for j in range(m, n_variables):
                rows.actions[t, j - m] = joint[j]

        following = _move(entries, law, cache, slot, uniforms, t, state)
        total = cache.expected[slot]
        expected += total
        if by_factor:
            total = 0.0
            for k in range(n_factors - m):
                mean = law.means[cache.entries[slot, m + k] - first_reward]
                u = uniforms[t, law.column[m + k]] if law.kind[k] != DETERMINISTIC else 0.0
                rewards[k] = observed(law.kind[k], mean, law.scale[k], law.lo[k], law.hi[k], u)
                total += rewards[k]
        reward += total
        if with_gaps:
            gap += gaps[index, action]
        taken += 1

        if recording:
            for k in range(n_factors - m):
                rows.rewards[t, k] = rewards[k]
        if counting:
            if joining:
                both[0], both[1], after[0], summed[0] = index, action, following, total
                locate(joined, both, joint_read)
                count(joined, joint_read, after, summed, counts)
            else:
                for f in range(n_factors):
                    read[f] = cache.entries[slot, f]
                count(entries, read, state, rewards, counts)
            if limited and _ended(joint_read if joining else read, counts.visits, limits):
                index, end = following, LIMIT_REACHED
                break
        index = following
    totals[REWARD], totals[EXPECTED], totals[GAP] = reward, expected, gap
    totals[STEPS] += taken
    return taken, end


@njit(nogil=True)
def _is_noisy(law):  # type: ignore[no-untyped-def]
    noisy = False
    for kind in law.kind:
        noisy = noisy or kind != DETERMINISTIC
    return noisy


@njit(nogil=True)
def _slotting(sizes, m, slots):  # type: ignore[no-untyped-def]
    """Return the joint actions, whether every pair has its own slot, and the shift of the hash. The
    multiplicative hash keeps the upper log2(slots) bits of a 64-bit product."""
    n_states, n_actions = 1, 1
    for i in range(m):
        n_states *= sizes[i]
    for j in range(m, sizes.shape[0]):
        n_actions *= sizes[j]
    direct = slots == n_states * n_actions
    shift = np.uint64(64)
    while slots > 1:
        slots //= 2
        shift -= np.uint64(1)
    return n_actions, direct, shift


@njit(nogil=True, forceinline=True)
def _slot(pair, direct, shift):  # type: ignore[no-untyped-def]
    if direct:
        return pair
    return np.int64(np.uint64(pair) * np.uint64(0x9E3779B97F4A7C15) >> shift)


@njit(nogil=True)
def _index(sizes, state):  # type: ignore[no-untyped-def]
    """Return the index of a state in C order."""
    index = 0
    for i in range(state.shape[0]):
        index = index * sizes[i] + state[i]
    return index


@njit(nogil=True)
def _join(sizes, state, action, joint):  # type: ignore[no-untyped-def]
    """Compute joint <- (state, values of the action with this index)."""
    m = state.shape[0]
    for i in range(m):
        joint[i] = state[i]
    _assign(sizes, m, sizes.shape[0], action, joint)


@njit(nogil=True)
def _ended(entries, visits, limits):  # type: ignore[no-untyped-def]
    """Return True if the visits of one of these entries have reached its limit."""
    reached = False
    for entry in entries:
        reached = reached or visits[entry] >= limits[entry]
    return reached
