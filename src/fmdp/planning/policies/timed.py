"""Policies that depend on the time: a table of actions for every step of a horizon.

Step t of a run uses stage t mod H: after the last of the H stages the horizon starts again from the
state in which it ended. In most plans the early stages are equal, so equal stages are stored once,
in memory and in files.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, overload

import numpy as np
from numpy.typing import NDArray

from fmdp._base.parameters import Integer, Number, quoted
from fmdp.errors import InvalidParameter
from fmdp.model.naming import ByName, ByNumber, Naming, Value
from fmdp.model.spaces import count
from fmdp.planning.policies.archive import Parts, array_in, sizes_in, write_policy
from fmdp.planning.policies.policy import TablePolicy, smallest_unsigned

_STEP = Integer("step", 0, "the step of the run", low=0)
_DISCOUNT = Number("discount", 1.0, "what a step later counts", low=0.0, high=1.0)


class TimedPolicy:
    """One table of actions for every step of a horizon.

    Parameters
    ----------
    stages
        The policy of every step in order: tables over the same states and actions.
    discount
        The discount that `evaluate` applies per step; 1 is a plain sum.

    Raises
    ------
    InvalidParameter
        If there is no stage, a stage is not a TablePolicy, or their sizes differ.
    """

    kind: ClassVar[str] = "timed"

    def __init__(self, stages: Sequence[TablePolicy], discount: float = 1.0) -> None:
        self.discount: float = _DISCOUNT.check(discount, "TimedPolicy")
        number_of: dict[bytes, int] = {}
        known: dict[int, int] = {}  # by identity: a plan hands in the same object again and again
        distinct: list[TablePolicy] = []
        numbers: list[int] = []
        try:
            given = tuple(stages)
        except TypeError:
            given = ()
        if not given:
            raise InvalidParameter(
                f"the stages of a TimedPolicy must be tables, one a step; got {quoted(stages)}"
            )
        for stage in given:
            if not isinstance(stage, TablePolicy):
                raise InvalidParameter(
                    f"stage {len(numbers)} of a TimedPolicy must be a TablePolicy; "
                    f"got {quoted(stage)}"
                )
            if id(stage) not in known:
                first = given[0]
                sizes = (stage.state_sizes, stage.action_sizes)
                if sizes != (first.state_sizes, first.action_sizes):
                    raise InvalidParameter(
                        f"stage {len(numbers)} of a TimedPolicy is for state sizes {sizes[0]} and "
                        f"action sizes {sizes[1]}; the first is for {first.state_sizes} and "
                        f"{first.action_sizes}"
                    )
                digest = stage_digest(stage)
                if digest not in number_of:
                    number_of[digest] = len(distinct)
                    distinct.append(stage)
                known[id(stage)] = number_of[digest]
            numbers.append(known[id(stage)])
        self.stages: tuple[TablePolicy, ...] = tuple(distinct)
        self.stage_numbers: NDArray[np.int64] = np.array(numbers, dtype=np.int64)
        self.stage_numbers.flags.writeable = False
        self.state_sizes = distinct[0].state_sizes
        self.action_sizes = distinct[0].action_sizes
        # Ends of runs of equal stages, which are simulated at once.
        changes = np.flatnonzero(np.diff(self.stage_numbers)) + 1
        self._ends = np.append(changes, len(numbers))

    @property
    def horizon(self) -> int:
        """The number of steps H."""
        return len(self.stage_numbers)

    def stage(self, step: int) -> TablePolicy:
        """Return the table of one step.

        Parameters
        ----------
        step
            Of the run, at least 0; it uses stage `step` mod H.
        """
        step = _STEP.check(step, "TimedPolicy") % self.horizon
        return self.stages[int(self.stage_numbers[step])]

    def steps_alike(self, step: int) -> int:
        """Return for how many steps from this one on the table stays the same within the horizon.

        Parameters
        ----------
        step
            Of the run, at least 0.
        """
        step = _STEP.check(step, "TimedPolicy") % self.horizon
        return int(self._ends[np.searchsorted(self._ends, step, side="right")]) - step

    @property
    def naming(self) -> Naming:
        """The names of variables and values."""
        return self.stages[0].naming

    def take_names(self, naming: Naming) -> None:
        """Replace the names of variables and values.

        Parameters
        ----------
        naming
            As `structure.naming`, for variables of the same sizes.
        """
        for stage in self.stages:
            stage.take_names(naming)

    @overload
    def __call__(  # type: ignore[overload-overlap]
        self, state: ByName, step: int = 0
    ) -> dict[str, Value]: ...
    @overload
    def __call__(self, state: ByNumber, step: int = 0) -> tuple[int, ...]: ...
    def __call__(self, state: Any, step: int = 0) -> Any:
        """Return the action in a state.

        Parameters
        ----------
        state
            One position or name of a value per state variable; or a mapping or a text by name.
        step
            The number of steps already taken, at least 0. After the last step of the horizon it
            starts again.

        Returns
        -------
        tuple[int, ...] or dict[str, str | int | float]
            One position per action variable. For a mapping or a text, the value of each action
            variable by its name.

        Raises
        ------
        InvalidParameter
            If it is not a state of the policy, or not a step.
        """
        return self.stage(step)(state)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, TimedPolicy)
            and self.discount == other.discount
            and self.stages == other.stages
            and np.array_equal(self.stage_numbers, other.stage_numbers)
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return (
            f"TimedPolicy({self.horizon} steps, {len(self.stages)} different stages, "
            f"{count(self.state_sizes)} states)"
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the policy to a file that `load_policy` reads.

        Parameters
        ----------
        path
            The file; an existing file is replaced atomically.

        Raises
        ------
        FileProblem
            If the file cannot be written.
        """
        write_policy(path, self)

    def parts(self) -> Parts:
        """Return the header entries and arrays of its file, without the names."""
        header = {
            "state_sizes": self.state_sizes,
            "action_sizes": self.action_sizes,
            "discount": self.discount,
        }
        tables = np.stack([stage.actions for stage in self.stages])
        return header, {"tables": tables, "stages": self.stage_numbers}

    @classmethod
    def from_archive(
        cls, header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]
    ) -> TimedPolicy:
        """Return the policy from the content of a file; `load_policy` calls it.

        Parameters
        ----------
        header
            Contains `state_sizes`, `action_sizes` and `discount`.
        arrays
            Contains `tables`, [distinct stages, S], and `stages`, [H]: the table of every step.
        """
        states, actions = sizes_in(header)
        tables = array_in(arrays, "tables", "u", (None, count(states)))
        numbers = array_in(arrays, "stages", "i", (None,), 0, len(tables) - 1)
        stages = [TablePolicy(states, actions, table) for table in tables]
        return cls([stages[number] for number in numbers.tolist()], header.get("discount", 1.0))


def stage_digest(stage: TablePolicy) -> bytes:
    """Return the digest by which equal stages are identified; collisions are negligible."""
    return hashlib.sha256(stage.actions.tobytes()).digest()


def stage_bytes(n_states: int, n_actions: int, horizon: int) -> int:
    """Return the memory of the stages of a horizon if no two of them are equal."""
    itemsize = np.dtype(smallest_unsigned(n_actions)).itemsize
    return horizon * (n_states * itemsize + 3 * 8)
