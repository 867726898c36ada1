"""Planners under constraints on actions: bounds, policies and statuses against brute force."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fmdp
from fmdp import Intervals, SpanConstrained, TablePolicy
from fmdp.errors import InvalidParameter, TooLarge
from fmdp.model import FactoredMDP, Forbidden, apart, at_most, budget, flat_model, flatten, forbid
from fmdp.planning.alp import ALP
from fmdp.planning.alp.bellman import BellmanError
from fmdp.planning.alp.policy_iteration import PolicyIteration
from fmdp.planning.evaluate import evaluate_exactly
from fmdp.planning.exact.planner import Exact
from fmdp.planning.plan import Status
from fmdp.planning.policies.randomised import UniformPolicy
from fmdp.testing import check_planner, oracles, strategies

SMALL = strategies.constrained(strategies.structures(max_states=16, max_variables=3))


@given(st.data())
@settings(max_examples=80)
def test_exact_bounds_policy_and_status(data: st.DataObject) -> None:
    """Periodic, multichain and deterministic models included."""
    model = data.draw(strategies.models(SMALL))
    flat = oracles.dense(model)
    best = oracles.optimal(flat).gain
    ties = data.draw(st.sampled_from(("random", "first", "last")))
    found = Exact(tolerance=1e-7, max_iterations=20_000, ties=ties).plan(model)
    assert found.gain_lower is not None
    assert found.gain_upper is not None
    assert found.gain_lower <= best.min() + 1e-9
    assert found.gain_upper >= best.max() - 1e-9
    assert isinstance(found.policy, TablePolicy)
    model.structure.check_policy(found.policy.actions.astype(np.int64))
    gains = oracles.policy_gain(flat, found.policy.actions)
    assert (gains >= found.gain_lower - 1e-9).all()
    constant = best.max() - best.min() < 1e-9
    assert found.status is (Status.CONVERGED if constant else Status.MULTICHAIN)
    evaluated = evaluate_exactly(model, found.policy)
    start = np.ravel_multi_index(model.initial_state, model.structure.state_sizes)
    assert evaluated.gain == pytest.approx(gains[start], abs=1e-6)


@given(st.data())
@settings(max_examples=40)
def test_the_best_gain_is_that_of_the_best_allowed_policy(data: st.DataObject) -> None:
    """By trying every one: nothing that the oracle for many states does is taken on trust."""
    tiny = strategies.structures(max_states=4, max_actions=4, max_variables=2)
    model = data.draw(strategies.models(strategies.constrained(tiny)))
    flat = oracles.dense(model)
    tried = np.array([oracles.policy_gain(flat, policy) for policy in oracles.all_policies(flat)])
    best = tried.max(axis=0)
    assert oracles.optimal(flat).gain == pytest.approx(best, abs=1e-8)
    found = Exact(tolerance=1e-7).plan(model)
    assert found.gain_lower is not None
    assert found.gain_lower - 1e-8 <= best.min()
    assert found.gain_upper is not None
    assert best.max() <= found.gain_upper + 1e-8


@given(st.data())
@settings(max_examples=40)
def test_discounted_value_is_the_dense_one(data: st.DataObject) -> None:
    model = data.draw(strategies.models(SMALL))
    flat = oracles.dense(model)
    value = np.zeros(flat.n_states)
    for _ in range(300):
        value = oracles.bellman(flat, value, 0.9)
    found = Exact(criterion="discounted", discount=0.9, tolerance=1e-9).plan(model)
    assert found.objective == pytest.approx(value.mean(), abs=1e-7)


@given(st.data())
@settings(max_examples=40)
def test_optimistic_plans_bound_the_models_of_their_set(data: st.DataObject) -> None:
    small = strategies.structures(max_states=8, max_variables=3, max_actions=4)
    tables, truth = data.draw(strategies.optimistic_pairs(strategies.constrained(small)))
    best = oracles.optimal(oracles.dense(truth)).gain.max()
    hopeful = oracles.optimal(oracles.extended(tables)).gain.max()
    for targets in ("nested", "vertex"):
        found = Exact(tolerance=1e-6, targets=targets).prepare(truth.structure).solve(tables)
        assert found.gain_upper is not None
        assert found.gain_upper >= best - 1e-8
        assert found.gain_upper >= hopeful - 1e-6
        if found.policy is not None:
            truth.structure.check_policy(found.policy.actions.astype(np.int64))
    found = ALP().prepare(truth.structure).solve(tables)
    assert found.gain_upper is not None
    assert found.gain_upper >= best - 1e-8
    _check_allowed(truth, found.policy)


@given(st.data())
@settings(max_examples=60)
def test_alp_bounds_and_decisions(data: st.DataObject) -> None:
    model = data.draw(strategies.models(SMALL))
    best = oracles.optimal(oracles.dense(model)).gain.max()
    basis = data.draw(st.sampled_from(("singles", "indicators", "pairs")))
    ties = data.draw(st.sampled_from(("random", "first", "last")))
    objectives = []
    for method in ("cuts", "factored"):
        found = ALP(basis=basis, method=method, ties=ties).plan(model)
        assert found.status is Status.CONVERGED
        assert found.gain_upper is not None
        assert found.gain_upper >= best - 1e-8
        _check_allowed(model, found.policy)
        objectives.append(found.objective)
    assert objectives[0] == pytest.approx(objectives[1], abs=2e-4)


@given(st.data())
@settings(max_examples=40)
def test_alp_with_every_indicator_is_exact(data: st.DataObject) -> None:
    """One state variable and its indicators: the program has V* itself."""
    one = strategies.structures(max_variables=1, max_states=5)
    model = data.draw(strategies.models(strategies.constrained(one)))
    flat = oracles.dense(model)
    value = np.zeros(flat.n_states)
    for _ in range(400):
        value = oracles.bellman(flat, value, 0.9)
    found = ALP(basis="indicators", discount=0.9, tolerance=1e-8).plan(model)
    assert found.objective == pytest.approx(value.mean(), abs=1e-5)


@given(st.data())
@settings(max_examples=25)
def test_span_bounds_what_the_budget_allows(data: st.DataObject) -> None:
    tiny = strategies.structures(max_states=4, max_variables=2, max_actions=4)
    model = data.draw(strategies.models(strategies.constrained(tiny)))
    sizes = model.structure.state_sizes
    budgets = tuple(data.draw(st.sampled_from((0.0, 0.3, 2.0))) for _ in sizes)
    wanted = oracles.constrained_gain(oracles.dense(model), sizes, budgets)
    found = SpanConstrained(budget=budgets, tolerance=1e-7).plan(model)
    assert found.gain_lower is not None
    assert found.gain_upper is not None
    assert found.gain_lower - 1e-7 <= wanted <= found.gain_upper + 1e-7
    _check_allowed(model, found.policy)


@given(st.data())
@settings(max_examples=30)
def test_a_finite_horizon_is_played_with_allowed_actions(data: st.DataObject) -> None:
    model = data.draw(strategies.models(SMALL))
    flat = oracles.dense(model)
    value = np.zeros(flat.n_states)
    for _ in range(5):
        value = oracles.bellman(flat, value)
    start = np.ravel_multi_index(model.initial_state, model.structure.state_sizes)
    found = Exact(criterion="finite", horizon=5).plan(model)
    assert found.objective == pytest.approx(value[start], abs=1e-9)
    assert isinstance(found.policy, fmdp.TimedPolicy)
    for stage in found.policy.stages:
        model.structure.check_policy(stage.actions.astype(np.int64))
    assert evaluate_exactly(model, found.policy).value == pytest.approx(value[start], abs=1e-8)


@given(st.data())
@settings(max_examples=30)
def test_robust_and_hopeful_plans_enclose_the_nominal_one(data: st.DataObject) -> None:
    """The worst case is at most the nominal gain, the best at least; both with allowed actions.
    With intervals of no width all three are one."""
    small = strategies.structures(max_states=8, max_variables=2, max_actions=4)
    model = data.draw(strategies.models(strategies.constrained(small), rows=("positive",)))
    best = oracles.optimal(oracles.dense(model)).gain
    for width in (0.0, 0.1):
        ends = Intervals(
            tuple(np.clip(table - width, 0, 1) for table in model.transitions),
            tuple(np.clip(table + width, 0, 1) for table in model.transitions),
            model.rewards,
            model.rewards,
        )
        known = replace(model, intervals=ends)
        for case, sign in (("robust", 1.0), ("optimistic", -1.0)):
            found = Exact(intervals=case).plan(known)
            assert found.gain_lower is not None
            assert found.gain_upper is not None
            _check_allowed(model, found.policy)
            end = found.gain_lower if case == "robust" else found.gain_upper
            assert sign * (best.max() - end) >= -1e-6
            if width == 0.0:
                assert end == pytest.approx(best.max(), abs=1e-5)


def test_a_timed_policy_that_plays_a_forbidden_action_is_refused() -> None:
    model = fmdp.problem("circle:2")
    bound = model.with_constraints(forbid(model, {"machine_0": 1, "restart": 0}, name="spare"))
    wrong = fmdp.TablePolicy((2, 2), (3,), np.zeros(4, dtype=np.int64))
    right = fmdp.TablePolicy((2, 2), (3,), np.full(4, 2))
    policy = fmdp.TimedPolicy([right, wrong])
    with pytest.raises(InvalidParameter, match=r'"spare" forbids machine_0=.*, restart='):
        evaluate_exactly(bound, policy)
    with pytest.raises(InvalidParameter, match='"spare" forbids'):
        fmdp.simulate(bound, policy, steps=100)


def _check_allowed(model: FactoredMDP, policy: object) -> None:
    assert policy is not None
    for state in oracles.assignments(model.structure.state_sizes):
        action = policy(state)  # type: ignore[operator]
        model.structure.check_allowed(state, action)


def two_crews() -> FactoredMDP:
    """Two pumps that wear out and two crews; repairing pays where the other crew is not."""
    pump = np.zeros((2, 3, 3, 2))  # worn, crew 1, crew 2 -> worn
    pump[..., 0], pump[..., 1] = 0.3, 0.7
    return FactoredMDP.from_factors(
        (2, 2),
        (3, 3),
        [((i, 2, 3), np.where(_visited(i)[..., None], [0.9, 0.1], pump)) for i in range(2)],
        [((i,), [1.0, 0.0]) for i in range(2)],
        state_names=("pump_1", "pump_2"),
        action_names=("crew_1", "crew_2"),
        state_values=(("good", "worn"),) * 2,
        action_values=(("rest", "P1", "P2"),) * 2,
    )


def _visited(i: int) -> np.ndarray:
    crews = np.arange(3)
    there = (crews[:, None] == i + 1) | (crews[None, :] == i + 1)
    return np.broadcast_to(there, (2, 3, 3))


def test_two_crews_by_hand() -> None:
    """Each pump is good 9 times in 10 if a crew is there, else 3 in 10, whatever came before."""
    model = two_crews()
    assert fmdp.plan(model).gain == pytest.approx(1.8, abs=1e-6)
    one_at_work = model.with_constraints(at_most(model, 1, idle="rest"))
    assert fmdp.plan(one_at_work).gain == pytest.approx(1.2, abs=1e-6)
    never_both = model.with_constraints(apart(model, ["crew_1", "crew_2"], besides="rest"))
    assert fmdp.plan(never_both).gain == pytest.approx(1.8, abs=1e-6)
    crew_2_rests = model.with_constraints(forbid(model, {"crew_2": ["P1", "P2"]}))
    assert fmdp.plan(crew_2_rests).gain == pytest.approx(1.2, abs=1e-6)
    nobody = model.with_constraints(at_most(model, 0))
    assert fmdp.plan(nobody).gain == pytest.approx(0.6, abs=1e-6)
    # Crews may go to worn pumps only: a good one is left alone, so it is worn next time 7 in 10.
    # good -> good .3, worn -> good .9: .9 / (.7 + .9) of the time, twice.
    lazy = model.with_constraints(
        *(
            forbid(model, {f"pump_{i}": "good", f"crew_{c}": f"P{i}"})
            for i in (1, 2)
            for c in (1, 2)
        )
    )
    assert fmdp.plan(lazy).gain == pytest.approx(2 * 0.9 / 1.6, abs=1e-6)
    # The bias is a sum over the pumps, so the program of the average reward has it.
    for method in ("cuts", "factored"):
        found = fmdp.plan(lazy, ALP(basis="indicators", criterion="average", method=method))
        assert found.gain_upper is not None
        assert found.gain_upper == pytest.approx(2 * 0.9 / 1.6, abs=1e-4)
        assert found.policy_gain == pytest.approx(2 * 0.9 / 1.6, abs=1e-4)


@pytest.mark.parametrize("n", [4, 9])
def test_a_cap_is_the_same_as_its_table(n: int) -> None:
    """Counters in the cost network (n = 9) or one function: the numbers of the table either way."""
    model = fmdp.problem(f"machines:{n},topology=star")
    cap = at_most(model, 2)
    capped = model.with_constraints(cap)
    table = Forbidden(cap.scope, cap.forbidden_table(model.structure.sizes))
    tabled = model.with_constraints(table)
    found, wanted = ALP(basis="local").plan(capped), ALP(basis="local").plan(tabled)
    assert found.objective == pytest.approx(wanted.objective, abs=1e-4)
    assert found.gain_upper == pytest.approx(wanted.gain_upper, abs=1e-4)
    free = ALP(basis="local").plan(model)
    assert free.objective is not None
    assert wanted.objective is not None
    assert wanted.objective < free.objective
    rng = np.random.default_rng(0)
    for _ in range(50):
        state = tuple(int(rng.integers(size)) for size in model.structure.state_sizes)
        assert found.policy is not None
        assert sum(found.policy(state)) <= 2


@pytest.mark.parametrize("n", [4, 8])
def test_a_budget_is_the_same_as_its_table(n: int) -> None:
    """Running sums in the cost network (n = 8) or one function: the numbers of the table."""
    model = fmdp.problem(f"machines:{n},topology=star")
    costs = {f"action_{i}": {"reboot": (2, 3, 1.5)[i % 3]} for i in range(n)}
    limit = budget(model, 5, costs)
    table = Forbidden(limit.scope, limit.forbidden_table(model.structure.sizes))
    spending, tabled = model.with_constraints(limit), model.with_constraints(table)
    found, wanted = ALP(basis="local").plan(spending), ALP(basis="local").plan(tabled)
    assert found.objective == pytest.approx(wanted.objective, abs=1e-4)
    assert found.gain_upper == pytest.approx(wanted.gain_upper, abs=1e-4)
    rng = np.random.default_rng(0)
    for _ in range(20):
        state = tuple(int(rng.integers(size)) for size in model.structure.state_sizes)
        assert found.policy is not None
        action = found.policy(state)
        assert sum((2, 3, 1.5)[i % 3] for i in range(n) if action[i]) <= 5


def test_a_budget_with_too_many_sums_is_refused_by_name() -> None:
    model = fmdp.problem("machines:12,topology=star")
    costs = {f"action_{i}": {"reboot": 2**i} for i in range(12)}
    spending = model.with_constraints(budget(model, 2**12, costs, name="fuel"))
    with pytest.raises(TooLarge, match='constraint "fuel": its running sum takes 2048 values'):
        ALP(basis="local").plan(spending)


def test_a_greedy_policy_of_allowed_actions_is_saved(tmp_path: object) -> None:
    model = fmdp.problem("machines:9,topology=star")
    capped = model.with_constraints(at_most(model, 1))
    found = ALP(basis="local").plan(capped)
    assert found.policy is not None
    found.policy.save(tmp_path / "p.npz")  # type: ignore[operator]
    loaded = fmdp.load_policy(tmp_path / "p.npz", capped.structure)  # type: ignore[operator]
    rng = np.random.default_rng(1)
    for _ in range(20):
        state = tuple(int(rng.integers(size)) for size in model.structure.state_sizes)
        assert loaded(state) == found.policy(state)
        assert sum(loaded(state)) <= 1


@given(st.data())
@settings(max_examples=30)
def test_flat_models_have_the_same_gains(data: st.DataObject) -> None:
    model = data.draw(strategies.models(SMALL))
    best = oracles.optimal(oracles.dense(model)).gain
    written = flatten(model)
    solved = oracles.optimal(oracles.DenseMDP(written.transitions, written.rewards)).gain
    assert solved == pytest.approx(best, abs=1e-8)
    one = flat_model(model)
    assert np.array_equal(one.structure.allowed_mask(), model.structure.allowed_mask())
    assert oracles.optimal(oracles.dense(one)).gain == pytest.approx(best, abs=1e-8)


def test_a_policy_that_plays_a_forbidden_action_is_refused_by_name() -> None:
    model = two_crews()
    bound = model.with_constraints(forbid(model, {"crew_1": "P1", "crew_2": "P1"}, name="crowd"))
    actions = np.zeros(4, dtype=np.int64)
    actions[2] = 4
    policy = TablePolicy((2, 2), (3, 3), actions)
    text = (
        r"action \(1, 1\) is not allowed in state \(1, 0\): constraint \"crowd\" forbids "
        r"crew_1=P1, crew_2=P1"
    )
    for asked in (policy, lambda state: (1, 1) if state == (1, 0) else (0, 0)):
        with pytest.raises(InvalidParameter, match=text):
            fmdp.evaluate(bound, asked)
        fmdp.evaluate(model, asked)


@pytest.mark.parametrize("planner", [PolicyIteration(), BellmanError()])
def test_planners_that_know_no_constraints_say_so(planner: fmdp.Planner) -> None:
    model = fmdp.problem("circle:3")
    bound = model.with_constraints(forbid(model, {"machine_0": 1, "restart": 0}, name="spare"))
    with pytest.raises(
        InvalidParameter, match=r'know no constraints .* "spare"; use planner exact'
    ):
        fmdp.plan(bound, planner)


@pytest.mark.parametrize(
    "planner",
    [
        Exact(),
        ALP(basis="singles"),
        ALP(basis="singles", method="factored"),
        SpanConstrained(budget=1.0),
    ],
)
def test_planners_keep_their_contract_under_constraints(planner: fmdp.Planner) -> None:
    crews = two_crews()
    circle = fmdp.problem("circle:3")
    check_planner(
        planner,
        (
            crews.with_constraints(apart(crews, ["crew_1", "crew_2"], besides="rest")),
            circle.with_constraints(forbid(circle, {"machine_0": 1, "restart": 0})),
        ),
    )


def test_a_loaded_random_policy_obeys_the_constraints_of_its_structure(tmp_path: Path) -> None:
    """Its file knows none, and those of the structure depend on the state."""
    free = fmdp.Structure((2,), (2,), ((0, 1),), ())
    bound = replace(free, constraints=(Forbidden((0, 1), np.array([True, False, False, True])),))
    UniformPolicy.of(free).save(tmp_path / "uniform.npz")
    loaded = fmdp.load_policy(tmp_path / "uniform.npz", bound)
    assert isinstance(loaded, UniformPolicy)
    policy = loaded.under(bound)
    for row in policy.draw(np.random.default_rng(0), 50):
        assert (policy.settle(row, (0,)), policy.settle(row, (1,))) == ((1,), (0,))
