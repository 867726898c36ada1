"""Restating the rewards in another unit restates the plan, and changes nothing else."""

from __future__ import annotations

import dataclasses
import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from oracle import dense, joint_relevance

import fmdp
from fmdp.model import FactoredMDP, OptimisticTables, Structure
from fmdp.planning.alp import ALP
from fmdp.planning.alp.bases import make_basis
from fmdp.planning.alp.bellman import BellmanError
from fmdp.planning.alp.policy_iteration import PolicyIteration
from fmdp.planning.plan import Plan, Status
from fmdp.testing import oracles
from fmdp.testing.strategies import models, optimistic_tables, structures
from fmdp.testing.units import in_units


def pays(structure: Structure) -> bool:
    """Where nothing is ever paid there is nothing to restate."""
    return any(lo != 0.0 or hi != 0.0 for lo, hi in structure.reward_ranges)


SMALL = structures(max_states=12, max_actions=4, max_variables=3).filter(pays)
ONE_ACTION = structures(
    max_states=12, max_actions=4, max_variables=3, max_action_variables=1
).filter(pays)
POWERS = st.sampled_from((-300, -40, -1, 1, 40, 300)).map(lambda k: 2.0**k)
SETTINGS = st.sampled_from(
    (
        {},
        {"basis": "pairs", "method": "factored"},
        {"basis": "indicators", "criterion": "average"},
        {"basis": "pairs", "criterion": "average", "method": "factored"},
        {"basis": "pairs", "max_iterations": 2},
        {"criterion": "average", "max_iterations": 1},
    )
).map(lambda chosen: {"basis": "singles", **chosen})
"""One program each: how far a growing basis grows hangs on where rewards are counted from."""


def restated(tables: OptimisticTables, structure: Structure, factor: float) -> OptimisticTables:
    rewards = tuple(table * factor for table in tables.rewards)
    return OptimisticTables(structure, tables.lower, tables.free, rewards)


def times(value, factor: float):
    return None if value is None else np.multiply(value, factor)


def assert_restated(plan: Plan, base: Plan, factor: float) -> None:
    """To the last bit."""
    assert plan.status is base.status
    assert plan.iterations == base.iterations
    for name in ("objective", "gain_upper", "span", "factored_spans"):
        np.testing.assert_array_equal(
            getattr(plan, name), times(getattr(base, name), factor), err_msg=name
        )
    for name in ("weights", "constant", "violation"):
        if name in base.stats:
            np.testing.assert_array_equal(
                plan.stats[name], times(base.stats[name], factor), err_msg=name
            )
    if base.policy is None:
        assert plan.policy is None
    else:
        np.testing.assert_array_equal(plan.policy.actions, base.policy.actions)


@given(models(SMALL), POWERS, SETTINGS)
@settings(max_examples=60)
def test_a_plan_in_other_units(model: FactoredMDP, factor: float, chosen) -> None:
    planner = ALP(**chosen)
    assert_restated(planner.plan(in_units(model, factor)), planner.plan(model), factor)


@given(models(SMALL), POWERS, st.sampled_from((0.01, 1e-4)))
@settings(max_examples=20)
def test_a_tolerance_is_in_the_unit_of_the_rewards(model, factor: float, tolerance: float) -> None:
    base = ALP(basis="pairs", tolerance=tolerance).plan(model)
    plan = ALP(basis="pairs", tolerance=tolerance * factor).plan(in_units(model, factor))
    assert_restated(plan, base, factor)


@given(st.data())
@settings(max_examples=30)
def test_warm_plans_in_other_units(data: st.DataObject) -> None:
    """With new tables from the last cuts and basis, optimistic ones too, and after a restore."""
    structure = data.draw(SMALL)
    factor = data.draw(POWERS)
    planner = ALP(**data.draw(SETTINGS))
    base = planner.prepare(structure)
    other = in_units(data.draw(models(structure)), factor).structure
    prepared = planner.prepare(other)
    for number in range(4):
        if data.draw(st.booleans()):
            model = data.draw(models(structure))
            pair = model, in_units(model, factor)
        else:
            tables = data.draw(optimistic_tables(structure))
            pair = tables, restated(tables, other, factor)
        if number == 2:
            kept = {name: array.copy() for name, array in prepared.warm_state().items()}
            prepared = planner.prepare(other)
            prepared.restore_warm_state(kept)
        assert_restated(prepared.solve(pair[1]), base.solve(pair[0]), factor)


