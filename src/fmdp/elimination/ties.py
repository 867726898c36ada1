"""Rules that break ties: actions whose value is within a slack (rounding.py) of the best are tied.

* `random` takes the tied action with the lowest hash of (tie seed, state, action), so that a policy
  stays a deterministic function of the state and no action is favoured for its index alone.
* `first` and `last` take the lowest and the highest tied index.
* `least-tried` takes the tied action that a learner has tried least often in the state, and of
  several such actions the one with the lowest hash.  Only learners count tries, so this rule is a
  setting of learners and not of planners.

Ties matter: in a circle of seven machines more than two thirds of the states are tied, and the rule
changes the gain by percents.  While confidence sets are wide all actions of a state may be tied, so
that the rule alone decides how an optimistic learner explores.

The hash is splitmix64 (Steele, Lea & Flood 2014), the same in Python, NumPy and compiled code.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from fmdp._base.compiled import njit
from fmdp.errors import InvalidParameter, did_you_mean

TieRule = Literal["random", "first", "last"]
RULES: tuple[str, ...] = get_args(TieRule)
LEAST_TRIED = "least-tried"
"""The rule that needs the counts of a learner."""
TIE_TOLERANCE = 1e-9
"""Slack in units of the reward; rounding.py adds the rounding errors."""
_MASK = (1 << 64) - 1
_RANDOM = 0
"""The code of the rule `random`."""


@dataclass(frozen=True, eq=False)
class Ties:
    """The tie-breaking of one plan.

    Parameters
    ----------
    rule
        One of `RULES`; with `tries` it breaks the ties between the least tried actions.
    seed
        Seed of the hash of the rule `random`.
    tries
        How often every joint action was tried in every state, int64 [S, A] in C order, for
        `least-tried`; None for the other rules.
    """

    rule: str = "random"
    seed: int = 0
    tries: NDArray[np.int64] | None = None

    @property
    def name(self) -> str:
        """The name of the rule as plans report it."""
        return self.rule if self.tries is None else LEAST_TRIED

    def with_targets(self, targets: int) -> Ties:
        """Return the tie breaking among (action, target), the target fastest.

        Parameters
        ----------
        targets
            How many targets every action has.
        """
        if self.tries is None or targets == 1:
            return self
        return replace(self, tries=np.repeat(self.tries, targets, axis=1))

    def choose(self, values: NDArray[np.float64], slack: float) -> NDArray[np.int64]:
        """Return one of the best actions of every state.

        Parameters
        ----------
        values
            The value of every action in every state, [S, A]; minus infinity where it is forbidden.
        slack
            How far below the best an action may be and count as tied with it.
        """
        code = rule_code(self.rule)
        if self.tries is None:
            return _chosen(values, slack, code, self.seed)
        actions = np.empty(len(values), dtype=np.int64)
        _choose_least_tried(values, slack, code, self.seed, self.tries, actions)
        return actions


def plan_seed(seed: int, plan: int) -> int:
    """Return the tie seed of the plan with this number in a run with this tie seed: 32 bits."""
    return _mix_python(_mix_python(seed & _MASK) ^ plan) >> 32


def rule_code(rule: str) -> int:
    """Return the code of a rule for compiled code: 0 random, 1 first, 2 last."""
    if rule not in RULES:
        raise InvalidParameter(
            f'ties must be one of {", ".join(RULES)}; got "{rule}"{did_you_mean(rule, RULES)}'
        )
    return RULES.index(rule)


@njit(inline="always")
def mix(x: np.uint64) -> np.uint64:
    """Return splitmix64's finaliser of an unsigned 64-bit word."""
    x = np.uint64(x) + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@njit()
def tie_hash(seed: int, state_key: int, action: int) -> np.uint64:
    """Return the rank of an action among those tied in a state: the lowest wins."""
    rank: np.uint64 = mix(mix(mix(np.uint64(seed)) ^ np.uint64(state_key)) ^ np.uint64(action))
    return rank


def _chosen(values: NDArray[np.float64], slack: float, rule: int, seed: int) -> NDArray[np.int64]:
    """Return one of the best actions of every state, without compiled code."""
    tied = values >= values.max(axis=1, keepdims=True) - slack
    lowest: NDArray[np.int64] = tied.argmax(axis=1)
    if rule == 1:
        return lowest
    if rule == 2:
        highest: NDArray[np.int64] = values.shape[1] - 1 - tied[:, ::-1].argmax(axis=1)
        return highest
    n_states, n_actions = values.shape
    ranks = tie_ranks(np.arange(n_states)[:, None], np.arange(n_actions), seed)
    ranks[~tied] = _MASK
    chosen: NDArray[np.int64] = ranks.argmin(axis=1)
    # A tied action may have the largest rank of all, too.
    return np.where(tied[np.arange(n_states), chosen], chosen, lowest)


def tie_ranks(
    states: NDArray[np.integer], actions: NDArray[np.integer], seed: int
) -> NDArray[np.uint64]:
    """Return `tie_hash` of states and actions, which broadcast: the lowest rank wins."""
    keys = states.astype(np.uint64) ^ np.uint64(_mix_python(seed & _MASK))
    return _mix_array(_mix_array(keys) ^ actions.astype(np.uint64))


@njit(nogil=True)
def _choose_least_tried(
    values: NDArray[np.float64],
    slack: float,
    rule: int,
    seed: int,
    tries: NDArray[np.int64],
    actions: NDArray[np.int64],
) -> None:
    for s in range(values.shape[0]):
        least, chosen, lowest = values[s].max() - slack, -1, np.uint64(0)
        for a in range(values.shape[1]):
            if values[s, a] < least:
                continue
            if chosen >= 0 and tries[s, a] > tries[s, chosen]:
                continue
            fewer = chosen < 0 or tries[s, a] < tries[s, chosen]
            if rule == _RANDOM:
                rank = tie_hash(seed, s, a)
                if fewer or rank < lowest:
                    chosen, lowest = a, rank
            elif fewer or rule == 2:
                chosen = a
        actions[s] = chosen


def _mix_python(x: int) -> int:
    x = (x + 0x9E3779B97F4A7C15) & _MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return x ^ (x >> 31)


def _mix_array(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def state_key(state: Sequence[int], sizes: Sequence[int]) -> int:
    """Return a 64-bit key of a state: its index in C order if that fits, else a hash."""
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
    """Return the action to take among `tied` (ascending indices) in the state with this key."""
    code = rule_code(rule)
    if code == 1:
        return min(tied)
    if code == 2:
        return max(tied)

    def rank(action: int) -> int:
        return _mix_python(_mix_python(_mix_python(seed & _MASK) ^ key) ^ action)

    return min(tied, key=rank)
