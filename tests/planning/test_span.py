"""The span planner against brute force, the theorems of docs/theory-span.md, and known numbers."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fmdp import SpanConstrained, TablePolicy
from fmdp.elimination.backup import Backup
from fmdp.elimination.kernels import Pace
from fmdp.errors import InvalidParameter
from fmdp.model import FactoredMDP, OptimisticTables, Structure, flat_model
from fmdp.planning.choice import plan
from fmdp.planning.plan import Plan, Status
from fmdp.problems import problem
from fmdp.testing import oracles, strategies

Floats = NDArray[np.float64]

BUDGETS = (0.0, 0.1, 0.5, 1.0, 4.0)


def draw_budgets(data: st.DataObject, structure: Structure) -> tuple[float, ...]:
    return tuple(data.draw(st.sampled_from(BUDGETS)) for _ in structure.state_sizes)


def solved(
    tables: FactoredMDP | OptimisticTables, budgets: tuple[float, ...], **settings: object
) -> Plan:
    """A described plan of any tables, converged."""
    planner = SpanConstrained(budget=budgets, tolerance=1e-8, **settings)  # type: ignore[arg-type]
    found = planner.prepare(tables.structure).solve(tables, describe=True)
    assert found.status is Status.CONVERGED
    assert found.bias is not None
    assert found.gain_lower is not None
    assert found.gain_upper is not None
    return found


# ---- known numbers ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("budget", "gain"), [(8.0, 0.914944), (4.0, 0.770383), (3.0, 0.647863), (2.0, 0.521341)]
)
def test_circle_of_four(budget: float, gain: float) -> None:
    """Mean reward, sp(h*) = 3.609, Q(h*) = 5.918: below that the budget binds, and the greedy
    policy is still optimal."""
    found = plan(
        problem("circle:4,dynamics=guestrin,reward=mean"),
        SpanConstrained(budget=budget, tolerance=1e-8),
    )
    assert found.gain == pytest.approx(gain, abs=1e-6)
    assert found.policy_gain == pytest.approx(0.914944, abs=1e-6)
    assert found.factored_span_sum == pytest.approx(min(budget, 5.918050), abs=1e-5)
    assert found.stats["attained"] is (budget == 8.0)
    assert (found.stats["truncated_states"] == 0) is (budget == 8.0)


def test_three_legs_need_more_under_the_uniform_split() -> None:
    """Q(h*) = 3.1802, but the largest factored span is a third of that: uniform needs 4.2."""
    model = problem("three-leg:4,dynamics=guestrin,reward=mean")
    gains = {
        (budget, split): SpanConstrained(budget=budget, split=split, tolerance=1e-7)
        .plan(model)
        .gain
        for budget, split in ((4.2, "uniform"), (3.19, "uniform"), (3.19, "search"))
    }
    assert gains[4.2, "uniform"] == pytest.approx(0.956522, abs=1e-6)
    assert gains[3.19, "search"] == pytest.approx(0.956522, abs=1e-6)
    assert gains[3.19, "uniform"] < 0.85


def test_two_circles_of_infinite_diameter() -> None:
    """Periodic, and no state of the other parity is ever reached: sp_i = 1 is all it takes."""
    found = SpanConstrained(budget=(1.0, 1.0), tolerance=1e-9).plan(problem("large-diameter"))
    assert found.gain == pytest.approx(1.0, abs=1e-8)
    assert found.factored_spans == pytest.approx((1.0, 1.0), abs=1e-6)


def swap() -> FactoredMDP:
    """Two states that swap, one action, reward 1 in the second."""
    structure = Structure((2,), (1,), ((0,),), ((0,),), ((0.0, 1.0),))
    return FactoredMDP(structure, [[[0.0, 1.0], [1.0, 0.0]]], [[0.0, 1.0]])


@pytest.mark.parametrize("budget", [0.0, 0.125, 0.5, 0.75, 2.0])
def test_two_states_that_swap_by_hand(budget: float) -> None:
    """u = (0, c) gives L u = (c, 1), truncated to (c, 2 c): lambda_c = min(c, 1/2)."""
    found = SpanConstrained(budget=budget, tolerance=1e-10).plan(swap())
    assert found.status is Status.CONVERGED
    assert found.gain == pytest.approx(min(budget, 0.5), abs=1e-9)
    assert found.factored_spans == pytest.approx((min(budget, 0.5),), abs=1e-9)


def test_two_states_that_swap_cycle_for_ever_undamped() -> None:
    backup = Backup(swap().structure, threads=1)
    backup.load(swap())
    h, new = np.zeros(2), np.empty(2)
    gaps = []
    truncation = backup.truncation([1.0])
    pace = Pace(axes=truncation.axes, budgets=truncation.budgets)
    for _ in range(20):
        backup.iterate(h, new, np.empty(2), pace)
        gaps.append(backup.extremes[1] - backup.extremes[0])
        backup.advance(h, new, pace)
    assert gaps == [1.0] * 20


# ---- theorems on generated models ---------------------------------------------------------------


@given(st.data())
@settings(max_examples=12)
def test_the_number_is_the_value_of_the_game(data: st.DataObject) -> None:
    """Every jump of the truncating player is tried, on models of at most four states."""
    model = data.draw(
        strategies.models(strategies.structures(max_states=4, max_values=3, max_actions=3))
    )
    budgets = draw_budgets(data, model.structure)
    found = solved(model, budgets)
    value = oracles.constrained_gain(oracles.dense(model), model.structure.state_sizes, budgets)
    assert found.gain == pytest.approx(value, abs=2e-8)


@given(st.data())
@settings(max_examples=80)
def test_fixed_point_bounds_and_policy_on_generated_models(data: st.DataObject) -> None:
    """Periodic and multichain models included: it always converges."""
    model = data.draw(strategies.models())
    sizes = model.structure.state_sizes
    budgets = draw_budgets(data, model.structure)
    flat = oracles.dense(model)
    found = solved(model, budgets)
    u = found.bias
    residual = oracles.truncated(oracles.bellman(flat, u), sizes, budgets) - u
    assert found.gain_lower - 1e-12 <= residual.min()
    assert residual.max() <= found.gain_upper + 1e-12
    assert found.gain_upper - found.gain_lower <= 1e-8 + 1e-12
    for wide, limit, sp in zip(
        oracles.factored_spans(u, sizes), budgets, found.factored_spans, strict=True
    ):
        assert wide == pytest.approx(sp, abs=1e-12)
        assert wide <= limit + 1e-10
    # Never above what can be had from every state, and the greedy action keeps the promise.
    assert found.gain_lower <= oracles.optimal(flat).gain.min() + 1e-9
    assert isinstance(found.policy, TablePolicy)
    chosen = oracles.action_values(flat, u)[found.policy.actions, np.arange(len(u))]
    assert (chosen >= u + found.gain_lower - 1e-7).all()


@given(st.data())
@settings(max_examples=60)
def test_bounds_hold_at_every_function_and_the_number_is_unique(data: st.DataObject) -> None:
    """min(T v - v) <= lambda_c <= max(T v - v) for any v, and a start from any v ends the same."""
    model = data.draw(strategies.models())
    structure = model.structure
    budgets = draw_budgets(data, structure)
    v = data.draw(strategies.values(structure))
    found = solved(model, budgets)
    residual = (
        oracles.truncated(oracles.bellman(oracles.dense(model), v), structure.state_sizes, budgets)
        - v
    )
    assert residual.min() - 1e-9 <= found.gain_upper
    assert found.gain_lower <= residual.max() + 1e-9
    elsewhere = SpanConstrained(budget=budgets, tolerance=1e-8).prepare(structure)
    elsewhere.restore_warm_state({"plain": v})
    assert elsewhere.solve(model).gain == pytest.approx(found.gain, abs=2e-8)


@given(st.data())
@settings(max_examples=40)
def test_damped_bounds_never_get_worse(data: st.DataObject) -> None:
    model = data.draw(strategies.models())
    backup = Backup(model.structure, threads=1)
    backup.load(model)
    truncation = backup.truncation(draw_budgets(data, model.structure))
    tau = data.draw(st.sampled_from((0.9, 0.5)))
    pace = Pace(tau=tau, tolerance=-1.0, axes=truncation.axes, budgets=truncation.budgets)
    h = np.zeros(backup.n_states)
    new, bounds = h.copy(), []
    for _ in range(30):
        backup.iterate(h, new, h.copy(), pace)
        bounds.append(tuple(backup.extremes[:2]))
        backup.advance(h, new, pace)
    lower, upper = np.array(bounds).T
    assert (np.diff(lower) >= -1e-12).all()
    assert (np.diff(upper) <= 1e-12).all()


@given(st.data())
@settings(max_examples=40)
def test_optimism_and_the_best_certificate_within_the_budgets(data: st.DataObject) -> None:
    """The truth in the set and sp_i(h) <= c_i for every i give lambda_c >= min(L_true h - h).

    With h the bias of the true optimal policy that is the true gain, where it is one number.
    """
    tables, truth = data.draw(strategies.optimistic_pairs())
    structure = truth.structure
    flat = oracles.dense(truth)
    best = oracles.optimal(flat)
    for h in (best.bias, data.draw(strategies.values(structure)) / 50):
        budgets = tuple(oracles.factored_spans(h, structure.state_sizes))
        promised = float((oracles.bellman(flat, h) - h).min())
        for of in (truth, tables):
            assert solved(of, budgets).gain_upper >= promised - 1e-9
    if np.ptp(best.gain) < 1e-12 and np.ptp(oracles.bellman(flat, best.bias) - best.bias) < 1e-9:
        budgets = tuple(oracles.factored_spans(best.bias, structure.state_sizes))
        assert solved(tables, budgets).gain_upper >= best.gain.max() - 1e-8


@given(st.data())
@settings(max_examples=40)
def test_monotone_in_the_budgets_and_star_concave(data: st.DataObject) -> None:
    """More budget, more gain; and lambda_{theta c} >= theta lambda_c + (1 - theta) min reward."""
    model = data.draw(strategies.models())
    budgets = draw_budgets(data, model.structure)
    full = solved(model, budgets).gain_lower
    theta = data.draw(st.sampled_from((0.25, 0.5, 0.9)))
    part = solved(model, tuple(theta * c for c in budgets)).gain_upper
    least = float(oracles.dense(model).rewards.min())
    assert part >= theta * full + (1 - theta) * least - 1e-7
    more = tuple(c + data.draw(st.sampled_from((0.0, 0.3))) for c in budgets)
    assert solved(model, more).gain_upper >= full - 1e-9


@given(st.data())
@settings(max_examples=25)
def test_optimistic_tables_nested_and_vertex(data: st.DataObject) -> None:
    """Each is the fixed point of its own operator, and nested is never below vertex."""
    tables = data.draw(
        strategies.optimistic_tables(strategies.structures(max_states=12, max_actions=3))
    )
    structure = tables.structure
    budgets = draw_budgets(data, structure)
    states = np.arange(structure.n_states)
    gains = {}
    for targets in ("nested", "vertex"):
        found = solved(tables, budgets, targets=targets)
        u = found.bias
        q = (
            oracles.nested_values(tables, u, found.stats["elimination_order"])
            if targets == "nested"
            else oracles.vertex_values(tables, u)
        )
        residual = oracles.truncated(q.max(axis=0), structure.state_sizes, budgets) - u
        assert found.gain_lower - 1e-12 <= residual.min()
        assert residual.max() <= found.gain_upper + 1e-12
        assert isinstance(found.policy, TablePolicy)
        assert (q[found.policy.actions, states] >= u + found.gain_lower - 1e-7).all()
        gains[targets] = found
    assert gains["nested"].gain_upper >= gains["vertex"].gain_lower


@given(st.data())
@settings(max_examples=25)
def test_what_an_optimistic_model_can_promise_too_much(data: st.DataObject) -> None:
    """(P~ - P) v <= 1/2 sum_i c_i |p~_i - p_i|_1 for v within the budgets; nested targets and any
    targets exceed the truth by at most sum_i c_i free_i."""
    tables, truth = data.draw(
        strategies.optimistic_pairs(strategies.structures(max_states=12, max_actions=3))
    )
    structure = truth.structure
    budgets = draw_budgets(data, structure)
    v = oracles.truncated(data.draw(strategies.values(structure)), structure.state_sizes, budgets)
    order = data.draw(st.permutations(range(structure.m)))
    nested = oracles.nested_values(tables, v, order)
    targets = tuple(data.draw(st.integers(0, size - 1)) for size in structure.state_sizes)
    flat = oracles.dense(truth)
    for a, action in enumerate(oracles.assignments(structure.action_sizes)):
        for s, state in enumerate(oracles.assignments(structure.state_sizes)):
            x = state + action
            true_value = float(flat.transitions[a, s] @ v)
            rows = [oracles.scope_row(structure, scope, x) for scope in structure.transition_scopes]
            distance = sum(
                c
                * np.abs(
                    oracles.extreme_transition(tables, i, x, t) - truth.transitions[i][r]
                ).sum()
                for i, (c, t, r) in enumerate(zip(budgets, targets, rows, strict=True))
            )
            value = float(oracles.next_law(tables, x, targets) @ v)
            assert abs(value - true_value) <= distance / 2 + 1e-10
            free = sum(
                c * tables.free[i][r] for i, (c, r) in enumerate(zip(budgets, rows, strict=True))
            )
            excess = nested[a, s] - oracles.optimistic_reward(tables, x) - true_value
            assert -1e-10 <= excess <= free + 1e-10


@given(st.data())
@settings(max_examples=25)
def test_the_regret_argument_holds_on_every_path(data: st.DataObject) -> None:
    """Before any probability enters: what is lost against lambda_c along a path of the truth is at
    most the widths, the martingale's sum, and v at the end less v at the start."""
    tables, truth = data.draw(strategies.optimistic_pairs())
    structure = truth.structure
    budgets = draw_budgets(data, structure)
    found = solved(tables, budgets)
    flat, v = oracles.dense(truth), found.bias
    states = list(oracles.assignments(structure.state_sizes))
    actions = list(oracles.assignments(structure.action_sizes))
    generator = np.random.Generator(np.random.PCG64(data.draw(st.integers(0, 1000))))
    assert isinstance(found.policy, TablePolicy)
    s = start = int(generator.integers(len(states)))
    lost = widths = martingale = 0.0
    for _ in range(50):
        a = int(found.policy.actions[s])
        x = states[s] + actions[a]
        lost += found.gain_upper - flat.rewards[a, s]
        widths += oracles.optimistic_reward(tables, x) - flat.rewards[a, s]
        widths += sum(
            c * tables.free[i][oracles.scope_row(structure, scope, x)]
            for i, (c, scope) in enumerate(zip(budgets, structure.transition_scopes, strict=True))
        )
        following = int(generator.choice(len(states), p=flat.transitions[a, s]))
        martingale += float(flat.transitions[a, s] @ v) - v[following]
        s = following
    assert lost <= widths + martingale + v[s] - v[start] + 50 * 2e-8


