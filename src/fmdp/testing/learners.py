"""check_learner: what every learner has to do, one's own included; an error says what fails.

* `act` gives an action of the structure, and asking again changes nothing;
* the same seeds give the same run, to the last bit;
* playing offers in bulk gives the same run as act and observe, to the last bit;
* what is planned with passes the checking constructors: every row is a distribution;
* saved after any number of steps and loaded again, it goes on the same, to the last bit;
* a step that is out of range is refused and leaves no trace.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fmdp.errors import FmdpError
from fmdp.learning.files import load_learner
from fmdp.learning.learner import Learner, PlanningLearner
from fmdp.learning.registry import learners
from fmdp.model import FactoredMDP, OptimisticTables
from fmdp.simulation import Reference, Simulation

Make = Callable[[FactoredMDP, np.random.Generator], Any]
"""A new learner for a model, with its generator."""

_NO_REFERENCE = Reference(gain=0.0, gain_kind="exact", gaps=None, seconds=0.0)


class StepByStep:
    """A learner seen through act and observe alone."""

    def __init__(self, learner: Any) -> None:
        self.learner = learner

    def act(self, state: Sequence[int]) -> tuple[int, ...]:
        return tuple(self.learner.act(state))

    def observe(self, *step: Any) -> None:
        self.learner.observe(*step)


def check_learner(
    make: Make, model: FactoredMDP, *, steps: int = 100, seed: int = 0, save_after: int = 37
) -> None:
    """Run a learner through everything that it has to do; an AssertionError says what fails.

    Parameters
    ----------
    make
        Makes a new learner from a model and a generator, `make(model, generator)`.
    model
        The model that it is run on.
    steps
        Length of every run.
    seed
        Seed of the environment and of the learner's generator.
    save_after
        Steps after which a registered learner is saved and loaded.
    """
    _check_actions(make, model, seed)
    whole = _traces(_made(make, seed)(model), model, steps, seed)
    again = _traces(_made(make, seed)(model), model, steps, seed)
    assert again == whole, "the same seeds gave two different runs"
    single = _traces(_made(make, seed)(model), model, steps, seed, step_by_step=True)
    assert single == whole, "in bulk and step by step gave two different runs"
    _check_tables(make, model, steps, seed)
    _check_refusal(make, model, seed)
    learner = _made(make, seed)(model)
    if isinstance(learner, Learner) and learner.name in {kind.name for kind in learners()}:
        resumed = _traces(learner, model, steps, seed, save_after=save_after)
        assert resumed == whole, (
            f"saved after {save_after} steps and loaded, it went on differently"
        )


def _made(make: Make, seed: int) -> Callable[[FactoredMDP], Any]:
    return lambda model: make(model, np.random.Generator(np.random.PCG64(seed)))


def _traces(
    learner: Any,
    model: FactoredMDP,
    steps: int,
    seed: int,
    *,
    step_by_step: bool = False,
    save_after: int | None = None,
) -> list[Any]:
    """Everything that a run leaves behind."""
    seen = StepByStep(learner) if step_by_step else learner
    simulation = Simulation(model, seen, seed, reference=_NO_REFERENCE)
    if save_after is not None:
        simulation.run(save_after)
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "learner.npz"
            learner.save(file)
            simulation.learner = learner = load_learner(file)
    simulation.run(steps - simulation.environment.steps)
    environment = simulation.environment
    traces: list[Any] = [environment.state, environment.total_reward, environment.steps]
    if isinstance(learner, Learner):
        traces += [learner.steps, learner.episodes, learner.planner_calls]
        traces.append(learner.unconverged_plans)
        values, arrays = learner.state()
        traces += [values, {name: array.tolist() for name, array in arrays.items()}]
        if learner.generator is not None:
            traces.append(learner.generator.bit_generator.state)
    return traces


def _check_actions(make: Make, model: FactoredMDP, seed: int) -> None:
    learner = _made(make, seed)(model)
    first = model.structure.check_action(learner.act(model.initial_state))
    for _ in range(3):
        assert tuple(learner.act(model.initial_state)) == first, (
            "asked again, it answered otherwise"
        )


def _check_tables(make: Make, model: FactoredMDP, steps: int, seed: int) -> None:
    learner = _made(make, seed)(model)
    if not isinstance(learner, PlanningLearner):
        return
    simulation = Simulation(model, learner, seed, reference=_NO_REFERENCE)
    for _ in range(6):
        tables = learner.tables()
        if isinstance(tables, OptimisticTables):
            OptimisticTables(tables.structure, tables.lower, tables.free, tables.rewards)
        else:
            FactoredMDP(tables.structure, tables.transitions, tables.rewards)
        simulation.run(max(1, steps // 5))


def _check_refusal(make: Make, model: FactoredMDP, seed: int) -> None:
    learner = _made(make, seed)(model)
    s = model.structure
    rewards = [lo for lo, _ in s.reward_ranges]
    nowhere = (s.state_sizes[0], *model.initial_state[1:])
    try:
        learner.observe(model.initial_state, (0,) * len(s.action_sizes), rewards, nowhere)
    except FmdpError:
        pass
    else:
        raise AssertionError(f"observing the next state {nowhere}, which is none, was not refused")
    if isinstance(learner, Learner):
        assert learner.steps == 0, "a refused step was counted"
