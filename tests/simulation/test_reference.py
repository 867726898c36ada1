"""Runs against a simulator of forty lines: whatever way is taken, every bit is the same."""

from __future__ import annotations

import copy
import math
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import fmdp
from fmdp import Environment, FactoredMDP, Noise, Statistics, TablePolicy
from fmdp.errors import InvalidParameter
from fmdp.model.spaces import decode, encode
from fmdp.planning.policies.playing import ActionTable, StepBatch
from fmdp.simulation import kernels
from fmdp.simulation.kernels import normal_quantile
from fmdp.simulation.trajectory import Recorder
from fmdp.testing import strategies

Step = tuple[tuple[float, ...], tuple[int, ...]]


def generator(seed: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(seed))


class Slow:
    """The sampler as the page says it: m uniforms for the next state, l for the rewards."""

    def __init__(self, model: FactoredMDP, source: np.random.Generator) -> None:
        self.model, self.source = model, source
        self.state = model.initial_state
        self.steps = 0
        self.total_reward = self.total_expected_reward = self.total_gap = 0.0

    def step(self, action: tuple[int, ...], gaps: NDArray[np.float64] | None = None) -> Step:
        model, s, state = self.model, self.model.structure, self.state
        uniforms = [self.source.random() for _ in range(s.m + s.l)]
        after = []
        for i in range(s.m):
            row = model.transition_row(i, state, action)
            value, below = 0, row[0]
            while uniforms[i] >= below and (row[value + 1 :] > 0).any():
                value += 1
                below += row[value]
            after.append(value)
        rewards, total, expected = [], 0.0, 0.0
        for k in range(s.l):
            x = (*state, *action)
            scope = s.reward_scopes[k]
            place = encode([x[v] for v in scope], s.scope_sizes(scope))
            mean = float(model.rewards[k][place])
            reward = self.noisy(mean, model.noise[k], s.reward_ranges[k], uniforms[s.m + k])
            rewards.append(reward)
            total += reward
            expected += mean
        if gaps is not None:
            number = encode(action, s.action_sizes)
            self.total_gap += float(gaps[encode(state, s.state_sizes), number])
        self.total_reward += total
        self.total_expected_reward += expected
        self.steps += 1
        self.state = tuple(after)
        return tuple(rewards), self.state

    @staticmethod
    def noisy(mean: float, noise: Noise, bounds: tuple[float, float], u: float) -> float:
        lo, hi = bounds
        if noise.kind == "bernoulli":
            return hi if u * (hi - lo) < mean - lo else lo
        if noise.kind == "gaussian":
            room = min(mean - lo, hi - mean)
            shift = min(max(noise.scale * normal_quantile(u), -room), room)
            return min(max(mean + shift, lo), hi)
        return mean


def any_model() -> st.SearchStrategy[FactoredMDP]:
    return st.one_of(
        strategies.models(),
        strategies.models(strategies.structures(alike=True)),
        strategies.models(strategies.constrained()),
        strategies.effect_models(),
    )


def assert_same(environment: Environment, slow: Slow) -> None:
    assert environment.state == slow.state
    assert all(type(value) is int for value in environment.state)
    assert environment.steps == slow.steps
    assert environment.total_reward == slow.total_reward
    assert environment.total_expected_reward == slow.total_expected_reward
    assert environment.total_gap == slow.total_gap


