"""Ctrl-C: what was done so far is a run, nothing of it is lost, and the agent can go on."""

from __future__ import annotations

import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fmdp
from fmdp.experiments.spec import resolved_learner
from fmdp.experiments.worker import Task, run_task
from fmdp.learning.agent import state_of
from fmdp.learning.follow import Follow
from fmdp.planning.plan import Plan, Status
from fmdp.simulation import Reference, Simulation, environment, simulate

MODEL = fmdp.problem("circle:4")
FREE = Reference(0.0, "exact", None, 0.0)


def whole(run: fmdp.Run, steps: int | None = None) -> None:
    """Everything that an interrupted run has says the same."""
    agent, found = run.agent, run.trajectory
    assert found is not None
    assert run.steps == agent.steps == len(found)
    assert steps is None or run.steps == steps
    assert found.rewards.sum() == pytest.approx(run.total_reward, abs=1e-9)
    if run.steps:
        assert run.curve[-1] == (run.steps, run.regret)
    if agent.learner.counts:
        again = fmdp.Statistics(MODEL.structure)
        for t in range(len(found)):
            again.record(
                found.states[t].tolist(),
                found.actions[t].tolist(),
                found.rewards[t],
                found.states[t + 1].tolist(),
            )
        assert np.array_equal(again.counts.cells, agent.statistics.counts.cells)
        assert np.array_equal(again.counts.visits, agent.statistics.counts.visits)


