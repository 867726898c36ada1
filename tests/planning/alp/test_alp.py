"""The approximate linear program against the LP over all (state, action)."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import average_lp, basis_matrix, discounted_lp, joint_relevance, residuals

import fmdp
from fmdp.errors import InvalidParameter, TooLarge
from fmdp.model import FactoredMDP, OptimisticTables, Structure, product
from fmdp.planning.alp import ALP, chains
from fmdp.planning.alp.highs import HighsModel, Rows, Solution
from fmdp.planning.plan import Status
from fmdp.testing.strategies import models, optimistic_tables, structures

METHODS = ("cuts", "factored")
FAMILIES = ("singles", "indicators", "pairs", "local")
SMALL = structures(max_states=24, max_actions=6, max_variables=4, max_values=4)


@st.composite
def bases(draw: st.DrawFn, structure: Structure):
    """A family, or scopes of the user's."""
    if draw(st.booleans()):
        return draw(st.sampled_from(FAMILIES))
    variables = st.integers(0, structure.m - 1)
    scope = st.lists(variables, max_size=2, unique=True).map(lambda s: tuple(sorted(s)))
    return tuple(draw(st.lists(scope, max_size=3)))


def grouped(draw, structure: Structure) -> Structure:
    """The same structure, its first variables declared a group now and then."""
    if structure.m < 2 or not draw(st.booleans()):
        return structure
    return dataclasses.replace(structure, groups=((0, 1),))


@st.composite
def cases(draw: st.DrawFn):
    structure = grouped(draw, draw(SMALL))
    model = draw(models(structure))
    return model, draw(bases(structure)), draw(st.sampled_from((0.0, 0.5, 0.9, 0.95)))


def check_certificate(plan, model: FactoredMDP, phi: np.ndarray, basis) -> None:
    """gain_upper is the largest residual of h_w, for the weights that the plan reports."""
    h = h_of(plan, model.structure, basis)
    assert plan.gain_upper == pytest.approx(residuals(model, h).max(), abs=1e-8)
    assert plan.span == pytest.approx(h.max() - h.min(), abs=1e-8)
    table = h.reshape(model.structure.state_sizes)
    spans = [float((table.max(axis=i) - table.min(axis=i)).max()) for i in range(table.ndim)]
    assert plan.factored_spans == pytest.approx(spans, abs=1e-8)


def h_of(plan, structure: Structure, basis) -> np.ndarray:
    prepared = ALP(basis=basis).prepare(structure)
    states = np.ndindex(*structure.state_sizes)
    return np.array([prepared.basis.value(plan.stats["weights"], state) for state in states])


@given(cases(), st.sampled_from(METHODS))
def test_discounted_objective_is_that_of_the_lp_over_all_pairs(case, method: str) -> None:
    model, basis, discount = case
    phi = basis_matrix(model.structure, basis)
    expected, _ = discounted_lp(model, phi, discount)
    plan = ALP(basis=basis, method=method, discount=discount).plan(model)
    assert plan.status is Status.CONVERGED
    assert plan.objective == pytest.approx(expected, abs=1e-6, rel=1e-7)
    h = h_of(plan, model.structure, basis)
    value = h + plan.stats["constant"]
    alpha = joint_relevance(model.structure)
    assert alpha @ value == pytest.approx(expected, abs=1e-6, rel=1e-7)
    assert residuals(model, value, discount).max() <= 1e-6
    check_certificate(plan, model, phi, basis)


@given(cases(), st.sampled_from(METHODS))
def test_average_objective_is_that_of_the_lp_over_all_pairs(case, method: str) -> None:
    model, basis, discount = case
    phi = basis_matrix(model.structure, basis)
    expected = average_lp(model, phi)
    plan = ALP(basis=basis, method=method, criterion="average", discount=discount).plan(model)
    assert plan.status is Status.CONVERGED
    assert plan.objective == pytest.approx(expected, abs=1e-6, rel=1e-7)
    # The second stage keeps the bound of the first, up to a slack in units of the reward.
    structure = model.structure
    size = structure.reward_unit + abs(expected - sum(lo for lo, _ in structure.reward_ranges))
    assert plan.gain_upper <= expected + 3e-6 * size
    check_certificate(plan, model, phi, basis)