@given(st.data())
@settings(max_examples=30)
def test_for_one_factor_it_is_scal(data: st.DataObject) -> None:
    """SCAL's iteration on the flat model: min(v, min v + c), written out."""
    model = data.draw(strategies.models(strategies.structures(max_states=12)))
    budget = data.draw(st.sampled_from(BUDGETS))
    flat = oracles.dense(model)
    v = np.zeros(flat.n_states)
    for _ in range(20_000):
        ahead = oracles.bellman(flat, v)
        step = np.minimum(ahead, ahead.min() + budget) - v
        if np.ptp(step) < 1e-10:
            break
        v = v + 0.5 * step
        v -= v.min()
    found = solved(flat_model(model), (budget,)) if flat.n_states > 1 else None
    if found is not None:
        assert found.gain == pytest.approx(float(step.mean()), abs=1e-7)


@given(st.data())
@settings(max_examples=60)
def test_the_flag_says_whether_a_mixture_attains_the_gain(data: st.DataObject) -> None:
    model = data.draw(strategies.models(rows=("positive", "quarters", "sparse")))
    budgets = draw_budgets(data, model.structure)
    flat = oracles.dense(model)
    found = solved(model, budgets)
    u, gain = found.bias, found.gain
    q = oracles.action_values(flat, u)
    high, low = q.max(axis=0), q.min(axis=0)
    truncated = high - u > gain + 1e-7
    assert found.stats["truncated_states"] >= truncated.sum()
    attained = bool((low[truncated] <= u[truncated] + gain + 2e-8).all())
    unclear = np.abs(low - u - gain) < 1e-7
    assume(not (truncated & unclear).any())
    assert found.stats["attained"] is attained
    if attained:
        # The mixture with R + P u = u + lambda_c: its gain is lambda_c from every state.
        share = np.where(truncated, (u + gain - low) / np.where(truncated, high - low, 1.0), 1.0)
        states = np.arange(len(u))
        upper, lower = q.argmax(axis=0), q.argmin(axis=0)
        chain = (
            share[:, None] * flat.transitions[upper, states]
            + (1 - share)[:, None] * flat.transitions[lower, states]
        )
        rewards = share * flat.rewards[upper, states] + (1 - share) * flat.rewards[lower, states]
        mixed = oracles.limiting_matrix(chain) @ rewards
        np.testing.assert_allclose(mixed, gain, atol=1e-6)


