"""Alike rows: which rows of the tables are known to be equal, whatever their contents.

    x in X[Z_i] and y in X[Z_j] of one class   =>   P_i(. | x) = P_j(. | y)

Rows of one factor are alike if only part of the scope matters (context-specific independence), rows
of two factors if two parts of the system are of the same make. This is knowledge of the structure,
so learners have it: they count, bound and sample by class. The size |X[Z_i]| of a factor in the
theory becomes the number of classes among its rows.

Classes are numbered by first appearance, over all transition factors together and over all reward
factors together.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fmdp.errors import InvalidModel
from fmdp.model.calls import Values, call, named_rows
from fmdp.model.scopes import FactorScopes
from fmdp.model.spaces import IndexArray, array_of, count, items, shown
from fmdp.model.variables import VariableSpace

KeyOfRow = Callable[[str, Values], Hashable]
"""(name of a state variable or reward factor, values of the scope by name) -> key of the row."""


@dataclass(frozen=True, eq=False)
class Alike:
    """Classes of equal rows: one class number per row of every table.

    Frozen; equal to another exactly if it puts the same rows together.

    Parameters
    ----------
    transitions
        For each state variable i an integer array [|X[Z_i]|]: rows with equal numbers are alike, in
        one factor or in several whose variables have equally many values. Renumbered by first
        appearance.
    rewards
        For each reward factor k the same for its means, [|X[Z_k]|]; factors that share a class
        must have equal ranges.

    Raises
    ------
    InvalidModel
        If these are not arrays of whole numbers.
    """

    transitions: tuple[IndexArray, ...]
    rewards: tuple[IndexArray, ...]

    def __post_init__(self) -> None:
        for field, what in (("transitions", "transition"), ("rewards", "reward")):
            given = items(getattr(self, field), f"classes of {what} rows")
            numbers = [_whole_numbers(rows, f"{what} factor {i}") for i, rows in enumerate(given)]
            object.__setattr__(self, field, _numbered_together(numbers))

    @classmethod
    def by_key(
        cls,
        structure: FactorScopes,
        transition: KeyOfRow | None = None,
        reward: KeyOfRow | None = None,
    ) -> Alike:
        """Return the classes of rows with equal keys, for
        `dataclasses.replace(structure, alike=Alike.by_key(...))`.

        Parameters
        ----------
        structure
            The structure of the rows.
        transition
            Called for every row of every transition factor with the name of the state variable and
            the values of the scope, {name of variable: value}. Rows with equal keys, of one factor
            or of several, are alike. A row with the key None is a class of its own, and so is every
            row if no function is given.
        reward
            The same for reward factors, with the name of the factor.

        Raises
        ------
        InvalidModel
            If a key cannot be compared (a list, a dictionary).
        """
        s = structure
        return cls(
            classes_by_key(s, s.state_names, s.transition_scopes, transition),
            classes_by_key(s, s.reward_names, s.reward_scopes, reward),
        )

    @cached_property
    def n_transitions(self) -> int:
        """Number of classes of transition rows."""
        return _n_classes(self.transitions)

    @cached_property
    def n_rewards(self) -> int:
        """Number of classes of reward rows."""
        return _n_classes(self.rewards)

    @cached_property
    def is_trivial(self) -> bool:
        """True if every row is a class of its own."""
        return self.n_transitions == sum(map(len, self.transitions)) and self.n_rewards == sum(
            map(len, self.rewards)
        )

    @cached_property
    def largest(self) -> int:
        """The largest number of classes among the rows of one factor."""
        return max((len(np.unique(rows)) for rows in self.transitions + self.rewards), default=0)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Alike) and self._content == other._content

    def __hash__(self) -> int:
        return hash(self._content)

    @cached_property
    def _content(self) -> tuple[tuple[bytes, ...], ...]:
        return tuple(
            tuple(rows.tobytes() for rows in numbers)
            for numbers in (self.transitions, self.rewards)
        )

    def __reduce__(self) -> tuple[type[Alike], tuple[object, ...]]:
        # Through the constructor, because pickled arrays come back writeable.
        return type(self), (self.transitions, self.rewards)

    def __repr__(self) -> str:
        rows = sum(map(len, self.transitions)), sum(map(len, self.rewards))
        return (
            f"Alike({self.n_transitions} classes of {rows[0]} transition rows, "
            f"{self.n_rewards} of {rows[1]} reward rows)"
        )


class RowClasses(FactorScopes):
    """Factors and the classes of their rows; every row is its own class if `alike` is None."""

    alike: Alike | None

    @cached_property
    def max_scope_size(self) -> int:
        """L: the largest number of rows of a factor, or of classes if rows are alike."""
        if self.alike is not None:
            return self.alike.largest
        return max(self.transition_rows + self.reward_rows)

    @cached_property
    def n_transition_classes(self) -> int:
        """Number of classes of transition rows."""
        return self.row_starts[-1] if self.alike is None else self.alike.n_transitions

    @cached_property
    def n_reward_classes(self) -> int:
        """Number of classes of reward rows."""
        return self.reward_starts[-1] if self.alike is None else self.alike.n_rewards

    @cached_property
    def transition_class_counts(self) -> tuple[int, ...]:
        """Number of classes among the rows of each transition factor."""
        if self.alike is None:
            return self.transition_rows
        return tuple(len(np.unique(rows)) for rows in self.alike.transitions)

    def transition_classes_of(self, i: int) -> IndexArray:
        """Return the class of every row of transition factor `i`: [|X[Z_i]|]."""
        if self.alike is not None:
            return self.alike.transitions[i]
        return np.arange(self.row_starts[i], self.row_starts[i + 1], dtype=np.int64)

    def reward_classes_of(self, k: int) -> IndexArray:
        """Return the class of every row of reward factor `k`: [|X[Z_k]|]."""
        if self.alike is not None:
            return self.alike.rewards[k]
        return np.arange(self.reward_starts[k], self.reward_starts[k + 1], dtype=np.int64)


def check_alike(
    alike: object, factors: FactorScopes, ranges: Sequence[tuple[float, float]]
) -> Alike | None:
    """Return the classes if their rows can be equal, None if they say nothing, or raise.

    Rows of one class must have equally many values, or equal reward ranges.
    """
    if alike is None:
        return None
    if not isinstance(alike, Alike):
        raise InvalidModel(f"alike is {shown(alike)}; must be an Alike")
    s = factors
    for numbers, rows, kinds, label, what in (
        (alike.transitions, s.transition_rows, s.state_sizes, s.transition_label, "values"),
        (alike.rewards, s.reward_rows, ranges, s.reward_label, "range"),
    ):
        if tuple(map(len, numbers)) != rows:
            raise InvalidModel(
                f"classes of rows for tables of {tuple(map(len, numbers))} rows; "
                f"the tables have {rows}"
            )
        pair = unequal_pair(numbers, kinds)
        if pair is not None:
            raise InvalidModel(
                f"{label(pair[0])} and {label(pair[1])} have rows of one class, but {what} "
                f"{kinds[pair[0]]} and {kinds[pair[1]]}; must be equal"
            )
    return None if alike.is_trivial else alike


def _numbered_together(numbers: Sequence[NDArray[np.int64]]) -> tuple[IndexArray, ...]:
    """Return the same classes, numbered by first appearance over all arrays; read-only."""
    if not numbers:
        return ()
    everything = np.concatenate(numbers)
    _, first, inverse = np.unique(everything, return_index=True, return_inverse=True)
    rank = np.empty(len(first), dtype=np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    flat = rank[inverse.reshape(-1)]
    parts = []
    for part in np.split(flat, np.cumsum([len(rows) for rows in numbers])[:-1]):
        rows = np.ascontiguousarray(part)
        rows.flags.writeable = False
        parts.append(rows)
    return tuple(parts)


def first_of_class(numbers: Sequence[IndexArray]) -> IndexArray:
    """Return for every row, all arrays concatenated, the place of the first row of its class."""
    flat = np.concatenate([*numbers, np.zeros(0, dtype=np.int64)])
    # Numbered by first appearance: a class begins where its number is above all before it.
    before = np.maximum.accumulate(np.concatenate([[-1], flat]))[:-1]
    firsts = np.flatnonzero(flat > before)
    return firsts[np.searchsorted(flat[firsts], flat)]


def unequal_pair(numbers: Sequence[IndexArray], kinds: Sequence[object]) -> tuple[int, int] | None:
    """Return two factors of different kinds with rows of one class, or None."""
    codes = {kind: code for code, kind in enumerate(dict.fromkeys(kinds))}
    n_rows = [len(rows) for rows in numbers]
    of_row = np.repeat(np.array([codes[kind] for kind in kinds], dtype=np.int64), n_rows)
    first = first_of_class(numbers)
    differs = np.flatnonzero(of_row != of_row[first])
    if not differs.size:
        return None
    factor = np.searchsorted(np.cumsum(n_rows), [first[differs[0]], differs[0]], side="right")
    return int(factor[0]), int(factor[1])


def classes_by_key(
    structure: VariableSpace,
    names: Sequence[str],
    scopes: Sequence[Sequence[int]],
    key_of: KeyOfRow | None,
) -> tuple[IndexArray, ...]:
    """Return the class of every row of every factor: equal for equal keys, new for each None."""
    known: dict[Hashable, int] = {}
    total = 0
    numbers: list[IndexArray] = []
    for name, scope in zip(names, scopes, strict=True):
        label = f'the class of a row of "{name}"'
        classes = np.empty(count(structure.scope_sizes(scope)), dtype=np.int64)
        for row, values in enumerate(named_rows(structure, scope)):
            key = None if key_of is None else call(key_of, label, values, name)
            try:
                number = total if key is None else known.setdefault(key, total)
            except TypeError:
                raise InvalidModel(
                    f'"{name}": the key of a class of rows is {shown(key)}; must be a number, a '
                    f"text or a tuple of them"
                ) from None
            classes[row] = number
            total += number == total
        numbers.append(classes)
    return tuple(numbers)


def _n_classes(numbers: Sequence[IndexArray]) -> int:
    return 1 + max((int(rows.max(initial=-1)) for rows in numbers), default=-1)


def _whole_numbers(given: object, label: str) -> NDArray[np.int64]:
    array = array_of(given)
    if array.ndim != 1 or (array.dtype.kind not in "iu" and array.size):
        raise InvalidModel(
            f"{label}: classes of rows must be one whole number per row; got {shown(given)}"
        )
    return array.astype(np.int64)
