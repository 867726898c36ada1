"""Learners that are not told the scopes: what they find, refuse, save and promise."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fmdp
from fmdp.errors import InvalidParameter, TooLarge
from fmdp.learning.registry import LEARNERS
from fmdp.learning.unknown import evidence as evidence_module
from fmdp.learning.unknown.learner import UNKNOWN, log_prior
from fmdp.learning.unknown.slf_ucrl import SLFUCRL
from fmdp.learning.unknown.statistics import ScopeStatistics
from fmdp.model import OptimisticTables
from fmdp.planning.exact.planner import Exact
from fmdp.planning.plan import ready
from fmdp.testing import check_learner

CIRCLE = fmdp.problem("circle:4,dynamics=guestrin")
RIVALS = ["slf-ucrl", "slf-rmax,m=40", "lse-rmax,m=100"]
LEARNING = ["default,scopes=unknown", "psrl,scopes=unknown", *RIVALS]


def run_of(problem: str, learner: str, steps: int, seed: int = 0) -> Any:
    model = fmdp.problem(problem)
    return fmdp.simulate(model, learner, steps, seed, regret=False).agent


# ---- what is found ------------------------------------------------------------------------------


@pytest.mark.parametrize("machines", [4, 5, 6])
@pytest.mark.parametrize("learner", LEARNING[:2])
def test_the_scopes_of_a_circle_are_found(machines: int, learner: str) -> None:
    problem = f"circle:{machines},dynamics=guestrin"
    agent = run_of(problem, learner, 1500)
    true = fmdp.problem(problem).structure.transition_scopes
    posteriors = agent.learner.scope_posteriors(agent.statistics)
    for i, posterior in enumerate(posteriors):
        assert posterior.weights.sum() == pytest.approx(1.0)
        assert posterior.scopes[int(posterior.weights.argmax())] == true[i]
        edges = posterior.edges(machines + 1)
        assert (edges[list(true[i])] > 0.9).all()
    # Long before the end, nothing changed any more.
    assert agent.statistics.changes[-1][0] < 1500


@pytest.mark.parametrize(("learner", "steps"), list(zip(RIVALS, [600, 3000, 6000], strict=True)))
def test_rivals_find_the_scopes_of_a_circle(learner: str, steps: int) -> None:
    agent = run_of("circle:4,dynamics=guestrin", learner, steps)
    assert agent.statistics.structure.transition_scopes == CIRCLE.structure.transition_scopes


def test_the_environment_s_scopes_do_not_matter() -> None:
    """Two models with the same laws, one of them with superfluous parents: the same run."""
    plain = fmdp.problem("circle:3,dynamics=guestrin")
    s = plain.structure
    everything = tuple(range(4))
    wide = s.with_factors([everything] * 3, s.reward_scopes, s.reward_ranges, s.reward_names)
    tables = []
    for i, scope in enumerate(s.transition_scopes):
        table = plain.transitions[i].reshape(*s.scope_sizes(scope), 2)
        missing = tuple(axis for axis, v in enumerate(everything) if v not in scope)
        spread = np.broadcast_to(np.expand_dims(table, missing), (*s.sizes, 2))
        tables.append(spread.reshape(-1, 2))
    padded = fmdp.FactoredMDP(wide, tables, plain.rewards, initial_state=plain.initial_state)
    for learner in LEARNING:
        runs = [
            fmdp.simulate(model, learner, 300, 1, record=True, regret=False)
            for model in (plain, padded)
        ]
        first, second = (run.trajectory for run in runs)
        assert np.array_equal(first.states, second.states)
        assert np.array_equal(first.actions, second.actions)


def test_the_statistics_are_those_of_the_chosen_scopes() -> None:
    agent = run_of("circle:4,dynamics=guestrin", "default,scopes=unknown", 700)
    run = fmdp.simulate(CIRCLE, "default,scopes=unknown", 700, 0, record=True, regret=False)
    trajectory: Any = run.trajectory
    statistics = fmdp.Statistics(agent.statistics.structure)
    for t in range(700):
        state, after = trajectory.states[t].tolist(), trajectory.states[t + 1].tolist()
        action, rewards = trajectory.actions[t].tolist(), trajectory.rewards[t].tolist()
        statistics.record(state, action, rewards, after)
    for counted, expected in zip(agent.statistics.counts, statistics.counts, strict=True):
        assert np.array_equal(counted, expected)


def test_the_planner_is_prepared_anew_only_when_a_scope_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    prepared = []

    def counting(planner: Any, structure: Any) -> Any:
        prepared.append(structure.transition_scopes)
        return ready(planner, structure)

    monkeypatch.setattr("fmdp.learning.agent.ready", counting)
    agent = run_of("circle:4,dynamics=guestrin", "default,scopes=unknown", 1000)
    assert agent.episodes > 50
    assert len(prepared) == agent.statistics.preparations
    assert all(a != b for a, b in itertools.pairwise(prepared))
    assert prepared[-1] == agent.statistics.structure.transition_scopes


def test_the_prior_is_uniform_over_sizes() -> None:
    weights = np.exp(log_prior([(), (0,), (1,), (0, 1), (0, 2), (1, 2)]))
    assert weights == pytest.approx([1 / 3, 1 / 6, 1 / 6, 1 / 9, 1 / 9, 1 / 9])


# ---- hints --------------------------------------------------------------------------------------


def test_scopes_may_be_given_required_and_forbidden() -> None:
    agent = run_of(
        "circle:4,dynamics=guestrin",
        "default,scopes=unknown,given=machine_0,required=self+machine_3>machine_1,"
        "forbidden=machine_1>machine_2",
        400,
    )
    scopes = agent.statistics.structure.transition_scopes
    assert scopes[0] == (0, 3, 4)
    assert scopes[1] == (1, 3, 4)
    assert 1 not in scopes[2]
    assert 2 in scopes[2]
    for step, i, scope in agent.statistics.changes:
        assert i != 0, f"a given scope changed at step {step}"
        assert i in scope


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("parents=1,required=self+machine_3>machine_0", "'parents' parameter .* at least 2"),
        ("action_parents=0,required=restart>machine_0", "'action_parents' .* at least 1"),
        ("required=self,forbidden=machine_1>machine_1", "required and forbidden"),
        ("required=machine_9>machine_0", "names 'machine_9'"),
        ("given=machine_9", "'given' parameter .* names 'machine_9'"),
        ("forbidden=machine_0", "edges parent>child"),
    ],
)
def test_bad_hints_are_refused_in_one_line(settings: str, message: str) -> None:
    learner = LEARNERS.read(f"default,scopes=unknown,{settings}")
    with pytest.raises(InvalidParameter, match=message) as refused:
        learner.start(CIRCLE.structure, 0)
    assert "\n" not in str(refused.value)


def test_settings_for_unknown_scopes_need_unknown_scopes() -> None:
    with pytest.raises(InvalidParameter, match="parents"):
        LEARNERS.read("default,parents=3")
    with pytest.raises(InvalidParameter, match="flat"):
        LEARNERS.read("tsde,scopes=unknown")


def test_more_candidates_than_memory_are_refused() -> None:
    large = fmdp.problem("circle:60").structure
    with pytest.raises(TooLarge, match="lower parents"):
        LEARNERS.read("psrl,scopes=unknown,parents=12").start(large, 0)


def test_memory_is_predicted_before_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evidence_module, "available_memory", lambda: 1000)
    with pytest.raises(TooLarge, match=r"needs .* half of the free memory"):
        LEARNERS.read("slf-ucrl").start(CIRCLE.structure, 0)


# ---- optimism -----------------------------------------------------------------------------------


def boxes_of(learner: Any, seen: ScopeStatistics, i: int, scope: tuple[int, ...]) -> Any:
    return learner._box(seen.counts_of(i, scope), seen.structure.m)


@pytest.mark.parametrize("union", [None, 3])
@pytest.mark.parametrize("steps", [3, 60, 1500])
def test_the_hull_covers_every_consistent_scope(steps: int, union: int | None) -> None:
    """Brute force over all states, actions and consistent scopes."""
    learner = SLFUCRL(union=union)
    agent: Any = fmdp.simulate(CIRCLE, learner, steps, 2, regret=False).agent
    learner.refresh(agent)
    seen, tables = agent.statistics, learner.tables(agent)
    s, consistent = seen.structure, learner.consistent_scopes(agent)
    assert any(len(scopes) > 1 for scopes in consistent) == (steps < 1500)
    for i, scopes in enumerate(consistent):
        planned = s.transition_scopes[i]
        for scope in scopes:
            lower, upper = boxes_of(learner, seen, i, scope)
            for x in itertools.product(*map(range, s.sizes)):
                row = np.ravel_multi_index([x[v] for v in scope], s.scope_sizes(scope))
                place = np.ravel_multi_index([x[v] for v in planned], s.scope_sizes(planned))
                assert (tables.lower[i][place] <= lower[row]).all()
                assert (tables.upper[i][place] >= upper[row]).all()


def gain_of(tables: OptimisticTables) -> float:
    plan = Exact(tolerance=1e-7).prepare(tables.structure).solve(tables)
    assert plan.gain is not None
    return plan.gain


def test_the_plan_is_at_least_the_best_over_all_consistent_scopes() -> None:
    """The public code's product over scopes, which the relaxation must not fall below."""
    model = fmdp.problem("circle:3")
    learner = SLFUCRL(parents=2, c=0.01)
    agent: Any = learner.start(model, 0)
    run = fmdp.simulate(model, "random", 300, 4, record=True, regret=False)
    trajectory: Any = run.trajectory
    for t in range(300):
        agent.observe(
            trajectory.states[t].tolist(),
            trajectory.actions[t].tolist(),
            trajectory.rewards[t].tolist(),
            trajectory.states[t + 1].tolist(),
        )
    learner.refresh(agent)
    seen, tables = agent.statistics, learner.tables(agent)
    s, consistent = seen.structure, learner.consistent_scopes(agent)
    assert np.prod([len(scopes) for scopes in consistent]) > 1
    gains = []
    for scopes in itertools.product(*consistent):
        alone = s.with_factors(scopes, s.reward_scopes, s.reward_ranges, s.reward_names)
        ends = [boxes_of(learner, seen, i, scope) for i, scope in enumerate(scopes)]
        lower = [least for least, _ in ends]
        free = [np.maximum(1.0 - table.sum(axis=1), 0.0) for table in lower]
        upper = [most for _, most in ends]
        gains.append(gain_of(OptimisticTables(alone, lower, free, tables.rewards, upper)))
    assert gain_of(tables) >= max(gains) - 1e-6
    assert max(gains) > min(gains) + 1e-3


