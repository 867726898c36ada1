"""Independent parts planned one by one, against oracles on the flat model of the whole."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import fmdp
from fmdp import TablePolicy
from fmdp.elimination.ties import Ties
from fmdp.errors import TooLarge
from fmdp.model import AtMost, FactoredMDP, Structure, permute_states, product
from fmdp.model.independence import independent_parts
from fmdp.planning import joining
from fmdp.planning.evaluate import evaluate_exactly
from fmdp.planning.exact.planner import Exact, PreparedExact
from fmdp.planning.joining import Whole, parts_to_plan, rounded_sum
from fmdp.planning.parts import PreparedParts
from fmdp.planning.status import Status
from fmdp.problems import problem
from fmdp.testing import oracles, strategies

INFINITY = float("inf")


@pytest.fixture(autouse=True, scope="module")
def _split_small_models() -> Iterator[None]:
    """Plan small models by parts, too, where the default is to plan them as a whole."""
    before, joining.JOINT_PAIRS = joining.JOINT_PAIRS, 0
    yield
    joining.JOINT_PAIRS = before


@st.composite
def shuffled_products(draw: st.DrawFn) -> FactoredMDP:
    """Two generated models side by side, their state variables in any order."""
    factors = [
        draw(strategies.models(strategies.structures(max_states=6, max_actions=3))),
        draw(strategies.models(strategies.structures(max_states=6, max_actions=3))),
    ]
    whole = product(*factors)
    assume(independent_parts(whole.structure))  # not so where all variables have one value
    return permute_states(whole, draw(st.permutations(range(whole.structure.m))))


def joint_plan(model: FactoredMDP, planner: Exact) -> fmdp.Plan:
    """Return the plan of the model as a whole, not part by part."""
    return PreparedExact(planner, model.structure).solve(model, describe=True)


@given(shuffled_products())
@settings(max_examples=60)
def test_parts_cover_the_structure_and_share_nothing(model: FactoredMDP) -> None:
    s = model.structure
    found = independent_parts(s)
    assert len(found) >= 2
    several = [v for v, size in enumerate(s.sizes) if size > 1]
    assert sorted(v for part in found for v in part.states + part.actions) == several
    assert sorted(k for part in found for k in part.rewards) == [*range(s.l)]
    owner = {v: p for p, part in enumerate(found) for v in part.states + part.actions}
    for i, scope in enumerate(s.transition_scopes):
        if i in owner:  # where a single value comes from does not matter
            assert {owner[v] for v in scope if v in owner} <= {owner[i]}
    for scope in s.reward_scopes:
        assert len({owner[v] for v in scope if v in owner}) <= 1


@given(shuffled_products())
@settings(max_examples=60)
def test_a_plan_by_parts_is_optimal_in_the_whole(model: FactoredMDP) -> None:
    """Periodic and multichain parts included: bounds, policy, status and bias of the flat model."""
    flat = oracles.dense(model)
    best = oracles.optimal(flat).gain
    found = Exact(tolerance=1e-7, max_iterations=20_000).plan(model)
    assert found.stats["independent_parts"] >= 2
    assert found.gain_lower is not None
    assert found.gain_upper is not None
    assert found.gain_lower <= best.min() + 1e-9
    assert found.gain_upper >= best.max() - 1e-9
    assert isinstance(found.policy, TablePolicy)
    gains = oracles.policy_gain(flat, found.policy.actions)
    assert (gains >= found.gain_lower - 1e-9).all()
    assert (found.status is Status.CONVERGED) == bool(best.max() - best.min() < 1e-9)
    if found.status is Status.CONVERGED:
        assert found.gain_upper - found.gain_lower <= 1e-7
        if found.bias is not None:
            residual = oracles.bellman(flat, found.bias) - found.bias
            assert residual.max() - residual.min() <= 1e-7 + 1e-9
    else:
        start = np.ravel_multi_index(model.initial_state, model.structure.state_sizes)
        assert found.stats["gain_from_initial_state"] == pytest.approx(best[start], abs=1e-6)


@given(shuffled_products(), st.sampled_from([0.0, 0.5, 0.95]))
@settings(max_examples=30)
def test_discounted_values_add_up(model: FactoredMDP, discount: float) -> None:
    planner = Exact(criterion="discounted", discount=discount, tolerance=1e-8)
    found, whole = planner.plan(model), joint_plan(model, planner)
    assert found.status is whole.status is Status.CONVERGED
    assert found.objective == pytest.approx(whole.objective, abs=1e-7)
    assert found.bias is not None
    np.testing.assert_allclose(found.bias, whole.bias, atol=1e-7)


@given(shuffled_products(), st.integers(0, 2**32 - 1))
@settings(max_examples=60)
def test_a_policy_that_treats_parts_separately_is_evaluated_by_parts(
    model: FactoredMDP, seed: int
) -> None:
    """Equal to the flat chain; a policy that looks across parts is found and evaluated jointly."""
    s = model.structure
    draw = np.random.default_rng(seed)
    actions = draw.integers(s.n_actions, size=s.n_states)
    found = parts_to_plan(s)
    flat = oracles.dense(model)
    for policy in (actions, Exact().plan(model).policy.actions.astype(np.int64)):  # type: ignore[union-attr]
        tables = Whole(s, found).split_actions(policy)
        if policy is not actions:
            assert tables is not None
        gains = oracles.policy_gain(flat, policy)
        evaluated = evaluate_exactly(model, TablePolicy(s.state_sizes, s.action_sizes, policy))
        assert evaluated.gain_lower is not None
        assert evaluated.gain_upper is not None
        assert evaluated.gain_lower <= gains.min() + 1e-9
        assert evaluated.gain_upper >= gains.max() - 1e-9
        start = np.ravel_multi_index(model.initial_state, s.state_sizes)
        if evaluated.gain is not None:
            assert evaluated.gain == pytest.approx(gains[start], abs=1e-6)


def test_a_policy_that_looks_across_parts_is_not_split() -> None:
    model = problem("jao:2")
    s = model.structure
    found = parts_to_plan(s)
    assert Whole(s, found).split_actions(np.array([0, 1, 2, 3])) is not None  # a_i = s_i
    assert Whole(s, found).split_actions(np.array([0, 0, 0, 3])) is None  # both only if both are up


@given(st.data())
@settings(max_examples=40)
def test_optimistic_tables_give_the_gain_of_the_whole(data: st.DataObject) -> None:
    """The optimistic gain of a product is the sum of the parts' gains."""
    model = data.draw(shuffled_products())
    tables = data.draw(strategies.optimistic_tables(model.structure))
    planner = Exact(tolerance=1e-7, max_iterations=3000, targets="vertex")
    prepared = planner.prepare(model.structure)
    assert isinstance(prepared, PreparedParts)
    found, whole = prepared.solve(tables), PreparedExact(planner, model.structure).solve(tables)
    assert found.gain_lower is not None
    assert found.gain_upper is not None
    assert whole.gain_lower is not None
    assert whole.gain_upper is not None
    assert found.gain_lower <= whole.gain_upper + 1e-9
    assert whole.gain_lower <= found.gain_upper + 1e-9
    if found.status is whole.status is Status.CONVERGED:
        assert found.gain == pytest.approx(whole.gain, abs=3e-7)


