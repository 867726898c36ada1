"""Compiled steps of many copies of a model, each with its own random stream.

Copy r has a PCG64 stream (simulation/pcg64.py) that gives the same doubles as NumPy's Generator. A
step uses m + l of them, as everywhere in fmdp (simulation/kernels.py). The stream jumps over the
draws of trailing rewards without noise.

Copies are independent: the results do not depend on the number of copies. A step takes about 0.06
microseconds for seven machines. Indices are unsigned, because Numba tests signed ones for negative
values, and a value is a sum of comparisons, because branches on random numbers are mispredicted.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fmdp._base.compiled import njit
from fmdp.model import FactoredMDP
from fmdp.model.expansion import expand
from fmdp.model.spaces import strides
from fmdp.simulation.kernels import BERNOULLI, DETERMINISTIC, GAUSSIAN, normal_quantile
from fmdp.simulation.pcg64 import ALL_BITS, MULTIPLIER, double, halves, times_plus

Words = NDArray[np.uint64]

_A_HIGH, _A_LOW = (np.uint64(word) for word in halves(MULTIPLIER))
_0, _1 = np.uint64(0), np.uint64(1)
_FEW = np.uint64(12)
"""Rows with at most this many values are searched linearly, longer ones by bisection."""
_KINDS = {"deterministic": DETERMINISTIC, "bernoulli": BERNOULLI, "gaussian": GAUSSIAN}

ALL_MOVED = -1
"""Result of `advance` on success; otherwise it is the first copy with an invalid action, and no
copy has been stepped."""


class Layout(NamedTuple):
    """A model as flat arrays: all transition tables and all reward tables, concatenated."""

    sizes: Words
    """Sizes of all variables, states then actions."""
    scope_start: Words
    """Factor f (transitions, then rewards) has the scope entries scope_start[f : f + 2]."""
    scope_variables: Words
    scope_steps: Words
    """Stride of each scope entry in the table."""
    first: Words
    """[factors]: start of each table."""
    cumulative: NDArray[np.float64]
    """[cells]: cumulative sums of each row; infinite from its last possible value on."""
    means: NDArray[np.float64]
    kinds: NDArray[np.int64]
    """[l], like the next three: the noise of each reward factor."""
    scales: NDArray[np.float64]
    lowest: NDArray[np.float64]
    highest: NDArray[np.float64]
    drawn: np.uint64
    """Number of leading rewards for which numbers are drawn; the rest has no noise."""
    power: Words
    """High and low word of A^t, for the t draws that are skipped."""
    power_sum: Words
    """High and low word of 1 + A + ... + A^(t-1)."""


def layout_of(model: FactoredMDP) -> Layout:
    """Return the layout of a model."""
    model = expand(model)
    s = model.structure
    scopes = [*s.transition_scopes, *s.reward_scopes]
    widths = [*s.state_sizes, *(1 for _ in s.reward_scopes)]
    steps = [
        step * width
        for scope, width in zip(scopes, widths, strict=True)
        for step in strides(s.scope_sizes(scope))
    ]
    kinds = np.array([_KINDS[noise.kind] for noise in model.noise], dtype=np.int64)
    noisy = np.flatnonzero(kinds != DETERMINISTIC)
    drawn = int(noisy[-1]) + 1 if len(noisy) else 0
    power, power_sum = 1, 0
    for _ in range(s.l - drawn):
        power = power * MULTIPLIER & ALL_BITS
        power_sum = (power_sum * MULTIPLIER + 1) & ALL_BITS
    return Layout(
        _words(s.sizes),
        _words(np.cumsum([0, *map(len, scopes)])),
        _words([v for scope in scopes for v in scope]),
        _words(steps),
        _words([*s.transition_starts[:-1], *s.reward_starts[:-1]]),
        np.concatenate([_cumulative(table).reshape(-1) for table in model.transitions]),
        np.concatenate([*model.rewards, np.zeros(0)]),
        kinds,
        np.array([noise.scale for noise in model.noise], dtype=np.float64),
        np.array([lo for lo, _ in s.reward_ranges], dtype=np.float64),
        np.array([hi for _, hi in s.reward_ranges], dtype=np.float64),
        np.uint64(drawn),
        _words(halves(power)),
        _words(halves(power_sum)),
    )


def _cumulative(table: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return cumulative sums, infinite from the last possible value on, as in the simulator.

    Otherwise a last sum that is rounded down could select a value of probability 0.
    """
    sums = np.cumsum(table, axis=1)
    last = table.shape[1] - 1 - np.argmax(table[:, ::-1] > 0.0, axis=1)
    sums[np.arange(table.shape[1]) >= last[:, None]] = np.inf
    return sums


def _words(numbers: Any) -> Words:
    return np.array(numbers, dtype=np.uint64)


class Streams(NamedTuple):
    """The PCG64 states of all copies: [copies] each."""

    high: Words
    low: Words
    increment_high: Words
    increment_low: Words


def no_streams(copies: int) -> Streams:
    """Return streams that are not seeded yet."""
    return Streams(*(np.zeros(copies, dtype=np.uint64) for _ in Streams._fields))


