"""Steps from the columns of a log: the role of each column, and every value as a number.

A column has the name of a state variable, an action variable or a reward factor. The next state is
in columns `next_NAME`, one for every state variable. Without these the log is a stream: the next
state is that of the next row, and a column `episode` or `run` marks where a stream ends. Of the
last row of a stream only the state is used.

A cell holds the name of a value, or the number that was listed as the value. Whole numbers are also
accepted as positions, counted from 0, if they cannot be mistaken for values: no number was listed,
and no name looks like a number that is not its own position.

The columns of `Trajectory.to_frame` are accepted too: `reward.NAME` for a reward factor; `t` and
`reward`, their sum, are skipped.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from fmdp._base.parameters import quoted
from fmdp.errors import InvalidParameter, did_you_mean
from fmdp.learning.statistics import RANGE_TOLERANCE
from fmdp.logs.tables import Block, Table
from fmdp.model import Structure
from fmdp.model.naming import listed_values, positions_are_clear
from fmdp.model.spaces import strides

NEXT = "next_"
MARKS = ("episode", "run")
OWN = "reward."
"""Prefix of reward factors in the columns of a trajectory."""


class Steps(NamedTuple):
    """Consecutive steps."""

    states: NDArray[np.int64]  # [n, m]
    actions: NDArray[np.int64]  # [n, action variables]
    rewards: NDArray[np.float64]  # [n, l]; [n, 0] where the log has none
    next_states: NDArray[np.int64]  # [n, m]
    where: Sequence[int]  # [n]: line, row or record number
    runs: int
    """Number of streams begun so far; 0 if every row has its own next state."""


@dataclass(frozen=True)
class Names:
    """Names of the variables and rewards of a log."""

    states: Sequence[str]
    actions: Sequence[str]
    rewards: Sequence[str]


@dataclass(frozen=True)
class Roles:
    """Places of the columns of each kind in a table."""

    states: tuple[int, ...]
    actions: tuple[int, ...]
    rewards: tuple[int, ...]
    next_states: tuple[int, ...] | None
    """None for a stream."""
    mark: int | None


class _Columns:
    """Columns of a table that have no role yet."""

    def __init__(self, table: Table, ignored: Sequence[str]) -> None:
        self._table = table
        places = {column: number for number, column in enumerate(table.columns)}
        for name in ignored:
            if name not in places:
                raise InvalidParameter(
                    f"{table.name}: there is no column {quoted(name)} to ignore"
                    f"{did_you_mean(name, places)}"
                )
        self.left = {c: number for c, number in places.items() if c not in ignored}

    def take(self, names: Sequence[str], what: str) -> tuple[int, ...]:
        """Return the places of these columns; raise InvalidParameter if one is missing."""
        return tuple(self._take(name, what) for name in names)

    def take_if_any(self, names: Sequence[str], what: str) -> tuple[int, ...] | None:
        """Return the places of these columns, or None if the table has none of them."""
        return self.take(names, what) if any(name in self.left for name in names) else None

    def _take(self, name: str, what: str) -> int:
        if name not in self.left:
            raise InvalidParameter(
                f"{self._table.name}: lacks the column {quoted(name)} of {what}; it has "
                f"{', '.join(self._table.columns[:50])}"
                f"{', ...' if len(self._table.columns) > 50 else ''}"
                f"{did_you_mean(name, self.left)}"
            )
        return self.left.pop(name)

    def refuse_rest(self, known: Sequence[str]) -> None:
        """Raise InvalidParameter if a column has no role."""
        for name in self.left:
            missing = [other for other in known if other not in self._table.columns]
            raise InvalidParameter(
                f"{self._table.name}: column {quoted(name)} is none of the model's variables and "
                f"rewards{did_you_mean(name, missing)}; it may be ignored by name"
            )


def roles_of(table: Table, names: Names, ignored: Sequence[str] = ()) -> Roles:
    """Return the role of every column; raise InvalidParameter for a missing or unknown one."""
    columns = _Columns(table, ignored)
    states = columns.take(names.states, "a state variable")
    actions = columns.take(names.actions, "an action variable")
    reward_names = list(names.rewards)
    if any(f"{OWN}{name}" in columns.left and name not in columns.left for name in reward_names):
        columns.left.pop("t", None)
        columns.left.pop("reward", None)
        reward_names = [f"{OWN}{name}" for name in reward_names]
    rewards = columns.take_if_any(reward_names, "a reward factor") or ()
    next_names = [f"{NEXT}{name}" for name in names.states]
    next_states = columns.take_if_any(next_names, "a next state")
    marks = [name for name in MARKS if name in columns.left]
    if len(marks) > 1 and next_states is None:
        raise InvalidParameter(
            f"{table.name}: both {' and '.join(marks)} could say where a stream ends; ignore one"
        )
    places = columns.take(marks, "a mark")
    columns.refuse_rest([*names.states, *names.actions, *reward_names, *next_names, *MARKS])
    mark = places[0] if places and next_states is None else None
    return Roles(states, actions, rewards, next_states, mark)


# ---- values --------------------------------------------------------------------------------------


def text_of(value: Any) -> str:
    """Return a value as the text that a CSV file would have; "" if it is missing."""
    if isinstance(value, str):
        return value.strip()
    if value is None or value != value:  # NaN
        return ""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))  # pandas has floats in a column of integers with a gap
    return str(value)


class Encoder(Protocol):
    """Maps the values of columns to numbers; raises InvalidParameter for unknown ones."""

    def variable(
        self, name: str, values: Sequence[Any], where: Sequence[int], column: str
    ) -> NDArray[np.int64]: ...

    def reward(
        self, name: str, values: Sequence[Any], where: Sequence[int], column: str
    ) -> NDArray[np.float64]: ...


def steps_of(table: Table, roles: Roles, names: Names, encoder: Encoder) -> Iterator[Steps]:
    """Yield all steps of a table in blocks; a stream holds one row back for its next state."""
    held: Block | None = None
    runs = 0
    for block in table.blocks():
        whole = block if held is None else _joined(held, block)
        n = len(whole.where)
        used: Sequence[int] = range(n)
        if roles.next_states is None:
            marks = None if roles.mark is None else list(map(text_of, whole.columns[roles.mark]))
            followed = [i for i in range(n - 1) if marks is None or marks[i] == marks[i + 1]]
            runs += (n - 1 - len(followed)) + (held is None)
            used, held = followed, _row(whole, n - 1)

        def read(read: Any, kind: Sequence[str], places: Sequence[int], rows: Sequence[int]) -> Any:
            where = [whole.where[i] for i in rows]  # noqa: B023 - called in this iteration only
            columns = [
                read(name, [whole.columns[at][i] for i in rows], where, table.columns[at])  # noqa: B023
                for name, at in zip(kind, places, strict=True)
            ]
            return np.stack(columns, axis=1) if columns else np.zeros((len(rows), 0))

        states = read(encoder.variable, names.states, roles.states, range(n))
        rewarded = names.rewards if roles.rewards else ()
        if roles.next_states is None:
            following = states[[i + 1 for i in used]]
        else:
            following = read(encoder.variable, names.states, roles.next_states, used)
        yield Steps(
            states[list(used)],
            read(encoder.variable, names.actions, roles.actions, used),
            read(encoder.reward, rewarded, roles.rewards, used),
            following,
            [whole.where[i] for i in used],
            runs,
        )


def _row(block: Block, at: int) -> Block:
    return Block(tuple([column[at]] for column in block.columns), [block.where[at]])


def _joined(one: Block, other: Block) -> Block:
    columns = tuple(a + b for a, b in zip(one.columns, other.columns, strict=True))
    return Block(columns, [*one.where, *other.where])


# ---- of a known structure ------------------------------------------------------------------------

Codes = dict[str, int]


def codes_of(values: Sequence[str]) -> Codes:
    """Return the number of every text that denotes a value of a variable."""
    codes = {name.strip(): number for number, name in enumerate(values)}
    if positions_are_clear(values):
        codes |= {str(number): number for number in range(len(values))}
    for number, value in enumerate(listed_values(values)):
        if isinstance(value, float):
            codes.setdefault(text_of(value), number)
    return codes


class KnownValues:
    """Encoder of the values and rewards of a structure."""

    def __init__(self, table: Table, structure: Structure) -> None:
        self._table = table
        s = structure
        self._values = dict(zip(s.names, s.values, strict=True))
        self._codes = {name: codes_of(values) for name, values in self._values.items()}
        self._ranges = dict(zip(s.reward_names, s.reward_ranges, strict=True))

    def variable(
        self, name: str, values: Sequence[Any], where: Sequence[int], column: str
    ) -> NDArray[np.int64]:
        codes = self._codes[name]
        encoded = np.array([codes.get(text_of(value), -1) for value in values], dtype=np.int64)
        if len(encoded) and encoded.min() < 0:
            first = int(np.argmin(encoded))
            text, known = text_of(values[first]), self._values[name]
            raise InvalidParameter(
                f"{self._table.at(where[first], column)}: "
                f"{'is empty' if not text else f'there is no value {quoted(text)}'}; must be one "
                f"of {', '.join(known[:12])}{', ...' if len(known) > 12 else ''}"
                f"{did_you_mean(text, known[:1000])}"
            )
        return encoded

    def reward(
        self, name: str, values: Sequence[Any], where: Sequence[int], column: str
    ) -> NDArray[np.float64]:
        lo, hi = self._ranges[name]
        numbers = numbers_of(self._table, values, where, column)
        slack = RANGE_TOLERANCE * max(hi - lo, abs(lo), abs(hi))
        outside = ~((numbers >= lo - slack) & (numbers <= hi + slack))
        if outside.any():
            first = int(np.argmax(outside))
            raise InvalidParameter(
                f"{self._table.at(where[first], column)}: reward {numbers[first]:g} is outside its "
                f"range [{lo:g}, {hi:g}]"
            )
        inside: NDArray[np.float64] = np.clip(numbers, lo, hi)
        return inside


def numbers_of(
    table: Table, values: Sequence[Any], where: Sequence[int], column: str
) -> NDArray[np.float64]:
    """Return the rewards of a column; raise InvalidParameter unless they are finite."""
    numbers = np.empty(len(values))
    for place, value in enumerate(values):
        try:
            number = math.nan if isinstance(value, bool) else float(value)
        except (TypeError, ValueError):
            number = math.nan
        if not math.isfinite(number):
            raise InvalidParameter(
                f"{table.at(where[place], column)}: a reward must be a finite number; got "
                f"{quoted(value)}"
            )
        numbers[place] = number
    return numbers


class Reader:
    """Reader of a log as steps of a structure."""

    def __init__(self, table: Table, structure: Structure, ignored: Sequence[str] = ()) -> None:
        s = structure
        self._table, self._structure = table, s
        self._names = Names(s.state_names, s.action_names, s.reward_names)
        self.roles = roles_of(table, self._names, ignored)

    @property
    def has_rewards(self) -> bool:
        """True if the log has rewards, or the structure has none."""
        return bool(self.roles.rewards) or self._structure.l == 0

    def steps(self) -> Iterator[Steps]:
        """Yield all steps in blocks; raise InvalidParameter for an invalid value or action."""
        known = KnownValues(self._table, self._structure)
        for steps in steps_of(self._table, self.roles, self._names, known):
            self._refuse_forbidden(steps)
            yield steps

    def _refuse_forbidden(self, steps: Steps) -> None:
        s = self._structure
        joint = np.concatenate([steps.states, steps.actions], axis=1)
        for constraint in s.constraints:
            scope = constraint.scope
            rows = joint[:, scope] @ np.array(strides(s.scope_sizes(scope)), dtype=np.int64)
            bad = constraint.forbidden_table(s.sizes)[rows]
            if bad.any():
                first = int(np.argmax(bad))
                raise InvalidParameter(
                    f"{self._table.at(steps.where[first])}: {constraint.label(s.names)} forbids "
                    f"this action in this state"
                )
