"""Policy iteration with max-norm projection, and Bellman-error minimisation, by brute force."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import basis_matrix, dense, minimum

import fmdp
from fmdp.errors import InvalidParameter, TooLarge
from fmdp.model import FactoredMDP, OptimisticTables, Structure
from fmdp.planning.alp.alp import ALP
from fmdp.planning.alp.bases import make_basis
from fmdp.planning.alp.bellman import BellmanError
from fmdp.planning.alp.cuts import CuttingPlanes
from fmdp.planning.alp.decisions import Advantages, PolicyConstraints
from fmdp.planning.alp.policy_iteration import PolicyIteration
from fmdp.planning.alp.program import LinearProgram, Monitor
from fmdp.planning.plan import Status
from fmdp.testing.strategies import models, structures

ONE_ACTION = structures(max_states=16, max_action_variables=1, max_actions=4, max_variables=3)
DISCOUNT = 0.9


def chosen_actions(advantages: Advantages, policy, structure: Structure) -> list[int]:
    """The first branch that matches, state by state."""
    actions = []
    for state in np.ndindex(*structure.state_sizes):
        for a, match in zip(policy.action, policy.match, strict=True):
            row = 0
            for v in advantages.touched[a]:
                row = row * structure.state_sizes[v] + state[v]
            if match in (-1, row):
                actions.append(int(a))
                break
    return actions


def chain(model: FactoredMDP, actions: list[int]) -> tuple[np.ndarray, np.ndarray]:
    P, R = dense(model)
    states = np.arange(len(actions))
    return P[actions, states], R[actions, states]


def smallest_residual(model: FactoredMDP, phi: np.ndarray, upper, lower) -> float:
    """min delta, -delta <= Q_i - V for (P, R) in lower, Q_i - V <= delta for (P, R) in upper."""
    full = np.hstack([np.ones((len(phi), 1)), phi])
    rows, bounds = [], []
    for sign, parts in ((1.0, upper), (-1.0, lower)):
        for P, R in parts:
            rows.append(np.hstack([sign * (full - DISCOUNT * P @ full), np.ones((len(phi), 1))]))
            bounds.append(sign * R)
    cost = np.zeros(full.shape[1] + 1)
    cost[-1] = 1.0
    return minimum(cost, np.vstack(rows), np.concatenate(bounds))[0]


@given(models(ONE_ACTION), st.sampled_from(("singles", "pairs")), st.integers(0, 99))
def test_the_list_is_the_greedy_policy(model: FactoredMDP, basis: str, seed: int) -> None:
    made = make_basis(model.structure, basis)
    advantages = Advantages(model, made)
    weights = np.random.default_rng(seed).normal(size=made.size)
    policy = advantages.decision_list(weights / advantages.residual.unit, DISCOUNT)
    P, R = dense(model)
    q = R + DISCOUNT * P @ (basis_matrix(model.structure, basis) @ weights)  # [A, S]
    actions = chosen_actions(advantages, policy, model.structure)
    np.testing.assert_allclose(q[actions, np.arange(q.shape[1])], q.max(axis=0), atol=1e-7)


@given(models(ONE_ACTION), st.sampled_from(("singles", "pairs")), st.integers(0, 99))
@settings(max_examples=50)
def test_one_projection_is_the_lp_over_all_states(model, basis: str, seed: int) -> None:
    made = make_basis(model.structure, basis)
    advantages = Advantages(model, made)
    weights = np.random.default_rng(seed).normal(size=made.size)
    policy = advantages.decision_list(weights, DISCOUNT)
    own = chain(model, chosen_actions(advantages, policy, model.structure))
    phi = basis_matrix(model.structure, basis)
    cost = np.zeros(made.size + 2)
    cost[made.size] = 1.0
    parts = tuple(PolicyConstraints(advantages, policy, DISCOUNT, sign) for sign in (1.0, -1.0))
    found = CuttingPlanes().solve(
        LinearProgram(
            cost, parts, (1.0, 1.0), 1e-8, 1e-7, 10.0, np.zeros(made.size + 1, dtype=bool)
        ),
        Monitor(),
    )
    assert found.status is Status.CONVERGED
    delta = found.objective * advantages.residual.unit
    assert delta == pytest.approx(smallest_residual(model, phi, [own], [own]), abs=1e-6)


@given(models(ONE_ACTION), st.sampled_from(("singles", "pairs")))
@settings(max_examples=30)
def test_bellman_error_is_reached_and_never_rises(model: FactoredMDP, basis: str) -> None:
    plan = BellmanError(basis=basis, discount=DISCOUNT, max_iterations=6).plan(model)
    errors = plan.stats["errors"]
    assert all(after <= before + 1e-6 for before, after in itertools.pairwise(errors))
    value = basis_matrix(model.structure, basis) @ plan.stats["weights"] + plan.stats["constant"]
    P, R = dense(model)
    q = R + DISCOUNT * P @ value
    assert np.abs(q.max(axis=0) - value).max() <= plan.objective + 1e-6
    # The first step is the LP with the greedy policy of the approximate linear program.
    made = make_basis(model.structure, basis)
    start = fmdp.ALP(basis=basis, discount=DISCOUNT).plan(model).stats["weights"]
    advantages = Advantages(model, made)
    policy = advantages.decision_list(start / advantages.residual.unit, DISCOUNT)
    own = chain(model, chosen_actions(advantages, policy, model.structure))
    phi = basis_matrix(model.structure, basis)
    every = list(zip(P, R, strict=True))
    assert errors[0] == pytest.approx(smallest_residual(model, phi, every, [own]), abs=1e-6)


def test_policy_iteration_where_the_basis_holds_every_function() -> None:
    """With all functions of the state, evaluation is exact and the policy optimal."""
    model = fmdp.problem("circle:3,dynamics=guestrin,reward=mean")
    plan = fmdp.plan(model, PolicyIteration(basis=((0, 1, 2),), discount=0.99))
    assert plan.status is Status.CONVERGED
    assert plan.objective == pytest.approx(0.0, abs=1e-6)
    best = fmdp.plan(model, fmdp.Exact(criterion="discounted", discount=0.99))
    assert plan.policy_gain == pytest.approx(best.policy_gain, abs=1e-6)


def test_several_action_variables_and_wide_actions_are_refused() -> None:
    with pytest.raises(InvalidParameter, match="one action variable"):
        PolicyIteration().plan(fmdp.problem("machines:2"))
    # In the random instance every action changes every factor: 2^17 branches each.
    with pytest.raises(TooLarge, match="branches"):
        PolicyIteration().plan(fmdp.problem("circle:17"))
    model = fmdp.problem("circle:3")
    prepared = PolicyIteration().prepare(model.structure)
    with pytest.raises(InvalidParameter, match="not optimistic tables"):
        prepared.solve(OptimisticTables.from_model(model))
    assert prepared.solve(model).status is Status.CONVERGED


@pytest.mark.parametrize("status", [Status.INTERRUPTED, Status.TIME_LIMIT])
def test_a_first_plan_that_was_stopped_is_the_result(
    status: Status, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = ALP.plan
    monkeypatch.setattr(
        ALP, "plan", lambda *given, **more: replace(real(*given, **more), status=status)
    )
    plan = PolicyIteration().plan(fmdp.problem("circle:3"))
    assert plan.status is status
    assert plan.planner == PolicyIteration.name
    assert plan.objective is None
