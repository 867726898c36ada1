"""Trajectories: every state, action and reward of a run, recorded by the compiled loop.

The loop writes into a chunk of 32-bit integers. Full chunks are copied to arrays of the smallest
type that holds the values, so that a step takes about (m + k) + 8 l bytes for m state variables, k
action variables and l rewards. The total is known before the run begins, and is refused if it
exceeds half of the free memory. A recording into a folder needs the memory of one chunk, whatever
its length.
"""

from __future__ import annotations

import io
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fmdp._base.archives import reason
from fmdp._base.memory import available_memory, describe_bytes
from fmdp.errors import FileProblem, TooLarge
from fmdp.model import Structure
from fmdp.model.naming import are_numerals, listed_values, positions_are_clear
from fmdp.simulation.frames import needs_pandas

Columns: TypeAlias = tuple[tuple[int, np.dtype[Any]], ...]
"""(width, type) of states, actions and rewards."""

CHUNK = 1 << 14
"""Steps that are buffered as 32-bit integers before they are copied to their final type."""


class Rows(NamedTuple):
    """Arrays for the coming steps; without rows if nothing is recorded."""

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
        [T, k]: the actions.
    rewards
        [T, l]: the reward of every factor.
    structure
        Names of the variables and factors.

    The arrays of a recording in a folder are memory-mapped from its files.
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
        """Return arrays of equal length by name, one row per step: see `columns_of`."""
        return columns_of(self.structure, self.states, self.actions, self.rewards)

    def to_frame(self) -> Any:
        """Return the columns as a pandas DataFrame, one row per step.

        Raises
        ------
        FmdpError
            If pandas is not installed.
        """
        return needs_pandas().DataFrame(self.columns())


def columns_of(
    structure: Structure, states: NDArray[Any], actions: NDArray[Any], rewards: NDArray[np.float64]
) -> dict[str, NDArray[Any]]:
    """Return the columns of a trajectory, as `fmdp.fit` reads them back.

    These are t (1 for the first step), every variable by its name as the step found it, reward.NAME
    of every reward factor, and their sum as reward. A variable with one of these names gets the
    prefix "variable.". A column has the positions of a variable's values, or the values themselves
    if a position could be mistaken for a value, as with the values 1, 2, 3.
    """
    steps = len(actions)
    result: dict[str, NDArray[Any]] = {"t": np.arange(1, steps + 1)}
    columns = [
        *zip(structure.state_names, states[:steps].T, structure.state_values, strict=True),
        *zip(structure.action_names, actions.T, structure.action_values, strict=True),
    ]
    for name, column, values in columns:
        taken = name in result or name == "reward" or name.startswith("reward.")
        result[f"variable.{name}" if taken else name] = _cells(column, values)
    for name, column in zip(structure.reward_names, rewards.T, strict=True):
        result[f"reward.{name}"] = column
    return result | {"reward": rewards.sum(axis=1)}


def _cells(positions: NDArray[Any], values: Sequence[str]) -> NDArray[Any]:
    """Return the column of a variable: positions, or values if positions would be ambiguous."""
    if are_numerals(values) or positions_are_clear(values):
        return positions.astype(np.int64)
    listed = listed_values(values)
    kinds = {type(value) for value in listed}
    cells: NDArray[Any] = np.array(listed, dtype=None if kinds <= {int, float} else object)[
        positions
    ]
    return cells


class Recorder:
    """Recorder of steps in chunks, in memory or, as NumPy files, in a folder."""

    def __init__(self, structure: Structure, folder: Path | None = None) -> None:
        self.structure = structure
        widths = structure.m, len(structure.action_sizes), structure.l
        real = np.dtype(np.float64)
        types = _smallest(structure.state_sizes), _smallest(structure.action_sizes), real
        self._chunk = Rows(
            np.zeros((CHUNK, widths[0]), np.int32),
            np.zeros((CHUNK, widths[1]), np.int32),
            np.zeros((CHUNK, widths[2])),
        )
        self._used = 0
        self._steps = 0
        columns = tuple(zip(widths, types, strict=True))
        self._storage = InMemory(columns) if folder is None else InFolder(columns, folder)
        self._bytes_per_step = sum(width * kind.itemsize for width, kind in columns)

    def reserve(self, steps: int) -> None:
        """Reserve memory for so many more steps; raise TooLarge if they do not fit."""
        self._keep()
        limit, of_what = self._storage.limit()
        needed = steps * self._bytes_per_step
        if needed > limit:
            most = limit // self._bytes_per_step
            raise TooLarge(
                f"to record {steps:,} steps takes {describe_bytes(needed)}; the limit is "
                f"{describe_bytes(limit)}, {of_what}: at most {most:,} steps",
                needed_bytes=needed,
                limit_bytes=limit,
            )
        self._storage.lengthen(self._steps, self._steps + steps)

    def rows(self) -> Rows:
        """Return arrays for the coming steps, at least one."""
        if self._used == CHUNK:
            self._keep()
        states, actions, rewards = self._chunk
        return Rows(states[self._used :], actions[self._used :], rewards[self._used :])

    def written(self, steps: int) -> None:
        """Note that so many rows have been filled."""
        self._used += steps

    def _keep(self) -> None:
        first, end = self._steps, self._steps + self._used
        self._storage.lengthen(first, end)
        self._storage.put(first, tuple(part[: self._used] for part in self._chunk))
        self._steps, self._used = end, 0

    def trajectory(self, last: Sequence[int]) -> Trajectory:
        """Return everything so far; later steps do not change it.

        `last` is the state after the last step.
        """
        self._keep()
        states, actions, rewards = self._storage.whole(self._steps, last)
        return Trajectory(states, actions, rewards, self.structure)


