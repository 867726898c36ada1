"""The state and action variables of a structure: sizes, names, values, rows of tables.

State variables are numbered 0, ..., m - 1 and action variables m, m + 1, .... A row of a table over
a scope is the index of the assignment x[scope] of x = (state, action), the last variable fastest.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property

from fmdp.errors import InvalidModel, UnknownName, did_you_mean
from fmdp.model.naming import Assignment, Naming, listed, quote
from fmdp.model.spaces import count, decode, items, shown, strides, whole_number

MAX_SIZE = 2**24
"""Largest number of values of a variable: each value has a name and is a column of a table."""


class VariableSpace:
    """State and action variables with their sizes, names and values."""

    state_sizes: tuple[int, ...]
    action_sizes: tuple[int, ...]
    state_names: tuple[str, ...]
    action_names: tuple[str, ...]
    state_values: tuple[Sequence[str], ...]
    action_values: tuple[Sequence[str], ...]

    @cached_property
    def m(self) -> int:
        """Number of state variables (and of transition factors)."""
        return len(self.state_sizes)

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Sizes of all variables, states then actions."""
        return self.state_sizes + self.action_sizes

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of all variables, states then actions."""
        return self.state_names + self.action_names

    @cached_property
    def values(self) -> tuple[Sequence[str], ...]:
        """Names of the values of all variables, states then actions."""
        return self.state_values + self.action_values

    @cached_property
    def naming(self) -> Naming:
        """Names of the variables and of their values, without anything else."""
        return Naming.of(self.state_names, self.action_names, self.state_values, self.action_values)

    @cached_property
    def n_states(self) -> int:
        """Number of joint states, exact."""
        return count(self.state_sizes)

    @cached_property
    def n_actions(self) -> int:
        """Number of joint actions, exact."""
        return count(self.action_sizes)

    @cached_property
    def max_state_size(self) -> int:
        """W: the largest number of values of a state variable."""
        return max(self.state_sizes)

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(self.names)}

    def variable(self, name: str) -> int:
        """Return the number of the variable with this name, action variables from m on.

        Parameters
        ----------
        name
            Name of a state or action variable.

        Raises
        ------
        UnknownName
            If there is no such variable; the message suggests the nearest name.
        """
        number = self._numbers.get(name)
        if number is None:
            raise UnknownName(
                f"no variable is called {quote(name)}; must be one of {listed(self.names)}"
                f"{did_you_mean(name, self.names)}"
            )
        return number

    def check_state(self, state: Assignment, what: str = "state") -> tuple[int, ...]:
        """Return a state as a tuple of positions, one per state variable.

        Parameters
        ----------
        state
            A sequence with one entry per variable, each a position (counted from 0) or the name of
            a value; or a mapping from the name of every variable to its value, in which a number
            that is a value means that value; or the same as a text, "name=value,name=value".
        what
            How the error message calls it.

        Raises
        ------
        InvalidParameter
            If it is not a state of this structure; the message names the variable.
        """
        return self.naming.states.check(state, what)

    def check_action(self, action: Assignment, what: str = "action") -> tuple[int, ...]:
        """Return an action as a tuple of positions, one per action variable.

        Parameters
        ----------
        action
            In one of the forms of `check_state`.
        what
            How the error message calls it.

        Raises
        ------
        InvalidParameter
            If it is not an action of this structure; the message names the variable.
        """
        return self.naming.actions.check(action, what)

    def name_state(self, state: Assignment) -> dict[str, str]:
        """Return a state as {name of the variable: name of its value}.

        Parameters
        ----------
        state
            As in `check_state`.
        """
        return self.naming.name_state(state)

    def name_action(self, action: Assignment) -> dict[str, str]:
        """Return an action as {name of the variable: name of its value}.

        Parameters
        ----------
        action
            As in `check_action`.
        """
        return self.naming.name_action(action)

    def scope_sizes(self, scope: Sequence[int]) -> tuple[int, ...]:
        """Return the sizes of the variables of a scope, in its order.

        Parameters
        ----------
        scope
            Numbers of variables, in any order.
        """
        sizes = self.sizes
        return tuple(sizes[variable] for variable in scope)

    def scope_row(self, scope: Sequence[int], state: Sequence[int], action: Sequence[int]) -> int:
        """Return the row of x[scope] in a table over the scope, for x = (state, action).

        Parameters
        ----------
        scope
            Numbers of variables; the last one is the fastest.
        state, action
            Positions, one per variable. Not checked: see `check_state` and `check_action`.
        """
        m = self.m
        row = 0
        for variable, step in zip(scope, strides(self.scope_sizes(scope)), strict=True):
            row += step * int(state[variable] if variable < m else action[variable - m])
        return row

    def row_label(self, scope: Sequence[int], row: int) -> str:
        """Return a row of a table with its assignment, for messages: 'row 5 (s0=1, a0=2)'.

        Parameters
        ----------
        scope
            The variables of the table; the last one is the fastest.
        row
            Number of the row, counted from 0.
        """
        assignment = decode(row, self.scope_sizes(scope))
        return f"row {row} ({self._assignment_label(scope, assignment) or 'empty scope'})"

    def _assignment_label(self, scope: Sequence[int], assignment: Sequence[int]) -> str:
        return ", ".join(
            f"{self.names[variable]}={self.values[variable][value]}"
            for variable, value in zip(scope, assignment, strict=True)
        )


def checked_sizes(sizes: Iterable[int], kind: str) -> tuple[int, ...]:
    """Return the sizes of the state or action variables, or raise InvalidModel."""
    checked: list[int] = []
    for index, size in enumerate(items(sizes, f"{kind} sizes")):
        whole = whole_number(size)
        if whole is None or not 1 <= whole <= MAX_SIZE:
            raise InvalidModel(
                f"size of {kind} variable {index} is {shown(size)}; "
                f"must be a whole number in 1..{MAX_SIZE}"
            )
        checked.append(whole)
    if not checked:
        raise InvalidModel(f"no {kind} variable; there must be at least one")
    return tuple(checked)