def test_the_warm_state_of_every_part_is_kept() -> None:
    model = problem("riverswim:2")
    planner = Exact(tolerance=1e-6)
    first, other = planner.prepare(model.structure), planner.prepare(model.structure)
    first.solve(model)
    other.restore_warm_state(first.warm_state())
    again, elsewhere = first.solve(model), other.solve(model)
    assert (again.gain_lower, again.gain_upper) == (elsewhere.gain_lower, elsewhere.gain_upper)
    assert again.iterations == elsewhere.iterations
    with pytest.raises(fmdp.errors.InvalidParameter, match=r"2 independent parts.*'7\.plain'"):
        other.restore_warm_state({"7.plain": np.zeros(6)})


def test_a_constraint_or_a_common_reward_joins_parts() -> None:
    model = problem("jao:2")
    assert len(independent_parts(model.structure)) == 2
    capped = model.with_constraints(AtMost((2, 3), 1))
    assert independent_parts(capped.structure) == ()
    s = model.structure
    tied = Structure(s.state_sizes, s.action_sizes, s.transition_scopes, ((0,), (1,), (0, 1)))
    assert independent_parts(tied) == ()


def test_a_constraint_inside_a_part_stays_there() -> None:
    """The forbidden action of the first copy is the good one: gain .5 + .6."""
    model = problem("jao:2")
    forbidden = np.array([False, True])
    capped = model.with_constraints(fmdp.Forbidden((2,), forbidden))
    assert len(independent_parts(capped.structure)) == 2
    assert fmdp.plan(capped).gain == pytest.approx(1.1, abs=1e-6)


