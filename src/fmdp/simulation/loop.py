"""The interaction loop: a learner in an environment, and the record of what it cost.

`simulate(model, learner, steps, seed)` spawns SeedSequence(seed) into a stream for the environment
and one for the learner (unless its agent came with its own). Where an agent can say what it will do
until its next decision, compiled code does it; else the loop is act, step, observe. The result is
the same to the last bit. A policy, a rule of one's own or the name of a learner may stand in the
place of a learner.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
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
from fmdp.planning.policies.policy import Policy
from fmdp.planning.policies.randomised import RandomisedPolicy
from fmdp.planning.policies.rule import as_action
from fmdp.simulation.environment import Environment
from fmdp.simulation.regret import Reference, reference_for
from fmdp.simulation.run import Run
from fmdp.simulation.trajectory import Recorder

POINTS_A_DECADE = 20
_SECONDS_BETWEEN_REPORTS = 0.1

Progress = Callable[[Mapping[str, Any]], None]
"""Called now and then with step, steps, episode, regret and seconds; before the first step with
what the planner of the reference reports."""

STEPS = Integer("steps", 10_000, "steps to take", low=1, high=2**53)
SEED = Integer("seed", 0, "seed of environment and learner", low=0)
_COUNTERS = ("episodes", "planner_calls", "unconverged_plans")
_MARK = Integer("checkpoints", 1, "", low=1)
_RECORD = Flag("record", False, "whether every step is kept")


class Interacting(Protocol):
    """All that an agent of one's own, without a learner, needs to have."""

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
"""Who may be simulated."""


def checkpoints(steps: int, points_a_decade: int = POINTS_A_DECADE) -> tuple[int, ...]:
    """Log-spaced steps up to and with the last: round(10^(j / points)), each once."""
    marks = {steps}
    j = 0
    while (mark := round(10 ** (j / points_a_decade))) < steps:
        marks.add(mark)
        j += 1
    return tuple(sorted(marks))


def streams(seed: int) -> tuple[np.random.Generator, np.random.Generator]:
    """The environment's generator and the learner's. The bit generator is named, because NumPy's
    default may change."""
    children = np.random.SeedSequence(SEED.check(seed, "simulate")).spawn(2)
    environment, learner = (np.random.Generator(np.random.PCG64(child)) for child in children)
    return environment, learner