@given(st.data(), st.sampled_from(METHODS))
def test_optimistic_tables_are_the_extended_model(data: st.DataObject, method: str) -> None:
    structure = grouped(
        data.draw, data.draw(structures(max_states=12, max_actions=3, max_variables=3))
    )
    tables = data.draw(optimistic_tables(structure))
    basis = data.draw(bases(structure))
    extended = tables.extended()
    phi = basis_matrix(structure, basis)
    discounted = ALP(basis=basis, method=method, discount=0.9).prepare(structure).solve(tables)
    assert discounted.objective == pytest.approx(
        discounted_lp(extended, phi, 0.9)[0], abs=1e-6, rel=1e-7
    )
    average = ALP(basis=basis, method=method, criterion="average").prepare(structure).solve(tables)
    assert average.objective == pytest.approx(average_lp(extended, phi), abs=1e-6, rel=1e-7)
    assert average.status is discounted.status is Status.CONVERGED


@given(st.data())
def test_split_targets_are_never_below_joint_ones(data: st.DataObject) -> None:
    structure = data.draw(structures(max_states=12, max_actions=3, max_variables=3))
    tables = data.draw(optimistic_tables(structure))
    joint = ALP(basis="pairs").prepare(structure).solve(tables)
    split = ALP(basis="pairs", targets="split").prepare(structure).solve(tables)
    assert split.objective >= joint.objective - 1e-6
    assert split.stats["relaxed"]
    assert not joint.stats["relaxed"]
    singles = ALP(basis="singles", targets="split").prepare(structure).solve(tables)
    exact = ALP(basis="singles").prepare(structure).solve(tables)
    assert singles.objective == pytest.approx(exact.objective, abs=1e-6)


@given(cases())
def test_any_product_relevance(case) -> None:
    model, basis, _ = case
    rng = np.random.default_rng(0)
    relevance = tuple(tuple(rng.random(size) + 0.01) for size in model.structure.state_sizes)
    phi = basis_matrix(model.structure, basis)
    expected, _ = discounted_lp(model, phi, 0.9, relevance)
    plan = ALP(basis=basis, discount=0.9, relevance=relevance).plan(model)
    assert plan.objective == pytest.approx(expected, abs=1e-6, rel=1e-7)


@given(st.data())
@settings(max_examples=30)
def test_new_tables_from_the_last_cuts_and_basis(data: st.DataObject) -> None:
    """A prepared planner gives for every table what a fresh one gives."""
    structure = data.draw(SMALL)
    method = data.draw(st.sampled_from(METHODS))
    criterion = data.draw(st.sampled_from(("discounted", "average")))
    planner = ALP(basis="pairs", method=method, criterion=criterion, discount=0.9)
    prepared = planner.prepare(structure)
    phi = basis_matrix(structure, "pairs")
    for _ in range(4):
        model = data.draw(models(structure))
        plan = prepared.solve(model)
        if criterion == "average":
            expected = average_lp(model, phi)
        else:
            expected = discounted_lp(model, phi, 0.9)[0]
        assert plan.status is Status.CONVERGED
        assert plan.objective == pytest.approx(expected, abs=1e-6, rel=1e-7)


@given(st.data())
@settings(max_examples=20)
def test_a_restored_planner_goes_on_to_the_last_bit(data: st.DataObject) -> None:
    structure = data.draw(SMALL)
    method = data.draw(st.sampled_from(METHODS))
    criterion = data.draw(st.sampled_from(("discounted", "average")))
    planner = ALP(basis="pairs", method=method, criterion=criterion)
    running = planner.prepare(structure)
    tables = [
        data.draw(st.one_of(models(structure), optimistic_tables(structure))) for _ in range(4)
    ]
    for table in tables[:2]:
        running.solve(table)
    saved = {name: array.copy() for name, array in running.warm_state().items()}
    resumed = planner.prepare(structure)
    resumed.restore_warm_state(saved)
    for table in tables[2:]:
        one, other = running.solve(table), resumed.solve(table)
        np.testing.assert_array_equal(one.stats["weights"], other.stats["weights"])
        assert one.objective == other.objective
        assert one.iterations == other.iterations


FIXED = (
    ("circle:4", "singles"),
    ("circle:4", "pairs"),
    ("circle:5,dynamics=guestrin,reward=mean", "indicators"),
    ("three-leg:5,dynamics=talebi", "pairs"),
    ("star:4,dynamics=ippc", "singles"),
    ("bi-ring:4,dynamics=guestrin", ((0, 1, 2), (2, 3))),
    ("machines:2", "local"),
    ("machines:2,topology=star", "pairs"),
    ("jao:3", "singles"),
    ("large-diameter", "indicators"),
    ("riverswim:2", "indicators"),
    ("random:4,seed=3", "pairs"),
)