def test_with_the_true_scopes_alone_the_plan_is_that_of_known_scopes() -> None:
    learner = SLFUCRL()
    agent: Any = fmdp.simulate(CIRCLE, learner, 1500, 2, regret=False).agent
    learner.refresh(agent)
    consistent = learner.consistent_scopes(agent)
    assert consistent == [[scope] for scope in CIRCLE.structure.transition_scopes]
    tables = learner.tables(agent)
    for i, scope in enumerate(CIRCLE.structure.transition_scopes):
        lower, upper = boxes_of(learner, agent.statistics, i, scope)
        assert np.array_equal(tables.lower[i], lower)
        assert np.array_equal(tables.upper[i], upper)


# ---- saving -------------------------------------------------------------------------------------


@pytest.mark.parametrize("learner", [*LEARNING, "slf-ucrl,test=intervals,union=3"])
def test_a_saved_run_continues_bit_by_bit(learner: str) -> None:
    check_learner(LEARNERS.read(learner), CIRCLE, steps=240, seed=3, save_after=110)


def test_known_rewards_survive_changes_and_saving(tmp_path: Path) -> None:
    learner = LEARNERS.read("default,scopes=unknown,rewards=known")
    agent: Any = fmdp.simulate(CIRCLE, learner, 200, 0, regret=False).agent
    assert agent.statistics.preparations > 1
    agent.save(tmp_path / "agent")
    loaded: Any = fmdp.load_agent(tmp_path / "agent")
    assert np.array_equal(loaded.statistics.reward_means(), agent.statistics.reward_means())
    assert loaded.statistics.changes == agent.statistics.changes
    assert loaded.learner.scopes == UNKNOWN


