"""One run: what a worker does with a task, and what it hands back.

A `MadeRun` has only what the store keeps. A run that fails hands back its error; only the death
of the worker itself is seen from outside. A run does not depend on who makes it, nor on the runs
that the same worker made before: what is kept between them is the reference of a model (its
optimal gain and gaps), which is a function of the model.

A run that is recorded goes step by step instead of in bulk, which changes nothing in it.
"""

from __future__ import annotations

import os
import platform
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmdp import __version__
from fmdp.errors import FmdpError
from fmdp.experiments import RESULTS_VERSION
from fmdp.experiments.measures import curves_of, measured
from fmdp.experiments.spec import PlannedRun, Recipe, resolved_learner
from fmdp.experiments.store import Curve, Recording, Role, StoredRun
from fmdp.learning.learner import Learner
from fmdp.model import FactoredMDP, Structure
from fmdp.model.spaces import strides
from fmdp.simulation.loop import Run, checkpoints, simulate, streams
from fmdp.simulation.regret import Reference, reference_for

FRAMES = 200
"""Evenly spaced frames of a recording, beside the checkpoints of the curve."""


@dataclass(frozen=True, eq=False)
class Task:
    """A run as it travels to a worker."""

    key: str
    problem: str
    model: FactoredMDP
    recipe: Recipe
    resolved: dict[str, Any]
    role: Role
    seed: int
    steps: int
    record: bool
    results_version: int = RESULTS_VERSION
    fmdp_version: str = __version__

    @classmethod
    def of(cls, run: PlannedRun) -> Task:
        cell = run.cell
        return cls(
            run.key, cell.problem.id, cell.problem.model, cell.recipe, dict(cell.resolved),
            role_of(cell.recipe), run.seed, cell.steps, run.record,
        )  # fmt: skip


@dataclass(frozen=True, eq=False)
class MadeRun:
    """What the store gets of a run, done or failed."""

    run: StoredRun
    curve: Curve | None = None
    recording: Recording | None = None


def work(task: Task) -> MadeRun:
    """Make the run. Never raises for what goes wrong in it."""
    started = time.perf_counter()
    try:
        if (task.results_version, task.fmdp_version) != (RESULTS_VERSION, __version__):
            raise FmdpError(
                f"the worker has fmdp {__version__} (results version {RESULTS_VERSION}); the sweep "
                f"is made with fmdp {task.fmdp_version} ({task.results_version})"
            )
        return _make(task)
    except FmdpError as error:
        return failed(task, f"{type(error).__name__}: {error}", time.perf_counter() - started)
    except Exception:
        return failed(task, traceback.format_exc(), time.perf_counter() - started)


def failed(task: Task, error: str, seconds: float) -> MadeRun:
    return MadeRun(_row(task, status="failed", seconds=seconds, error=error))


def _make(task: Task) -> MadeRun:
    reference = _reference(task.model)
    learner = task.recipe.make(task.model)
    found = resolved_learner(learner)
    if any(task.resolved[name] != value for name, value in found.items()):
        raise FmdpError(f"the worker resolves the learner to {found}, the sweep to {task.resolved}")
    recorder = Recorder(learner, task.model) if task.record else None
    if recorder is not None and learner.generator is None:
        learner.generator = streams(task.seed)[1]  # as `simulate` gives it to a bare learner
    run = simulate(task.model, recorder or learner, task.steps, task.seed, reference=reference)
    row = _row(task, status="done", seconds=run.seconds, measures=measured(run))
    return MadeRun(row, curve_of(run), None if recorder is None else recorder.recording())


def curve_of(run: Run) -> Curve:
    """All curves of a run; they share their checkpoints."""
    points = curves_of(run)
    t = [t for t, _ in run.curve]
    for name, own in points.items():
        if [t for t, _ in own] != t:
            raise FmdpError(f"the curve of '{name}' has checkpoints of its own")
    return Curve(
        np.array(t, dtype=np.int64),
        {name: np.array([v for _, v in own], dtype=np.float64) for name, own in points.items()},
    )


