"""Constraints on actions: tables over small scopes, caps on active variables, and budgets.

An action a is allowed in state s if no constraint forbids x = (s, a):

    allowed(s, a) = not any_c forbidden_c(x[Z_c])

`Forbidden` is a table over a scope. `AtMost` limits how many action variables are active at once,
and `Budget` what the values of action variables cost together; both need no table. Constraints are
part of the structure: learners know them, planners maximise over the allowed actions, the simulator
refuses the others.
"""

from __future__ import annotations

import base64
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from operator import ne
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fmdp.errors import InvalidModel, TooLarge
from fmdp.model.naming import listed
from fmdp.model.spaces import (
    IndexArray,
    all_assignments,
    array_of,
    count,
    items,
    project,
    shown,
    sorted_numbers,
    strides,
    whole_number,
)

Mask = NDArray[np.bool_]


class Columns:
    """The positions of every variable in many (state, action), each array made when it is read."""

    def __init__(self, column: Callable[[int], Any]) -> None:
        self._column = column

    def __getitem__(self, variable: int) -> Any:
        return self._column(variable)


Joint: TypeAlias = Sequence[Any] | Columns

MOST_ROWS = 1 << 24
"""Most rows of the table of a constraint, and of the check that every state keeps an action."""

MOST_LISTED = 1 << 22
"""Most joint actions that are listed one by one."""

_MOST_UNITS = 1 << 53
"""Largest cost of a joint action, in the units in which all costs of a budget are whole."""


class Constraint(ABC):
    """Base of the kinds of constraints on actions: `Forbidden`, `AtMost`, `Budget`."""

    scope: tuple[int, ...]
    """The variables that it depends on, sorted: states 0 to m - 1, actions m, m + 1, ...."""
    name: str
    """Name in error messages; may be empty."""

    @abstractmethod
    def forbidden_table(self, sizes: Sequence[int]) -> Mask:
        """Return whether each assignment of the scope is forbidden: [|X[scope]|], in C order.

        `sizes` are those of all variables, states then actions.
        """

    @abstractmethod
    def forbids(self, joint: Joint, sizes: Sequence[int]) -> Any:
        """Return whether it forbids an action in a state, or each of several.

        `joint` is x = (state, action): one position per variable, states then actions, or an array
        of them, all of shapes that broadcast; not checked. `sizes` are those of all variables.
        """

    def forbids_rows(self, rows: IndexArray, sizes: Sequence[int]) -> Mask:
        """Return which of many x = (state, action), the `rows` [number, variables], it forbids.

        `sizes` are those of all variables, states then actions.
        """
        forbidden: Mask = self.forbids(Columns(lambda v: rows[:, v]), sizes)
        return forbidden

    @abstractmethod
    def renumbered(self, new: Sequence[int], sizes: Sequence[int]) -> Constraint:
        """Return the same constraint for renumbered variables.

        `new` has the new number of every variable, `sizes` the sizes by their old numbers.
        """

    @abstractmethod
    def content(self) -> tuple[Any, ...]:
        """Return its contents as plain values, for hashes."""

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.content() == other.content()

    def __hash__(self) -> int:
        return hash((type(self).__name__, self.content()))

    def label(self, names: Sequence[str] | None = None) -> str:
        """Return how error messages call it; with `names` None variables are numbers."""
        if self.name:
            return f'constraint "{self.name}"'
        return f"the constraint on {self._variables_label(self.scope, names)}"

    @staticmethod
    def _variables_label(variables: Sequence[int], names: Sequence[str] | None) -> str:
        if names is None or max(variables, default=0) >= len(names):
            return str(tuple(variables))
        return listed([names[v] for v in variables])


