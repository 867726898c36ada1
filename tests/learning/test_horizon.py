"""Episodes over a horizon: plans against enumeration, play against plans, and refusals."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fmdp
from fmdp import FactoredMDP, OptimisticTables, Structure
from fmdp.errors import FmdpError, InvalidParameter
from fmdp.experiments.spec import resolved_learner
from fmdp.learning.agent import Agent
from fmdp.learning.budgeted import SpanBudgeted
from fmdp.learning.discounted import Discounted
from fmdp.learning.learner import PlanningLearner
from fmdp.learning.pmevi import LearnedDifferences
from fmdp.learning.registry import LEARNERS
from fmdp.learning.sets import SetLearner
from fmdp.model import flat_model
from fmdp.planning.policies.timed import TimedPolicy
from fmdp.testing import check_learner, oracles

from .test_rivals import PAIRS, looking_on

OF_A_BIAS = (SpanBudgeted, LearnedDifferences)
"""Learners that know something about the bias, which plans over a horizon have not."""
WITHOUT = (*OF_A_BIAS, Discounted)
EPISODIC = [
    kind
    for kind in LEARNERS.own()
    if issubclass(kind, PlanningLearner) and not issubclass(kind, WITHOUT)
]
ONE = fmdp.problem("random:1,values=3,parents=1,actions=2,seed=4,noise=bernoulli")
TWO = fmdp.problem("random:2,values=2,parents=2,actions=2,seed=3,noise=bernoulli")


def over(kind: Any, horizon: int, **others: Any) -> PlanningLearner:
    made: PlanningLearner = kind(episodes="fixed", horizon=horizon, **others)
    return made


def test_there_are_learners_to_test() -> None:
    names = {kind.name for kind in EPISODIC}
    assert names >= {"psrl", "dorl", "frmax", "ucrl-factored", "dbn-ucrl", "ucrl2", "tsde"}


# ---- plans against enumeration ------------------------------------------------------------------

Choice = Callable[[OptimisticTables, np.ndarray], np.ndarray]


def backwards(tables: OptimisticTables, horizon: int, values: Choice) -> np.ndarray:
    """H backups by their definition, from 0."""
    value = np.zeros(tables.structure.n_states)
    for _ in range(horizon):
        value = values(tables, value).max(axis=0)
    return value


def planned(learner: PlanningLearner, agent: Agent) -> tuple[OptimisticTables, fmdp.Plan]:
    tables = learner.tables(agent)
    assert isinstance(tables, OptimisticTables)
    planner, _ = learner.planner_for(tables.structure)
    assert planner is not None
    return tables, planner.prepare(tables.structure).solve(tables, describe=True)  # type: ignore[call-arg]


OPTIMISTIC = [
    (fmdp.DORL, {"c": 0.03}),
    (fmdp.FRmax, {"m": 3}),
    (fmdp.UCRLFactored, {"c": 0.1}),
    (fmdp.DBNUCRL, {"c": 0.1}),
]


@pytest.mark.parametrize(("kind", "own"), OPTIMISTIC, ids=lambda one: getattr(one, "name", ""))
@pytest.mark.parametrize("model", [ONE, TWO], ids=["one factor", "two factors"])
@pytest.mark.parametrize("steps", [0, 25])
def test_optimistic_values_are_those_of_the_definition(
    kind: Any, own: dict[str, Any], model: FactoredMDP, steps: int
) -> None:
    (agent,) = looking_on(model, [kind], steps, 1)
    for horizon in (1, 2, 5):
        tables, plan = planned(over(kind, horizon, **own), agent)
        order = plan.stats["elimination_order"]

        def nested(tables: OptimisticTables, h: np.ndarray, order: Any = order) -> np.ndarray:
            return oracles.nested_box_values(tables, h, order)

        np.testing.assert_allclose(plan.bias, backwards(tables, horizon, nested), atol=1e-9)
        if tables.radius is None:  # corners of all factors together: never more, and as much in one
            joint = backwards(tables, horizon, oracles.box_values)
            assert plan.bias is not None
            assert (plan.bias >= joint - 1e-9).all()
            if model.structure.m == 1:
                np.testing.assert_allclose(plan.bias, joint, atol=1e-9)


def test_targets_chosen_together_are_those_of_the_extended_model() -> None:
    (agent,) = looking_on(TWO, [fmdp.DORL], 25, 1)
    tables, plan = planned(over(fmdp.DORL, 4, targets="vertex"), agent)
    joint = backwards(tables, 4, oracles.box_values)
    np.testing.assert_allclose(plan.bias, joint, atol=1e-9)


def test_no_timed_policy_does_better_in_any_models_of_the_set() -> None:
    """Two states, two actions, three steps: every policy of the steps times every corner model of
    each step. One corner model for all steps gets no more, and here less: optimism may change its
    mind from step to step, which is never below what the paper promises with."""
    structure = Structure((2,), (2,), ((0, 1),), ((0, 1),))
    lower = np.array([[0.2, 0.3], [0.5, 0.1], [0.0, 0.6], [0.4, 0.4]])
    upper = np.array([[0.5, 0.8], [0.9, 0.5], [0.3, 1.0], [0.5, 0.6]])
    rewards = np.array([0.0, 0.9, 0.1, 1.0])
    free = 1.0 - lower.sum(axis=1)
    tables = OptimisticTables(structure, (lower,), (free,), (rewards,), (upper,))
    found = fmdp.Exact(criterion="finite", horizon=3).prepare(structure).solve(tables)
    corners = [oracles.box_corners(low, high) for low, high in zip(lower, upper, strict=True)]
    models = [np.array(chosen) for chosen in itertools.product(*corners)]
    stages = [2 * np.arange(2) + np.array(one) for one in itertools.product(range(2), repeat=2)]
    best = fixed = -np.inf
    for first, second, last in itertools.product(stages, repeat=3):
        for early, late in itertools.product(models, repeat=2):
            ahead = rewards[second] + late[second] @ rewards[last]
            worth = float((rewards[first] + early[first] @ ahead)[0])
            best = max(best, worth)
            fixed = max(fixed, worth if early is late else -np.inf)
    assert found.objective == pytest.approx(best, abs=1e-12)
    assert fixed <= best + 1e-12


# ---- play ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", EPISODIC, ids=lambda kind: kind.name)
@pytest.mark.parametrize("save_after", [0, 9])
def test_bulk_stepped_and_resumed_are_one_run(kind: Any, save_after: int) -> None:
    own = {"c": 0.1} if issubclass(kind, SetLearner) else {}
    check_learner(over(kind, 5, **own), TWO, steps=43, seed=2, save_after=save_after)


class Told(PlanningLearner):
    """Plans for a corridor that it knows."""

    def tables(self, agent: Agent) -> FactoredMDP:
        return corridor()


def corridor() -> FactoredMDP:
    """Place 0 pays 1; place 1 pays 0 and leads to place 2, which pays 3 and leads to place 0.

    Action 1 moves on, action 0 stays, but for place 2, which is left at once.
    """
    sure = np.zeros((6, 3))
    for place, action in itertools.product(range(3), range(2)):
        sure[2 * place + action, 0 if place == 2 else place + action] = 1.0
    structure = Structure((3,), (2,), ((0, 1),), ((0,),), ((0.0, 3.0),))
    return FactoredMDP(structure, [sure], [[1.0, 0.0, 3.0]])


def test_an_episode_plays_its_plan_to_the_end_and_the_next_begins_where_it_is() -> None:
    """Over three steps from place 0: 0 -> 1 -> 2 pays 1 + 0 + 3 and beats staying. At its end the
    state is 0 again: every episode is the same. Over two steps it pays to stay, in the second step
    no more than to move: the first action is to stay."""
    run = fmdp.simulate(corridor(), over(Told, 3), steps=9, seed=0, record=True)
    assert (run.episodes, run.planner_calls, run.total_reward) == (3, 3, 12.0)
    assert run.trajectory is not None
    assert run.trajectory.states.ravel().tolist() == [0, 1, 2] * 3 + [0]
    run = fmdp.simulate(corridor(), over(Told, 2, planner="exact,ties=first"), steps=9, seed=0)
    assert (run.episodes, run.planner_calls, run.total_reward) == (5, 5, 9.0)


@pytest.mark.parametrize("name", ["psrl", "ucrl-factored,c=.1", "ucrl2,c=.03"])
def test_it_learns(name: str) -> None:
    model = fmdp.problem("riverswim:1")
    learner = LEARNERS.read(f"{name},episodes=fixed,horizon=30")
    random = fmdp.simulate(model, fmdp.Random(), 6_000, seed=1)
    run = fmdp.simulate(model, learner, 6_000, seed=1)
    assert run.gap_regret is not None
    assert random.gap_regret is not None
    assert run.gap_regret < 0.5 * random.gap_regret
    assert run.unconverged_plans == 0


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair[0].__name__)
@pytest.mark.parametrize("problem", ["riverswim:1", "circle:2"])
def test_on_one_factor_flat_and_factored_are_the_same_over_a_horizon(
    pair: Any, problem: str
) -> None:
    if issubclass(pair[1], WITHOUT):
        pytest.skip("no horizon under a span budget or a discount")
    model = fmdp.problem(problem)
    model = model if model.structure.m == 1 else flat_model(model)
    flat, factored = pair
    own: dict[str, Any] = {"c": 0.1} if issubclass(factored, SetLearner) else {}
    if flat is fmdp.TSDE:
        own = {"c": 1.0, "prior": 0.1}
    runs = [over(kind, 8, **own) for kind in pair]
    taken = [fmdp.simulate(model, learner, 400, seed=3, record=True).trajectory for learner in runs]
    actions = [kept.actions.tolist() for kept in taken if kept is not None]
    assert actions[0] == actions[1]


def test_flat_stages_are_those_of_the_joint_states() -> None:
    model = fmdp.problem("circle:2")
    agent = over(fmdp.UCRL2, 6, c=0.05).start(model)
    policy = agent.decide().policy
    assert isinstance(policy, TimedPolicy)
    assert (policy.state_sizes, policy.action_sizes) == ((2, 2), model.structure.action_sizes)
    assert policy.horizon == 6


# ---- what does not go together ------------------------------------------------------------------


def test_an_episode_is_as_long_as_the_horizon() -> None:
    learner = over(fmdp.PSRL, 7)
    assert learner.length == 7
    assert learner == fmdp.PSRL(episodes="fixed", horizon=7, length=7)
    assert LEARNERS.read("psrl,episodes=fixed,horizon=7") == learner
    planner, _ = learner.planner_for(TWO.structure)
    assert isinstance(planner, fmdp.Exact)
    assert (planner.criterion, planner.horizon) == ("finite", 7)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("psrl,horizon=5", "used with episodes=fixed alone; got horizon=5 with episodes=growing"),
        ("psrl,episodes=fixed,horizon=0", "'horizon' parameter of learner psrl"),
        ("psrl,episodes=fixed,horizon=5,length=4", "got length=4 with horizon=5"),
        ("fsrl,episodes=fixed,horizon=5", "learner fsrl bounds the span .* got horizon=5"),
        ("scal,episodes=fixed,horizon=5", "learner scal bounds the span"),
        ("cpsrl,episodes=fixed,horizon=5", "learner cpsrl plans under a discount, .* horizon=5"),
        ("frmax,form=heaven,episodes=fixed,horizon=5", "form=heaven plans under a discount"),
        ("pmevi,episodes=fixed,horizon=5", "learner pmevi learns the bias, .* got horizon=5"),
    ],
)
def test_what_contradicts_is_refused(text: str, message: str) -> None:
    with pytest.raises(InvalidParameter, match=message) as refused:
        LEARNERS.read(text)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("planner", "message"),
    [
        (fmdp.ALP(), "exact planner alone does; got planner alp"),
        (fmdp.SpanConstrained(budget=1.0), "got planner span"),
        (fmdp.Exact(criterion="finite", horizon=4), "got horizon=5 for the learner and horizon=4"),
        (fmdp.Exact(criterion="discounted"), "horizon=5 for the learner and discounted for its"),
    ],
)
def test_planners_that_do_not_fit_are_refused(planner: Any, message: str) -> None:
    with pytest.raises(InvalidParameter, match=message):
        over(fmdp.PSRL, 5, planner=planner)


def test_a_planner_with_the_same_horizon_is_taken_as_it_is() -> None:
    planner = fmdp.Exact(criterion="finite", horizon=5, discount=0.9)
    made, _ = over(fmdp.PSRL, 5, planner=planner).planner_for(TWO.structure)
    assert isinstance(made, fmdp.Exact)
    assert made.discount == 0.9


def test_models_that_are_too_large_are_refused_in_one_line() -> None:
    with pytest.raises(FmdpError, match=r"exact planner alone does; .* states .*planner=exact"):
        over(fmdp.PSRL, 5).start(fmdp.problem("circle:20"))


def test_runs_without_a_horizon_keep_the_keys_that_they_had() -> None:
    without = resolved_learner(fmdp.PSRL().start(TWO, 0))["parameters"]
    assert "horizon" not in without
    assert resolved_learner(over(fmdp.PSRL, 5).start(TWO, 0))["parameters"]["horizon"] == 5
