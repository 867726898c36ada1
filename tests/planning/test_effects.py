"""Plans by components: certified, equal to those by enumeration, however many actions there are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fmdp
from fmdp import SpanConstrained
from fmdp.elimination.effects import EffectsBackup
from fmdp.model import AtMost, FactoredMDP, Forbidden, Intervals
from fmdp.planning.choice import choose_planner
from fmdp.planning.exact.planner import Exact
from fmdp.problems import problem
from fmdp.testing import oracles, strategies


def without_effects(model: FactoredMDP) -> FactoredMDP:
    s = model.structure
    plain = s.with_factors(
        s.transition_scopes,
        s.reward_scopes,
        s.reward_ranges,
        s.reward_names,
        constraints=s.constraints,
    )
    return FactoredMDP(plain, model.transitions, model.rewards, model.noise, model.initial_state)


@given(st.data())
@settings(max_examples=30, deadline=None)
def test_the_bounds_hold_the_best_gain_and_the_policy_gains_the_lower(
    data: st.DataObject,
) -> None:
    model = data.draw(strategies.effect_models(max_states=12, max_actions=8))
    flat = oracles.dense(model)
    best = oracles.optimal(flat).gain
    found = Exact(max_iterations=2000).plan(model)
    assert found.stats["joint_actions"] == "by components"
    assert found.gain_lower is not None
    assert found.gain_upper is not None
    noise = 1e-9 * (1.0 + model.structure.reward_size)
    assert found.gain_lower <= np.min(best) + noise
    assert found.gain_upper >= np.max(best) - noise
    assert found.policy is not None
    actions = np.asarray(found.policy.actions)
    assert oracles.allowed_table(model.structure)[actions, np.arange(len(actions))].all()
    if found.status.value == "converged":
        assert np.min(oracles.policy_gain(flat, actions)) >= found.gain_lower - noise


@given(st.data())
@settings(max_examples=20, deadline=None)
def test_discounted_finite_and_span_plans_are_those_of_enumeration(data: st.DataObject) -> None:
    model = data.draw(strategies.effect_models(max_states=16, max_actions=8))
    plain = without_effects(model)
    discounted = Exact(criterion="discounted", discount=0.9)
    one, other = (discounted.plan(own) for own in (model, plain))
    tolerance = 4e-6 * model.structure.reward_unit
    assert one.bias is not None
    np.testing.assert_allclose(one.bias, other.bias, atol=tolerance)
    finite = Exact(criterion="finite", horizon=3)
    one, other = (finite.plan(own) for own in (model, plain))
    assert one.objective == pytest.approx(other.objective, abs=tolerance)
    span = SpanConstrained(budget=0.7 * model.structure.reward_unit)
    one, other = (span.plan(own) for own in (model, plain))
    assert one.gain == pytest.approx(other.gain, abs=tolerance)


@pytest.mark.parametrize("intervals", ["robust", "optimistic"])
def test_plans_for_intervals_are_those_of_enumeration(intervals: str) -> None:
    model = problem("maintenance:3,levels=3,k=2,crew=2,load=1")
    ends = [
        tuple(np.where(own > 0.0, np.clip(own + off, 0.0, 1.0), 0.0) for own in model.transitions)
        for off in (-0.05, 0.05)
    ]
    known = Intervals(ends[0], ends[1], model.rewards, model.rewards)
    one, other = (
        Exact(intervals=intervals).plan(
            FactoredMDP(own.structure, own.transitions, own.rewards, intervals=known)
        )
        for own in (model, without_effects(model))
    )
    assert one.stats["joint_actions"] == "by components"
    assert one.gain == pytest.approx(other.gain, abs=1e-5)


def test_a_plan_says_how_the_joint_actions_were_taken() -> None:
    model = problem("maintenance:3,levels=3")
    assert fmdp.plan(model).stats["joint_actions"] == "by components"
    assert "joint_actions" not in fmdp.plan(problem("circle:3")).stats
    s = model.structure
    pair = Forbidden((3, 4), np.array([False, False, False, True]), name="one at a time")
    bound = FactoredMDP(
        s.with_factors(
            s.transition_scopes,
            s.reward_scopes,
            s.reward_ranges,
            s.reward_names,
            alike=s.alike,
            constraints=(pair,),
            effects=s.effects,
        ),
        model.transitions,
        model.rewards,
    )
    found = fmdp.plan(bound)
    assert found.stats["joint_actions"] == (
        'enumerated: constraint "one at a time" looks at several components'
    )
    assert found.gain == pytest.approx(fmdp.plan(without_effects(bound)).gain, abs=1e-5)


def many_actions() -> FactoredMDP:
    """Three machines with 512 actions each, 2^27 together: the higher, the dearer and the better
    the level 0 is reached."""
    law = np.array([[0.8, 0.2], [0.0, 1.0]])
    outcome = np.zeros((2, 512), dtype=np.int64)
    outcome[1, :300] = 1  # a small effort leaves a failed machine failed
    cost = np.stack([-np.arange(512.0) / 512.0, -np.arange(512.0) / 512.0])
    return FactoredMDP.from_effects(
        (2, 2, 2),
        (512, 512, 512),
        [((i,), (3 + i,), outcome) for i in range(3)],
        [([i], law) for i in range(3)],
        [("cost", (i, 3 + i), cost) for i in range(3)]
        + [("after", [i], [0.0, -5.0]) for i in range(3)],
        constraints=[AtMost((3, 4, 5), 2)],
    )


def test_how_many_joint_actions_there_are_does_not_matter() -> None:
    model = many_actions()
    assert model.structure.n_actions == 2**27
    chosen = choose_planner(model.structure)
    assert isinstance(chosen.planner, Exact)
    assert chosen.reason is None
    found = fmdp.plan(model)
    # Two of three at a time are brought back, with the least effort that does it.
    assert found.policy((1, 1, 0)) == (300, 300, 0)  # type: ignore[misc]
    assert found.gain_lower <= found.policy_gain <= found.gain_upper  # type: ignore[operator]


def test_a_policy_is_saved_loaded_and_evaluated(tmp_path: Path) -> None:
    model = problem("maintenance:6,levels=4,k=4,crew=2")  # 4096 states: by sweeps, not directly
    found = fmdp.plan(model)
    path = tmp_path / "policy.npz"
    found.policy.save(path)  # type: ignore[union-attr]
    again = fmdp.load_policy(path)
    evaluation = fmdp.evaluate(model, again)
    assert evaluation.gain == pytest.approx(found.gain, abs=1e-5)
    reference = fmdp.evaluate(without_effects(model), again)
    assert evaluation.gain == pytest.approx(reference.gain, abs=1e-5)


def test_a_prepared_planner_goes_by_components_for_all_tables() -> None:
    model = problem("maintenance:3,levels=3,crew=2")
    prepared = Exact().prepare(model.structure)
    plain = prepared.solve(model)
    nested = prepared.solve(fmdp.OptimisticTables.from_model(model))
    assert all(isinstance(own, EffectsBackup) for own in prepared._backups.values())
    assert plain.gain == pytest.approx(nested.gain, abs=1e-5)
