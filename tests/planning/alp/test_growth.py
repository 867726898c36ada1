"""`basis="auto"`: errors against the dense model, scopes that grow, what is returned and why."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import dense, residuals
from scipy.optimize import linprog

import fmdp
from fmdp.errors import InvalidParameter
from fmdp.learning.learner import for_learning
from fmdp.model.spaces import all_assignments
from fmdp.planning.alp import ALP, PreparedALP, basis_scopes, growth, policy_errors
from fmdp.planning.alp.bases import make_basis
from fmdp.planning.alp.bellman import BellmanError
from fmdp.planning.plan import Status
from fmdp.problems import problem
from fmdp.testing.strategies import models


@given(models(), st.integers(0, 99))
@settings(max_examples=25, deadline=None)
def test_errors_are_those_of_the_dense_model(model: fmdp.FactoredMDP, seed: int) -> None:
    structure = model.structure
    basis = make_basis(structure, [tuple(range(min(2, structure.m))), (structure.m - 1,)])
    rng = np.random.default_rng(seed)
    weights = rng.normal(size=basis.size)
    states = all_assignments(structure.state_sizes)
    actions = all_assignments(structure.action_sizes)
    chosen = rng.integers(len(actions), size=len(states))
    found = policy_errors.bellman_errors(model, basis, weights, states, actions[chosen])
    h = np.array([basis.value(weights, state) for state in states])
    expected = residuals(model, h)[chosen, np.arange(len(states))]
    assert found == pytest.approx(expected, abs=1e-9)


def test_the_estimate_is_the_gain_and_exact_where_h_is_the_bias() -> None:
    model = problem("circle:3,dynamics=guestrin,reward=mean")
    plan = fmdp.plan(model, fmdp.Exact(tolerance=1e-10))
    assert plan.policy is not None
    everything = make_basis(model.structure, [(0, 1, 2)])
    states = all_assignments(model.structure.state_sizes)
    table = np.array(
        [[everything.value(row, s) for row in np.eye(everything.size)] for s in states]
    )
    weights = np.linalg.lstsq(table, plan.bias - plan.bias[0], rcond=None)[0]
    for own, error in ((weights, 1e-8), (np.zeros(len(weights)), 0.02)):
        _, worth = policy_errors.simulated_gain(
            model, plan.policy, everything, own, 500, np.random.default_rng(0)
        )
        assert worth == pytest.approx(plan.gain, abs=error)
    # The control: without the bias the mean over as many steps is no exact figure.
    assert abs(worth - plan.gain) > 1e-6


@pytest.mark.parametrize("name", ["circle:5", "machines:2", "jao:3"])
def test_actions_of_many_states_are_those_of_each(name: str) -> None:
    """As a table and as the greedy policy itself; one action variable, and several."""
    model = problem(name)
    prepared = ALP(basis="indicators").prepare(model.structure)
    table = prepared.solve(model).policy
    staged = prepared.program_for("plain")
    weights = np.linspace(0.0, 3.0, prepared.basis.size)
    greedy = staged.extractor.policy(weights, 0.95, "random", 7)
    states = all_assignments(model.structure.state_sizes)[::-1]
    for policy in (table, greedy):
        expected = [policy(tuple(state)) for state in states.tolist()]
        assert [
            tuple(action) for action in policy_errors.actions_at(policy, states).tolist()
        ] == expected


def test_scopes_grow_where_the_errors_depend_on_them() -> None:
    """On a star the error is put where leaf 2 and the hub differ: that pair is added, alone."""
    structure = problem("star:4").structure
    states = all_assignments(structure.state_sizes)
    first = basis_scopes.first_scopes(structure)
    assert first == ((0,), (1,), (2,), (3,))
    errors = np.where(states[:, 0] != states[:, 2], 1.0, 0.0)
    assert basis_scopes.grown_scopes(structure, first, states, errors) == ((0, 2), (1,), (3,))
    # Errors that are the same everywhere say nothing: all grow.
    grown = basis_scopes.grown_scopes(structure, first, states, np.zeros(len(states)))
    assert grown == ((0, 1), (0, 2), (0, 3))


def test_growth_ends_where_no_parent_is_left_or_the_functions_are_many() -> None:
    structure = problem("star:3").structure
    states = all_assignments(structure.state_sizes)
    full = ((0, 1), (0, 2))
    assert basis_scopes.grown_scopes(structure, full, states, np.zeros(len(states))) is None
    large = problem(f"circle:{basis_scopes.MOST_WEIGHTS}").structure
    some = np.zeros((4, large.m), dtype=np.int64)
    assert (
        basis_scopes.grown_scopes(large, basis_scopes.first_scopes(large), some, np.zeros(4))
        is None
    )


def test_functions_are_counted_as_the_basis_has_them() -> None:
    structure = problem("random:5,values=3,seed=1").structure
    scopes = ((0, 1, 2), (1, 2, 3), (4,))
    assert (
        basis_scopes.n_functions(structure.state_sizes, scopes)
        == make_basis(structure, scopes).size
    )


def test_the_circle_on_which_singles_lose_a_fifth() -> None:
    model = problem("circle:7,dynamics=guestrin,reward=mean")
    plan = fmdp.plan(model, "alp")
    assert plan.status is Status.CONVERGED
    assert plan.stats["basis"] == "auto"
    assert plan.stats["grown_until"] == "gap"
    assert plan.policy_gain is not None
    assert plan.gain_upper is not None
    assert plan.policy_gain >= 0.99 * 0.844975
    assert 0.844975 - 1e-6 <= plan.gain_upper <= plan.policy_gain / 0.99
    singles = fmdp.plan(model, "alp,basis=singles")
    assert singles.policy_gain is not None
    assert singles.policy_gain < 0.9 * 0.844975


def test_a_bound_of_zero_ends_growth_within_the_tolerance() -> None:
    """Nothing need work, so never replacing costs nothing: the bound of 0 is the optimal gain."""
    model = problem("maintenance:8,levels=3,k=0,setup=0,crew=2")
    plan = fmdp.plan(model, ALP(tolerance=1e-6))
    assert plan.gain_upper == pytest.approx(0.0, abs=1e-6)
    assert plan.stats["grown_until"] == "gap"
    assert plan.stats["growth"]["judged"] == pytest.approx(0.0, abs=1e-6)
    assert "inf" not in plan.stats["growth"]["message"]


@pytest.mark.parametrize(
    ("gap", "bound", "text"),
    [
        (0.02, 2.0, "1.0%"),
        (0.5, -2.0, "25.0%"),
        (-1e-9, 2.0, "0.0%"),
        (-1e-9, 0.0, "0"),
        (0.25, 0.0, "0.25"),
        (0.25, 1e-12, "0.25"),
    ],
)
def test_gaps_are_shares_of_the_bound_unless_it_is_near_zero(
    gap: float, bound: float, text: str
) -> None:
    assert growth._gap_text(gap, bound) == text


def test_where_more_functions_made_it_worse_the_weights_are_capped() -> None:
    """Pairs have a worse policy than singles on this circle, and with small weights a good one."""
    model = problem("circle:7,dynamics=guestrin,reward=mean")
    steps = fmdp.plan(model, ALP()).stats["grown"]
    capped = [n for n, step in enumerate(steps) if step["weight_cap"] is not None]
    assert capped
    first = capped[0]
    poorer = max(step["judged"] for step in steps[: first - 2])
    free = max(step["judged"] for step in steps[first - 2 : first])
    assert free < poorer - 0.01
    assert max(steps[n]["judged"] for n in capped) > 0.98 * 0.844975


@pytest.mark.parametrize("ended", [Status.INTERRUPTED, Status.PRECISION_LIMIT])
def test_how_a_capped_program_ends(monkeypatch: pytest.MonkeyPatch, ended: Status) -> None:
    """Ctrl-C there ends the search, and a program that only rounding stopped does not."""
    solve, capped = PreparedALP.solve, []

    def ends(self: PreparedALP, *given: Any, **named: Any) -> fmdp.Plan:
        plan = solve(self, *given, **named)
        if self.settings.weight_cap is None:
            return plan
        capped.append(1)
        return replace(plan, status=ended)

    monkeypatch.setattr(PreparedALP, "solve", ends)
    plan = ALP().plan(problem("circle:7,dynamics=guestrin,reward=mean"))
    if ended is Status.INTERRUPTED:
        assert len(capped) == 1
        assert plan.status is Status.INTERRUPTED
    else:
        assert len(capped) >= 2
        assert plan.status is Status.CONVERGED
        assert plan.stats["grown_until"] == "gap"


def test_no_policy_is_judged_after_an_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that Ctrl-C stopped returns its policy at once, without a simulation."""
    solve, judged = PreparedALP.solve, []

    def interrupted(self: PreparedALP, *given: Any, **named: Any) -> fmdp.Plan:
        return replace(solve(self, *given, **named), status=Status.INTERRUPTED)

    monkeypatch.setattr(PreparedALP, "solve", interrupted)
    monkeypatch.setattr(growth, "simulated_gain", lambda *given: judged.append(1))
    plan = ALP().plan(problem("circle:7,dynamics=guestrin,reward=mean"))
    assert plan.status is Status.INTERRUPTED
    assert plan.policy is not None
    assert not judged


