"""Learners where actions act first: they learn P(. | y), and plan one component at a time."""

from __future__ import annotations

import numpy as np
import pytest

import fmdp
from fmdp.elimination.effects import EffectsBackup
from fmdp.learning.registry import LEARNERS
from fmdp.model import FactoredMDP
from fmdp.problems import problem

NAME = "maintenance:4,levels=3,k=3,load=1,crew=2,learned={}"


def without_knowledge(model: FactoredMDP) -> FactoredMDP:
    """Return the same tables without the effects."""
    s = model.structure
    plain = s.with_factors(
        s.transition_scopes,
        s.reward_scopes,
        s.reward_ranges,
        s.reward_names,
        constraints=s.constraints,
    )
    return FactoredMDP(plain, model.transitions, model.rewards)


def test_knowing_what_actions_leave_saves_regret() -> None:
    """Counts of a replaced component are those of a new one."""
    machines, rows = (problem(NAME.format(learned)) for learned in ("together", "apart"))
    regrets = [
        np.mean([fmdp.simulate(own, fmdp.DORL(), steps=2000, seed=s).regret for s in range(2)])
        for own in (machines, rows, without_knowledge(rows))
    ]
    assert regrets == sorted(regrets)
    assert regrets[0] < 0.5 * regrets[2]


@pytest.mark.parametrize("name", ["psrl", "dorl", "fsrl"])
def test_learners_plan_by_components_and_keep_to_the_crew(name: str) -> None:
    model = problem("maintenance:3,levels=3,k=2,crew=1")
    agent = LEARNERS.find(name)().start(model.structure, np.random.default_rng(0))
    environment = fmdp.Environment(model, np.random.default_rng(1))
    for _ in range(60):
        state = environment.state
        action = agent.act(state)
        assert sum(action) <= 1
        rewards, after = environment.step(action)
        agent.observe(state, action, rewards, after)
    backups = agent.prepared._backups.values()
    assert backups
    assert all(isinstance(backup, EffectsBackup) for backup in backups)
