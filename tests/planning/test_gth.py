"""Stationary laws and expected totals of slow chains, against fractions."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fmdp.planning.tabular.gth import (
    expected_totals,
    relative_error,
    stationary_law,
)

EPS = float(np.finfo(float).eps)
RATES = st.sampled_from([0.5, 0.25, 1e-3, 1e-9, 1e-14, 1e-17])


def test_by_hand() -> None:
    """Leaving with l and 3 l: three quarters and a quarter. Half a chance to end: two steps."""
    leak = 1e-15
    law = stationary_law(np.array([[1 - leak, leak], [3 * leak, 1 - 3 * leak]]))
    assert law == pytest.approx([0.75, 0.25], rel=1e-14)
    assert stationary_law(np.ones((1, 1))) == 1.0
    totals = expected_totals(np.array([[0.5]]), np.array([0.5]), np.array([[1.0, 3.0]]))
    assert totals.tolist() == [[2.0, 6.0]]


@given(st.data())
def test_errors_are_relative_to_each_number(data: st.DataObject) -> None:
    """The diagonal is not used, so the chain is what the probabilities of moving say."""
    n = data.draw(st.integers(1, 5))
    rates = data.draw(st.lists(RATES, min_size=n * (n + 1), max_size=n * (n + 1)))
    table = np.array(rates).reshape(n, n + 1) / (n + 1)
    paid = np.arange(1.0, n + 1)
    exact = [[Fraction(x) for x in row] for row in table.tolist()]
    bound = Fraction(relative_error(n, EPS))
    true = expected_totals(
        np.array([row[1:] for row in exact], dtype=object),
        np.array([row[0] for row in exact], dtype=object),
        np.array([Fraction(x) for x in paid.tolist()], dtype=object),
    )
    found = expected_totals(table[:, 1:], table[:, 0], paid)
    for s, row in enumerate(exact):  # the solution in fractions solves the equations
        away = sum((row[1 + t] * (true[s] - true[t]) for t in range(n) if t != s), Fraction(0))
        assert away + row[0] * true[s] == Fraction(paid[s])
    for value, wanted in zip(found.tolist(), true, strict=True):
        assert abs(Fraction(value) - wanted) <= bound * wanted
    square = np.array([row[1:] for row in exact], dtype=object)
    law = stationary_law(square)
    for t in range(n):
        flow = sum(law[s] * square[s, t] - law[t] * square[t, s] for s in range(n) if s != t)
        assert flow == 0
    for value, wanted in zip(stationary_law(table[:, 1:]).tolist(), law, strict=True):
        assert abs(Fraction(value) - wanted) <= bound * wanted
