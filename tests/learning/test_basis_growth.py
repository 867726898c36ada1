"""Bases that grow inside learners: when, at what cost, and saved with the agent."""

import json

import pytest

import fmdp
from fmdp.errors import InvalidParameter
from fmdp.learning.basis_growth import BasisGrowth, read_growth
from fmdp.learning.planning_budget import steps_until_affordable
from fmdp.planning.alp.basis_trial import Outcome

RING = "circle:10,dynamics=guestrin,alike=machines"


@pytest.mark.slow
@pytest.mark.parametrize("learner", [fmdp.Default, fmdp.PSRL])
def test_the_basis_grows_and_is_kept(learner):
    model = fmdp.problem(RING)
    run = fmdp.simulate(model, learner(planner="alp"), 400, 0, regret=False)
    agent = run.agent
    assert agent.basis["changes"] >= 1
    assert agent.basis["scopes"] == len(agent.planner.basis)
    assert agent.basis["largest_scope"] >= 2
    fixed = fmdp.simulate(model, learner(planner="alp,basis=singles"), 400, 0, regret=False)
    assert run.total_reward > 1.2 * fixed.total_reward


@pytest.mark.parametrize(
    "learner",
    [fmdp.Default(planner="alp,basis=singles"), fmdp.DORL(planner="alp"), fmdp.Default()],
    ids=["given basis", "optimistic tables", "exact"],
)
def test_other_learners_have_no_growing_basis(learner):
    agent = learner.start(fmdp.problem("circle:4").structure, 0)
    assert agent.basis is None
    assert getattr(agent.planner, "basis", "singles") == "singles"


def test_a_run_whose_basis_stays_is_that_of_singles():
    model = fmdp.problem("circle:6")
    runs = [
        fmdp.simulate(model, fmdp.Default(planner=planner), 300, 1, regret=False)
        for planner in ("alp", "alp,basis=singles")
    ]
    assert runs[0].agent.basis["bases_tried"] > 0
    assert runs[0].agent.basis["changes"] == 0
    assert runs[0].total_reward == runs[1].total_reward


def test_a_saved_run_continues_to_the_last_bit(tmp_path):
    model, path = fmdp.problem(RING), tmp_path / "agent.npz"
    learner = fmdp.PSRL(planner="alp")
    steps = []
    for saved_at in ((), (3, 40, 100)):
        agent = learner.start(model, 3)
        environment = fmdp.Environment(model, 5)
        taken = []
        for step in range(150):
            if step in saved_at:
                agent.save(path)
                agent = fmdp.load_agent(path)
            state = environment.state
            action = agent.act(state)
            rewards, following = environment.step(action)
            agent.observe(state, action, rewards, following)
            taken.append((action, following))
        steps.append((taken, agent.basis_growth))
    assert steps[0] == steps[1]
    assert steps[0][1].changes


def test_an_assigned_planner_with_a_basis_stays():
    model = fmdp.problem(RING)
    agent = fmdp.Default(planner="alp").start(model, 0)
    assert agent.basis == {
        "scopes": 0,
        "largest_scope": 1,
        "bases_tried": 0,
        "changes": 0,
        "last_change": None,
    }
    agent.planner = fmdp.ALP(basis="pairs")
    assert agent.basis is None
    agent.planner = fmdp.ALP()
    assert agent.basis is not None


def test_trials_come_when_the_number_of_steps_has_doubled():
    growth, failed, due = BasisGrowth(), Outcome(None, 0.0, 0.1, 1), []
    for step in range(0, 200, 3):
        plans = step // 3
        if growth.is_due(plans, step):
            due.append(step)
            growth = growth.after_trial(failed, step)
    assert due == [24, 48, 96, 192]


def test_trials_take_a_tenth_of_the_budget():
    growth = BasisGrowth(trial_seconds=0.5)
    # A tenth of 10 s and of 10 ms per step, less what trials took.
    assert growth.limits(1000, True) == pytest.approx({"seconds": 1.5, "plan_seconds": 2.0})
    assert growth.limits(0, False) == pytest.approx({"seconds": 0.5, "plan_seconds": 0.5})


def test_plans_with_a_larger_basis_are_counted_and_rationed():
    failed = BasisGrowth().after_trial(Outcome(None, 0.0, 0.25, 2), 10)
    assert failed == BasisGrowth(trial_seconds=0.25, bases=2, tried_at=10)
    grown = failed.after_trial(Outcome(((0, 1),), 0.5, 0.75, 1), 20)
    assert (grown.trial_seconds, grown.bases, grown.changes) == (1.0, 3, (20,))
    assert failed.after_plan() == failed
    assert grown.after_plan().after_plan().spent_seconds == 1.0
    # 12 s are spent and one plan takes .5 s; 10 s and 100 steps of 10 ms are there.
    assert steps_until_affordable(0.0, 24, 100, 12.5) == 150
    assert steps_until_affordable(0.0, 24, 100) == 1


@pytest.mark.parametrize(
    "wrong",
    [
        {"plan_seconds": -1.0},
        {"trial_seconds": float("nan")},
        {"spent_seconds": "1"},
        {"bases": -1},
        {"changes": [1.5]},
    ],
)
def test_a_file_with_wrong_numbers_is_refused(wrong):
    whole = {
        "plan_seconds": 0.5,
        "spent_seconds": 1.0,
        "trial_seconds": 0.25,
        "bases": 2,
        "tried_at": 30,
        "changes": [20],
    }
    assert read_growth(json.loads(json.dumps(whole))) == BasisGrowth(0.5, 1.0, 0.25, 2, 30, (20,))
    assert read_growth(None) is None
    with pytest.raises(InvalidParameter):
        read_growth({**whole, **wrong})