class InMemory:
    """The states, actions and rewards of a recording in arrays as long as the run will be."""

    def __init__(self, columns: Columns) -> None:
        self._arrays = [np.empty((0, width), kind) for width, kind in columns]

    def limit(self) -> tuple[int, str]:
        """Return the free bytes, and a description of them."""
        return available_memory() // 2, "half of what is free"

    def lengthen(self, used: int, steps: int) -> None:
        """Reserve memory for so many steps in all, of which the first `used` are filled."""
        # One more row for the state after the last step. Growing by half avoids quadratic copying
        # over many short runs, and pages that are not yet written take no memory.
        capacity = len(self._arrays[0])
        if steps < capacity:
            return
        capacity = max(steps + 1, capacity + capacity // 2)
        longer = [np.empty((capacity, part.shape[1]), part.dtype) for part in self._arrays]
        for new, old in zip(longer, self._arrays, strict=True):
            new[:used] = old[:used]
        self._arrays = longer

    def put(self, first: int, parts: Sequence[NDArray[Any]]) -> None:
        """Store steps, from step `first` on."""
        for kept, part in zip(self._arrays, parts, strict=True):
            kept[first : first + len(part)] = part

    def whole(self, steps: int, last: Sequence[int]) -> tuple[NDArray[Any], ...]:
        """Return the arrays of so many steps, and of the state after them."""
        states, actions, rewards = self._arrays
        states[steps] = last
        return states[: steps + 1], actions[:steps], rewards[:steps]


class InFolder:
    """Three NumPy files (`numpy.load`), whose headers are updated after every chunk.

    A killed process leaves a shorter but valid recording.
    """

    def __init__(self, columns: Columns, folder: Path) -> None:
        self._columns = columns
        self._folder = folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
            taken = any(folder.iterdir())
        except (OSError, ValueError) as error:
            raise FileProblem(f"{folder}: cannot be recorded into ({reason(error)})") from None
        if taken:
            raise FileProblem(
                f"{folder}: is not empty; a recording needs a folder of its own, new or empty"
            )
        self._paths = [folder / f"{name}.npy" for name in ("states", "actions", "rewards")]
        self._heads = [len(_head(0, width, kind)) for width, kind in columns]
        self.put(0, [np.empty((0, width), kind) for width, kind in columns])

    def limit(self) -> tuple[int, str]:
        return shutil.disk_usage(self._folder).free, "what is free on its disk"

    def lengthen(self, used: int, steps: int) -> None:
        pass

    def put(self, first: int, parts: Sequence[NDArray[Any]]) -> None:
        for number, part in enumerate(parts):
            self._write(number, first, part)

    def _write(self, number: int, first: int, part: NDArray[Any]) -> None:
        width, kind = self._columns[number]
        try:
            path = self._paths[number]
            with path.open("r+b" if path.exists() else "x+b") as file:
                file.seek(self._heads[number] + first * width * kind.itemsize)
                # Never truncate: an earlier trajectory may still map the state after its end.
                file.write(part.astype(kind).tobytes())
                file.seek(0)
                file.write(_head(first + len(part), width, kind))
        except OSError as error:
            raise FileProblem(
                f"{self._paths[number]}: cannot be written ({reason(error)})"
            ) from None

    def whole(self, steps: int, last: Sequence[int]) -> tuple[NDArray[Any], ...]:
        self._write(0, steps, np.array([last]))
        return tuple(np.load(path, mmap_mode="r") for path in self._paths)


def _head(rows: int, width: int, kind: np.dtype[Any]) -> bytes:
    """Return the header of a NumPy file, whose length does not depend on the number of rows."""
    head = io.BytesIO()
    described = np.lib.format.dtype_to_descr(kind)
    np.lib.format.write_array_header_1_0(
        head, {"descr": described, "fortran_order": False, "shape": (rows, width)}
    )
    return head.getvalue()


def _smallest(sizes: Sequence[int]) -> np.dtype[Any]:
    """Return the smallest unsigned type that holds every value of these variables."""
    return np.min_scalar_type(max(sizes) - 1)
