"""Events that a summary counts: conditions on the values of variables, or functions of them.

    "queue >= 3"                          a comparison with a listed value
    "theatre_A = closed and queue > 0"    several, which must all hold

`=` and `!=` compare names; the others compare listed numbers, or the places of the values.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmdp._base.parameters import quoted
from fmdp.errors import InvalidParameter, UnknownName
from fmdp.model import Structure
from fmdp.model.conditions import value_of
from fmdp.model.naming import listed_values

Rows = NDArray[np.int64]
Holds = Callable[[Rows], NDArray[np.bool_]]
"""From rows of places, [n, state and action variables], to whether the event holds in each."""

_COMPARED = re.compile(r"(.+?)\s*(<=|>=|!=|==|=|<|>)\s*(.+)")
_OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
    "=": np.equal,
    "==": np.equal,
    "!=": np.not_equal,
}


def checked_events(structure: Structure, events: object) -> dict[str, Holds]:
    """Return the events by name, ready to be evaluated; raise InvalidParameter if one is not valid.

    An event is a text, or a function of a dictionary with the value of every variable.
    """
    if events is None:
        return {}
    if not isinstance(events, Mapping):
        raise InvalidParameter(f"events must be a mapping from names; got {quoted(events)}")
    checked: dict[str, Holds] = {}
    for name, event in events.items():
        if not isinstance(name, str) or not name:
            raise InvalidParameter(f"the name of an event must be a text; got {quoted(name)}")
        if isinstance(event, str):
            checked[name] = _condition(structure, event, f"event {name!r}")
        elif callable(event):
            checked[name] = _function(structure, event)
        else:
            raise InvalidParameter(
                f"event {name!r} must be a condition such as 'queue>3' or a function of the named "
                f"values; got {quoted(event)}"
            )
    return checked


def _condition(structure: Structure, text: str, label: str) -> Holds:
    tests = [_comparison(structure, part, label) for part in re.split(r"\s+and\s+", text.strip())]
    return lambda rows: np.logical_and.reduce([test(rows) for test in tests])


def _comparison(structure: Structure, text: str, label: str) -> Holds:
    match = _COMPARED.fullmatch(text.strip())
    if match is None:
        raise InvalidParameter(
            f"{label}: {text!r} is no condition; it must be NAME=VALUE, or one of != < <= > >="
        )
    name, sign, value = match.groups()
    try:
        variable = structure.variable(name)
    except UnknownName as error:
        raise InvalidParameter(f"{label}: {error}") from None
    if variable >= len(structure.sizes):
        raise InvalidParameter(f"{label}: {name!r} is a derived variable; name a state or action")
    compare = _OPERATIONS[sign]
    if sign in ("=", "==", "!="):
        place = value_of(structure, variable, value, label)
        return lambda rows: np.asarray(compare(rows[:, variable], place))
    listed = list(listed_values(structure.values[variable]))
    numbers = all(isinstance(number, int | float) for number in listed)
    try:
        bound = float(value) if numbers else float(value_of(structure, variable, value, label))
    except ValueError as error:
        if isinstance(error, InvalidParameter):
            raise
        raise InvalidParameter(
            f"{label}: {name!r} has numbers as values; got {value!r} to compare them with"
        ) from None
    of_place = np.array(listed if numbers else range(len(listed)), dtype=np.float64)
    holds = np.asarray(compare(of_place, bound))
    return lambda rows: holds[rows[:, variable]]


def _function(structure: Structure, event: Callable[[dict[str, Any]], object]) -> Holds:
    names = structure.names[: len(structure.sizes)]
    listed = [listed_values(values) for values in structure.values[: len(structure.sizes)]]

    def holds(rows: Rows) -> NDArray[np.bool_]:
        answers = (
            bool(event({n: v[p] for n, v, p in zip(names, listed, row, strict=True)}))
            for row in rows.tolist()
        )
        return np.fromiter(answers, dtype=np.bool_, count=len(rows))

    return holds
