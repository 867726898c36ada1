"""Coffee and Taxi, whose numbers are those of the public code of DBN-UCRL, and the epidemic."""

from __future__ import annotations

import numpy as np
import pytest

import fmdp
from fmdp.errors import InvalidParameter


def test_coffee_gains_what_its_best_round_does() -> None:
    """Move, buy, move take 10/9 steps each and a delivery 1; nine of ten succeed: 130/27 steps. One
    more step with coffee, and if it rains 10/9 for the umbrella. The robot is always dry."""
    steps = 130 / 27 + 1 + 0.5 * 10 / 9
    gain = fmdp.plan(fmdp.problem("coffee")).gain
    assert gain == pytest.approx(0.2 + 1.8 / steps, abs=1e-6)


def test_coffee_rows() -> None:
    model = fmdp.problem("coffee")
    structure = model.structure
    names = structure.state_names
    assert names == ("wet", "umbrella", "rain", "place", "user", "robot")
    rain = (0, 0, 1, 0, 0, 0)
    assert list(model.transition_row(0, rain, (0,))) == [0.0, 1.0]  # wet, if it moves
    assert list(model.transition_row(0, (0, 1, 1, 0, 0, 0), (0,))) == [1.0, 0.0]
    assert model.transition_row(1, rain, (3,))[1] == pytest.approx(0.9)
    assert model.transition_row(3, rain, (0,))[1] == pytest.approx(0.9)
    assert model.transition_row(4, (0, 0, 1, 0, 0, 1), (2,))[1] == pytest.approx(0.9)
    assert model.transition_row(4, (0, 0, 1, 1, 0, 1), (2,))[1] == 0.0  # not in the shop
    assert list(model.transition_row(5, (0, 0, 1, 0, 0, 1), (2,))) == [1.0, 0.0]
    served = (1, 1, 1, 1, 1, 1)
    assert [model.transition_row(i, served, (1,))[1] for i in range(5)] == [0, 0, 0.5, 0, 0]
    assert model.expected_reward((0, 0, 0, 0, 1, 0), (0,)) == 2.0


@pytest.mark.parametrize(("size", "states"), [(3, 135), (5, 600)])
def test_taxi_rows(size: int, states: int) -> None:
    model = fmdp.problem(f"taxi:{size}")
    assert model.structure.n_states == states
    waits = (0, 0, 0, 1)
    rides, arrived = size - (size == 5), size + (size == 3)
    assert list(model.transition_row(0, waits, (2,)))[:2] == [1.0, 0.0]  # a wall on the right
    assert model.transition_row(0, (0, 2, 0, 1), (2,))[1] == (0.0 if size == 3 else 0.8)
    assert list(model.transition_row(1, waits, (0,)))[:2] == pytest.approx([0.2, 0.8])
    top = (0, size - 1, 0, 1)
    assert model.transition_row(2, top, (4,))[rides] == 1.0
    assert model.transition_row(2, (0, size - 1, rides, 0), (5,))[arrived] == 1.0
    assert model.transition_row(2, (0, size - 1, rides, 1), (5,))[0] == 1.0  # put down and waits
    places = arrived - 1
    for factor in (2, 3):
        law = model.transition_row(factor, (1, 1, arrived, 0), (0,))
        np.testing.assert_allclose(law[:places], 1 / places)
    assert model.expected_reward(waits, (4,)) == 0.0  # nobody waits here
    assert model.expected_reward(top, (4,)) == pytest.approx(9 / 15)
    assert model.expected_reward((1, 1, arrived, 0), (4,)) == pytest.approx(2.0)


def test_taxi_has_two_sizes() -> None:
    with pytest.raises(InvalidParameter, match="the size of taxi must be 3 or 5; got 4"):
        fmdp.problem("taxi:4")


@pytest.mark.parametrize(
    ("cost", "gain"), [(20.0, 0.1 / 0.12), (5.0, (50 - 1.25 * 5) / (50 + 1.25))]
)
def test_gains_of_a_person_alone(cost: float, gain: float) -> None:
    """recovery / (recovery + spark), where a treatment costs too much; else 1 / spark healthy steps
    and 1 / cure steps of treatment take turns."""
    model = fmdp.problem(f"epidemic:1,recovery=.1,spark=.02,cure=.8,cost={cost}")
    assert fmdp.plan(model).gain == pytest.approx(gain, abs=1e-6)


def test_epidemic_rows() -> None:
    model = fmdp.problem("epidemic:4,graph=star,infection=.5,spark=.1")
    nobody = 4
    assert model.structure.transition_scopes[0] == (0, 1, 2, 3, 4)
    assert model.structure.transition_scopes[2] == (0, 2, 4)
    assert model.transition_row(0, (0, 1, 1, 0), (nobody,))[0] == pytest.approx(0.9 * 0.25)
    assert model.transition_row(0, (0, 1, 1, 0), (0,))[0] == 1.0
    assert model.transition_row(1, (0, 1, 0, 0), (nobody,))[0] == pytest.approx(0.1)
    assert model.transition_row(1, (0, 1, 0, 0), (1,))[0] == pytest.approx(0.8)
    assert model.expected_reward((0, 1, 0, 0), (1,)) == pytest.approx(2.8)
    assert model.expected_reward((0, 1, 0, 0), (nobody,)) == 3.0


def test_graphs_of_an_epidemic() -> None:
    scopes = {
        graph: fmdp.problem(f"epidemic:4,graph={graph}").structure.transition_scopes[3]
        for graph in ("ring", "grid", "star", "complete")
    }
    assert scopes == {
        "ring": (0, 2, 3, 4),
        "grid": (1, 2, 3, 4),
        "star": (0, 3, 4),
        "complete": (0, 1, 2, 3, 4),
    }
