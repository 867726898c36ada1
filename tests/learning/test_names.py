"""Agents by name: act, observe, and what their files keep."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fmdp
from fmdp.errors import InvalidParameter

from ..named import pumps

MODEL = pumps()
STRUCTURE = MODEL.structure


def step_by_step(names: bool, learner: Any, steps: int = 60) -> Any:
    agent = learner.start(STRUCTURE, 5)
    environment = fmdp.Environment(MODEL, 7)
    for _ in range(steps):
        state: Any = environment.state
        if names:
            state = STRUCTURE.name_state(state)
        action = agent.act(state)
        assert isinstance(action, dict if names else tuple)
        rewards, after = environment.step(action)
        if names:
            agent.observe(
                state,
                action,
                dict(zip(STRUCTURE.reward_names, rewards, strict=True)),
                STRUCTURE.name_state(after),
            )
        else:
            agent.observe(state, action, rewards, after)
    return agent


@pytest.mark.parametrize("learner", [fmdp.PSRL(), fmdp.DORL(), fmdp.Random()])
def test_by_name_and_by_number_are_the_same_run(learner: Any, tmp_path: Path) -> None:
    for number, names in enumerate((False, True)):
        step_by_step(names, learner).save(tmp_path / f"{number}.npz")
    assert (tmp_path / "0.npz").read_bytes() == (tmp_path / "1.npz").read_bytes()


def test_a_file_keeps_the_names(tmp_path: Path) -> None:
    agent = step_by_step(True, fmdp.PSRL())
    state = {"pump_a": "worn", "pump_b": "broken", "price": "low"}
    agent.save(tmp_path / "agent.npz")
    loaded = fmdp.load_agent(tmp_path / "agent.npz")
    assert loaded.structure.naming == STRUCTURE.naming
    assert loaded.act(state) == agent.act(state)
    assert loaded.decision.policy.naming == STRUCTURE.naming  # type: ignore[union-attr]


def test_rewards_by_name_must_be_all_and_known() -> None:
    agent = fmdp.PSRL().start(STRUCTURE, 0)
    state = {"pump_a": "new", "pump_b": "new", "price": "low"}
    good = {"income_a": 1.0, "income_b": 1.0, "cost": 0.0}
    for rewards, words in (
        ({**good, "income_c": 1.0}, 'no reward factor is called "income_c".*did you mean'),
        ({"income_a": 1.0, "cost": 0.0}, 'rewards: "income_b" is missing'),
        ({**good, "cost": "much"}, "rewards must be 3 numbers"),
        ({**good, "cost": 0.5}, "observed reward is 0.5; must be in its range"),
    ):
        with pytest.raises(InvalidParameter, match=words):
            agent.observe(state, "rest", rewards, state)  # type: ignore[arg-type]
    assert agent.steps == 0
    assert not agent.statistics.visits.any()
    agent.observe(state, "crew=rest", good, "pump_a=new,pump_b=worn,price=high")
    assert agent.steps == 1


SEEN: list[Any] = []


class Watching(fmdp.Random):
    """Sees plain tuples, however the step was written."""

    name = "watching"

    def watch(self, agent: Any, state: Any, action: Any, rewards: Any, next_state: Any) -> None:
        SEEN.append((state, action, tuple(rewards), next_state))


def test_a_learner_that_watches_sees_numbers() -> None:
    agent = Watching().start(STRUCTURE, 0)
    rewards = {"cost": 0.0, "income_b": 2.0, "income_a": 1.6}
    after = np.array([1, 0, 0])
    agent.observe("pump_a=worn,pump_b=new,price=high", ["rest"], rewards, after)
    assert SEEN == [((1, 0, 1), (0,), (1.6, 2.0, 0.0), (1, 0, 0))]
