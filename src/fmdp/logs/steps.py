"""Steps from the columns of a log: what each column means, and every value as a number.

A column is called like a state variable, an action variable or a reward factor. The next state is
in columns `next_NAME`, one for every state variable; or there are none, and the log is a stream:
the next state is that of the next row, and a column `episode` or `run` says where a stream ends.
Of the last row of a stream the state alone is read, since what came of it is not there.

A cell holds the name of a value, or the number that was listed as the value. Whole numbers are also
taken for positions, counted from 0, where they cannot be mistaken for values: no number was listed,
and no name looks like a number that is not its own position.

The columns of `Trajectory.to_frame` are known too: `reward.NAME` for a reward factor, while `t` and
`reward`, their sum, are left aside.
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
"""Before the name of a reward factor in the columns of a trajectory."""


class Steps(NamedTuple):
    """Some steps, in order."""

    states: NDArray[np.int64]  # [n, m]
    actions: NDArray[np.int64]  # [n, action variables]
    rewards: NDArray[np.float64]  # [n, l]; [n, 0] where the log has none
    next_states: NDArray[np.int64]  # [n, m]
    where: Sequence[int]  # [n]: line, row or number of record
    runs: int
    """How many streams have begun so far; 0 where every row has its own next state."""


@dataclass(frozen=True)
class Roles:
    """Where in a table the columns of each kind are."""

    states: tuple[int, ...]
    actions: tuple[int, ...]
    rewards: tuple[int, ...]
    next_states: tuple[int, ...] | None
    """None: a stream."""
    mark: int | None


def roles_of(
    table: Table,
    states: Sequence[str],
    actions: Sequence[str],
    rewards: Sequence[str],
    ignored: Sequence[str] = (),
) -> Roles:
    """Which column is what; InvalidParameter names the one that is missing or not known."""
    place = {column: number for number, column in enumerate(table.columns)}
    for name in ignored:
        if name not in place:
            raise InvalidParameter(
                f"{table.name}: there is no column {quoted(name)} to ignore"
                f"{did_you_mean(name, place)}"
            )
    left = {column: number for column, number in place.items() if column not in ignored}

    def take(name: str) -> int | None:
        return left.pop(name, None)

    def need(name: str, what: str) -> int:
        found = take(name)
        if found is None:
            raise InvalidParameter(
                f"{table.name}: lacks the column {quoted(name)} of {what}; it has "
                f"{', '.join(table.columns)}{did_you_mean(name, left)}"
            )
        return found

    of_states = tuple(need(name, "a state variable") for name in states)
    of_actions = tuple(need(name, "an action variable") for name in actions)
    own = [name for name in rewards if f"{OWN}{name}" in left and name not in left]
    if own:
        take("t")
        take("reward")
        rewards = [f"{OWN}{name}" for name in rewards]
    of_rewards: tuple[int, ...] = ()
    if any(name in left for name in rewards):
        of_rewards = tuple(need(name, "a reward factor") for name in rewards)
    following = [f"{NEXT}{name}" for name in states]
    of_next = None
    if any(name in left for name in following):
        of_next = tuple(need(name, "a next state") for name in following)
    marks = [name for name in MARKS if name in left]
    if len(marks) > 1 and of_next is None:
        raise InvalidParameter(
            f"{table.name}: both {' and '.join(marks)} could say where a stream ends; ignore one"
        )
    found = [take(name) for name in marks]
    for name in left:
        known = [*states, *actions, *rewards, *following, *MARKS]
        raise InvalidParameter(
            f"{table.name}: column {quoted(name)} is none of the model's variables and rewards"
            f"{did_you_mean(name, [one for one in known if one not in place])}; it may be ignored "
            f"by name"
        )
    mark = found[0] if found and of_next is None else None
    return Roles(of_states, of_actions, of_rewards, of_next, mark)


# ---- values --------------------------------------------------------------------------------------


def text_of(value: Any) -> str:
    """A value of a cell as the text that a CSV file would have; "" for none."""
    if isinstance(value, str):
        return value.strip()
    if value is None or value != value:  # NaN
        return ""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))  # a column of whole numbers with a gap, as pandas has it
    return str(value)


class Encoder(Protocol):
    """Numbers for the values of columns; refuses what it does not know."""

    def variable(
        self, name: str, values: Sequence[Any], where: Sequence[int], column: str
    ) -> NDArray[np.int64]: ...

    def reward(
        self, name: str, values: Sequence[Any], where: Sequence[int], column: str
    ) -> NDArray[np.float64]: ...


@dataclass(frozen=True)
class Names:
    """What the columns of a log stand for, kind by kind."""

    states: Sequence[str]
    actions: Sequence[str]
    rewards: Sequence[str]


def steps_of(table: Table, roles: Roles, names: Names, encoder: Encoder) -> Iterator[Steps]:
    """All steps of a table, in blocks, one row held back where the next one says what came."""
    held: Block | None = None
    runs = 0
    for block in table.blocks():
        whole = block if held is None else _joined(held, block)
        n = len(whole.where)
        used: Sequence[int] = range(n)
        if roles.next_states is None:
            marks = None if roles.mark is None else list(map(text_of, whole.columns[roles.mark]))
            on = [i for i in range(n - 1) if marks is None or marks[i] == marks[i + 1]]
            runs += (n - 1 - len(on)) + (held is None)
            used, held = on, _row(whole, n - 1)

        def read(read: Any, kind: Sequence[str], places: Sequence[int], rows: Sequence[int]) -> Any:
            where = [whole.where[i] for i in rows]  # noqa: B023 - called in this turn alone
            found = [
                read(name, [whole.columns[at][i] for i in rows], where, table.columns[at])  # noqa: B023
                for name, at in zip(kind, places, strict=True)
            ]
            return np.stack(found, axis=1) if found else np.zeros((len(rows), 0))

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
    """The number of every text that stands for a value of a variable."""
    codes = {name.strip(): number for number, name in enumerate(values)}
    if positions_are_clear(values):
        codes |= {str(number): number for number in range(len(values))}
    for number, value in enumerate(listed_values(values)):
        if isinstance(value, float):
            codes.setdefault(text_of(value), number)
    return codes


class Known:
    """The values of a structure's variables, and the ranges of its rewards."""

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
        found = np.array([codes.get(text_of(value), -1) for value in values], dtype=np.int64)
        if len(found) and found.min() < 0:
            first = int(np.argmin(found))
            text, known = text_of(values[first]), self._values[name]
            raise InvalidParameter(
                f"{self._table.at(where[first], column)}: "
                f"{'is empty' if not text else f'there is no value {quoted(text)}'}; must be one "
                f"of {', '.join(known[:12])}{', ...' if len(known) > 12 else ''}"
                f"{did_you_mean(text, known[:1000])}"
            )
        return found

    def reward(
        self, name: str, values: Sequence[Any], where: Sequence[int], column: str
    ) -> NDArray[np.float64]:
        lo, hi = self._ranges[name]
        found = numbers_of(self._table, values, where, column)
        slack = RANGE_TOLERANCE * max(hi - lo, abs(lo), abs(hi))
        outside = ~((found >= lo - slack) & (found <= hi + slack))
        if outside.any():
            first = int(np.argmax(outside))
            raise InvalidParameter(
                f"{self._table.at(where[first], column)}: reward {found[first]:g} is outside its "
                f"range [{lo:g}, {hi:g}]"
            )
        inside: NDArray[np.float64] = np.clip(found, lo, hi)
        return inside


def numbers_of(
    table: Table, values: Sequence[Any], where: Sequence[int], column: str
) -> NDArray[np.float64]:
    """Rewards: finite numbers."""
    found = np.empty(len(values))
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
        found[place] = number
    return found


class Reader:
    """A log as steps of a structure."""

    def __init__(self, table: Table, structure: Structure, ignored: Sequence[str] = ()) -> None:
        s = structure
        self._table, self._structure = table, s
        self._names = Names(s.state_names, s.action_names, s.reward_names)
        self.roles = roles_of(table, s.state_names, s.action_names, s.reward_names, ignored)

    @property
    def has_rewards(self) -> bool:
        """Whether the log says what was paid; of a structure without rewards it does."""
        return bool(self.roles.rewards) or self._structure.l == 0

    def steps(self) -> Iterator[Steps]:
        """All steps, in blocks; InvalidParameter for the first value or action that cannot be."""
        known = Known(self._table, self._structure)
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
