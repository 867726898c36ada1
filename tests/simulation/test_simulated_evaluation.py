"""Evaluation by simulation: slow models, constant rewards, and what the runs did not see."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given

import fmdp
from fmdp.errors import InvalidParameter
from fmdp.model import FactoredMDP
from fmdp.model.structure import outward_sums
from fmdp.planning.plan import Status
from fmdp.simulation import evaluate_by_simulation
from fmdp.simulation.starts import (
    dispersed_starts,
    factor_bounds,
    rare_values,
    reachable_values,
)
from fmdp.testing import strategies


def rooms(leak: float, back: float | None = None) -> FactoredMDP:
    """Two rooms that pay 1 and 0 and are left with these probabilities."""
    back = leak if back is None else back
    structure = fmdp.Structure([2], [1], [[0]], [[0]])
    return FactoredMDP(structure, [[[1 - leak, leak], [back, 1 - back]]], [[1.0, 0.0]])


def idle(state: Sequence[int]) -> tuple[int, ...]:
    return (0,)


def only_action(model: FactoredMDP) -> fmdp.TablePolicy:
    sizes = model.structure.state_sizes
    zeros = np.zeros(model.structure.n_states, dtype=np.int64)
    return fmdp.TablePolicy(sizes, model.structure.action_sizes, zeros)


def simulated(model: FactoredMDP, steps: int = 20_000, seed: int = 0, **more: Any) -> Any:
    return evaluate_by_simulation(model, only_action(model), steps=steps, seed=seed, **more)


@pytest.mark.parametrize("leak", [1e-4, 1e-6, 1e-7])
def test_rooms_that_no_run_leaves_are_not_taken_for_the_gain(leak: float) -> None:
    found = simulated(rooms(leak))
    assert found.status is Status.UNMIXED
    assert (found.gain, found.confidence, found.batch_steps) == (None, None, None)
    assert (found.gain_lower, found.gain_upper) == found.certified_bounds == (0.0, 1.0)
    assert {0.0, 1.0} <= {*np.round(found.run_gains)}


def test_starts_in_one_room_would_be_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: without dispersed starts the interval is narrow and wrong."""

    def one_start(model: FactoredMDP, values: Any, number: int, *others: Any) -> Any:
        return [tuple(model.initial_state)] * number

    module = importlib.import_module("fmdp.simulation.evaluate")
    monkeypatch.setattr(module, "dispersed_starts", one_start)
    assert simulated(rooms(1e-7)).gain_lower > 0.9


def hidden_room(leak: float) -> FactoredMDP:
    """One value of a thousand is a room that pays nothing; the others are left for each other."""
    size = 1000
    structure = fmdp.Structure([size], [1], [[0]], [[0]])
    moves = np.full((size, size), (1.0 - leak) / (size - 1))
    moves[:, 123] = leak
    moves[123] = leak / (size - 1)
    moves[123, 123] = 1.0 - leak
    pays = np.ones(size)
    pays[123] = 0.0
    return FactoredMDP(structure, [moves], [pays])


def test_a_room_of_one_value_in_a_thousand_is_found() -> None:
    model = hidden_room(1e-6)
    values = reachable_values(model)
    assert rare_values(model, values, 1e-5) == [(0, 123)]
    assert rare_values(hidden_room(1e-4), values, 1e-5) == []
    assert rare_values(rooms(1e-7, 1e-8), reachable_values(rooms(0.5)), 1e-3) == [(0, 0), (0, 1)]
    found = [simulated(model, seed=seed) for seed in range(5)]
    assert [one.gain_lower <= 0.5 <= one.gain_upper for one in found] == [True] * 5


def test_rare_values_take_turns() -> None:
    model = rooms(0.3)
    rare = [(0, 1)]
    starts = dispersed_starts(model, reachable_values(model), 9, rare, np.random.default_rng(0))
    assert starts[:3] == [(0,), (0,), (1,)]
    assert starts[3:] == [(1,)] * 6


def test_a_model_that_mixes_has_an_interval() -> None:
    found = simulated(rooms(0.2, 0.3), steps=100_000)
    assert found.status is Status.SIMULATED
    assert found.status.value == "simulated"
    assert found.confidence == 0.99
    assert found.gain_lower < 0.6 < found.gain_upper < found.gain_lower + 0.05
    assert found.gain_lower <= found.gain <= found.gain_upper
    assert len(found.run_gains) == 16
    assert f"{found.batch_steps:,} steps" in found.caveat
    assert "certified bounds" in found.caveat


def test_the_same_seed_gives_the_same_result() -> None:
    first, again, other = (simulated(rooms(0.2, 0.3), seed=seed) for seed in (3, 3, 4))
    assert (first.run_gains, first.gain_upper) == (again.run_gains, again.gain_upper)
    assert first.run_gains != other.run_gains


@pytest.mark.parametrize("rewards", [(0.6,), (0.1, 0.2, 0.3), (0.1,) * 10, (1e8, 0.1, -1e8)])
@pytest.mark.parametrize("steps", [64, 3_000, 200_000])
def test_a_constant_reward_lies_in_its_interval(rewards: tuple[float, ...], steps: int) -> None:
    ranges = [(min(reward, 0.0), max(reward, 1.0)) for reward in rewards]
    structure = fmdp.Structure([2], [1], [[0]], [[]] * len(rewards), reward_ranges=ranges)
    model = FactoredMDP(structure, [[[0.5, 0.5], [0.5, 0.5]]], [[reward] for reward in rewards])
    truth = sum(Fraction(reward) for reward in rewards)
    found = simulated(model, steps)
    assert Fraction(found.gain_lower) <= truth <= Fraction(found.gain_upper)
    assert found.gain_upper - found.gain_lower <= np.spacing(float(truth))
    assert found.status is (Status.SIMULATED if steps > 64 else Status.UNMIXED)


