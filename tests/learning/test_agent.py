"""Agent: stepping and bulk lead to one state, to the last bit of the generator."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fmdp
from fmdp.errors import InvalidParameter
from fmdp.learning.agent import Agent, state_of
from fmdp.learning.learner import Learner
from fmdp.planning.policies.randomised import UniformPolicy
from fmdp.simulation import Reference, Simulation, simulate
from fmdp.testing.learners import StepByStep

MODEL = fmdp.problem("random:3,values=2,parents=1,actions=3,seed=5,noise=bernoulli")
MACHINES = fmdp.problem("machines:2")
FREE = Reference(0.0, "exact", None, 0.0)


def told(policy: Any, steps: int = 10, growth: int = 0) -> Learner:
    """Plays a policy for a number of steps, or until a count has grown by a number."""

    class Told(Learner):
        """Makes the decision that it was given."""

        def decide(self, agent: Agent) -> fmdp.Decision:
            visits = agent.statistics.visits
            limits = visits + growth if growth else np.zeros(0, dtype=np.int64)
            return fmdp.Decision(policy, steps, limits)

    return Told()


def left_behind(agent: Agent) -> list[Any]:
    values, arrays = state_of(agent)
    assert agent.generator is not None
    return [
        values,
        {name: array.tolist() for name, array in arrays.items()},
        str(agent.generator.bit_generator.state),
    ]


@settings(max_examples=40, deadline=None)
@given(
    epsilon=st.sampled_from((None, 0.0, 0.3, 1.0)),
    steps=st.integers(1, 40),
    growth=st.integers(0, 6),
    pieces=st.lists(st.integers(1, 50), min_size=1, max_size=6),
    asked=st.booleans(),
    model=st.sampled_from((MODEL, MACHINES)),
    bits=st.sampled_from(("PCG64", "MT19937", "Philox", "SFC64")),
)
def test_random_policies_in_bulk_are_those_of_single_steps(
    epsilon: float | None,
    steps: int,
    growth: int,
    pieces: list[int],
    asked: bool,
    model: fmdp.FactoredMDP,
    bits: str,
) -> None:
    """If a limit ends an episode early, the draws for the rest of it are undone. An action that
    `act` has already drawn is taken first."""
    best = fmdp.plan(model).policy
    assert best is not None
    policy: Any = UniformPolicy.of(model.structure)
    if epsilon is not None:
        policy = fmdp.ExploringPolicy(best, epsilon)
    learner = told(policy, steps, growth)
    agents, walks = [], []
    for in_bulk in (True, False):
        generator = np.random.Generator(getattr(np.random, bits)(9))
        agent = learner.start(model, generator)
        player: Any = agent if in_bulk else StepByStep(agent)
        simulation = Simulation(model, player, 2, reference=FREE, record=True)
        for piece in pieces:
            if asked:
                agent.act(simulation.environment.state)
            simulation.run(piece)
        trajectory = simulation.result().trajectory
        assert trajectory is not None
        agents.append(agent)
        walks.append((trajectory.states.tolist(), trajectory.actions.tolist()))
    assert walks[0] == walks[1]
    assert left_behind(agents[0]) == left_behind(agents[1])


def test_limits_end_random_stretches_early() -> None:
    """The test above meets the case that it is about: far more decisions than steps allow for."""
    policy = UniformPolicy.of(MODEL.structure)
    run = simulate(MODEL, told(policy, 1000, 2), 200, reference=FREE)
    assert run.episodes is not None
    assert run.episodes > 20


class Reached(Learner):
    """Its limits are below the counts that there are."""

    def decide(self, agent: Agent) -> fmdp.Decision:
        limits = np.maximum(1, agent.statistics.visits)
        return fmdp.Decision(UniformPolicy.of(agent.structure), 100, limits)


def test_limits_that_are_reached_beforehand_end_a_decision_after_one_step() -> None:
    agents = []
    for in_bulk in (True, False):
        agent = Reached().start(MODEL, 1)
        player: Any = agent if in_bulk else StepByStep(agent)
        Simulation(MODEL, player, 2, reference=FREE).run(60)
        agents.append(agent)
    assert left_behind(agents[0]) == left_behind(agents[1])
    assert agents[0].episodes == 60


def test_steps_may_be_numpy_integers() -> None:
    table = fmdp.plan(MODEL).policy

    class Numpy(Learner):
        """Counts with NumPy."""

        def decide(self, agent: Agent) -> fmdp.Decision:
            return fmdp.Decision(table, np.int64(7))  # type: ignore[arg-type]

    run = simulate(MODEL, Numpy(), 70, reference=FREE)
    assert run.episodes == 10


@pytest.mark.parametrize("in_a_decision", [False, True])
def test_a_policy_of_another_model_is_refused(in_a_decision: bool) -> None:
    """Compiled code would read beyond its tables."""
    other = fmdp.problem("circle:3")
    best = fmdp.plan(other).policy
    assert best is not None
    for policy in (best, fmdp.ExploringPolicy(best, 0.1), UniformPolicy.of(other.structure)):
        player: Any = told(policy) if in_a_decision else policy
        with pytest.raises(InvalidParameter, match="the policy is for state sizes"):
            simulate(MODEL, player, 10, reference=FREE)


# ---- an agent goes on where it stands ------------------------------------------------------------


@pytest.mark.parametrize("text", ["psrl", "dorl", "fsrl", "frmax,m=3", "random", "oracle"])
def test_a_simulation_of_an_agent_goes_on_where_it_stands(text: str) -> None:
    agent = simulate(MODEL, text, 100, 1, reference=FREE).agent
    before = agent.statistics.visits.copy()
    run = simulate(MODEL, agent, 150, 2, reference=FREE, record=True)
    assert run.agent is agent
    assert (run.steps, agent.steps) == (150, 250)  # the run's own steps, and the agent's
    assert run.trajectory is not None
    assert tuple(run.trajectory.states[0].tolist()) == MODEL.initial_state  # a world of its own
    if agent.learner.counts:
        factors = MODEL.structure.m + MODEL.structure.l
        assert agent.statistics.visits.sum() - before.sum() == 150 * factors
    assert run.learner == repr(agent.learner)


def test_one_learner_makes_agents_that_know_nothing_of_each_other() -> None:
    learner = fmdp.PSRL()
    alone = simulate(MODEL, learner, 200, 4, reference=FREE)
    simulate(MODEL, learner, 50, 9, reference=FREE)
    again = simulate(MODEL, learner, 200, 4, reference=FREE)
    assert alone.total_reward == again.total_reward
    assert alone.agent is not again.agent
    assert alone.agent.memory is not again.agent.memory


def test_a_decision_that_fails_changes_nothing() -> None:
    class Failing(fmdp.DORL):
        """Fails at its third plan."""

        def tables(self, agent: Agent) -> fmdp.OptimisticTables:
            if agent.planner_calls == 2 and not agent.memory.get("over"):
                raise ValueError("no tables")
            return super().tables(agent)

    simulation = Simulation(MODEL, Failing(), 1, reference=FREE, record=True)
    with pytest.raises(ValueError, match="no tables"):
        simulation.run(50)
    agent = simulation.agent
    assert isinstance(agent, Agent)
    assert (agent.episodes, agent.planner_calls, agent.steps) == (2, 2, 3)
    agent.memory["over"] = True
    simulation.run(50 - 3)
    plain = simulate(MODEL, fmdp.DORL(), 50, 1, reference=FREE)
    assert simulation.result().total_reward == plain.total_reward


@pytest.mark.parametrize("planner", ["exact", "alp"])
def test_a_planner_without_time_is_one_line(planner: str) -> None:
    learner = fmdp.PSRL(planner=f"{planner},max_seconds=1e-9")
    with pytest.raises(InvalidParameter, match=f"planner {planner} gave none: stopped at"):
        fmdp.simulate(fmdp.problem("circle:14"), learner, 10)
