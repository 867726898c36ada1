"""Episodes of a Gymnasium environment as one process that goes on.

A step that terminates leads to the first state of the next episode, (s, a, r, s_reset). A truncated
step (a time limit) is observed as it is, and the next step starts from the reset state.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

State = tuple[int, ...]


class Continued(NamedTuple):
    """One step of the process that goes on."""

    reward: Any
    after: State
    """The state that the step leads to."""
    start: State
    """The state in which the next step starts."""
    info: Mapping[str, Any]
    terminated: bool
    truncated: bool


def continued(env: Any, element: Any, read: Callable[[Any], State]) -> Continued:
    """Take a step with an element of the action space; `read` gets a state from an observation."""
    observation, reward, terminated, truncated, info = env.step(element)
    if not (terminated or truncated):
        after = start = read(observation)
    else:
        start = read(env.reset()[0])
        after = start if terminated else read(observation)
    return Continued(reward, after, start, info, bool(terminated), bool(truncated))
