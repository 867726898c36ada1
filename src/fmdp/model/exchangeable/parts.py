"""Groups of exchangeable parts, and factors in terms of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fmdp.model.factored import FactoredMDP

Array = NDArray[Any]

TRANSITION, REWARD, FORBIDDEN = "transition", "reward", "forbidden"


@dataclass(frozen=True)
class Group:
    """Exchangeable parts: variables by part and slot, and the shared action that addresses them."""

    states: tuple[tuple[int, ...], ...]
    """[parts][slots]: state variables."""
    actions: tuple[tuple[int, ...], ...]
    """[parts][slots]: action variables of each part alone; may be empty."""
    selector: int | None = None
    """The shared action variable whose values address the parts, if there is one."""
    values: tuple[tuple[int, ...], ...] = ()
    """[parts][kinds]: the values of the selector that address each part, in each way."""

    @property
    def n_parts(self) -> int:
        return len(self.states)

    def variables(self, part: int) -> tuple[int, ...]:
        """Return the variables of a part by slot: states, then actions."""
        return self.states[part] + self.actions[part]


class Mode(NamedTuple):
    """A set of values of a selector that exchanging parts does not distinguish."""

    group: int
    """The group of which a part is addressed; -1 for a value that addresses no part."""
    kind: int
    """The way in which it is addressed, or the value."""


class PartFactor(NamedTuple):
    """A factor of one part in local terms, the same for all parts of its group."""

    kind: str
    number: int
    """Slot of the next value for a transition; otherwise 0."""
    slots: tuple[int, ...]
    """Variables of the part in its scope, by slot."""
    shared: tuple[int, ...]
    """Common variables and aggregates in its scope."""
    table: Array
    """[sizes of the slots, sizes of the shared variables, outcomes]. The axis of the selector of
    the group has one entry per mode (`Exchangeable.modes`), and after them one for each way in
    which the selector addresses this part."""


class CommonFactor(NamedTuple):
    """A factor that belongs to no part, as a function of common variables and counts."""

    kind: str
    number: int
    """State variable or reward factor."""
    shared: tuple[int, ...]
    blocks: tuple[tuple[int, tuple[int, ...]], ...]
    """(group, slots): parts whose variables are in its scope."""
    table: Array
    """[sizes of the shared variables, counts of each block, outcomes]; counts of the joint values
    of the slots, by `composition_rank`."""


class AggregateStep(NamedTuple):
    """The next members of a sum: one common variable, or a slot of all parts of a group."""

    variable: int
    """The common variable; -1 for a group."""
    block: tuple[int, tuple[int, ...]] | None
    classes: NDArray[np.int64]
    """Class of each value of the slot; values that always contribute alike share one."""
    table: NDArray[np.int64]
    """[value before, value of the variable or rank of the counts of classes]: value after."""


class SymmetricSum(NamedTuple):
    """A derived count or sum as a function of common variables and counts."""

    number: int
    size: int
    steps: tuple[AggregateStep, ...]


class Cap(NamedTuple):
    """An `AtMost`: at most so many of these action variables are active."""

    most: int
    common: tuple[tuple[int, int], ...]
    """(action variable, idle value); a selector counts by its modes."""
    of_parts: tuple[tuple[int, int, int], ...]
    """(group, slot, idle value)."""


@dataclass(frozen=True, eq=False)
class Exchangeable:
    """The groups of exchangeable parts of a model, and its factors in terms of them."""

    model: FactoredMDP
    """The model whose only derived variables are counts and sums over many variables."""
    groups: tuple[Group, ...]
    common_states: tuple[int, ...]
    common_actions: tuple[int, ...]
    modes: dict[int, tuple[Mode, ...]]
    """For each selector its modes."""
    part_factors: tuple[tuple[PartFactor, ...], ...]
    """By group, those of one part."""
    common_factors: tuple[CommonFactor, ...]
    sums: tuple[SymmetricSum, ...]
    caps: tuple[Cap, ...]
    reasons: tuple[str, ...] = ()
    """Why other parts that look alike are not exchangeable, one line each."""

    def size(self, variable: int) -> int:
        """Return the number of values of a shared variable: of modes for a selector."""
        if variable in self.modes:
            return len(self.modes[variable])
        return self.model.structure.all_sizes[variable]


class NotExchangeable(Exception):
    """The parts of a group are not exchangeable; the text names the difference.

    `group` is the number of the group, and `keep` are classes of its parts that may be.
    """

    def __init__(self, text: str, group: int = 0, keep: tuple[tuple[int, ...], ...] = ()) -> None:
        super().__init__(text)
        self.group = group
        self.keep = keep

    def left(self, candidates: Sequence[Group]) -> list[Group]:
        """Return the groups without the one that failed, or with its parts that may remain."""
        failed = candidates[self.group]
        smaller = [
            Group(
                tuple(failed.states[p] for p in parts),
                tuple(failed.actions[p] for p in parts),
                failed.selector,
                tuple(failed.values[p] for p in parts) if failed.values else (),
            )
            for parts in self.keep
            if 1 < len(parts) < failed.n_parts
        ]
        before, after = candidates[: self.group], candidates[self.group + 1 :]
        return [*before, *smaller, *after]