@given(models(ONE_ACTION), POWERS, st.sampled_from((PolicyIteration, BellmanError)))
@settings(max_examples=30)
def test_the_relatives_in_other_units(model: FactoredMDP, factor: float, kind) -> None:
    planner = kind(basis="pairs", discount=0.9, max_iterations=4)
    base, plan = planner.plan(model), planner.plan(in_units(model, factor))
    assert_restated(plan, base, factor)
    np.testing.assert_array_equal(plan.stats["errors"], times(base.stats["errors"], factor))


@pytest.mark.parametrize("factor", [1e-30, 1e-9, 1e-3, 1 / 7, 1e8, 1e30])
@pytest.mark.parametrize("criterion", ["discounted", "average"])
@pytest.mark.parametrize("problem", ["circle:4", "circle:5,dynamics=guestrin", "machines:2"])
def test_units_that_are_no_power_of_two(problem: str, criterion: str, factor: float) -> None:
    model = fmdp.problem(problem)
    planner = ALP(basis="singles", criterion=criterion)
    base, plan = planner.plan(model), planner.plan(in_units(model, factor))
    assert plan.status is base.status is Status.CONVERGED
    assert plan.objective / factor == pytest.approx(base.objective, rel=1e-9)
    assert plan.gain_upper / factor == pytest.approx(base.gain_upper, rel=1e-9)
    np.testing.assert_array_equal(plan.policy.actions, base.policy.actions)


def counted_from(model: FactoredMDP, zero: float) -> FactoredMDP:
    """The model with `zero` more in every reward factor."""
    structure = dataclasses.replace(
        model.structure,
        reward_ranges=tuple((lo + zero, hi + zero) for lo, hi in model.structure.reward_ranges),
    )
    rewards = [table + zero for table in model.rewards]
    return FactoredMDP(structure, model.transitions, rewards, None, model.initial_state)


@given(models(SMALL), st.sampled_from((-(2.0**30), -4.0, 64.0, 2.0**30)), SETTINGS)
@settings(max_examples=40)
def test_a_plan_counted_from_another_zero(model: FactoredMDP, zero: float, chosen) -> None:
    """Where adding it is exact, it moves the bounds and nothing else."""
    exact = [np.round(table * 1024) / 1024 for table in model.rewards]
    ranges = tuple((np.floor(lo), np.ceil(hi)) for lo, hi in model.structure.reward_ranges)
    assume(any(lo < hi for lo, hi in ranges))  # else the unit is the size of the rewards
    structure = dataclasses.replace(model.structure, reward_ranges=ranges)
    model = FactoredMDP(structure, model.transitions, exact)
    planner = ALP(**chosen)
    base, plan = planner.plan(model), planner.plan(counted_from(model, zero))
    assert plan.status is base.status
    assert plan.iterations == base.iterations
    np.testing.assert_array_equal(plan.stats["weights"], base.stats["weights"])
    np.testing.assert_array_equal(plan.policy.actions, base.policy.actions)
    total = zero * structure.l
    worth = total if planner.criterion == "average" else total / (1 - planner.discount)
    assert plan.gain_upper == pytest.approx(base.gain_upper + total, rel=1e-12, abs=1e-9)
    assert plan.objective == pytest.approx(base.objective + worth, rel=1e-12, abs=1e-9)


def test_large_values_make_no_ties() -> None:
    """Two classes, one of which pays 1 a step and is worth a million at this discount; in both,
    one action pays 0.0001 more than the others, which is what it is worth."""
    structure = Structure((2,), (3,), ((0,),), ((0,), (1,)))
    model = FactoredMDP(structure, [np.eye(2)], [np.array([0.0, 1.0]), np.array([0, 1e-4, 0])])
    for ties in ("first", "last", "random"):
        plan = ALP(basis="singles", discount=1 - 1e-6, ties=ties).plan(model)
        assert plan.stats["weights"][0] == pytest.approx(1e6, rel=1e-3)
        assert plan.policy.actions.tolist() == [1, 1]


