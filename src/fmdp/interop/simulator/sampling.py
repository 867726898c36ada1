"""Samples of a simulator: chosen states and actions, or random actions along a trajectory.

A function that takes a state can be asked about any state. A sample then visits one row of every
factor at once, so that n samples spread evenly over the joint values visit each row of a scope with
q assignments about n/q times, however many variables there are. No choice of n steps could visit
the least visited row of the factor more than n/q times. Along a trajectory the visits are those of
the states that random actions reach.

Whatever a simulator returns is checked, and every error names the state and the action.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from fmdp._base.parameters import quoted
from fmdp._base.progress import Report
from fmdp.errors import FmdpError, InvalidModel, InvalidParameter
from fmdp.interop.episodes import State, continued
from fmdp.interop.spaces import Variables
from fmdp.learning.statistics import RANGE_TOLERANCE
from fmdp.logs.steps import Steps
from fmdp.model import Structure
from fmdp.model.naming import NamedValues, listed_values
from fmdp.model.spaces import IndexArray, count, decode

Sample = tuple[State, State, tuple[float, ...], State]
"""State, action, rewards and next state."""
Step = Callable[[Mapping[str, Any], Mapping[str, Any], np.random.Generator], Any]

REWARD = "reward"
"""Name of the reward of a simulator that pays a single number."""
_LONGEST_SHOWN = 300
_SECONDS_BETWEEN_REPORTS = 0.1


class Payments:
    """The rewards of the steps of a simulator: a number, or numbers by name.

    The first step determines the names of the reward factors, unless they are given.
    """

    def __init__(
        self, names: tuple[str, ...] | None, ranges: Mapping[str, tuple[float, float]]
    ) -> None:
        self.names = names
        self.ranges = ranges
        """Ranges that are known, by the name of the factor."""

    def read(self, paid: Any) -> tuple[float, ...]:
        """Return one reward per factor; raise InvalidModel for anything else."""
        by_name = paid if isinstance(paid, Mapping) else None
        if self.names is None:
            names = tuple(by_name) if by_name is not None else (REWARD,)
            if not all(isinstance(name, str) for name in names):
                raise InvalidModel(f"pays {quoted(paid)}; names of rewards must be texts")
            self.names = names
        if by_name is None:
            if len(self.names) != 1:
                raise InvalidModel(
                    f"pays {quoted(paid)}; must be a mapping from {', '.join(self.names)} to "
                    f"numbers"
                )
            by_name = {self.names[0]: paid}
        if by_name.keys() != set(self.names):
            raise InvalidModel(
                f"pays {', '.join(map(str, by_name)) or 'nothing'}; must pay "
                f"{', '.join(self.names) or 'nothing'}, in every step"
            )
        return tuple(self._number(name, by_name[name]) for name in self.names)

    def _number(self, name: str, paid: Any) -> float:
        try:
            number = float(paid) if not isinstance(paid, str | bytes) else math.nan
        except (TypeError, ValueError, OverflowError):
            number = math.nan
        if not math.isfinite(number):
            raise InvalidModel(f"pays {quoted(paid)} as {name!r}; must be a finite number")
        if name in self.ranges:
            lo, hi = self.ranges[name]
            slack = RANGE_TOLERANCE * max(hi - lo, abs(lo), abs(hi))
            if not lo - slack <= number <= hi + slack:
                raise InvalidModel(
                    f"pays {number:g} as {name!r}, which must be in [{lo:g}, {hi:g}]"
                )
            return min(max(number, lo), hi)
        return number


def _where(structure: Structure, state: State, action: State) -> str:
    """Return the beginning of an error message about a step."""
    parts = []
    for kind, variables, given in (
        ("state", structure.naming.states, state),
        ("action", structure.naming.actions, action),
    ):
        text = ", ".join(f"{name}={value}" for name, value in variables.named(given).items())
        parts.append(f"{kind} {text if len(text) <= _LONGEST_SHOWN else text[:297] + '...'}")
    return f"the simulator, {'; '.join(parts)}"


def _failed(where: str, error: Exception) -> NoReturn:
    reason = error.args[0] if isinstance(error, KeyError) and error.args else error
    text = " ".join(str(reason).split())[:_LONGEST_SHOWN]
    raise InvalidModel(f"{where}: fails: {type(error).__name__}: {text}") from error


class FunctionSimulator:
    """A function step(state, action, generator) -> (next state, reward), with values by name."""

    def __init__(
        self, step: Step, structure: Structure, payments: Payments, generator: np.random.Generator
    ) -> None:
        self._step, self._structure = step, structure
        self._payments, self._generator = payments, generator
        s = structure
        self._listed = [listed_values(values) for values in s.state_values]
        self._listed_actions = [listed_values(values) for values in s.action_values]
        self._places = [
            {value: place for place, value in enumerate(values)} for values in self._listed
        ]

    def ask(self, state: State, action: State) -> Sample:
        """Return what a step from this state with this action leads to."""
        s = self._structure
        before = NamedValues(_by_name(s.state_names, self._listed, state))
        taken = NamedValues(_by_name(s.action_names, self._listed_actions, action))
        try:
            answer = self._step(before, taken, self._generator)
        except Exception as error:
            _failed(_where(s, state, action), error)
        try:
            if not isinstance(answer, tuple | list) or len(answer) != 2:
                raise InvalidModel(
                    f"returns {quoted(answer)}; must return a pair (next state, reward)"
                )
            following = self.read(answer[0], "next state")
            return state, action, self._payments.read(answer[1]), following
        except FmdpError as error:
            raise InvalidModel(f"{_where(s, state, action)}: {error}") from None

    def read(self, given: Any, what: str) -> State:
        """Return a state as positions."""
        s = self._structure
        if isinstance(given, Mapping) and len(given) == s.m:
            try:
                return tuple(
                    [
                        places[given[name]]
                        for name, places in zip(s.state_names, self._places, strict=True)
                    ]
                )
            except (KeyError, TypeError):
                pass  # a name of a value, or an error that check_state explains
        return s.check_state(given, what)

    def chosen(self, samples: int, choices: np.random.Generator) -> Iterator[Sample]:
        """Ask about states and actions that are spread evenly over their joint values."""
        s = self._structure
        for row in evenly(s.sizes, samples, choices).tolist():
            state = tuple(row[: s.m])
            action = random_action(s, state, choices) if s.constraints else tuple(row[s.m :])
            yield self.ask(state, action)

    def trajectory(
        self, reset: Callable[[np.random.Generator], Any], samples: int, choices: Any
    ) -> Iterator[Sample]:
        """Take random actions, from the state that `reset` draws."""
        try:
            drawn = reset(self._generator)
        except Exception as error:
            _failed("the simulator, reset", error)
        state = self.read(drawn, "the state of reset")
        for _ in range(samples):
            sample = self.ask(state, random_action(self._structure, state, choices))
            yield sample
            state = sample[3]


class EnvironmentSimulator:
    """A Gymnasium environment, whose episodes are one process that goes on."""

    def __init__(
        self,
        env: Any,
        structure: Structure,
        payments: Payments,
        decode: Callable[[Any], Any] | None,
    ) -> None:
        self._env, self._structure, self._payments = env, structure, payments
        self._actions = Variables(env.action_space, "action")
        self._decode = (
            Variables(env.observation_space, "observation").values if decode is None else decode
        )
        self.terminated = self.truncated = 0
        """Numbers of episodes that ended, and of those that a time limit cut off."""

    def trajectory(self, seed: int, samples: int, choices: np.random.Generator) -> Iterator[Sample]:
        """Take random actions, with a reset at the end of every episode."""
        s = self._structure
        try:
            state = self._read(self._env.reset(seed=seed)[0])
        except FmdpError:
            raise
        except Exception as error:
            _failed("the simulator, reset", error)
        for _ in range(samples):
            action = random_action(s, state, choices)
            try:
                step = continued(self._env, self._actions.element(action), self._read)
                rewards = self._payments.read(step.reward)
            except FmdpError as error:
                raise InvalidModel(f"{_where(s, state, action)}: {error}") from None
            except Exception as error:
                _failed(_where(s, state, action), error)
            self.terminated += step.terminated
            self.truncated += step.truncated and not step.terminated
            yield state, action, rewards, step.after
            state = step.start

    def _read(self, observation: Any) -> State:
        what = f"state of observation {quoted(observation)}"
        return self._structure.check_state(self._decode(observation), what)


def _by_name(
    names: Sequence[str], listed: Sequence[Sequence[Any]], places: State
) -> Iterator[tuple[str, Any]]:
    for name, values, place in zip(names, listed, places, strict=True):
        yield name, values[place]


def evenly(sizes: Sequence[int], samples: int, generator: np.random.Generator) -> IndexArray:
    """Return [samples, variables]: joint values in random order, spread evenly.

    If all joint values fit into the samples, their numbers differ by at most one. Otherwise that
    holds for the values of each variable, and the variables are combined at random.
    """
    total = count(sizes)
    if total <= samples:
        order = generator.permutation(total)  # which ones come once more is left to chance
        numbers = generator.permutation(order[np.arange(samples) % total])
        return np.stack(np.unravel_index(numbers, tuple(sizes)), axis=1)
    columns = [generator.permutation(np.arange(samples) % size) for size in sizes]
    return np.stack(columns, axis=1)


def random_action(structure: Structure, state: State, generator: np.random.Generator) -> State:
    """Draw one of the allowed actions, all equally likely."""
    s = structure
    if not s.constraints:
        return tuple(generator.integers(s.action_sizes).tolist())
    allowed = s.allowed_actions(state)
    return decode(int(allowed[generator.integers(len(allowed))]), s.action_sizes)


def collected(
    samples: Iterator[Sample],
    number: int,
    s: Structure,
    check: Callable[[], object],
    report: Report | None,
) -> Steps:
    """Take all samples and return them as arrays; call `check` after the first."""
    kind = np.min_scalar_type(max(s.sizes))
    states, following = (np.empty((number, s.m), dtype=kind) for _ in range(2))
    actions = np.empty((number, len(s.action_sizes)), dtype=kind)
    rewards: list[tuple[float, ...]] = []
    due = time.perf_counter()
    for place, (state, action, paid, after) in enumerate(samples):
        states[place], actions[place], following[place] = state, action, after
        rewards.append(paid)
        if place == 0:
            check()
        if report is not None and time.perf_counter() >= due:
            due = time.perf_counter() + _SECONDS_BETWEEN_REPORTS
            report({"step": place + 1, "steps": number})
    paid_rows = np.array(rewards, dtype=np.float64).reshape(number, -1)
    return Steps(states, actions, paid_rows, following, (), 0)


def refuse_no_function(given: Any, what: str) -> None:
    """Raise InvalidParameter unless the argument is a function or None."""
    if given is not None and not callable(given):
        raise InvalidParameter(
            f"the '{what}' of from_simulator must be a function; got {quoted(given)}"
        )