@pytest.mark.parametrize(("name", "basis"), FIXED)
def test_fixed_list_of_problems(name: str, basis) -> None:
    model = fmdp.problem(name)
    phi = basis_matrix(model.structure, basis)
    discounted, _ = discounted_lp(model, phi, 0.95)
    average = average_lp(model, phi)
    for method in METHODS:
        plan = ALP(basis=basis, method=method).plan(model)
        assert plan.objective == pytest.approx(discounted, abs=1e-6)
        plan = ALP(basis=basis, method=method, criterion="average").plan(model)
        assert plan.objective == pytest.approx(average, abs=1e-6)


def test_disconnected_models_add_up() -> None:
    """The bound of a product is the sum of the bounds, each with variables of its own."""
    parts = [fmdp.problem(name) for name in ("circle:3", "jao:1", "riverswim:1")]
    whole = product(*parts)
    for method in METHODS:
        planner = ALP(method=method, basis="indicators")
        together = planner.plan(whole)
        alone = [planner.plan(part) for part in parts]
        assert together.objective == pytest.approx(sum(p.objective for p in alone), abs=1e-6)
        planner = dataclasses.replace(planner, criterion="average")
        together = planner.plan(whole)
        assert together.objective == pytest.approx(
            sum(planner.plan(part).objective for part in parts), abs=1e-6
        )


def test_variables_that_nothing_depends_on_and_empty_scopes() -> None:
    """One idle state variable, one idle action variable, a constant reward: 2 + 1 a step."""
    structure = Structure((2, 3), (2, 4), ((2,), ()), ((), (0,)), ((0.0, 2.0), (0.0, 1.0)))
    stay = np.array([[1.0, 0.0], [0.0, 1.0]])
    model = FactoredMDP(structure, [stay, np.full((1, 3), 1 / 3)], [np.array([2.0]), [0.0, 1.0]])
    for method in METHODS:
        plan = ALP(basis="singles", method=method, criterion="average").plan(model)
        assert plan.objective == pytest.approx(3.0, abs=1e-6)
        plan = ALP(basis="singles", method=method, discount=0.5).plan(model)
        # Half of the states pay 0 in the first step: 2/(1-g) + g/(1-g) + 1/2.
        assert plan.objective == pytest.approx(4.0 + 1.0 + 0.5, abs=1e-6)
        assert plan.policy((0, 0))[0] == 1


def test_no_rewards_at_all() -> None:
    structure = Structure((2,), (2,), ((0, 1),), ())
    model = FactoredMDP(structure, [np.full((4, 2), 0.5)], [])
    for method in METHODS:
        for criterion in ("discounted", "average"):
            plan = ALP(basis="singles", method=method, criterion=criterion).plan(model)
            assert plan.status is Status.CONVERGED
            assert plan.objective == pytest.approx(0.0, abs=1e-9)


def test_large_weights_need_no_box() -> None:
    """Rewards of a million: the box of the first rounds must not be seen in the answer."""
    base = fmdp.problem("circle:3,dynamics=guestrin")
    ranges = tuple((0.0, 1e-3 if k else 1e6) for k in range(3))
    structure = dataclasses.replace(base.structure, reward_ranges=ranges)
    rewards = [np.asarray(table) * ranges[k][1] for k, table in enumerate(base.rewards)]
    model = FactoredMDP(structure, base.transitions, rewards)
    expected, _ = discounted_lp(model, basis_matrix(structure, "pairs"), 0.99)
    for method in METHODS:
        plan = ALP(basis="pairs", method=method, discount=0.99, tolerance=1e-3).plan(model)
        assert plan.objective == pytest.approx(expected, rel=1e-7)


