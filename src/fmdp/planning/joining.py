"""Sums over the independent parts of a model: bounds, functions of the state, policies.

The gains, biases and values of a model with independent parts (model/independence.py) are sums over
the parts, and some optimal policy treats each part separately. The functions here convert between
the parts and the whole. Functions and policies of the whole are arrays over the joint states in C
order.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmdp.model import Structure
from fmdp.model.independence import Part, independent_parts
from fmdp.model.spaces import strides, weighted_index
from fmdp.planning.status import Status

Index = NDArray[np.int64]
Bounds = tuple[float | None, float | None]

LIMITING = (
    Status.INTERRUPTED,
    Status.TIME_LIMIT,
    Status.ITERATION_LIMIT,
    Status.PRECISION_LIMIT,
    Status.RELAXATION_LIMIT,
    Status.DISCOUNTED,
    Status.MULTICHAIN,
)
"""Statuses other than converged; the whole has the first one of these that a part has."""
JOINT_PAIRS = 1 << 13
"""Joint states times joint actions up to which a model is planned as a whole. Its sweeps then take
less time than the overhead of a plan per part (measured on products of JAO and RiverSwim)."""
MOST_JOINT_ACTIONS = 1 << 62
"""Most joint actions of a model that is planned by parts: their indices must fit into int64."""


def parts_to_plan(structure: Structure) -> tuple[Part, ...]:
    """Return the parts to plan one by one; empty if the model is planned as a whole."""
    pairs = structure.n_states * structure.n_actions
    if pairs <= JOINT_PAIRS or structure.n_actions > MOST_JOINT_ACTIONS:
        return ()
    return independent_parts(structure)


def joint_status(statuses: Iterable[Status]) -> Status:
    """Return the status of a whole from those of its parts; converged only if all are."""
    known = {*statuses}
    return next((status for status in LIMITING if status in known), Status.CONVERGED)


def sum_of_bounds(bounds: Sequence[Bounds]) -> Bounds:
    """Return the sums of lower and of upper bounds, rounded outwards; None if a term is None."""
    lower = rounded_sum([low for low, _ in bounds], towards=-math.inf)
    upper = rounded_sum([high for _, high in bounds], towards=math.inf)
    return lower, upper


def rounded_sum(values: Sequence[float | None], towards: float | None = None) -> float | None:
    """Return the sum; None if a value is None.

    With `towards` minus infinity the result is at most the exact sum, with infinity at least.
    """
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return None
    total = math.fsum(known) if all(map(math.isfinite, known)) else sum(known)
    if towards is None or not math.isfinite(total):
        return total
    error = Fraction(total) - sum(map(Fraction, known))
    outward = error <= 0 if towards < 0.0 else error >= 0
    return total if outward else math.nextafter(total, towards)


@dataclass(frozen=True, eq=False)
class Whole:
    """A structure together with its independent parts."""

    structure: Structure
    parts: tuple[Part, ...]

    def sum_over_states(self, values: Sequence[NDArray[Any]]) -> NDArray[Any]:
        """Return f(s) = sum_p f_p(s_p) over the joint states s; f_p is an array per part."""
        sizes = self.structure.state_sizes
        # Axes of size 1 are left out because NumPy allows at most 64 axes.
        axes = [v for v in range(self.structure.m) if sizes[v] > 1]
        total = np.zeros([sizes[v] for v in axes], dtype=np.result_type(*values))
        for part, array in zip(self.parts, values, strict=True):
            total += array.reshape([sizes[v] if v in part.states else 1 for v in axes])
        return total.reshape(-1)

    def by_variable(
        self, values: Sequence[Sequence[Any] | None], constant: Any
    ) -> tuple[Any, ...] | None:
        """Return one value per state variable from those of each part; None if a part has none.

        `constant` is for variables with a single value, which belong to no part.
        """
        ordered: list[Any] = [constant] * self.structure.m
        for part, values_of_part in zip(self.parts, values, strict=True):
            if values_of_part is None:
                return None
            for variable, value in zip(part.states, values_of_part, strict=False):
                ordered[variable] = value
        return tuple(ordered)

    def join_actions(self, actions: Sequence[NDArray[np.integer[Any]]]) -> Index:
        """Return the joint action of every joint state from the table of each part's policy."""
        terms = [
            self.joint_actions(part)[chosen]
            for part, chosen in zip(self.parts, actions, strict=True)
        ]
        return self.sum_over_states(terms)

    def split_actions(self, actions: Index) -> list[Index] | None:
        """Return the policy of each part; None if the action of a part depends on another part."""
        tables = [self._part_actions(part, actions[self.joint_states(part)]) for part in self.parts]
        return tables if np.array_equal(self.join_actions(tables), actions) else None

    def joint_states(self, part: Part) -> Index:
        """Return the joint states in which all variables outside a part are 0."""
        steps = strides(self.structure.state_sizes)
        weights = [steps[v] for v in part.states] or [0]
        return weighted_index(part.structure.state_sizes, weights)

    def joint_actions(self, part: Part) -> Index:
        """Return the joint actions in which all variables outside a part are 0."""
        steps = strides(self.structure.action_sizes)
        weights = [steps[v - self.structure.m] for v in part.actions] or [0]
        return weighted_index(part.structure.action_sizes, weights)

    def part_state(self, part: Part, state: int) -> int:
        """Return the index of the part's state inside a joint state."""
        return int(
            _restricted(state, self.structure.state_sizes, part.states, part.structure.state_sizes)
        )

    def _part_actions(self, part: Part, joint: Index) -> Index:
        """Return the index of the part's action inside each joint action."""
        variables = [v - self.structure.m for v in part.actions]
        sizes = self.structure.action_sizes, part.structure.action_sizes
        numbers: Index = np.zeros(len(joint), dtype=np.int64)
        numbers += _restricted(joint, sizes[0], variables, sizes[1])
        return numbers


def _restricted(
    joint: Any, sizes: Sequence[int], variables: Sequence[int], part_sizes: Sequence[int]
) -> Any:
    """Return joint indices restricted to some variables, as indices over the sizes of a part."""
    steps = strides(sizes)
    # A part without variables has one variable of a single value.
    pairs = zip(variables, strides(part_sizes), strict=False)
    return sum(joint // steps[v] % sizes[v] * step for v, step in pairs)
