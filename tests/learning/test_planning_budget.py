"""Which planner a learner takes by default, and how often it may use an expensive one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import fmdp
from fmdp.learning.planning_budget import (
    FIRST_SECONDS,
    SECONDS_PER_STEP,
    SWEEPS_PER_PLAN,
    planner_for_learning,
    predicted_plan_seconds,
    steps_until_affordable,
)
from fmdp.planning.choice import exact_cost
from fmdp.problems import problem


@given(st.floats(0.0, 30.0), st.integers(0, 1000), st.integers(0, 10**6))
def test_the_wait_is_the_shortest_that_the_budget_allows(
    cost: float, plans: int, steps: int
) -> None:
    wait = steps_until_affordable(cost, plans, steps)

    def allowed(n: int) -> bool:
        budget = FIRST_SECONDS + SECONDS_PER_STEP * (steps + n)
        return (plans + 1) * cost <= budget * (1.0 + 1e-12)

    assert wait >= 1
    assert allowed(wait)
    assert wait == 1 or not allowed(wait - 2)


def test_the_wait_by_hand() -> None:
    """Plans of 3 s: three are free, the fourth needs 2 s more, that is 200 steps."""
    assert [steps_until_affordable(3.0, plans, 0) for plans in (0, 1, 2, 3)] == [1, 1, 1, 200]
    assert steps_until_affordable(3.0, 3, 150) == 50
    assert steps_until_affordable(0.0, 10**9, 0) == 1


@pytest.mark.parametrize("name", ["circle:4", "circle:14", "jao:12", "jao:20", "maintenance:6"])
def test_what_is_cheap_is_planned_exactly(name: str) -> None:
    """A million joint states and actions are cheap if they fall into twenty parts."""
    model = problem(name)
    planner, reason = planner_for_learning(model.structure)
    assert (planner.name, reason) == ("exact", None)
    assert fmdp.PSRL().start(model).planner.name == "exact"  # type: ignore[union-attr]


def test_what_is_expensive_is_not_and_says_why() -> None:
    """The number of actions counts: 2^12 states are few, 2^12 joint actions on top are not."""
    few = problem("random:12,seed=1").structure
    assert planner_for_learning(few).reason is None
    many = fmdp.Structure(
        few.state_sizes,
        (2,) * 14,
        tuple((*scope[:-1], *range(12, 26)) for scope in few.transition_scopes),
        few.reward_scopes,
    )
    planner, reason = planner_for_learning(many)
    assert planner.name == "alp"
    assert reason is not None
    assert reason.startswith("a sweep over 4,096 states and 16,384 joint actions is predicted to ")
    assert "exact is the learners' default up to " in reason


def test_a_plan_is_priced_by_its_sweeps_and_its_tables() -> None:
    structure = problem("circle:10").structure
    sweeps = SWEEPS_PER_PLAN * exact_cost(structure).seconds
    assert predicted_plan_seconds(structure, exact=True) > sweeps
    assert predicted_plan_seconds(structure, exact=False) == pytest.approx(
        predicted_plan_seconds(structure, exact=True) - sweeps
    )


def test_parts_cost_the_sum_of_their_sweeps() -> None:
    one, six = (exact_cost(problem(f"riverswim:{n}").structure).seconds for n in (1, 6))
    assert six == pytest.approx(6 * one)
    whole = problem("riverswim:4").structure
    assert exact_cost(whole, by_parts=False).seconds > 10 * exact_cost(whole).seconds


class _Expensive(fmdp.PSRL):
    """PSRL whose plans are said to take four seconds."""

    name = "expensive-psrl"

    def plan_seconds(self, structure: fmdp.Structure, planner: object) -> float:
        return 4.0


def test_an_expensive_plan_is_waited_for() -> None:
    """Two plans are free; plan k + 1 is made at step 100 (4 (k + 1) - 10) at the earliest."""
    model = problem("circle:3")
    agent = _Expensive().start(model, 0)
    fmdp.simulate(model, agent, 1500)
    assert agent.planner_calls == 6
    assert agent.decision is not None
    assert agent.decision.steps == 400
    # No entry can be visited often enough in 400 steps to end the episode before.
    assert agent.decision.limits.min() >= 400
    free = fmdp.PSRL().start(model, 0)
    fmdp.simulate(model, free, 1500)
    assert free.planner_calls > 40


def test_published_rules_and_given_planners_never_wait() -> None:
    model = problem("circle:16")
    assert fmdp.PSRL().start(model).plan_seconds > 0.1
    assert fmdp.PSRL(planner="exact").start(model).plan_seconds == 0.0
    for rule in ("arithmetic", "doubling", "tsde"):
        assert fmdp.PSRL(episodes=rule).start(model).plan_seconds == 0.0
    assert fmdp.Default().start(model).plan_seconds > 0.1
