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
from fmdp.model.expansion import with_derived_values
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
    unchained: int = 0
    """Rows so far that do not begin in the next state of the row before; in streams, rows that are
    not later than the row before by column `t`."""


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
    """Column that says where a stream ends."""
    time: int | None = None
    """Column `t` of a recorded run, which is not used."""


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
    time = None
    if any(f"{OWN}{name}" in columns.left and name not in columns.left for name in reward_names):
        time = columns.left.pop("t", None)
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
    mark = places[0] if places else None
    return Roles(states, actions, rewards, next_states, mark, time)


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
    """Maps the values of columns to numbers; unknown ones are -1 or NaN, and noted as problems."""

    def variable(
        self, name: str, values: Sequence[Any], where: Sequence[int], column: str
    ) -> NDArray[np.int64]: ...

    def reward(
        self, name: str, values: Sequence[Any], where: Sequence[int], column: str
    ) -> NDArray[np.float64]: ...


def steps_of(table: Table, roles: Roles, names: Names, encoder: Encoder) -> Iterator[Steps]:
    """Yield all steps of a table in blocks; a stream holds one row back for its next state.

    A step that needs a bad cell is left out if the table skips them. Otherwise InvalidParameter is
    raised at the end of the block.
    """
    held: Block | None = None
    last: NDArray[np.int64] | None = None
    last_mark = ""
    runs = unchained = 0
    for block in table.blocks():
        whole = block if held is None else _joined(held, block)
        n = len(whole.where)
        marks = [""] * n if roles.mark is None else list(map(text_of, whole.columns[roles.mark]))
        used: Sequence[int] = range(n)
        if roles.next_states is None:
            begins = whole.begins or [False] * n
            used = [i for i in range(n - 1) if marks[i] == marks[i + 1] and not begins[i + 1]]
            runs += (n - 1 - len(used)) + (held is None)
            held = _row(whole, n - 1)

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
            if roles.time is not None:
                times = list(map(_number, whole.columns[roles.time]))
                unchained += sum(times[i + 1] <= times[i] for i in used)
        else:
            following = read(encoder.variable, names.states, roles.next_states, used)
            unchained += _unchained(last, last_mark, states, following, marks)
            last, last_mark = following[-1:], marks[-1]
        steps = Steps(
            states[list(used)],
            read(encoder.variable, names.actions, roles.actions, used),
            read(encoder.reward, rewarded, roles.rewards, used),
            following,
            [whole.where[i] for i in used],
            runs,
            unchained,
        )
        table.problems.refuse()
        yield _good(steps)


