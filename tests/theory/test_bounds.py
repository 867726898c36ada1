"""The certificates that every plan prints: for any h they enclose every gain."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fmdp.testing import oracles
from fmdp.testing.strategies import models, optimistic_tables, structures, values

SMALL = structures(max_variables=3, max_values=3, max_states=12, max_actions=3)
TINY = structures(max_variables=2, max_values=3, max_states=6, max_actions=2)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_function_encloses_the_gain_of_every_state(data: st.DataObject) -> None:
    """min(Lh - h) <= gain(s) <= max(Lh - h), and the greedy policy gains at least min(Lh - h)."""
    model = data.draw(models(SMALL))
    mdp = oracles.dense(model)
    h = data.draw(values(model.structure))
    q = oracles.action_values(mdp, h)
    step = q.max(axis=0) - h
    slack = 1e-9 * (1 + np.abs(h).max())
    gain = oracles.optimal(mdp).gain
    assert (step.min() - slack <= gain).all()
    assert (gain <= step.max() + slack).all()
    greedy = oracles.policy_gain(mdp, q.argmax(axis=0))
    assert (greedy >= step.min() - slack).all()


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_damping_keeps_the_gain_and_the_bias_and_removes_the_period(data: st.DataObject) -> None:
    """(1 - tau) I + tau P, with rewards tau r, has gain tau g and the same bias."""
    model = data.draw(models(SMALL))
    mdp = oracles.dense(model)
    tau = data.draw(st.sampled_from((0.25, 0.5, 0.9)))
    damped = oracles.DenseMDP(
        (1 - tau) * np.eye(mdp.n_states) + tau * mdp.transitions, tau * mdp.rewards
    )
    policy = np.zeros(mdp.n_states, dtype=np.int64)
    scale = 1 + np.abs(oracles.policy_bias(mdp, policy)).max()
    assert oracles.policy_gain(damped, policy) == pytest.approx(
        tau * oracles.policy_gain(mdp, policy), abs=1e-9
    )
    assert oracles.policy_bias(damped, policy) == pytest.approx(
        oracles.policy_bias(mdp, policy), abs=1e-7 * scale
    )


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_nested_bounds_stay_above_the_extended_gain(data: st.DataObject) -> None:
    """max(Nh - h) bounds the gain of the nested operator, and so that of every joint target."""
    tables = data.draw(optimistic_tables(TINY))
    h = data.draw(values(tables.structure))
    order = data.draw(st.permutations(range(tables.structure.m)))
    upper = (oracles.nested_values(tables, h, order).max(axis=0) - h).max()
    gain = oracles.optimal(oracles.extended(tables)).gain
    assert gain.max() <= upper + 1e-9 * (1 + np.abs(h).max())
