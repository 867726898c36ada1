"""Agents of Stable-Baselines3 on fmdp's environments; needs the extra `agents` (PyTorch)."""

from __future__ import annotations

import warnings
from typing import Any

import gymnasium
import pytest

import fmdp.interop.gymnasium  # noqa: F401 - registers the environments

pytestmark = pytest.mark.peers


@pytest.fixture(scope="module")
def baselines() -> Any:
    found = pytest.importorskip("stable_baselines3")
    pytest.importorskip("torch").set_num_threads(1)
    return found


def test_its_own_checker_is_content(baselines: Any) -> None:
    from stable_baselines3.common.env_checker import check_env

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(gymnasium.make("fmdp/Circle-v0", size=3).unwrapped)


@pytest.mark.parametrize("kind", ["PPO", "DQN"])
def test_it_learns_what_random_actions_do_not(baselines: Any, kind: str) -> None:
    """A step of guestrin's small circle with a machine restarted pays more than at random."""
    env = gymnasium.make("fmdp/Circle-v0", size=2, dynamics="guestrin")
    quick = {"learning_starts": 100, "target_update_interval": 100, "exploration_fraction": 0.5}
    settings = {"n_steps": 128} if kind == "PPO" else quick
    agent = getattr(baselines, kind)(
        "MlpPolicy", env, seed=0, device="cpu", learning_rate=3e-3, gamma=0.9, **settings
    )
    agent.learn(2_000)

    def mean(choose: Any) -> float:
        observation, _ = env.reset(seed=1)
        total = 0.0
        for _ in range(1_000):
            observation, reward, *_ = env.step(choose(observation))
            total += float(reward)
        return total / 1_000

    env.action_space.seed(0)
    random = mean(lambda observation: env.action_space.sample())
    learned = mean(lambda observation: int(agent.predict(observation, deterministic=True)[0]))
    assert learned > random + 0.1