@pytest.mark.parametrize("method", ["cuts", "factored"])
@pytest.mark.parametrize("criterion", ["discounted", "average"])
@pytest.mark.parametrize("family", ["pairs", "indicators"])
def test_no_weight_is_above_its_cap(family: str, method: str, criterion: str) -> None:
    """Against the program over all states and actions with the same bounds on the weights."""
    model = problem("circle:4,dynamics=guestrin")
    settings = ALP(basis=family, method=method, criterion=criterion)
    free = fmdp.plan(model, settings)
    largest = float(np.abs(free.stats["weights"]).max())
    cap = 0.3 * largest
    plan = fmdp.plan(model, replace(settings, weight_cap=cap))
    assert plan.status is Status.CONVERGED
    assert np.abs(plan.stats["weights"]).max() == pytest.approx(cap, rel=1e-9)
    assert plan.objective > free.objective
    basis = make_basis(model.structure, family)
    states = all_assignments(model.structure.state_sizes)
    phi = np.array([[basis.value(row, s) for row in np.eye(basis.size)] for s in states])
    P, R = dense(model)
    discount = settings.discount if criterion == "discounted" else 1.0
    own = 1.0 - discount if criterion == "discounted" else 1.0
    rows = np.vstack(
        [np.hstack([np.full((len(phi), 1), own), phi - discount * Pa @ phi]) for Pa in P]
    )
    cost = np.append(1.0, phi.mean(axis=0) if criterion == "discounted" else 0.0 * phi[0])
    bounds = [(None, None)] + [(-cap, cap)] * basis.size
    best = linprog(cost, A_ub=-rows, b_ub=-R.ravel(), bounds=bounds)
    assert plan.objective == pytest.approx(best.fun, abs=1e-5)
    # A cap that nothing reaches changes nothing.
    wide = fmdp.plan(model, replace(settings, weight_cap=3.0 * largest))
    assert wide.objective == pytest.approx(free.objective, abs=1e-6)


