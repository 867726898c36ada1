"""The referee of discounts near 1 refereed."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

import fmdp
from referee import recipes
from referee.claims import Case
from referee.discounts import judge_discount, true_mean
from referee.ledger import Ledger

CASE = Case(recipes.rooms((0.2, 0.7), 2, False))
DISCOUNT = 0.99999


def _honest() -> fmdp.Plan:
    """Both states of a room pay its gain: the mean value is that of the gains / (1 - discount)."""
    mean = (Fraction(0.2) + Fraction(0.7)) / 2 / (1 - Fraction(DISCOUNT))
    assert true_mean(CASE, DISCOUNT) == mean
    value = float(mean)
    bounds = {"objective_bounds": (value - 1e-7, value + 1e-7)}
    return fmdp.Plan("exact", fmdp.Status.CONVERGED, objective=value, stats=bounds)


def _broken(plan: fmdp.Plan) -> set[str]:
    ledger = Ledger()
    judge_discount(ledger, CASE, plan, DISCOUNT)
    return ledger.claims_broken


def test_an_honest_plan_passes() -> None:
    assert _broken(_honest()) == set()


@pytest.mark.parametrize(
    ("by", "claim"),
    [
        ((1e-8, 1e-7), "discount near 1: objective within its bounds"),
        ((-1.0, 1.0), "discount near 1: converged means bounds within the tolerance"),
    ],
)
def test_wrong_bounds_are_caught(by: tuple[float, float], claim: str) -> None:
    plan = _honest()
    bounds = (plan.objective + by[0], plan.objective + by[1])
    assert claim in _broken(replace(plan, stats={"objective_bounds": bounds}))


def test_a_plan_that_gives_up_is_caught() -> None:
    stopped = replace(_honest(), status=fmdp.Status.ITERATION_LIMIT, objective=None)
    assert _broken(stopped) == {"discount near 1: converged, or at the limit of precision"}
