"""The interaction loop: a learner in an environment, and the record of what it cost.

`simulate(model, learner, steps, seed)` spawns SeedSequence(seed) into a stream for the environment
and one for the learner (unless the learner came with its own). Where a learner can say what it
will do until its next decision, compiled code does it; else the loop is act, step, observe. The
result is the same to the last bit.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from fmdp.errors import InvalidParameter
from fmdp.learning.learner import Learner
from fmdp.model import FactoredMDP
from fmdp.simulation.environment import Environment
from fmdp.simulation.regret import Reference, reference_for

POINTS_A_DECADE = 20
_SECONDS_BETWEEN_REPORTS = 0.1

Progress = Callable[[Mapping[str, Any]], None]
"""Called now and then with step, steps, episode, regret and seconds."""


class Interacting(Protocol):
    """All that a learner of one's own needs to have."""

    def act(self, state: tuple[int, ...]) -> Sequence[int]: ...

    def observe(
        self,
        state: tuple[int, ...],
        action: Sequence[int],
        rewards: tuple[float, ...],
        next_state: tuple[int, ...],
    ) -> None: ...


@dataclass(frozen=True)
class Run:
    """What one run has cost. Numbers that do not apply are None."""

    regret: float
    gap_regret: float | None
    gain: float
    gain_kind: str
    steps: int
    episodes: int | None
    planner_calls: int | None
    unconverged_plans: int | None
    curve: tuple[tuple[int, float], ...]
    """(t, realised regret after t steps) at log-spaced steps and at the end."""
    gap_curve: tuple[tuple[int, float], ...] | None
    total_reward: float
    seconds: float
    """Acting, observing and planning; what regret is measured against is made before."""


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
    if not isinstance(seed, (int, np.integer)) or seed < 0:
        raise InvalidParameter(f"seed must be a whole number of at least 0; got {seed!r}")
    children = np.random.SeedSequence(seed).spawn(2)
    environment, learner = (np.random.Generator(np.random.PCG64(child)) for child in children)
    return environment, learner


class Simulation:
    """A run under way: `run(steps)` as often as one likes, `result()` at any time."""

    def __init__(
        self,
        model: FactoredMDP,
        learner: Learner | Interacting,
        seed: int = 0,
        *,
        reference: Reference | None = None,
    ) -> None:
        known = getattr(learner, "structure", model.structure)
        if known != model.structure:
            raise InvalidParameter("the learner's structure is not the model's; they must be equal")
        self.model = model
        self.learner = learner
        self.reference = reference if reference is not None else reference_for(model)
        of_environment, of_learner = streams(seed)
        self.environment = Environment(model, of_environment, gaps=self.reference.gaps)
        if isinstance(learner, Learner) and learner.generator is None:
            learner.generator = of_learner
        self.seconds = 0.0
        self._curve: list[tuple[int, float]] = []
        self._gap_curve: list[tuple[int, float]] = []

    @property
    def regret(self) -> float:
        """Realised regret so far."""
        environment = self.environment
        return environment.steps * self.reference.gain - environment.total_reward

    def run(self, steps: int, *, progress: Progress | None = None) -> None:
        """Take that many more steps."""
        if not isinstance(steps, (int, np.integer)) or steps < 0:
            raise InvalidParameter(f"steps must be a whole number of at least 0; got {steps!r}")
        started = time.perf_counter()
        before, first = self.seconds, self.environment.steps
        due = 0.0
        try:
            for mark in checkpoints(first + steps):
                while self.environment.steps < mark:
                    self._advance(mark - self.environment.steps)
                    self.seconds = before + time.perf_counter() - started
                    if progress is not None and self.seconds >= due:
                        due = self.seconds + _SECONDS_BETWEEN_REPORTS
                        progress(self._news(first + steps))
                if mark > first:
                    self._mark()
        finally:
            self.seconds = before + time.perf_counter() - started

    def _advance(self, steps: int) -> None:
        """Some steps, at least one and at most so many."""
        learner, environment = self.learner, self.environment
        if isinstance(learner, Learner):
            offer = learner.offer(min(steps, environment.ready()))
            if offer is not None:
                learner.absorb(*environment.play(offer))
                return
        state = environment.state
        action = learner.act(state)
        rewards, next_state = environment.step(action)
        learner.observe(state, action, rewards, next_state)

    def _mark(self) -> None:
        self._curve.append((self.environment.steps, self.regret))
        self._gap_curve.append((self.environment.steps, self.environment.total_gap))

    def _news(self, steps: int) -> Mapping[str, Any]:
        return {
            "step": self.environment.steps,
            "steps": steps,
            "episode": getattr(self.learner, "episodes", None),
            "regret": self.regret,
            "seconds": self.seconds,
        }

    def result(self) -> Run:
        """What the steps so far have cost."""
        environment, learner = self.environment, self.learner
        if environment.steps and (not self._curve or self._curve[-1][0] < environment.steps):
            self._mark()
        with_gaps = self.reference.gaps is not None
        return Run(
            regret=self.regret,
            gap_regret=environment.total_gap if with_gaps else None,
            gain=self.reference.gain,
            gain_kind=self.reference.gain_kind,
            steps=environment.steps,
            episodes=getattr(learner, "episodes", None),
            planner_calls=getattr(learner, "planner_calls", None),
            unconverged_plans=getattr(learner, "unconverged_plans", None),
            curve=tuple(self._curve),
            gap_curve=tuple(self._gap_curve) if with_gaps else None,
            total_reward=environment.total_reward,
            seconds=self.seconds,
        )


def simulate(
    model: FactoredMDP,
    learner: Learner | Interacting,
    steps: int,
    seed: int = 0,
    *,
    reference: Reference | None = None,
    progress: Progress | None = None,
) -> Run:
    """Run a learner for `steps` steps from the initial state and say what it cost.

    `reference` is what `reference_for(model)` gives, and is made here if it is not handed in.
    """
    simulation = Simulation(model, learner, seed, reference=reference)
    simulation.run(steps, progress=progress)
    return simulation.result()
