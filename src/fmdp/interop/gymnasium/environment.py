"""FactoredEnv: a factored MDP as a continuing Gymnasium environment.

    observation      one value per state variable: MultiDiscrete, or Discrete if there is one
    action           one value per action variable: MultiDiscrete, or Discrete if there is one
    reward           the sum of the reward factors; info["rewards"] has each of them

After `reset(seed=i)` the random numbers are those of `fmdp.simulate(..., seed=i)`: the same actions
give the same states and rewards, to the last bit. Every step draws one number per factor from
`np_random`, whatever the action, so that agents with the same seed meet the same randomness.
`reset()` without a seed continues the stream. A step takes about 3 microseconds; vector.py steps
many copies at once.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from fmdp._base.parameters import Choice, Flag, quoted
from fmdp.errors import InvalidParameter, did_you_mean
from fmdp.interop.gymnasium.actions import Actions, Ints, Mask
from fmdp.interop.gymnasium.kernels import layout_of, settle
from fmdp.model import FactoredMDP, Structure
from fmdp.problems import Problem
from fmdp.problems import problem as model_of
from fmdp.problems.registry import PROBLEMS
from fmdp.simulation.loop import streams

_STATE = "state"
_JOINT = Flag("joint", False, "whether an action is the number of a joint action")
_NAMED = Flag("named", False, "whether info has the state by name")
_RENDER_MODES = ("ansi",)


class FactoredEnv(gymnasium.Env[Any, Any]):
    """A factored MDP as a Gymnasium environment.

    Episodes never end: `terminated` and `truncated` are always False.

    Parameters
    ----------
    problem
        An id ("circle:7"), the path of a model file, a model, a problem such as
        fmdp.problems.Circle(size=7), or the name of a family ("circle") with its settings.
    render_mode
        "ansi": `render()` returns the state by name, as text.
    joint
        Whether an action is the number of the joint action, in C order.
    forbidden
        How to treat an action that a constraint forbids: "replace" takes the allowed joint action
        with the lowest number and sets info["replaced"]; "raise" raises InvalidParameter.
    named
        Whether info["state"] has the state by name, which takes time.
    **settings
        Settings of the family: size=7, dynamics="guestrin".

    Raises
    ------
    UnknownName
        If there is no such problem or setting; the message suggests similar names.
    InvalidParameter
        If the value of a setting is not allowed.
    TooLarge
        If there are too many joint actions to replace a forbidden one.
    """

    metadata: dict[str, Any] = {"render_modes": [*_RENDER_MODES], "render_fps": 1}  # noqa: RUF012

    def __init__(
        self,
        problem: FactoredMDP | Problem | str | os.PathLike[str],
        *,
        render_mode: str | None = None,
        joint: bool = False,
        forbidden: str = "replace",
        named: bool = False,
        **settings: Any,
    ) -> None:
        self.model = built(problem, settings)
        self.render_mode = checked_mode(render_mode)
        structure = self.model.structure
        owner = called(self.model)
        self._actions = Actions(structure, _JOINT.check(joint, owner), forbidden, owner)
        self._named = _NAMED.check(named, owner)
        self.observation_space = observation_space(structure)
        self.action_space = self._actions.space()
        self._layout = tuple(layout_of(self.model))
        self._width = structure.m + structure.l
        self._state: Ints = np.array(self.model.initial_state, dtype=np.int64)
        self._last: tuple[Ints, float] | None = None

    @property
    def structure(self) -> Structure:
        """The structure of the model, which a learner may know."""
        return self.model.structure

    @property
    def state(self) -> tuple[int, ...]:
        """The present state, one value per state variable."""
        return tuple(self._state.tolist())

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Return to the initial state, or to another one.

        Returns the observation, and info with the action mask if there are constraints.

        Parameters
        ----------
        seed
            Seed of the random numbers, as in `fmdp.simulate`; None continues the stream.
        options
            {"state": ...}: the first state, by number or name, as in `Structure.check_state`.
        """
        super().reset(seed=seed)
        if seed is not None:
            self._np_random = streams(seed)[0]
        self._state = start_of(self.model, options)
        self._last = None
        return self._observed(), self._info()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Take an action.

        Returns observation, reward, False, False, and info: "rewards" of every factor;
        "action_mask" and "replaced" if there are constraints.

        Parameters
        ----------
        action
            An element of the action space; InvalidParameter is raised for anything else, and for a
            forbidden action with forbidden="raise".
        """
        actions, structure = self._actions, self.model.structure
        values = actions.one(action)
        replaced = None
        if structure.constraints:
            both, replaced = actions.allowed(self._state[None], values[None])
            values = both[0]
        following = np.empty(structure.m, dtype=np.int64)
        rewards = np.empty(structure.l)
        uniforms = self.np_random.random(self._width)
        total = settle(self._layout, uniforms, self._state, values, following, rewards)
        self._state = following
        self._last = values, total
        info = self._info()
        info["rewards"] = rewards
        if replaced is not None:
            info["replaced"] = bool(replaced[0])
        return self._observed(), total, False, False, info

    def action_mask(self) -> Mask:
        """Return which joint actions are allowed now: int8 [joint actions] in C order, 1 or 0.

        Raises InvalidParameter without constraints, and TooLarge for too many joint actions.
        """
        mask: Mask = self._actions.masks(self._state[None])[0]
        return mask

    def render(self) -> str | None:
        """Return the last step and the state by name; None without render_mode="ansi"."""
        if self.render_mode is None:
            return None
        return rendered(self.model.structure, self._state, self._last)

    def _observed(self) -> Any:
        return self._state.copy() if len(self._state) > 1 else self._state[0]

    def _info(self) -> dict[str, Any]:
        info: dict[str, Any] = {}
        if self._actions.masked:
            info["action_mask"] = self.action_mask()
        if self._named:
            info[_STATE] = self.model.structure.naming.states.as_listed(self.state)
        return info


# ---- shared with vector.py -----------------------------------------------------------------------


def built(problem: Any, settings: Mapping[str, Any]) -> FactoredMDP:
    """Return the model of a `problem` argument and its settings."""
    if isinstance(problem, str) and problem in PROBLEMS.names():
        return model_of(PROBLEMS.find(problem).make(settings))
    if settings:
        named = ", ".join(settings)
        families = PROBLEMS.names()
        near = did_you_mean(problem, families) if isinstance(problem, str) else ""
        raise InvalidParameter(
            f"settings ({named}) go with the name of a family, such as problem='circle', size=7; "
            f"got problem={quoted(problem)}{near}"
        )
    return problem if isinstance(problem, FactoredMDP) else model_of(problem)


def called(model: FactoredMDP) -> str:
    """Return how error messages call the environment."""
    return f"the environment {model.name}" if model.name else "the environment"


def checked_mode(render_mode: str | None) -> str | None:
    if render_mode is None:
        return None
    declared = Choice("render_mode", "ansi", "how it is shown", choices=_RENDER_MODES)
    mode: str = declared.check(render_mode, "an environment")
    return mode


def observation_space(structure: Structure) -> Any:
    sizes = np.array(structure.state_sizes, dtype=np.int64)
    return spaces.Discrete(int(sizes[0])) if len(sizes) == 1 else spaces.MultiDiscrete(sizes)


def start_of(model: FactoredMDP, options: Mapping[str, Any] | None) -> Ints:
    """Return the first state after a reset."""
    known = options or {}
    for name in known:
        if name != _STATE:
            raise InvalidParameter(
                f"the options of reset must be {quoted(_STATE)} alone; got {quoted(name)}"
                f"{did_you_mean(str(name), [_STATE])}"
            )
    if _STATE not in known:
        return np.array(model.initial_state, dtype=np.int64)
    return np.array(model.structure.check_state(known[_STATE]), dtype=np.int64)


def rendered(structure: Structure, state: NDArray[Any], last: tuple[Ints, float] | None) -> str:
    """Return a state by name as text, after the last action and its reward."""

    def words(named: Mapping[str, str]) -> str:
        return " ".join(f"{name}={value}" for name, value in named.items())

    shown = words(structure.name_state(state.tolist()))
    if last is None:
        return shown
    action, reward = last
    return f"{words(structure.name_action(action.tolist()))} -> {reward:g}, {shown}"
