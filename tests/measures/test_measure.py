"""The record of measures: the numbers of known problems, and None for those out of reach."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings

import fmdp
from fmdp.measures import factored_spans, measure, span
from fmdp.model import FactoredMDP
from fmdp.problems import problem
from fmdp.testing import oracles
from fmdp.testing.strategies import models, structures


def test_riverswim() -> None:
    result = measure(problem("riverswim:2"))
    assert result.gain == pytest.approx(2 * 0.428622434, abs=2e-9)
    assert result.span == pytest.approx(2 * 6.310324, abs=2e-6)
    assert result.factored_spans == pytest.approx((6.310324, 6.310324), abs=1e-6)
    assert result.factored_span_sum == pytest.approx(2 * 6.310324, abs=2e-6)
    assert result.diameter == pytest.approx(21.7670, abs=5e-5)
    assert (result.m, result.l, result.L, result.W) == (2, 2, 12, 6)


def test_large_diameter() -> None:
    result = measure(problem("large-diameter"))
    assert result.diameter == math.inf
    assert result.mixing_time == math.inf
    assert result.gain == pytest.approx(1.0)
    assert result.span == pytest.approx(2.0)
    assert result.factored_span_sum == pytest.approx(2.0)


def test_what_is_too_large_is_none() -> None:
    result = measure(problem("circle:30"))
    assert result.diameter is None
    assert result.gain is None
    assert result.mixing_time is None
    assert result.status == "too_large"
    assert (result.m, result.l, result.W) == (30, 30, 2)


@settings(max_examples=25, deadline=None)
@given(models(structures(max_states=16), rows=("positive",)))
def test_agrees_with_the_oracles(model: FactoredMDP) -> None:
    mdp = oracles.dense(model)
    best = oracles.optimal(mdp)
    result = measure(model)
    unit = 1.0 + model.structure.reward_range_total
    assert result.gain == pytest.approx(best.gain[0], abs=1e-8 * unit)
    bias, _, _ = oracles.damped_value_iteration(mdp)
    assert result.span == pytest.approx(span(bias), abs=1e-5 * unit)
    expected = factored_spans(bias, model.structure.state_sizes)
    assert result.factored_spans == pytest.approx(expected, abs=1e-5 * unit)
    assert result.mixing_time is not None
    assert result.mixing_time < math.inf


def test_progress_names_each_part() -> None:
    texts: list[str] = []
    measure(problem("circle:4"), progress=lambda done, total, text: texts.append(text))
    words = {text.split(":")[0] for text in texts}
    assert {"planning", "diameter"} <= words


def test_many_exchangeable_parts_have_a_gain_and_spans() -> None:
    """The other measures are out of reach; small models of the family have the same kind of
    spans, one for the hub and one for all leaves."""
    measures = measure(problem("star:40,dynamics=guestrin"))
    plan = fmdp.plan(problem("star:40,dynamics=guestrin"), "counts")
    assert measures.status == "converged"
    assert measures.gain == plan.gain
    assert measures.span == plan.span
    assert measures.factored_spans is not None
    assert len(set(measures.factored_spans)) == 2
    assert measures.diameter_bounds is measures.mixing_time is measures.largest_span is None
    assert measures.m == 40
