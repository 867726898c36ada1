"""Independent models side by side: gains, biases and spans add up; diameters do not."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fmdp.measures import factored_spans, span
from fmdp.model import FactoredMDP, product
from fmdp.planning.exact.planner import Exact
from fmdp.testing import oracles
from fmdp.testing.strategies import models, structures, values

PARTS = structures(max_variables=2, max_values=3, max_states=5, max_actions=3, max_rewards=2)


def outer_sum(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    return np.add.outer(first, second).ravel()


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_the_backup_of_a_sum_is_the_sum_of_the_backups(data: st.DataObject) -> None:
    """So value iteration from 0, damped or not, stays additive: whatever the parts are."""
    first, second = data.draw(models(PARTS)), data.draw(models(PARTS))
    h, k = data.draw(values(first.structure)), data.draw(values(second.structure))
    both = oracles.bellman(oracles.dense(product(first, second)), outer_sum(h, k))
    apart = outer_sum(
        oracles.bellman(oracles.dense(first), h), oracles.bellman(oracles.dense(second), k)
    )
    assert both == pytest.approx(apart, abs=1e-9)


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_gains_add_up_from_every_state(data: st.DataObject) -> None:
    """Also for periodic and multichain parts, whose gain depends on the start."""
    first, second = data.draw(models(PARTS)), data.draw(models(PARTS))
    apart = outer_sum(
        oracles.optimal(oracles.dense(first)).gain, oracles.optimal(oracles.dense(second)).gain
    )
    both = oracles.optimal(oracles.dense(product(first, second))).gain
    assert both == pytest.approx(apart, abs=1e-8)


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_biases_and_spans_add_up(data: st.DataObject) -> None:
    """Lemma `lem:prod`: spans add up, and the factored spans are those of the parts."""
    parts = [data.draw(models(PARTS, rows=("positive",))) for _ in range(2)]
    both = product(*parts)
    biases = [oracles.damped_value_iteration(oracles.dense(part))[0] for part in parts]
    bias = oracles.damped_value_iteration(oracles.dense(both))[0]
    assert bias == pytest.approx(outer_sum(*biases), abs=1e-8)
    assert span(bias) == pytest.approx(span(biases[0]) + span(biases[1]), abs=1e-8)
    spans = [
        factored_spans(own, part.structure.state_sizes)
        for own, part in zip(biases, parts, strict=True)
    ]
    assert factored_spans(bias, both.structure.state_sizes) == pytest.approx(
        spans[0] + spans[1], abs=1e-8
    )


@settings(max_examples=10, deadline=None)
@given(st.data())
def test_the_planner_sees_it_too(data: st.DataObject) -> None:
    parts = [data.draw(models(PARTS, rows=("positive",))) for _ in range(2)]
    planner = Exact(tolerance=1e-9)
    apart = [planner.plan(part) for part in parts]
    both = planner.plan(product(*parts))
    assert both.gain == pytest.approx(sum(plan.gain or 0.0 for plan in apart), abs=1e-8)
    assert both.span == pytest.approx(sum(plan.span or 0.0 for plan in apart), abs=1e-6)


def circle(n: int) -> FactoredMDP:
    forward = np.roll(np.eye(n), 1, axis=1)
    table = np.stack([forward.T, forward], axis=1)  # [place, action, place]
    return FactoredMDP.from_factors((n,), (2,), [((0, 1), table)])


def test_diameters_do_not_add_up() -> None:
    """The parity of a sum of steps: two even circles have diameter 2 and no common time."""
    assert oracles.diameter(oracles.dense(circle(4))) == 2.0
    assert oracles.diameter(oracles.dense(product(circle(4), circle(4)))) == np.inf
    # With an odd circle the parity can be mended by going round it.
    assert oracles.diameter(oracles.dense(product(circle(4), circle(3)))) < np.inf
