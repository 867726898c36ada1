"""The scopes of the factors: which variables every table depends on, and the groups of variables.

A scope Z is a sorted tuple of variables. The table of transition factor i has |X[Z_i]| rows of
|S_i| probabilities, that of reward factor k has |X[Z_k]| means.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any, TypeAlias

from fmdp.errors import InvalidModel, UnknownName
from fmdp.model.naming import quote
from fmdp.model.spaces import count, items, shown, shown_tuple, whole_number
from fmdp.model.variables import VariableSpace

Scope: TypeAlias = tuple[int, ...]


class FactorScopes(VariableSpace):
    """Variables, and the scopes of the transition and reward factors over them."""

    transition_scopes: tuple[Scope, ...]
    reward_scopes: tuple[Scope, ...]
    reward_names: tuple[str, ...]

    @cached_property
    def l(self) -> int:  # noqa: E743 - the paper's symbol
        """Number of reward factors."""
        return len(self.reward_scopes)

    @cached_property
    def transition_rows(self) -> tuple[int, ...]:
        """|X[Z_i]| of every transition factor: the number of rows of its table."""
        return tuple(count(self.scope_sizes(scope)) for scope in self.transition_scopes)

    @cached_property
    def reward_rows(self) -> tuple[int, ...]:
        """|X[Z_k]| of every reward factor: the number of entries of its table."""
        return tuple(count(self.scope_sizes(scope)) for scope in self.reward_scopes)

    @cached_property
    def transition_starts(self) -> tuple[int, ...]:
        """[m + 1]: offsets of the transition tables in an array of all their entries."""
        cells = map(math.prod, zip(self.transition_rows, self.state_sizes, strict=True))
        return (0, *itertools.accumulate(cells))

    @cached_property
    def row_starts(self) -> tuple[int, ...]:
        """[m + 1]: offsets of the transition tables in an array with one entry per row."""
        return (0, *itertools.accumulate(self.transition_rows))

    @cached_property
    def reward_starts(self) -> tuple[int, ...]:
        """[l + 1]: offsets of the reward tables in an array of all their entries."""
        return (0, *itertools.accumulate(self.reward_rows))

    def origins(self, scope: Sequence[int]) -> tuple[Scope, Scope]:
        """Return the states and actions behind a scope, and the derived variables behind it.

        Parameters
        ----------
        scope
            Numbers of variables. A state or action is behind itself, and a derived variable also
            has behind it what its own scope has.
        """
        n = len(self.sizes)
        base: set[int] = set()
        derived: set[int] = set()
        ahead = list(scope)
        while ahead:
            v = ahead.pop()
            if v < n:
                base.add(v)
            elif v not in derived:
                derived.add(v)
                ahead.extend(self.derived[v - n].scope)
        return tuple(sorted(base)), tuple(sorted(derived))

    def state_scope(self, i: int) -> Scope:
        """Return the state variables that a transition factor depends on, also through derived
        variables.

        Parameters
        ----------
        i
            Number of the factor, which is that of its state variable.
        """
        return tuple(v for v in self.origins(self.transition_scopes[i])[0] if v < self.m)

    def action_scope(self, i: int) -> Scope:
        """Return the action variables (m, m + 1, ...) that a transition factor depends on, also
        through derived variables.

        Parameters
        ----------
        i
            Number of the factor, which is that of its state variable.
        """
        return tuple(v for v in self.origins(self.transition_scopes[i])[0] if v >= self.m)

    def reward_state_scope(self, k: int) -> Scope:
        """Return the state variables that a reward factor depends on, also through derived
        variables.

        Parameters
        ----------
        k
            Number of the reward factor.
        """
        return tuple(v for v in self.origins(self.reward_scopes[k])[0] if v < self.m)

    def transition_label(self, i: int) -> str:
        """Return the name of transition factor `i` for messages and tables."""
        return f"transition factor {i} ({quote(self.state_names[i])})"

    def reward_label(self, k: int) -> str:
        """Return the name of reward factor `k` for messages and tables."""
        return f"reward factor {k} ({quote(self.reward_names[k])})"


def checked_scopes(
    scopes: Sequence[Any], names: Sequence[str], n_variables: int, kind: str
) -> tuple[Scope, ...]:
    """Return the scopes of the transition or reward factors, or raise InvalidModel."""
    return tuple(
        _checked_scope(scope, n_variables, f"{kind} factor {index} ({quote(name)})")
        for index, (scope, name) in enumerate(zip(scopes, names, strict=True))
    )


def _checked_scope(scope: Iterable[int], n_variables: int, label: str) -> Scope:
    checked: list[int] = []
    for variable in _members(scope, f"{label}: scope"):
        whole = whole_number(variable)
        if whole is None or not 0 <= whole < n_variables:
            raise InvalidModel(
                f"{label}: scope has variable {shown(variable)}; must be in 0..{n_variables - 1}"
            )
        checked.append(whole)
    if any(a >= b for a, b in itertools.pairwise(checked)):
        raise InvalidModel(
            f"{label}: scope {shown_tuple(checked)} must be sorted and without repeats "
            f"(FactoredMDP.from_factors sorts scopes together with their tables)"
        )
    return tuple(checked)


def checked_groups(groups: Iterable[Iterable[int]], m: int) -> tuple[Scope, ...]:
    """Return disjoint sets of state variables, sorted, or raise InvalidModel."""
    checked: list[Scope] = []
    owner: dict[int, int] = {}
    for index, group in enumerate(items(groups, "groups")):
        variables: list[int] = []
        for variable in _members(group, f"group {index}"):
            whole = whole_number(variable)
            if whole is None or not 0 <= whole < m:
                raise InvalidModel(
                    f"group {index}: variable {shown(variable)} must be a state variable "
                    f"in 0..{m - 1}"
                )
            if whole in owner:
                raise InvalidModel(
                    f"group {index}: state variable {whole} is already in group {owner[whole]}; "
                    f"groups must be disjoint"
                )
            owner[whole] = index
            variables.append(whole)
        if not variables:
            raise InvalidModel(f"group {index} is empty; must have at least one state variable")
        checked.append(tuple(sorted(variables)))
    return tuple(sorted(checked))


def scope_numbers(
    variables: VariableSpace, scope: Iterable[int | str], label: str
) -> tuple[int, ...]:
    """Return the numbers of variables given by name or number, in the given order."""
    numbers: list[int] = []
    n_variables = len(variables.all_sizes)
    for variable in _members(scope, f"{label}: scope"):
        if isinstance(variable, str):
            try:
                number: int | None = variables.variable(variable)
            except UnknownName as error:
                raise InvalidModel(f"{label}: {error}") from None
        else:
            number = whole_number(variable)
        if number is None or not 0 <= number < n_variables:
            raise InvalidModel(
                f"{label}: variable {shown(variable)} must be in 0..{n_variables - 1} or a name"
            )
        if number in numbers:
            raise InvalidModel(
                f'{label}: variable {number} ("{variables.names[number]}") occurs twice; '
                f"must occur once"
            )
        numbers.append(number)
    return tuple(numbers)


def _members(variables: Any, label: str) -> Iterable[Any]:
    try:
        return items(variables, label)
    except InvalidModel:
        raise InvalidModel(f"{label} is {shown(variables)}; must be a list of variables") from None