# ---- splits -------------------------------------------------------------------------------------


def tied(values: Floats, slack: float = 1e-7) -> list[NDArray[np.int64]]:
    """The places of the smallest entries of every row."""
    return [np.flatnonzero(row <= row.min() + slack) for row in values]


@given(st.data())
@settings(max_examples=25)
def test_the_derivative_is_the_frequency_of_truncation_moves(data: st.DataObject) -> None:
    """Lemma 7: where jumps and actions are unique and the chain has one recurrent class."""
    model = data.draw(
        strategies.models(strategies.structures(min_variables=2, max_states=16), rows=("positive",))
    )
    sizes = model.structure.state_sizes
    budgets = np.array([data.draw(st.sampled_from((0.2, 0.5, 1.1))) for _ in sizes])
    flat = oracles.dense(model)

    def solve(c: Floats) -> Plan:
        return SpanConstrained(budget=tuple(c), tolerance=1e-11).plan(model)

    found = solve(budgets)
    ahead = oracles.bellman(flat, found.bias)
    jumps = tied(ahead[None, :] + oracles.hamming(sizes, budgets), 1e-3)
    actions = tied(-oracles.action_values(flat, found.bias).T, 1e-3)
    assume(all(len(own) == 1 for own in (*jumps, *actions)))
    jump = np.array([own[0] for own in jumps])
    best = np.array([own[0] for own in actions])
    states = list(oracles.assignments(sizes))
    law = oracles.stationary_law(flat.transitions[best[jump], jump])
    delta = 1e-5
    for i, size in enumerate(sizes):
        if size == 1:
            continue
        unit = delta * (np.arange(len(sizes)) == i)
        moves = [states[s][i] != states[jump[s]][i] for s in range(len(states))]
        for change in (unit, -unit):
            slope = (solve(budgets + change).gain - found.gain) / change.sum()
            assert float(law @ moves) == pytest.approx(slope, abs=1e-4)


