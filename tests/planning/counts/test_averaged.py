"""Plans for almost exchangeable parts: bounds against the exact plan of the given model."""

from __future__ import annotations

import numpy as np
import pytest

import fmdp
from fmdp.errors import InvalidParameter
from fmdp.planning.counts.planner import Counts
from fmdp.planning.policies.counts import CountPolicy
from fmdp.planning.status import Status
from fmdp.problems import problem


def perturbed(model: fmdp.FactoredMDP, seed: int, size: float) -> fmdp.FactoredMDP:
    """Return the model with every row moved towards a random one, and random rewards added."""
    generator = np.random.default_rng(seed)
    transitions = [
        (1 - size) * table + size * generator.dirichlet(np.ones(table.shape[1]), len(table))
        for table in model.transitions
    ]
    rewards = [table + size * generator.uniform(-1, 1, table.shape) for table in model.rewards]
    structure = model.structure.with_ranges([(-9.0, 9.0)] * model.structure.l)
    return fmdp.FactoredMDP(structure, transitions, rewards, initial_state=model.initial_state)


def pumps(failures: list[float], crew: int = 1) -> fmdp.FactoredMDP:
    """Return pumps that differ in how often they fail; repairing makes them new at once."""
    n = len(failures)
    return fmdp.FactoredMDP.from_effects(
        (2,) * n,
        (2,) * n,
        effects=[((i,), (n + i,), [0, 0, 1, 0]) for i in range(n)],
        transitions=[([i], [[1 - p, p], [0.0, 1.0]]) for i, p in enumerate(failures)],
        rewards=[("cost", (i, n + i), [[0.0, -0.5], [-1.0, -1.5]]) for i in range(n)],
        constraints=[fmdp.AtMost(tuple(range(n, 2 * n)), crew)],
    )


@pytest.mark.parametrize("size", [1e-4, 1e-2, 0.1])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "name", ["star:5,dynamics=guestrin", "machines:2,topology=none", "star:4,dynamics=ippc"]
)
def test_bounds_hold_in_the_given_model(name: str, seed: int, size: float) -> None:
    model = perturbed(problem(name), seed, size)
    plan = Counts(average=True).plan(model)
    assert isinstance(plan.policy, CountPolicy)
    best = fmdp.plan(model, fmdp.Exact(tolerance=1e-9))
    of_policy = fmdp.evaluate(model, plan.policy, tolerance=1e-9)
    assert plan.gain_lower <= of_policy.gain_upper
    assert of_policy.gain_lower <= best.gain_upper
    assert best.gain_lower <= plan.gain_upper
    # The bounds close in proportion to the differences.
    assert plan.gain_upper - plan.gain_lower < 60 * size
    low, high = plan.stats["average_error"]
    assert low < 0 < high


def test_actions_that_act_first() -> None:
    model = pumps([0.10, 0.11, 0.09, 0.10])
    plan = Counts(average=True).plan(model)
    best = fmdp.plan(model, "exact")
    assert plan.gain_lower <= best.gain <= plan.gain_upper
    assert plan.gain_upper - plan.gain_lower < 0.2
    assert plan.status is Status.RELAXATION_LIMIT


def test_exchangeable_parts_lose_nothing() -> None:
    model = problem("star:6,dynamics=guestrin")
    plan, exact = Counts(average=True).plan(model), fmdp.plan(model, "exact")
    assert plan.status is Status.CONVERGED
    assert plan.gain == pytest.approx(exact.gain, abs=1e-6)
    assert plan.stats["average_error"] == pytest.approx((0.0, 0.0), abs=1e-9)


def test_a_fleet_of_sixty_pumps_that_differ() -> None:
    failures = np.random.default_rng(0).uniform(0.0495, 0.0505, 60)
    model = pumps(failures.tolist(), crew=3)
    with pytest.raises(fmdp.errors.TooLarge, match=r"parts; s0 differs from s1: .*average=true"):
        Counts().plan(model)
    plan = fmdp.plan(model, "counts,average=true")
    assert plan.policy_gain is None
    assert plan.gain_upper - plan.gain_lower < 0.1 * abs(plan.gain_upper)
    assert plan.policy(model.initial_state) == (0,) * 60


def test_what_cannot_be_averaged_is_refused() -> None:
    with pytest.raises(InvalidParameter, match="no two parts have matching scopes"):
        Counts(average=True).plan(problem("circle:4"))
    with pytest.raises(InvalidParameter, match="needs criterion=average"):
        Counts(average=True, criterion="discounted")
    with pytest.raises(InvalidParameter, match='no state variable is called "pump"'):
        Counts(average=True, groups=(("pump", "s1"),)).plan(pumps([0.1, 0.2]))
