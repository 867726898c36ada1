"""Trajectories: every state, action and reward of a run, written down by the compiled loop.

The loop writes into a chunk of plain 32-bit integers; full chunks are kept in the smallest type
that holds the values, so that a step takes about (m + k) + 8 l bytes for m state variables, k
action variables and l rewards. What a run will need is predicted and refused before it begins if
it is more than half of the memory that is free.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fmdp.errors import TooLarge
from fmdp.memory import available_memory, describe_bytes
from fmdp.model import Structure
from fmdp.simulation.frames import needs_pandas

CHUNK = 1 << 14
"""Steps in a chunk."""


class Rows(NamedTuple):
    """Room for the coming steps; without rows where nothing is written down."""

    states: NDArray[np.int32]  # [n, m], the state before the step
    actions: NDArray[np.int32]  # [n, action variables]
    rewards: NDArray[np.float64]  # [n, l]


@dataclass(frozen=True, eq=False)
class Trajectory:
    """A run step by step: T steps of m state variables, k action variables, l reward factors.

    Attributes
    ----------
    states
        [T + 1, m]: the state before every step, and the last one.
    actions
        [T, k]: what was done.
    rewards
        [T, l]: the reward of every factor.
    structure
        Has the names of the variables and factors.
    """

    states: NDArray[np.unsignedinteger[Any]]
    actions: NDArray[np.unsignedinteger[Any]]
    rewards: NDArray[np.float64]
    structure: Structure

    def __len__(self) -> int:
        return len(self.actions)

    def __repr__(self) -> str:
        s = self.structure
        return (
            f"Trajectory({len(self):,} steps: states [{len(self) + 1}, {s.m}], "
            f"actions [{len(self)}, {len(s.action_sizes)}], rewards [{len(self)}, {s.l}])"
        )

    def columns(self) -> dict[str, NDArray[Any]]:
        """Arrays of one length by name, a row a step: see `columns_of`."""
        return columns_of(self.structure, self.states, self.actions, self.rewards)

    def to_frame(self) -> Any:
        """The columns as a pandas DataFrame, a row a step.

        Raises
        ------
        FmdpError
            Where pandas is not installed.
        """
        return needs_pandas().DataFrame(self.columns())


def columns_of(
    structure: Structure, states: NDArray[Any], actions: NDArray[Any], rewards: NDArray[np.float64]
) -> dict[str, NDArray[Any]]:
    """Columns of a trajectory: t (1 for the first step), every variable by its name as the step
    found it, reward.NAME of every reward factor, and their sum as reward. A variable that is called
    like one of these has "variable." before its name.

    Parameters
    ----------
    structure
        Has the names.
    states, actions, rewards
        As in `Trajectory`.
    """
    steps = len(actions)
    found: dict[str, NDArray[Any]] = {"t": np.arange(1, steps + 1)}
    columns = [
        *zip(structure.state_names, states[:steps].T, strict=True),
        *zip(structure.action_names, actions.T, strict=True),
    ]
    for name, column in columns:
        taken = name in found or name == "reward" or name.startswith("reward.")
        found[f"variable.{name}" if taken else name] = column.astype(np.int64)
    for name, column in zip(structure.reward_names, rewards.T, strict=True):
        found[f"reward.{name}"] = column
    return found | {"reward": rewards.sum(axis=1)}


class Recorder:
    """Writes steps down in chunks."""

    def __init__(self, structure: Structure) -> None:
        self.structure = structure
        self._chunk = Rows(
            np.zeros((CHUNK, structure.m), np.int32),
            np.zeros((CHUNK, len(structure.action_sizes)), np.int32),
            np.zeros((CHUNK, structure.l)),
        )
        self._used = 0
        self._types = (_smallest(structure.state_sizes), _smallest(structure.action_sizes))
        self._full: list[Rows] = []

    def refuse_too_many(self, steps: int) -> None:
        """TooLarge if so many more steps would not fit into half of the free memory."""
        s = self.structure
        of_states, of_actions = (kind.itemsize for kind in self._types)
        # Twice: the chunks are joined at the end.
        a_step = 2 * (s.m * of_states + len(s.action_sizes) * of_actions + 8 * s.l)
        limit = available_memory() // 2
        if steps * a_step > limit:
            raise TooLarge(
                f"to record {steps:,} steps takes {describe_bytes(steps * a_step)}; the limit is "
                f"{describe_bytes(limit)}, half of what is free: at most {limit // a_step:,} steps",
                needed_bytes=steps * a_step,
                limit_bytes=limit,
            )

    def rows(self) -> Rows:
        """Room for the coming steps, at least one."""
        if self._used == CHUNK:
            self._keep()
        states, actions, rewards = self._chunk
        return Rows(states[self._used :], actions[self._used :], rewards[self._used :])

    def written(self, steps: int) -> None:
        """So many of the rows have been filled."""
        self._used += steps

    def _keep(self) -> None:
        states, actions, rewards = (part[: self._used] for part in self._chunk)
        of_states, of_actions = self._types
        self._full.append(
            Rows(states.astype(of_states), actions.astype(of_actions), rewards.copy())  # type: ignore[arg-type]
        )
        self._used = 0

    def trajectory(self, last: Sequence[int]) -> Trajectory:
        """Everything so far; `last` is the state after the last step."""
        self._keep()
        end = np.array([last], dtype=self._types[0])
        states = np.concatenate([*(rows.states for rows in self._full), end])
        actions = np.concatenate([rows.actions for rows in self._full])
        rewards = np.concatenate([rows.rewards for rows in self._full])
        return Trajectory(states, actions, rewards, self.structure)


def _smallest(sizes: Sequence[int]) -> np.dtype[Any]:
    """The smallest unsigned type that holds every value of these variables."""
    return np.min_scalar_type(max(sizes) - 1)
