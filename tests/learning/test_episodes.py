"""Episode rules: lengths and limits by hand, and the number of plans that they allow."""

from __future__ import annotations

import math

import numpy as np
import pytest

import fmdp
from fmdp import Structure
from fmdp.errors import InvalidParameter
from fmdp.learning.episodes import (
    FOR_EVER,
    arithmetic_length,
    check_length,
    doubling_limits,
    episode_rule,
    geometric_length,
    growing_limits,
    known_limits,
    tsde_limits,
)
from fmdp.simulation import Reference, Simulation

STRUCTURE = Structure((2,), (2,), ((0, 1),), ((0,),))  # L = 4
COUNTS = np.array([0, 1, 2, 7], dtype=np.int64)


def test_lengths_and_limits_by_hand() -> None:
    assert [arithmetic_length(k, 3) for k in range(1, 8)] == [1, 1, 1, 2, 2, 2, 3]
    assert doubling_limits(COUNTS).tolist() == [1, 2, 4, 14]
    assert growing_limits(COUNTS).tolist() == [4, 4, 4, 14]
    assert growing_limits(np.array([3, 4, 5], dtype=np.int64)).tolist() == [6, 8, 10]
    assert tsde_limits(COUNTS).tolist() == [1, 3, 5, 15]
    assert known_limits(COUNTS, 2).tolist() == [2, 2, FOR_EVER, FOR_EVER]


def test_rules_by_hand() -> None:
    def started(name: str, k: int, previous: int, length: int | None = None) -> tuple:
        rule = episode_rule(name, length, STRUCTURE, enough=5)
        episode = rule.start(k, COUNTS, previous)
        return episode.length, episode.limits.tolist()

    assert started("growing", 1, 1) == (1, [4, 4, 4, 14])
    assert started("growing", 9, 2) == (9, [4, 4, 4, 14])
    assert started("arithmetic", 9, 2) == (3, [])
    assert started("doubling", 9, 2) == (FOR_EVER, [1, 2, 4, 14])
    assert started("tsde", 1, 1) == (2, [1, 3, 5, 15])
    assert started("tsde", 2, 2) == (3, [1, 3, 5, 15])
    assert started("fixed", 9, 2, length=7) == (7, [])
    assert started("known", 9, 2) == (FOR_EVER, [5, 5, 5, FOR_EVER])


@pytest.mark.parametrize(
    ("name", "length"),
    [("fixed", None), ("geometric", None), ("arithmetic", 3), ("growing", 3), ("tsde", 3)],
)
def test_a_length_is_for_fixed_and_geometric_alone(name: str, length: int | None) -> None:
    with pytest.raises(InvalidParameter, match="'length'"):
        check_length(name, length, "learner dorl")
    with pytest.raises(InvalidParameter, match="'length' parameter of learner dorl"):
        fmdp.DORL(episodes=name, length=length)


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


def test_growing_episodes_where_no_count_doubles() -> None:
    """A new row in every step: 1, 2, 3, ... steps, K (K + 1) / 2 in K episodes."""
    rule = episode_rule("growing", None, STRUCTURE)
    visits = np.zeros(1000, dtype=np.int64)
    lengths, previous, step = [], 1, 0
    for k in range(1, 31):
        episode = rule.start(k, visits, previous)
        previous = 0
        while previous < episode.length:
            visits[step] += 1
            step, previous = step + 1, previous + 1
            assert not (visits >= episode.limits).any()
        lengths.append(previous)
    assert lengths == list(range(1, 31))


def test_growing_episodes_of_one_row_by_hand() -> None:
    """k steps each: 1, 3, 6, 10, ...; k steps are never more than twice the count before them."""
    rule = episode_rule("growing", None, STRUCTURE)
    visits = np.zeros(1, dtype=np.int64)
    at_end = []
    for k in range(1, 8):
        episode = rule.start(k, visits, 1)
        visits += min(episode.length, int(episode.limits[0] - visits[0]))
        at_end.append(int(visits[0]))
    assert at_end == [1, 3, 6, 10, 15, 21, 28]


