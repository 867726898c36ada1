"""The products of one small MDP: JAO, the two circles, RiverSwim, coupled rivers, locks."""

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


def test_a_river_of_another_length_and_left_reward() -> None:
    model = fmdp.problem("riverswim:1,length=3,left=.1")
    assert model.name == "riverswim:1,length=3,left=0.1"
    right = [list(model.transition_row(0, (s,), (1,))) for s in range(3)]
    assert right == [[0.4, 0.6, 0.0], [0.05, 0.6, 0.35], [0.0, 0.4, 0.6]]
    assert model.expected_reward((0,), (0,)) == 0.1
    assert fmdp.problem("riverswim:1,length=6,left=0.005") == fmdp.problem("riverswim:1")


@pytest.mark.parametrize(
    ("length", "diameter"),
    [(6, 14.72), (12, 34.72), (20, 61.39), (40, 128.06), (70, 228.06), (100, 328.06)],
)
def test_rivers_have_the_published_diameters(length: int, diameter: float) -> None:
    """The published numbers, and the sum of 10/3 - (5/3) 7^-s over s < S - 1."""
    measures = fmdp.measures.measure(fmdp.problem(f"riverswim:1,length={length}"))
    assert measures.diameter == pytest.approx(diameter, abs=0.005)
    exact = 10 * (length - 1) / 3 - 35 / 18 * (1 - 7.0 ** (1 - length))
    assert measures.diameter == pytest.approx(exact, rel=1e-6)


def test_coupled_rivers_pay_for_being_at_the_right_ends_together() -> None:
    model = fmdp.problem("coupled-rivers:2,length=4")
    assert model.expected_reward((3, 3), (1, 1)) == 4.0
    assert model.expected_reward((3, 3), (1, 0)) == 1.0
    assert model.expected_reward((0, 3), (0, 1)) == pytest.approx(1.05)
    halved = fmdp.problem("coupled-rivers:2,length=4,reward=mean")
    assert halved.expected_reward((3, 3), (1, 1)) == 2.0


def test_gains_of_coupled_rivers() -> None:
    """Without a left reward it is best to swim right always: the rivers are then independent, and
    a river is at its right end for a share p of the time."""
    share = fmdp.plan(fmdp.problem("riverswim:1,length=4,left=0")).gain
    together = fmdp.plan(fmdp.problem("coupled-rivers:2,length=4,left=0,bonus=3")).gain
    alone = fmdp.plan(fmdp.problem("coupled-rivers:2,length=4,left=0,bonus=0")).gain
    assert share is not None
    assert alone == pytest.approx(2 * share, abs=1e-6)
    assert together == pytest.approx(2 * share + 2 * 3 * share**2, abs=1e-6)


def test_lock_rows() -> None:
    model = fmdp.problem("lock:3,actions=2,success=.75")
    assert list(model.transition_row(0, (0,), (1,))) == [0.25, 0.75, 0.0]
    assert list(model.transition_row(0, (1,), (0,))) == [0.25, 0.0, 0.75]
    assert list(model.transition_row(0, (2,), (1,))) == [1.0, 0.0, 0.0]
    assert list(model.transition_row(0, (1,), (1,))) == [1.0, 0.0, 0.0]
    assert [model.expected_reward((2,), (a,)) for a in (0, 1)] == [0.0, 0.75]
    assert model.expected_reward((1,), (0,)) == 0.0


@pytest.mark.parametrize(
    ("lock", "gain"),
    [
        ("lock:5", 1 / 5),
        ("lock:5,actions=4", 1 / 5),
        ("lock:4,success=.8", 0.8**4 * 0.2 / (1 - 0.8**4)),
        ("lock:3,success=.5,copies=2", 2 * 0.125 * 0.5 / 0.875),
    ],
)
def test_a_lock_gains_what_a_run_of_successes_does(lock: str, gain: float) -> None:
    assert fmdp.plan(fmdp.problem(lock)).gain == pytest.approx(gain, abs=1e-6)