def test_actions_without_states_and_states_without_actions() -> None:
    """A coin that nobody influences (mean 1/4) and an action that costs 0 or 1."""
    structure = Structure((2,), (2,), ((),), ((0,), (1,)), ((0.0, 1.0), (-1.0, 0.0)))
    model = FactoredMDP(structure, [[[0.75, 0.25]]], [[0.0, 1.0], [-1.0, 0.0]])
    assert [(part.states, part.actions) for part in independent_parts(structure)] == [
        ((0,), ()),
        ((), (1,)),
    ]
    plan = fmdp.plan(model)
    assert plan.gain == pytest.approx(0.25, abs=1e-9)
    assert plan.policy((0,)) == (1,)  # type: ignore[misc]
    assert plan.span == pytest.approx(1.0)


def test_spans_and_objective_of_a_product_by_hand() -> None:
    """jao:n: gain .6 n, span 2 n, each factored span 2."""
    plan = fmdp.plan(problem("jao:12"))
    assert plan.status is Status.CONVERGED
    assert plan.gain == pytest.approx(7.2, abs=1e-6)
    assert plan.policy_gain == pytest.approx(7.2, abs=1e-6)
    assert plan.span == pytest.approx(24.0, abs=1e-6)
    assert plan.factored_spans == pytest.approx((2.0,) * 12, abs=1e-6)


def test_limits_hold_for_parts() -> None:
    model = problem("riverswim:2")
    stopped = fmdp.plan(model, Exact(max_iterations=2))
    assert stopped.status is Status.ITERATION_LIMIT
    assert stopped.gain_lower is not None
    assert stopped.gain_upper is not None
    assert stopped.gain_lower <= 0.857244868 <= stopped.gain_upper
    late = fmdp.plan(model, Exact(max_seconds=1e-9))
    assert late.status is Status.TIME_LIMIT
    with pytest.raises(TooLarge, match="memory limit is 1000 bytes"):
        fmdp.plan(problem("jao:12"), Exact(memory_limit=1000))


def test_robust_plans_add_up() -> None:
    """Two copies of a model with intervals: the worst case of both is twice that of one."""
    single = problem("jao:1")
    ends = fmdp.Intervals(
        [np.maximum(table - 0.05, 0.0) for table in single.transitions],
        [np.minimum(table + 0.05, 1.0) for table in single.transitions],
        single.rewards,
        single.rewards,
    )
    s = single.structure
    uncertain = FactoredMDP(
        s, single.transitions, single.rewards, single.noise, single.initial_state, "", ends
    )
    planner = Exact(intervals="robust")
    alone, both = planner.plan(uncertain), planner.plan(product(uncertain, uncertain))
    # Worst: 1 -> 0 with .25 and 0 -> 1 with .25 for the good action.
    assert alone.gain == pytest.approx(0.5, abs=1e-6)
    assert both.gain == pytest.approx(1.0, abs=1e-6)
    assert both.status is Status.CONVERGED
    assert not both.bounds_best_gain


def test_sums_are_rounded_outwards() -> None:
    tenths = [0.1] * 3
    exact = 3 * np.longdouble(0.1)
    low, high = rounded_sum(tenths, -INFINITY), rounded_sum(tenths, INFINITY)
    assert low is not None
    assert high is not None
    assert low <= exact <= high
    assert low < high
    assert rounded_sum([0.5, 0.25], INFINITY) == rounded_sum([0.5, 0.25], -INFINITY) == 0.75
    assert rounded_sum([1.0, None], INFINITY) is None


def test_each_part_takes_its_least_tried_action() -> None:
    """Without rewards all actions are tied; tries are sums over the two factors."""
    structure = Structure((2, 2), (3, 3), ((0, 2), (1, 3)), ((0,), (1,)))
    rows = np.full((6, 2), 0.5)
    model = FactoredMDP(structure, [rows, rows], [[0.0, 0.0], [0.0, 0.0]])
    first = np.array([[5, 1, 3], [0, 4, 4]])  # tries of a_0 by s_0: the least are 1 and 0
    second = np.array([[2, 2, 0], [7, 6, 8]])  # of a_1 by s_1: 2 and 1
    tries = first[:, None, :, None] + second[None, :, None, :]
    prepared = Exact().prepare(structure)
    assert isinstance(prepared, PreparedParts)
    plan = prepared.solve(model, ties=Ties(tries=tries.reshape(4, 9)))
    assert plan.ties == "least-tried"
    answers = [plan.policy((s, t)) for s in (0, 1) for t in (0, 1)]  # type: ignore[misc]
    assert answers == [(1, 2), (1, 1), (0, 2), (0, 1)]


def test_equal_parts_break_their_ties_differently() -> None:
    structure = Structure((2,) * 12, (2,) * 12, tuple((i, 12 + i) for i in range(12)), ((0,),))
    model = FactoredMDP(structure, [np.full((4, 2), 0.5)] * 12, [[0.0, 0.0]])
    prepared = Exact().prepare(structure)
    assert isinstance(prepared, PreparedParts)
    answers = {prepared.solve(model, ties=Ties(seed=seed)).policy((0,) * 12) for seed in range(4)}  # type: ignore[misc]
    assert len(answers) == 4
    assert any(len(set(answer)) == 2 for answer in answers)


