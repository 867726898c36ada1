"""The bound of a fleet: equal to the linear program, above the exact gain, certified for any h."""

from __future__ import annotations

import numpy as np
import pytest

import fmdp
from fmdp import AtMost, Budget, FactoredMDP, Structure
from fmdp.errors import InvalidModel, TooLarge
from fmdp.planning.coupled import Coupled

from .fleets import GAST_BOUND, bound_by_program, fleet, gast, mixed_fleet, written_out

TIGHT = Coupled(policy="priority", tolerance=1e-9, simulated_steps=16)


@pytest.mark.parametrize("seed", range(12))
def test_the_bound_is_the_value_of_the_linear_program(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, levels, actions = rng.integers([2, 2, 2], [12, 5, 4])
    model = fleet(
        int(n),
        int(rng.integers(1, n + 1)),
        int(rng.integers(0, n)),
        levels=int(levels),
        actions=int(actions),
        seed=seed,
        sparse=0.3,
    )
    bound = bound_by_program(written_out(model))
    upper = TIGHT.plan(model).gain_upper
    assert upper is not None
    assert bound - 1e-8 <= upper <= bound + 1e-6


@pytest.mark.parametrize("seed", range(6))
def test_several_budgets_with_costs_and_forbidden_actions(seed: int) -> None:
    model = mixed_fleet(seed)
    types = written_out(model)
    assert [cap.name for cap in types.caps] == ["hours", "vans"]
    bound = bound_by_program(types)
    plan = fmdp.plan(model, TIGHT)
    best = fmdp.plan(model, "exact")
    assert plan.gain_upper == pytest.approx(bound, abs=1e-7)
    assert best.gain_lower is not None
    assert plan.gain_upper is not None
    assert plan.policy_gain is not None
    assert plan.policy_gain - 1e-9 <= best.gain_lower <= plan.gain_upper + 1e-9


def test_the_published_example_of_a_restless_bandit() -> None:
    upper = TIGHT.plan(gast(10)).gain_upper
    assert upper is not None
    assert upper / 10 == pytest.approx(GAST_BOUND, abs=1e-8)


def test_two_machines_by_hand() -> None:
    """A part pays 1 when it is up, fails for certain in each step, and is up after a repair: half
    of the time at no price, if it is repaired when down. Half a repair per step costs 1/2."""
    law = np.array([[[0, 1], [0, 1]], [[0, 1], [1, 0]]], dtype=float).reshape(4, 2)
    pay = np.array([1.0, 1.0, 0.0, 0.0])

    def planned(most: int) -> fmdp.Plan:
        scopes = ((0, 2), (1, 3))
        structure = Structure((2, 2), (2, 2), scopes, scopes, constraints=(AtMost((2, 3), most),))
        return TIGHT.plan(FactoredMDP(structure, [law, law], [pay, pay]))

    # A repair in every second step suffices for each machine: one repair per step for both.
    free = planned(1)
    assert free.gain_upper == pytest.approx(1.0, abs=1e-9)
    assert free.stats["fleet"]["budgets"][0]["price"] == pytest.approx(0.0, abs=1e-9)
    none = planned(0)
    assert none.gain_upper == pytest.approx(0.0, abs=1e-9)
    assert none.stats["fleet"]["budgets"][0]["price"] == 0.0


def test_an_action_that_costs_more_than_the_budget_is_never_counted_on() -> None:
    """One part earns 1 by an action that costs 2, another 3 by one that costs 3. A budget of 4 is
    enough for the second and half of the first, on average. With a budget of 2 the second can never
    act, although two thirds of its action would earn more than the first."""
    scopes = ((0, 2), (1, 3))
    pays = [np.array([0.0, 1.0]), np.array([0.0, 3.0])]

    def planned(limit: float) -> fmdp.Plan:
        budget = Budget((2, 3), limit, ((0.0, 2.0), (0.0, 3.0)))
        ranges = ((0, 1), (0, 3))
        structure = Structure((1, 1), (2, 2), scopes, scopes, ranges, constraints=(budget,))
        return TIGHT.plan(FactoredMDP(structure, [np.ones((2, 1))] * 2, pays))

    assert planned(4.0).gain_upper == pytest.approx(3.5, abs=1e-8)
    assert planned(2.5).gain_upper == pytest.approx(1.0, abs=1e-8)
    assert planned(2.5).stats["fleet"]["budgets"][0]["limit"] == 2.5


@pytest.mark.parametrize("exponent", [-40, -30, 30])
def test_rewards_in_another_unit_scale_the_bound_and_the_prices(exponent: int) -> None:
    model, unit = fleet(6, 6, 2, seed=3), 2.0**exponent
    s = model.structure
    scaled = FactoredMDP(
        s.with_ranges([(0.0, unit)] * s.l),
        model.transitions,
        [unit * rewards for rewards in model.rewards],
    )
    plan = TIGHT.plan(model)
    other = Coupled(policy="priority", tolerance=1e-9 * unit, simulated_steps=16).plan(scaled)
    assert plan.gain_upper is not None
    assert other.gain_upper == unit * plan.gain_upper
    (price,), (other_price,) = (p.stats["fleet"]["budgets"] for p in (plan, other))
    assert price["price"] > 0.01
    assert other_price["price"] == unit * price["price"]


def test_rewards_that_cancel_are_summed_with_an_allowance_for_their_size() -> None:
    """1e9 + 0.152 - 1e9 is summed to less than 0.152 in floating point."""
    law, idle = np.full((4, 2), 0.5), np.zeros(4)
    structure = Structure(
        (2, 2),
        (2, 2),
        ((0, 2), (1, 3)),
        ((0, 2), (1, 3), (0,), (0,), (0,)),
        ((0, 1), (0, 1), (0, 1e9), (0, 1), (-1e9, 0)),
        constraints=(AtMost((2, 3), 1),),
    )
    rewards = [idle, idle, *(np.full(2, reward) for reward in (1e9, 0.152, -1e9))]
    upper = TIGHT.plan(FactoredMDP(structure, [law, law], rewards)).gain_upper
    assert upper is not None
    assert upper >= 0.152


def test_a_part_whose_gain_depends_on_its_state_is_bounded_by_its_best_state() -> None:
    """The first part never moves and pays its state."""
    stay = np.repeat(np.eye(2), 2, axis=0)
    move = np.array([[0.5, 0.5]] * 4)
    scopes = ((0, 2), (1, 3))
    structure = Structure((2, 2), (2, 2), scopes, scopes, constraints=(AtMost((2, 3), 1),))
    pays = [np.array([0.0, 0.0, 1.0, 1.0]), np.array([0.0, 0.5, 0.0, 0.5])]
    plan = TIGHT.plan(FactoredMDP(structure, [stay, move], pays))
    assert plan.gain_upper == pytest.approx(1.5, abs=1e-6)


@pytest.mark.parametrize("seed", range(4))
def test_the_discounted_bound_is_above_the_exact_value_of_the_initial_state(seed: int) -> None:
    model = fleet(4, 2, 1, seed=seed)
    planner = Coupled(criterion="discounted", discount=0.9)
    plan = planner.plan(model)
    exact = fmdp.plan(model, "exact,criterion=discounted,discount=0.9")
    assert exact.bias is not None
    value = float(exact.bias[0])
    assert plan.objective is not None
    assert value <= plan.objective + 1e-9
    assert plan.objective <= value * 1.1
    lower, upper = plan.stats["fleet"]["simulated_gain_interval"]
    assert lower <= value
    assert upper <= plan.objective
    assert plan.gain_upper is None


def test_the_prices_are_slopes_of_the_bound() -> None:
    """By concavity in the limit: one more unit is worth at most the price, one less at least."""
    least, middle, most = (TIGHT.plan(fleet(12, 12, k, seed=3)) for k in (3, 4, 5))
    price = middle.stats["fleet"]["budgets"][0]["price"]
    assert least.gain_upper is not None
    assert middle.gain_upper is not None
    assert most.gain_upper is not None
    assert most.gain_upper - middle.gain_upper <= price + 1e-7
    assert middle.gain_upper - least.gain_upper >= price - 1e-7
    assert price > 0.0


def test_costs_scale_the_prices_and_nothing_else() -> None:
    """A budget of 0.5 per repair and a limit of 1 is a cap of two repairs at half the price."""
    model = fleet(6, 3, 2, seed=1)
    budget = Budget(tuple(range(6, 12)), 1.0, ((0.0, 0.5),) * 6, "money")
    old = model.structure
    structure = Structure(
        old.state_sizes,
        old.action_sizes,
        old.transition_scopes,
        old.reward_scopes,
        constraints=(budget,),
    )
    capped = TIGHT.plan(model)
    paid = TIGHT.plan(FactoredMDP(structure, model.transitions, model.rewards))
    assert paid.gain_upper == capped.gain_upper
    prices = [plan.stats["fleet"]["budgets"][0]["price"] for plan in (capped, paid)]
    assert prices[1] == pytest.approx(2.0 * prices[0])
    assert paid.stats["fleet"]["budgets"][0]["limit"] == 1.0


def test_equal_parts_are_one_type() -> None:
    types = written_out(fleet(60, 4, 9))
    assert types.n_types == 4
    assert [int(n) for n in types.blocks[0].copies] == [15, 15, 15, 15]
    assert written_out(mixed_fleet(0)).n_types == 4


@pytest.mark.parametrize(
    ("constraints", "rewards", "words"),
    [
        ((), ((0, 1, 2, 3),), "reward r0 (over s0, s1, a0, a1) joins variables to a part of"),
        (
            (fmdp.Forbidden((2, 3), np.array([False, False, False, True]), "no two"),),
            (),
            'constraint "no two" (over a0, a1) joins variables to a part of',
        ),
    ],
)
def test_a_model_that_is_no_fleet_is_refused_by_its_culprit(
    constraints: tuple[fmdp.Forbidden, ...], rewards: tuple[tuple[int, ...], ...], words: str
) -> None:
    structure = Structure(
        (64, 64), (2, 2), ((0, 2), (1, 3)), rewards, constraints=(*constraints, AtMost((2, 3), 1))
    )
    with pytest.raises(InvalidModel) as refusal:
        Coupled().prepare(structure)
    text = str(refusal.value)
    assert text.startswith("planner coupled needs parts that share only budgets: ")
    assert words in text
    assert "\n" not in text


def test_actions_that_trade_one_budget_for_another_are_refused() -> None:
    costs = [((0, 1), (0, 1)), ((1, 0), (0, 1))]
    structure = Structure(
        (2, 2),
        (2, 2),
        ((0, 2), (1, 3)),
        (),
        constraints=tuple(Budget((2, 3), 2.0, row) for row in costs),
    )
    with pytest.raises(InvalidModel, match="no action of a0 costs least in all budgets"):
        Coupled().prepare(structure)


def test_memory_is_limited() -> None:
    with pytest.raises(TooLarge, match="100 different parts of 5 states and 2 actions need"):
        fmdp.plan(fleet(100, 100, 9, levels=5), Coupled(memory_limit=1000))
