"""A finite horizon: against the recursion by its definition, against all policies, and by hand."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fmdp
from fmdp import TablePolicy
from fmdp._base.archives import pack
from fmdp.elimination.backup import Backup
from fmdp.errors import FileProblem, InvalidParameter, TooLarge
from fmdp.learning.follow import Follow
from fmdp.model import FactoredMDP, Forbidden, Structure
from fmdp.planning.exact.planner import Exact
from fmdp.planning.exact.small import TabularBackup
from fmdp.planning.plan import Plan
from fmdp.planning.policies.archive import FORMAT, VERSION
from fmdp.planning.policies.files import load_policy
from fmdp.planning.policies.timed import TimedPolicy, stage_bytes
from fmdp.planning.status import Status
from fmdp.problems import problem
from fmdp.simulation.loop import streams
from fmdp.testing import oracles, strategies


def finite(horizon: int, **others: Any) -> Exact:
    return Exact(criterion="finite", horizon=horizon, **others)


def timed(plan: Plan) -> TimedPolicy:
    assert isinstance(plan.policy, TimedPolicy)
    return plan.policy


def value_of(flat: oracles.DenseMDP, policy: TimedPolicy) -> np.ndarray:
    """What a policy gets over its horizon, from every state, by the definition."""
    value = np.zeros(flat.n_states)
    for step in reversed(range(policy.horizon)):
        chain, rewards = oracles.policy_chain(flat, policy.stage(step).actions)
        value = rewards + policy.discount * chain @ value
    return value


@given(st.data())
@settings(max_examples=60)
def test_values_and_policy_on_generated_models(data: st.DataObject) -> None:
    structure = data.draw(st.one_of(strategies.structures(), strategies.constrained()))
    model = data.draw(strategies.models(structure))
    horizon = data.draw(st.integers(1, 12))
    discount = data.draw(st.sampled_from((None, 0.0, 0.5, 0.99)))
    flat = oracles.dense(model)
    value = np.zeros(flat.n_states)
    for _ in range(horizon):
        value = oracles.bellman(flat, value, 1.0 if discount is None else discount)
    found = finite(horizon, discount=discount).plan(model)
    start = np.ravel_multi_index(model.initial_state, model.structure.state_sizes)
    assert found.status is Status.CONVERGED
    assert found.objective == pytest.approx(value[start], abs=1e-9)
    np.testing.assert_allclose(found.bias, value, atol=1e-9)
    assert found.gain_bounds == (None, None)
    assert found.gain is None
    policy = timed(found)
    for stage in policy.stages:
        structure.check_policy(stage.actions.astype(np.int64))
    assert policy.horizon == horizon == found.iterations
    np.testing.assert_allclose(value_of(flat, policy), value, atol=1e-7)
    low, high = found.stats["objective_bounds"]
    assert low <= found.objective <= high
    assert low <= value_of(flat, policy)[start] + 1e-12
    evaluated = fmdp.evaluate(model, policy)
    assert evaluated.status is Status.CONVERGED
    assert evaluated.value_bounds is not None
    assert evaluated.value_bounds[0] - 1e-12 <= value_of(flat, policy)[start]
    assert value_of(flat, policy)[start] <= evaluated.value_bounds[1] + 1e-12
    assert (evaluated.gain, evaluated.gain_lower, evaluated.horizon) == (None, None, horizon)


def test_no_policy_of_two_steps_is_better_than_the_plan() -> None:
    """All 2^(2 * 4) pairs of tables, each run by its definition."""
    model = problem("jao:2")
    flat = oracles.dense(model)
    found = finite(2).plan(model)
    best = -np.inf
    tables = list(itertools.product(range(4), repeat=4))
    for first, second in itertools.product(tables, repeat=2):
        _, last = oracles.policy_chain(flat, second)
        chain, rewards = oracles.policy_chain(flat, first)
        best = max(best, float((rewards + chain @ last)[0]))
    assert found.objective == pytest.approx(best, abs=1e-12)


def corridor() -> FactoredMDP:
    """Place 0 pays 1; place 1 pays 0 and leads to place 2, which pays 3. Action 1 moves on."""
    sure = np.zeros((6, 3))
    for place, action in itertools.product(range(3), range(2)):
        sure[2 * place + action, min(2, place + action)] = 1.0
    structure = Structure((3,), (2,), ((0, 1),), ((0,),), ((0.0, 3.0),))
    return FactoredMDP(structure, [sure], [[1.0, 0.0, 3.0]])


@pytest.mark.parametrize(
    ("horizon", "value", "first"), [(1, 1, None), (2, 2, 0), (3, 4, 1), (4, 7, 1)]
)
def test_a_corridor_by_hand(horizon: int, value: float, first: int | None) -> None:
    """Staying pays H; leaving at once pays 1 + 0 + 3 (H - 2): it begins to pay with three steps."""
    found = finite(horizon).plan(corridor())
    assert found.objective == value
    if first is not None:
        assert timed(found)((0,)) == (first,)
    if horizon == 4:
        assert timed(found)((0,), step=2) == (0,)
    rewarded = fmdp.simulate(corridor(), timed(found), steps=horizon, seed=0)
    assert rewarded.total_reward == value


def test_a_discount_by_hand() -> None:
    """1 + 0 / 2 + 3 / 4 = 1.75 against 1 + 1/2 + 1/4: the same; one more step and leaving pays."""
    assert finite(3, discount=0.5).plan(corridor()).objective == 1.75
    found = finite(4, discount=0.5).plan(corridor())
    assert found.objective == 1 + 0 + 3 / 4 + 3 / 8
    assert fmdp.evaluate(corridor(), timed(found)).value == found.objective


def test_equal_stages_are_kept_once_and_steps_come_round() -> None:
    policy = timed(finite(50).plan(problem("circle:4")))
    assert len(policy.stages) < 10
    assert policy.stage_numbers[0] == 0
    state = (0, 1, 0, 1)
    for step in (0, 30, 49):
        assert (
            policy(state, step=step) == policy(state, step=step + 50) == policy.stage(step)(state)
        )
    for step in range(49):
        assert (policy.steps_alike(step) > 1) == (policy.stage(step) is policy.stage(step + 1))
    assert policy.steps_alike(0) == int(np.argmax(policy.stage_numbers != 0))
    again = TimedPolicy([policy.stage(t) for t in range(50)])
    assert again == policy
    assert TimedPolicy([policy.stage(0)]) != policy
    assert "50 steps" in repr(policy)


def test_a_file_brings_it_back(tmp_path: Path) -> None:
    model = problem("circle:4")
    policy = timed(finite(20, discount=0.9).plan(model))
    path = tmp_path / "policy.npz"
    policy.save(path)
    loaded = load_policy(path, model.structure)
    assert loaded == policy
    assert fmdp.evaluate(model, path).value == fmdp.evaluate(model, policy).value
    assert path.stat().st_size < 4_000
    with pytest.raises(FileProblem, match="the problem has"):
        load_policy(path, problem("circle:5").structure)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"tables": np.zeros((2, 15), np.uint8)}, r"has shape \(2, 15\); must have \(any, 16\)"),
        ({"tables": np.full((2, 16), 9, np.uint8)}, "allowed: 0 to 4"),
        ({"tables": np.zeros((2, 16), np.int64)}, "must be of unsigned whole numbers"),
        ({"stages": np.array([0, 2])}, "has entries from 0 to 2"),
        ({"stages": np.array([-1, 0])}, "has entries from -1 to 0"),
        ({"stages": np.zeros(0, np.int64)}, "must be tables, one a step"),
        ({"more": np.zeros(1)}, "its parts must be 'tables' and 'stages'"),
        ({"discount": 1.5}, "'discount' parameter of TimedPolicy"),
        ({"discount": "much"}, "'discount' parameter of TimedPolicy"),
        ({"state_sizes": [2, 2, 2]}, r"must have \(any, 8\)"),
    ],
)
def test_a_file_that_lies_is_refused(tmp_path: Path, change: dict[str, Any], words: str) -> None:
    header = {"format": FORMAT, "version": VERSION, "kind": "timed"}
    header |= {"state_sizes": [2] * 4, "action_sizes": [5], "discount": 1.0}
    arrays = {"tables": np.zeros((2, 16), np.uint8), "stages": np.array([0, 1])}
    for name, value in change.items():
        (arrays if isinstance(value, np.ndarray) else header)[name] = value  # type: ignore[index]
    path = tmp_path / "policy.npz"
    path.write_bytes(pack(header, arrays))
    with pytest.raises(FileProblem, match=words):
        load_policy(path)


def test_stages_that_are_none_are_refused() -> None:
    stage = timed(finite(1).plan(problem("circle:3"))).stage(0)
    other = timed(finite(1).plan(problem("circle:4"))).stage(0)
    for given_stages, words in (
        ([], "must be tables"),
        (3, "must be tables"),
        ([stage, (0, 1)], "stage 1 of a TimedPolicy must be a TablePolicy"),
        ([stage, other], "stage 1 of a TimedPolicy is for state sizes"),
    ):
        with pytest.raises(InvalidParameter, match=words):
            TimedPolicy(given_stages)  # type: ignore[arg-type]
    policy = TimedPolicy([stage])
    for step in (-1, 1.5, "first"):
        with pytest.raises(InvalidParameter, match="'step' parameter"):
            policy((0, 0, 0), step=step)  # type: ignore[arg-type]
    with pytest.raises(InvalidParameter, match="must not depend on the time"):
        fmdp.ExploringPolicy(policy, 0.1)


def test_played_at_once_or_step_by_step_it_is_the_same_run() -> None:
    """Stage t mod H in step t; both ways of running give the same bits."""
    model = problem("circle:4,dynamics=guestrin")
    policy = timed(finite(7).plan(model))
    bulk = fmdp.simulate(model, policy, steps=100, seed=3, record=True)
    environment = fmdp.Environment(model, streams(3)[0])
    agent = Follow(policy=policy).start(model, 0)
    assert bulk.trajectory is not None
    for t in range(100):
        state = environment.state
        action = agent.act(state)
        assert action == policy(state, step=t) == policy.stage(t % 7)(state)
        assert tuple(bulk.trajectory.actions[t].tolist()) == action
        rewards, after = environment.step(action)
        agent.observe(state, action, rewards, after)
    assert bulk.total_reward == environment.total_reward


def test_a_run_that_was_saved_goes_on(tmp_path: Path) -> None:
    model = problem("circle:3")
    policy = timed(finite(5).plan(model))
    whole = fmdp.simulate(model, policy, steps=12, seed=1, record=True)
    agent = Follow(policy=policy).start(model, 0)
    fmdp.simulate(model, agent, steps=4, seed=1)
    agent.save(tmp_path / "agent.npz")
    loaded = fmdp.load_agent(tmp_path / "agent.npz")
    assert whole.trajectory is not None
    state = tuple(whole.trajectory.states[4].tolist())
    assert loaded.act(state) == policy(state, step=4)


def test_the_mean_of_many_runs_is_the_value() -> None:
    model = problem("jao:2")
    policy = timed(finite(6).plan(model))
    value = fmdp.evaluate(model, policy).value
    assert value is not None
    totals = []
    for seed in range(400):
        environment = fmdp.Environment(model, seed)
        for t in range(6):
            environment.step(policy(environment.state, step=t))
        totals.append(environment.total_expected_reward)
    assert abs(np.mean(totals) - value) <= 5 * np.std(totals) / np.sqrt(len(totals))


def test_learners_take_it_too() -> None:
    """Every decision begins at its step 0."""
    learner = fmdp.PSRL(planner=finite(300), episodes="fixed", length=10)
    run = fmdp.simulate(problem("jao:2"), learner, steps=35, seed=0)
    assert run.episodes == 4
    assert run.unconverged_plans == 0


def test_stages_are_refused_before_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    model = problem("circle:6")
    assert stage_bytes(64, 7, 1000) == 1000 * (64 + 24)
    needed = 1000 * (64 + 24) + (4 * 8 + 1) * 64
    monkeypatch.setattr(Backup, "__init__", lambda *_, **__: pytest.fail("work"))
    with pytest.raises(TooLarge, match="1,000 steps and 64 states") as refusal:
        finite(1000, memory_limit=needed - 1).plan(model)
    assert refusal.value.needed_bytes == needed


def test_limits_are_statuses_without_a_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    model = problem("circle:5")
    stopped = finite(30, max_iterations=10).plan(model)
    assert (stopped.status, stopped.iterations) == (Status.ITERATION_LIMIT, 10)
    late = finite(30, max_seconds=1e-9).plan(model)
    assert late.status is Status.TIME_LIMIT
    sweeps = iter(range(3))
    original = TabularBackup.sweep

    def interrupted(self: TabularBackup, h: Any, out: Any) -> None:
        if next(sweeps, None) is None:
            raise KeyboardInterrupt
        original(self, h, out)

    monkeypatch.setattr(TabularBackup, "sweep", interrupted)
    by_hand = finite(30).plan(model)
    assert (by_hand.status, by_hand.iterations) == (Status.INTERRUPTED, 3)
    for plan in (stopped, late, by_hand):
        assert plan.policy is None
        assert plan.objective is None
        assert plan.gain is None
        assert plan.gain_bounds == (None, None)


def test_an_evaluation_that_is_stopped_says_so() -> None:
    model = problem("circle:4")
    policy = timed(finite(30).plan(model))
    found = fmdp.evaluate(model, policy, max_iterations=5)
    assert (found.status, found.value, found.iterations) == (Status.ITERATION_LIMIT, None, 5)
    with pytest.raises(TooLarge):
        fmdp.evaluate(model, policy, memory_limit=1000)


def test_a_stage_that_plays_what_is_forbidden_is_refused() -> None:
    bare = problem("circle:3")
    never = Forbidden((3,), np.array([True, False, False, False]), "never the first")
    structure = replace(bare.structure, constraints=(never,))
    model = FactoredMDP(structure, bare.transitions, bare.rewards)
    free = timed(finite(3, ties="first").plan(bare))
    with pytest.raises(InvalidParameter, match="never the first"):
        fmdp.evaluate(model, TimedPolicy([free.stage(0), first_action_of(structure)]))
    allowed = finite(3, ties="first").plan(model)
    assert fmdp.evaluate(model, timed(allowed)).value == pytest.approx(allowed.objective)


def first_action_of(structure: Structure) -> TablePolicy:
    nothing = np.zeros(structure.n_states, dtype=np.int64)
    return TablePolicy(structure.state_sizes, structure.action_sizes, nothing)


def test_a_tolerance_below_rounding_is_said() -> None:
    found = finite(50, tolerance=1e-15).plan(problem("circle:4"))
    assert found.status is Status.PRECISION_LIMIT
    assert timed(found).horizon == 50


@pytest.mark.parametrize("unit", [2.0**-30, 2.0**30])
def test_the_unit_of_the_reward_is_nothing_to_the_policy(unit: float) -> None:
    model = problem("random:3,values=3,seed=2")
    s = model.structure
    scaled = Structure(
        s.state_sizes,
        s.action_sizes,
        s.transition_scopes,
        s.reward_scopes,
        tuple((lo * unit, hi * unit) for lo, hi in s.reward_ranges),
    )
    other = FactoredMDP(scaled, model.transitions, [unit * means for means in model.rewards])
    ours, theirs = finite(25).plan(model), finite(25).plan(other)
    assert ours.objective is not None
    assert theirs.objective == unit * ours.objective
    assert timed(ours) == timed(theirs)


def test_settings_that_do_not_go_together_are_refused() -> None:
    for words, settings_given in {
        "'horizon' parameter of planner exact .* must be given with criterion=finite": {
            "criterion": "finite"
        },
        "is used with criterion=finite alone": {"horizon": 5},
        "must be": {"criterion": "finite", "horizon": 0},
        "discounted or finite alone": {"discount": 0.9},
    }.items():
        with pytest.raises(InvalidParameter, match=words):
            Exact(**settings_given)  # type: ignore[arg-type]
