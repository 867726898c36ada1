"""Alike rows: which rows of the tables are known to be equal, without knowing what they hold.

    x in X[Z_i] and y in X[Z_j] of one class   =>   P_i(. | x) = P_j(. | y)

Rows within a factor are alike where only part of the scope matters (context-specific
independence), rows of two factors where two parts of the system are of one make. That is knowledge
of the structure, so a learner may have it: what is counted, bounded and sampled is counted, bounded
and sampled by class. The size of a factor that the theory speaks of, |X[Z_i]|, becomes the number
of classes among its rows.

Classes are numbered by first appearance, over all transition factors together and over all reward
factors together. Cost: one number a row.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fmdp.errors import InvalidModel
from fmdp.model.naming import Value, listed_values
from fmdp.model.spaces import IndexArray, all_assignments, items, shown

if TYPE_CHECKING:
    from fmdp.model.structure import Structure

KeyOfRow = Callable[[str, Mapping[str, Value]], Hashable]
"""(name of a state variable or reward factor, values of the scope by name) -> key of the row."""


@dataclass(frozen=True, eq=False)
class Alike:
    """The class of every row of every table.

    Frozen; equal to another exactly if it puts the same rows together.

    Parameters
    ----------
    transitions
        For each state variable i whole numbers [|X[Z_i]|]: rows of equal number are alike, in one
        factor or in several whose variables have as many values. Any numbers; kept numbered by
        first appearance.
    rewards
        For each reward factor k the same for its means, [|X[Z_k]|]; factors that share a class
        must have equal ranges.

    Raises
    ------
    InvalidModel
        Where these are no whole numbers.
    """

    transitions: tuple[IndexArray, ...]
    rewards: tuple[IndexArray, ...]

    def __post_init__(self) -> None:
        for field, what in (("transitions", "transition"), ("rewards", "reward")):
            given = items(getattr(self, field), f"classes of {what} rows")
            numbers = [_whole_numbers(own, f"{what} factor {i}") for i, own in enumerate(given)]
            object.__setattr__(self, field, numbered_together(numbers))

    @classmethod
    def by_key(
        cls,
        structure: Structure,
        transition: KeyOfRow | None = None,
        reward: KeyOfRow | None = None,
    ) -> Alike:
        """Rows of one key are alike: `dataclasses.replace(structure, alike=Alike.by_key(...))`.

        Parameters
        ----------
        structure
            Whose rows they are.
        transition
            Asked for every row of every transition factor, with the name of the state variable and
            the values of the scope, {name of variable: name of value}: rows that get equal keys are
            alike, of one factor or of several. A row that gets None, and every row where no
            function is given, is a class of its own.
        reward
            The same for reward factors, with the factor's name.

        Raises
        ------
        InvalidModel
            Where a key cannot be compared (a list, a dictionary).
        """
        return cls(
            _classes_by_key(
                structure, structure.state_names, structure.transition_scopes, transition
            ),
            _classes_by_key(structure, structure.reward_names, structure.reward_scopes, reward),
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
        """Whether every row is a class of its own."""
        return self.n_transitions == sum(map(len, self.transitions)) and self.n_rewards == sum(
            map(len, self.rewards)
        )

    @cached_property
    def largest(self) -> int:
        """The largest number of classes among the rows of one factor."""
        return max((len(np.unique(own)) for own in self.transitions + self.rewards), default=0)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Alike) and self._content == other._content

    def __hash__(self) -> int:
        return hash(self._content)

    @cached_property
    def _content(self) -> tuple[tuple[bytes, ...], ...]:
        return tuple(
            tuple(own.tobytes() for own in numbers) for numbers in (self.transitions, self.rewards)
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


def numbered_together(numbers: Sequence[NDArray[np.int64]]) -> tuple[IndexArray, ...]:
    """The same classes, numbered by first appearance over all arrays; read-only."""
    if not numbers:
        return ()
    everything = np.concatenate(numbers)
    _, first, inverse = np.unique(everything, return_index=True, return_inverse=True)
    rank = np.empty(len(first), dtype=np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    flat = rank[inverse.reshape(-1)]
    parts = np.split(flat, np.cumsum([len(own) for own in numbers])[:-1])
    made = []
    for part in parts:
        own = np.ascontiguousarray(part)
        own.flags.writeable = False
        made.append(own)
    return tuple(made)


def first_of_class(numbers: Sequence[IndexArray]) -> IndexArray:
    """For every row, all arrays end to end, the place of the first row of its class."""
    flat = np.concatenate([*numbers, np.zeros(0, dtype=np.int64)])
    # Numbered by first appearance: a class begins where its number is above all before it.
    before = np.maximum.accumulate(np.concatenate([[-1], flat]))[:-1]
    firsts = np.flatnonzero(flat > before)
    return firsts[np.searchsorted(flat[firsts], flat)]


def unequal_pair(numbers: Sequence[IndexArray], kinds: Sequence[object]) -> tuple[int, int] | None:
    """Two factors with rows of one class, but of different kinds; None where there are none."""
    codes = {kind: code for code, kind in enumerate(dict.fromkeys(kinds))}
    rows = [len(own) for own in numbers]
    of_row = np.repeat(np.array([codes[kind] for kind in kinds], dtype=np.int64), rows)
    first = first_of_class(numbers)
    differs = np.flatnonzero(of_row != of_row[first])
    if not differs.size:
        return None
    ends = np.cumsum(rows)
    pair = (int(first[differs[0]]), int(differs[0]))
    return tuple(int(np.searchsorted(ends, row, side="right")) for row in pair)  # type: ignore[return-value]


def _classes_by_key(
    structure: Structure,
    names: Sequence[str],
    scopes: Sequence[Sequence[int]],
    key_of: KeyOfRow | None,
) -> tuple[IndexArray, ...]:
    if key_of is not None and not callable(key_of):
        raise InvalidModel(f"the key of a row must be a function; got {shown(key_of)}")
    keys = []
    for name, scope in zip(names, scopes, strict=True):
        own: list[Hashable] = []
        for assignment in all_assignments(structure.scope_sizes(scope)):
            values = {
                structure.names[v]: listed_values(structure.values[v])[int(value)]
                for v, value in zip(scope, assignment, strict=True)
            }
            try:
                own.append(None if key_of is None else key_of(name, values))
            except Exception as error:
                told = ", ".join(f"{variable}={value}" for variable, value in values.items())
                text = " ".join(str(error).split())
                raise InvalidModel(
                    f'the class of a row of "{name}", {told or "empty scope"}: the function fails: '
                    f"{type(error).__name__}: {text}"
                ) from error
        keys.append(own)
    return classes_of_keys(keys, names)


def classes_of_keys(
    keys: Sequence[Sequence[Hashable]], names: Sequence[str]
) -> tuple[IndexArray, ...]:
    """A number for every key of every factor, equal for equal keys; None is its own each time."""
    known: dict[Hashable, int] = {}
    total = 0
    numbers: list[IndexArray] = []
    for name, own in zip(names, keys, strict=True):
        found = np.empty(len(own), dtype=np.int64)
        for row, key in enumerate(own):
            try:
                number = total if key is None else known.setdefault(key, total)
            except TypeError:
                raise InvalidModel(
                    f'"{name}": the key of a class of rows is {shown(key)}; must be a number, a '
                    f"text or a tuple of them"
                ) from None
            found[row] = number
            total += number == total
        numbers.append(found)
    return tuple(numbers)


def _n_classes(numbers: Sequence[IndexArray]) -> int:
    return 1 + max((int(own.max(initial=-1)) for own in numbers), default=-1)


def _whole_numbers(given: object, label: str) -> NDArray[np.int64]:
    try:
        array = np.asarray(given)
    except ValueError:
        array = np.empty(0, dtype=object)
    if array.ndim != 1 or (array.dtype.kind not in "iu" and array.size):
        raise InvalidModel(
            f"{label}: classes of rows must be one whole number a row; got {shown(given)}"
        )
    return array.astype(np.int64)