def test_bound_and_policy_are_the_best_of_all_rounds() -> None:
    model = problem("circle:6,dynamics=guestrin,reward=mean")
    plan = fmdp.plan(model, ALP(gap=0.0))
    steps = plan.stats["grown"]
    assert plan.stats["grown_until"] == "size"
    assert plan.gain_upper == min(step["gain_upper"] for step in steps)
    best = max(step["judged"] for step in steps)
    assert plan.policy_gain == pytest.approx(best, abs=1e-6)
    # Richer is not always better: what is returned is not simply the last.
    judged = [step["judged"] for step in steps]
    assert any(later < earlier for earlier, later in itertools.pairwise(judged))


@pytest.mark.parametrize("method", ["cuts", "factored"])
def test_the_returned_settings_give_the_weights_back(method: str) -> None:
    model = problem("circle:5,dynamics=guestrin,reward=mean")
    plan = fmdp.plan(model, ALP(method=method))
    assert plan.settings.basis == plan.stats["scopes"]
    basis = make_basis(model.structure, plan.settings.basis)
    assert len(plan.stats["weights"]) == basis.size
    states = all_assignments(model.structure.state_sizes)
    h = np.array([basis.value(plan.stats["weights"], s) for s in states])
    assert residuals(model, h).max() >= plan.gain_upper - 1e-9  # the bound may be another round's
    explanation = plan.explain((1, 0, 1, 1, 1))
    assert explanation.action == model.structure.name_action(plan.policy((1, 0, 1, 1, 1)))


