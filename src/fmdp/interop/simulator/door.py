"""`from_simulator`: a model with intervals, fitted to samples of a simulator."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from fmdp._base.memory import available_memory, describe_bytes
from fmdp._base.parameters import Flag, Integer, quoted
from fmdp._base.progress import reporting
from fmdp.errors import InvalidParameter, TooLarge, did_you_mean
from fmdp.interop.simulator.checks import dependent_pairs, measured_noise
from fmdp.interop.simulator.sampling import (
    EnvironmentSimulator,
    FunctionSimulator,
    Payments,
    Sample,
    collected,
    refuse_no_function,
)
from fmdp.interop.spaces import Variables
from fmdp.logs.fit import PRIOR, RHO, Counts, Fit, fit_of, fitted_model, refuse_unobserved
from fmdp.logs.scopes import with_learned_scopes
from fmdp.logs.steps import Steps
from fmdp.model import FactoredMDP, Structure
from fmdp.model.builder import variables_of
from fmdp.model.functions import named_variables
from fmdp.model.naming import Assignment, listed
from fmdp.model.scopes import scope_numbers
from fmdp.model.spaces import count
from fmdp.problems import Problem, problem
from fmdp.simulation.loop import SEED, streams

_OWNER = "from_simulator"
_SOURCE = "the samples"
SAMPLES = Integer("samples", 10_000, "steps of the simulator", low=1, high=2**31)
ZEROS = Flag("zeros_from_samples", False, "whether values that no step shows are impossible")
MAX_PARENTS = Integer("max_parents", 3, "most variables in a scope that is learned", low=0)
_BYTES_PER_CELL = 120
"""Memory for a cell of a transition table: counts, estimates and the ends of intervals."""

Mappings = tuple[Mapping[str, Any], Mapping[str, Any]]
Scopes = Mapping[str, Sequence[str]]


class _Known(NamedTuple):
    """The structure that is known before the first sample."""

    structure: Structure
    """The variables; with `complete` also scopes, rewards and their ranges."""
    complete: bool
    initial_state: tuple[int, ...] | None = None


def from_simulator(
    step: Any,
    variables: Mappings | Structure | FactoredMDP | Problem | str | os.PathLike[str] | None = None,
    samples: int = 10_000,
    *,
    seed: int = 0,
    parents: Scopes | None = None,
    max_parents: int | None = None,
    reward_ranges: Mapping[str, tuple[float, float]] | None = None,
    reset: Callable[[np.random.Generator], Any] | None = None,
    decode: Callable[[Any], Any] | None = None,
    initial_state: Assignment | None = None,
    prior: float | None = None,
    rho: float = 0.1,
    zeros_from_samples: bool = False,
    name: str | None = None,
    progress: bool | Callable[..., None] | None = None,
) -> Fit:
    """Sample a simulator and fit a model with intervals to its steps.

    A function is asked about states and actions that are spread evenly over their joint values,
    unless there is a `reset`. An environment, or a function with `reset`, takes random actions
    along a trajectory. A step that ends an episode leads to the start of the next one.

    Parameters
    ----------
    step
        A function step(state, action, generator) -> (next_state, reward), or a Gymnasium
        environment with discrete spaces. States and actions are mappings from names to values. The
        reward is a number, or a mapping from the names of reward factors to numbers. All random
        numbers must come from `generator`.
    variables
        A pair (states, actions) of mappings from names to values, as in
        `FactoredMDP.from_functions`. None for the spaces of an environment. With a structure, or a
        model (file, id or object; its tables are not used), no scope is learned.
    samples
        Number of steps of the simulator.
    seed
        Seed of all random numbers.
    parents
        Scopes that are known, by the name of their state variable or reward factor.
    max_parents
        Most variables in a learned scope; 3 by default.
    reward_ranges
        Ranges (lo, hi) of reward factors by name; by default what the samples show.
    reset
        Function from a generator to a first state, for a simulator in which not all joint values
        make sense.
    decode
        Function from an observation of an environment to a state, as a mapping from names to
        values or a sequence of positions, if its variables are not the parts of the observation.
    initial_state
        Initial state of the model; by default that of the first reset, or all first values.
    prior
        Dirichlet parameter of every value before any count, as in `fit`.
    rho
        Failure probability of all intervals together.
    zeros_from_samples
        Along trajectories: whether values of a variable that no step shows, before or after it,
        are taken for impossible: probability 0, with the interval [0, 0]. Such are the final states
        of episodes, which a robust plan would otherwise guard against.
    name
        Name of the model; by default that of the function or environment.
    progress
        True for a bar, or a callback.

    Returns
    -------
    Fit
        The model with its intervals and measured noise, numbers of rows and of visited ones, and
        notes about what was assumed and what was found.

    Raises
    ------
    InvalidParameter
        If an argument is not as above, a space is not discrete, or there are too few samples.
    InvalidModel
        If the simulator fails or returns something else; the message names the state and action.
    TooLarge
        If the samples or the tables do not fit into memory.
    """
    number, seed = SAMPLES.check(samples, _OWNER), SEED.check(seed, _OWNER)
    weight = None if prior is None else PRIOR.check(prior, _OWNER)
    failure = RHO.check(rho, _OWNER)
    is_env = _is_environment(step)
    _refuse_no_simulator(step, is_env, reset, decode)
    zeros = ZEROS.check(zeros_from_samples, _OWNER)
    if zeros and not is_env and reset is None:
        raise InvalidParameter(
            f"zeros_from_samples is for trajectories: {_OWNER} chooses every value of every "
            f"variable by itself"
        )
    known = _known(step, variables, is_env, decode is not None)
    _refuse_idle(known, parents=parents, max_parents=max_parents, reward_ranges=reward_ranges)
    most = MAX_PARENTS.check(3 if max_parents is None else max_parents, _OWNER)
    s = known.structure
    first = known.initial_state
    if initial_state is not None:
        first = s.check_state(initial_state, "initial state")
    _refuse_few_or_many(s, number)
    payments = Payments(
        s.reward_names if known.complete else None,
        _ranges(known, {} if reward_ranges is None else reward_ranges),
    )
    title = _title(step, is_env, name)
    with reporting(progress, f"sampling {title}", _OWNER) as report:
        check = partial(_given_scopes, s, payments, parents)
        ask = partial(collected, number=number, s=s, check=check, report=report)
        steps, notes = (
            _of_environment(EnvironmentSimulator(step, s, payments, decode), ask, number, seed)
            if is_env
            else _of_function(step, s, payments, reset, ask, number, seed)
        )
    if first is None and steps.runs > 0:
        first = tuple(steps.states[0].tolist())
    structure, more = _structure(known, steps, payments, parents, most)
    _refuse_large_tables(structure)
    counts = Counts(structure, has_rewards=True, fixed_visits=steps.runs == 0)
    counts.add(steps)
    if zeros:
        more += _allow_seen(counts, steps)
    noise = measured_noise(counts, steps)
    model = fitted_model(
        counts, weight, failure, skeleton=None, noise=noise, initial_state=first, name=title
    )
    return fit_of(counts, model, failure, (*notes, *more, *_notes(counts, model, steps, seed)))


Ask = Callable[[Iterator[Sample]], Steps]


def _of_environment(
    env: EnvironmentSimulator, ask: Ask, samples: int, seed: int
) -> tuple[Steps, list[str]]:
    """Return the steps of an environment, and notes about its episodes."""
    choices = streams(seed)[1]
    steps = ask(env.trajectory(seed, samples, choices))
    return steps._replace(runs=1 + env.terminated + env.truncated), _episode_notes(env)


def _of_function(
    step: Any, s: Structure, payments: Payments, reset: Any, ask: Ask, samples: int, seed: int
) -> tuple[Steps, list[str]]:
    """Return the steps of a function, from chosen states or along a trajectory."""
    generator, choices = streams(seed)
    function = FunctionSimulator(step, s, payments, generator)
    if reset is None:
        return ask(function.chosen(samples, choices)), []
    return ask(function.trajectory(reset, samples, choices))._replace(runs=1), []


# ---- arguments -----------------------------------------------------------------------------------


def _is_environment(given: Any) -> bool:
    # Whoever has an environment has imported Gymnasium.
    gymnasium = sys.modules.get("gymnasium")
    return gymnasium is not None and isinstance(given, gymnasium.Env)


def _refuse_no_simulator(step: Any, is_env: bool, reset: Any, decode: Any) -> None:
    if not is_env and (not callable(step) or isinstance(step, type)):
        raise InvalidParameter(
            f"{_OWNER} needs a function step(state, action, generator) or a Gymnasium environment; "
            f"got {quoted(step)}"
        )
    refuse_no_function(reset, "reset")
    refuse_no_function(decode, "decode")
    if is_env and reset is not None:
        raise InvalidParameter(f"an environment has its own reset: {_OWNER} takes no other")
    if not is_env and decode is not None:
        raise InvalidParameter(
            f"the 'decode' of {_OWNER} is for the observations of an environment; got a function "
            f"step, which can return states by name itself"
        )


def _known(step: Any, variables: Any, is_env: bool, decodes: bool) -> _Known:
    """Return the variables, and scopes and rewards if they were given too."""
    if variables is None:
        if not is_env or decodes:
            raise InvalidParameter(
                f"{_OWNER} needs variables: a pair (states, actions) of mappings from names to "
                f"values, or a structure"
            )
        known = _Known(_of_spaces(step), False)
    elif isinstance(variables, Structure):
        known = _Known(variables, True)
    elif isinstance(variables, tuple | list | Mapping):
        if len(variables) != 2 or isinstance(variables, Mapping):
            raise InvalidParameter(
                f"the variables of {_OWNER} must be a pair (states, actions); got "
                f"{quoted(variables)}"
            )
        known = _Known(named_variables(*variables), False)
    else:
        model = variables if isinstance(variables, FactoredMDP) else problem(variables)
        known = _Known(model.structure, True, model.initial_state)
    s = known.structure
    refuse_unobserved(s, _OWNER)
    if is_env:
        _refuse_other_spaces(step, s, decodes)
    return known


def _of_spaces(env: Any) -> Structure:
    states = Variables(env.observation_space, "observation")
    actions = Variables(env.action_space, "action")
    both = set(actions.names) & set(states.names)
    return variables_of(states.sizes, actions.sizes, states.names, () if both else actions.names)


def _refuse_other_spaces(env: Any, s: Structure, decodes: bool) -> None:
    spaces = [("action", s.action_sizes, Variables(env.action_space, "action").sizes)]
    if not decodes:
        sizes = Variables(env.observation_space, "observation").sizes
        spaces.append(("state", s.state_sizes, sizes))
    for what, expected, given in spaces:
        if expected != given:
            raise InvalidParameter(
                f"the {what} variables have {expected} values, those of the environment {given}; "
                f"must be the same{'' if what == 'action' else ', or give decode'}"
            )


def _refuse_idle(known: _Known, **given: Any) -> None:
    for name, value in given.items():
        if known.complete and value is not None:
            raise InvalidParameter(
                f"a structure or model brings its scopes and ranges: {_OWNER} takes no {name} "
                f"beside it; got {quoted(value)}"
            )


def _refuse_few_or_many(s: Structure, samples: int) -> None:
    largest = int(np.argmax(s.sizes))
    if samples < s.sizes[largest]:
        raise InvalidParameter(
            f"the 'samples' of {_OWNER} are {samples}, too few to see every value of "
            f"{s.names[largest]!r}; must be at least {s.sizes[largest]}, and many times that"
        )
    needed = samples * (len(s.sizes) + s.m + 4) * 8
    _refuse_memory(needed, f"{samples:,} samples of {len(s.sizes)} variables", "take fewer samples")


def _refuse_large_tables(s: Structure) -> None:
    cells = sum(
        count(s.scope_sizes(scope)) * size
        for scope, size in zip(s.transition_scopes, s.state_sizes, strict=True)
    )
    advice = "split large variables into several, or take smaller scopes"
    _refuse_memory(cells * _BYTES_PER_CELL, "the tables of these scopes", advice)


def _refuse_memory(needed: int, what: str, advice: str) -> None:
    limit = available_memory() // 2
    if needed > limit:
        raise TooLarge(
            f"{what} need {describe_bytes(needed)}, more than half of the free memory; {advice}",
            needed_bytes=needed,
            limit_bytes=limit,
        )


def _ranges(known: _Known, given: Any) -> dict[str, tuple[float, float]]:
    if known.complete:
        s = known.structure
        return dict(zip(s.reward_names, s.reward_ranges, strict=True))
    if not isinstance(given, Mapping):
        raise InvalidParameter(
            f"the 'reward_ranges' of {_OWNER} must be name -> (lo, hi); got {quoted(given)}"
        )
    ranges = {}
    for name, ends in given.items():
        try:
            lo, hi = (float(end) for end in ends)
        except (TypeError, ValueError, OverflowError):
            lo, hi = np.nan, np.nan
        if not -np.inf < lo <= hi < np.inf:
            raise InvalidParameter(
                f"the range of reward {quoted(name)} must be two numbers lo <= hi; got "
                f"{quoted(ends)}"
            )
        ranges[name] = lo, hi
    return ranges


def _title(step: Any, is_env: bool, given: str | None) -> str:
    """Return the name of the model."""
    if given is not None:
        if not isinstance(given, str) or not given.isprintable():
            raise InvalidParameter(
                f"the 'name' of {_OWNER} must be a printable text; got {quoted(given)}"
            )
        return given
    if is_env:
        name = str(step.spec.id) if step.spec is not None else type(step.unwrapped).__name__
    else:
        name = str(getattr(step, "__name__", type(step).__name__))
    return name if name.isprintable() else "simulator"


# ---- structure and notes -------------------------------------------------------------------------


def _structure(
    known: _Known, steps: Steps, payments: Payments, parents: Scopes | None, most: int
) -> tuple[Structure, list[str]]:
    """Return the structure of the model, with learned scopes where none are known, and notes."""
    s = known.structure
    if known.complete:
        return s, ["scopes and ranges are those that were given, and the intervals trust them"]
    rewards = payments.names or ()
    scopes = _given_scopes(s, payments, parents)
    # Adding 0 turns -0.0, such as the cost of no order, into 0.0.
    shown = steps.rewards.min(axis=0) + 0.0, steps.rewards.max(axis=0) + 0.0
    ranges = [
        payments.ranges.get(name, (float(shown[0][k]), float(shown[1][k])))
        for k, name in enumerate(rewards)
    ]
    names = (*s.state_names, *rewards)
    skeleton = s.with_factors(
        [scopes.get(name, ()) for name in s.state_names],
        [scopes.get(name, ()) for name in rewards],
        ranges,
        rewards,
    )
    notes = [
        f"the range of reward {name!r} is what the samples show, [{lo:g}, {hi:g}], and its "
        f"intervals take it for right"
        for name, (lo, hi) in zip(rewards, ranges, strict=True)
        if name not in payments.ranges
    ]
    if all(name in scopes for name in names):
        return skeleton, notes
    learned, more = with_learned_scopes(_SOURCE, steps, skeleton, most, scopes)
    return learned, [*more, *notes]


def _given_scopes(s: Structure, payments: Payments, parents: Any) -> dict[str, tuple[int, ...]]:
    """Return the scopes that are known, by the name of the factor.

    Raise InvalidParameter if `parents` or the given ranges name a factor that does not exist, which
    is known after the first step.
    """
    rewards = payments.names or ()
    parents = {} if parents is None else parents
    if not isinstance(parents, Mapping):
        raise InvalidParameter(
            f"the 'parents' of {_OWNER} must be a mapping from state variables and rewards to the "
            f"variables that they depend on; got {quoted(parents)}"
        )
    names = (*s.state_names, *rewards)
    _refuse_unknown(parents, names, "parents")
    _refuse_unknown(payments.ranges, rewards, "reward_ranges")
    scopes = {
        name: tuple(sorted(scope_numbers(s, scope, f"parents of {name!r}")))
        for name, scope in parents.items()
    }
    if s.m == 1 and len(s.action_sizes) == 1:
        # One state and one action variable: there is nothing to be learned.
        scopes = dict.fromkeys(names, (0, 1)) | scopes
    return scopes


def _refuse_unknown(given: Mapping[str, Any], names: Sequence[str], what: str) -> None:
    for name in given:
        if name not in names:
            near = did_you_mean(name, names) if isinstance(name, str) else ""
            raise InvalidParameter(
                f"the '{what}' of {_OWNER}: {quoted(name)} must be one of {', '.join(names)}{near}"
            )


def _episode_notes(env: EnvironmentSimulator) -> list[str]:
    notes = []
    if env.terminated:
        notes.append(
            f"{env.terminated:,} episodes ended: a step that ends one leads to the start of the "
            f"next, and the gain is the reward per step of a process that goes on"
        )
    if env.truncated:
        notes.append(
            f"{env.truncated:,} episodes were cut off by a time limit, which the model does not "
            f"have: their last steps count as any other"
        )
    return notes


def _allow_seen(counts: Counts, steps: Steps) -> list[str]:
    """Hold values impossible that no step shows, and return a note for each variable with some."""
    s = counts.structure
    possible, notes = [], []
    for i, size in enumerate(s.state_sizes):
        seen = np.zeros(size, dtype=np.bool_)
        seen[steps.states[:, i]] = seen[steps.next_states[:, i]] = True
        possible.append(np.tile(seen, (count(s.scope_sizes(s.transition_scopes[i])), 1)))
        if not seen.all():
            values = [s.state_values[i][place] for place in np.flatnonzero(~seen).tolist()]
            notes.append(
                f"values of {s.state_names[i]!r} that no step shows are taken for impossible: "
                f"{listed(values)}"
            )
    counts.allow(possible)
    return notes


def _notes(counts: Counts, model: FactoredMDP, steps: Steps, seed: int) -> list[str]:
    s = counts.structure
    generator = streams(seed)[1]
    notes = []
    unseen, rows = int((counts.visits == 0).sum()), len(counts.values)
    if unseen:
        notes.append(
            f"{unseen:,} of {rows:,} rows were never visited: their probabilities are uniform, "
            f"and their intervals say nothing"
        )
    for name, law in zip(s.reward_names, model.noise, strict=True):
        if law.kind == "gaussian":
            notes.append(
                f"reward {name!r} varies within its rows, with a standard deviation of "
                f"{law.scale:.3g}: noise, or variables that are not in its scope (a sum can be "
                f"returned as a mapping of its parts)"
            )
    for i, j in dependent_pairs(s, steps, generator):
        notes.append(
            f"the next values of {s.state_names[i]!r} and {s.state_names[j]!r} are not drawn "
            f"independently given their scopes, as the model assumes: one variable for both, or "
            f"larger scopes, would mend it"
        )
    return notes