def _number(value: Any) -> float:
    """Return a number, or NaN, which is neither earlier nor later than others."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return math.nan


def _unchained(
    last: NDArray[np.int64] | None,
    last_mark: str,
    states: NDArray[np.int64],
    following: NDArray[np.int64],
    marks: Sequence[str],
) -> int:
    """Return the number of rows that do not begin in the next state of the row before.

    `last` and `last_mark` are those of the row before the block, None for the first block.
    """
    ends = following[:-1] if last is None else np.concatenate([last, following[:-1]])
    starts = states[1:] if last is None else states
    before = [*([] if last is None else [last_mark]), *marks[:-1]]
    after = marks[1:] if last is None else marks
    same = np.array([one == other for one, other in zip(before, after, strict=True)], dtype=bool)
    differ = (ends != starts) & (ends >= 0) & (starts >= 0)
    return int((same & differ.any(axis=1)).sum()) if len(same) else 0


def _good(steps: Steps) -> Steps:
    """Return the steps without a bad cell."""
    good = np.ones(len(steps.states), dtype=bool)
    for part in (steps.states, steps.actions, steps.next_states):
        good &= ~(part < 0).any(axis=1)
    good &= ~np.isnan(steps.rewards).any(axis=1)
    return steps if good.all() else chosen(steps, good)


def chosen(steps: Steps, kept: NDArray[np.bool_]) -> Steps:
    """Return some of the steps."""
    return steps._replace(
        states=steps.states[kept],
        actions=steps.actions[kept],
        rewards=steps.rewards[kept],
        next_states=steps.next_states[kept],
        where=[steps.where[i] for i in np.flatnonzero(kept).tolist()],
    )


def _row(block: Block, at: int) -> Block:
    begins = None if block.begins is None else [block.begins[at]]
    return Block(tuple([column[at]] for column in block.columns), [block.where[at]], begins)


def _joined(one: Block, other: Block) -> Block:
    columns = tuple(a + b for a, b in zip(one.columns, other.columns, strict=True))
    begins = None
    if one.begins is not None and other.begins is not None:
        begins = [*one.begins, *other.begins]
    return Block(columns, [*one.where, *other.where], begins)


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
        known = self._values[name]
        for place in np.flatnonzero(encoded < 0).tolist():
            text = text_of(values[place])
            self._table.problems.add(
                where[place],
                column,
                text,
                f"{'is empty' if not text else f'there is no value {quoted(text)}'}; must be one "
                f"of {', '.join(known[:12])}{', ...' if len(known) > 12 else ''}"
                f"{did_you_mean(text, known[:1000])}",
            )
        return encoded

    def reward(
        self, name: str, values: Sequence[Any], where: Sequence[int], column: str
    ) -> NDArray[np.float64]:
        lo, hi = self._ranges[name]
        numbers = numbers_of(self._table, values, where, column)
        slack = RANGE_TOLERANCE * max(hi - lo, abs(lo), abs(hi))
        outside = (numbers < lo - slack) | (numbers > hi + slack)
        for place in np.flatnonzero(outside).tolist():
            self._table.problems.add(
                where[place],
                column,
                values[place],
                f"reward {numbers[place]:g} is outside its range [{lo:g}, {hi:g}]",
            )
        numbers[outside] = math.nan
        inside: NDArray[np.float64] = np.clip(numbers, lo, hi)
        return inside


def numbers_of(
    table: Table, values: Sequence[Any], where: Sequence[int], column: str
) -> NDArray[np.float64]:
    """Return the rewards of a column; those that are not finite are NaN, and noted as problems."""
    numbers = np.empty(len(values))
    for place, value in enumerate(values):
        try:
            number = math.nan if isinstance(value, bool) else float(value)
        except (TypeError, ValueError):
            number = math.nan
        if not math.isfinite(number):
            why = f"a reward must be a finite number; got {quoted(value)}"
            table.problems.add(where[place], column, value, why)
            number = math.nan
        numbers[place] = number
    return numbers


class Reader:
    """Reader of a log as steps of a structure."""

    def __init__(
        self,
        table: Table,
        structure: Structure,
        ignored: Sequence[str] = (),
        possible: Sequence[NDArray[np.bool_]] | None = None,
        refuse_impossible: bool = False,
    ) -> None:
        s = structure
        self._table, self._structure = table, s
        self._names = Names(s.state_names, s.action_names, s.reward_names)
        self.roles = roles_of(table, self._names, ignored)
        self._possible = possible
        """[rows, |S_i|] per factor: the moves that the model holds possible, if it has tables."""
        self._refuse_impossible = refuse_impossible
        self.unchained = 0
        self.impossible = 0
        """Steps that the model holds impossible; `first_impossible` is the row of the first."""
        self.first_impossible: int | None = None

    @property
    def has_rewards(self) -> bool:
        """True if the log has rewards, or the structure has none."""
        return bool(self.roles.rewards) or self._structure.l == 0

    def steps(self) -> Iterator[Steps]:
        """Yield all steps in blocks; raise InvalidParameter for an invalid value or action."""
        known = KnownValues(self._table, self._structure)
        for steps in steps_of(self._table, self.roles, self._names, known):
            self.unchained = steps.unchained
            bad = self._forbidden(steps) | self._contradicting(steps)
            self._table.problems.refuse()
            yield chosen(steps, ~bad) if bad.any() else steps

    def _forbidden(self, steps: Steps) -> NDArray[np.bool_]:
        """Return the steps whose action a constraint forbids, and note them."""
        s = self._structure
        joint = np.concatenate([steps.states, steps.actions], axis=1)
        forbidden = np.zeros(len(joint), dtype=np.bool_)
        for constraint in s.constraints:
            bad = constraint.forbids_rows(joint, s.sizes)
            why = f"{constraint.label(s.names)} forbids this action in this state"
            for place in np.flatnonzero(bad).tolist():
                self._table.problems.add(steps.where[place], None, "forbidden action", why)
            forbidden |= bad
        return forbidden

    def _contradicting(self, steps: Steps) -> NDArray[np.bool_]:
        """Count the steps that the model holds impossible; return them if they are refused."""
        s = self._structure
        bad = np.zeros(len(steps.states), dtype=np.bool_)
        if self._possible is None:
            return bad
        joint = np.concatenate([steps.states, steps.actions], axis=1)
        joint = with_derived_values(s, joint)
        for i, scope in enumerate(s.transition_scopes):
            rows, values = rows_of(s, joint, scope), steps.next_states[:, i]
            impossible = ~self._possible[i][rows, values]
            bad |= impossible
            if not self._refuse_impossible:
                continue
            for place in np.flatnonzero(impossible).tolist():
                value = quoted(s.values[i][values[place]])
                self._table.problems.add(
                    steps.where[place],
                    None,
                    f"{s.state_names[i]}={s.values[i][values[place]]}",
                    f"the next value of {quoted(s.state_names[i])} is {value}, which the model "
                    f"holds impossible after {s.row_label(scope, int(rows[place]))}",
                )
        if bad.any() and self.first_impossible is None:
            self.first_impossible = steps.where[int(np.argmax(bad))]
        self.impossible += int(bad.sum())
        return bad if self._refuse_impossible else np.zeros_like(bad)


def rows_of(
    structure: Structure, joint: NDArray[np.int64], scope: Sequence[int]
) -> NDArray[np.int64]:
    """Return the row of every step in a table over a scope."""
    steps = np.array(strides(structure.scope_sizes(scope)), dtype=np.int64)
    rows: NDArray[np.int64] = joint[:, list(scope)].astype(np.int64) @ steps
    return rows