def test_at_ties_a_choice_may_have_another_frequency_than_the_derivative() -> None:
    """Lemma 7's example: 0 -> 1 or 2 for nothing, 1 -> 2 for 1, 2 -> 0 for 1 or stays for 1/2.

    With u = (0, c, min(c, 1 - c)), T u = u + c for every c <= 2/3, so the derivative is 1. At
    c = 1/2 staying in 2 is tied with going, and not jumping with jumping: who goes to 2, stays
    and never jumps gains 1/2 as well, with frequency 0.
    """
    to = np.array([[1, 2], [2, 2], [0, 2]])
    rewards = np.array([[0.0, 0.0], [1.0, 1.0], [1.0, 0.5]])
    structure = Structure(
        state_sizes=(3,),
        action_sizes=(2,),
        transition_scopes=((0, 1),),
        reward_scopes=((0, 1),),
        reward_ranges=((0.0, 1.0),),
    )
    model = FactoredMDP(structure, [np.eye(3)[to]], [rewards])
    for c in (0.3, 0.499, 0.5, 0.501, 0.6, 2 / 3):
        assert SpanConstrained(budget=(c,), tolerance=1e-11).plan(model).gain == pytest.approx(c)
    flat = oracles.dense(model)
    u = np.array([0.0, 0.5, 0.5])
    ahead = oracles.bellman(flat, u)
    jumps = tied(ahead[None, :] + oracles.hamming((3,), (0.5,)))
    actions = tied(-oracles.action_values(flat, u).T)
    frequencies = set()
    for jump in itertools.product(*jumps):
        for action in itertools.product(*actions):
            chain = flat.transitions[[action[s] for s in jump], jump]
            if len(oracles.recurrent_classes(chain)) == 1:
                law = oracles.limiting_matrix(chain)[0]
                moves = np.array(jump) != np.arange(3)
                frequencies.add(round(float(law @ moves), 9))
    assert {0.0, 1.0} <= frequencies


