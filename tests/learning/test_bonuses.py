"""Public names for authors of learners: added reward factors, marginals, ending a decision."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fmdp
from fmdp.errors import InvalidModel, InvalidParameter
from fmdp.testing import check_learner, oracles, strategies

MODEL = fmdp.problem("random:3,values=2,parents=1,actions=3,seed=5,noise=bernoulli")


def with_zero_bonuses(model: fmdp.FactoredMDP, scopes: Any) -> fmdp.FactoredMDP:
    s = model.structure
    larger = fmdp.with_reward_factors(s, scopes, [(0.0, 1.0)] * len(scopes))
    rewards = [*model.rewards, *(np.zeros(n) for n in larger.reward_rows[s.l :])]
    return fmdp.FactoredMDP(larger, model.transitions, rewards)


@settings(max_examples=25)
@given(st.data())
def test_zero_bonuses_change_nothing(data: st.DataObject) -> None:
    structures = strategies.structures(max_states=12, alike=data.draw(st.booleans()))
    model = data.draw(strategies.models(structures))
    larger = with_zero_bonuses(model, model.structure.transition_scopes)
    assert larger.structure.l == model.structure.l + model.structure.m
    first, second = (oracles.dense(one) for one in (model, larger))
    assert np.array_equal(first.transitions, second.transitions)
    assert np.array_equal(first.rewards, second.rewards)


def test_every_row_of_a_bonus_is_a_class_of_its_own() -> None:
    s = fmdp.problem("circle:4").structure
    alike = fmdp.Alike(
        tuple(np.zeros(n, dtype=np.int64) for n in s.transition_rows),
        tuple(np.zeros(n, dtype=np.int64) for n in s.reward_rows),
    )
    known = replace(s, alike=alike)
    larger = fmdp.with_reward_factors(known, [(0, 1)], [(0.0, 2.0)], ["extra"])
    assert larger.reward_names[-1] == "extra"
    assert larger.n_reward_classes == known.n_reward_classes + larger.reward_rows[-1]


@settings(max_examples=15)
@given(strategies.effect_models(max_states=12, max_actions=6))
def test_structures_with_effects_take_bonuses_over_states(model: fmdp.FactoredMDP) -> None:
    larger = with_zero_bonuses(model, [(0,)])
    assert larger.structure.effects is not None
    assert fmdp.plan(larger).gain == pytest.approx(fmdp.plan(model).gain, abs=1e-6)


def test_wrong_reward_factors_are_refused() -> None:
    s = MODEL.structure
    with pytest.raises(InvalidParameter, match="got 2 scopes, 1 ranges and 2 names"):
        fmdp.with_reward_factors(s, [(0,), (1,)], [(0.0, 1.0)])
    with pytest.raises(InvalidModel):
        fmdp.with_reward_factors(s, [(99,)], [(0.0, 1.0)])


# ---- marginals -----------------------------------------------------------------------------------


class OnlyBias:
    """A third-party planner: `solve` without the argument marginals, with a bias or without."""

    name = "only-bias"

    def __init__(self, bias: bool) -> None:
        self.bias = bias

    def prepare(self, structure: fmdp.Structure) -> Any:
        inner = fmdp.Exact(tolerance=1e-9).prepare(structure)

        class Prepared:
            def solve(_, tables: Any) -> fmdp.Plan:
                return inner.solve(tables, describe=self.bias)

        return Prepared()


def test_marginals_are_means_of_the_bias_for_every_planner() -> None:
    sizes = MODEL.structure.state_sizes
    for planner in (fmdp.Exact(tolerance=1e-9), OnlyBias(True)):
        agent = fmdp.PSRL(planner=planner).start(MODEL.structure, 0)  # type: ignore[arg-type]
        plan = agent.plan(MODEL, marginals=True)
        assert plan.marginals is not None
        bias = oracles.policy_bias(
            oracles.dense(MODEL), oracles.optimal(oracles.dense(MODEL)).policy
        ).reshape(sizes)
        for i, worth in enumerate(plan.marginals):
            mean = bias.mean(axis=tuple(j for j in range(len(sizes)) if j != i))
            assert np.allclose(worth - worth[0], mean - mean[0], atol=1e-5)


def test_a_planner_without_marginals_and_bias_is_refused() -> None:
    agent = fmdp.PSRL(planner=OnlyBias(False)).start(MODEL.structure, 0)  # type: ignore[arg-type]
    assert agent.plan(MODEL).marginals is None
    with pytest.raises(InvalidParameter, match="neither its marginals nor a bias"):
        agent.plan(MODEL, marginals=True)


# ---- ending a decision ---------------------------------------------------------------------------


def test_a_decision_that_was_ended_is_followed_by_another() -> None:
    agent = fmdp.PSRL(episodes="fixed", length=100).start(MODEL.structure, 0)
    first = agent.decide()
    assert agent.decide() is first
    agent.end_decision()
    assert agent.changed_by_act
    assert agent.decide() is not first
    assert agent.episodes == 2


def test_a_drawn_action_of_an_ended_decision_is_drawn_anew() -> None:
    agent = fmdp.Random().start(MODEL.structure, 0)
    state = MODEL.initial_state
    drawn = [agent.act(state)]
    for _ in range(30):
        agent.end_decision()
        drawn.append(agent.act(state))
    assert len(set(drawn)) > 1


class Sees(fmdp.Learner):
    """Sums the rewards, and ends a decision whenever the first state variable is 1."""

    def remember(self, structure: fmdp.Structure) -> dict[str, Any]:
        return {"sum": 0.0, "ends": 0}

    def watch_steps(self, agent: Any, states: Any, actions: Any, rewards: Any) -> int | None:
        for t in range(len(actions)):
            agent.memory["sum"] += float(rewards[t].sum())
            if states[t + 1, 0] == 1:
                agent.memory["ends"] += 1
                return t + 1
        return None

    def decide(self, agent: Any) -> fmdp.Decision:
        return fmdp.Decision(constant_policy(agent.structure, agent.episodes), steps=1000)


def constant_policy(structure: fmdp.Structure, number: int) -> fmdp.TablePolicy:
    actions = np.full(structure.n_states, number % structure.n_actions, dtype=np.int64)
    return fmdp.TablePolicy(structure.state_sizes, structure.action_sizes, actions)


class SeesOne(Sees):
    """The same, one step at a time."""

    watch_steps = fmdp.Learner.watch_steps

    def watch(self, agent: Any, state: Any, action: Any, rewards: Any, next_state: Any) -> None:
        agent.memory["sum"] += float(sum(rewards))
        if next_state[0] == 1:
            agent.memory["ends"] += 1
            agent.end_decision()


def test_steps_watched_in_bulk_are_those_watched_one_by_one() -> None:
    model = fmdp.problem("random:3,values=2,parents=1,actions=3,noise=bernoulli")
    bulk, single = (
        fmdp.simulate(model, learner, 3000, seed=1, record=True) for learner in (Sees(), SeesOne())
    )
    assert bulk.curve == single.curve
    assert bulk.episodes == single.episodes
    assert bulk.agent.memory["ends"] == single.agent.memory["ends"] > 100
    assert bulk.agent.memory["sum"] == pytest.approx(bulk.total_reward)
    assert np.array_equal(bulk.agent.statistics.visits, single.agent.statistics.visits)
    assert bulk.trajectory is not None
    assert single.trajectory is not None
    assert np.array_equal(bulk.trajectory.states, single.trajectory.states)
    check_learner(Sees(), model)


def test_a_wrong_answer_of_watch_steps_is_refused() -> None:
    class TooFar(Sees):
        """Ends its decision behind the steps."""

        def watch_steps(self, agent: Any, states: Any, actions: Any, rewards: Any) -> int | None:
            return len(actions) + 1

    with pytest.raises(InvalidParameter, match=r"1 to 1; got 2"):
        fmdp.simulate(fmdp.problem("circle:2"), TooFar(), 100)


def test_a_learner_watches_in_one_way() -> None:
    with pytest.raises(TypeError, match="defines watch and watch_steps"):

        class Both(Sees):
            """Watches twice."""

            def watch(self, agent: Any, *step: Any) -> None:
                pass


class Needs(fmdp.PSRL):
    """PSRL with a setting that must be given."""

    wanted: int = fmdp.setting(fmdp.REQUIRED, "a number", low=1)


class Says(Needs):
    """The same with an example."""

    example: ClassVar[dict[str, object]] = {"wanted": 3}


def test_a_class_is_checked_with_its_example() -> None:
    model = fmdp.problem("circle:2")
    with pytest.raises(AssertionError, match="must have an example with all required settings"):
        check_learner(Needs, model, steps=5, save_after=3)
    check_learner(Says, model, steps=5, save_after=3)