def test_limits_are_statuses_and_the_bound_still_holds() -> None:
    model = fmdp.problem("circle:6,dynamics=guestrin,reward=mean")
    best = ALP(basis="pairs").plan(model)
    few = ALP(basis="pairs", max_iterations=2).plan(model)
    assert few.status is Status.ITERATION_LIMIT
    assert few.iterations == 2
    assert few.objective >= best.objective - 1e-6  # feasible, so an upper bound on alpha . V*
    assert few.gain_upper >= 0.84
    for criterion in ("discounted", "average"):
        short = ALP(basis="pairs", criterion=criterion, max_seconds=1e-9).plan(model)
        assert short.status is Status.TIME_LIMIT
        assert short.objective == (
            1.0 if criterion == "average" else pytest.approx(1.0 / (1.0 - ALP().discount))
        )
        assert short.gain_upper == 1.0
    average = ALP(basis="singles", criterion="average", max_iterations=1).plan(model)
    assert average.status is Status.ITERATION_LIMIT
    assert average.objective >= average_lp(model, basis_matrix(model.structure, "singles")) - 1e-6
    assert (
        ALP(basis="singles", method="factored", max_iterations=1).plan(model).status
        is Status.ITERATION_LIMIT
    )


def test_a_plan_that_is_cut_short_is_the_best_point_so_far() -> None:
    """Weights of 0 satisfy every constraint at 24 / (1 - .95); no later answer is worse, where the
    vertices of the first rounds are far out."""
    model = fmdp.problem("circle:24")
    best = ALP(basis="singles").plan(model)
    values = [
        ALP(basis="singles", max_iterations=rounds).plan(model).objective
        for rounds in (1, 2, 3, 6, 9)
    ]
    assert values == sorted(values, reverse=True)
    assert values[0] <= 480.0 + 1e-6
    assert best.objective - 1e-6 <= values[-1] < 0.5 * (best.objective + values[0])
    # Where the box has to be widened the centre is moved to a worse point.
    ring, average = (
        fmdp.problem("bi-ring:18,dynamics=guestrin"),
        ALP(basis="singles", criterion="average"),
    )
    for planner, chosen in ((ALP(basis="singles"), ring), (average, model)):
        limited = [
            dataclasses.replace(planner, max_iterations=rounds) for rounds in (1, 2, 3, 5, 8)
        ]
        values = [one.plan(chosen).objective for one in limited]
        assert values == sorted(values, reverse=True)
        assert values[-1] >= planner.plan(chosen).objective - 1e-6


def test_rows_without_a_weight_have_a_slack_too() -> None:
    """Under a fixed bound a state and action may matter to no weight."""
    nowhere = np.zeros(3, dtype=np.int32)
    rows = Rows(
        np.array([1.0, -2.0, 0.5]),
        np.array([0, 2, 2], dtype=np.int32),
        np.array([0, 1], dtype=np.int32),
        np.array([3.0, 4.0]),
    )
    assert rows.slack(np.array([1.0, 2.0])).tolist() == [10.0, 2.0, -0.5]
    empty = Rows(np.zeros(3), nowhere, nowhere[:0], np.zeros(0))
    assert empty.slack(np.zeros(2)).tolist() == [0.0, 0.0, 0.0]
    learner = fmdp.DORL(planner=ALP(basis="singles", criterion="average"))
    assert fmdp.simulate(fmdp.problem("circle:17"), learner, steps=60, seed=0).steps == 60


def test_a_first_stage_that_is_cut_short_is_followed_by_the_second() -> None:
    """Its weights alone say nothing about what to do."""
    model = fmdp.problem("circle:24")
    plan = ALP(basis="singles", criterion="average", max_iterations=3).plan(model)
    assert plan.status is Status.ITERATION_LIMIT
    assert plan.iterations > 3
    assert plan.objective >= ALP(basis="singles", criterion="average").plan(model).objective - 1e-6
    assert plan.gain_upper <= plan.objective + 1e-6