@dataclass(frozen=True, eq=False)
class Forbidden(Constraint):
    """A constraint that forbids some assignments of a scope.

    Parameters
    ----------
    scope
        Sorted numbers of variables, at least one of them an action variable.
    table
        Boolean array [|X[scope]|], in C order: True if forbidden. Copied.
    name
        Name in error messages.

    Raises
    ------
    InvalidModel
        If the scope or the table is not as above.
    """

    scope: tuple[int, ...]
    table: Mask
    name: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "scope", _scope(self.scope, "a constraint"))
        check_name(self.name)
        table = array_of(self.table)
        if table.dtype.kind != "b" or table.ndim != 1:
            raise InvalidModel(
                f"{self.label()}: the table must be true or false for each assignment of the "
                f"scope; got {shown(self.table)}"
            )
        table = table.copy()
        table.flags.writeable = False
        object.__setattr__(self, "table", table)

    def forbidden_table(self, sizes: Sequence[int]) -> Mask:
        return self.table

    def forbids(self, joint: Joint, sizes: Sequence[int]) -> Any:
        steps = strides([sizes[v] for v in self.scope])
        return self.table[sum(step * joint[v] for v, step in zip(self.scope, steps, strict=True))]

    def renumbered(self, new: Sequence[int], sizes: Sequence[int]) -> Forbidden:
        moved = [new[v] for v in self.scope]
        order = np.argsort(moved)
        cube = self.table.reshape([sizes[v] for v in self.scope])
        table = np.ascontiguousarray(cube.transpose(order)).reshape(-1)
        return Forbidden(tuple(sorted(moved)), table, self.name)

    def content(self) -> tuple[Any, ...]:
        return (self.scope, self.table.tobytes(), self.name)

    def __reduce__(self) -> tuple[type[Forbidden], tuple[Any, ...]]:
        return type(self), (self.scope, self.table, self.name)


class LinearCap(Constraint):
    """A limit on a sum over action variables: sum_v cost_v(a_v) <= limit.

    Costs are counted in units in which they and the limit are whole numbers, so that a sum is
    never rounded.
    """

    actions: tuple[int, ...]
    """The action variables that cost something, sorted."""

    @property
    def scope(self) -> tuple[int, ...]:  # type: ignore[override]
        """The action variables that are counted."""
        return self.actions

    @property
    @abstractmethod
    def most_units(self) -> int:
        """The limit, in units."""

    @abstractmethod
    def unit_costs(self, sizes: Sequence[int]) -> tuple[IndexArray, ...]:
        """Return for each action variable the cost of each of its values, in units, 0 or more.

        `sizes` are those of all variables, states then actions.
        """

    @abstractmethod
    def cheapest(self) -> tuple[int, ...]:
        """Return for each action variable the first value that costs least."""

    def forbidden_table(self, sizes: Sequence[int]) -> Mask:
        rows = count([sizes[v] for v in self.actions])
        if rows > MOST_ROWS:
            raise TooLarge(
                f"{self.label()}: a table over its {shown(rows)} joint actions has more "
                f"than {MOST_ROWS} entries",
                rows,
                MOST_ROWS,
            )
        total: IndexArray = np.zeros(1, dtype=np.int64)
        for costs in self.unit_costs(sizes):
            total = (total[:, None] + costs).reshape(-1)
        table: Mask = total > self.most_units
        return table


