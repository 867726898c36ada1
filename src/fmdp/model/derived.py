"""Derived variables: quantities of one step, computed from the state, the action and each other.

    P(s' | s, a) = sum_z prod_j P_j(z_j | x[Z_j]) prod_i P_i(s'_i | x[Z_i]),   x = (s, a, z)
    R(s, a) = sum_z prod_j P_j(z_j | x[Z_j]) sum_k R_k(x[Z_k])

"The number of theatres in use" depends on all theatres, and the queue on that number alone: with a
derived variable between them the table of the queue has one row per number. A derived variable is
deterministic, a function of the variables in its scope, or drawn, with a distribution per row. It
is not part of the state: it is computed anew in every step and forgotten.

Derived variables are numbered after the actions, in an order in which each depends only on states,
actions and earlier ones. Scopes of transition and reward factors may name them; constraints may
not.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from fmdp.errors import InvalidModel
from fmdp.model.naming import checked_names, checked_values, quote
from fmdp.model.spaces import MAX_SIZE, count, items, shown, shown_tuple, whole_number


@dataclass(frozen=True, eq=False)
class Derived:
    """A derived variable: its name, its values, and how it follows from the variables of its scope.

    Frozen; equal to another exactly if all contents are equal.

    Parameters
    ----------
    name
        A printable name, different from those of all other variables.
    values
        The values, texts or numbers; a number n means the values 0 to n - 1.
    scope
        The variables that it depends on, by number, sorted: states, actions, earlier derived ones.
    table
        One entry per assignment of the scope, the last variable fastest. Deterministic: the
        position of the value, [rows] of whole numbers. Drawn: probabilities, [rows, values].
    partial
        Whether it is a step of a sum that belongs to another derived variable; then it is not
        listed for people.

    Raises
    ------
    InvalidModel
        If these do not make a derived variable; the message names it.
    """

    name: str
    values: Sequence[Any]
    scope: tuple[int, ...]
    table: npt.NDArray[Any]
    partial: bool = False

    def __post_init__(self) -> None:
        (name,) = checked_names((self.name,), 1, "derived variable", "z")
        given: Any = self.values
        if type(given) is int and not 1 <= given <= MAX_SIZE:
            raise InvalidModel(
                f"{_label(name)}: has {shown(given)} values; must be in 1..{MAX_SIZE}"
            )
        listed = range(given) if type(given) is int else given
        size = len(items(listed, f"values of {quote(name)}"))
        (values,) = checked_values((listed,), (size,), (name,), "derived")
        scope = tuple(whole_number(v) for v in items(self.scope, f"scope of {quote(name)}"))
        try:
            table = np.array(self.table)
        except ValueError:
            table = np.empty(0, dtype=object)
        kinds = {1: "iu", 2: "f"}
        if not size or table.ndim not in kinds or table.dtype.kind not in kinds[table.ndim]:
            raise InvalidModel(
                f"{_label(name)}: the table must hold one position per row, or one list of "
                f"probabilities per row; got {shown(self.table)}"
            )
        table = np.ascontiguousarray(table, dtype=np.int64 if table.ndim == 1 else np.float64)
        table.flags.writeable = False
        if not isinstance(self.partial, bool):
            raise InvalidModel(f"{_label(name)}: partial must be a bool; got {shown(self.partial)}")
        for field, value in (("values", values), ("scope", scope), ("table", table)):
            object.__setattr__(self, field, value)

    @property
    def size(self) -> int:
        """Number of values."""
        return len(self.values)

    @property
    def deterministic(self) -> bool:
        """Whether it is a function of its scope, and not drawn."""
        return self.table.ndim == 1

    @cached_property
    def content(self) -> tuple[object, ...]:
        """All contents, which the hash of a model covers."""
        return self.name, tuple(self.values), self.scope, self.table.tobytes(), self.partial

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Derived) and self.content == other.content

    def __hash__(self) -> int:
        return hash(self.content)

    def __reduce__(self) -> tuple[type[Derived], tuple[object, ...]]:
        # Through the constructor, because pickled arrays come back writeable.
        return type(self), (self.name, self.values, self.scope, self.table, self.partial)


def checked_derived(derived: Any, sizes: Sequence[int]) -> tuple[Derived, ...]:
    """Return the derived variables over these states and actions, or raise InvalidModel."""
    checked = items(derived, "derived variables")
    sizes = list(sizes)  # of the variables that the next one may depend on
    for variable in checked:
        if not isinstance(variable, Derived):
            raise InvalidModel(f"derived variable is {shown(variable)}; must be a Derived")
        label = _label(variable.name)
        scope = variable.scope
        if any(v is None or not 0 <= v < len(sizes) for v in scope):
            raise InvalidModel(
                f"{label}: scope {shown_tuple(scope)} must name states, actions and earlier "
                f"derived variables, 0..{len(sizes) - 1}"
            )
        if any(a >= b for a, b in itertools.pairwise(scope)):
            raise InvalidModel(f"{label}: scope {shown_tuple(scope)} must be sorted")
        _check_table(variable, count([sizes[v] for v in scope]), label)
        sizes.append(variable.size)
    return checked


def _check_table(variable: Derived, rows: int, label: str) -> None:
    table, size = variable.table, variable.size
    shape = (rows,) if variable.deterministic else (rows, size)
    if table.shape != shape:
        raise InvalidModel(f"{label}: the table has shape {table.shape}; must be {shape}")
    if variable.deterministic:
        if table.size and not (table.min() >= 0 and table.max() < size):
            raise InvalidModel(f"{label}: positions must be in 0..{size - 1}")
        return
    off = ~((table >= 0.0).all(axis=1) & (np.abs(table.sum(axis=1) - 1.0) <= 1e-9))
    if off.any():
        row = int(off.argmax())
        raise InvalidModel(
            f"{label}, row {row}: is {table[row].tolist()}; must be probabilities that sum to 1"
        )


def _label(name: str) -> str:
    return f"derived variable {quote(name)}"
