"""The interaction loop of a learner and an environment, and the record of its regret.

`simulate(model, learner, steps, seed)` spawns SeedSequence(seed) into a stream for the environment
and one for the learner (unless its agent has its own). If an agent can give its actions until its
next decision, compiled code plays them; else the loop is act, step, observe. Both give the same
result to the last bit. A policy, a function from states to actions or the name of a learner may
replace the learner.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from fmdp._base.interrupts import Held, held
from fmdp._base.parameters import Flag, Integer, quoted
from fmdp._base.progress import line_of_run, reporting
from fmdp.errors import InvalidParameter
from fmdp.learning.agent import Agent
from fmdp.learning.default import Default
from fmdp.learning.follow import learner_of
from fmdp.learning.learner import Learner
from fmdp.model import FactoredMDP, Structure
from fmdp.model.factored import check_model
from fmdp.model.io.files import path_of
from fmdp.planning.plan import Planner
from fmdp.planning.policies.playing import StepBatch
from fmdp.planning.policies.policy import Policy
from fmdp.planning.policies.randomised import RandomisedPolicy
from fmdp.planning.policies.rule import as_action
from fmdp.simulation.environment import Environment
from fmdp.simulation.regret import Reference, long_reference, reference_for
from fmdp.simulation.run import Run
from fmdp.simulation.trajectory import Recorder

POINTS_PER_DECADE = 20
"""Checkpoints of a regret curve per factor of ten in steps."""
_SECONDS_BETWEEN_REPORTS = 0.1
"""Interval between two calls of a progress callback."""

Progress = Callable[[Mapping[str, Any]], None]
"""A callback that receives step, steps, episode, regret and seconds at intervals, and before the
first step the reports of the planner of the reference."""

STEPS = Integer("steps", 10_000, "steps to take", low=1, high=2**53)
SEED = Integer("seed", 0, "seed of environment and learner", low=0)
_COUNTERS = ("episodes", "planner_calls", "unconverged_plans")
_FEWEST_WATCHED = 32
"""Steps that `watch_steps` is shown at once, at first and after a decision that it ended."""
_MARK = Integer("checkpoints", 1, "", low=1)
_REGRET = Flag("regret", True, "whether regret is computed")
_RECORD = Flag("record", False, "whether every step is kept")


class Interacting(Protocol):
    """The methods that a third-party agent without a learner needs."""

    def act(self, state: tuple[int, ...]) -> Sequence[int]: ...

    def observe(
        self,
        state: tuple[int, ...],
        action: Sequence[int],
        rewards: tuple[float, ...],
        next_state: tuple[int, ...],
    ) -> None: ...


Player = (
    Learner
    | Agent
    | Interacting
    | Policy
    | RandomisedPolicy
    | Callable[[tuple[int, ...]], Any]
    | str
    | os.PathLike[str]
)
"""Everything that can be simulated."""


def checkpoints(steps: int, points_per_decade: int = POINTS_PER_DECADE) -> tuple[int, ...]:
    """Return the distinct log-spaced steps round(10^(j / points)) below `steps`, and `steps`."""
    marks = {steps}
    j = 0
    while (mark := round(10 ** (j / points_per_decade))) < steps:
        marks.add(mark)
        j += 1
    return tuple(sorted(marks))


def streams(seed: int) -> tuple[np.random.Generator, np.random.Generator]:
    """Return the generators of the environment and of the learner.

    The bit generator is named because NumPy's default may change.
    """
    children = np.random.SeedSequence(SEED.check(seed, "simulate")).spawn(2)
    environment, learner = (np.random.Generator(np.random.PCG64(child)) for child in children)
    return environment, learner


class Simulation:
    """A run in progress: call `run(steps)` repeatedly, and `result()` at any time.

    The arguments are those of `simulate`, except `no_regret`: the reason why no reference is to be
    computed, None to compute it.
    """

    def __init__(
        self,
        model: FactoredMDP,
        learner: Player,
        seed: int = 0,
        *,
        reference: Reference | None = None,
        record: bool | str | os.PathLike[str] = False,
        checkpoints: Iterable[int] | None = None,
        no_regret: str | None = None,
    ) -> None:
        check_model(model, "simulate")
        of_environment, of_learner = streams(seed)
        self.model = model
        self.seed = seed
        self.agent: Agent | Interacting = agent_of(learner, model)
        if reference is not None and not isinstance(reference, Reference):
            raise InvalidParameter(
                f"the reference of simulate must be what reference_for(model) gives, or None; "
                f"got {quoted(reference)}"
            )
        self._marks = None if checkpoints is None else _checked_marks(checkpoints)
        self._no_regret = no_regret if reference is None else None
        if reference is None and no_regret is None:
            reference = reference_for(model)
        self.reference = reference
        self._recorder = _recorder(model, record)
        self.environment = Environment(
            model,
            of_environment,
            gaps=None if reference is None else reference.gaps,
            recorder=self._recorder,
        )
        if isinstance(self.agent, Agent) and self.agent.generator is None:
            self.agent.generator = of_learner
        self._before = {name: getattr(self.agent, name, None) for name in _COUNTERS}
        self.seconds = 0.0
        self.cpu_seconds = 0.0
        self.interrupted = False
        self._watched_at_once = _FEWEST_WATCHED
        self._curve: list[tuple[int, float]] = []
        self._gap_curve: list[tuple[int, float]] = []

    @property
    def regret(self) -> float | None:
        """Realised regret so far; None without a reference."""
        environment = self.environment
        if self.reference is None:
            return None
        return environment.steps * self.reference.gain - environment.total_reward

    def run(self, steps: int, *, progress: Progress | None = None) -> None:
        """Take that many more steps; Ctrl-C ends the run earlier (`interrupted`) without loss."""
        steps = STEPS.check(steps, "simulate")
        if self._recorder is not None:
            self._recorder.reserve(steps)
        self.interrupted = False
        started, started_cpu = time.perf_counter(), time.process_time()
        before, before_cpu = self.seconds, self.cpu_seconds
        first = self.environment.steps
        due = 0.0
        try:
            with held(shut=False) as signals:
                for mark in self._marks_between(first, first + steps):
                    while self.environment.steps < mark:
                        self._advance(mark - self.environment.steps, signals)
                        self.seconds = before + time.perf_counter() - started
                        if progress is not None and self.seconds >= due:
                            due = self.seconds + _SECONDS_BETWEEN_REPORTS
                            progress(self._progress(first + steps))
                    signals.shut = True
                    self._mark()
                    signals.let_through()
        except KeyboardInterrupt:
            self.interrupted = True
        finally:
            self.seconds = before + time.perf_counter() - started
            self.cpu_seconds = before_cpu + time.process_time() - started_cpu

    def _marks_between(self, first: int, last: int) -> list[int]:
        chosen = checkpoints(last) if self._marks is None else (*self._marks, last)
        return sorted({mark for mark in chosen if first < mark <= last})

    def _advance(self, steps: int, signals: Held) -> None:
        """Take at least one and at most `steps` steps. Signals may interrupt decisions, policies
        and user code, but not the drawing, playing and counting of a step. A third-party agent may
        lose its last observation."""
        agent, environment = self.agent, self.environment
        if isinstance(agent, Agent):
            agent.decide()
            signals.shut = True
            most = min(steps, environment.ready())
            if agent.watches_steps:
                most = min(most, self._watched_at_once)
            stretch = agent.stretch(most, previewed=True)
            if stretch is not None:
                before, batch, ended = environment.steps, stretch, False
                if agent.watches_steps:
                    batch, ended = self._watched(agent, stretch)
                try:
                    environment.play(batch, signals)
                finally:  # a policy may be interrupted while it chooses an action
                    signals.shut = True
                    agent.played(stretch, environment.steps - before)
                if ended:
                    agent.end_decision()
                signals.let_through()
                return
            signals.let_through()
        state = environment.state
        action = as_action(agent.act(state), self.model.structure)
        signals.shut = True
        rewards, next_state = environment.step(action)
        signals.shut = isinstance(agent, Agent)
        agent.observe(state, action, rewards, next_state)
        signals.let_through()

    def _watched(self, agent: Agent, stretch: StepBatch) -> tuple[StepBatch, bool]:
        """Show the steps of a batch to the learner; return those up to the end of its decision, and
        whether it ended the decision. Batches grow while it does not."""
        steps = self.environment.preview(stretch)
        kept, ended = agent.watch_steps(*steps)
        self._watched_at_once = _FEWEST_WATCHED if ended else 2 * self._watched_at_once
        return replace(stretch, steps=kept), ended

    def _mark(self) -> None:
        regret = self.regret
        if regret is None:
            return
        self._curve.append((self.environment.steps, regret))
        self._gap_curve.append((self.environment.steps, self.environment.total_gap))

    def _progress(self, steps: int) -> Mapping[str, Any]:
        return {
            "step": self.environment.steps,
            "steps": steps,
            "episode": getattr(self.agent, "episodes", None),
            "regret": self.regret,
            "seconds": self.seconds,
        }

    def _counted(self, name: str) -> int | None:
        """Return a counter of the agent since the beginning of this run."""
        now, before = getattr(self.agent, name, None), self._before[name]
        return None if now is None else now - (before or 0)

    def result(self) -> Run:
        """Return the regret and the other measurements so far."""
        environment, agent = self.environment, self.agent
        if environment.steps and (not self._curve or self._curve[-1][0] < environment.steps):
            self._mark()
        reference = self.reference
        with_gaps = reference is not None and reference.gaps is not None
        recorder = self._recorder
        return Run(
            problem=self.model.name or None,
            learner=repr(agent.learner) if isinstance(agent, Agent) else repr(agent),
            seed=self.seed,
            regret=self.regret,
            gap_regret=environment.total_gap if with_gaps else None,
            gain=None if reference is None else reference.gain,
            gain_kind=None if reference is None else reference.gain_kind,
            steps=environment.steps,
            **{name: self._counted(name) for name in _COUNTERS},
            curve=tuple(self._curve),
            gap_curve=tuple(self._gap_curve) if with_gaps else None,
            total_reward=environment.total_reward,
            seconds=self.seconds,
            cpu_seconds=self.cpu_seconds,
            interrupted=self.interrupted,
            no_regret_reason=self._no_regret,
            trajectory=None if recorder is None else recorder.trajectory(environment.state),
            agent=agent,
        )


def simulate(
    model: FactoredMDP,
    learner: Player,
    steps: int,
    seed: int = 0,
    *,
    record: bool | str | os.PathLike[str] = False,
    checkpoints: Iterable[int] | None = None,
    reference: Reference | None = None,
    regret: bool | None = None,
    progress: bool | Progress | None = None,
) -> Run:
    """Run a learner for `steps` steps from the initial state and measure its regret.

    Ctrl-C returns the run so far, with `run.interrupted`.

    Parameters
    ----------
    model
        The model to act in.
    learner
        A learner such as fmdp.PSRL(c=0.1), or its text: "psrl", "psrl,c=0.1", "module:Class". Or a
        baseline that does not learn: a policy, the path of its file, or a function state -> action.
        Or an agent, which continues from its current state, or any object with `act` and `observe`.
    steps
        Number of steps.
    seed
        Seed of environment and learner; learners with the same seed meet the same random numbers.
    record
        True keeps every step in `run.trajectory`. The path of a new or empty folder keeps it there,
        in three files that `numpy.load` reads, with memory for a few steps only.
    checkpoints
        Steps at which the regret is noted, from 1 to `steps`; 20 per decade by default.
    reference
        What regret is measured against, from `reference_for(model)`; computed if None.
    regret
        Whether the reference is computed if none is given. False leaves regret, gain and curves
        out. None leaves them out if the reference is predicted to take longer than the run
        (`run.no_regret_reason`). Nothing else depends on it.
    progress
        True shows a bar; a function receives the measurements so far; None is silent.

    Returns
    -------
    Run
        The regret and other measurements; those so far if it was interrupted.

    Raises
    ------
    InvalidParameter
        If an argument is invalid, or not even a bound on the optimal gain was found.
    FileProblem
        If a folder cannot be recorded into.
    TooLarge
        If a recorded run would not fit into half of the free memory, or onto the disk.
    """
    check_model(model, "simulate")
    n_steps = STEPS.check(steps, "simulate")
    SEED.check(seed, "simulate")
    marks = None if checkpoints is None else _checked_marks(checkpoints, n_steps)
    agent = agent_of(learner, model)
    what = f"{_named(agent)} on {model.name or 'the model'}"
    with reporting(progress, what, "simulate", line_of_run) as report:
        against, no_regret = reference, None
        if reference is None:
            no_regret = no_regret_reason(model, agent, n_steps, regret)
            against = None if no_regret else reference_for(model, progress=report)
        simulation = Simulation(
            model,
            agent,
            seed,
            reference=against,
            record=record,
            checkpoints=marks,
            no_regret=no_regret,
        )
        simulation.run(n_steps, progress=report)
    return simulation.result()


def learn(
    model: FactoredMDP,
    steps: int = 10_000,
    seed: int = 0,
    *,
    planner: Planner | str | None = None,
    record: bool | str | os.PathLike[str] = False,
    checkpoints: Iterable[int] | None = None,
    reference: Reference | None = None,
    regret: bool | None = None,
    progress: bool | Progress | None = None,
) -> Run:
    """Run the default learner, which needs no tuning: `simulate` with `fmdp.Default()`.

    Parameters
    ----------
    model
        The model to act in.
    steps
        Number of steps.
    seed
        Seed of environment and learner.
    planner
        The planner, such as fmdp.ALP(basis="pairs") or "alp"; by default exact if that fits, else
        approximate.
    record, checkpoints, reference, regret, progress
        As for `simulate`.

    Returns
    -------
    Run
        The regret and other measurements; those so far if it was interrupted.

    Raises
    ------
    InvalidParameter
        If an argument is invalid.
    """
    return simulate(
        model,
        Default(planner=planner),
        steps,
        seed,
        record=record,
        checkpoints=checkpoints,
        reference=reference,
        regret=regret,
        progress=progress,
    )


def no_regret_reason(
    model: FactoredMDP, agent: object, steps: int, regret: bool | None
) -> str | None:
    """Return why regret is not computed: it is not wanted, or would take too long; else None."""
    if regret is None:
        return long_reference(model, agent, steps)
    return None if _REGRET.check(regret, "simulate") else "not asked for"


def _recorder(model: FactoredMDP, record: bool | str | os.PathLike[str]) -> Recorder | None:
    if isinstance(record, str | os.PathLike):
        return Recorder(model.structure, path_of(record, "a recording"))
    return Recorder(model.structure) if _RECORD.check(record, "simulate") else None


def _checked_marks(given: Iterable[int], last: int | None = None) -> tuple[int, ...]:
    try:
        marks = tuple(_MARK.check(mark, "simulate") for mark in given)
    except TypeError:
        marks = ()
    if not marks or (last is not None and max(marks) > last):
        upto = "" if last is None else f" from 1 to {last}"
        raise InvalidParameter(
            f"the 'checkpoints' parameter of simulate must be steps{upto}; got {quoted(given)}"
        )
    return marks


def _named(agent: Agent | Interacting) -> str:
    return agent.learner.name if isinstance(agent, Agent) else type(agent).__name__


def agent_of(given: object, model: FactoredMDP) -> Agent | Interacting:
    """Return the agent of a learner or its text, an agent, a policy or a function."""
    learner = learner_of(given, "simulate")
    if learner is not None:
        return learner.start(model)
    known = getattr(given, "structure", None)
    if isinstance(known, Structure) and known != model.structure:
        raise InvalidParameter("the agent's structure is not the model's; they must be equal")
    agent: Agent | Interacting = given  # type: ignore[assignment]
    return agent