def test_what_a_hurried_plan_calls_converged_is_within_its_tolerance() -> None:
    """Of the optimum, which the factored program finds without any cut; plan after plan, from the
    cuts and the centre of the one before."""
    base = fmdp.problem("circle:24")
    rng = np.random.default_rng(5)
    prepared = ALP(basis="singles", tolerance=0.5).prepare(base.structure)
    for _ in range(8):
        rows = [0.9 * table + 0.1 * rng.dirichlet([1, 1], len(table)) for table in base.transitions]
        model = FactoredMDP(base.structure, rows, base.rewards)
        plan = prepared.solve(model)
        optimum = ALP(basis="singles", method="factored").plan(model).objective
        assert plan.status is Status.CONVERGED
        assert optimum - 1e-6 <= plan.objective <= optimum + 0.5


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("criterion", ["discounted", "average"])
def test_a_solver_that_gives_up_leaves_a_policy_and_bounds(
    monkeypatch: pytest.MonkeyPatch, method: str, criterion: str
) -> None:
    """Every program has a finite optimum: whatever the solver says, rounding has said it."""
    model = fmdp.problem("circle:20,dynamics=guestrin")
    prepared = ALP(basis="singles", method=method, criterion=criterion).prepare(model.structure)
    good = prepared.solve(model)
    prepared.forget()
    with monkeypatch.context() as broken:
        failed = Solution(Status.PRECISION_LIMIT, 0.0, np.zeros(0), 1)
        broken.setattr(HighsModel, "solve", lambda *_, **__: failed)
        plan = prepared.solve(model)
    assert plan.status is Status.PRECISION_LIMIT
    assert plan.policy is not None
    assert plan.gain_upper >= good.gain_upper
    assert plan.objective >= good.objective
    # And it is no reason for the next plan to fail.
    again = prepared.solve(model)
    assert again.status is Status.CONVERGED
    assert again.objective == pytest.approx(good.objective, abs=1e-6)


def test_a_width_that_does_not_fit_is_refused() -> None:
    model = fmdp.problem("random:14,parents=5,seed=1")
    with pytest.raises(TooLarge, match="induced width"):
        ALP(basis="pairs", memory_limit=10_000).plan(model)
    # The network of a circle is small; one row for each of its joint entries is not.
    circle = fmdp.problem("circle:12")
    with pytest.raises(TooLarge, match="factored linear program has"):
        ALP(basis="singles", method="factored", memory_limit=100_000).plan(circle)
    assert ALP(basis="singles", memory_limit=100_000).plan(circle).status is Status.CONVERGED


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"basis": "single"}, "did you mean"),
        ({"basis": ((0, 9),)}, "variable 9"),
        ({"method": "cut"}, "did you mean"),
        ({"criterion": "gain"}, "'criterion' parameter of planner alp must be one of"),
        ({"discount": 1.0}, "'discount' parameter of planner alp must be a number in"),
        ({"tolerance": 0.0}, "'tolerance' parameter of planner alp must be a number > 0"),
        (
            {"max_iterations": 0},
            "'max_iterations' parameter of planner alp must be an integer >= 1",
        ),
        ({"relevance": ((1.0, 1.0),)}, "must be one for each"),
        ({"relevance": ((0.0, 0.0),) * 4}, "not all 0"),
        ({"ties": "lucky"}, "'ties' parameter of planner alp must be one of"),
    ],
)
def test_settings_that_cannot_be_meant(wrong, message: str) -> None:
    with pytest.raises(InvalidParameter, match=message):
        ALP(**wrong).prepare(fmdp.problem("circle:4").structure)


def test_what_it_takes_on_the_hard_circle() -> None:
    """Singles lose a sixth of the gain; all functions of four neighbours lose less than 2 %."""
    model = fmdp.problem("circle:7,dynamics=guestrin,reward=mean")
    best = fmdp.plan(model, fmdp.Exact()).gain
    assert best == pytest.approx(0.844975, abs=2e-6)
    for ties in ("random", "first", "last"):
        assert fmdp.plan(model, ALP(basis="singles", ties=ties)).policy_gain < 0.86 * best
        local = fmdp.plan(model, ALP(basis=chains(model.structure, 4), ties=ties))
        assert local.policy_gain > 0.98 * best
        assert local.gain_upper >= best - 1e-6


def test_chains_are_neighbourhoods_along_the_parents() -> None:
    circle = fmdp.problem("circle:5").structure
    assert chains(circle, 1) == ((0,), (1,), (2,), (3,), (4,))
    assert chains(circle, 3) == ((0, 1, 2), (0, 1, 4), (0, 3, 4), (1, 2, 3), (2, 3, 4))
    star = fmdp.problem("star:3").structure
    assert chains(star, 2) == ((0,), (0, 1), (0, 2))
    with pytest.raises(InvalidParameter, match="length must be an integer >= 1; got 0"):
        chains(circle, 0)


def test_zero_widths_are_the_model_itself() -> None:
    model = fmdp.problem("circle:4,dynamics=guestrin,reward=mean")
    tables = OptimisticTables.from_model(model)
    for basis in ("singles", "pairs"):
        planner = ALP(basis=basis)
        assert planner.prepare(model.structure).solve(tables).objective == pytest.approx(
            planner.plan(model).objective, abs=1e-7
        )
