"""One run: what a worker does with a task, and what it hands back.

A `MadeRun` has only what the store keeps. A run that fails hands back its error; only the death
of the worker itself is seen from outside. A run does not depend on who makes it, nor on the runs
that the same worker made before: what is kept between them is the reference of a model (its
optimal gain and gaps), which is a function of the model.
"""

from __future__ import annotations

import os
import platform
import time
import traceback
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmdp import __version__
from fmdp.errors import FmdpError
from fmdp.experiments import RESULTS_VERSION
from fmdp.experiments.executors import let_go
from fmdp.experiments.measures import checked, curves_of, measured
from fmdp.experiments.spec import PlannedRun, resolved_learner
from fmdp.experiments.store import Curve, Recording, StoredRun
from fmdp.learning.learner import Learner
from fmdp.model import FactoredMDP, Structure
from fmdp.model.spaces import strides
from fmdp.simulation.loop import checkpoints, simulate
from fmdp.simulation.regret import Reference, reference_for
from fmdp.simulation.run import Run
from fmdp.simulation.trajectory import Trajectory

FRAMES = 200
"""Evenly spaced frames of a recording, beside the checkpoints of the curve."""
LONGEST_ERROR = 100_000
"""Characters of an error that the store keeps."""


@dataclass(frozen=True, eq=False)
class Task:
    """A run as it travels to a worker."""

    key: str
    problem: str
    model: FactoredMDP
    learner: Learner
    resolved: dict[str, Any]
    seed: int
    steps: int
    record: bool
    results_version: int = RESULTS_VERSION
    fmdp_version: str = __version__

    @classmethod
    def of(cls, run: PlannedRun) -> Task:
        cell = run.cell
        return cls(
            key=run.key,
            problem=cell.problem.id,
            model=cell.problem.model,
            learner=cell.learner,
            resolved=dict(cell.resolved),
            seed=run.seed,
            steps=cell.steps,
            record=run.record,
        )


@dataclass(frozen=True, eq=False)
class MadeRun:
    """What the store gets of a run, done or failed."""

    run: StoredRun
    curve: Curve | None = None
    recording: Recording | None = None


def work(task: Task) -> MadeRun:
    """Make the run. Never raises for what goes wrong in it, an interruption apart."""
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
    # Whatever an error says can be stored: half characters are spelled out, and its end, where
    # it says what happened, is kept.
    told = error.encode("utf-8", "backslashreplace").decode("utf-8").replace("\0", "\\0")
    if len(told) > LONGEST_ERROR:
        told = f"... {told[-LONGEST_ERROR:]}"
    return MadeRun(_row(task, status="failed", seconds=seconds, error=told))


def _make(task: Task) -> MadeRun:
    reference = _reference(task.model)
    agent = task.learner.start(task.model)
    found = resolved_learner(agent)
    if any(task.resolved.get(name) != value for name, value in found.items()):
        raise FmdpError(f"the worker resolves the learner to {found}, the sweep to {task.resolved}")
    run = simulate(
        task.model,
        agent,
        task.steps,
        task.seed,
        record=task.record,
        reference=reference,
        progress=_end_if_let_go,
    )
    if run.interrupted:
        raise KeyboardInterrupt  # it ends the sweep; the run has neither failed nor been done
    # Checked here as well as in the store: it is this run that fails, with its own error.
    measures = checked(measured(run), done=True)
    row = _row(task, status="done", seconds=run.seconds, measures=measures)
    kept = None if run.trajectory is None else recording_of(run.trajectory)
    return MadeRun(row, curve_of(run), kept)


def _end_if_let_go(news: object) -> None:
    if let_go():
        raise KeyboardInterrupt  # the simulation takes it as Ctrl-C


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


def _row(task: Task, **results: Any) -> StoredRun:
    resolved = task.resolved
    return StoredRun(
        key=task.key,
        model=resolved["model"],
        problem=task.problem,
        learner=resolved["learner"],
        role=task.learner.role,  # type: ignore[arg-type]
        parameters=resolved["parameters"],
        planner=resolved["planner"],
        planner_settings=resolved["planner_settings"],
        seed=task.seed,
        steps=task.steps,
        fmdp_version=__version__,
        results_version=task.results_version,
        machine=machine(),
        finished=now(),
        code=resolved.get("code", {}),
        **results,
    )


@lru_cache(maxsize=8)
def _reference(model: FactoredMDP) -> Reference:
    return reference_for(model)


@cache
def machine() -> str:
    """What a time depends on, without naming the host: reports are made to be shown."""
    from importlib.metadata import version

    cores = os.cpu_count()
    return (
        f"{platform.system()} {platform.machine()}, {cores} cores, "
        f"Python {platform.python_version()}, NumPy {np.__version__}, Numba {version('numba')}"
    )


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def recording_of(trajectory: Trajectory) -> Recording:
    """The trajectory with frames of what was known by then."""
    steps = len(trajectory)
    evenly = np.linspace(0, steps, FRAMES + 1).round().astype(np.int64)
    times = np.union1d(evenly, np.array(checkpoints(steps), dtype=np.int64))
    states, actions = trajectory.states, trajectory.actions
    visited, uncertainty = knowledge(trajectory.structure, states[:-1], actions, times)
    return Recording(states, actions, trajectory.rewards, times, visited, uncertainty)


def knowledge(
    structure: Structure, states: NDArray[Any], actions: NDArray[Any], times: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """[K, m] each: rows of factor i visited by time t, and the mean of 1/sqrt(max(1, visits)).

    Rows that are known to be alike are one row, visited wherever one of them is.
    """
    visited = np.zeros((len(times), structure.m), dtype=np.int64)
    uncertainty = np.ones((len(times), structure.m))
    steps = np.concatenate([states, actions], axis=1).astype(np.int64)
    classes = [structure.transition_classes_of(i) for i in range(structure.m)]
    told = [np.unique(own) for own in classes]
    found = []
    for own, scope in zip(classes, structure.transition_scopes, strict=True):
        weights = np.array(strides(structure.scope_sizes(scope)), dtype=np.int64)
        found.append(own[steps[:, list(scope)] @ weights])
    visits = np.zeros(structure.n_transition_classes, dtype=np.int64)
    before = 0
    for frame, t in enumerate(times.tolist()):
        for seen in found:
            visits += np.bincount(seen[before:t], minlength=len(visits))
        before = t
        for i, own in enumerate(told):
            visited[frame, i] = np.count_nonzero(visits[own])
            uncertainty[frame, i] = (1.0 / np.sqrt(np.maximum(visits[own], 1))).mean()
    return visited, uncertainty