def test_several_action_variables_and_constraints() -> None:
    model = problem("machines:3")
    plan = fmdp.plan(model, ALP())
    best = fmdp.plan(model, fmdp.Exact())
    assert plan.policy_gain is not None
    assert best.gain is not None
    assert plan.policy_gain >= 0.99 * best.gain
    assert plan.gain_upper is not None
    assert plan.gain_upper >= best.gain - 1e-9


def test_a_policy_is_not_judged_when_time_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulations look at the clock; a policy that was not judged is better than none."""
    monkeypatch.setattr(growth, "_STEPS", 10**9)  # to judge one would take for ever
    plan = fmdp.plan(fmdp.problem("circle:40"), ALP(max_seconds=0.5))
    assert plan.status is Status.TIME_LIMIT
    assert plan.policy is not None
    assert plan.stats["grown"][-1]["judged"] is None
    assert plan.gain_upper < 40.0  # type: ignore[operator]


def test_no_bound_is_above_the_largest_rewards() -> None:
    plan = fmdp.plan(fmdp.problem("circle:60"), ALP(max_iterations=1, max_seconds=0.05))
    assert plan.gain_upper <= 60.0  # type: ignore[operator]


def test_time_limit_keeps_what_there_is() -> None:
    model = problem("circle:10,dynamics=guestrin,reward=mean")
    plan = fmdp.plan(model, ALP(gap=0.0, max_seconds=0.2))
    assert plan.status is Status.TIME_LIMIT
    assert plan.gain_upper is not None
    assert plan.policy is None or plan.stats["grown_until"] == "time"


def test_interrupted_with_the_best_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    model = problem("circle:6,dynamics=guestrin,reward=mean")
    grown, calls = growth.grown_scopes, []

    def interrupt(*given: object) -> object:
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return grown(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(growth, "grown_scopes", interrupt)
    plan = ALP(gap=0.0).plan(model)
    assert plan.status is Status.INTERRUPTED
    assert plan.policy is not None
    assert {step["weights"] for step in plan.stats["grown"]} == {1, 2}  # two rounds


def test_learners_and_references_look_for_no_basis() -> None:
    structure = problem("circle:4").structure
    assert for_learning(ALP(), structure).basis == "singles"
    assert for_learning(ALP(basis="pairs"), structure).basis == "pairs"
    prepared = ALP().prepare(structure)
    assert prepared.basis.name == "singles"
    agent = fmdp.Oracle(planner=ALP()).start(problem("circle:4"), np.random.default_rng(0))
    assert agent.planner.basis == "singles"


def test_a_gap_without_a_search_and_a_search_without_growth_are_refused() -> None:
    with pytest.raises(InvalidParameter, match="gap"):
        ALP(basis="pairs", gap=0.5)
    with pytest.raises(InvalidParameter, match="auto"):
        BellmanError(basis="auto")


def test_interrupted_while_a_policy_is_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    """The evaluation returns its bounds so far, and the search must not go on with them."""
    real = growth.evaluate_exactly
    monkeypatch.setattr(
        growth,
        "evaluate_exactly",
        lambda *given, **limits: replace(real(*given, **limits), status=Status.INTERRUPTED),
    )
    plan = fmdp.plan(problem("circle:4"), ALP())
    assert plan.status is Status.INTERRUPTED
    assert plan.gain_upper is not None