def role_of(learner: object) -> Role:
    """What a learner, or a class of them, is in a comparison; its class may say so."""
    role: Role = getattr(learner, "role", "learner")
    return role


def _row(task: Task, **results: Any) -> StoredRun:
    resolved = task.resolved
    return StoredRun(
        key=task.key,
        model=resolved["model"],
        problem=task.problem,
        learner=resolved["learner"],
        role=task.role,
        parameters=resolved["parameters"],
        planner=resolved["planner"],
        planner_settings=resolved["planner_settings"],
        seed=task.seed,
        steps=task.steps,
        fmdp_version=__version__,
        results_version=task.results_version,
        machine=machine(),
        finished=now(),
        **results,
    )


@lru_cache(maxsize=8)
def _reference(model: FactoredMDP) -> Reference:
    return reference_for(model)


@cache
def machine() -> str:
    """What a time depends on, without naming the host: reports are made to be shown."""
    import numba

    cores = os.cpu_count()
    return (
        f"{platform.system()} {platform.machine()}, {cores} cores, "
        f"Python {platform.python_version()}, NumPy {np.__version__}, Numba {numba.__version__}"
    )


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


class Recorder:
    """Stands between the loop and a learner and writes down every step."""

    def __init__(self, learner: Learner, model: FactoredMDP) -> None:
        self.learner = learner
        self.structure = model.structure
        self._states: list[Sequence[int]] = [model.initial_state]
        self._actions: list[Sequence[int]] = []
        self._rewards: list[Sequence[float]] = []

    episodes = property(lambda self: self.learner.episodes)
    planner_calls = property(lambda self: self.learner.planner_calls)
    unconverged_plans = property(lambda self: self.learner.unconverged_plans)

    def act(self, state: Sequence[int]) -> tuple[int, ...]:
        return self.learner.act(state)

    def observe(
        self,
        state: Sequence[int],
        action: Sequence[int],
        rewards: Sequence[float],
        next_state: Sequence[int],
    ) -> None:
        self.learner.observe(state, action, rewards, next_state)
        self._states.append(next_state)
        self._actions.append(action)
        self._rewards.append(rewards)

    def recording(self) -> Recording:
        structure = self.structure
        states = np.array(self._states, dtype=_smallest(structure.state_sizes))
        actions = np.array(self._actions, dtype=_smallest(structure.action_sizes))
        steps = len(actions)
        rewards = np.array(self._rewards, dtype=np.float64).reshape(steps, structure.l)
        evenly = np.linspace(0, steps, FRAMES + 1).round().astype(np.int64)
        times = np.union1d(evenly, np.array(checkpoints(steps), dtype=np.int64))
        visited, uncertainty = knowledge(structure, states[:-1], actions, times)
        return Recording(states, actions, rewards, times, visited, uncertainty)


def knowledge(
    structure: Structure, states: NDArray[Any], actions: NDArray[Any], times: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """[K, m] each: rows of factor i visited by time t, and the mean of 1/sqrt(max(1, visits))."""
    visited = np.zeros((len(times), structure.m), dtype=np.int64)
    uncertainty = np.ones((len(times), structure.m))
    steps = np.concatenate([states, actions], axis=1).astype(np.int64)
    for i, scope in enumerate(structure.transition_scopes):
        weights = np.array(strides(structure.scope_sizes(scope)), dtype=np.int64)
        rows = steps[:, list(scope)] @ weights
        visits = np.zeros(structure.transition_rows[i], dtype=np.int64)
        before = 0
        for frame, t in enumerate(times.tolist()):
            visits += np.bincount(rows[before:t], minlength=len(visits))
            before = t
            visited[frame, i] = np.count_nonzero(visits)
            uncertainty[frame, i] = (1.0 / np.sqrt(np.maximum(visits, 1))).mean()
    return visited, uncertainty


def _smallest(sizes: Sequence[int]) -> np.dtype[Any]:
    """The smallest unsigned type that holds every value of these variables."""
    return np.min_scalar_type(max(sizes) - 1)
