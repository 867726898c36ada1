"""Factored spans: Proposition 1, their metric, and the deviation that they bound."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fmdp.measures import factored_spans, span
from fmdp.testing.oracles import assignments
from fmdp.testing.strategies import structures, values

ROUNDING = 1e-9


def literal_factored_spans(h: np.ndarray, sizes: tuple[int, ...]) -> tuple[float, ...]:
    """sp_i = max over pairs of states that differ in variable i alone."""
    states = list(assignments(sizes))
    spans = [0.0] * len(sizes)
    for (a, s), (b, t) in itertools.product(enumerate(states), repeat=2):
        differ = [i for i in range(len(sizes)) if s[i] != t[i]]
        if len(differ) == 1:
            spans[differ[0]] = max(spans[differ[0]], h[a] - h[b])
    return tuple(spans)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_proposition_1(data: st.DataObject) -> None:
    """sp(h) <= Q(h) <= m sp(h)."""
    structure = data.draw(structures(max_states=36))
    h = data.draw(values(structure))
    spans = factored_spans(h, structure.state_sizes)
    assert spans == pytest.approx(literal_factored_spans(h, structure.state_sizes))
    q = sum(spans)
    assert span(h) <= q + ROUNDING
    assert q <= structure.m * span(h) + ROUNDING


def test_proposition_1_is_tight_on_both_sides() -> None:
    one_corner = np.zeros(8)
    one_corner[5] = 1.0
    assert factored_spans(one_corner, (2, 2, 2)) == (1.0, 1.0, 1.0)  # Q = m sp
    count_of_ones = np.array([bin(s).count("1") for s in range(8)], dtype=float)
    assert sum(factored_spans(count_of_ones, (2, 2, 2))) == span(count_of_ones) == 3.0  # Q = sp
    # A variable with one value has no span: Q = m sp needs two values of every variable.
    one_of_two = np.array([1.0, 0.0])
    assert factored_spans(one_of_two, (2, 1)) == (1.0, 0.0)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_additive_functions_have_no_gap(data: st.DataObject) -> None:
    structure = data.draw(structures(max_states=36))
    h = data.draw(values(structure, additive=True))
    assert sum(factored_spans(h, structure.state_sizes)) == pytest.approx(span(h), abs=1e-7)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_budgets_are_a_lipschitz_condition(data: st.DataObject) -> None:
    """sp_i(h) <= c_i for every i exactly if |h(s) - h(t)| <= sum_i c_i 1{s_i != t_i}."""
    structure = data.draw(structures(max_states=24))
    h = data.draw(values(structure))
    spans = np.array(factored_spans(h, structure.state_sizes))
    budgets = spans * data.draw(st.sampled_from((1.0, 0.9)))
    states = np.array(list(assignments(structure.state_sizes)))
    distance = (states[:, None, :] != states[None, :, :]) @ budgets
    lipschitz = bool((np.abs(h[:, None] - h) <= distance + ROUNDING).all())
    assert lipschitz is bool((spans <= budgets + ROUNDING).all())


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_deviation_of_products(data: st.DataObject) -> None:
    """(P - Q) h <= 1/2 sum_i |P_i - Q_i|_1 sp_i(h) for products P, Q of distributions.

    The paper's Theorem 4 rests on it without the 1/2.
    """
    structure = data.draw(structures(max_states=36))
    h = data.draw(values(structure))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    left = right = np.ones(1)
    bound = 0.0
    for size, own in zip(
        structure.state_sizes, factored_spans(h, structure.state_sizes), strict=True
    ):
        p, q = rng.dirichlet(np.full(size, 0.3)), rng.dirichlet(np.full(size, 0.3))
        left, right = np.outer(left, p).ravel(), np.outer(right, q).ravel()
        bound += 0.5 * np.abs(p - q).sum() * own
    assert abs((left - right) @ h) <= bound + ROUNDING
