"""Functions of users that are called with the values of a scope by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from fmdp.errors import InvalidModel
from fmdp.model.naming import NamedValues, listed_values
from fmdp.model.spaces import all_assignments, shown
from fmdp.model.variables import VariableSpace

Values: TypeAlias = Mapping[str, Any]
"""Values, as listed, by the name of their variable."""


def named_rows(variables: VariableSpace, scope: Sequence[int]) -> Iterator[NamedValues]:
    """Yield the values of every assignment of a scope, the last variable fastest."""
    names = [variables.names[v] for v in scope]
    listed = [listed_values(variables.values[v]) for v in scope]
    for assignment in all_assignments(variables.scope_sizes(scope)):
        yield NamedValues(
            (name, values[value])
            for name, values, value in zip(names, listed, assignment, strict=True)
        )


def call(function: Callable[..., Any], label: str, values: NamedValues, *before: str) -> Any:
    """Call a function of the user, or raise InvalidModel with the assignment at which it fails."""
    if not callable(function):
        raise InvalidModel(f"{label} must be a function; got {shown(function)}")
    try:
        return function(*before, NamedValues(values))
    except Exception as error:
        reason = error.args[0] if isinstance(error, KeyError) and error.args else error
        text = " ".join(str(reason).split())
        raise InvalidModel(
            f"{labelled(label, values)}: the function fails: {type(error).__name__}: {text}"
        ) from error


def labelled(label: str, values: Values) -> str:
    """Return a label with the assignment, for messages."""
    assignment = ", ".join(f"{name}={value}" for name, value in values.items())
    return f"{label}, {assignment or 'empty scope'}"
