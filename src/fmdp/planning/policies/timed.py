"""Policies that depend on the time: a table of actions for every step of a horizon.

Step t of a run uses stage t mod H: after the last of the H stages the horizon starts again from the
state in which it ended. In most plans the early stages are equal, so equal stages are stored once,
in memory and in files.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, ClassVar, overload

import numpy as np
from numpy.typing import NDArray

from fmdp._base.parameters import Integer, Number, quoted
from fmdp.errors import InvalidParameter
from fmdp.model.naming import ByName, ByNumber, Naming, Value
from fmdp.model.spaces import count
from fmdp.planning.policies.archive import Parts, StoredPolicy
from fmdp.planning.policies.policy import TablePolicy, smallest_unsigned

_STEP = Integer("step", 0, "the step of the run", low=0)
_DISCOUNT = Number("discount", 1.0, "what a step later counts", low=0.0, high=1.0)


class TimedPolicy(StoredPolicy):
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

    kind = "timed"
    _stage_kind: ClassVar[type[StoredPolicy]] = TablePolicy

    def __init__(self, stages: Sequence[TablePolicy], discount: float = 1.0) -> None:
        self.discount: float = _DISCOUNT.check(discount, "TimedPolicy")
        try:
            given = tuple(stages)
        except TypeError:
            given = ()
        if not given:
            raise InvalidParameter(
                f"the stages of a TimedPolicy must be tables, one a step; got {quoted(stages)}"
            )
        first = given[0]
        number_of: dict[bytes, int] = {}
        known: dict[int, int] = {}  # by identity: a plan hands in the same object again and again
        distinct: list[TablePolicy] = []
        for step, stage in enumerate(given):
            if id(stage) in known:
                continue
            self._check_stage(stage, step, first)
            number = number_of.setdefault(stage_digest(stage), len(distinct))
            if number == len(distinct):
                distinct.append(stage)
            known[id(stage)] = number
        self.stages: tuple[TablePolicy, ...] = tuple(distinct)
        self.stage_numbers: NDArray[np.int64] = np.array(
            [known[id(stage)] for stage in given], dtype=np.int64
        )
        self.stage_numbers.flags.writeable = False
        super().__init__(first.state_sizes, first.action_sizes, first.naming)
        # Ends of runs of equal stages, which are simulated at once.
        changes = np.flatnonzero(np.diff(self.stage_numbers)) + 1
        self._ends = np.append(changes, len(given))

    @classmethod
    def _check_stage(cls, stage: object, step: int, first: TablePolicy) -> None:
        """Raise InvalidParameter unless the stage is of the right kind and size."""
        if not isinstance(stage, cls._stage_kind):
            raise InvalidParameter(
                f"stage {step} of a {cls.__name__} must be a {cls._stage_kind.__name__}; "
                f"got {quoted(stage)}"
            )
        if (stage.state_sizes, stage.action_sizes) != (first.state_sizes, first.action_sizes):
            raise InvalidParameter(
                f"stage {step} of a {cls.__name__} is for state sizes {stage.state_sizes} and "
                f"action sizes {stage.action_sizes}; the first is for {first.state_sizes} and "
                f"{first.action_sizes}"
            )

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

    def take_names(self, naming: Naming) -> None:
        super().take_names(naming)
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

    def content(self) -> Parts:
        tables = np.stack([stage.actions for stage in self.stages])
        return {"discount": self.discount}, {"tables": tables, "stages": self.stage_numbers}


def stage_digest(stage: TablePolicy) -> bytes:
    """Return the digest by which equal stages are identified; collisions are negligible."""
    return hashlib.sha256(stage.actions.tobytes()).digest()


def stage_bytes(n_states: int, n_actions: int, horizon: int) -> int:
    """Return the memory of the stages of a horizon if no two of them are equal."""
    itemsize = np.dtype(smallest_unsigned(n_actions)).itemsize
    return horizon * (n_states * itemsize + 3 * 8)
