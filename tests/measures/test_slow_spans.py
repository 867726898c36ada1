"""Largest spans of slow models by hand: small gaps that are paid for very many steps."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from fmdp.measures import LargestSpans, largest_span, largest_spans, measure
from fmdp.model import FactoredMDP

Rows = list[list[list[float]]]


def model_of(transitions: Rows, rewards: list[list[float]]) -> FactoredMDP:
    """One variable; transitions [S, A, S], rewards [S, A]."""
    table = np.array(transitions, dtype=float)
    n_states, n_actions, _ = table.shape
    return FactoredMDP.from_factors(
        (n_states,),
        (n_actions,),
        [((0, 1), table.reshape(-1, n_states))],
        [((0, 1), np.array(rewards).reshape(-1))],
        reward_ranges=((0.0, 1.0),),
    )


def spans(model: FactoredMDP) -> LargestSpans:
    found = largest_spans(model)
    assert found is not None
    return found


def dawdling(leak: float, reward: float) -> FactoredMDP:
    """State 0 pays 1 for ever. State 1 pays 1 and goes there, or pays less and hardly ever goes."""
    return model_of([[[1, 0], [1, 0]], [[1, 0], [leak, 1 - leak]]], [[1.0, 1.0], [1.0, reward]])


@pytest.mark.parametrize("leak", [1e-6, 1e-12, 1e-14, 1e-17])
@pytest.mark.parametrize("less", [1e-6, 1e-10, 1e-13])
def test_a_tiny_gap_is_paid_until_the_state_is_left(leak: float, less: float) -> None:
    """The slow action loses 1 - reward in each of (stay + leak) / leak steps on average."""
    reward = 1.0 - less
    stay = Fraction(1.0 - leak)
    true = (1 - Fraction(reward)) * (stay + Fraction(leak)) / Fraction(leak)
    found = spans(dawdling(leak, reward))
    assert Fraction(found.span[0]) <= true <= Fraction(found.span[1])
    assert found.value == pytest.approx(float(true), rel=1e-14)


def test_a_room_that_pays_a_trillionth_less_is_not_optimal() -> None:
    """Both rooms can be kept for ever. Only the first is optimal; the way there loses 1e-12."""
    reward = 1.0 - 1e-12
    slow = model_of([[[1, 0], [1, 0]], [[0, 1], [1, 0]]], [[1.0, 1.0], [reward, reward]])
    true = float(1 - Fraction(reward))
    assert spans(slow).value == pytest.approx(true, rel=1e-14)
    tied = model_of([[[1, 0], [1, 0]], [[0, 1], [1, 0]]], [[1.0, 1.0], [1.0, reward]])
    assert spans(tied).value == pytest.approx(true, rel=1e-14)


@pytest.mark.parametrize("leak", [1e-12, 1e-14, 1e-17])
def test_a_constant_reward_has_no_span(leak: float) -> None:
    """Two rooms that are left once in 10^12 steps, the second three times as often."""
    rooms = model_of(
        [[[1 - leak, leak], [1, 0]], [[3 * leak, 1 - 3 * leak], [0, 1]]], [[0.6, 0.6], [0.6, 0.6]]
    )
    found = spans(rooms)
    assert found.span == (0.0, 0.0)
    assert found.factored == ((0.0, 0.0),)
    measured = measure(rooms)
    assert measured.span == 0.0
    assert measured.largest_span == 0.0


@pytest.mark.parametrize("leak", [1e-6, 1e-13])
def test_two_slow_rooms(leak: float) -> None:
    """Chances l and 2 l of leaving, rewards 1 and 0: gain 2/3, and h(0) - h(1) = (1 - 2/3) / l."""
    rooms = model_of([[[1 - leak, leak]], [[2 * leak, 1 - 2 * leak]]], [[1.0], [0.0]])
    found = spans(rooms)
    assert found.value == pytest.approx(1 / (3 * leak), rel=1e-10)
    assert found.of_bias == pytest.approx((1 / (3 * leak),) * 2, rel=1e-10)


def test_a_span_where_the_gain_is_known_before_the_bias() -> None:
    """State 1 pays 1 for ever; state 0 goes there for nothing, or stays for 1 - 1e-10.

    Gains within 1e-9 satisfy a plan, which then stays in state 0 for ever. To go is optimal, and
    h(1) - h(0) is the reward that is lost once.
    """
    rooms = model_of([[[0, 1], [1, 0]], [[0, 1], [0, 1]]], [[0.0, 1.0 - 1e-10], [1.0, 1.0]])
    measured = measure(rooms)
    assert measured.span == 1.0
    assert measured.factored_spans == (1.0,)
    assert measured.factored_span_sum == 1.0


def test_the_bias_of_two_rooms_is_not_unique() -> None:
    """Each room may have its own constant, so the exact solution says nothing of the span."""
    rooms = model_of([[[1, 0]], [[0, 1]]], [[0.5], [0.5]])
    assert spans(rooms).of_bias is None
    assert spans(rooms).span == (0.0, 0.0)


def test_no_traceback_where_a_matrix_of_doubles_is_singular() -> None:
    """1 - 1e-18 is 1: a state that is left, and a row that says it stays."""
    transitions = [
        [[0, 0, 0, 1], [1, 0, 0, 0], [0, 0, 0, 1]],
        [[0, 1, 0, 0], [1e-18, 0, 0, 1], [0, 1, 0, 0]],
        [[0, 0.5, 0.5, 0], [3e-8, 0, 1 - 3e-8, 0], [0, 0.5, 0.5, 0]],
        [[0, 1 - 1e-9, 1e-9, 0], [0, 0, 1, 0], [0, 0.999, 0.001, 0]],
    ]
    rewards = [[1 - 1e-11, 1, 0.5], [1 - 1e-9, 0.5, 1], [1, 0, 1 - 1e-7], [0.5, 0, 0.5]]
    found = spans(model_of(transitions, rewards))
    assert found.value is not None
    assert 0 < found.value < math.inf


@pytest.mark.parametrize("leak", [1e-3, 1e-8])
def test_doubles_and_decimals_agree(leak: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Five states in a row, each may hurry home or dawdle; the search in doubles has wider bounds
    that hold."""
    n = 5
    table = np.zeros((n, 2, n))
    for s in range(n):
        home = max(s - 1, 0)
        table[s, 0, home] = 1.0
        table[s, 1, home] += leak
        table[s, 1, s] += 1 - leak
    rewards = np.zeros((n, 2))
    rewards[0] = 1.0
    model = model_of(table.tolist(), rewards.tolist())
    precise = spans(model)
    assert precise.value == pytest.approx((n - 1) / leak, rel=1e-9)
    monkeypatch.setattr(largest_span, "_DECIMAL_FIRST", 0)
    monkeypatch.setattr(largest_span, "_DECIMAL_AT_ALL", 0)
    rough = spans(model)
    assert rough.span[0] <= precise.span[0]
    assert precise.span[1] <= rough.span[1]
    assert rough.value == pytest.approx(precise.value, rel=1e-9)


def test_bounds_are_0_and_infinity_where_nothing_is_proved(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(largest_span, "_INTEGER_ENTRIES", 0)
    found = spans(dawdling(0.5, 0.5))
    assert found.span == (0.0, math.inf)
    assert found.value is None


def test_a_gap_that_doubles_cannot_hold() -> None:
    """Both rooms can be kept; the second pays the least double less than the first."""
    least = 5e-324
    rooms = model_of([[[1, 0], [1, 0]], [[0, 1], [1, 0]]], [[least, least], [0.0, 0.0]])
    found = spans(rooms)
    assert found.span[0] <= least <= found.span[1]
    assert found.span[1] < 1e-300
