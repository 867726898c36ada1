"""The state of an agent is saved, loaded and restored as a whole: its counters, its planner."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fmdp
from fmdp.errors import InvalidParameter
from fmdp.learning import agent as agents
from fmdp.learning.agent import Counters

MODEL = fmdp.problem("circle:3")


@dataclass
class MoreCounters(Counters):
    surprises: int = 0


def played(agent: Any, steps: int, seed: int = 0) -> list[tuple[int, ...]]:
    """Act for some steps in an environment of its own; return the actions."""
    random = np.random.default_rng(seed)
    state, actions = MODEL.initial_state, []
    for _ in range(steps):
        action = agent.act(state)
        following = tuple(int(random.integers(n)) for n in MODEL.structure.state_sizes)
        agent.observe(state, action, [float(s) for s in state], following)
        state = following
        actions.append(action)
    return actions


def test_a_new_counter_is_saved_loaded_and_set_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The dataclass is the only place where a counter has to be written down."""
    monkeypatch.setattr(agents, "Counters", MoreCounters)
    agent = fmdp.PSRL().start(MODEL, 0)
    played(agent, 20)
    agent.counters.surprises += 3  # type: ignore[attr-defined]
    before = replace(agent.counters)
    agent.save(tmp_path / "agent.npz")
    assert fmdp.load_agent(tmp_path / "agent.npz").counters == before
    assert (before.steps, before.episodes) == (20, agent.episodes)

    def failing(self: Any, asked: Any) -> None:
        asked.counters.surprises += 1
        asked.counters.planner_calls += 1
        raise KeyboardInterrupt

    monkeypatch.setattr(fmdp.PSRL, "decide", failing)
    agent._over = True
    with pytest.raises(KeyboardInterrupt):
        agent.decide()
    assert agent.counters == before


def test_a_planner_that_is_assigned_in_mid_run_is_used_from_the_next_decision_on() -> None:
    agent = fmdp.PSRL(episodes="fixed", length=10).start(MODEL, 0)
    played(agent, 15)
    under_way, calls = agent.decision, agent.planner_calls
    agent.planner = fmdp.ALP(basis="pairs")
    assert agent.decision is under_way
    assert isinstance(agent.planner, fmdp.ALP)
    assert agent.planner.basis == "pairs"
    assert agent.planner.tolerance is not None  # with the defaults of learners
    played(agent, 10, seed=1)
    assert agent.planner_calls == calls + 1
    assert agent.plan(fmdp.estimated_model(agent.statistics)).planner == "alp"


def test_an_assigned_planner_gives_the_run_of_a_learner_that_was_given_it() -> None:
    early = fmdp.DORL().start(MODEL, 0)
    early.planner = fmdp.ALP()
    given = fmdp.DORL(planner=fmdp.ALP()).start(MODEL, 0)
    assert early.planner == given.planner
    assert played(early, 60) == played(given, 60)


@pytest.mark.parametrize("replan", [False, True])
def test_an_assigned_planner_is_saved(tmp_path: Path, replan: bool) -> None:
    """Also where nothing has been planned with it yet, so that it has no warm state."""
    agent = fmdp.DORL().start(MODEL, 0)
    played(agent, 30)
    agent.planner = fmdp.ALP(basis="pairs")
    if replan:
        played(agent, 60, seed=2)
    agent.save(tmp_path / "agent.npz")
    loaded = fmdp.load_agent(tmp_path / "agent.npz")
    assert loaded.planner == agent.planner
    assert played(loaded, 60, seed=3) == played(agent, 60, seed=3)


def test_a_planner_that_a_failed_decision_has_assigned_is_taken_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    agent = fmdp.PSRL().start(MODEL, 0)
    planner = agent.planner

    def failing(self: Any, asked: Any) -> None:
        asked.planner = fmdp.ALP()
        raise KeyboardInterrupt

    monkeypatch.setattr(fmdp.PSRL, "decide", failing)
    with pytest.raises(KeyboardInterrupt):
        agent.act(MODEL.initial_state)
    assert agent.planner is planner


def test_a_planner_that_does_not_fit_the_learner_is_refused() -> None:
    cases: list[tuple[fmdp.Learner, Any, str]] = [
        (fmdp.PSRL(), None, "cannot plan with None"),
        (fmdp.Random(), fmdp.Exact(), "does not plan"),
        (fmdp.FSRL(budget=1.0), fmdp.Exact(), "span"),
        (fmdp.PSRL(episodes="fixed", length=3, horizon=3), fmdp.ALP(), "exact planner"),
    ]
    for learner, planner, said in cases:
        agent = learner.start(MODEL, 0)
        before = agent.planner
        with pytest.raises(InvalidParameter, match=said):
            agent.planner = planner
        assert agent.planner is before


def test_counters_are_not_assigned_one_by_one() -> None:
    agent = fmdp.PSRL().start(MODEL, 0)
    with pytest.raises(AttributeError):
        agent.steps = 5  # type: ignore[misc]