def test_rows_that_are_alike_across_parts_keep_sets_of_models_together() -> None:
    """p in [.2, .8] is the same for both variables, so x_1 + (1 - x_2) gains 1 in every model."""
    structure = Structure(
        (2, 2),
        (1,),
        ((), ()),
        ((0,), (1,)),
        alike=fmdp.Alike(([0], [0]), ([0, 1], [2, 3])),
    )
    row = [[0.5, 0.5]]
    model = FactoredMDP(
        structure,
        [row, row],
        [[0.0, 1.0], [1.0, 0.0]],
        intervals=fmdp.Intervals(
            ([[0.2, 0.2]],) * 2,
            ([[0.8, 0.8]],) * 2,
            ([0.0, 1.0], [1.0, 0.0]),
            ([0.0, 1.0], [1.0, 0.0]),
        ),
    )
    assert len(independent_parts(structure)) == 2
    for case in ("robust", "optimistic"):
        plan = fmdp.plan(model, Exact(intervals=case))
        assert plan.gain_lower <= 1.0 <= plan.gain_upper  # type: ignore[operator]


def test_the_tolerance_of_one_solve_is_shared() -> None:
    model = problem("riverswim:3")
    prepared = Exact().prepare(model.structure)
    plan = prepared.solve(model, tolerance=0.3)
    assert plan.status is Status.CONVERGED
    assert plan.gain_upper - plan.gain_lower <= 0.3  # type: ignore[operator]


def test_a_prepared_plan_knows_the_initial_state() -> None:
    """Nothing moves: the gain from (1, 0) is 1 + .5."""
    stay = [[1.0, 0.0], [0.0, 1.0]]
    structure = Structure((2, 2), (1,), ((0,), (1,)), ((0,), (1,)))
    model = FactoredMDP(structure, [stay, stay], [[0.0, 1.0], [0.5, 0.0]], initial_state=(1, 0))
    plan = Exact().prepare(structure).solve(model)
    assert plan.status is Status.MULTICHAIN
    assert plan.stats["gain_from_initial_state"] == pytest.approx(1.5)


def test_ctrl_c_ends_all_parts() -> None:
    """The parts that are left are planned by one sweep, so that there is a policy and bounds."""
    model = problem("riverswim:3")
    calls = []

    def stop(news: object) -> None:
        calls.append(news)
        raise KeyboardInterrupt

    plan = Exact().plan(model, progress=stop)
    assert plan.status is Status.INTERRUPTED
    assert len(calls) == 1
    assert plan.policy is not None
    assert plan.gain_lower <= 1.285867302 <= plan.gain_upper  # type: ignore[operator]
    calls.clear()
    prepared = Exact().prepare(model.structure).solve(model, progress=stop)
    assert prepared.status is Status.INTERRUPTED
    assert len(calls) == 1


def test_progress_tells_the_bounds_of_the_whole() -> None:
    model = problem("riverswim:3")
    seen: list[tuple[float, float]] = []
    Exact().plan(model, progress=lambda news: seen.append((news["gain_lower"], news["gain_upper"])))
    assert seen
    assert all(low - 1e-9 <= 1.285867302 <= high + 1e-9 for low, high in seen)


def test_bounds_within_the_whole_tolerance_have_converged() -> None:
    """Gains that differ by 6e-4: several chains for a part, one gain within 1e-3."""
    stay = [[1.0, 0.0], [0.0, 1.0]]
    structure = Structure((2, 2), (1,), ((0,), (1,)), ((0,), (1,)))
    model = FactoredMDP(structure, [stay, stay], [[0.5, 0.5006], [0.5, 0.5]])
    plan = Exact(tolerance=1e-3).plan(model)
    assert plan.status is Status.CONVERGED
    assert plan.gain == pytest.approx(1.0003)


def test_vectors_of_whole_plans_are_left_out() -> None:
    """A learner that was saved when its model was planned as a whole starts cold."""
    model = problem("riverswim:2")
    prepared = Exact().prepare(model.structure)
    prepared.restore_warm_state({"plain": np.zeros(36)})
    assert prepared.solve(model).status is Status.CONVERGED


def test_small_products_are_planned_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joining, "JOINT_PAIRS", 1 << 13)
    assert "independent_parts" not in fmdp.plan(problem("riverswim:3")).stats
    assert fmdp.plan(problem("jao:7")).stats["independent_parts"] == 7
