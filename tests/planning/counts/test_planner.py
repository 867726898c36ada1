"""Plans on counts are exact plans: random symmetric models, all criteria, files, refusals."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import fmdp
from fmdp.errors import FileProblem, InvalidParameter, TooLarge
from fmdp.model.spaces import all_assignments, encode
from fmdp.planning.choice import choose_planner_of, planned
from fmdp.planning.counts.planner import Counts
from fmdp.planning.evaluate import evaluate_exactly
from fmdp.planning.exact.planner import Exact
from fmdp.planning.policies.counts import CountPolicy, TimedCountPolicy, as_table
from fmdp.planning.policies.files import load_policy
from fmdp.planning.status import Status
from fmdp.problems import problem
from fmdp.testing.exchangeable import exchangeable_model

TOLERANCE = 1e-9


def random_model(seed: int) -> fmdp.FactoredMDP:
    """Return a small model; one in four is so sparse that gains often differ between states."""
    generator = np.random.default_rng(seed)
    sparse = (0.0, 0.2, 0.5, 0.8)[seed % 4]
    return exchangeable_model(generator, sparse=sparse, most_states=96)


def assert_close(left: object, right: object, within: float = 1e-8) -> None:
    assert (left is None) == (right is None)
    if left is not None:
        np.testing.assert_allclose(left, right, rtol=0, atol=within)


def assert_same_plan(model: fmdp.FactoredMDP, **settings: object) -> fmdp.Plan:
    exact = Exact(tolerance=TOLERANCE, **settings).plan(model)
    plan = Counts(tolerance=TOLERANCE, **settings).plan(model)
    assert plan.stats["counts"] < model.structure.n_states
    assert plan.status is exact.status
    for name in ("gain", "gain_lower", "gain_upper", "span", "factored_spans", "objective"):
        assert_close(getattr(plan, name), getattr(exact, name))
    assert (plan.bias is None) == (exact.bias is None)
    if plan.bias is not None and exact.bias is not None:
        assert_close(plan.bias - plan.bias[0], exact.bias - exact.bias[0], 1e-7)
    return plan


@pytest.mark.parametrize("seed", range(48))
def test_average_reward_is_that_of_the_exact_planner(seed: int) -> None:
    model = random_model(seed)
    plan = assert_same_plan(model)
    assert plan.policy is not None
    assert plan.policy_gain is not None
    evaluation = evaluate_exactly(model, plan.policy, tolerance=TOLERANCE)
    assert_close(plan.policy_gain, evaluation.gain)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(48, 300))
def test_average_reward_of_hundreds_of_models(seed: int) -> None:
    test_average_reward_is_that_of_the_exact_planner(seed)


@pytest.mark.parametrize("seed", range(300, 324))
def test_discounted_value_is_that_of_the_exact_planner(seed: int) -> None:
    model = random_model(seed)
    plan = assert_same_plan(model, criterion="discounted", discount=0.9)
    low, high = plan.stats["objective_bounds"]
    assert low <= plan.objective <= high


@pytest.mark.parametrize("seed", range(400, 424))
def test_finite_horizon_is_that_of_the_exact_planner(seed: int) -> None:
    model = random_model(seed)
    plan = assert_same_plan(model, criterion="finite", horizon=5)
    evaluation = evaluate_exactly(model, plan.policy)
    assert_close(evaluation.value, plan.objective)


def test_two_coins_by_hand() -> None:
    """Two coins that fall anew in every step, one paid step per head: the gain is 1."""
    coin = [[0.5, 0.5], [0.5, 0.5]]
    model = fmdp.FactoredMDP.from_factors(
        (2, 2), (1,), [((0,), coin), ((1,), coin)], [((0,), [0, 1]), ((1,), [0, 1])]
    )
    plan = Counts().plan(model)
    assert plan.gain == pytest.approx(1.0, abs=1e-12)
    assert plan.gain_lower <= 1.0 <= plan.gain_upper
    assert plan.stats["counts"] == 3
    assert plan.factored_spans == (1.0, 1.0)
    assert plan.span == 2.0


def test_the_gain_depends_on_the_state_where_nothing_moves() -> None:
    stay = [[1, 0], [0, 1]]
    model = fmdp.FactoredMDP.from_factors(
        (2, 2),
        (1,),
        [((0,), stay), ((1,), stay)],
        [((0,), [0, 1]), ((1,), [0, 1])],
        initial_state=(0, 1),
    )
    plan = Counts().plan(model)
    assert plan.status is Status.MULTICHAIN
    assert plan.stats["gain_from_initial_state"] == pytest.approx(1.0)
    assert (plan.gain_lower, plan.gain_upper) == (pytest.approx(0.0), pytest.approx(2.0))


def test_a_star_has_24_counts_and_the_gain_of_its_4096_states() -> None:
    model = problem("star:12,dynamics=guestrin")
    plan = fmdp.plan(model)
    assert plan.planner == "counts"
    assert plan.stats["counts"] == 24
    exact = Exact().plan(model)
    assert exact.gain_lower <= plan.gain_upper
    assert plan.gain_lower <= exact.gain_upper
    assert plan.span == pytest.approx(exact.span, abs=1e-4)
    np.testing.assert_allclose(plan.factored_spans, exact.factored_spans, atol=1e-4)


def test_small_models_are_planned_by_states() -> None:
    assert fmdp.plan(problem("star:7,dynamics=guestrin")).planner == "exact"


def test_counts_are_not_chosen_for_settings_that_they_do_not_have() -> None:
    model = problem("star:12,dynamics=guestrin")
    assert isinstance(choose_planner_of(model).planner, Counts)
    assert isinstance(choose_planner_of(model, settings=("threads",)).planner, Exact)
    assert isinstance(choose_planner_of(model, averages=True).planner, Exact)


def test_independent_parts_stay_with_the_exact_planner() -> None:
    """Rivers that share nothing are planned one by one, which is cheaper than any count."""
    assert isinstance(choose_planner_of(problem("riverswim:5")).planner, Exact)


@pytest.mark.parametrize(
    "name", ["star:100,dynamics=guestrin", "maintenance:20,levels=3,crew=3,k=15"]
)
def test_models_far_beyond_joint_states(name: str) -> None:
    model = problem(name)
    plan = fmdp.plan(model)
    assert plan.status is Status.CONVERGED
    assert plan.policy_gain <= plan.gain_upper
    action = plan.policy(model.initial_state)
    model.structure.check_allowed(model.initial_state, action)
    assert plan.bias is None


def test_replacing_by_counts_by_hand() -> None:
    """Three components, two levels, crew of one: the first failed one is replaced."""
    model = problem("maintenance:3,levels=2,crew=1,preventive=5,setup=0")
    policy = Counts().plan(model).policy
    assert policy((0, 1, 1)) == (0, 1, 0)
    assert policy((1, 0, 1)) == (1, 0, 0)
    assert policy((0, 0, 0)) == (0, 0, 0)
    assert policy({"wear_0": "0", "wear_1": "0", "wear_2": "failed"})["action_2"] == "replace"


@pytest.mark.parametrize("most", [1, 2])
def test_caps_with_different_idle_values(most: int) -> None:
    """The second cap forbids nothing, but its idle value is not that of the first."""
    generator = np.random.default_rng(1)
    law, pay = generator.dirichlet(np.ones(2), 6), generator.random(6)
    scopes = tuple((i, 3 + i) for i in range(3))
    caps = fmdp.AtMost((3, 4, 5), most), fmdp.AtMost((3, 4, 5), 3, (1, 1, 1))
    structure = fmdp.Structure((2,) * 3, (3,) * 3, scopes, scopes, constraints=caps)
    assert_same_plan(fmdp.FactoredMDP(structure, [law] * 3, [pay] * 3))


def test_seven_common_variables_whose_rows_have_more_combinations_than_64_bits_count() -> None:
    generator = np.random.default_rng(1)
    common = (*range(7), 9)  # 2^7 states and 5 actions: 640 rows each
    scopes = (common,) * 7 + ((0, 7), (0, 8))
    tables = [generator.dirichlet(np.full(2, 0.5), 640) for _ in range(7)]
    law, pay = generator.dirichlet(np.ones(2), 4), generator.random(2)
    structure = fmdp.Structure((2,) * 9, (5,), scopes, ((7,), (8,), common))
    assert_same_plan(
        fmdp.FactoredMDP(structure, [*tables, law, law], [pay, pay, generator.random(640)])
    )


# ---- policies ------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(20))
def test_policies_are_allowed_and_come_back_from_files(seed: int, tmp_path: Path) -> None:
    model = random_model(seed)
    s = model.structure
    policy = Counts().plan(model).policy
    assert isinstance(policy, CountPolicy)
    table = as_table(policy, s)
    s.check_policy(table.actions.astype(np.int64))
    policy.save(tmp_path / "policy.npz")
    loaded = load_policy(tmp_path / "policy.npz", s)
    assert loaded == policy
    for state in all_assignments(s.state_sizes)[::7].tolist():
        action = loaded(tuple(state))
        assert encode(action, s.action_sizes) == table.actions[encode(state, s.state_sizes)]


def test_a_policy_with_a_horizon_comes_back_from_its_file(tmp_path: Path) -> None:
    model = problem("star:40,dynamics=guestrin")
    plan = Counts(criterion="finite", horizon=4).plan(model)
    assert isinstance(plan.policy, TimedCountPolicy)
    plan.policy.save(tmp_path / "policy.npz")
    loaded = load_policy(tmp_path / "policy.npz", model.structure)
    assert loaded == plan.policy
    down = (0,) * 40
    assert loaded(down, 0) == plan.policy(down, 0) == (0,)  # the hub first


def test_a_file_with_moves_of_other_parts_is_refused(tmp_path: Path) -> None:
    policy = Counts().plan(problem("star:7,dynamics=guestrin")).policy
    broken = policy.moves.allotments.copy()
    broken[:, 2] = 7
    object.__setattr__(policy.moves, "allotments", broken)
    policy.save(tmp_path / "policy.npz")
    with pytest.raises(FileProblem, match="its moves do not fit its groups"):
        load_policy(tmp_path / "policy.npz")


# ---- refusals ------------------------------------------------------------------------------------


def test_without_parts_the_exact_planner_plans_and_the_plan_says_why() -> None:
    model = problem("circle:4,dynamics=ippc")
    plan = planned(model, Counts())
    assert plan.planner == "counts"
    assert plan.stats["planner_reason"] == "no exchangeable parts"
    assert plan.gain == planned(model, Exact()).gain


def test_declared_parts_that_differ_are_refused() -> None:
    with pytest.raises(InvalidParameter, match="machine_1 differs from machine_2: transition"):
        Counts(groups=[("machine_1", "machine_2")]).plan(problem("star:3"))


def test_declared_parts_are_planned_as_found_ones() -> None:
    model = problem("star:5,dynamics=guestrin")
    names = tuple(f"machine_{i}" for i in range(1, 5))
    plan = Counts(groups=(names,)).plan(model)
    assert plan.gain == Counts().plan(model).gain
    assert fmdp.plan(model, f"counts,groups={' '.join(names)}").gain == plan.gain


@pytest.mark.parametrize("given", ["machine_1", (("machine_1",),), 3, ((1, 2),)])
def test_groups_must_be_names_of_at_least_two_parts(given: object) -> None:
    with pytest.raises(InvalidParameter, match="'groups' parameter of planner counts"):
        Counts(groups=given)


def test_too_large_says_so_before_anything_is_listed() -> None:
    with pytest.raises(TooLarge, match="planning on 12,341 counts needs"):
        Counts(memory_limit=1 << 28).plan(problem("maintenance:40,levels=4"))


def test_a_deadline_leaves_bounds() -> None:
    plan = Counts(max_seconds=1e-3).plan(problem("maintenance:30,levels=4,crew=3"))
    assert plan.status is Status.TIME_LIMIT
    assert plan.gain_lower <= plan.gain_upper


def test_a_budget_with_costs_is_kept_and_not_planned_on_counts() -> None:
    """Repairs of 2 hours within 5 hours are at most two repairs."""
    free = problem("fleet:6,types=1,levels=3,budget=6")
    hours = {name: [0, 2] for name in free.structure.action_names}
    budgeted = free.with_constraints(fmdp.budget(free, 5, hours, name="hours"))
    capped = free.with_constraints(fmdp.at_most(free, 2))
    plan = Counts(tolerance=TOLERANCE).plan(budgeted)
    assert_close(plan.gain, Counts(tolerance=TOLERANCE).plan(capped).gain)
    assert 'constraint "hours" is a budget with costs' in plan.stats["planner_reason"]
    with pytest.raises(InvalidParameter, match='constraint "hours" is a budget with costs'):
        Counts(groups=[free.structure.state_names]).plan(budgeted)


def test_more_counts_than_floats_can_hold_are_planned_as_a_fleet() -> None:
    """Two hundred types of four machines each: 35 ** 200 counts."""
    model = problem("fleet:800,types=200")
    assert type(choose_planner_of(model).planner) is fmdp.Coupled
    with pytest.raises(TooLarge, match="counts have about"):
        Counts().plan(model)


def test_a_state_that_is_hardly_ever_reached_does_not_end_the_sweeps() -> None:
    # Without replacements all 100 components fail, and with them that happens once in 10^200
    # steps: biases of such policies are too large for policy iteration, but the sweeps converge.
    plan = fmdp.plan(fmdp.problem("maintenance:100,levels=2,crew=5,k=90,wear=0.01"))
    assert plan.planner == "counts"
    assert plan.status is Status.CONVERGED
    assert plan.gain == pytest.approx(-3.0752591, abs=1e-5)


def test_counts_are_not_chosen_where_many_parts_act_with_chances_of_their_own() -> None:
    # 40 of 100 arms act, in 12,341 ways.
    assert choose_planner_of(fmdp.problem("restless:100")).planner.name == "coupled"
    assert choose_planner_of(fmdp.problem("restless:20")).planner.name == "counts"