def test_nearly_constant_rewards_keep_their_digits() -> None:
    structure = fmdp.Structure([2], [1], [[0]], [[0]])
    model = FactoredMDP(structure, [[[0.5, 0.5], [0.5, 0.5]]], [[0.6, 0.6 + 1e-9]])
    found = simulated(model, 1_000_000)
    assert found.status is Status.SIMULATED
    assert found.gain_lower < 0.6 + 0.5e-9 < found.gain_upper < found.gain_lower + 1e-11


def test_few_steps_say_nothing() -> None:
    found = simulated(rooms(0.5), steps=64)
    assert found.status is Status.UNMIXED
    assert (found.gain_lower, found.gain_upper) == (0.0, 1.0)


def test_closed_rooms_that_cannot_be_reached_do_not_count() -> None:
    """A variable that never changes, and decides what is paid."""
    structure = fmdp.Structure([2, 3], [1], [[1], [1]], [[0, 1]])
    coins, stays = [[0.5, 0.5]] * 3, np.eye(3)
    pays = [[0.0, 0.2, 1.0], [0.0, 0.4, 1.0]]
    model = FactoredMDP(structure, [coins, stays], [np.ravel(pays)], initial_state=(0, 1))
    found = simulated(model)
    assert [own.tolist() for own in reachable_values(model)] == [[0, 1], [1]]
    assert found.certified_bounds == (0.2, 0.4)
    assert found.status is Status.SIMULATED
    assert found.gain_lower < 0.3 < found.gain_upper


def test_a_certified_bound_is_kept() -> None:
    free = simulated(rooms(0.2, 0.3))
    bound = simulated(rooms(0.2, 0.3), gain_upper=0.6)
    assert free.gain_upper > 0.6 == bound.gain_upper
    assert bound.gain_lower == free.gain_lower
    assert bound.certified_bounds == (0.0, 0.6)
    assert simulated(rooms(1e-7), gain_upper=0.6).gain_upper == 0.6
    with pytest.raises(
        InvalidParameter, match=r"at least the least reward of a step, 0\.0; got -1"
    ):
        simulated(rooms(0.2), gain_upper=-1.0)


def test_the_public_verb_simulates_what_does_not_fit() -> None:
    model = fmdp.problem("circle:11")
    found = fmdp.evaluate(model, idle, memory_limit=1, steps=5_000, gain_upper=10.5)
    assert found.kind == "simulated"
    assert found.certified_bounds == (0.0, 10.5)


def test_sums_are_rounded_outwards() -> None:
    lower, upper = outward_sums([(0.1, 0.1), (0.2, 0.2), (0.3, 0.3)])
    exact = Fraction(0.1) + Fraction(0.2) + Fraction(0.3)
    assert Fraction(lower) <= exact <= Fraction(upper)
    assert 0.0 < upper - lower <= np.spacing(0.6)
    assert outward_sums([(0.25, 0.5), (0.5, 1.0)]) == (0.75, 1.5)


@given(strategies.models(rows=("sparse", "deterministic", "mixed")))
def test_what_can_be_reached_has_reachable_values(model: FactoredMDP) -> None:
    """Every state that any actions lead to, found one by one, and every reward there."""
    structure = model.structure
    values = reachable_values(model)
    flat = [set(own.tolist()) for own in values]
    bounds = factor_bounds(model, values)
    reached, frontier = {tuple(model.initial_state)}, [tuple(model.initial_state)]
    actions = list(np.ndindex(*structure.action_sizes))
    while frontier:
        state = frontier.pop()
        assert all(value in own for value, own in zip(state, flat, strict=True))
        for action in actions:
            rewards = [
                table[row(structure, scope, (*state, *action))]
                for scope, table in zip(structure.reward_scopes, model.rewards, strict=True)
            ]
            assert all(lo <= r <= hi for r, (lo, hi) in zip(rewards, bounds, strict=True))
            laws = [
                model.transitions[i][row(structure, scope, (*state, *action))]
                for i, scope in enumerate(structure.transition_scopes)
            ]
            for after in np.ndindex(*structure.state_sizes):
                if after not in reached and all(laws[i][after[i]] > 0 for i in range(structure.m)):
                    reached.add(after)
                    frontier.append(after)
    rare = rare_values(model, values, 0.1)
    starts = dispersed_starts(model, values, 16, rare, np.random.default_rng(0))
    assert len(starts) == 16
    assert starts[0] == tuple(model.initial_state)
    assert all(v in own for start in starts for v, own in zip(start, flat, strict=True))


def row(structure: fmdp.Structure, scope: Sequence[int], joint: Sequence[int]) -> int:
    number = 0
    for v in scope:
        number = number * structure.sizes[v] + joint[v]
    return number


def test_the_environment_can_be_moved_and_its_sums_cleared() -> None:
    model = rooms(0.0)
    environment = fmdp.Environment(model, 0)
    environment.step((0,))
    environment.move_to((1,))
    assert (environment.state, environment.steps, environment.total_reward) == ((1,), 1, 1.0)
    environment.step((0,))
    assert environment.total_expected_reward == 1.0
    environment.clear_sums()
    assert (environment.total_reward, environment.total_expected_reward) == (0.0, 0.0)
    assert (environment.state, environment.steps) == ((1,), 2)
    with pytest.raises(InvalidParameter, match="2"):
        environment.move_to((2,))
