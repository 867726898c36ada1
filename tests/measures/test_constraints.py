"""Diameter, reachability, mixing and spans under constraints, against brute force."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fmdp
import fmdp.measures
from fmdp.errors import InvalidParameter
from fmdp.measures import diameter, largest_spans, mixing_time
from fmdp.measures.reachability import Graph, is_communicating
from fmdp.model import FactoredMDP, forbid
from fmdp.planning.exact.planner import Exact
from fmdp.testing import oracles, strategies

SMALL = strategies.constrained(strategies.structures(max_states=10, max_variables=3))


@given(st.data())
@settings(max_examples=60)
def test_the_diameter_is_that_of_the_allowed_actions(data: st.DataObject) -> None:
    rows = ("positive", "sparse", "deterministic", "quarters", "mixed")
    model = data.draw(strategies.models(SMALL, rows=rows))
    wanted = oracles.diameter(oracles.dense(model))
    found = diameter(model)
    assert found is not None
    if math.isinf(wanted):
        assert math.isinf(found.value)
    else:
        assert found.value == pytest.approx(wanted, rel=1e-8)
    assert is_communicating(model) == math.isfinite(wanted)


@given(st.data())
@settings(max_examples=40)
def test_the_graph_goes_by_allowed_actions(data: st.DataObject) -> None:
    model = data.draw(strategies.models(SMALL, rows=("deterministic", "sparse")))
    flat = oracles.dense(model)
    assert flat.allowed is not None
    graph = Graph(model)
    if not graph.is_sparse or is_communicating(model) is not True:
        return
    for target in range(flat.n_states):
        actions = graph.proper_policy(target)
        others = np.delete(np.arange(flat.n_states), target)
        assert flat.allowed[actions[others], others].all()


@given(st.data())
@settings(max_examples=40)
def test_largest_spans_are_of_allowed_policies(data: st.DataObject) -> None:
    """By trying every policy of allowed actions."""
    tiny = strategies.structures(max_states=4, max_actions=4, max_variables=2)
    rows = ("positive", "deterministic", "quarters")
    model = data.draw(strategies.models(strategies.constrained(tiny), rows=rows))
    mdp = oracles.dense(model)
    best = oracles.optimal(mdp).gain
    size = np.abs(mdp.rewards).max(initial=0.0)
    found = largest_spans(model)
    if np.ptp(best) > 1e-9 * size or found is None:
        return
    wanted = max(
        np.ptp(oracles.policy_bias(mdp, policy))
        for policy in oracles.all_policies(mdp)
        if (oracles.policy_gain(mdp, policy) >= best - 1e-9 * (1 + size)).all()
    )
    if found.value is not None:
        assert found.value == pytest.approx(wanted, abs=1e-6 * (1 + size))


def ring() -> FactoredMDP:
    """Three states in a ring; action 0 goes round one way, 1 the other, surely."""
    table = np.zeros((3, 2, 3))
    for s in range(3):
        table[s, 0, (s + 1) % 3] = table[s, 1, (s - 1) % 3] = 1.0
    return FactoredMDP.from_factors((3,), (2,), [((0, 1), table)], [((0,), [0.0, 0.0, 1.0])])


def test_a_ring_by_hand() -> None:
    """Both ways: every state is one step away. One way only: two steps. From 0 to 2 the other way
    is forbidden: 0 -> 1 -> 2."""
    both = ring()
    assert fmdp.measures.diameter(both).value == 1.0
    one_way = both.with_constraints(forbid(both, {"a0": 1}))
    assert fmdp.measures.diameter(one_way).value == 2.0
    not_from_0 = both.with_constraints(forbid(both, {"s0": 0, "a0": 1}))
    assert fmdp.measures.diameter(not_from_0).value == 2.0
    trap = both.with_constraints(forbid(both, {"s0": 0, "a0": 1}, {"s0": 1, "a0": 0}))
    assert fmdp.measures.diameter(trap).value == math.inf
    assert is_communicating(trap) is False


def test_mixing_is_of_an_allowed_policy() -> None:
    model = fmdp.problem("circle:3")
    bound = model.with_constraints(forbid(model, {"machine_0": 1, "restart": 0}, name="spare"))
    found = Exact().plan(bound)
    assert found.policy is not None
    actions = found.policy.actions.astype(np.int64)
    chain = oracles.policy_chain(oracles.dense(bound), actions)[0]
    law = oracles.stationary_law(chain)
    steps, power = 1, chain
    while np.abs(power - law).sum(axis=1).max() / 2 > 0.25:
        steps, power = steps + 1, power @ chain
    assert mixing_time(bound, actions) == steps
    with pytest.raises(InvalidParameter, match='constraint "spare" forbids'):
        mixing_time(bound, np.zeros(8, dtype=np.int64))
