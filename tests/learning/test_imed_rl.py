"""IMED-RL: its bias, divergence and index by hand and by brute force, and its memory."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fmdp
from fmdp.errors import FmdpError
from fmdp.learning.imed_rl import REWARDS, divergence_to, indices, skeleton_bias


def test_the_divergence_of_a_coin_by_hand() -> None:
    """A coin of mean .25 on {0, 1} is at divergence kl(.25, .5) from those of mean .5."""
    laws, worth = np.array([0.75, 0.25]), np.array([0.0, 1.0])
    expected = 0.75 * math.log(0.75 / 0.5) + 0.25 * math.log(0.25 / 0.5)
    assert divergence_to(laws, worth, 0.5, 1.0, False) == pytest.approx(expected)
    # If up to 2 is possible a law needs less: the mass that is moved goes to 2.
    assert divergence_to(laws, worth, 0.5, 2.0, False) < expected


@pytest.mark.parametrize("seed", range(5))
def test_the_divergence_is_the_smallest_of_a_grid(seed: int) -> None:
    """Over laws on three values and the top, KL(p, q) with a mean of at least mu."""
    rng = np.random.default_rng(seed)
    worth = np.sort(rng.random(2))
    law = rng.dirichlet(np.ones(2))
    top, mean = 1.0, float(law @ worth) + 0.15
    if mean >= top:
        mean = 0.5 * (float(law @ worth) + top)
    parts = np.linspace(0, 1, 801)[1:]
    first, second = np.meshgrid(parts, parts, indexing="ij")
    rest = 1.0 - first - second
    fits = (rest >= 0) & (first * worth[0] + second * worth[1] + rest * top >= mean)
    apart = law[0] * np.log(law[0] / first) + law[1] * np.log(law[1] / second)
    least = apart[fits].min()
    found = divergence_to(law, worth, mean, top, False)
    assert found <= least + 1e-12
    assert found == pytest.approx(least, abs=0.02)


def test_the_public_code_adds_the_logarithm_of_the_top() -> None:
    """And ends a little before the largest x, which matters if the maximum is there."""
    laws, worth = np.array([0.5, 0.5]), np.array([0.0, 3.9])
    exact = divergence_to(laws, worth, 2.2, 4.0, False)
    assert divergence_to(laws, worth, 2.2, 4.0, True) == pytest.approx(exact + math.log(4.0))
    worth = np.array([0.0, 2.0])
    exact = divergence_to(laws, worth, 1.5, 4.0, False)
    cut = divergence_to(laws, worth, 1.5, 4.0, True)
    assert exact + math.log(4.0) - 1e-3 < cut < exact + math.log(4.0)


def test_the_bias_is_that_of_the_estimates_on_the_skeleton() -> None:
    """Two states, two actions; with one imagined observation the rows are (counts + 1/2)/(N + 1).
    The skeleton leaves state 0 only its first action."""
    counts = np.array([[3, 0], [0, 3], [0, 3], [3, 0]])
    visits = counts.sum(axis=1)
    rewards = np.array([0.0, 0.9, 1.0, 0.0])
    skeleton = np.array([[True, False], [True, True]])
    phi = skeleton_bias(counts, visits, rewards, skeleton, np.zeros(2))
    # h(1) - h(0) = d: with action 0 in both, 1 + .875 d - .125 d = d, d = 4.
    assert phi[0] == 0.0
    assert phi[1] == pytest.approx(4.0, abs=5e-3)


def test_the_best_action_has_only_its_logarithm() -> None:
    counts = np.array([[8, 0], [0, 5]])
    visits = np.array([8, 5])
    phi = np.array([0.0, 1.0])
    values = np.array([0.1, 1.2])
    laws, worths = np.ones((2, 1)), np.array([[0.05], [0.3]])
    index = indices(counts, visits, values, laws, worths, phi, False)
    assert index[1] == pytest.approx(math.log(5))
    assert index[0] > math.log(8)
    forbidden = indices(counts, visits, np.array([0.1, -np.inf]), laws, worths, phi, False)
    assert forbidden[1] == np.inf


def test_every_action_is_tried_in_a_state_before_any_index() -> None:
    model = fmdp.problem("random:1,values=3,parents=1,actions=4,seed=2")
    run = fmdp.simulate(model, fmdp.IMEDRL(), 60, seed=0, record=True)
    assert run.trajectory is not None
    states, actions = run.trajectory.states[:-1, 0], run.trajectory.actions[:, 0]
    for s in range(3):
        met = actions[states == s][:4]
        assert len(set(met.tolist())) == len(met)


def test_rewards_that_are_told_apart() -> None:
    """Coins pay 0 or 1; noise pays another number every time, of which so many are kept."""
    coins = fmdp.problem("random:1,values=2,parents=1,noise=bernoulli,seed=1")
    agent: Any = fmdp.simulate(coins, fmdp.IMEDRL(), 200, seed=0).agent
    assert sorted(agent.memory["paid"].tolist()) == [0.0, 1.0]
    assert agent.memory["times"].sum() == 200
    noisy = fmdp.problem("random:1,values=2,parents=1,noise=gaussian,seed=1")
    agent = fmdp.simulate(noisy, fmdp.IMEDRL(), 200, seed=0).agent
    assert len(agent.memory["paid"]) == REWARDS
    assert agent.memory["times"].sum() == 200
    agent = fmdp.simulate(coins, fmdp.IMEDRL(rewards="known"), 200, seed=0).agent
    assert not len(agent.memory["paid"])


def test_what_does_not_fit_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(FmdpError, match=r"imed-rl is flat: .* joint states") as raised:
        fmdp.IMEDRL().start(fmdp.problem("circle:14"), 0)
    assert "\n" not in str(raised.value)
    agent = fmdp.IMEDRL().start(fmdp.problem("riverswim:1"), 0)
    for name, value in (
        ("state", 6),
        ("bias", np.zeros(5)),
        ("paid", np.zeros(3)),
        ("paid", np.zeros(REWARDS + 1)),
        ("times", np.full((12, 0), -1.0)),
    ):
        memory = {**agent.memory, name: value}
        with pytest.raises(FmdpError):
            agent.learner.check_memory(agent.structure, memory)
    agent.learner.check_memory(agent.structure, agent.memory)
