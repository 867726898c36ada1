"""Learners where rows are alike, actions are forbidden and act first, all in one model."""

from __future__ import annotations

import numpy as np
import pytest

import fmdp
from fmdp.simulation import Reference, Simulation
from fmdp.testing import check_learner

from ..planning.test_together import random_model, row_of, written_out

FREE = Reference(gain=0.0, gain_kind="exact", gaps=None, seconds=0.0)
LEARNERS: list[fmdp.Learner] = [
    fmdp.PSRL(),
    fmdp.PSRL(planner=fmdp.Exact(criterion="finite", horizon=3)),
    fmdp.PSRL(planner=fmdp.ALP()),
    fmdp.DORL(c=0.1),
    fmdp.DORL(targets="vertex", episodes="doubling"),
    fmdp.FSRL(),
    fmdp.FRmax(m=3),
    fmdp.Random(),
]


def shares_between_factors(seed: int) -> bool:
    s = random_model(seed).structure
    classes = [set(s.transition_classes_of(i).tolist()) for i in range(s.m)]
    return sum(map(len, classes)) > s.n_transition_classes and s.n_states > 3


SHARING = [seed for seed in range(80) if shares_between_factors(seed)][: len(LEARNERS)]


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("number", range(len(LEARNERS)))
def test_learners_keep_their_promises_in_models_with_everything(number: int, seed: int) -> None:
    learner, model = LEARNERS[number], random_model(3 + 2 * number + seed)
    check_learner(learner, model, steps=60, seed=seed, save_after=23)


@pytest.mark.parametrize("number", range(len(LEARNERS)))
def test_nothing_forbidden_is_done_and_every_class_is_counted_once_a_factor(number: int) -> None:
    model = random_model(SHARING[number])
    s, truth = model.structure, written_out(model)
    simulation = Simulation(model, LEARNERS[number], seed=number, reference=FREE, record=True)
    simulation.run(60)
    run = simulation.result()
    assert run.trajectory is not None
    assert isinstance(run.agent, fmdp.Agent)
    visits = np.zeros(s.n_transition_classes + s.n_reward_classes, dtype=np.int64)
    for state, action in zip(run.trajectory.states[:-1], run.trajectory.actions, strict=True):
        x = (*map(int, state), *map(int, action))
        pair = row_of(range(s.m), x, s.sizes), row_of(range(s.m, len(x)), x, s.sizes)
        assert truth.allowed[pair]
        for i, scope in enumerate(s.transition_scopes):
            visits[s.transition_classes_of(i)[row_of(scope, x, s.sizes)]] += 1
        for k, scope in enumerate(s.reward_scopes):
            own = s.reward_classes_of(k)[row_of(scope, x, s.sizes)]
            visits[s.n_transition_classes + own] += 1
    if LEARNERS[number].counts:
        assert np.array_equal(run.agent.statistics.visits, visits)
