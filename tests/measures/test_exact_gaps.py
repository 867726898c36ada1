"""Exact integers behind the largest spans: alike states, certified gaps, proofs of zero."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fmdp
from fmdp.measures import exact_gaps
from fmdp.measures.exact_gaps import Undecided
from fmdp.measures.integer_model import IntegerModel, Row, _merged, integer_model
from fmdp.model import FactoredMDP
from fmdp.testing.strategies import models, structures

SMALL = structures(max_variables=2, max_values=3, max_states=6, max_actions=3)


def row(reward: int, **weights: int) -> Row:
    """row(1, s0=2, s3=1): reward 1, to state 0 with probability 2/3."""
    pairs = tuple(sorted((int(name[1:]), weight) for name, weight in weights.items()))
    return Row(reward, sum(weight for _, weight in pairs), pairs)


def written(*rows: list[Row]) -> IntegerModel:
    n = len(rows)
    numbers = np.zeros((n, 1), dtype=np.int64)
    return IntegerModel(list(rows), np.arange(n), numbers, 1)


def test_rows_are_exact() -> None:
    """Weights are those of the doubles over their exact sum, without common divisors."""
    table = np.array([[0.25, 0.75], [0.1, 0.9]])
    model = FactoredMDP.from_factors((2,), (1,), [((0,), table)], [((0,), np.array([0.5, 0.75]))])
    found = integer_model(model, 100)
    assert found is not None
    assert found.reward_scale == 4
    (first,), (second,) = found.rows
    assert first == Row(2, 4, ((0, 1), (1, 3)))
    assert second.reward == 3
    tenth = Fraction(0.1) / (Fraction(0.1) + Fraction(0.9))
    assert Fraction(second.weights[0][1], second.total) == tenth
    assert integer_model(model, 3) is None


def test_alike_states_are_merged() -> None:
    """A state of the circle of four machines is one of six necklaces."""
    found = integer_model(fmdp.problem("circle:4,dynamics=guestrin"), 2**20)
    assert found is not None
    assert len(found.rows) == 6
    # 0101 and 1010 are one necklace; 0011 is another.
    assert found.group[0b0101] == found.group[0b1010] != found.group[0b0011]


def test_groups_that_are_not_alike_are_refused() -> None:
    laws = [[([0], [1])], [([1], [1])]]
    owner = np.arange(2)
    together = np.zeros(2, dtype=np.int64)
    assert _merged(laws, [1, 1], owner, together) is not None
    assert _merged(laws, [1, 2], owner, together) is None


@settings(max_examples=60)
@given(st.data())
def test_gaps_solve_the_optimality_equation(data: st.DataObject) -> None:
    """In fractions, from the decimals: each state has a gap of 0, and all follow from h."""
    model = data.draw(models(SMALL, rows=("positive", "deterministic", "quarters", "sparse")))
    integers = integer_model(model, 2**20)
    assert integers is not None
    solved = exact_gaps.solve(integers, [0] * len(integers.rows))
    if solved is None:
        return
    h = [Fraction(value, solved.scale) for value in solved.bias]
    gains = set()
    for s, (rows, gaps) in enumerate(zip(integers.rows, solved.gaps, strict=True)):
        assert min(gaps) == 0
        for own, gap in zip(rows, gaps, strict=True):
            ahead = sum(Fraction(weight, own.total) * h[t] for t, weight in own.weights)
            reward = Fraction(own.reward, integers.reward_scale)
            gains.add(Fraction(gap, solved.scale) - h[s] + reward + ahead)
    assert max(gains) - min(gains) < Fraction(1, 10**60)


def test_a_tie_is_proved_and_a_near_tie_is_not_one() -> None:
    """From 0 to 1 for nothing, or to 2 for -1; from there back for 2 and 3: gain 1 both ways.

    With rewards 10^90 times as large and 1 more for the second way, the first loses 1.
    """
    tied = written([row(0, s1=1), row(-1, s2=1)], [row(2, s0=1)], [row(3, s0=1)])
    solved = exact_gaps.solve(tied, [0, 0, 0])
    assert solved is not None
    assert solved.gaps == [[0, 0], [0], [0]]
    big = 10**90
    near = written([row(0, s1=1), row(1 - big, s2=1)], [row(2 * big, s0=1)], [row(3 * big, s0=1)])
    solved = exact_gaps.solve(near, [0, 0, 0])
    assert solved is not None
    assert solved.gaps[0][1] == 0
    assert solved.gaps[0][0] / solved.scale == pytest.approx(1.0)


def test_what_is_too_near_to_call_is_undecided() -> None:
    """A difference below what the decimals show, and not zero modulo the primes."""
    big = 10**400
    near = written([row(0, s1=1), row(1 - big, s2=1)], [row(2 * big, s0=1)], [row(3 * big, s0=1)])
    with pytest.raises(Undecided):
        exact_gaps.solve(near, [0, 0, 0])


def test_equal_gains_of_two_classes_are_proved() -> None:
    """A third of the time in state 0 pays as much as 1/3 for ever; 0.3333 does not."""
    thirds = [[row(3, s1=1)], [row(0, s1=1, s0=1)]]
    assert exact_gaps.solve(written(*thirds, [row(1, s2=1)]), [0, 0, 0]) is not None
    assert exact_gaps.solve(written(*thirds, [row(2, s2=1)]), [0, 0, 0]) is None


def test_refinement_is_as_good_as_decimals(monkeypatch: pytest.MonkeyPatch) -> None:
    integers = integer_model(fmdp.problem("circle:5"), 2**20)
    assert integers is not None
    start = [0] * len(integers.rows)
    decimals = exact_gaps.solve(integers, start)
    monkeypatch.setattr(exact_gaps, "DECIMAL_STATES", 0)
    refined = exact_gaps.solve(integers, start)
    assert decimals is not None
    assert refined is not None
    apart = [abs(x - y) for x, y in zip(decimals.bias, refined.bias, strict=True)]
    assert max(apart) < decimals.scale // 10**60
    zeros = [[gap == 0 for gap in own] for own in decimals.gaps]
    assert zeros == [[gap == 0 for gap in own] for own in refined.gaps]


def test_primes() -> None:
    found = exact_gaps._primes()
    # The three largest below 2^31.
    assert [next(found) for _ in range(3)] == [2147483647, 2147483629, 2147483587]
