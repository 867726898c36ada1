"""Fleets: models whose parts are independent but for budgets on their actions.

A part is a connected set of variables: those that occur together in a factor, or in a constraint
that is no budget. A budget is a linear cap (`AtMost`, `Budget`) on the action variables of several
parts. Parts with the same sizes, scopes and constraints have one `Shape`, and arrays are stacked
over its parts, so that nothing here is computed part by part but the grouping.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmdp._base.memory import describe_count
from fmdp.errors import InvalidModel
from fmdp.model import Structure
from fmdp.model.compositions import n_compositions
from fmdp.model.constraints import Budget, Constraint, LinearCap, Mask
from fmdp.model.groups import Groups
from fmdp.model.scopes import Scope
from fmdp.model.spaces import IndexArray, count, project

MOST_ENTRIES = 1 << 22
"""Most transition probabilities of one part, written out."""
MOST_BUDGETS = 64
"""Most budgets: the search for prices takes more rounds with each of them."""
_LONGEST_NAME = 60
"""Longest description of a budget without a name; a list of all its variables would be longer."""


@dataclass(frozen=True)
class Cap:
    """A budget that parts share: the sum of costs, in whole units, is at most `most`."""

    name: str
    most: int
    unit: float
    """Size of a unit, in the costs of the constraint."""
    limit: float
    """The limit as the constraint has it; `most` units may be less."""


@dataclass(frozen=True, eq=False)
class Shape:
    """The parts with the same sizes, scopes and constraints; variables are numbered in the part.

    In a part the state variables come first, then the action variables; both in the order of the
    whole.
    """

    state_sizes: tuple[int, ...]
    action_sizes: tuple[int, ...]
    transition_scopes: tuple[Scope, ...]
    reward_scopes: tuple[Scope, ...]
    allowed: Mask
    """[S, A]: whether the constraints within the part allow an action in a state."""
    parts: IndexArray
    """[n]: the numbers of the parts."""
    states: IndexArray
    """[n, state variables]: their numbers in the whole."""
    actions: IndexArray
    """[n, action variables]: their numbers in the whole, from m on."""
    rewards: IndexArray
    """[n, reward factors]: their numbers in the whole."""
    costs: NDArray[np.int64]
    """[n, budgets, A]: what each joint action of the part costs, in units."""

    @property
    def n_states(self) -> int:
        return count(self.state_sizes)

    @property
    def n_actions(self) -> int:
        return count(self.action_sizes)


@dataclass(frozen=True, eq=False)
class Fleet:
    """The parts of a structure, and the budgets that they share."""

    structure: Structure
    n_parts: int
    shapes: tuple[Shape, ...]
    caps: tuple[Cap, ...]
    constant_rewards: tuple[int, ...]
    """Reward factors that depend on nothing."""


@lru_cache(maxsize=8)
def fleet_of(structure: Structure) -> Fleet:
    """Return the parts and budgets of a structure; raise InvalidModel if it is not a fleet."""
    reason, fleet = _split(structure)
    if fleet is None:
        raise InvalidModel(f"planner coupled needs parts that share only budgets: {reason}")
    return fleet


def fewest_counts(structure: Structure) -> int:
    """Return how many count vectors a fleet has if all its parts of one shape are equal."""
    shapes = fleet_of(structure).shapes
    return math.prod(n_compositions(len(shape.parts), shape.n_states) for shape in shapes)


def what_parts_share(structure: Structure) -> str | None:
    """Return how several parts depend on each other; None if they share more than budgets."""
    try:
        fleet = fleet_of(structure)
    except InvalidModel:
        return None
    if fleet.n_parts == 1:
        return None
    return "its parts share budgets only" if fleet.caps else "its parts are independent"


def _split(structure: Structure) -> tuple[str, Fleet | None]:
    if structure.derived:
        return "it has derived variables", None
    linear = [c for c in structure.constraints if isinstance(c, LinearCap)]
    other = [c for c in structure.constraints if not isinstance(c, LinearCap)]
    groups = _connected(structure, other)
    owner = np.empty(len(structure.sizes), dtype=np.int64)
    for number, group in enumerate(groups):
        owner[group] = number
    shared = [c for c in linear if len(np.unique(owner[list(c.actions)])) > 1]
    if len(shared) > MOST_BUDGETS:
        return f"it has {len(shared)} budgets, and at most {MOST_BUDGETS} can be priced", None
    priced = set(map(id, shared))
    local = [c for c in structure.constraints if id(c) not in priced]
    for group in groups:
        n_states = count([structure.sizes[v] for v in group if v < structure.m])
        n_pairs = count([structure.sizes[v] for v in group])
        if n_states * n_pairs > MOST_ENTRIES:
            size = f"a part of {describe_count(n_pairs)} (state, action) pairs"
            return f"{_joining(structure, other)} joins variables to {size}, too many", None
    parts = _Parts(structure, groups, owner, local, shared)
    refusal = parts.refusal()
    return (refusal, None) if refusal else ("", parts.fleet())


def _connected(structure: Structure, local: Sequence[Constraint]) -> list[list[int]]:
    """Return the sets of variables that factors and constraints other than budgets join."""
    joined = Groups(len(structure.sizes))
    joined.join_all((i, *scope) for i, scope in enumerate(structure.transition_scopes))
    joined.join_all(structure.reward_scopes)
    joined.join_all(constraint.scope for constraint in local)
    return joined.members()


def _joining(structure: Structure, local: Sequence[Constraint]) -> str:
    """Return the label of the factor or constraint that joins the most variables.

    Each state variable and the actions that move it count as one.
    """
    names, m = structure.names, structure.m
    own = Groups(len(structure.sizes))
    for i, scope in enumerate(structure.transition_scopes):
        own.join_all([(i, *(v for v in scope if v >= m))])
    labelled = [
        (f"the next value of {names[i]}", {i, *scope})
        for i, scope in enumerate(structure.transition_scopes)
    ]
    labelled += [
        (f"reward {name}", set(scope))
        for name, scope in zip(structure.reward_names, structure.reward_scopes, strict=True)
    ]
    labelled += [(c.label(names), set(c.scope)) for c in local]
    label, variables = max(
        labelled, key=lambda one: (len({own.leader(v) for v in one[1]}), len(one[1]))
    )
    listed = [names[v] for v in sorted(variables)]
    shown = ", ".join(listed[:4]) + (f" and {len(listed) - 4} more" if len(listed) > 4 else "")
    return f"{label} (over {shown})"


class _Parts:
    """Groups the parts of a structure by their shapes."""

    def __init__(
        self,
        structure: Structure,
        groups: list[list[int]],
        owner: IndexArray,
        local: Sequence[Constraint],
        shared: Sequence[LinearCap],
    ) -> None:
        self.structure = structure
        self.groups = groups
        self.rewards: list[list[int]] = [[] for _ in groups]
        self.constants: list[int] = []
        for k, scope in enumerate(structure.reward_scopes):
            if scope:
                self.rewards[owner[scope[0]]].append(k)
            else:
                self.constants.append(k)
        self.constraints: dict[int, list[Constraint]] = {}
        for constraint in local:
            self.constraints.setdefault(int(owner[constraint.scope[0]]), []).append(constraint)
        self.caps = tuple(_cap(constraint, structure) for constraint in shared)
        self.unit_costs = [_unit_costs(constraint, structure) for constraint in shared]
        by_signature: dict[Any, list[int]] = {}
        for number in range(len(groups)):
            by_signature.setdefault(self._signature(number), []).append(number)
        self.shapes = tuple(self._shape(key, numbers) for key, numbers in by_signature.items())

    def _signature(self, number: int) -> tuple[Any, ...]:
        structure, group = self.structure, self.groups[number]
        place = {v: p for p, v in enumerate(group)}
        sizes = structure.sizes
        states = [v for v in group if v < structure.m]

        def within(scope: Scope) -> Scope:
            return tuple(place[v] for v in scope)

        constraints: tuple[Constraint, ...] = ()
        if number in self.constraints:
            # Only the numbers of the scope are looked up.
            numbers: Any = place
            constraints = tuple(c.renumbered(numbers, sizes) for c in self.constraints[number])
        return (
            tuple(sizes[v] for v in states),
            tuple(sizes[v] for v in group[len(states) :]),
            tuple(within(structure.transition_scopes[v]) for v in states),
            tuple(within(structure.reward_scopes[k]) for k in self.rewards[number]),
            constraints,
        )

    def _shape(self, key: tuple[Any, ...], numbers: list[int]) -> Shape:
        state_sizes, action_sizes, transition_scopes, reward_scopes, constraints = key
        sizes = (*state_sizes, *action_sizes)
        m, width = len(state_sizes), len(sizes)
        shape = count(state_sizes), count(action_sizes)
        forbidden = np.zeros(count(sizes), dtype=np.bool_)
        for constraint in constraints:
            forbidden |= constraint.forbidden_table(sizes)[project(sizes, constraint.scope)]
        variables = np.array([self.groups[n] for n in numbers], dtype=np.int64)
        variables = variables.reshape(len(numbers), width)
        actions = variables[:, m:]
        costs = np.zeros((len(numbers), len(self.caps), shape[1]), dtype=np.int64)
        for k, cost_of in enumerate(self.unit_costs):
            for place, size in enumerate(action_sizes):
                free = np.zeros(size, dtype=np.int64)
                rows = np.stack([cost_of.get(v, free) for v in actions[:, place].tolist()])
                costs[:, k] += rows[:, project(action_sizes, [place])]
        return Shape(
            state_sizes,
            action_sizes,
            transition_scopes,
            reward_scopes,
            ~forbidden.reshape(shape),
            np.array(numbers, dtype=np.int64),
            variables[:, :m],
            actions,
            np.array([self.rewards[n] for n in numbers], dtype=np.int64).reshape(len(numbers), -1),
            costs,
        )

    def refusal(self) -> str:
        """Return which budget cannot be met in some state by cheapest actions; or nothing."""
        least = np.zeros(len(self.caps), dtype=np.int64)
        for shape in self.shapes:
            cheapest = cheapest_actions(shape.allowed, shape.costs)
            lowest = _lowest_costs(shape)
            base = np.take_along_axis(shape.costs, cheapest, axis=2) if len(self.caps) else lowest
            unmet = (base > lowest).any(axis=(1, 2))
            if unmet.any():
                v = int(shape.actions[int(unmet.argmax()), 0])
                return (
                    f"no action of {self.structure.names[v]} costs least in all budgets, "
                    f"so that none is sure to meet them"
                )
            least += lowest.max(axis=2).sum(axis=0)
        for cap, sum_of_least in zip(self.caps, least, strict=True):
            if sum_of_least > cap.most:
                return (
                    f"{cap.name} has the limit {cap.limit:g}, and the cheapest actions "
                    f"may cost {sum_of_least * cap.unit:g}"
                )
        return ""

    def fleet(self) -> Fleet:
        return Fleet(
            self.structure, len(self.groups), self.shapes, self.caps, tuple(self.constants)
        )


def cheapest_actions(allowed: Mask, costs: NDArray[np.int64]) -> IndexArray:
    """Return for each part and state the first allowed action with the least sum of costs.

    `allowed` is [S, A], `costs` [n, budgets, A]; the result is [n, 1, S].
    """
    total = costs.sum(axis=1)[:, None, :]
    high = int(total.max(initial=0)) + 1
    cheapest: IndexArray = np.where(allowed, total, high).argmin(axis=2)[:, None, :]
    return cheapest


def _lowest_costs(shape: Shape) -> NDArray[np.int64]:
    """Return what the cheapest allowed action costs: [n, budgets, S]."""
    costs = np.where(shape.allowed, shape.costs[:, :, None, :], np.iinfo(np.int64).max)
    lowest: NDArray[np.int64] = costs.min(axis=3)
    return lowest


def affordable_actions(fleet: Fleet) -> list[Mask]:
    """Return for each shape which actions a part can take if the others cost least: [n, A].

    Without the other actions the bound is lower, and a limit of 0 needs no price.
    """
    lowest = [_lowest_costs(shape).min(axis=2) for shape in fleet.shapes]
    limits = np.array([cap.most for cap in fleet.caps], dtype=np.int64)
    left = limits - sum(of_shape.sum(axis=0) for of_shape in lowest)
    return [
        (shape.costs - of_shape[:, :, None] <= left[:, None]).all(axis=1)
        for shape, of_shape in zip(fleet.shapes, lowest, strict=True)
    ]


def _unit_costs(constraint: LinearCap, structure: Structure) -> dict[int, IndexArray]:
    """Return the cost of each value of the action variables that it names, in units."""
    costs = constraint.unit_costs(structure.sizes)
    return dict(zip(constraint.actions, costs, strict=True))


def _cap(constraint: LinearCap, structure: Structure) -> Cap:
    name = constraint.name or constraint.label(structure.names)
    if len(name) > _LONGEST_NAME:
        name = f"the cap on {len(constraint.actions)} actions"
    limit = constraint.limit if isinstance(constraint, Budget) else float(constraint.most_units)
    return Cap(name, constraint.most_units, _unit(constraint), limit)


def _unit(constraint: LinearCap) -> float:
    """Return the size of a unit in the costs of the constraint."""
    if not isinstance(constraint, Budget):
        return 1.0
    units = constraint.unit_costs(())
    for row, in_units in zip(constraint.costs, units, strict=True):
        for cost, number in zip(row, in_units.tolist(), strict=True):
            if number:
                unit: float = cost / number
                return unit
    return 1.0