@given(st.data())
@settings(max_examples=15)
def test_a_searched_split_is_no_worse_and_stays_within_the_sum(data: st.DataObject) -> None:
    model = data.draw(strategies.models(strategies.structures(min_variables=2, max_states=24)))
    budget = data.draw(st.sampled_from((0.0, 0.3, 1.0, 5.0)))
    uniform = SpanConstrained(budget=budget, tolerance=1e-6).plan(model)
    found = SpanConstrained(budget=budget, split="search", tolerance=1e-6).plan(model)
    assert found.gain >= uniform.gain - 1e-6
    assert sum(found.stats["budgets"]) <= budget * (1 + 1e-12)
    ceiling = found.stats["gain_upper_any_split"]
    assert found.gain_lower <= ceiling + 1e-9
    shares = np.random.default_rng(0).dirichlet(np.ones(model.structure.m))
    other = SpanConstrained(budget=tuple(budget * shares), tolerance=1e-6).plan(model)
    assert other.gain_lower <= ceiling + 1e-9


def test_variables_of_one_value_take_no_share() -> None:
    structure = Structure((2, 1, 3), (1,), ((0,), (1,), (2,)), (), ())
    assert SpanConstrained(budget=3.0).budgets(structure) == (1.5, 0.0, 1.5)
    assert SpanConstrained(budget=(1.0, 2.0, 3.0)).budgets(structure) == (1.0, 2.0, 3.0)


