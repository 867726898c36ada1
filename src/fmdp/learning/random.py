"""The learner that learns nothing: every action variable uniform at random, every step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmdp.errors import InvalidParameter
from fmdp.learning.episodes import NO_LIMITS
from fmdp.learning.learner import Learner, Offer
from fmdp.model import Structure
from fmdp.model.spaces import strides
from fmdp.planning.plan import Planner

_MOST_ACTIONS = 1 << 62


class Random(Learner):
    """Uniform actions, the lower end of every comparison."""

    name = "random"
    role = "lower"
    summary = "uniform random actions"

    def __init__(
        self,
        structure: Structure,
        *,
        planner: Planner | str | None = None,
        generator: np.random.Generator | int | None = None,
        **settings: object,
    ) -> None:
        if planner is not None:
            raise InvalidParameter(
                f"learner random does not plan; got planner {getattr(planner, 'name', planner)}, "
                f"must be none"
            )
        super().__init__(structure, settings, generator)
        self._next: tuple[int, ...] | None = None

    def act(self, state: Sequence[int]) -> tuple[int, ...]:
        if self._next is None:
            uniforms = self.randomness.random(len(self.structure.action_sizes))
            self._next = tuple((uniforms * self.structure.action_sizes).astype(np.int64).tolist())
        return self._next

    def observe(
        self,
        state: Sequence[int],
        action: Sequence[int],
        rewards: Sequence[float],
        next_state: Sequence[int],
    ) -> None:
        self.structure.check_state(state)
        self.structure.check_action(action)
        self.structure.check_state(next_state, "next state")
        self.absorb(1, False)

    def offer(self, at_most: int) -> Offer | None:
        sizes = self.structure.action_sizes
        if self.structure.n_actions > _MOST_ACTIONS:
            return None
        drawn = self.randomness.random((at_most - (self._next is not None), len(sizes)))
        actions = (drawn * sizes).astype(np.int64)
        if self._next is not None:
            actions = np.concatenate([[self._next], actions])
        joint = actions @ np.array(strides(sizes), dtype=np.int64)
        return Offer(joint, False, at_most, NO_LIMITS, None)

    def absorb(self, taken: int, limit_reached: bool) -> None:
        self.steps += taken
        self._next = None

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        return {"next": self._next}, {}

    def restore(self, values: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
        self._next = None if values["next"] is None else tuple(values["next"])
