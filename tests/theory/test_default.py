"""Proposition 14 of docs/theory.md: raised rows are optimistic where the bias is a sum."""

from __future__ import annotations

import numpy as np
import pytest

import fmdp
from fmdp.planning.spans import marginals

PRODUCTS = ("jao:2", "jao:1,delta=0.1,epsilon=0.2,actions=3", "riverswim:1", "riverswim:2")


def moved(model: fmdp.FactoredMDP, seed: int, *, up: bool) -> fmdp.FactoredMDP:
    """Every row gives a random share of its mass to its best value, or to its worst."""
    plan = fmdp.Exact(tolerance=1e-9).plan(model)
    assert plan.bias is not None
    generator = np.random.default_rng(seed)
    tables = []
    for worth, table in zip(
        marginals(plan.bias, model.structure.state_sizes), model.transitions, strict=True
    ):
        share = generator.random((len(table), 1)) * (generator.random((len(table), 1)) < 0.5)
        target = np.zeros(len(worth))
        target[np.argmax(worth if up else -worth)] = 1.0
        tables.append((1.0 - share) * table + share * target)
    return fmdp.FactoredMDP(model.structure, tables, model.rewards)


@pytest.mark.parametrize("problem", PRODUCTS)
def test_raised_rows_are_optimistic_in_products(problem: str) -> None:
    model = fmdp.problem(problem)
    truth = fmdp.plan(model).gain_lower
    assert truth is not None
    lowest = truth
    for seed in range(5):
        raised = fmdp.plan(moved(model, seed, up=True)).gain_upper
        lowered = fmdp.plan(moved(model, seed, up=False)).gain_upper
        assert raised is not None
        assert lowered is not None
        assert raised >= truth - 1e-9
        lowest = min(lowest, lowered)
    # The control: lowered rows are not.
    assert lowest < truth - 1e-3


def test_the_bias_of_a_product_is_a_sum_and_that_of_a_match_is_not() -> None:
    bias = fmdp.Exact(tolerance=1e-9).plan(fmdp.problem("jao:2")).bias
    assert bias is not None
    first, second = marginals(bias, (2, 2))
    summed = first[:, None] + second[None, :]
    assert bias.reshape(2, 2) - summed == pytest.approx((bias[0] - summed[0, 0]) * np.ones((2, 2)))
    # h = 1{s_0 = s_1}: nothing to raise a row for.
    for flat in marginals(np.array([1.0, 0.0, 0.0, 1.0]), (2, 2)):
        assert flat[0] == flat[1]
