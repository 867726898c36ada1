"""F-UCBVI and F-EULER: bonuses by hand, optimism as a theorem, and their memory."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import fmdp
from fmdp.errors import FmdpError
from fmdp.learning import f_euler, f_ucbvi
from fmdp.model.entries import split_transition_entries
from fmdp.simulation import Environment


def test_bonuses_by_hand() -> None:
    circle = fmdp.problem("circle:3").structure
    assert f_ucbvi.log_of_pairs(circle) == pytest.approx(math.log(3 * 8 * 4))
    # N = 3: log(4 m S A 12 / rho).
    terms = f_ucbvi.bonus_log_term([0, 3], math.log(96), 0.1)
    assert terms == pytest.approx([math.log(4 * 96 * 2 / 0.1), math.log(4 * 96 * 12 / 0.1)])
    assert f_ucbvi.hoeffding_bonus(8, 4.0) == pytest.approx(0.5)  # sqrt(4 / 16)
    # (3 - 1) (2 log 2 + 4) / 20.
    assert f_ucbvi.cross_bonus(2, 10, 4.0, 2) == pytest.approx((2 * math.log(2) + 4) / 10)
    assert f_euler.bernstein_bonus(0.25, 100, 2.0) == pytest.approx(0.1 + 0.06)
    assert f_euler.bernstein_bonus(0.0, 0, 2.0) == pytest.approx(6.0)


def test_the_variance_of_what_the_next_value_is_worth() -> None:
    model = fmdp.problem("random:2,values=3,actions=2,parents=1,seed=1")
    agent = looking_on(model, fmdp.FEULER(), 200, 0)
    worth = np.array([0.0, 1.0, 3.0, 2.0, 2.0, 2.0])
    found = split_transition_entries(model.structure, f_euler.variances(agent.statistics, worth))
    counts = agent.statistics.transition_counts(0)
    law = counts / np.maximum(1, counts.sum(axis=1, keepdims=True))
    expected = law @ worth[:3] ** 2 - (law @ worth[:3]) ** 2
    np.testing.assert_allclose(found[0], expected, atol=1e-12)
    np.testing.assert_allclose(found[1], 0.0, atol=1e-12)


def looking_on(model: fmdp.FactoredMDP, learner: Any, steps: int, seed: int) -> Any:
    """An agent that has seen random actions."""
    rng = np.random.Generator(np.random.PCG64(seed))
    environment, agent = Environment(model, rng), learner.start(model, 0)
    for _ in range(steps):
        state = environment.state
        action = [int(rng.integers(size)) for size in model.structure.action_sizes]
        agent.observe(state, action, *environment.step(action))
    return agent


@pytest.mark.parametrize("steps", [0, 10, 100, 1000])
def test_the_bonuses_of_f_ucbvi_make_every_backup_optimistic(steps: int) -> None:
    """P-hat v + sum_i b_i >= P v in every state for functions v of span V, and so for rewards. A
    thousandth of the bonuses does not: the control."""
    model = fmdp.problem("random:3,values=2,actions=2,seed=3,noise=bernoulli")
    flat = fmdp.flatten(model)
    rng = np.random.default_rng(1)
    agent = looking_on(model, fmdp.FUCBVI(span=2.0), steps, 4)
    missed = 0
    for c in (1.0, 1e-3):
        tables = fmdp.FUCBVI(span=2.0, c=c).tables(agent)
        hopeful = fmdp.flatten(tables)
        for _ in range(20):
            v = rng.random(model.structure.n_states)
            v = 2.0 * (v - v.min()) / np.ptp(v)
            mine = hopeful.rewards + hopeful.transitions @ v
            truth = flat.rewards + flat.transitions @ v
            if c == 1.0:
                assert (mine >= truth - 1e-9).all()
            missed += c < 1.0 and bool((mine < truth - 1e-9).any())
    assert missed or steps < 100


def test_a_plan_of_f_ucbvi_promises_no_less_than_the_truth() -> None:
    model = fmdp.problem("random:2,values=3,actions=2,seed=1,noise=bernoulli")
    learner = fmdp.FUCBVI(span=3.0)
    promised = fmdp.plan(learner.tables(looking_on(model, learner, 300, 4))).gain
    best = fmdp.plan(model).gain
    assert promised is not None
    assert best is not None
    assert promised >= best - 1e-6


def test_over_a_horizon_too() -> None:
    """By ten backups of both models, written out."""
    model = fmdp.problem("random:2,values=3,actions=2,seed=1,noise=bernoulli")
    learner = fmdp.FUCBVI(episodes="fixed", horizon=10)
    values = []
    for tables in (learner.tables(looking_on(model, learner, 300, 4)), model):
        flat = fmdp.flatten(tables)
        v = np.zeros(flat.rewards.shape[1])
        for _ in range(10):
            v = (flat.rewards + flat.transitions @ v).max(axis=0)
        values.append(v)
    assert (values[0] >= values[1]).all()


def test_f_euler_plans_with_the_bias_of_its_last_plan() -> None:
    model = fmdp.problem("circle:3")
    agent = looking_on(model, fmdp.FEULER(), 300, 0)
    first = agent.learner.tables(agent).rewards[model.structure.l]
    agent.decide()
    assert agent.memory["planned"]
    assert agent.memory["worth"].shape == (6,)
    later = agent.learner.tables(agent).rewards[model.structure.l]
    assert (later <= first + 1e-12).all()
    assert (later < first - 1e-9).any()


def test_what_does_not_fit_is_one_line() -> None:
    with pytest.raises(FmdpError, match="span") as raised:
        fmdp.FUCBVI(span=2.0, episodes="fixed", horizon=5)
    assert "\n" not in str(raised.value)
    with pytest.raises(FmdpError, match="ties") as raised:
        fmdp.FEULER(ties="least-tried").start(fmdp.problem("circle:3"), 0)
    assert "\n" not in str(raised.value)