# ---- prepared -----------------------------------------------------------------------------------


def optimistic(width: float) -> OptimisticTables:
    model = problem("three-leg:4")
    return OptimisticTables.from_widths(
        model.structure, model.transitions, [width] * 4, model.rewards, [width] * 4
    )


@pytest.mark.parametrize("split", [None, "search"])
def test_warm_state_makes_the_next_solve_the_same_to_the_bit(split: str | None) -> None:
    planner = SpanConstrained(budget=3.0, split=split, tolerance=1e-5)
    one = planner.prepare(optimistic(0.1).structure)
    first = one.solve(optimistic(0.2))
    other = planner.prepare(one.structure)
    other.restore_warm_state(one.warm_state())
    a, b = one.solve(optimistic(0.1), describe=True), other.solve(optimistic(0.1), describe=True)
    assert (a.gain, a.iterations, a.stats["budgets"]) == (b.gain, b.iterations, b.stats["budgets"])
    np.testing.assert_array_equal(a.bias, b.bias)
    one.forget()
    again = one.solve(optimistic(0.2))
    assert (again.gain, again.iterations) == (first.gain, first.iterations)


@pytest.mark.parametrize("split", [None, "search"])
def test_the_budget_may_change_at_every_call(split: str | None) -> None:
    """Also to less than the spans of the function that is kept."""
    tables = optimistic(0.05)
    prepared = SpanConstrained(budget=1.0, split=split, tolerance=1e-8).prepare(tables.structure)
    for budget in (8.0, 0.5, 2.0):
        found = prepared.solve(tables, budget=budget, describe=True)
        cold = SpanConstrained(budget=budget, split=split, tolerance=1e-8).prepare(tables.structure)
        if split is None:
            assert found.gain == pytest.approx(cold.solve(tables).gain, abs=2e-8)
        assert found.factored_span_sum <= budget + 1e-9
    assert prepared.solve(tables, budget=(0.1, 0.2, 0.3, 0.4), describe=True).factored_spans <= (
        0.1 + 1e-9,
        0.2 + 1e-9,
        0.3 + 1e-9,
        0.4 + 1e-9,
    )
    with pytest.raises(InvalidParameter, match="budget has 3 numbers"):
        prepared.solve(tables, budget=(1.0, 2.0, 3.0))


