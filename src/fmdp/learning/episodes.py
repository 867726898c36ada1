"""Episode rules: the length of episode k, and the counts that end it early.

* growing (the default): at most k steps, or until a count reaches N(x) >= max{4, 2 N_k(x)}. T steps
  take about sqrt(2 T) episodes, whatever L is.
* arithmetic (Xu & Tewari 2020): T_k = ceil(k / L). T steps take K <= sqrt(3 L T) episodes.
* doubling (after Jaksch, Auer & Ortner 2010): until the count of an entry has doubled since the
  start of the episode, N(x) >= max{1, 2 N_k(x)}, for any entry of any factor.
* before-doubling (Jaksch, Auer & Ortner 2010, as published): the same counts, but the episode ends
  when an entry is about to be visited whose count has doubled, not when the count doubles. In
  between other entries may be visited any number of times. Steps are taken one by one.
* tsde (Ouyang et al. 2017): until N(x) > 2 N_k(x) for some entry, at most T_{k-1} + 1 steps, where
  T_0 = 1.
* paced (of the default learner): until a count has grown by N_k(x) + 1, or by max{16, N_k(x) / 5}
  if that is less, and by a four-hundredth of the largest count; at most T_{k-1} + 1 steps. A count
  that has to double lets a rarely tried action continue long after it has proved bad. In a
  model with thousands of rows nearly every step is the first visit of one; t steps take
  O(400 log t + sqrt t) plans whatever L is.
* fixed: T_k = a given length, or the horizon H that is planned for (Osband & Van Roy 2014): an
  episode plays the H undiscounted backups to their end. Nothing is reset: the next episode begins
  in the state where this one ended.
* geometric (Xu, Dong & Van Roy 2022): the episode ends after every step with equal probability,
  1 / length by default; drawn at the start, P(T_k > n) = (1 - chance)^n.
* known (f-Rmax): until an entry has been visited `enough` times.

Except for before-doubling an episode ends after the step in which its length or a limit is reached.
`growing` is the default because its regret is like that of arithmetic with a quarter of the plans,
and a tenth if L is large (docs/learning.md). The guarantees of DORL hold for it (docs/theory.md).
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fmdp.errors import InvalidParameter
from fmdp.model import Structure
from fmdp.model.entries import NO_LIMITS, Index

FOR_EVER = sys.maxsize  # length of an episode without a limit

OWN_RULES = ("growing", "paced")
"""Rules of this library, which may wait for an expensive plan; published rules never do."""
RULES = (
    "growing",
    "arithmetic",
    "doubling",
    "before-doubling",
    "tsde",
    "paced",
    "fixed",
    "geometric",
)
ONE_STEP_LONGER = ("tsde", "paced")
"""Rules whose episodes have at most one step more than the previous one."""
WITH_LENGTH = ("fixed", "geometric")
BEFORE_DOUBLING = "before-doubling"
DEFAULT_RULE = "growing"
RULES_MEANING = (
    "when to plan again: after k steps or when a count of at least 4 has doubled, after ceil(k/L) "
    "steps (the paper's), when a count doubles, before a doubled count grows again, when a count "
    "doubles or one step later than last time, the same but when a larger count grows by a fifth "
    "and not after a few visits late in a run, at fixed times, at random times"
)
PACE = 400
"""Paced episodes end for at least one visit in this many."""
PACED_VISITS = 16
"""Visits by which a small count may at most grow in a paced episode."""
PACED_SHARE = 5
"""Paced episodes end when a large count has grown by one part in this many."""
FEW = 4
"""Visits that do not end a growing episode by themselves: at first, in a large model, every step
is the first visit of some entry."""


@dataclass(frozen=True, eq=False)
class Episode:
    """An episode of at most `length` steps, which ends when visits[e] reaches limits[e]."""

    length: int
    limits: Index
    """[entries], or empty for no limit."""


@dataclass(frozen=True)
class EpisodeRule:
    """The length and the limits of new episodes; unlimited by default."""

    length: Callable[[int, int], int] = lambda k, previous: FOR_EVER
    """(k, length of the previous episode) -> largest number of steps."""
    limits: Callable[[Index], Index] = lambda visits: NO_LIMITS
    """Visits at the start -> counts at which the episode ends: [entries], or empty for none."""
    chance: float | None = None
    """Probability that a geometric episode ends after each step; its length is drawn."""

    @property
    def draws(self) -> bool:
        """Whether it needs a generator."""
        return self.chance is not None

    def start(
        self,
        k: int,
        visits: Index,
        previous_length: int,
        generator: np.random.Generator | None = None,
    ) -> Episode:
        """Return episode k = 1, 2, ...; `previous_length` is 1 for k = 1."""
        if self.chance is None:
            steps = self.length(k, previous_length)
        else:
            assert generator is not None
            steps = geometric_length(self.chance, generator.random())
        return Episode(steps, self.limits(visits))


def arithmetic_length(k: int, largest_scope: int) -> int:
    """Return T_k = ceil(k / L)."""
    return -(-k // largest_scope)


def doubling_limits(visits: Index) -> Index:
    """Return max{1, 2 N_k(x)}."""
    limits: Index = np.maximum(1, 2 * visits)
    return limits


def growing_limits(visits: Index) -> Index:
    """Return max{4, 2 N_k(x)}."""
    limits: Index = np.maximum(FEW, 2 * visits)
    return limits


def tsde_limits(visits: Index) -> Index:
    """Return the smallest count above 2 N_k(x)."""
    limits: Index = 2 * visits + 1
    return limits


def paced_limits(visits: Index) -> Index:
    """Return counts above N_k(x) by N_k(x) + 1, or by max{16, N_k(x) / 5} if that is less, and by
    at least a four-hundredth of the largest count."""
    more = np.minimum(visits + 1, np.maximum(PACED_VISITS, visits // PACED_SHARE + 1))
    limits: Index = visits + np.maximum(more, visits.max(initial=0) // PACE)
    return limits


def known_limits(visits: Index, enough: int) -> Index:
    """Return `enough` for entries with fewer visits, and no limit for the others."""
    limits: Index = np.where(visits < enough, enough, FOR_EVER)
    return limits


def geometric_length(chance: float, uniform: float) -> int:
    """Return the smallest n >= 1 with (1 - chance)^n <= 1 - uniform, for uniform in [0, 1)."""
    if chance == 1.0:
        return 1
    steps = math.log1p(-uniform) / math.log1p(-chance)
    return max(1, math.ceil(steps)) if steps < FOR_EVER else FOR_EVER


def ends_before_limits(rule: str) -> bool:
    """Return whether the limits of this rule are compared before a step and not after it."""
    return rule == BEFORE_DOUBLING


def check_length(rule: str, length: int | None, owner: str) -> None:
    """Raise InvalidParameter unless there is a length exactly for `fixed` and `geometric`."""
    if (rule in WITH_LENGTH) != (length is not None):
        asked = "needs" if rule in WITH_LENGTH else "has no use for"
        raise InvalidParameter(
            f"the 'length' parameter of {owner} is for episodes=fixed and episodes=geometric "
            f"alone; episodes={rule} {asked} one, got {'none' if length is None else length}"
        )


def horizon_length(horizon: int, length: int | None, owner: str) -> int:
    """Return the length of episodes over a horizon; raise InvalidParameter for another length."""
    if length is not None and length != horizon:
        raise InvalidParameter(
            f"the 'length' parameter of {owner} must be its horizon, or not be given; got "
            f"length={length} with horizon={horizon}"
        )
    return horizon


def episode_rule(
    name: str, length: int | None, structure: Structure, enough: int = 0
) -> EpisodeRule:
    """Return the rule of this name."""
    if length is not None and name == "geometric":
        return EpisodeRule(chance=1.0 / min(length, FOR_EVER))
    if length is not None:
        return EpisodeRule(lambda k, previous: length)
    if name == "arithmetic":
        return EpisodeRule(lambda k, previous: arithmetic_length(k, structure.max_scope_size))
    if name == "known":
        return EpisodeRule(limits=lambda visits: known_limits(visits, enough))
    return _RULES[name]


_RULES: dict[str, EpisodeRule] = {
    "growing": EpisodeRule(lambda k, previous: k, growing_limits),
    "doubling": EpisodeRule(limits=doubling_limits),
    BEFORE_DOUBLING: EpisodeRule(limits=doubling_limits),
    "tsde": EpisodeRule(lambda k, previous: previous + 1, tsde_limits),
    "paced": EpisodeRule(lambda k, previous: previous + 1, paced_limits),
}