def live(model: FactoredMDP, seed: int, block: int, actions: NDArray[np.int64]) -> None:
    """Pieces in bulk, plain and counted, and pieces step by step, beside the slow simulator."""
    s = model.structure
    ours, theirs = generator(seed), generator(seed)
    gaps = np.random.default_rng(seed).random((s.n_states, s.n_actions))
    recorder = Recorder(s)
    environment = Environment(model, ours, gaps=gaps, recorder=recorder, block=block)
    plain = Environment(model, generator(seed), gaps=gaps, block=block)
    slow, counted = Slow(model, theirs), Statistics(s)
    again = Statistics(s)
    policy = TablePolicy(s.state_sizes, s.action_sizes, actions)
    table = ActionTable(policy, s)
    states, taken, rewards = [slow.state], [], []

    def slow_step(count: bool) -> Step:
        before, action = slow.state, policy(slow.state)
        found = slow.step(action, gaps)
        if count:
            again.record(before, action, *found)
        states.append(found[1])
        taken.append(action)
        rewards.append(found[0])
        return found

    for piece, many in enumerate((5, 30, 7, 40, 3)):
        if piece % 2:
            for environment_like in (environment, plain):
                for t in range(many):
                    found = environment_like.step(policy(environment_like.state))
                    if environment_like is environment:
                        assert found == slow_step(count=False), t
        else:
            count = piece == 2
            left = many
            while left:
                counts = {"counts": counted.counts} if count else {}
                left -= environment.play(StepBatch(left, table, **counts))[0]
            left = many
            while left:
                left -= plain.play(StepBatch(left, table))[0]
            for _ in range(many):
                slow_step(count=count)
        assert_same(environment, slow)
        assert_same(plain, slow)
    for ours_counted, theirs_counted in zip(counted.counts, again.counts, strict=True):
        assert np.array_equal(ours_counted, theirs_counted)
    found = recorder.trajectory(environment.state)
    assert [tuple(row) for row in found.states.tolist()] == states
    assert [tuple(row) for row in found.actions.tolist()] == taken
    assert [tuple(row) for row in found.rewards.tolist()] == rewards
    # The generator has given whole blocks, and stands where it would have stood.
    rows = max(1, block // (s.m + s.l))
    theirs.random((math.ceil(slow.steps / rows) * rows - slow.steps, s.m + s.l))
    assert ours.bit_generator.state == theirs.bit_generator.state


BLOCKS = st.sampled_from((1, 17, 100, 1 << 14))


@settings(max_examples=60, deadline=None)
@given(model=any_model(), seed=st.integers(0, 2**32 - 1), block=BLOCKS, data=st.data())
def test_any_model(model: FactoredMDP, seed: int, block: int, data: st.DataObject) -> None:
    live(model, seed, block, data.draw(strategies.policies(model.structure)))


@pytest.mark.parametrize("least", ["shared slots", "no numbers", "little kept"])
@settings(max_examples=25, deadline=None)
@given(model=any_model(), seed=st.integers(0, 2**32 - 1), data=st.data())
def test_models_that_are_larger_than_what_is_kept(
    least: str, model: FactoredMDP, seed: int, data: st.DataObject
) -> None:
    made = kernels.empty_cache
    with pytest.MonkeyPatch.context() as patch:
        if least == "shared slots":
            patch.setattr(kernels, "empty_cache", lambda model, law, memory=0: made(model, law, 0))
        elif least == "no numbers":
            patch.setattr(kernels, "_MOST_PAIRS", 0)
        else:
            patch.setattr("fmdp.simulation.environment._KEPT", 60)
        live(model, seed, 100, data.draw(strategies.policies(model.structure)))


@pytest.mark.parametrize("sizes", [(40, 2, 3), (17,), (16, 300), (2, 1, 18, 18)])
def test_variables_of_many_values(sizes: tuple[int, ...]) -> None:
    rng = np.random.default_rng(len(sizes))
    m = len(sizes)
    transitions = []
    for i, size in enumerate(sizes):
        rows = rng.random((size * 3, size)) ** 4
        rows[rng.random(rows.shape) < 0.3] = 0.0
        rows[np.arange(len(rows)), rng.integers(size, size=len(rows))] = 0.5
        transitions.append(((i, m), rows / rows.sum(axis=1, keepdims=True)))
    model = FactoredMDP.from_factors(
        sizes,
        [3],
        transitions,
        [((0, m), rng.random(sizes[0] * 3)), ((), [0.4])],
        noise=[Noise("gaussian", 0.3), Noise("bernoulli")],
    )
    actions = rng.integers(3, size=model.structure.n_states)
    for block in (1, 1 << 14):
        live(model, 5, block, actions)


def test_a_wrong_simulator_is_told_apart() -> None:
    """The control: one uniform too few, and nothing above would pass."""

    class Late(Slow):
        def step(self, action: tuple[int, ...], gaps: Any = None) -> Step:
            found = super().step(action, gaps)
            self.source.random()
            return found

    model = fmdp.problem("random:3,seed=1")
    environment, late = Environment(model, 4), Late(model, generator(4))
    walks = [[one.step((t % 2,)) for t in range(60)] for one in (environment, late)]
    assert walks[0] != walks[1]
    exact = Slow(model, generator(4))
    assert walks[0] == [exact.step((t % 2,)) for t in range(60)]


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
@pytest.mark.parametrize("problem", ["circle:3", "random:2,noise=gaussian", "riverswim:1"])
def test_a_copy_goes_on_by_itself(copied: Callable[[Any], Any], problem: str) -> None:
    model = fmdp.problem(problem)
    s = model.structure
    action = (0,) * len(s.action_sizes)
    table = ActionTable(
        TablePolicy(s.state_sizes, s.action_sizes, np.zeros(s.n_states, dtype=np.int64)), s
    )
    environment, slow = Environment(model, 6, block=50), Slow(model, generator(6))
    for _ in range(30):
        assert environment.step(action) == slow.step(action)
    other = copied(environment)
    left = 25
    while left:
        left -= environment.play(StepBatch(left, table))[0]
    found = [other.step(action) for _ in range(25)]
    assert found == [slow.step(action) for _ in range(25)]
    assert_same(other, slow)
    assert_same(environment, slow)


# ---- what is kept never answers for what is no action ------------------------------------------


@pytest.mark.parametrize("wrong", [(True,), (1.0,), True, 1.0, (1, 1), (8,), -1, "1.0", None])
def test_what_is_no_action_stays_none_however_often_it_was_taken(wrong: Any) -> None:
    environment = Environment(fmdp.problem("circle:7"), 0)
    with pytest.raises(InvalidParameter) as before:
        environment.step(wrong)
    for _ in range(300):
        environment.step((1,))
    with pytest.raises(InvalidParameter) as after:
        environment.step(wrong)
    assert str(after.value) == str(before.value)
    assert environment.steps == 300


def test_every_way_to_write_an_action() -> None:
    ways: list[Any] = [(1,), 1, [1], np.array([1]), np.int64(1), (np.int64(1),), "1", {"a0": "1"}]
    model = fmdp.problem("circle:3")
    name = model.structure.action_names[0]
    ways[-1] = {name: model.structure.values[-1][1]}
    walks = []
    for way in ways:
        environment = Environment(model, 2)
        walks.append([environment.step(way) for _ in range(40)])
    mixed = Environment(model, 2)
    walks.append([mixed.step(ways[t % len(ways)]) for t in range(40)])
    assert all(walk == walks[0] for walk in walks)


def test_what_is_forbidden_stays_forbidden() -> None:
    environment = Environment(fmdp.problem("maintenance:3,crew=1"), 0)
    for _ in range(200):
        environment.step((1, 0, 0))
    for _ in range(3):
        with pytest.raises(InvalidParameter, match='constraint "crew"'):
            environment.step((1, 1, 0))
    assert environment.steps == 200


@pytest.mark.parametrize("wrong", [(True, 0, 1), (1.0, 0, 1), (1, 0), (2, 0, 1), "no", None])
def test_what_is_no_state_stays_none_however_often_it_was_asked(wrong: Any) -> None:
    policy = fmdp.plan(fmdp.problem("circle:3")).policy
    assert isinstance(policy, TablePolicy)
    with pytest.raises(InvalidParameter) as before:
        policy(wrong)
    for _ in range(3):
        for place in range(8):
            policy(decode(place, (2, 2, 2)))
    with pytest.raises(InvalidParameter) as after:
        policy(wrong)
    assert str(after.value) == str(before.value)


def test_a_table_answers_the_same_when_asked_again() -> None:
    rng = np.random.default_rng(0)
    sizes, actions = (30, 30, 30), rng.integers(6, size=27_000)  # more than are kept
    policy = TablePolicy(sizes, (2, 3), actions)
    saved = len(pickle.dumps(policy))
    for _ in range(2):
        for place in range(0, 27_000, 5):
            state = decode(place, sizes)
            right = decode(int(actions[place]), (2, 3))
            assert policy(state) == policy(list(state)) == policy(np.array(state)) == right
    again = pickle.dumps(policy)
    assert len(again) < saved + 10_000  # thousands of answers stay at home
    assert pickle.loads(again)((1, 2, 3)) == policy((1, 2, 3))
