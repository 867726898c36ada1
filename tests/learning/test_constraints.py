"""Learners and simulation under constraints: forbidden actions are neither played nor accepted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

import fmdp
from fmdp.errors import FmdpError, InvalidParameter
from fmdp.learning.learner import Learner
from fmdp.learning.registry import LEARNERS
from fmdp.model import FactoredMDP, Forbidden, at_most, forbid
from fmdp.model.spaces import encode
from fmdp.planning.alp import ALP
from fmdp.planning.exact.planner import Exact
from fmdp.planning.policies.randomised import LOTS, UniformPolicy
from fmdp.simulation import Environment
from fmdp.testing import check_learner

FREE = fmdp.problem("random:3,values=2,parents=2,actions=4,seed=5,noise=bernoulli")


def by_state() -> FactoredMDP:
    """Action 0 is always allowed; of the others one or two, by what s0 and s1 are."""
    return FREE.with_constraints(
        forbid(FREE, {"s0": 0, "a0": [1, 2]}, name="low"),
        forbid(FREE, {"s0": 1, "s1": 1, "a0": 3}, name="high"),
    )


def by_action() -> FactoredMDP:
    """Two action variables, not both at work, whatever the state."""
    table = np.random.default_rng(0).dirichlet((1, 1), size=(2, 2, 3, 3))
    model = FactoredMDP.from_factors(
        (2, 2),
        (3, 3),
        [((0, 1, 2, 3), table), ((1, 3), table[0, :, 0])],
        [((0,), [0.0, 1.0]), ((2, 3), np.linspace(0, 1, 9))],
    )
    return model.with_constraints(at_most(model, 1, name="one at work"))


MODELS = {"by state": by_state(), "by action": by_action()}


@pytest.mark.sampled
@pytest.mark.parametrize("where", MODELS)
def test_every_learner_does_what_it_has_to(learner: Learner, where: str) -> None:
    model = MODELS[where]
    try:
        agent = learner.start(model, 0)
        agent.act(model.initial_state)
    except FmdpError:
        pytest.skip("a choice that does not fit this model")
    check_learner(learner, model, steps=100, seed=3, save_after=37)
    run = fmdp.simulate(model, learner, steps=100, seed=4, record=True)
    assert run.trajectory is not None
    for state, action in zip(run.trajectory.states, run.trajectory.actions, strict=False):
        model.structure.check_allowed(state.tolist(), action.tolist())


@pytest.mark.sampled
@pytest.mark.parametrize("where", MODELS)
@pytest.mark.parametrize("name", ["psrl", "dorl", "frmax"])
@pytest.mark.parametrize(
    "planner",
    [Exact(targets="vertex"), ALP(), ALP(method="factored"), ALP(targets="split", basis="pairs")],
    ids=str,
)
def test_learners_with_every_planner(name: str, planner: fmdp.Planner, where: str) -> None:
    model = MODELS[where]
    if name == "psrl":  # it plans for models, which have no targets
        planner = replace(planner, targets=type(planner)().targets)  # type: ignore[type-var, attr-defined]
    learner = LEARNERS.find(name).make({}, planner=planner)
    run = fmdp.simulate(model, learner, steps=120, seed=1, record=True)
    assert run.trajectory is not None
    assert run.gap_regret is not None
    assert 0.0 <= run.gap_regret < np.inf
    for state, action in zip(run.trajectory.states, run.trajectory.actions, strict=False):
        model.structure.check_allowed(state.tolist(), action.tolist())


def visits(model: FactoredMDP, steps: int) -> dict[tuple[int, ...], np.ndarray]:
    """How often the random learner plays each joint action, state by state."""
    run = fmdp.simulate(model, fmdp.Random(), steps, seed=7, record=True)
    assert run.trajectory is not None
    sizes = model.structure.action_sizes
    actions = np.ravel_multi_index(tuple(run.trajectory.actions.T), sizes)
    counts: dict[tuple[int, ...], np.ndarray] = {}
    for state, action in zip(run.trajectory.states.tolist(), actions, strict=False):
        own = counts.setdefault(tuple(state), np.zeros(model.structure.n_actions, dtype=int))
        own[action] += 1
    return counts


@pytest.mark.parametrize("where", MODELS)
def test_random_is_uniform_over_the_allowed_actions(where: str) -> None:
    """Chi-square at one in a million in all; against uniform over all actions it must fail."""
    model = MODELS[where]
    counts = visits(model, 4000)
    rejected = 0
    for state, own in counts.items():
        allowed = model.structure.allowed_actions(state)
        assert own.sum() == own[allowed].sum()
        if own.sum() < 50:
            continue
        assert stats.chisquare(own[allowed]).pvalue > 1e-6 / len(counts)
        rejected += stats.chisquare(own).pvalue < 1e-6 / len(counts)
    assert rejected > 0


def test_without_constraints_the_numbers_are_the_old_ones() -> None:
    generator = np.random.default_rng(3)
    drawn = UniformPolicy((2, 2), (3, 4)).draw(generator, 5)
    wanted = (np.random.default_rng(3).random((5, 2)) * (3, 4)).astype(int)
    assert np.array_equal(drawn, wanted)


def test_lots_settle_every_allowed_action_and_no_other() -> None:
    structure = by_state().structure
    policy = UniformPolicy.of(structure)
    assert policy.by_state
    for state in np.ndindex(*structure.state_sizes):
        allowed = structure.allowed_actions(state).tolist()
        n = len(allowed)
        lots = [0, *((k * LOTS) // n for k in range(1, n)), LOTS - 1]
        settled = [policy.settle(np.array([lot]), state)[0] for lot in lots]
        assert set(settled) <= set(allowed)
        assert {settled[0], settled[-1]} == {allowed[0], allowed[-1]}


def test_exploring_takes_the_constraints_of_who_plays_it(tmp_path: Path) -> None:
    model = by_state()
    best = fmdp.plan(model).policy
    assert best is not None
    run = fmdp.simulate(model, fmdp.ExploringPolicy(best, 0.7), steps=400, record=True)
    assert run.trajectory is not None
    for state, action in zip(run.trajectory.states, run.trajectory.actions, strict=False):
        model.structure.check_allowed(state.tolist(), action.tolist())
    bound = fmdp.ExploringPolicy(best, 0.7, model.structure.constraints)
    bound.save(tmp_path / "p.npz")
    loaded = fmdp.load_policy(tmp_path / "p.npz", model.structure)
    assert loaded.constraints == model.structure.constraints  # type: ignore[attr-defined]


@pytest.mark.parametrize("where", MODELS)
def test_exploring_by_variable_stays_allowed(where: str, tmp_path: Path) -> None:
    """All allowed actions of a state are met, and no other; the file holds the setting."""
    model = MODELS[where]
    s = model.structure
    policy = fmdp.ExploringPolicy(fmdp.plan(model).policy, 0.7, s.constraints, by_variable=True)  # type: ignore[arg-type]
    policy.save(tmp_path / "p.npz")
    loaded: Any = fmdp.load_policy(tmp_path / "p.npz", s)
    drawn = loaded.draw(np.random.default_rng(0), 2_000)
    generator = np.random.default_rng(0)
    one_by_one = np.concatenate([policy.draw(generator, 1) for _ in range(2_000)])
    assert np.array_equal(drawn, one_by_one)
    for state in np.ndindex(*s.state_sizes):
        settled = {encode(loaded.settle(row, state), s.action_sizes) for row in drawn}
        assert settled == set(s.allowed_actions(state).tolist())


def test_forbidden_steps_are_refused_by_name() -> None:
    model = by_state()
    text = r'action \(1,\) is not allowed in state \(0, 0, 0\): constraint "low" forbids s0=0, a0=1'
    environment = Environment(model, 0)
    with pytest.raises(InvalidParameter, match=text):
        environment.step(1)
    assert environment.steps == 0
    environment.step(0)
    agent = fmdp.PSRL().start(model.structure, 0)
    rewards = [lo for lo, _ in model.structure.reward_ranges]
    with pytest.raises(InvalidParameter, match=text):
        agent.observe((0, 0, 0), (1,), rewards, (0, 0, 0))
    assert agent.steps == 0
    assert not agent.statistics.visits.any()
    for rule in (lambda state: 1, fmdp.TablePolicy((2, 2, 2), (4,), np.ones(8, dtype=int))):
        with pytest.raises(InvalidParameter, match=text):
            fmdp.simulate(model, rule, steps=10)
        with pytest.raises(InvalidParameter, match=text):
            fmdp.evaluate(model, rule)
    with pytest.raises(InvalidParameter, match=r"constraint \"low\" forbids"):
        fmdp.simulate(model, fmdp.ExploringPolicy(fmdp.plan(FREE).policy, 0.1), steps=200)


def test_a_saved_learner_keeps_its_constraints(tmp_path: Path) -> None:
    model = by_state()
    agent = fmdp.PSRL().start(model.structure, 0)
    agent.save(tmp_path / "l.npz")
    assert fmdp.load_agent(tmp_path / "l.npz").structure == model.structure


def test_a_file_that_lies_about_constraints_is_refused() -> None:
    from fmdp.model.constraints import from_plain, plain

    good = plain(Forbidden((0, 3), np.array([True, False] * 4), "x"))
    assert from_plain(good) == Forbidden((0, 3), np.array([True, False] * 4), "x")
    for bad in (
        {**good, "rows": 9},
        {**good, "rows": 1 << 60},
        {**good, "table": "!"},
        {**good, "scope": "no"},
        {**good, "kind": "other"},
        {**good, "name": 3},
        {"kind": "at most", "actions": [3], "most": -1, "idle": [], "name": ""},
        {"kind": "at most"},
        None,
        [1],
    ):
        with pytest.raises(FmdpError):
            from_plain(bad)
