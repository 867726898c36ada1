"""The one tie rule: actions whose value is within a slack (rounding.py) of the best are tied.

A tie is broken by a hash of (tie seed, state, action), so that a policy stays a deterministic
function of the state and no action is favoured for its index alone.  `first` and `last` take the
lowest and the highest tied index.  On a seven-machine circle two thirds of the states and more are
tied and the rule moves the gain by percents: it is a setting, never an accident of rounding.

The mixer is splitmix64 (Steele, Lea & Flood 2014); it is the same in Python and in compiled code.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np

from fmdp.compiled import njit
from fmdp.errors import InvalidParameter, did_you_mean

TieRule = Literal["random", "first", "last"]
RULES: tuple[str, ...] = get_args(TieRule)
TIE_TOLERANCE = 1e-9
"""In units of the reward (rounding.py adds what rounding can do)."""
_MASK = (1 << 64) - 1


def rule_code(rule: str) -> int:
    """0 random, 1 first, 2 last: what the compiled code understands."""
    if rule not in RULES:
        raise InvalidParameter(
            f'ties must be one of {", ".join(RULES)}; got "{rule}"{did_you_mean(rule, RULES)}'
        )
    return RULES.index(rule)


@njit(inline="always")
def mix(x: np.uint64) -> np.uint64:
    """splitmix64's finaliser on an unsigned 64-bit word."""
    x = np.uint64(x) + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@njit()
def tie_hash(seed: int, state_key: int, action: int) -> np.uint64:
    """The rank of an action among those tied in a state: the lowest wins."""
    rank: np.uint64 = mix(mix(mix(np.uint64(seed)) ^ np.uint64(state_key)) ^ np.uint64(action))
    return rank


def _mix_python(x: int) -> int:
    x = (x + 0x9E3779B97F4A7C15) & _MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return x ^ (x >> 31)


def state_key(state: Sequence[int], sizes: Sequence[int]) -> int:
    """A 64-bit key of a state: its C-order index while that fits, else a hash of its values."""
    index = 0
    for value, size in zip(state, sizes, strict=True):
        index = index * size + value
    total = 1
    for size in sizes:
        total *= size
    if total <= 1 << 62:
        return index
    key = 0
    for value in state:
        key = _mix_python(key ^ value)
    return key >> 1


def choose_tied(tied: Sequence[int], rule: str, seed: int, key: int) -> int:
    """The action to take among `tied` (ascending indices) in the state with this key."""
    code = rule_code(rule)
    if code == 1:
        return min(tied)
    if code == 2:
        return max(tied)

    def rank(action: int) -> int:
        return _mix_python(_mix_python(_mix_python(seed & _MASK) ^ key) ^ action)

    return min(tied, key=rank)