@pytest.mark.parametrize("name", ["circle:4", "three-leg:5", "random:3,values=2,actions=3,seed=5"])
def test_growing_episodes_are_few(name: str) -> None:
    """Those that end by their length are at most sqrt(2 T) + 1: the j-th of them is the k-th of
    all, k >= j, and took k steps. The others are at most one for every doubling of a count, the
    first of which is 4."""
    model = fmdp.problem(name)
    agent = fmdp.DORL().start(model)
    simulation = Simulation(model, agent, reference=Reference(0.0, "exact", None, 0.0))
    for steps in (1, 9, 90, 900, 2000):
        simulation.run(steps)
        visits = agent.statistics.visits
        doublings = np.floor(np.log2(visits[visits >= 4] / 4)).astype(int) + 1
        assert agent.episodes <= math.sqrt(2 * agent.steps) + 1 + doublings.sum()
    assert agent.episodes == agent.planner_calls
    assert agent.episodes < math.sqrt(3 * model.structure.max_scope_size * agent.steps)


def test_geometric_lengths_by_hand() -> None:
    # 1 - u against 1/2, 1/4, 1/8, ...
    lengths = [geometric_length(0.5, u) for u in (0.0, 0.3, 0.5, 0.6, 0.75, 0.8)]
    assert lengths == [1, 1, 1, 2, 2, 3]
    assert geometric_length(1.0, 0.9) == 1
    assert geometric_length(1e-300, 0.9) == FOR_EVER


def geometric_lengths(learner: fmdp.PlanningLearner, steps: int) -> list[int]:
    """Those of the episodes of a run, as they were begun."""
    model = fmdp.problem("random:1,values=2,actions=2")
    agent = learner.start(model, 5)
    simulation = Simulation(model, agent, reference=Reference(0.0, "exact", None, 0.0))
    lengths = []
    for _ in range(steps):
        before = agent.episodes
        simulation.run(1)
        if agent.episodes > before:
            assert agent.decision is not None
            lengths.append(agent.decision.steps)
    return lengths


def test_geometric_episodes_end_with_the_same_chance_after_every_step() -> None:
    """About n (1 - p)^j of n draws with chance p exceed j; draws with another chance do not."""
    for learner, chance in (
        (fmdp.PSRL(episodes="geometric", length=4), 0.25),
        (fmdp.CPSRL(discount=0.75), 0.25),
        (fmdp.CPSRL(discount=0.99, length=4), 0.25),
        (fmdp.DORL(episodes="geometric", length=4), 0.25),
    ):
        lengths = np.array(geometric_lengths(learner, 3000))
        n = len(lengths)
        assert n > 500

        def apart(j: int, p: float, n: int = n, lengths: np.ndarray = lengths) -> float:
            """In standard deviations."""
            share = (1 - p) ** j
            return abs((lengths > j).sum() - n * share) / math.sqrt(n * share * (1 - share))

        assert max(apart(j, chance) for j in (1, 2, 4, 8)) < 4
        assert max(apart(j, 0.6 * chance) for j in (1, 2, 4, 8)) > 4


def test_one_step_episodes_are_the_fixed_ones_of_length_one() -> None:
    model = fmdp.problem("circle:3")
    always = fmdp.simulate(model, fmdp.DORL(episodes="geometric", length=1), 60, seed=1)
    fixed = fmdp.simulate(model, fmdp.DORL(episodes="fixed", length=1), 60, seed=1)
    assert always.episodes == fixed.episodes == 60
    assert always.gap_regret == fixed.gap_regret


def test_what_draws_needs_a_generator() -> None:
    model = fmdp.problem("circle:3")
    agent = fmdp.DORL(episodes="geometric", length=5).start(model)
    with pytest.raises(InvalidParameter, match="draws at random and has no generator"):
        agent.act(model.initial_state)