@dataclass(frozen=True, eq=False)
class AtMost(LinearCap):
    """A cap on the number of action variables that are active, that is not at their idle value.

    Parameters
    ----------
    actions
        Sorted numbers of action variables (m, m + 1, ...).
    most
        How many of them may be active at once, 0 or more.
    idle
        The idle value of each; 0 for all by default.
    name
        Name in error messages.

    Raises
    ------
    InvalidModel
        If these are not as above.
    """

    actions: tuple[int, ...]
    most: int
    idle: tuple[int, ...] = ()
    name: str = ""

    def __post_init__(self) -> None:
        check_name(self.name)
        actions = _scope(self.actions, "at most")
        most = whole_number(self.most)
        if most is None or most < 0:
            raise InvalidModel(
                f"at most {shown(self.most)} actions at once: must be a whole number, 0 or more"
            )
        idle = items(self.idle, "idle values") or (0,) * len(actions)
        values = tuple(whole_number(value) for value in idle)
        if len(values) != len(actions) or any(value is None or value < 0 for value in values):
            raise InvalidModel(
                f"at most {most}: idle values {shown(self.idle)} must be one whole number for "
                f"each of {len(actions)} action variables"
            )
        for field, value in (("actions", actions), ("most", most), ("idle", values)):
            object.__setattr__(self, field, value)

    @property
    def most_units(self) -> int:
        return self.most

    def unit_costs(self, sizes: Sequence[int]) -> tuple[IndexArray, ...]:
        return tuple((np.arange(sizes[v]) != idle).astype(np.int64) for v, idle in self.pairs())

    def cheapest(self) -> tuple[int, ...]:
        return self.idle

    def pairs(self) -> list[tuple[int, int]]:
        """Return each variable with its idle value."""
        return list(zip(self.actions, self.idle, strict=True))

    def forbids(self, joint: Joint, sizes: Sequence[int]) -> Any:
        if isinstance(joint, tuple):
            return sum(map(ne, [joint[v] for v in self.actions], self.idle)) > self.most
        return sum(joint[v] != idle for v, idle in self.pairs()) > self.most

    def forbids_rows(self, rows: IndexArray, sizes: Sequence[int]) -> Mask:
        columns, idle = self._arrays
        forbidden: Mask = (rows[:, columns] != idle).sum(axis=1) > self.most
        return forbidden

    @cached_property
    def _arrays(self) -> tuple[IndexArray, IndexArray]:
        return np.array(self.actions, dtype=np.int64), np.array(self.idle, dtype=np.int64)

    def __reduce__(self) -> tuple[type[AtMost], tuple[Any, ...]]:
        return type(self), (self.actions, self.most, self.idle, self.name)

    def renumbered(self, new: Sequence[int], sizes: Sequence[int]) -> AtMost:
        pairs = sorted((new[v], idle) for v, idle in self.pairs())
        return AtMost(tuple(v for v, _ in pairs), self.most, tuple(i for _, i in pairs), self.name)

    def content(self) -> tuple[Any, ...]:
        return (self.actions, self.most, self.idle, self.name)

    def label(self, names: Sequence[str] | None = None) -> str:
        if self.name:
            return super().label()
        return f"at most {self.most} of actions {self._variables_label(self.actions, names)}"


