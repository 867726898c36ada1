"""Multi-agent SysAdmin: rows by hand, and every row against the rules in words."""

from __future__ import annotations

import itertools

import pytest
from numpy.testing import assert_allclose

import fmdp
from fmdp.model import FactoredMDP

GOOD, FAIL, DEAD = range(3)
IDLE, LOADED, DONE = range(3)
LEAVE, REBOOT = range(2)


def with_machine(
    model: FactoredMDP, i: int, status: int, load: int, others: dict[int, int]
) -> list[int]:
    state = list(model.initial_state)
    state[2 * i], state[2 * i + 1] = status, load
    for j, other in others.items():
        state[2 * j] = other
    return state


@pytest.mark.parametrize(
    ("topology", "i", "neighbours"),
    [
        ("circle", 0, (4,)),
        ("circle", 3, (2,)),
        ("bi-ring", 0, (1, 4)),
        ("star", 0, ()),
        ("star", 3, (0,)),
        # 0 1 2
        # 3 4
        ("grid", 0, (1, 3)),
        ("grid", 1, (0, 2, 4)),
        ("grid", 2, (1,)),
        ("none", 2, ()),
    ],
)
def test_every_row_of_a_status(topology: str, i: int, neighbours: tuple[int, ...]) -> None:
    model = fmdp.problem(f"machines:5,topology={topology}")
    machines = sorted((i, *neighbours))
    assert model.structure.transition_scopes[2 * i] == (*(2 * j for j in machines), 10 + i)
    for status in (GOOD, FAIL, DEAD):
        for others in itertools.product((GOOD, FAIL, DEAD), repeat=len(neighbours)):
            burden = sum({GOOD: 0.0, FAIL: 0.2, DEAD: 0.4}[other] for other in others)
            b = burden / len(others) if others else 0.0
            expected = {
                GOOD: [0.9 - b, 0.1 + b, 0.0],
                FAIL: [0.0, 0.7 - b, 0.3 + b],
                DEAD: [0.0, 0.0, 1.0],
            }[status]
            by_neighbour = dict(zip(neighbours, others, strict=True))
            state = with_machine(model, i, status, IDLE, by_neighbour)
            action = [LEAVE] * 5
            row = model.transition_row(2 * i, state, action)
            assert_allclose(row, expected, rtol=0, atol=1e-15)
            action[i] = REBOOT
            assert list(model.transition_row(2 * i, state, action)) == [1.0, 0.0, 0.0]


def test_every_row_of_a_load_and_its_reward() -> None:
    model = fmdp.problem("machines:2")
    next_load = {
        (GOOD, IDLE): [0.6, 0.4, 0.0],
        (FAIL, IDLE): [0.6, 0.4, 0.0],
        (DEAD, IDLE): [1.0, 0.0, 0.0],
        (GOOD, LOADED): [0.0, 0.6, 0.4],
        (FAIL, LOADED): [0.0, 0.7, 0.3],
        (DEAD, LOADED): [1.0, 0.0, 0.0],
        (GOOD, DONE): [1.0, 0.0, 0.0],
        (FAIL, DONE): [1.0, 0.0, 0.0],
        (DEAD, DONE): [1.0, 0.0, 0.0],
    }
    pays = {(GOOD, LOADED): 0.4, (FAIL, LOADED): 0.3}
    for (status, load), row in next_load.items():
        state = with_machine(model, 1, status, load, {})
        assert_allclose(model.transition_row(3, state, (LEAVE, LEAVE)), row, rtol=0, atol=1e-15)
        assert list(model.transition_row(3, state, (LEAVE, REBOOT))) == [1.0, 0.0, 0.0]
        assert model.expected_reward(state, (LEAVE, LEAVE)) == pays.get((status, load), 0.0)
        assert model.expected_reward(state, (LEAVE, REBOOT)) == 0.0


def test_structure() -> None:
    model = fmdp.problem("machines:3,reward=mean")
    s = model.structure
    assert s.state_names == ("status_0", "load_0", "status_1", "load_1", "status_2", "load_2")
    assert s.action_sizes == (2, 2, 2)
    assert s.groups == ((0, 1), (2, 3), (4, 5))
    assert s.reward_scopes == ((0, 1, 6), (2, 3, 7), (4, 5, 8))
    assert s.reward_ranges == ((0.0, 0.4 / 3),) * 3
    assert model.initial_state == (GOOD, IDLE) * 3
    assert model.expected_reward((GOOD, LOADED) * 3, (LEAVE,) * 3) == pytest.approx(0.4)


@pytest.mark.parametrize("topology", ["circle", "bi-ring", "star", "grid", "none"])
def test_one_machine_has_no_neighbours(topology: str) -> None:
    model = fmdp.problem(f"machines:1,topology={topology}")
    assert model.structure.transition_scopes == ((0, 2), (0, 1, 2))


def test_two_machines_in_a_ring_are_one_neighbour_each() -> None:
    model = fmdp.problem("machines:2,topology=bi-ring")
    row = model.transition_row(0, (GOOD, IDLE, DEAD, IDLE), (LEAVE, LEAVE))
    assert_allclose(row, [0.5, 0.5, 0.0])


def test_machines_without_neighbours_share_a_crew() -> None:
    apart = fmdp.problem("machines:2,topology=none")
    shared = fmdp.problem("machines:2,topology=none,crew=1")
    assert fmdp.plan(apart).gain == pytest.approx(2 * fmdp.plan(fmdp.problem("machines:1")).gain)
    assert fmdp.plan(shared).gain < fmdp.plan(apart).gain
    large = fmdp.problem("machines:200,topology=none,crew=3").structure
    assert large.allowed((0,) * 400, (1, 1, 1) + (0,) * 197)
    assert not large.allowed((0,) * 400, (1, 1, 1, 1) + (0,) * 196)
