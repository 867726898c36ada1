"""The variables of a structure: sizes, names, values, rows of tables.

State variables are numbered 0, ..., m - 1, action variables m, m + 1, ..., and derived variables
(derived.py) come last. A row of a table over a scope is the index of the assignment x[scope], the
last variable fastest.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property

from fmdp.errors import InvalidModel, InvalidParameter, UnknownName, did_you_mean
from fmdp.model.derived import Derived
from fmdp.model.naming import Assignment, Naming, Variables, listed, quote
from fmdp.model.spaces import (
    MAX_SIZE,
    count,
    decode,
    encode,
    items,
    shown,
    strides,
    whole_number,
)


class VariableSpace:
    """State, action and derived variables with their sizes, names and values."""

    state_sizes: tuple[int, ...]
    action_sizes: tuple[int, ...]
    state_names: tuple[str, ...]
    action_names: tuple[str, ...]
    state_values: tuple[Sequence[str], ...]
    action_values: tuple[Sequence[str], ...]
    derived: tuple[Derived, ...]

    @cached_property
    def m(self) -> int:
        """Number of state variables (and of transition factors)."""
        return len(self.state_sizes)

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Sizes of the states and actions, in this order."""
        return self.state_sizes + self.action_sizes

    @cached_property
    def all_sizes(self) -> tuple[int, ...]:
        """Sizes of all variables: states, actions, derived."""
        return self.sizes + tuple(variable.size for variable in self.derived)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of all variables: states, actions, derived."""
        derived = tuple(variable.name for variable in self.derived)
        return self.state_names + self.action_names + derived

    @cached_property
    def values(self) -> tuple[Sequence[str], ...]:
        """Names of the values of all variables: states, actions, derived."""
        derived = tuple(variable.values for variable in self.derived)
        return self.state_values + self.action_values + derived

    @cached_property
    def naming(self) -> Naming:
        """Names of the variables and of their values, without anything else."""
        return Naming(
            Variables("state", self.state_names, self.state_values),
            Variables("action", self.action_names, self.action_values),
        )

    @cached_property
    def derived_variables(self) -> Variables:
        """Names of the derived variables and of their values."""
        names = tuple(variable.name for variable in self.derived)
        return Variables("derived", names, tuple(variable.values for variable in self.derived))

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
        """Return the number of the variable with this name: states, actions, derived variables.

        Parameters
        ----------
        name
            Name of a variable.

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
        """Return `action` as a tuple of positions, one per action variable, as `check_state` does.

        `what` is how the error message calls it.
        """
        return self.naming.actions.check(action, what)

    def name_state(self, state: Assignment) -> dict[str, str]:
        """Return `state`, as in `check_state`, as {name of the variable: name of its value}."""
        return self.naming.states.named(self.check_state(state))

    def name_action(self, action: Assignment) -> dict[str, str]:
        """Return `action`, as in `check_action`, as {name of the variable: name of its value}."""
        return self.naming.actions.named(self.check_action(action))

    def scope_sizes(self, scope: Sequence[int]) -> tuple[int, ...]:
        """Return the sizes of the variables of a scope, in its order.

        Parameters
        ----------
        scope
            Numbers of variables, in any order.
        """
        sizes = self.all_sizes
        return tuple(sizes[variable] for variable in scope)

    def scope_row(self, scope: Sequence[int], state: Sequence[int], action: Sequence[int]) -> int:
        """Return the row of x[`scope`] in its table, for x = (`state`, `action`, derived).

        The last variable of the scope is the fastest. Positions are not checked: see `check_state`.
        """
        joint = (*state, *action)
        if any(variable >= len(joint) for variable in scope):
            joint += self.derive(state, action)
        row = 0
        for variable, step in zip(scope, strides(self.scope_sizes(scope)), strict=True):
            row += step * int(joint[variable])
        return row

    def derive(self, state: Sequence[int], action: Sequence[int]) -> tuple[int, ...]:
        """Return the values of the derived variables, as positions, in a state and action.

        Parameters
        ----------
        state, action
            Positions, one per variable, not checked.

        Raises
        ------
        InvalidParameter
            If one of the derived variables is drawn: then its value is not known.
        """
        joint = [*state, *action]
        for variable in self.derived:
            if not variable.deterministic:
                raise InvalidParameter(
                    f"derived variable {quote(variable.name)} is drawn at random in every step; "
                    f"its value does not follow from the state and action"
                )
            sizes = self.scope_sizes(variable.scope)
            joint.append(int(variable.table[encode([joint[v] for v in variable.scope], sizes)]))
        return tuple(joint[len(self.sizes) :])

    def row_label(self, scope: Sequence[int], row: int) -> str:
        """Return `row` of a table over `scope` for messages: 'row 5 (s0=1, a0=2)'."""
        assignment = decode(row, self.scope_sizes(scope))
        return f"row {row} ({self._assignment_label(scope, assignment) or 'empty scope'})"

    def _assignment_label(self, scope: Sequence[int], assignment: Sequence[int]) -> str:
        return listed(
            [
                f"{self.names[variable]}={self.values[variable][value]}"
                for variable, value in zip(scope, assignment, strict=True)
            ]
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
