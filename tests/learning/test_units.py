"""Learners do not care in which unit rewards are stated: the same actions, and regret times it.

A power of two scales every number without rounding, so everything is the same to the last bit; any
other factor moves the last digit of a reward, and with it at most the last digits of the regret
as long as no decision hangs on them.
"""

from __future__ import annotations

import numpy as np
import pytest

import fmdp
from fmdp.errors import InvalidParameter
from fmdp.learning.budgets import BudgetDoubling
from fmdp.learning.confidence import confidence_tables
from fmdp.learning.posterior import sample_model
from fmdp.learning.registry import LEARNERS
from fmdp.learning.statistics import Statistics
from fmdp.model import FactoredMDP, Noise
from fmdp.planning.plan import Planner
from fmdp.simulation import Run
from fmdp.testing.units import in_units

STEPS = 400
POWERS = (2.0**40, 2.0**-40, 2.0**-300)
OTHERS = (1e-30, 1e-9, 1e8, 1e30)
ALP = fmdp.ALP()
AVERAGE = fmdp.ALP(criterion="average", basis="pairs")
CASES = (
    ("psrl", ALP, {}),
    ("psrl", AVERAGE, {}),
    ("dorl", ALP, {}),
    ("dorl", AVERAGE, {"episodes": "doubling"}),
    ("frmax", ALP, {"m": 5}),
    ("frmax", AVERAGE, {"m": 5}),
    ("psrl", fmdp.Exact(), {}),
    ("dorl", fmdp.Exact(), {}),
    ("frmax", fmdp.Exact(), {"m": 5}),
    ("fsrl", None, {}),
    ("fsrl", fmdp.SpanConstrained(budget=0.0), {"episodes": "doubling"}),
)
"""Learner, planner, settings."""


def called(case: tuple[str, Planner | None, dict[str, object]]) -> str:
    name, planner, settings = case
    words = [name, planner.name if planner is not None else "default"]
    words += [str(getattr(planner, "criterion", "")), *map(str, settings.values())]
    return "-".join(word for word in words if word)


def run(model: FactoredMDP, case: tuple[str, Planner | None, dict[str, object]]) -> Run:
    name, planner, settings = case
    if name != "frmax":  # the paper's episodes, with the most plans
        settings = {"episodes": "arithmetic", **settings}
    generator = np.random.Generator(np.random.PCG64(3))
    agent = LEARNERS.find(name).make(settings, planner=planner).start(model, generator)
    return fmdp.simulate(model, agent, steps=STEPS, seed=3)


def noisy(model: FactoredMDP) -> FactoredMDP:
    """With rewards that are seldom whole, and ranges of several sizes."""
    structure, law = model.structure, Noise("gaussian", 0.1)
    return FactoredMDP(structure, model.transitions, model.rewards, law, model.initial_state)


@pytest.mark.parametrize("case", CASES, ids=called)
@pytest.mark.parametrize("problem", ["circle:3", "random:3", "star:3,dynamics=ippc"])
def test_regret_is_in_the_unit_of_the_rewards(problem: str, case) -> None:
    model = noisy(fmdp.problem(problem))
    base = run(model, case)
    for factor in POWERS:
        measured = run(in_units(model, factor), case)
        for name in ("episodes", "planner_calls", "unconverged_plans", "gain_kind"):
            assert getattr(measured, name) == getattr(base, name), name
        for name in ("total_reward", "regret", "gap_regret", "gain"):
            assert getattr(measured, name) == getattr(base, name) * factor, name
        assert measured.curve == tuple((t, regret * factor) for t, regret in base.curve)


@pytest.mark.parametrize("case", CASES, ids=called)
def test_units_that_are_no_power_of_two(case) -> None:
    """1e8 was an exception ("no finite optimum"), 1e-9 ten times the regret."""
    model = fmdp.problem("circle:4")
    base = run(model, case)
    for factor in OTHERS:
        measured = run(in_units(model, factor), case)
        assert measured.unconverged_plans == base.unconverged_plans == 0
        assert measured.total_reward / factor == pytest.approx(base.total_reward, rel=1e-9)


@pytest.mark.parametrize("factor", POWERS)
def test_what_learners_plan_with_is_in_the_unit_of_the_rewards(factor: float) -> None:
    """Confidence sets, posterior samples, and which observations are refused."""
    model = noisy(fmdp.problem("random:3"))
    scaled = in_units(model, factor)
    rng = np.random.default_rng(0)
    base, other = Statistics(model.structure), Statistics(scaled.structure)
    state = model.initial_state
    for _ in range(200):
        action = tuple(int(rng.integers(n)) for n in model.structure.action_sizes)
        after = tuple(int(rng.integers(n)) for n in model.structure.state_sizes)
        rewards = rng.random(model.structure.l)
        base.record(state, action, rewards, after)
        other.record(state, action, rewards * factor, after)
        state = after
    pairs = [
        (confidence_tables(base, t=201, rho=0.1), confidence_tables(other, t=201, rho=0.1)),
        (
            sample_model(base, 0.75, 0.01, np.random.default_rng(1)),
            sample_model(other, 0.75, 0.01, np.random.default_rng(1)),
        ),
    ]
    for one, two in pairs:
        for own, restated in zip(one.rewards, two.rewards, strict=True):
            np.testing.assert_array_equal(restated, own * factor)
    outside = np.full(model.structure.l, 1.0 + 1e-6)
    for statistics, unit in ((base, 1.0), (other, factor)):
        with pytest.raises(InvalidParameter, match="must be in its range"):
            statistics.record(state, action, outside * unit, state)


@pytest.mark.parametrize("factor", POWERS)
def test_budgets_are_in_the_unit_of_the_rewards(factor: float) -> None:
    model = fmdp.problem("riverswim:2")
    base = BudgetDoubling(model.structure)
    other = BudgetDoubling(in_units(model, factor).structure)
    for episode in range(1, 40):
        reward = 2.0 * episode**2
        assert other.revise(episode**2, reward * factor) == base.revise(episode**2, reward) * factor
        base.promise(0.3)
        other.promise(0.3 * factor)
    assert other.refuted == base.refuted > 0
