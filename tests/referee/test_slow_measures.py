"""Measures of slow models against brute force, and controls: wrong measures are caught."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from fmdp.measures import Measures
from referee import recipes, slow_measures, truth
from referee.ledger import Ledger

LEAK = 1e-12
DAWDLING = recipes.flat(
    "dawdling",
    "slow",
    np.array([[[1, 0], [1, 0]], [[1, 0], [LEAK, 1 - LEAK]]]),
    np.array([[1.0, 1.0], [1.0, 1.0 - 1e-10]]),
)
"""State 1 may lose 1e-10 for 10^12 steps: a largest span of 100, where h is constant."""
LOST = float((1 - Fraction(1.0 - 1e-10)) * (Fraction(1 - LEAK) + Fraction(LEAK)) / Fraction(LEAK))
ROOMS = recipes.flat(
    "rooms",
    "slow",
    np.array([[[1 - LEAK, LEAK]], [[LEAK, 1 - LEAK]]]),
    np.array([[1.0], [0.0]]),
)
"""Gain 1/2, and 1 - 1/2 is won in each of the 1 / LEAK steps before the first room is left."""


def _nothing_disagrees(short: bool) -> None:
    ledger = slow_measures.play(short)
    assert ledger.compared > 0
    shown = [str(item) for claim in sorted(ledger.claims_broken) for item in ledger.smallest(claim)]
    assert not shown, "\n".join(["", ledger.table(), *shown])


@pytest.mark.referee
def test_a_few_slow_models() -> None:
    _nothing_disagrees(True)


@pytest.mark.slow
@pytest.mark.referee
def test_all_slow_models() -> None:
    _nothing_disagrees(False)


def test_the_models_are_what_they_should_be() -> None:
    """Slow, tied, with several classes, periodic, with one state: some of each."""
    found = slow_measures.models(True)
    flats = [truth.flatten(recipe) for recipe in found]
    assert any(recipe.n_states == 1 for recipe in found)
    assert any(len(recipe.state_sizes) == 2 for recipe in found)
    bests = [truth.best(flat) for flat in flats]
    assert not all(best.one_gain for best in bests)
    pairs = [(flat, best) for flat, best in zip(flats, bests, strict=True) if best.one_gain]
    assert not all(slow_measures.unique_bias(flat, best) for flat, best in pairs)
    assert any(len(truth.recurrent([own[0] for own in flat.rows])) > 1 for flat in flats)


def _honest(recipe: recipes.Recipe, span: float, largest: float, diameter: float) -> Measures:
    def around(value: float) -> tuple[float, float]:
        return value * (1 - 1e-12), value * (1 + 1e-12)

    return Measures(
        diameter=diameter,
        diameter_bounds=(diameter, diameter) if math.isinf(diameter) else around(diameter),
        span=span,
        factored_spans=(span,),
        factored_span_sum=span,
        largest_span=largest,
        largest_span_bounds=around(largest),
        largest_factored_spans=(largest,),
        largest_factored_spans_bounds=(around(largest),),
        largest_factored_span_sum=largest,
        gain=1.0,
        gain_bounds=(1.0, 1.0),
        status="converged",
        mixing_time=None,
        m=1,
        l=1,
        L=recipe.n_states * recipe.n_actions,
        W=recipe.n_states,
    )


SLOW = _honest(DAWDLING, 0.0, LOST, math.inf)
APART = _honest(ROOMS, 0.5 / LEAK, 0.5 / LEAK, 1 / LEAK)


def _broken(recipe: recipes.Recipe, found: Measures) -> set[str]:
    ledger = Ledger()
    slow_measures.judge(ledger, recipe, found)
    return ledger.claims_broken


def test_honest_measures_pass() -> None:
    assert _broken(DAWDLING, SLOW) == set()
    assert _broken(ROOMS, APART) == set()


@pytest.mark.parametrize(
    ("recipe", "honest", "wrong", "claim"),
    [
        (
            DAWDLING,
            SLOW,
            {"largest_span_bounds": (0.0, 0.0)},
            "slow models: bounds of the largest spans hold",
        ),
        (
            DAWDLING,
            SLOW,
            {"largest_span_bounds": (LOST * (1 + 1e-9), math.inf)},
            "slow models: bounds of the largest spans hold",
        ),
        (DAWDLING, SLOW, {"largest_span": 0.0}, "slow models: largest spans"),
        (DAWDLING, SLOW, {"largest_span": LOST * (1 + 1e-8)}, "slow models: largest spans"),
        (
            DAWDLING,
            SLOW,
            {"largest_span": None},
            "slow models: the largest spans of small models are known",
        ),
        (
            DAWDLING,
            SLOW,
            {"largest_span_bounds": None},
            "slow models: the largest span has bounds",
        ),
        (DAWDLING, SLOW, {"span": 1e-5}, "slow models: spans where the bias is unique"),
        (
            DAWDLING,
            SLOW,
            {"diameter_bounds": (1.0, 1e30)},
            "slow models: infinite diameter",
        ),
        (
            ROOMS,
            APART,
            {"diameter_bounds": (0.0, (1 - 1e-9) / LEAK)},
            "slow models: bounds of the diameter hold",
        ),
    ],
)
def test_a_wrong_number_is_caught(
    recipe: recipes.Recipe, honest: Measures, wrong: dict[str, Any], claim: str
) -> None:
    assert _broken(recipe, replace(honest, **wrong)) == {claim}


def test_a_largest_span_where_there_is_none_is_caught() -> None:
    """Two rooms of different gains."""
    rooms = recipes.flat("two", "slow", np.eye(2)[:, None, :], np.array([[1.0], [0.0]]))
    claim = "slow models: no largest span where the gain depends on the state"
    assert _broken(rooms, _honest(rooms, 1.0, 1.0, math.inf)) == {claim}


@pytest.mark.parametrize(
    ("steps", "caught"), [(1.0, True), (2.0, False), (3.0, True), (math.inf, True)]
)
def test_a_wrong_mixing_time_is_caught(steps: float, caught: bool) -> None:
    """The distance is .6 * .5^t from state 0: .3 after one step, .15 after two."""
    chain = recipes.flat("chain", "slow", np.array([[[0.7, 0.3]], [[0.2, 0.8]]]), np.zeros((2, 1)))
    ledger = Ledger()
    slow_measures.judge_mixing(ledger, chain, [0, 0], steps)
    assert bool(ledger.claims_broken) == caught
