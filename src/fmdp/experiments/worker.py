"""The work of a worker: make the runs of a batch of tasks, and return them for the store.

A failed run returns its error; only the death of a worker is noticed from outside. A run depends
neither on the worker nor on earlier runs of the same worker. Only the reference of a model (optimal
gain and gaps), a function of the model, is cached between runs.
"""

from __future__ import annotations

import os
import platform
import time
import traceback
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmdp import __version__
from fmdp.errors import FmdpError
from fmdp.experiments import RESULTS_VERSION
from fmdp.experiments.executors import is_cancelled
from fmdp.experiments.measures import PRIOR, Value, checked, curves_of, measured
from fmdp.experiments.spec import PlannedRun, resolved_learner
from fmdp.experiments.store import Curve, Recording, StoredRun, canonical_json
from fmdp.learning.learner import Learner
from fmdp.model import FactoredMDP, Structure
from fmdp.model.expansion import with_derived_values
from fmdp.model.spaces import strides
from fmdp.simulation.loop import checkpoints, simulate
from fmdp.simulation.regret import Reference, reference_for
from fmdp.simulation.run import Run
from fmdp.simulation.trajectory import Trajectory

FRAMES = 200
"""Evenly spaced frames of a recording, in addition to the checkpoints of the curve."""
LONGEST_ERROR = 100_000
"""Most characters of an error that the store keeps."""


@dataclass(frozen=True, eq=False)
class Task:
    """A run as it is sent to a worker."""

    key: str
    problem: str
    model: FactoredMDP
    learner: Learner
    resolved: dict[str, Any]
    seed: int
    steps: int
    record: bool
    checkpoints: tuple[int, ...] = ()
    results_version: int = RESULTS_VERSION
    fmdp_version: str = __version__

    @classmethod
    def of(cls, run: PlannedRun) -> Task:
        cell = run.cell
        return cls(
            key=run.key,
            problem=cell.problem.id,
            model=run.model,
            learner=cell.learner,
            resolved=dict(run.resolved),
            seed=run.seed,
            steps=cell.steps,
            record=run.record,
            checkpoints=cell.checkpoints,
        )


@dataclass(frozen=True, eq=False)
class MadeRun:
    """A run for the store, done or failed."""

    run: StoredRun
    curve: Curve | None = None
    recording: Recording | None = None
    seconds: float = 0.0
    """Time that the worker took for all of it; `run.seconds` is that of the simulation."""


@dataclass(frozen=True, eq=False)
class Batch:
    """Runs that are sent to a worker together."""

    tasks: tuple[Task, ...]
    seconds: float
    """Time after which no further run is begun."""


def run_batch(batch: Batch) -> list[MadeRun]:
    """Make the runs in order: the first, and further ones while there is time."""
    started = time.perf_counter()
    made: list[MadeRun] = []
    for task in batch.tasks:
        before = time.perf_counter()
        if made and before - started >= batch.seconds:
            break
        made.append(replace(run_task(task), seconds=time.perf_counter() - before))
    return made


def run_task(task: Task) -> MadeRun:
    """Make the run. Errors are returned as a failed run; only an interruption is raised."""
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
    # Escape what the store cannot hold, and keep the end, which states the cause.
    text = error.encode("utf-8", "backslashreplace").decode("utf-8").replace("\0", "\\0")
    if len(text) > LONGEST_ERROR:
        text = f"... {text[-LONGEST_ERROR:]}"
    return MadeRun(_row(task, status="failed", seconds=seconds, error=text))


