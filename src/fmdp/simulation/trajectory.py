"""Trajectories: every state, action and reward of a run, written down by the compiled loop.

The loop writes into a chunk of plain 32-bit integers; full chunks go into arrays of the smallest
type that holds the values, so that a step takes about (m + k) + 8 l bytes for m state variables, k
action variables and l rewards, and the whole run no more than its steps. What it will need is
known, and refused before it begins if it is more than half of the memory that is free; a recording
into a folder takes the memory of a chunk, whatever its length.
"""

from __future__ import annotations

import io
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeAlias

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

    Recorded into a folder, the arrays are read from its files when they are looked at.
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
    """Return the columns of a trajectory, as `fmdp.fit` reads them back.

    These are t (1 for the first step), every variable by its name as the step found it, reward.NAME
    of every reward factor, and their sum as reward. A variable that is called like one of these has
    "variable." before its name. A variable has the positions of its values, or the values
    themselves where a position could be mistaken for a value, as with the values 1, 2, 3.

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
        *zip(structure.state_names, states[:steps].T, structure.state_values, strict=True),
        *zip(structure.action_names, actions.T, structure.action_values, strict=True),
    ]
    for name, column, values in columns:
        taken = name in found or name == "reward" or name.startswith("reward.")
        found[f"variable.{name}" if taken else name] = _cells(column, values)
    for name, column in zip(structure.reward_names, rewards.T, strict=True):
        found[f"reward.{name}"] = column
    return found | {"reward": rewards.sum(axis=1)}


def _cells(places: NDArray[Any], values: Sequence[str]) -> NDArray[Any]:
    """Return the column of a variable: positions, or values where positions would mislead."""
    if are_numerals(values) or positions_are_clear(values):
        return places.astype(np.int64)
    listed = listed_values(values)
    kinds = {type(value) for value in listed}
    cells: NDArray[Any] = np.array(listed, dtype=None if kinds <= {int, float} else object)[places]
    return cells


class Recorder:
    """Writes steps down in chunks, and keeps them in memory, or in a folder with memory for a
    chunk alone.

    Parameters
    ----------
    structure
        Of the model.
    folder
        Where to keep the arrays, as files of NumPy; None is in memory.
    """

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
        self._kept: Kept = InMemory(columns) if folder is None else InFolder(columns, folder)
        self._a_step = sum(width * kind.itemsize for width, kind in columns)

    def reserve(self, steps: int) -> None:
        """Room for so many more steps; TooLarge where they would not fit."""
        self._keep()
        limit, of_what = self._kept.limit()
        needed = steps * self._a_step
        if needed > limit:
            raise TooLarge(
                f"to record {steps:,} steps takes {describe_bytes(needed)}; the limit is "
                f"{describe_bytes(limit)}, {of_what}: at most {limit // self._a_step:,} steps",
                needed_bytes=needed,
                limit_bytes=limit,
            )
        self._kept.lengthen(self._steps, self._steps + steps)

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
        first, end = self._steps, self._steps + self._used
        self._kept.lengthen(first, end)
        self._kept.put(first, tuple(part[: self._used] for part in self._chunk))
        self._steps, self._used = end, 0

    def trajectory(self, last: Sequence[int]) -> Trajectory:
        """Everything so far; `last` is the state after the last step, and the one before the next:
        what is written later changes nothing in it."""
        self._keep()
        states, actions, rewards = self._kept.whole(self._steps, last)
        return Trajectory(states, actions, rewards, self.structure)


class Kept(Protocol):
    """Where the three arrays of a recording are: states, actions, rewards."""

    def limit(self) -> tuple[int, str]:
        """How many bytes more there is room for, and what that is."""

    def lengthen(self, used: int, steps: int) -> None:
        """Room for so many steps in all, of which the first `used` are there."""

    def put(self, first: int, parts: Sequence[NDArray[Any]]) -> None:
        """Steps, from this one on."""

    def whole(self, steps: int, last: Sequence[int]) -> tuple[NDArray[Any], ...]:
        """The arrays of so many steps, and of the state after them."""


class InMemory:
    """Arrays that are as long as the run will be."""

    def __init__(self, columns: Columns) -> None:
        self._arrays = [np.empty((0, width), kind) for width, kind in columns]

    def limit(self) -> tuple[int, str]:
        return available_memory() // 2, "half of what is free"

    def lengthen(self, used: int, steps: int) -> None:
        # One more row for the state after the last. What is not yet written takes no memory; of
        # many short runs each does not copy all that were before.
        room = len(self._arrays[0])
        if steps < room:
            return
        room = max(steps + 1, room + room // 2)
        longer = [np.empty((room, part.shape[1]), part.dtype) for part in self._arrays]
        for new, old in zip(longer, self._arrays, strict=True):
            new[:used] = old[:used]
        self._arrays = longer

    def put(self, first: int, parts: Sequence[NDArray[Any]]) -> None:
        for kept, part in zip(self._arrays, parts, strict=True):
            kept[first : first + len(part)] = part

    def whole(self, steps: int, last: Sequence[int]) -> tuple[NDArray[Any], ...]:
        states, actions, rewards = self._arrays
        states[steps] = last
        return states[: steps + 1], actions[:steps], rewards[:steps]


class InFolder:
    """Three files of NumPy (`numpy.load`), whose heads say after every chunk how long they are:
    what a kill leaves behind is a shorter recording."""

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
        for place, part in enumerate(parts):
            self._write(place, first, part)

    def _write(self, place: int, first: int, part: NDArray[Any]) -> None:
        width, kind = self._columns[place]
        try:
            path = self._paths[place]
            with path.open("r+b" if path.exists() else "x+b") as file:
                file.seek(self._heads[place] + first * width * kind.itemsize)
                # Never shorter: an earlier trajectory may still look at the state after its end.
                file.write(part.astype(kind).tobytes())
                file.seek(0)
                file.write(_head(first + len(part), width, kind))
        except OSError as error:
            raise FileProblem(
                f"{self._paths[place]}: cannot be written ({reason(error)})"
            ) from None

    def whole(self, steps: int, last: Sequence[int]) -> tuple[NDArray[Any], ...]:
        self._write(0, steps, np.array([last]))
        return tuple(np.load(path, mmap_mode="r") for path in self._paths)


def _head(rows: int, width: int, kind: np.dtype[Any]) -> bytes:
    """The head of a file of NumPy, which has one length however many rows there are."""
    head = io.BytesIO()
    described = np.lib.format.dtype_to_descr(kind)
    np.lib.format.write_array_header_1_0(
        head, {"descr": described, "fortran_order": False, "shape": (rows, width)}
    )
    return head.getvalue()


def _smallest(sizes: Sequence[int]) -> np.dtype[Any]:
    """The smallest unsigned type that holds every value of these variables."""
    return np.min_scalar_type(max(sizes) - 1)