def put_stream(streams: Streams, copy: int, generator: np.random.Generator) -> None:
    """Set the stream of a copy to the present state of a PCG64 generator."""
    inner = generator.bit_generator.state["state"]
    values = (*halves(inner["state"]), *halves(inner["inc"]))
    for words, value in zip(streams, values, strict=True):
        words[copy] = value


def stream_of(streams: Streams, copy: int) -> np.random.Generator:
    """Return a generator in the state of a copy's stream."""
    high, low, increment_high, increment_low = (int(words[copy]) for words in streams)
    bits = np.random.PCG64(0)
    bits.state = {
        "bit_generator": "PCG64",
        "state": {"state": high << 64 | low, "inc": increment_high << 64 | increment_low},
        "has_uint32": 0,
        "uinteger": 0,
    }
    return np.random.Generator(bits)


@njit(nogil=True)
def _place(layout, joint, factor):
    """Return the index of x[Z_f] in the table of a factor."""
    place = layout.first[factor]
    for p in range(layout.scope_start[factor], layout.scope_start[factor + _1]):
        place += layout.scope_steps[p] * joint[layout.scope_variables[p]]
    return place


@njit(nogil=True)
def _value(cumulative, place, size, u):
    """Return the smallest v with u < cumulative[place + v]."""
    if size <= _FEW:
        value = 0
        for v in range(size - _1):
            value += u >= cumulative[place + v]
        return value
    low, high = _0, size - _1
    while low < high:
        middle = (low + high) >> _1
        if u < cumulative[place + middle]:
            high = middle
        else:
            low = middle + _1
    return np.int64(low)


@njit(nogil=True)
def settle(layout, uniforms, state, action, next_state, rewards):
    """Step one copy with m + l uniforms and return the sum of the rewards.

    `layout` is a plain tuple; the action must be valid.
    """
    return _settle(Layout(*layout), uniforms, state, action, next_state, rewards)


@njit(nogil=True)
def _settle(layout, uniforms, state, action, next_state, rewards):
    m = state.shape[0]
    joint = np.concatenate((state, action)).astype(np.uint64)
    for i in range(m):
        place = _place(layout, joint, np.uint64(i))
        next_state[i] = _value(layout.cumulative, place, layout.sizes[i], uniforms[i])
    total = 0.0
    for f in range(rewards.shape[0]):
        reward = layout.means[_place(layout, joint, np.uint64(m + f))]
        if layout.kinds[f] != DETERMINISTIC:
            reward = _noisy(layout, f, reward, uniforms[m + f])
        rewards[f] = reward
        total += reward
    return total


@njit(nogil=True)
def advance(layout, streams, states, actions, observed, rewards, totals):
    """Step every copy: update states [n, m] in place by actions [n, k].

    Writes observed [n, m], rewards [n, l] and their sums, totals [n]. Layout and streams are plain
    tuples, which Numba unboxes faster than named ones.
    """
    return _advance(Layout(*layout), Streams(*streams), states, actions, observed, rewards, totals)


@njit(nogil=True)
def _advance(layout, streams, states, actions, observed, rewards, totals):
    copies, m, k, n_rewards = states.shape[0], states.shape[1], actions.shape[1], rewards.shape[1]
    for r in range(copies):
        for j in range(k):
            if actions[r, j] < 0 or np.uint64(actions[r, j]) >= layout.sizes[m + j]:
                return r
    joint = np.empty(m + k, dtype=np.uint64)
    for r in range(copies):
        high, low = streams.high[r], streams.low[r]
        c_high, c_low = streams.increment_high[r], streams.increment_low[r]
        for i in range(m):
            joint[i] = np.uint64(states[r, i])
        for j in range(k):
            joint[m + j] = np.uint64(actions[r, j])
        for i in range(m):
            place = _place(layout, joint, np.uint64(i))
            high, low = times_plus(high, low, _A_HIGH, _A_LOW, c_high, c_low)
            value = _value(layout.cumulative, place, layout.sizes[i], double(high, low))
            states[r, i] = value
            observed[r, i] = value
        total = 0.0
        for f in range(n_rewards):
            reward = layout.means[_place(layout, joint, np.uint64(m + f))]
            if np.uint64(f) < layout.drawn:
                high, low = times_plus(high, low, _A_HIGH, _A_LOW, c_high, c_low)
                if layout.kinds[f] != DETERMINISTIC:
                    reward = _noisy(layout, f, reward, double(high, low))
            rewards[r, f] = reward
            total += reward
        if layout.drawn < np.uint64(n_rewards):
            power, total_power = layout.power, layout.power_sum
            c_high, c_low = times_plus(c_high, c_low, total_power[0], total_power[1], _0, _0)
            high, low = times_plus(high, low, power[0], power[1], c_high, c_low)
        streams.high[r], streams.low[r] = high, low
        totals[r] = total
    return ALL_MOVED


@njit(nogil=True)
def _noisy(layout, f, mean, u):
    """Return an observed reward, as in `fmdp.simulation.kernels.draw`."""
    lo, hi = layout.lowest[f], layout.highest[f]
    if layout.kinds[f] == BERNOULLI:
        return hi if u * (hi - lo) < mean - lo else lo
    room = min(mean - lo, hi - mean)
    noise = layout.scales[f] * normal_quantile(u)
    return min(max(mean + min(max(noise, -room), room), lo), hi)
