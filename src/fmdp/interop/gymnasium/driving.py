"""Learners on other people's environments: act, step, observe, with the structure that is told.

A learner of fmdp knows no end, so the end of an episode becomes part of the dynamics: a step that
terminates leads to where the next episode begins, (s, a, r, s_reset), and the average reward of the
continuing process is the reward of an episode by its length. A step that is truncated (a time
limit) says nothing about the state: it is told as it was, and the next one begins elsewhere.

Scopes have to hold what ends an episode, since every variable then jumps. Where no structure is
given, scopes are learned from steps that are taken at random first (logs/scopes.py); one variable
needs none. Nothing here checks that the structure is true: with a wrong one a learner plans in a
model that does not exist.
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
from fmdp.interop.gymnasium.flattening import Variables
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
    """What came of driving an environment.

    Attributes
    ----------
    agent
        The learner's run, which may be driven on.
    structure
        What it was told, or what was learned.
    steps
        How many were taken, those at random too.
    explored
        How many were taken at random to learn the structure from.
    total_reward
        Of all steps.
    returns
        The sum of rewards of every episode that ended, in order; empty where none ended.
    curve
        (step, total reward so far) at log-spaced steps.
    seconds
        What it took.
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
            f"Drive of {self.steps:,} steps{ended}: {self.total_reward / self.steps:.4g} a step, "
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
    """Run a learner on any Gymnasium environment whose spaces are discrete.

    The environment is reset with the seed first. The end of an episode is part of the dynamics: a
    step that terminates leads to where the next episode begins.

    Parameters
    ----------
    env
        Its spaces are Discrete, MultiDiscrete, MultiBinary, or Tuple and Dict of these.
    learner
        A learner such as fmdp.PSRL(), or its text; or an agent that goes on from where it stands.
    steps
        How many to take.
    seed
        Of the environment and of the learner.
    structure
        What the learner is told: sizes, scopes, reward ranges. None: scopes are learned from the
        first steps, with one reward factor; an agent brings its own.
    reward_range
        (lo, hi) of the reward, where the structure is learned; it must never be left.
    decode
        From an observation to one value a state variable, where these are not the entries of the
        observation: Taxi's row, column, passenger and destination.
    variables
        Names and sizes of what `decode` gives, where the structure is learned.
    rewards
        From (reward, info) to one reward a factor; by default the reward itself where there is one
        factor, else info["rewards"], as fmdp's own environments have it.
    explore
        How many of the steps are taken at random to learn the scopes from.
    max_parents
        Most variables in a scope that is learned.

    Returns
    -------
    Drive
        Rewards, returns of episodes, and the agent.

    Raises
    ------
    InvalidParameter
        Where a space is not discrete, the structure is not of its sizes, a reward leaves its range,
        or an argument is not as above.
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
    reader = decode
    if reader is None:
        seen = Variables(env.observation_space, "observation")
        reader = seen.values
    told, learned = structure, False
    if told is None:
        if decode is None:
            known, names = seen.sizes, seen.names
        else:
            known, names = _declared(variables)
        told, learned = _complete(known, names, actions, _range(reward_range))
    elif not isinstance(told, Structure):
        raise InvalidParameter(
            f"the 'structure' of {_OWNER} must be a Structure or None; got {quoted(told)}"
        )
    elif reward_range is not None or variables is not None:
        raise InvalidParameter(
            f"a structure brings its variables and reward ranges: {_OWNER} takes no reward_range "
            f"and no variables beside it"
        )
    _refuse_other_sizes(told, actions, None if decode is not None else seen)
    ride = _Ride(env, told, actions, reader, rewards, seed)
    started = time.perf_counter()
    explored = 0
    log: list[Step] = []
    if learned:
        explored = min(_EXPLORE.check(explore, _OWNER), n_steps)
        log = list(ride.random(generator, explored))
        told = _with_scopes(told, log, _PARENTS.check(max_parents, _OWNER))
        ride.structure = told
    agent = player if isinstance(player, Agent) else player.start(told, generator)
    if agent.generator is None:
        agent.generator = generator
    for step in log:
        agent.observe(*step)
    ride.follow(agent, n_steps - explored)
    return Drive(
        agent=agent,
        structure=told,
        steps=n_steps,
        explored=explored,
        total_reward=ride.total,
        returns=tuple(ride.returns),
        curve=ride.curve(n_steps),
        seconds=time.perf_counter() - started,
    )


@dataclass
class _Ride:
    """An environment under way."""

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
        """Where it is; the first time it is asked the environment is reset."""
        if self._state is None:
            self._state = self._read(self.env.reset(seed=self.seed)[0])
        return self._state

    def step(self, action: tuple[int, ...]) -> Step:
        """One step as a learner is told of it."""
        before = self.state()
        observation, reward, terminated, truncated, info = self.env.step(
            self.actions.element(action)
        )
        self.steps += 1
        paid = self._paid(float(reward), info)
        self.total += float(reward)
        self._return += float(reward)
        self._sums.append(self.total)
        if terminated or truncated:
            self.returns.append(self._return)
            self._return = 0.0
            begun = self._read(self.env.reset()[0])
            after = begun if terminated else self._read(observation)
            self._state = begun
        else:
            after = self._state = self._read(observation)
        return before, action, paid, after

    def random(self, generator: np.random.Generator, steps: int) -> Iterator[Step]:
        """Steps with actions that are drawn evenly."""
        sizes = self.structure.action_sizes
        for _ in range(steps):
            yield self.step(tuple(generator.integers(sizes).tolist()))

    def follow(self, agent: Agent, steps: int) -> None:
        """Steps that an agent takes and sees."""
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
            paid = tuple(float(one) for one in self.split(reward, info))
        elif s.l == 1:
            paid = (reward,)
        else:
            paid = tuple(float(one) for one in info.get("rewards", ()))
        if len(paid) != s.l:
            raise InvalidParameter(
                f"step {self.steps}: {len(paid)} rewards for {s.l} reward factors; give a function "
                f"rewards(reward, info) that has one a factor"
            )
        for k, (one, (lo, hi)) in enumerate(zip(paid, s.reward_ranges, strict=True)):
            if not lo <= one <= hi:
                raise InvalidParameter(
                    f"step {self.steps}: the environment pays {one:g} in {s.reward_label(k)}, "
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
    sizes: tuple[int, ...], names: tuple[str, ...], actions: Variables, ends: tuple[float, float]
) -> tuple[Structure, bool]:
    """One variable: its structure, for there is one alone. Several: the variables with scopes that
    are still to be learned."""
    alone = len(sizes) == 1 and len(actions.sizes) == 1
    scope = (0, 1) if alone else ()
    structure = Structure(
        sizes,
        actions.sizes,
        (scope,) * len(sizes),
        (scope,),
        (ends,),
        names,
        () if set(actions.names) & set(names) else actions.names,
        ("reward",),
    )
    return structure, not alone


def _with_scopes(structure: Structure, log: Sequence[Step], most: int) -> Structure:
    """The same variables with the scopes that score best."""
    states, actions, paid, following = (np.array(part) for part in zip(*log, strict=True))
    scopes = best_scopes(
        np.concatenate([states, actions], axis=1), structure.sizes, following, paid, most
    )
    m = structure.m
    return structure.with_factors(
        scopes[:m], scopes[m:], structure.reward_ranges, structure.reward_names
    )


def _refuse_other_sizes(structure: Structure, actions: Variables, states: Variables | None) -> None:
    for what, own, given in (
        ("action", structure.action_sizes, actions.sizes),
        ("state", structure.state_sizes, None if states is None else states.sizes),
    ):
        if given is not None and own != given:
            raise InvalidParameter(
                f"the structure has {what} variables of sizes {own}, and the environment {given}; "
                f"must be the same{'' if what == 'action' else ', or give decode'}"
            )


def _player(given: Any) -> Learner | Agent:
    """A learner or an agent, from what a user hands over."""
    if isinstance(given, Agent):
        return given
    found = learner_of(given, _OWNER)
    if found is None:
        raise InvalidParameter(
            f"{_OWNER} needs a learner such as fmdp.PSRL() or 'psrl', or an agent that one has "
            f"started; got {quoted(given)}"
        )
    return found
