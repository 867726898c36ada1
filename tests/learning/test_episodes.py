"""Episode rules: lengths and limits by hand, and the number of plans that they allow."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fmdp import Structure
from fmdp.errors import InvalidParameter
from fmdp.learning.episodes import (
    FOR_EVER,
    arithmetic_length,
    doubling_limits,
    episode_rule,
    known_limits,
    tsde_limits,
)

STRUCTURE = Structure((2,), (2,), ((0, 1),), ((0,),))  # L = 4
COUNTS = np.array([0, 1, 2, 7], dtype=np.int64)


def test_lengths_and_limits_by_hand() -> None:
    assert [arithmetic_length(k, 3) for k in range(1, 8)] == [1, 1, 1, 2, 2, 2, 3]
    assert doubling_limits(COUNTS).tolist() == [1, 2, 4, 14]
    assert tsde_limits(COUNTS).tolist() == [1, 3, 5, 15]
    assert known_limits(COUNTS, 2).tolist() == [2, 2, FOR_EVER, FOR_EVER]


def test_rules_by_hand() -> None:
    def started(name: str, k: int, previous: int, length: int | None = None) -> tuple:
        rule = episode_rule(name, length, STRUCTURE, "a learner", enough=5)
        episode = rule.start(k, COUNTS, previous)
        return episode.length, episode.limits.tolist()

    assert started("arithmetic", 9, 2) == (3, [])
    assert started("doubling", 9, 2) == (FOR_EVER, [1, 2, 4, 14])
    assert started("tsde", 1, 1) == (2, [1, 3, 5, 15])
    assert started("tsde", 2, 2) == (3, [1, 3, 5, 15])
    assert started("fixed", 9, 2, length=7) == (7, [])
    assert started("known", 9, 2) == (FOR_EVER, [5, 5, 5, FOR_EVER])


@pytest.mark.parametrize(("name", "length"), [("fixed", None), ("arithmetic", 3), ("tsde", 3)])
def test_a_length_is_for_fixed_alone(name: str, length: int | None) -> None:
    with pytest.raises(InvalidParameter, match="'length'"):
        episode_rule(name, length, STRUCTURE, "learner dorl")


@pytest.mark.parametrize("largest_scope", [*range(1, 40), 100, 997])
def test_arithmetic_episodes_are_few(largest_scope: int) -> None:
    """K <= sqrt(3 L T), T_k <= 1 + sqrt(3 T / L) (Xu & Tewari 2020, A.3), for every T to 2,000."""
    episodes, taken = 0, 0
    for steps in range(1, 2001):
        if taken < steps:
            episodes += 1
            taken += arithmetic_length(episodes, largest_scope)
        assert episodes**2 <= 3 * largest_scope * steps
        length = arithmetic_length(episodes, largest_scope)
        assert length <= 1 + math.sqrt(3 * steps / largest_scope)