@pytest.mark.parametrize("factor", [1e-9, 1.0, 1e9])
def test_equal_up_to_a_billionth_of_the_unit_is_a_tie(factor: float) -> None:
    structure = Structure((2,), (3,), ((0,),), ((1,),))
    for gap, first in ((0.5e-9, 0), (2e-9, 1)):
        rewards = [np.array([0.5, 0.5 + gap, 0.0])]
        model = in_units(FactoredMDP(structure, [np.eye(2)], rewards), factor)
        plan = ALP(basis="singles", ties="first").plan(model)
        assert plan.policy.actions.tolist() == [first, first]


# ---- what is certified ---------------------------------------------------------------------------


def largest_residual(model: FactoredMDP, basis: str, weights) -> Fraction:
    """max R + P h_w - h_w in exact rational arithmetic, every row divided by its sum."""
    s = model.structure
    made = make_basis(s, basis)
    w = [Fraction(float(weight)) for weight in weights]
    states = list(itertools.product(*(range(size) for size in s.state_sizes)))

    def value(state) -> Fraction:
        total = Fraction(0)
        for block in made.blocks:
            row = int(
                np.ravel_multi_index(
                    [state[v] for v in block.scope], [s.state_sizes[v] for v in block.scope]
                )
            )
            for b in range(block.size):
                total += w[block.columns[b]] * Fraction(float(block.values[row, b]))
        return total

    h = [value(state) for state in states]
    best = None
    for state, here in zip(states, h, strict=True):
        for action in itertools.product(*(range(size) for size in s.action_sizes)):
            total = -here
            for scope, table in zip(s.reward_scopes, model.rewards, strict=True):
                total += Fraction(float(table[s.scope_row(scope, state, action)]))
            laws = []
            for scope, table in zip(s.transition_scopes, model.transitions, strict=True):
                row = [Fraction(float(p)) for p in table[s.scope_row(scope, state, action)]]
                laws.append([p / sum(row) for p in row])
            for after, there in zip(states, h, strict=True):
                probability = Fraction(1)
                for law, v in zip(laws, after, strict=True):
                    probability *= law[v]
                total += probability * there
            best = total if best is None else max(best, total)
    assert best is not None
    return best


FACTORS = st.sampled_from((1e-9, 1e-3, 0.3, 1.0, 7.0, 1e9))


@given(models(SMALL), FACTORS, SETTINGS, st.booleans())
@settings(max_examples=60)
def test_the_upper_bound_holds_in_exact_arithmetic(model, factor, chosen, hurried: bool) -> None:
    scaled = in_units(model, factor)
    planner = ALP(**{**chosen, "max_iterations": 1}) if hurried else ALP(**chosen)
    plan = planner.plan(scaled)
    exact = largest_residual(scaled, planner.basis, plan.stats["weights"])
    assert Fraction(plan.gain_upper) >= exact
    # And is no wider than rounding makes it.
    size = 1.0 + np.abs(plan.stats["weights"]).sum() / scaled.structure.reward_unit
    assert float(Fraction(plan.gain_upper) - exact) <= 1e-12 * size * scaled.structure.reward_unit


@given(
    models(structures(max_states=6, max_actions=3, max_variables=3)),
    FACTORS,
    st.sampled_from(("singles", "everything")),
    st.sampled_from(("discounted", "average")),
)
@settings(max_examples=100)
def test_bounds_enclose_the_optimum(model, factor: float, basis: str, criterion: str) -> None:
    """gain_upper and lambda bound the gain, the discounted objective alpha . V*: whether the
    program has converged or not, and with no tolerance but that of the oracles. A basis of all
    functions leaves no room between the bound and the optimum."""
    scaled = in_units(model, factor)
    s = scaled.structure
    slack = 1e-11 * s.reward_unit
    best = float(oracles.optimal(oracles.dense(scaled)).gain.max())
    P, R = dense(scaled)
    value = np.zeros(R.shape[1])
    for _ in range(400):  # 0.9^400 is 5e-19
        value = (R + 0.9 * P @ value).max(axis=0)
    promised = best if criterion == "average" else joint_relevance(s) @ value
    scopes = (tuple(range(s.m)),) if basis == "everything" else basis
    rough = 0.1 * s.reward_unit
    for limit in ({}, {"max_seconds": 1e-9}, {"max_iterations": 2}, {"tolerance": rough}):
        planner = ALP(basis=scopes, criterion=criterion, discount=0.9, **limit)
        plan = planner.plan(scaled)
        assert plan.gain_upper >= best - slack
        assert plan.objective >= promised - slack