def test_threads_do_not_change_a_bit() -> None:
    model = problem("circle:13")
    settings = SpanConstrained(budget=6.0, max_iterations=3)
    plans = [replace(settings, threads=threads).plan(model) for threads in (1, 2)]
    assert plans[0].gain == plans[1].gain
    np.testing.assert_array_equal(plans[0].bias, plans[1].bias)


def test_limits_are_a_status_and_the_bounds_hold() -> None:
    model = problem("circle:4,dynamics=guestrin,reward=mean")
    found = SpanConstrained(budget=4.0, max_iterations=3).plan(model)
    assert found.status is Status.ITERATION_LIMIT
    assert found.iterations == 3
    assert found.gain_lower <= 0.770383 <= found.gain_upper
    searched = SpanConstrained(budget=4.0, split="search", max_iterations=60).plan(model)
    assert searched.status is Status.ITERATION_LIMIT
    assert searched.iterations <= 61
    assert searched.gain >= 0.770382
    slow = SpanConstrained(budget=6.0, max_seconds=1e-9, tolerance=1e-12).plan(
        problem("riverswim:1")
    )
    assert slow.status is Status.TIME_LIMIT


@pytest.mark.parametrize(("split", "calls"), [(None, 2), ("search", 2), ("search", 9)])
def test_an_interrupt_gives_the_bounds_so_far(
    monkeypatch: pytest.MonkeyPatch, split: str | None, calls: int
) -> None:
    """In the first solve, or in the middle of a search: then it is the best split so far."""
    original, made = Backup.iterate, []

    def interrupted(self: Backup, *args: Any, **kwargs: Any) -> int:
        made.append(None)
        if len(made) == calls:
            raise KeyboardInterrupt
        return original(self, *args, **kwargs)

    monkeypatch.setattr(Backup, "iterate", interrupted)
    found = SpanConstrained(budget=6.0, split=split, tolerance=1e-9).plan(problem("riverswim:2"))
    assert found.status is Status.INTERRUPTED
    assert found.gain_lower <= found.gain <= found.gain_upper
    assert found.policy is not None


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"budget": -1.0}, "each a number >= 0; got -1"),
        ({"budget": float("nan")}, "got nan"),
        ({"budget": (1.0, float("inf"))}, "got (1.0, inf)"),
        ({"budget": ()}, "got ()"),
        ({"budget": "much"}, "got 'much'"),
        ({"budget": (1.0, 2.0), "split": "uniform"}, "split uniform divides one budget; got 2"),
        ({"budget": 1.0, "split": "serach"}, 'did you mean "search"?'),
        (
            {"budget": 1.0, "tolerance": 0.0},
            "'tolerance' parameter of planner span must be a number > 0",
        ),
        (
            {"budget": 1.0, "targets": "none"},
            "'targets' parameter of planner span must be one of nested, vertex",
        ),
    ],
)
def test_bad_settings_are_refused_in_one_line(settings: dict[str, object], line: str) -> None:
    with pytest.raises(InvalidParameter) as refusal:
        SpanConstrained(**settings)  # type: ignore[arg-type]
    assert line in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_a_budget_must_fit_the_structure() -> None:
    model = problem("circle:3")
    with pytest.raises(
        InvalidParameter, match="budget has 2 numbers; must be one, or one for each"
    ):
        SpanConstrained(budget=(1.0, 2.0)).plan(model)
    with pytest.raises(InvalidParameter, match="split given needs one budget for each of the 3"):
        SpanConstrained(budget=1.0, split="given").prepare(model.structure)