def test_a_file_with_impossible_steps_is_refused(tmp_path: Path) -> None:
    agent: Any = fmdp.simulate(CIRCLE, "psrl,scopes=unknown", 50, 0, regret=False).agent
    agent.statistics.evidence._log[7, 2] = 9
    agent.save(tmp_path / "agent")
    with pytest.raises(fmdp.FmdpError, match="values that the variables do not have"):
        fmdp.load_agent(tmp_path / "agent")


def test_edges_over_time_end_with_those_of_the_agent() -> None:
    run = fmdp.simulate(CIRCLE, "psrl,scopes=unknown", 300, 0, record=True, regret=False)
    agent, trajectory = run.agent, run.trajectory
    states: Any = trajectory.states
    log = np.concatenate([states[:-1], trajectory.actions, states[1:]], axis=1)
    edges = agent.learner.edges_over_time(CIRCLE.structure, log, [0, 120, 300])
    found = fmdp.edge_probabilities(agent)
    for i, child in enumerate(CIRCLE.structure.state_names):
        for v, parent in enumerate(CIRCLE.structure.names):
            assert edges[-1, i, v] == pytest.approx(found[child].get(parent, 0.0))
    with pytest.raises(InvalidParameter, match="scopes are unknown"):
        fmdp.edge_probabilities(fmdp.PSRL().start(CIRCLE, 0))


def test_a_failed_decision_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The scopes change before the plan fails; statistics and planner must fit each other."""
    agent: Any = fmdp.PSRL(scopes="unknown").start(CIRCLE, 0)
    state = CIRCLE.initial_state
    for _ in range(30):
        action = agent.act(state)
        agent.observe(state, action, [0.5] * 4, [(s + 1) % 2 for s in state])
        agent.end_decision()
    before, counts = agent.statistics, agent.statistics.visits.copy()
    with monkeypatch.context() as failing:
        failing.setattr(type(agent), "plan", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            agent.decide()
    assert agent.statistics is before
    assert np.array_equal(agent.statistics.visits, counts)
    assert len(agent.act(state)) == 1


def test_derived_variables_do_not_disturb() -> None:
    """Scopes are learned among states and actions; a given scope may name a derived variable."""
    machines = ["a", "b", "c"]
    model = fmdp.FactoredMDP.from_functions(
        states=dict.fromkeys(machines, 2),
        actions={"act": 3},
        derived={"up": fmdp.Count(machines, 1)},
        parents={name: [name, "up", "act"] for name in machines},
        transition=lambda name, values: [0.8 - 0.2 * values["up"], 0.2 + 0.2 * values["up"]],
        reward={"share": (["up"], lambda values: values["up"] / 3)},
        reward_ranges={"share": (0.0, 1.0)},
    )
    for learner in ("default,scopes=unknown,parents=3", "slf-ucrl,given=a"):
        check_learner(LEARNERS.read(learner), model, steps=80, seed=1, save_after=40)