def _make(task: Task) -> MadeRun:
    reference = _reference(task.model)
    agent = task.learner.start(task.model)
    resolved = resolved_learner(agent)
    if any(task.resolved.get(name) != value for name, value in resolved.items()):
        raise FmdpError(
            f"the worker resolves the learner to {resolved}, the sweep to {task.resolved}"
        )
    run = simulate(
        task.model,
        agent,
        task.steps,
        task.seed,
        record=task.record,
        checkpoints=(*checkpoints(task.steps), *task.checkpoints),
        reference=reference,
        progress=_stop_if_cancelled,
    )
    if run.interrupted:
        raise KeyboardInterrupt  # it ends the sweep; the run is neither done nor failed
    # Checked here as well as in the store, so that this run fails and not the sweep.
    measures = checked(measured(run) | _about_prior(task), done=True)
    row = _row(task, status="done", seconds=run.seconds, measures=measures)
    recording = None if run.trajectory is None else recording_of(run.trajectory)
    return MadeRun(row, curve_of(run), recording)


def _about_prior(task: Task) -> dict[str, Value]:
    prior = task.resolved.get("prior")
    return {} if prior is None else {PRIOR.name: canonical_json(prior)}


def _stop_if_cancelled(progress: object) -> None:
    if is_cancelled():
        raise KeyboardInterrupt  # the simulation handles it like Ctrl-C


def curve_of(run: Run) -> Curve:
    """Return all curves of a run, which must share their checkpoints."""
    curves = curves_of(run)
    times = [t for t, _ in run.curve]
    for name, points in curves.items():
        if [t for t, _ in points] != times:
            raise FmdpError(f"the curve of '{name}' has checkpoints of its own")
    return Curve(
        np.array(times, dtype=np.int64),
        {name: np.array([v for _, v in p], dtype=np.float64) for name, p in curves.items()},
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
    """Return what times depend on; without the host name, since reports are published."""
    from importlib.metadata import version

    cores = os.cpu_count()
    return (
        f"{platform.system()} {platform.machine()}, {cores} cores, "
        f"Python {platform.python_version()}, NumPy {np.__version__}, Numba {version('numba')}"
    )


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def recording_of(trajectory: Trajectory) -> Recording:
    """Return the trajectory with frames of the knowledge at each time."""
    steps = len(trajectory)
    evenly = np.linspace(0, steps, FRAMES + 1).round().astype(np.int64)
    times = np.union1d(evenly, np.array(checkpoints(steps), dtype=np.int64))
    states, actions = trajectory.states, trajectory.actions
    visited, uncertainty = knowledge(trajectory.structure, states[:-1], actions, times)
    return Recording(states, actions, trajectory.rewards, times, visited, uncertainty)


def knowledge(
    structure: Structure, states: NDArray[Any], actions: NDArray[Any], times: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return [K, m] visited rows of factor i by time t, and [K, m] means of 1/sqrt(max(1, visits)).

    Rows that are known to be alike count as one. Rows of drawn derived variables are not recorded,
    so none of them counts as visited.
    """
    visited = np.zeros((len(times), structure.m), dtype=np.int64)
    uncertainty = np.ones((len(times), structure.m))
    joint = np.concatenate([states, actions], axis=1).astype(np.int64)
    steps = with_derived_values(structure, joint)
    classes = [structure.transition_classes_of(i) for i in range(structure.m)]
    distinct = [np.unique(of_factor) for of_factor in classes]
    visited_classes = []
    for of_factor, scope in zip(classes, structure.transition_scopes, strict=True):
        weights = np.array(strides(structure.scope_sizes(scope)), dtype=np.int64)
        values = steps[:, list(scope)]
        known = (values >= 0).all()
        visited_classes.append(of_factor[values @ weights] if known else of_factor[:0])
    visits = np.zeros(structure.n_transition_classes, dtype=np.int64)
    before = 0
    for frame, t in enumerate(times.tolist()):
        for seen in visited_classes:
            visits += np.bincount(seen[before:t], minlength=len(visits))
        before = t
        for i, rows in enumerate(distinct):
            visited[frame, i] = np.count_nonzero(visits[rows])
            uncertainty[frame, i] = (1.0 / np.sqrt(np.maximum(visits[rows], 1))).mean()
    return visited, uncertainty
