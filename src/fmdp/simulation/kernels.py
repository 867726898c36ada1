"""Compiled steps of a factored MDP: one sampler, for single steps and for long runs.

One step takes m + l uniforms u whatever the action: next value of variable i is the smallest v with
u_i < P_i(0 | x) + ... + P_i(v | x); reward k is its mean, or hi with probability
(mean - lo) / (hi - lo) and else lo, or mean + scale * Phi^-1(u) with the noise clipped at
+-min(mean - lo, hi - mean). Learners that meet the same uniforms share their luck.

What a pair (state, action) comes to is looked up in the tables when it is met, and then kept, as
its `cuts`: the sums above, of all variables of few values in one row. The next value is the number
of cuts that are not above the uniform, and the index of the next state a sum over all cuts.

About 40 nanoseconds a step for seven machines under a fixed policy, 15 of them for the uniforms.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fmdp._base.compiled import njit
from fmdp.model import FactoredMDP
from fmdp.model.entries import Counts, Entries, Index, count, first_rows, locate
from fmdp.model.spaces import strides
from fmdp.simulation.trajectory import Rows

DETERMINISTIC, BERNOULLI, GAUSSIAN = 0, 1, 2
_CODES = {"deterministic": DETERMINISTIC, "bernoulli": BERNOULLI, "gaussian": GAUSSIAN}

ALL_TAKEN, LIMIT_REACHED, UNKNOWN_ACTION = 0, 1, 2
"""Why `play` ended."""

REWARD, EXPECTED, GAP, STEPS = 0, 1, 2, 3
"""Places in `totals`: sums over the steps so far."""

FEW_VALUES = 16
"""Up to here every cut of a variable is compared; above, its row is searched by bisection."""
MEMORY = 1 << 22
"""Bytes for what pairs come to."""
_MOST_PAIRS = 1 << 62
"""Up to here pairs have numbers that compiled code can hold."""


class Law(NamedTuple):
    """What is sampled from: cells and reward entries as in model/entries.py, and its layout."""

    cumulative: NDArray[np.float64]
    """[cells]: sums of a row up to each value; infinite from its last possible value on."""
    means: NDArray[np.float64]
    """[reward entries]"""
    column: Index
    """[factors]: where the uniforms of a factor are in a row of them; -1 where none is looked at.
    A variable of few values has one for every cut, each the same number."""
    weights: Index
    """[cuts]: what reaching a cut adds to the index of the next state."""
    kind: Index
    """[l], as what follows: the noise of a reward factor."""
    scale: NDArray[np.float64]
    lo: NDArray[np.float64]
    hi: NDArray[np.float64]


class Met(NamedTuple):
    """What pairs of state and action come to: slots, one for each pair, that pairs may share."""

    pairs: Index
    """[slots]: the pair in it, state * actions + action, or -1. Empty where pairs have no such
    numbers; the one slot is then for the present step."""
    cuts: NDArray[np.float64]
    """[slots, cuts]"""
    found: Index
    """[slots, factors]: the entries."""
    expected: NDArray[np.float64]
    """[slots]: the expected reward."""


def law_of(model: FactoredMDP) -> tuple[Law, tuple[int, ...]]:
    """The tables of a model, ready to be sampled from; and which of the m + l uniforms of a step
    the columns of `Law.column` are."""
    s = model.structure
    cumulative = [_cumulative(table) for table in model.transitions]
    firsts: Any = slice(None)
    if s.alike is not None:
        places, firsts = first_rows(s)
        cumulative = [
            table[places[(start <= places) & (places < start + len(table))] - start]
            for table, start in zip(cumulative, s.row_starts[:-1], strict=True)
        ]
    column = np.full(s.m + s.l, -1, dtype=np.int64)
    uniforms: list[int] = []
    weights: list[int] = []
    steps = strides(s.state_sizes) if numbered(model) else (0,) * s.m
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
    law = Law(
        cumulative=np.concatenate([table.reshape(-1) for table in cumulative]),
        means=np.concatenate([*model.rewards, np.zeros(0)])[firsts],
        column=column,
        weights=np.array(weights, dtype=np.int64),
        kind=np.array([_CODES[noise.kind] for noise in model.noise], dtype=np.int64),
        scale=np.array([noise.scale for noise in model.noise], dtype=np.float64),
        lo=np.array([lo for lo, _ in s.reward_ranges], dtype=np.float64),
        hi=np.array([hi for _, hi in s.reward_ranges], dtype=np.float64),
    )
    return law, tuple(uniforms)


def numbered(model: FactoredMDP) -> bool:
    """Whether pairs of state and action have numbers."""
    return model.structure.n_states * model.structure.n_actions <= _MOST_PAIRS


def nothing_met(model: FactoredMDP, law: Law, memory: int = MEMORY) -> Met:
    """Slots for the pairs of a model: one for each, or as many as there is memory for."""
    s = model.structure
    cuts, factors = len(law.weights), s.m + s.l
    slots = 1
    if numbered(model):
        most = max(2, memory // (8 * (cuts + factors + 2)))
        pairs = s.n_states * s.n_actions
        slots = pairs if pairs <= most else 1 << most.bit_length() - 1
    return Met(
        pairs=np.full(slots if numbered(model) else 0, -1, dtype=np.int64),
        cuts=np.empty((slots, cuts)),
        found=np.empty((slots, factors), dtype=np.int64),
        expected=np.empty(slots),
    )


def _cumulative(table: NDArray[np.float64]) -> NDArray[np.float64]:
    sums = np.cumsum(table, axis=1)
    # Rounding may leave the last sum below a uniform; a value of probability 0 must not catch it.
    last = table.shape[1] - 1 - np.argmax(table[:, ::-1] > 0.0, axis=1)
    sums[np.arange(table.shape[1]) >= last[:, None]] = np.inf
    return sums


@njit(nogil=True)
def normal_quantile(u):  # type: ignore[no-untyped-def]
    """Phi^-1(u), Wichura 1988 (AS 241, PPND16): relative error below 1e-15."""
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
    """A reward with its noise."""
    if kind == BERNOULLI:
        return hi if u * (hi - lo) < mean - lo else lo
    if kind == GAUSSIAN:
        room = min(mean - lo, hi - mean)
        noise = scale * normal_quantile(u)
        # The outer bounds only keep rounding inside the range.
        return min(max(mean + min(max(noise, -room), room), lo), hi)
    return mean


@njit(nogil=True)
def look(entries, law, joint, met, slot):  # type: ignore[no-untyped-def]
    """Fill a slot with what joint = (state, action) comes to."""
    found, m = met.found[slot], law.column.shape[0] - law.kind.shape[0]
    locate(entries, joint, found)
    for i in range(m):
        first = entries.first_cell[found[i]]
        if entries.sizes[i] <= FEW_VALUES:
            for v in range(entries.sizes[i] - 1):
                met.cuts[slot, law.column[i] + v] = law.cumulative[first + v]
    n_transition_entries = entries.first_cell.shape[0] - 1
    expected = 0.0
    for k in range(law.kind.shape[0]):
        expected += law.means[found[m + k] - n_transition_entries]
    met.expected[slot] = expected


# Inlined, since to hand over the tuples in every step would take longer than the step.
@njit(nogil=True, forceinline=True)
def _move(entries, law, met, slot, uniforms, t, state):  # type: ignore[no-untyped-def]
    """state <- the next one, by the uniforms of row t; returns its index."""
    index = 0
    for i in range(state.shape[0]):
        value, size, column = 0, entries.sizes[i], law.column[i]
        if size <= FEW_VALUES:
            for c in range(column, column + size - 1):
                value += 1 if uniforms[t, c] >= met.cuts[slot, c] else 0
        else:
            first, above = entries.first_cell[met.found[slot, i]], size - 1
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
    """values[first:end] <- the assignment of these variables with this index."""
    for i in range(end - 1, first - 1, -1):
        values[i] = index % sizes[i]
        index //= sizes[i]


@njit(nogil=True)
def draw(entries, law, met, joint, uniforms, t, state, means):  # type: ignore[no-untyped-def]
    """One step from joint = (state, action), with the uniforms of row t and plain tuples as in
    `play`: fills state, the means of the rewards, and the first slot."""
    _draw(Entries(*entries), Law(*law), Met(*met), joint, uniforms, t, state, means)


@njit(nogil=True)
def _draw(entries, law, met, joint, uniforms, t, state, means):  # type: ignore[no-untyped-def]
    look(entries, law, joint, met, 0)
    _move(entries, law, met, 0, uniforms, t, state)
    m, n_transition_entries = state.shape[0], entries.first_cell.shape[0] - 1
    for k in range(means.shape[0]):
        means[k] = law.means[met.found[0, m + k] - n_transition_entries]


@njit(nogil=True)
def play(  # type: ignore[no-untyped-def]
    entries,
    joined,
    law,
    met,
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
    """Up to `steps` steps from `state` (moved in place), counted and written down where there is
    room for it.

    The action of step t is drawn[t], or where that is negative actions[index of the state]. Ends
    before a step whose action is not known (negative too), and after one in which the visits of an
    entry reach its limit. Returns how many steps were taken and why it ended. An empty array stands
    for no table, nothing drawn, no counting, no limits, no gaps, nothing written down. Where
    `joined` has variables, the counts are its: of joint states, joint actions and summed rewards.

    The tuples are plain ones and get their names here: handing over a named tuple takes 2
    microseconds, and an episode may be one step long.
    """
    entries, joined, law, met = Entries(*entries), Entries(*joined), Law(*law), Met(*met)
    counts, rows = Counts(*counts), Rows(*rows)
    m = state.shape[0]
    n_variables = entries.sizes.shape[0]
    n_factors = law.column.shape[0]
    n_cuts = law.weights.shape[0]
    n_transition_entries = entries.first_cell.shape[0] - 1
    joint = np.empty(n_variables, dtype=np.int64)
    found = np.empty(n_factors, dtype=np.int64)
    rewards = np.empty(n_factors - m)
    tabulated, drawing = actions.shape[0] > 0, drawn.shape[0] > 0
    counting, limited = counts.visits.shape[0] > 0, limits.shape[0] > 0
    with_gaps, recording = gaps.shape[0] > 0, rows.states.shape[0] > 0
    joining = joined.sizes.shape[0] > 0
    pair_found = np.empty(2, dtype=np.int64)
    both = np.empty(2, dtype=np.int64)
    after = np.empty(1, dtype=np.int64)
    summed = np.empty(1)

    few, noisy, n_states, n_actions = True, False, 1, 1
    for i in range(m):
        few = few and entries.sizes[i] <= FEW_VALUES
        n_states *= entries.sizes[i]
    for j in range(m, n_variables):
        n_actions *= entries.sizes[j]
    for k in range(n_factors - m):
        noisy = noisy or law.kind[k] != DETERMINISTIC
    slots = met.pairs.shape[0]
    keeping = slots > 0
    direct = keeping and slots == n_states * n_actions
    shift = np.uint64(64)
    while slots > 1:
        slots //= 2
        shift -= np.uint64(1)
    # Where nobody looks at the values of the variables, the index of the state is enough.
    by_value = counting or recording or not keeping or not few
    by_factor = counting or recording or noisy

    # No literals: with these the functions below would be compiled once more.
    zero: Any = np.int64(0)
    index = zero
    for i in range(m):
        index = index * entries.sizes[i] + state[i]
    reward, expected, gap = totals[REWARD], totals[EXPECTED], totals[GAP]
    taken, end = zero, ALL_TAKEN
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
        pair, slot = index * n_actions + action, np.int64(0)
        if direct:
            slot = pair
        elif keeping:
            slot = np.int64(np.uint64(pair) * np.uint64(0x9E3779B97F4A7C15) >> shift)
        if not keeping or met.pairs[slot] != pair:
            if not by_value:
                _assign(entries.sizes, zero, m, index, state)
            for i in range(m):
                joint[i] = state[i]
            _assign(entries.sizes, m, n_variables, action, joint)
            look(entries, law, joint, met, slot)
            if keeping:
                met.pairs[slot] = pair
        if recording:
            for i in range(m):
                rows.states[t, i] = state[i]
            _assign(entries.sizes, m, n_variables, action, joint)
            for j in range(m, n_variables):
                rows.actions[t, j - m] = joint[j]

        following = 0
        if by_value:
            following = _move(entries, law, met, slot, uniforms, t, state)
        else:
            for c in range(n_cuts):
                following += law.weights[c] if uniforms[t, c] >= met.cuts[slot, c] else 0
        total = met.expected[slot]
        expected += total
        if by_factor:
            total = 0.0
            for k in range(n_factors - m):
                mean = law.means[met.found[slot, m + k] - n_transition_entries]
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
                locate(joined, both, pair_found)
                count(joined, pair_found, after, summed, counts)
            else:
                for f in range(n_factors):
                    found[f] = met.found[slot, f]
                count(entries, found, state, rewards, counts)
            if limited and _ended(pair_found if joining else found, counts.visits, limits):
                index, end = following, LIMIT_REACHED
                break
        index = following
    if not by_value:
        _assign(entries.sizes, zero, m, index, state)
    totals[REWARD], totals[EXPECTED], totals[GAP] = reward, expected, gap
    totals[STEPS] += taken
    return taken, end


@njit(nogil=True)
def _ended(found, visits, limits):  # type: ignore[no-untyped-def]
    """Whether the visits of one of these entries have reached its limit."""
    reached = False
    for entry in found:
        reached = reached or visits[entry] >= limits[entry]
    return reached
