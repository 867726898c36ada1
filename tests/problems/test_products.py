"""The families that are products of one small MDP: JAO, the two circles, RiverSwim."""

from __future__ import annotations

import pytest
from numpy.testing import assert_allclose

import fmdp
from fmdp.errors import InvalidParameter
from fmdp.model import product


@pytest.mark.parametrize("family", ["jao", "riverswim"])
def test_n_copies_are_the_product_of_one_with_itself(family: str) -> None:
    model, one = fmdp.problem(f"{family}:3"), fmdp.problem(f"{family}:1")
    expected = product(one, one, one)
    assert model.structure == expected.structure
    assert model.initial_state == expected.initial_state
    for got, wanted in zip(
        model.transitions + model.rewards, expected.transitions + expected.rewards, strict=True
    ):
        assert_allclose(got, wanted, rtol=0, atol=0)


def test_mean_divides_by_the_number_of_copies() -> None:
    model = fmdp.problem("riverswim:4,reward=mean")
    assert model.structure.reward_ranges == ((0.0, 0.25),) * 4
    assert model.expected_reward((5, 0, 0, 0), (1, 0, 1, 1)) == pytest.approx(1.005 / 4)
    circles = fmdp.problem("large-diameter,reward=mean")
    assert circles.expected_reward((0, 1), (0, 0)) == 0.5


def test_jao_rows() -> None:
    model = fmdp.problem("jao:1,delta=.25,epsilon=.125,actions=3")
    up = [float(model.transition_row(0, (0,), (a,))[1]) for a in range(3)]
    down = [float(model.transition_row(0, (1,), (a,))[0]) for a in range(3)]
    assert up == [0.25, 0.25, 0.375]
    assert down == [0.25] * 3
    assert [model.expected_reward((s,), (0,)) for s in (0, 1)] == [0.0, 1.0]
    assert model.structure.reward_scopes == ((0,),)


def test_jao_up_to_certainty_and_not_beyond() -> None:
    assert fmdp.problem("jao:1,delta=.41,epsilon=.59").transition_row(0, (0,), (1,))[1] == 1.0
    assert fmdp.problem("jao:1,delta=.5,epsilon=.5").transition_row(0, (0,), (1,))[1] == 1.0
    with pytest.raises(InvalidParameter, match=r"at most 1 - delta = 0\.5; got 0\.6"):
        fmdp.problem("jao:1,delta=.5,epsilon=.6")


def test_large_diameter_moves_one_step_on_its_circle() -> None:
    model = fmdp.problem("large-diameter")
    assert model.structure.state_sizes == (4, 4)
    assert model.structure.transition_scopes == ((0, 2), (1, 3))
    for s in range(4):
        assert model.transition_row(1, (0, s), (0, 0))[(s - 1) % 4] == 1.0
        assert model.transition_row(1, (0, s), (0, 1))[(s + 1) % 4] == 1.0
    assert [model.expected_reward((s, s), (0, 0)) for s in range(4)] == [2.0, 0.0, 0.0, 0.0]


def test_riverswim_rows() -> None:
    model = fmdp.problem("riverswim:1")
    right = [list(model.transition_row(0, (s,), (1,))) for s in range(6)]
    assert right == [
        [0.4, 0.6, 0.0, 0.0, 0.0, 0.0],
        [0.05, 0.6, 0.35, 0.0, 0.0, 0.0],
        [0.0, 0.05, 0.6, 0.35, 0.0, 0.0],
        [0.0, 0.0, 0.05, 0.6, 0.35, 0.0],
        [0.0, 0.0, 0.0, 0.05, 0.6, 0.35],
        [0.0, 0.0, 0.0, 0.0, 0.4, 0.6],
    ]
    for s in range(6):
        assert model.transition_row(0, (s,), (0,))[max(0, s - 1)] == 1.0
    rewards = [[model.expected_reward((s,), (a,)) for a in (0, 1)] for s in range(6)]
    assert rewards == [[0.005, 0.0], [0.0, 0.0], [0.0, 0.0], [0.0, 0.0], [0.0, 0.0], [0.0, 1.0]]