@pytest.mark.parametrize("learner", ["dorl", "psrl,episodes=doubling", "frmax", "random"])
def test_from_a_callback(learner: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(news: Mapping[str, Any]) -> None:
        if news["step"] >= 40:
            signal.raise_signal(signal.SIGINT)  # as Ctrl-C does

    simulation = Simulation(MODEL, learner, 3, reference=FREE, record=True)
    monkeypatch.setattr("fmdp.simulation.loop._SECONDS_BETWEEN_REPORTS", 0.0)
    simulation.run(500, progress=stop)
    run = simulation.result()
    assert run.interrupted
    assert 40 <= run.steps < 500
    assert "interrupted after" in repr(run)
    whole(run)
    # The same run, gone on with, is the run that was never interrupted.
    simulation.run(500 - run.steps)
    finished = simulation.result()
    assert not finished.interrupted
    undisturbed = simulate(MODEL, learner, 500, 3, reference=FREE, record=True)
    assert finished.total_reward == undisturbed.total_reward
    assert finished.episodes == undisturbed.episodes
    assert finished.trajectory is not None
    assert undisturbed.trajectory is not None
    assert np.array_equal(finished.trajectory.states, undisturbed.trajectory.states)
    assert np.array_equal(finished.trajectory.actions, undisturbed.trajectory.actions)


class Stopping:
    """A policy without a table that is interrupted when it is asked for the n-th time."""

    def __init__(self, policy: Any, at: int) -> None:
        self.policy, self.at, self.asked = policy, at, 0
        self.state_sizes, self.action_sizes = policy.state_sizes, policy.action_sizes

    def __call__(self, state: Any) -> tuple[int, ...]:
        self.asked += 1
        if self.asked == self.at:
            raise KeyboardInterrupt
        return self.policy(state)

    def save(self, path: Any) -> None:
        self.policy.save(path)


def playing(policy: Any) -> fmdp.Learner:
    class Playing(fmdp.Learner):
        """Counts what a policy meets, and decides anew when a count doubles."""

        def decide(self, agent: fmdp.Agent) -> fmdp.Decision:
            limits = np.maximum(8, 2 * agent.statistics.visits)
            return fmdp.Decision(policy, 50, limits)

    return Playing()


@pytest.mark.parametrize("random", [False, True])
@pytest.mark.parametrize("at", [1, 2, 5])
def test_from_a_policy_in_the_middle_of_a_stretch(at: int, random: bool) -> None:
    table = fmdp.plan(MODEL).policy
    assert table is not None
    stopping: Any = Stopping(table, at)
    policy = fmdp.ExploringPolicy(stopping, 0.3) if random else stopping
    simulation = Simulation(MODEL, playing(policy), 5, reference=FREE, record=True)
    simulation.run(300)
    run = simulation.result()
    assert run.interrupted
    assert run.steps < 300
    whole(run)
    simulation.run(300 - run.steps)
    finished = simulation.result()
    whole(finished, 300)
    plain: Any = fmdp.ExploringPolicy(table, 0.3) if random else table
    undisturbed = simulate(MODEL, playing(plain), 300, 5, reference=FREE, record=True)
    assert finished.trajectory is not None
    assert undisturbed.trajectory is not None
    assert np.array_equal(finished.trajectory.actions, undisturbed.trajectory.actions)
    assert finished.total_reward == undisturbed.total_reward
    assert finished.agent.episodes == undisturbed.agent.episodes
    assert str(finished.agent.generator.bit_generator.state) == str(
        undisturbed.agent.generator.bit_generator.state
    )


@pytest.mark.parametrize("learner", ["dorl", "random", "psrl,episodes=doubling"])
def test_inside_compiled_code(learner: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The interrupt is raised when the compiled steps return: they are done, counted and kept."""
    real = environment.kernels.play
    calls = 0

    def interrupted(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        result = real(*arguments)
        if calls == 3:
            raise KeyboardInterrupt
        return result

    monkeypatch.setattr(environment.kernels, "play", interrupted)
    simulation = Simulation(MODEL, learner, 3, reference=FREE, record=True)
    simulation.run(400)
    run = simulation.result()
    assert run.interrupted
    assert 0 < run.steps < 400
    whole(run)
    simulation.run(400 - run.steps)
    finished = simulation.result()
    whole(finished, 400)
    undisturbed = simulate(MODEL, learner, 400, 3, reference=FREE, record=True)
    assert finished.trajectory is not None
    assert undisturbed.trajectory is not None
    assert np.array_equal(finished.trajectory.states, undisturbed.trajectory.states)
    assert finished.agent.episodes == undisturbed.agent.episodes


class Interrupted:
    """A planner that is interrupted at its n-th plan, as planners are: with a status."""

    name = "interrupted"

    def __init__(self, at: int) -> None:
        self.at, self.calls = at, 0

    def prepare(self, structure: Any) -> Interrupted:
        self.prepared = fmdp.Exact(tolerance=1e-2).prepare(structure)
        return self

    def solve(self, tables: Any, **how: Any) -> Plan:
        self.calls += 1
        plan = self.prepared.solve(tables)
        return Plan("interrupted", Status.INTERRUPTED) if self.calls == self.at else plan

    def warm_state(self) -> Any:
        return self.prepared.warm_state()


@pytest.mark.parametrize("at", [1, 4])
@pytest.mark.parametrize("kind", [fmdp.DORL, fmdp.PSRL])
def test_inside_a_plan(at: int, kind: type[Any]) -> None:
    planner: Any = Interrupted(at)
    simulation = Simulation(MODEL, kind(planner=planner), 1, reference=FREE, record=True)
    before = str(simulation.agent.generator.bit_generator.state)  # type: ignore[union-attr]
    simulation.run(200)
    if at == 1:  # what was drawn for the plan is drawn again
        assert str(simulation.agent.generator.bit_generator.state) == before  # type: ignore[union-attr]
    run = simulation.result()
    assert run.interrupted
    assert run.planner_calls == run.episodes == at - 1
    whole(run)
    simulation.run(200 - run.steps)
    whole(simulation.result(), 200)
    assert not simulation.result().interrupted


def test_the_agent_of_an_interrupted_run_can_be_saved(tmp_path: Path) -> None:
    def stop(news: Mapping[str, Any]) -> None:
        raise KeyboardInterrupt

    run = simulate(MODEL, "psrl", 100, 1, reference=FREE, progress=stop)
    assert run.interrupted
    assert run.steps < 100
    run.agent.save(tmp_path / "learner.npz")
    loaded = fmdp.load_agent(tmp_path / "learner.npz")
    assert loaded.steps == run.steps
    assert loaded.act(MODEL.initial_state) == run.agent.act(MODEL.initial_state)


def test_before_the_first_step_there_is_no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("fmdp.simulation.loop.reference_for", stop)
    with pytest.raises(KeyboardInterrupt):
        simulate(MODEL, "psrl", 100)


def stops(state: tuple[int, ...]) -> int:
    """A rule that is interrupted as soon as it is asked."""
    raise KeyboardInterrupt


def test_a_run_of_a_sweep_that_is_interrupted_has_not_failed() -> None:
    """Stored as failed it would not be run again."""
    learner = Follow(policy=stops)
    resolved = {"model": MODEL.content_hash, "steps": 10, **resolved_learner(learner.start(MODEL))}
    task = Task("key", "circle:4", MODEL, learner, resolved, seed=0, steps=10, record=False)
    with pytest.raises(KeyboardInterrupt):
        run_task(task)


# ---- at every line ------------------------------------------------------------------------------

ROOMS = tuple(
    str(Path(fmdp.__file__).parent / room) for room in ("simulation", "learning", "planning")
)


class AtLine:
    """Ctrl-C at the n-th line of the run, of simulation, learning and planning."""

    def __init__(self, number: int) -> None:
        self.left = number

    def __call__(self, frame: Any, event: str, _: Any) -> Any:
        if not frame.f_code.co_filename.startswith(ROOMS):
            return None
        if event == "line":
            self.left -= 1
            if self.left == 0:
                sys.settrace(None)
                signal.raise_signal(signal.SIGINT)
        return self


def outcome(simulation: Simulation) -> tuple[Any, ...]:
    run = simulation.result()
    assert run.trajectory is not None
    header, arrays = state_of(run.agent)
    told = {name: array.tolist() for name, array in arrays.items()}
    return run.trajectory.states.tolist(), run.regret, run.planner_calls, str(header), told


@pytest.mark.parametrize(
    ("learner", "step"),
    [
        ("psrl", 7),
        ("fsrl", 29),
        pytest.param(fmdp.PSRL(planner="alp"), 37, marks=pytest.mark.slow),
        pytest.param(
            fmdp.PSRL(planner="alp,criterion=average,method=factored"), 61, marks=pytest.mark.slow
        ),
        (playing(lambda state: state[0]), 3),
        ("random", 3),
    ],
)
def test_at_any_line_nothing_is_lost_and_nothing_is_done_twice(learner: Any, step: int) -> None:
    """Gone on with, it is the run that was never interrupted, to the last bit of what would be
    saved. Lines that are tried are `step` apart, of a run that has gone on for some time."""
    steps = 12

    def begun() -> Simulation:
        simulation = Simulation(MODEL, learner, 3, reference=FREE, record=True)
        simulation.run(25)
        return simulation

    undisturbed = begun()
    undisturbed.run(steps)
    expected = outcome(undisturbed)
    tried = 0
    for number in range(1, 1_000_000, step):
        simulation = begun()
        trace = AtLine(number)
        sys.settrace(trace)
        try:
            simulation.run(steps)
        except KeyboardInterrupt:
            pass  # after the last step, or before the first
        finally:
            sys.settrace(None)
        if trace.left > 0:
            break
        tried += 1
        done = simulation.environment.steps - 25
        if done < steps:
            simulation.run(steps - done)
        assert outcome(simulation) == expected, f"Ctrl-C at line {number}"
    assert tried > 20