class Simulation:
    """A run under way: `run(steps)` as often as one likes, `result()` at any time.

    Parameters
    ----------
    model
        What is acted in.
    learner
        Who acts, as in `simulate`.
    seed
        Of environment and learner.
    reference
        What regret is measured against; made here if it is not handed in.
    record
        Whether every step is kept, in memory; or the path of a folder to keep it in.
    checkpoints
        The steps at which the regret is noted; log-spaced by default. The last one always is.
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
        self.reference = reference if reference is not None else reference_for(model)
        self._recorder = _recorder(model, record)
        self.environment = Environment(
            model, of_environment, gaps=self.reference.gaps, recorder=self._recorder
        )
        if isinstance(self.agent, Agent) and self.agent.generator is None:
            self.agent.generator = of_learner
        self._before = {name: getattr(self.agent, name, None) for name in _COUNTERS}
        self.seconds = 0.0
        self.cpu_seconds = 0.0
        self.interrupted = False
        self._curve: list[tuple[int, float]] = []
        self._gap_curve: list[tuple[int, float]] = []

    @property
    def regret(self) -> float:
        """Realised regret so far."""
        environment = self.environment
        return environment.steps * self.reference.gain - environment.total_reward

    def run(self, steps: int, *, progress: Progress | None = None) -> None:
        """Take that many more steps; Ctrl-C ends it earlier (`interrupted`), and nothing is lost.

        Parameters
        ----------
        steps
            How many.
        progress
            Called now and then with step, steps, episode, regret and seconds.
        """
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
                            progress(self._news(first + steps))
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
        """Some steps, at least one and at most so many.

        Decisions, policies and rules can be interrupted; between what is drawn, done and counted no
        signal comes. To an agent that is not fmdp's own a last observation can be lost.
        """
        agent, environment = self.agent, self.environment
        own = isinstance(agent, Agent)
        if isinstance(agent, Agent):
            agent.decide()
            signals.shut = True
            stretch = agent.stretch(min(steps, environment.ready()))
            if stretch is not None:
                before = environment.steps
                try:
                    environment.play(stretch, signals)
                finally:  # a policy that is asked for an action may be interrupted
                    signals.shut = True
                    agent.played(stretch, environment.steps - before)
                signals.let_through()
                return
            signals.let_through()
        state = environment.state
        action = as_action(agent.act(state), self.model.structure)
        signals.shut = True
        rewards, next_state = environment.step(action)
        signals.shut = own
        agent.observe(state, action, rewards, next_state)
        signals.let_through()

    def _mark(self) -> None:
        self._curve.append((self.environment.steps, self.regret))
        self._gap_curve.append((self.environment.steps, self.environment.total_gap))

    def _news(self, steps: int) -> Mapping[str, Any]:
        return {
            "step": self.environment.steps,
            "steps": steps,
            "episode": getattr(self.agent, "episodes", None),
            "regret": self.regret,
            "seconds": self.seconds,
        }

    def _counted(self, name: str) -> int | None:
        """Since the beginning of this run: an agent may have been at work before."""
        now, before = getattr(self.agent, name, None), self._before[name]
        return None if now is None else now - (before or 0)

    def result(self) -> Run:
        """What the steps so far have cost."""
        environment, agent = self.environment, self.agent
        if environment.steps and (not self._curve or self._curve[-1][0] < environment.steps):
            self._mark()
        with_gaps = self.reference.gaps is not None
        recorder = self._recorder
        return Run(
            problem=self.model.name or None,
            learner=repr(agent.learner) if isinstance(agent, Agent) else repr(agent),
            seed=self.seed,
            regret=self.regret,
            gap_regret=environment.total_gap if with_gaps else None,
            gain=self.reference.gain,
            gain_kind=self.reference.gain_kind,
            steps=environment.steps,
            **{name: self._counted(name) for name in _COUNTERS},
            curve=tuple(self._curve),
            gap_curve=tuple(self._gap_curve) if with_gaps else None,
            total_reward=environment.total_reward,
            seconds=self.seconds,
            cpu_seconds=self.cpu_seconds,
            interrupted=self.interrupted,
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
    progress: bool | Progress | None = None,
) -> Run:
    """Run a learner for `steps` steps from the initial state and say what it cost.

    Ctrl-C gives the run so far, with `run.interrupted`.

    Parameters
    ----------
    model
        What is acted in.
    learner
        A learner such as fmdp.PSRL(c=0.1), or its text: "psrl", "psrl,c=0.1", "module:Class". Or a
        baseline that learns nothing: a policy, the path of its file, or a function state -> action.
        Or an agent that goes on from where it stands, or any object with `act` and `observe`.
    steps
        How many steps to take.
    seed
        Of environment and learner; the same seed gives all learners the same luck.
    record
        Whether every step is kept, in `run.trajectory`. The path of a folder, new or empty, keeps
        it there, in three files that `numpy.load` reads, with memory for a few steps alone.
    checkpoints
        The steps at which the regret is noted, from 1 to `steps`; 20 a decade by default.
    reference
        What regret is measured against, as `reference_for(model)` gives it; made here if None.
    progress
        True shows a bar; a function is called with what is known so far; None for silence.

    Returns
    -------
    Run
        The regret and what else was measured, so far where it was interrupted.

    Raises
    ------
    InvalidParameter
        Where an argument is not as above, or not even a bound on the optimal gain was found.
    FileProblem
        Where a folder cannot be recorded into.
    TooLarge
        Where a recorded run would not fit into half of the free memory, or onto the disk.
    """
    check_model(model, "simulate")
    n_steps = STEPS.check(steps, "simulate")
    SEED.check(seed, "simulate")
    marks = None if checkpoints is None else _checked_marks(checkpoints, n_steps)
    agent = agent_of(learner, model)
    what = f"{_named(agent)} on {model.name or 'the model'}"
    with reporting(progress, what, "simulate", line_of_run) as report:
        against = reference if reference is not None else reference_for(model, progress=report)
        simulation = Simulation(
            model, agent, seed, reference=against, record=record, checkpoints=marks
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
    progress: bool | Progress | None = None,
) -> Run:
    """Run the default learner, which needs no tuning: `simulate` with `fmdp.Default()`.

    Parameters
    ----------
    model
        What is acted in.
    steps
        How many steps to take.
    seed
        Of environment and learner.
    planner
        What it plans with, such as fmdp.ALP(basis="pairs") or "alp"; by default exact where that
        fits, else approximate.
    record, checkpoints, reference, progress
        As for `simulate`.

    Returns
    -------
    Run
        The regret and what else was measured, so far where it was interrupted.

    Raises
    ------
    InvalidParameter
        Where an argument is not as above.
    """
    return simulate(
        model,
        Default(planner=planner),
        steps,
        seed,
        record=record,
        checkpoints=checkpoints,
        reference=reference,
        progress=progress,
    )


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
    """Who acts, from what a user hands over: a learner or its text, an agent, a policy, a rule."""
    learner = learner_of(given, "simulate")
    if learner is not None:
        return learner.start(model)
    known = getattr(given, "structure", None)
    if isinstance(known, Structure) and known != model.structure:
        raise InvalidParameter("the agent's structure is not the model's; they must be equal")
    agent: Agent | Interacting = given  # type: ignore[assignment]
    return agent
