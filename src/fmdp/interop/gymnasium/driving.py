"""Running of learners on any discrete Gymnasium environment.

Learners of fmdp have no episodes, so the end of an episode becomes part of the dynamics: a step
that terminates leads to the first state of the next episode, (s, a, r, s_reset), and the average
reward of the continuing process is the return of an episode divided by its length. A truncated step
(a time limit) is observed as it is, and the next step starts from the reset state.

Scopes must contain the variables that end an episode, because all variables then jump. If no
structure is given, scopes are learned from random steps (logs/scopes.py); a single variable needs
none. Nothing checks that a given structure is true: with a wrong one the learner plans in a wrong
model.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import gymnasium
import numpy as np

from fmdp._base.parameters import Integer, quoted
from fmdp.errors import InvalidParameter
from fmdp.interop.episodes import continued
from fmdp.interop.spaces import Variables
from fmdp.learning.agent import Agent
from fmdp.learning.follow import learner_of
from fmdp.learning.learner import Learner
from fmdp.logs.scopes import best_scopes
from fmdp.model import Structure
from fmdp.simulation.loop import SEED, STEPS, checkpoints, streams

_OWNER = "drive"
_EXPLORE = Integer("explore", 2_000, "steps taken at random to learn the scopes from", low=1)
_PARENTS = Integer("max_parents", 3, "most variables in a scope that is learned", low=0)

Step = tuple[tuple[int, ...], tuple[int, ...], tuple[float, ...], tuple[int, ...]]


@dataclass(frozen=True, eq=False)
class Drive:
    """The result of `drive`.

    Attributes
    ----------
    agent
        The learner's run, which can be continued.
    structure
        The structure that was given or learned.
    steps
        Number of steps, including random ones.
    explored
        Number of random steps from which the structure was learned.
    total_reward
        Sum of the rewards of all steps.
    returns
        Sum of the rewards of every episode that ended, in order.
    curve
        (step, total reward so far) at log-spaced steps.
    seconds
        Wall-clock time.
    """

    agent: Agent
    structure: Structure
    steps: int
    explored: int
    total_reward: float
    returns: tuple[float, ...]
    curve: tuple[tuple[int, float], ...]
    seconds: float

    def __repr__(self) -> str:
        ended = f", {len(self.returns):,} episodes" if self.returns else ""
        return (
            f"Drive of {self.steps:,} steps{ended}: {self.total_reward / self.steps:.4g} per step, "
            f"by {self.agent.learner!r}"
        )


def drive(
    env: gymnasium.Env[Any, Any],
    learner: Learner | Agent | str,
    steps: int,
    seed: int = 0,
    *,
    structure: Structure | None = None,
    reward_range: tuple[float, float] | None = None,
    decode: Callable[[Any], Sequence[int]] | None = None,
    variables: Mapping[str, int] | None = None,
    rewards: Callable[[float, Mapping[str, Any]], Sequence[float]] | None = None,
    explore: int = 2_000,
    max_parents: int = 3,
) -> Drive:
    """Run a learner on a Gymnasium environment with discrete spaces.

    The environment is first reset with the seed. The end of an episode is part of the dynamics: a
    step that terminates leads to the first state of the next episode.

    Parameters
    ----------
    env
        An environment with spaces Discrete, MultiDiscrete, MultiBinary, or Tuple and Dict of these.
    learner
        A learner such as fmdp.PSRL(), its name, or an agent, which continues its run.
    steps
        Number of steps.
    seed
        Seed of the environment and of the learner.
    structure
        Sizes, scopes and reward ranges for the learner. None: scopes are learned from the first
        steps, with one reward factor; an agent has its own structure.
    reward_range
        (lo, hi) bounds on the reward, if the structure is learned.
    decode
        Function from an observation to one value per state variable, if these are not the entries
        of the observation: Taxi's row, column, passenger and destination.
    variables
        Names and sizes of the variables that `decode` returns, if the structure is learned.
    rewards
        Function from (reward, info) to one reward per factor; by default the reward itself if
        there is one factor, else info["rewards"], as in fmdp's own environments.
    explore
        Number of random steps from which scopes are learned.
    max_parents
        Most variables in a learned scope.

    Returns
    -------
    Drive
        The rewards, the returns of episodes, and the agent.

    Raises
    ------
    InvalidParameter
        If a space is not discrete, sizes do not match the structure, a reward is out of range, or
        an argument is not as above.
    """
    if not isinstance(env, gymnasium.Env):
        raise InvalidParameter(
            f"{_OWNER} takes an environment, as gymnasium.make gives; got {quoted(env)}"
        )
    n_steps = STEPS.check(steps, _OWNER)
    generator = streams(SEED.check(seed, _OWNER))[1]
    player = _player(learner)
    if isinstance(player, Agent):
        structure = _agent_structure(player, structure)
    for name, function in (("decode", decode), ("rewards", rewards)):
        if function is not None and not callable(function):
            raise InvalidParameter(
                f"the '{name}' of {_OWNER} must be a function; got {quoted(function)}"
            )
    actions = Variables(env.action_space, "action")
    observed = Variables(env.observation_space, "observation") if decode is None else None
    assumed, learned = structure, False
    if assumed is None:
        assumed, learned = _complete(observed, variables, actions, reward_range)
    elif not isinstance(assumed, Structure):
        raise InvalidParameter(
            f"the 'structure' of {_OWNER} must be a Structure or None; got {quoted(assumed)}"
        )
    elif reward_range is not None or variables is not None:
        raise InvalidParameter(
            f"a structure brings its variables and reward ranges: {_OWNER} takes no reward_range "
            f"and no variables beside it"
        )
    _refuse_other_sizes(assumed, actions, observed)
    reader: Any = decode if observed is None else observed.values
    ride = _Ride(env, assumed, actions, reader, rewards, seed)
    started = time.perf_counter()
    explored = 0
    log: list[Step] = []
    if learned:
        explored = min(_EXPLORE.check(explore, _OWNER), n_steps)
        log = list(ride.random(generator, explored))
        assumed = _with_scopes(assumed, log, _PARENTS.check(max_parents, _OWNER))
        ride.structure = assumed
    agent = player if isinstance(player, Agent) else player.start(assumed, generator)
    if agent.generator is None:
        agent.generator = generator
    for step in log:
        agent.observe(*step)
    ride.follow(agent, n_steps - explored)
    return Drive(
        agent=agent,
        structure=assumed,
        steps=n_steps,
        explored=explored,
        total_reward=ride.total,
        returns=tuple(ride.returns),
        curve=ride.curve(n_steps),
        seconds=time.perf_counter() - started,
    )


@dataclass
class _Ride:
    """An environment in progress, with the rewards so far."""

    env: gymnasium.Env[Any, Any]
    structure: Structure
    actions: Variables
    decode: Callable[[Any], Sequence[int]]
    split: Callable[[float, Mapping[str, Any]], Sequence[float]] | None
    seed: int
    total: float = 0.0
    returns: list[float] = field(default_factory=list)
    steps: int = 0
    _return: float = 0.0
    _state: tuple[int, ...] | None = None
    _sums: list[float] = field(default_factory=list)

    def state(self) -> tuple[int, ...]:
        """Return the present state; the first call resets the environment."""
        if self._state is None:
            self._state = self._read(self.env.reset(seed=self.seed)[0])
        return self._state

    def step(self, action: tuple[int, ...]) -> Step:
        """Take a step and return it as a learner observes it."""
        before = self.state()
        step = continued(self.env, self.actions.element(action), self._read)
        self.steps += 1
        reward = float(step.reward)
        paid = self._paid(reward, step.info)
        self.total += reward
        self._return += reward
        self._sums.append(self.total)
        if step.terminated or step.truncated:
            self.returns.append(self._return)
            self._return = 0.0
        self._state = step.start
        return before, action, paid, step.after

    def random(self, generator: np.random.Generator, steps: int) -> Iterator[Step]:
        """Take steps with uniformly random actions."""
        sizes = self.structure.action_sizes
        for _ in range(steps):
            yield self.step(tuple(generator.integers(sizes).tolist()))

    def follow(self, agent: Agent, steps: int) -> None:
        """Let an agent act and observe."""
        for _ in range(steps):
            agent.observe(*self.step(agent.act(self.state())))

    def curve(self, steps: int) -> tuple[tuple[int, float], ...]:
        return tuple((mark, self._sums[mark - 1]) for mark in checkpoints(steps))

    def _read(self, observation: Any) -> tuple[int, ...]:
        return self.structure.check_state(
            tuple(self.decode(observation)), f"state of observation {quoted(observation)}"
        )

    def _paid(self, reward: float, info: Mapping[str, Any]) -> tuple[float, ...]:
        s = self.structure
        if self.split is not None:
            paid = tuple(float(reward_k) for reward_k in self.split(reward, info))
        elif s.l == 1:
            paid = (reward,)
        else:
            paid = tuple(float(reward_k) for reward_k in info.get("rewards", ()))
        if len(paid) != s.l:
            raise InvalidParameter(
                f"step {self.steps}: {len(paid)} rewards for {s.l} reward factors; give a function "
                f"rewards(reward, info) that has one per factor"
            )
        for k, (value, (lo, hi)) in enumerate(zip(paid, s.reward_ranges, strict=True)):
            if not lo <= value <= hi:
                raise InvalidParameter(
                    f"step {self.steps}: the environment pays {value:g} in {s.reward_label(k)}, "
                    f"which must be in [{lo:g}, {hi:g}]; give the range that it never leaves"
                )
        return paid


# ---- structures ----------------------------------------------------------------------------------


def _agent_structure(agent: Agent, structure: Structure | None) -> Structure:
    if structure is not None and structure != agent.structure:
        raise InvalidParameter(f"an agent brings its own structure: {_OWNER} takes no other")
    return agent.structure


def _declared(variables: Mapping[str, int] | None) -> tuple[tuple[int, ...], tuple[str, ...]]:
    if not isinstance(variables, Mapping) or not variables:
        raise InvalidParameter(
            f"{_OWNER} with decode needs a structure, or variables={{name: size, ...}} of what "
            f"decode gives; got {quoted(variables)}"
        )
    return tuple(variables.values()), tuple(variables)


def _range(given: Any) -> tuple[float, float]:
    try:
        lo, hi = (float(end) for end in given)
        if math.isfinite(lo) and math.isfinite(hi) and lo <= hi:
            return lo, hi
    except (TypeError, ValueError):
        pass
    raise InvalidParameter(
        f"{_OWNER} needs reward_range=(lo, hi), two numbers that the reward of a step stays "
        f"between, or a structure; got {quoted(given)}"
    )


def _complete(
    observed: Variables | None,
    variables: Mapping[str, int] | None,
    actions: Variables,
    reward_range: Any,
) -> tuple[Structure, bool]:
    """Return a structure, and whether its scopes have to be learned.

    With one state variable and one action variable there is only one possible structure.
    """
    if observed is None:
        sizes, names = _declared(variables)
    else:
        sizes, names = observed.sizes, observed.names
    alone = len(sizes) == 1 and len(actions.sizes) == 1
    scope = (0, 1) if alone else ()
    structure = Structure(
        sizes,
        actions.sizes,
        (scope,) * len(sizes),
        (scope,),
        (_range(reward_range),),
        names,
        () if set(actions.names) & set(names) else actions.names,
        ("reward",),
    )
    return structure, not alone


def _with_scopes(structure: Structure, log: Sequence[Step], most: int) -> Structure:
    """Return the structure with the best-scoring scopes."""
    states, actions, paid, following = (np.array(part) for part in zip(*log, strict=True))
    scopes = best_scopes(
        np.concatenate([states, actions], axis=1), structure.sizes, following, paid, most
    )
    m = structure.m
    return structure.with_factors(
        scopes[:m], scopes[m:], structure.reward_ranges, structure.reward_names
    )


def _refuse_other_sizes(structure: Structure, actions: Variables, states: Variables | None) -> None:
    for what, expected, given in (
        ("action", structure.action_sizes, actions.sizes),
        ("state", structure.state_sizes, None if states is None else states.sizes),
    ):
        if given is not None and expected != given:
            raise InvalidParameter(
                f"the structure has {what} variables of sizes {expected}, the environment {given}; "
                f"must be the same{'' if what == 'action' else ', or give decode'}"
            )


def _player(given: Any) -> Learner | Agent:
    """Return the learner or agent that the argument stands for."""
    if isinstance(given, Agent):
        return given
    player = learner_of(given, _OWNER)
    if player is None:
        raise InvalidParameter(
            f"{_OWNER} needs a learner such as fmdp.PSRL() or 'psrl', or an agent that one has "
            f"started; got {quoted(given)}"
        )
    return player
