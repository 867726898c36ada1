"""The interaction loop: a learner in an environment, and the record of what it cost.

`simulate(model, learner, steps, seed)` spawns SeedSequence(seed) into a stream for the environment
and one for the learner (unless the learner came with its own). Where a learner can say what it
will do until its next decision, compiled code does it; else the loop is act, step, observe. The
result is the same to the last bit. A policy, a rule of one's own or the name of a learner may stand
in the place of a learner.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from fmdp.errors import InvalidParameter
from fmdp.learning.learner import Learner
from fmdp.learning.registry import learner_kind, learner_names
from fmdp.model import FactoredMDP, Structure
from fmdp.model.factored import check_model
from fmdp.parameters import Integer, quoted
from fmdp.planning.policy import Policy, as_action, policy_of
from fmdp.progress import line_of_run, reporting
from fmdp.simulation.baseline import Baseline
from fmdp.simulation.environment import Environment
from fmdp.simulation.regret import Reference, reference_for

POINTS_A_DECADE = 20
_SECONDS_BETWEEN_REPORTS = 0.1

Progress = Callable[[Mapping[str, Any]], None]
"""Called now and then with step, steps, episode, regret and seconds; before the first step with
what the planner of the reference reports."""

STEPS = Integer("steps", 10_000, "steps to take", low=0, high=2**53)
SEED = Integer("seed", 0, "seed of environment and learner", low=0)


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


Player = Learner | Interacting | Policy | Callable[[tuple[int, ...]], Any] | str | os.PathLike[str]
"""Who may be simulated."""


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
    children = np.random.SeedSequence(SEED.check(seed, "simulate")).spawn(2)
    environment, learner = (np.random.Generator(np.random.PCG64(child)) for child in children)
    return environment, learner


class Simulation:
    """A run under way: `run(steps)` as often as one likes, `result()` at any time."""

    def __init__(
        self,
        model: FactoredMDP,
        learner: Player,
        seed: int = 0,
        *,
        reference: Reference | None = None,
    ) -> None:
        check_model(model, "simulate")
        of_environment, of_learner = streams(seed)
        self.model = model
        self.learner = learner = player_of(learner, model)
        if reference is not None and not isinstance(reference, Reference):
            raise InvalidParameter(
                f"the reference of simulate must be what reference_for(model) gives, or None; "
                f"got {quoted(reference)}"
            )
        self.reference = reference if reference is not None else reference_for(model)
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
        steps = STEPS.check(steps, "simulate")
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
        if isinstance(learner, Learner | Baseline):
            offer = learner.offer(min(steps, environment.ready()))
            if offer is not None:
                learner.absorb(*environment.play(offer))
                return
        state = environment.state
        action = as_action(learner.act(state), self.model.structure)
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
    learner: Player,
    steps: int,
    seed: int = 0,
    *,
    reference: Reference | None = None,
    progress: bool | Progress | None = None,
) -> Run:
    """Run a learner for `steps` steps from the initial state and say what it cost.

    In the place of a learner there may be its name ("psrl", with the parameters at their defaults),
    a policy or the path of its file, or a function state -> action: a baseline that learns nothing.
    `reference` is what `reference_for(model)` gives, and is made here if it is not handed in.
    `progress=True` shows a bar; a function is called with what is known so far.
    """
    check_model(model, "simulate")
    n_steps = STEPS.check(steps, "simulate")
    SEED.check(seed, "simulate")
    player = player_of(learner, model)
    what = f"{getattr(player, 'name', 'simulation')} on {model.name or 'the model'}"
    with reporting(progress, what, "simulate", line_of_run) as report:
        against = reference if reference is not None else reference_for(model, progress=report)
        simulation = Simulation(model, player, seed, reference=against)
        simulation.run(n_steps, progress=report)
    return simulation.result()


def player_of(given: object, model: FactoredMDP) -> Learner | Interacting:
    """Who plays, from what a user hands over: a learner or its name, a policy or a rule."""
    structure = model.structure
    if isinstance(given, str) and not _is_policy_file(given):
        return learner_kind(given).make(model, {})
    if isinstance(given, type):
        raise InvalidParameter(
            f"simulate needs a learner, not its class: {given.__name__}(model.structure) makes one"
        )
    if all(callable(getattr(given, verb, None)) for verb in ("act", "observe")):
        known = getattr(given, "structure", None)
        if isinstance(known, Structure) and known != structure:
            raise InvalidParameter("the learner's structure is not the model's; they must be equal")
        player: Learner | Interacting = given  # type: ignore[assignment]
        return player
    if not callable(given) and not isinstance(given, str | os.PathLike):
        raise InvalidParameter(
            f"simulate needs a learner (an object with act and observe, or the name of one), a "
            f"policy, or a function state -> action; got {quoted(given)}"
        )
    return Baseline(policy_of(given, structure, "simulate"), structure)


def _is_policy_file(text: str) -> bool:
    if text in learner_names():
        return False
    return text.endswith(".npz") or os.path.isfile(text)  # noqa: PTH113 - too long a name is none
