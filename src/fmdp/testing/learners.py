"""check_learner: the contract of every learner.

* Its settings are declared: learners with equal settings are equal, each setting has a meaning, and
  can be read back from its text.
* `act` returns an action of the structure, and a repeated call changes nothing.
* Equal seeds give equal runs, bit by bit.
* Bulk play gives the same run as act and observe, bit by bit.
* Tables pass the checks of the constructors: every row is a distribution.
* Saved after any number of steps and loaded again, it continues the run bit by bit.
* An invalid step is refused and changes nothing.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fmdp._base.foreign_code import place_of
from fmdp.errors import FmdpError
from fmdp.learning.agent import Agent, state_of
from fmdp.learning.files import load_agent
from fmdp.learning.learner import Learner, PlanningLearner
from fmdp.model import FactoredMDP, OptimisticTables
from fmdp.planning.policies.archive import policy_digest
from fmdp.planning.policies.rule import Rule
from fmdp.simulation import Reference, Simulation
from fmdp.testing.checks import ContractBroken

_NO_REFERENCE = Reference(gain=0.0, gain_kind="exact", gaps=None, seconds=0.0)


class StepByStep:
    """An agent with only `act` and `observe`, which hides bulk play."""

    def __init__(self, agent: Any) -> None:
        self.agent = agent

    def act(self, state: Sequence[int]) -> tuple[int, ...]:
        return tuple(self.agent.act(state))

    def observe(self, *step: Any) -> None:
        self.agent.observe(*step)


def check_learner(
    learner: Learner | type[Learner],
    model: FactoredMDP,
    *,
    steps: int = 100,
    seed: int = 0,
    save_after: int = 37,
) -> None:
    """Raise ContractBroken unless a learner keeps the contract of learners on a model.

    Parameters
    ----------
    learner
        The learner with its settings, or its class, which is made with the settings of its
        `example`.
    model
        The model to try it on; three variables with two or three values are enough.
    steps
        Length of the runs that are compared.
    seed
        Seed of environment and learner.
    save_after
        The step after which it is saved and loaded.
    """
    if isinstance(learner, type):
        learner = _example_of(learner)
    who = f"learner {place_of(type(learner))}"
    _check_settings(learner, who)
    _check_memory(learner, model, seed)
    _check_actions(learner, model, seed, who)
    whole = _traces(_agent(learner, model, seed), model, steps, seed)
    again = _traces(_agent(learner, model, seed), model, steps, seed)
    _require(again == whole, who, "gives the same run for the same seeds")
    single = _traces(_agent(learner, model, seed), model, steps, seed, step_by_step=True)
    _require(single == whole, who, "gives the same run in bulk and step by step")
    _check_tables(learner, model, steps, seed)
    _check_refusal(learner, model, seed, who)
    resumed = _traces(_agent(learner, model, seed), model, steps, seed, save_after=save_after)
    _require(resumed == whole, who, f"goes on the same when it is saved after {save_after} steps")


def _example_of(kind: type[Learner]) -> Learner:
    try:
        return kind.make(kind.example)
    except FmdpError as error:
        raise ContractBroken(
            f"learner {place_of(kind)}: must have an example with all required settings: {error}"
        ) from None


def _require(kept: bool, who: str, promise: str) -> None:
    if not kept:
        raise ContractBroken(f"{who}: must keep its promise that it {promise}")


def _agent(learner: Learner, model: FactoredMDP, seed: int) -> Agent:
    return learner.start(model, np.random.Generator(np.random.PCG64(seed)))


def _check_settings(learner: Learner, who: str) -> None:
    _require(replace(learner) == learner, who, "equals another with the same settings")
    values = {
        parameter.name: parameter.parse(parameter.show(getattr(learner, parameter.name)), who)
        for parameter in learner.parameters
    }
    again = replace(learner, **values)
    _require(again == learner, who, "has settings that can be read back from their texts")
    for parameter in learner.parameters:
        promise = f"says what its setting '{parameter.name}' means"
        _require(bool(parameter.meaning.strip()), who, promise)
    _require(bool(learner.summary), who, "has a docstring, whose first sentence is its summary")


def _traces(
    agent: Agent,
    model: FactoredMDP,
    steps: int,
    seed: int,
    *,
    step_by_step: bool = False,
    save_after: int | None = None,
) -> list[Any]:
    """Run an agent and return its trajectory and its final state."""
    seen: Any = StepByStep(agent) if step_by_step else agent
    simulation = Simulation(model, seen, seed, reference=_NO_REFERENCE, record=True)
    if save_after is not None:
        if save_after:
            simulation.run(save_after)
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "learner.npz"
            agent.save(file)
            simulation.agent = agent = load_agent(file)
    simulation.run(steps - simulation.environment.steps)
    trajectory = simulation.result().trajectory
    assert trajectory is not None
    traces: list[Any] = [
        trajectory.states.tolist(),
        trajectory.actions.tolist(),
        trajectory.rewards.tolist(),
    ]
    values, arrays = state_of(agent)
    traces += [values, {name: array.tolist() for name, array in arrays.items()}]
    if agent.generator is not None:
        traces.append(str(agent.generator.bit_generator.state))
    if agent.decision is not None and not isinstance(agent.decision.policy, Rule):
        traces.append(policy_digest(agent.decision.policy))
    return traces


def _check_memory(learner: Learner, model: FactoredMDP, seed: int) -> None:
    """Check that the initial memory can be saved."""
    with tempfile.TemporaryDirectory() as folder:
        _agent(learner, model, seed).save(Path(folder) / "learner.npz")


def _check_actions(learner: Learner, model: FactoredMDP, seed: int, who: str) -> None:
    agent = _agent(learner, model, seed)
    first = model.structure.check_action(agent.act(model.initial_state))
    for _ in range(3):
        _require(agent.act(model.initial_state) == first, who, "answers the same when asked again")


def _check_tables(learner: Learner, model: FactoredMDP, steps: int, seed: int) -> None:
    if not isinstance(learner, PlanningLearner):
        return
    agent = _agent(learner, model, seed)
    simulation = Simulation(model, agent, seed, reference=_NO_REFERENCE)
    for _ in range(6):
        tables = learner.tables(agent)
        if isinstance(tables, OptimisticTables):
            replace(tables)
        else:
            FactoredMDP(tables.structure, tables.transitions, tables.rewards)
        simulation.run(max(1, steps // 5))


def _check_refusal(learner: Learner, model: FactoredMDP, seed: int, who: str) -> None:
    agent = _agent(learner, model, seed)
    s = model.structure
    rewards = [lo for lo, _ in s.reward_ranges]
    nowhere = (s.state_sizes[0], *model.initial_state[1:])
    refused = False
    try:
        agent.observe(model.initial_state, (0,) * len(s.action_sizes), rewards, nowhere)
    except FmdpError:
        refused = True
    _require(refused, who, f"refuses the next state {nowhere}, which is none")
    _require(agent.steps == 0, who, "does not count a refused step")