@dataclass(frozen=True, eq=False)
class Budget(LinearCap):
    """A budget that action variables share: the costs of their values sum to at most a limit.

    Costs and limit are compared as the decimal numbers that they are written as: three actions that
    cost 0.1 each keep a limit of 0.3.

    Parameters
    ----------
    actions
        Sorted numbers of action variables (m, m + 1, ...).
    limit
        The largest sum of costs.
    costs
        For each of these variables the cost of each of its values, 0 or more.
    name
        Name in error messages.

    Raises
    ------
    InvalidModel
        If these are not as above, or if every joint action costs more than the limit.
    """

    actions: tuple[int, ...]
    limit: float
    costs: tuple[tuple[float, ...], ...]
    name: str = ""

    def __post_init__(self) -> None:
        check_name(self.name)
        object.__setattr__(self, "actions", _scope(self.actions, "a budget"))
        limit = checked_cost(self.limit)
        if limit is None:
            raise InvalidModel(f"budget {shown(self.limit)}: must be a finite number, 0 or more")
        object.__setattr__(self, "limit", limit)
        given = items(self.costs, f"{self.label()}: costs")
        if len(given) != len(self.actions):
            raise InvalidModel(
                f"{self.label()}: costs of {len(given)} variables; must be {len(self.actions)}"
            )
        # Fleets have many variables with the same costs, which are stored once.
        stored: dict[tuple[float, ...], tuple[float, ...]] = {}
        rows = (self._checked_row(v, row) for v, row in zip(self.actions, given, strict=True))
        object.__setattr__(self, "costs", tuple(stored.setdefault(row, row) for row in rows))
        self._refuse_if_never_met()

    def _checked_row(self, v: int, costs: Any) -> tuple[float, ...]:
        given = items(costs, f"{self.label()}: costs of variable {v}")
        row = tuple(cost for cost in map(checked_cost, given) if cost is not None)
        if not row or len(row) != len(given):
            raise InvalidModel(
                f"{self.label()}: costs {shown(given)} of variable {v}; must be one finite number, "
                f"0 or more, for each of its values"
            )
        return row

    def _refuse_if_never_met(self) -> None:
        most, rows = self._in_units
        least = sum(int(row.min()) for row in rows)
        if least > most:
            cheapest = math.fsum(min(row) for row in self.costs)
            raise InvalidModel(
                f"{self.label()}: no action meets it: the cheapest costs {shown(cheapest)}; the "
                f"limit must be at least that"
            )

    @cached_property
    def _in_units(self) -> tuple[int, tuple[IndexArray, ...]]:
        """The limit and the costs as whole numbers of the largest unit that divides all costs."""
        # A float is read as the decimal number that it is printed as.
        distinct = {cost: Fraction(repr(cost)) for row in set(self.costs) for cost in row}
        scale = math.lcm(*(cost.denominator for cost in distinct.values()))
        divisor = math.gcd(*(int(cost * scale) for cost in distinct.values())) or 1
        units = {cost: int(value * scale) // divisor for cost, value in distinct.items()}
        total = sum(max(units[cost] for cost in row) for row in self.costs)
        if total > _MOST_UNITS:
            raise InvalidModel(
                f"{self.label()}: its costs have too many digits: the largest sum is "
                f"{shown(total)} times the largest number that divides all costs; must be at most "
                f"{_MOST_UNITS}"
            )
        most = min(total, math.floor(Fraction(repr(self.limit)) * scale / divisor))
        arrays: dict[tuple[float, ...], IndexArray] = {
            row: np.array([units[cost] for cost in row], dtype=np.int64) for row in set(self.costs)
        }
        return most, tuple(arrays[row] for row in self.costs)

    @property
    def most_units(self) -> int:
        return self._in_units[0]

    def unit_costs(self, sizes: Sequence[int]) -> tuple[IndexArray, ...]:
        return self._in_units[1]

    def cheapest(self) -> tuple[int, ...]:
        return tuple(row.index(min(row)) for row in self.costs)

    def forbids(self, joint: Joint, sizes: Sequence[int]) -> Any:
        most, rows = self._in_units
        return sum(row[joint[v]] for v, row in zip(self.actions, rows, strict=True)) > most

    def forbids_rows(self, rows: IndexArray, sizes: Sequence[int]) -> Mask:
        columns, first, costs = self._arrays
        forbidden: Mask = costs[first + rows[:, columns]].sum(axis=1) > self.most_units
        return forbidden

    @cached_property
    def _arrays(self) -> tuple[IndexArray, IndexArray, IndexArray]:
        """The action variables, the place of the first cost of each, and all costs in units."""
        rows = self._in_units[1]
        first = np.cumsum([0, *map(len, rows[:-1])])
        return np.array(self.actions, dtype=np.int64), first, np.concatenate(rows)

    def renumbered(self, new: Sequence[int], sizes: Sequence[int]) -> Budget:
        rows = sorted((new[v], row) for v, row in zip(self.actions, self.costs, strict=True))
        return Budget(tuple(v for v, _ in rows), self.limit, tuple(r for _, r in rows), self.name)

    def content(self) -> tuple[Any, ...]:
        return (self.actions, self.limit, self.costs, self.name)

    def label(self, names: Sequence[str] | None = None) -> str:
        if self.name:
            return super().label()
        of = self._variables_label(self.actions, names)
        return f"the budget {shown(self.limit)} of actions {of}"

    def __reduce__(self) -> tuple[type[Budget], tuple[Any, ...]]:
        return type(self), (self.actions, self.limit, self.costs, self.name)


def checked_cost(given: Any) -> float | None:
    """Return a finite number that is not negative, whole ones as ints; None for anything else."""
    whole = whole_number(given)
    if whole is None and not isinstance(given, float | np.floating):
        return None
    number = float(given) if whole is None else whole
    if not 0 <= number < math.inf:
        return None
    return int(number) if number == int(number) else number


_FIELDS: dict[str, tuple[type[LinearCap], tuple[str, ...]]] = {
    "at most": (AtMost, ("actions", "most", "idle", "name")),
    "budget": (Budget, ("actions", "limit", "costs", "name")),
}
"""Class and fields of the constraints that have no table, by their kind in files."""


def plain(constraint: Constraint) -> dict[str, Any]:
    """Return the constraint as plain JSON values; `from_plain` reads them back."""
    for kind, (cls, names) in _FIELDS.items():
        if isinstance(constraint, cls):
            return {"kind": kind} | {name: getattr(constraint, name) for name in names}
    assert isinstance(constraint, Forbidden)
    bits = base64.b64encode(np.packbits(constraint.table).tobytes()).decode("ascii")
    return {
        "kind": "forbidden",
        "scope": constraint.scope,
        "rows": len(constraint.table),
        "table": bits,
        "name": constraint.name,
    }


def from_plain(given: Any) -> Constraint:
    """Return the constraint that `plain` wrote, or raise InvalidModel."""
    kind = given.get("kind") if isinstance(given, dict) else None
    if isinstance(kind, str) and kind in _FIELDS:
        cls, names = _FIELDS[kind]
        return cls(*(given.get(name) for name in names))
    rows = whole_number(given.get("rows")) if kind == "forbidden" else None
    if rows is None or not 0 <= rows <= MOST_ROWS or not isinstance(given.get("table"), str):
        raise InvalidModel(f"a constraint in a file is {shown(given)}, which is none")
    try:
        packed = np.frombuffer(base64.b64decode(given["table"], validate=True), dtype=np.uint8)
        table = np.unpackbits(packed, count=rows).astype(np.bool_)
    except ValueError:
        raise InvalidModel(f"the table of a constraint in a file is {shown(given)}") from None
    if len(table) != rows or len(packed) != -(-rows // 8):
        raise InvalidModel(f"the table of a constraint in a file does not have {rows} entries")
    return Forbidden(given.get("scope"), table, given.get("name"))


def check_constraints(
    given: Iterable[Constraint], m: int, sizes: Sequence[int], names: Sequence[str] | None = None
) -> tuple[Constraint, ...]:
    """Return the constraints as a tuple, or raise InvalidModel on the first that does not fit."""
    constraints = items(given, "constraints")
    for index, constraint in enumerate(constraints):
        if not isinstance(constraint, Constraint):
            raise InvalidModel(
                f"constraint {index} is {shown(constraint)}; must be a Forbidden, an AtMost or a "
                f"Budget"
            )
        label = constraint.label(names)
        outside = [v for v in constraint.scope if v >= len(sizes)]
        if outside:
            raise InvalidModel(
                f"{label}: variable {outside[0]} is none; must be in 0..{len(sizes) - 1}"
            )
        if not any(v >= m for v in constraint.scope):
            raise InvalidModel(f"{label}: its scope must have an action variable")
        if isinstance(constraint, AtMost):
            for v, idle in constraint.pairs():
                if v < m or idle >= sizes[v]:
                    raise InvalidModel(
                        f"{label}: variable {v} with idle value {idle}; must be an action "
                        f"variable with that value"
                    )
        elif isinstance(constraint, Budget):
            for v, row in zip(constraint.actions, constraint.costs, strict=True):
                if v < m or len(row) != sizes[v]:
                    raise InvalidModel(
                        f"{label}: variable {v} with {len(row)} costs; must be an action variable "
                        f"with one cost for each of its {sizes[v]} values"
                    )
        elif isinstance(constraint, Forbidden):
            rows = count([sizes[v] for v in constraint.scope])
            if len(constraint.table) != rows:
                raise InvalidModel(
                    f"{label}: the table has {len(constraint.table)} entries; must have "
                    f"{shown(rows)}, one per assignment of its scope"
                )
    return constraints


def combinations_in(
    constraints: Sequence[Constraint], state: Sequence[int], m: int, sizes: Sequence[int]
) -> IndexArray:
    """Return the joint actions that are allowed in a state: [A', action variables]."""
    on_actions: list[Constraint] = []
    for constraint in constraints:
        if isinstance(constraint, LinearCap):
            on_actions.append(constraint)
            continue
        cube = constraint.forbidden_table(sizes).reshape([sizes[v] for v in constraint.scope])
        cut = cube[tuple(int(state[v]) if v < m else slice(None) for v in constraint.scope)]
        on_actions.append(Forbidden(tuple(v for v in constraint.scope if v >= m), cut.reshape(-1)))
    return allowed_combinations(on_actions, m, sizes)


def allowed_combinations(
    constraints: Sequence[Constraint], m: int, sizes: Sequence[int]
) -> IndexArray:
    """Return the joint actions that constraints on actions alone allow, in C order.

    The array [A', action variables] grows by one variable at a time, and forbidden rows are dropped
    at once: at most two active of forty are 821 joint actions, and 2^40 are never listed.
    """
    if not constraints:
        return all_assignments(sizes[m:])
    mentioned = {v for constraint in constraints for v in constraint.scope}
    free = count([size for v, size in enumerate(sizes[m:], start=m) if v not in mentioned])
    if len(constraints) == 1 and isinstance(constraints[0], LinearCap):
        _refuse_to_list(free * _number_allowed(constraints[0], sizes))
    left: IndexArray = np.zeros((1, 0), dtype=np.int64)
    for place, size in enumerate(sizes[m:]):
        _refuse_to_list(max(free, len(left) * size))
        column = np.tile(np.arange(size, dtype=np.int64), len(left))[:, None]
        left = np.concatenate([np.repeat(left, size, axis=0), column], axis=1)
        for constraint in constraints:
            if isinstance(constraint, LinearCap):
                # Further variables only add to the sum, so the limit holds for the first ones too.
                rows_of = zip(constraint.actions, constraint.unit_costs(sizes), strict=True)
                known = [(v - m, costs) for v, costs in rows_of if v <= m + place]
                spent = sum((costs[left[:, v]] for v, costs in known), np.zeros(len(left), int))
                left = left[spent <= constraint.most_units]
            elif constraint.scope[-1] == m + place:
                steps = strides([sizes[v] for v in constraint.scope])
                rows = left[:, [v - m for v in constraint.scope]] @ np.array(steps, dtype=np.int64)
                left = left[~constraint.forbidden_table(sizes)[rows]]
    return left


def _refuse_to_list(number: int) -> None:
    if number > MOST_LISTED:
        raise TooLarge(
            f"the allowed joint actions cannot be listed: there are more than {MOST_LISTED}",
            8 * number,
            8 * MOST_LISTED,
        )


def _number_allowed(cap: LinearCap, sizes: Sequence[int]) -> int:
    """Return the number of assignments that a cap allows, or some number above MOST_LISTED."""
    costs = [(row - row.min()).tolist() for row in cap.unit_costs(sizes)]
    left = cap.most_units - sum(int(row.min()) for row in cap.unit_costs(sizes))
    ways = {0: 1}  # the number of partial assignments, all of which can be completed, by their cost
    for row in costs:
        longer: dict[int, int] = {}
        for spent, number in ways.items():
            for cost in row:
                if spent + cost <= left:
                    longer[spent + cost] = longer.get(spent + cost, 0) + number
        ways = longer
        if sum(ways.values()) > MOST_LISTED:
            break
    return sum(ways.values())


def forbidden_choices(
    constraints: Sequence[Constraint], actions: IndexArray, m: int, sizes: Sequence[int]
) -> Mask:
    """Return in which joint states a policy [S] of joint action indices is forbidden: [S]."""
    state_sizes, action_sizes = sizes[:m], sizes[m:]
    steps = strides(action_sizes)

    def column(v: int) -> IndexArray:
        if v < m:
            return project(state_sizes, [v])
        return actions // steps[v - m] % action_sizes[v - m]

    forbidden = np.zeros(count(state_sizes), dtype=np.bool_)
    for constraint in constraints:
        forbidden |= constraint.forbids(Columns(column), sizes)
    return forbidden


def _scope(given: Any, label: str) -> tuple[int, ...]:
    scope = sorted_numbers(given, f"{label}: scope")
    if not scope:
        raise InvalidModel(f"{label}: scope () must be sorted numbers of variables, at least one")
    return scope


def check_name(name: object) -> None:
    """Raise InvalidModel if it cannot be the name of a constraint."""
    if not isinstance(name, str) or not name.isprintable():
        raise InvalidModel(f"name {name!r} of a constraint: must be a printable string")
