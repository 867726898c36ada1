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
from fmdp.errors import InvalidParameter, did_you_mean
from fmdp.model import Structure
from fmdp.model.conditions import value_of
from fmdp.model.naming import NamedValues, listed, listed_values, quote

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
            checked[name] = _function(structure, event, f"event {name!r}")
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
    known = structure.names[: len(structure.sizes)]
    if name in structure.names and name not in known:
        raise InvalidParameter(
            f"{label}: {name!r} is a derived variable; an event must be a condition on state and "
            f"action variables (in Python also a function of their values)"
        )
    if name not in known:
        raise InvalidParameter(
            f"{label}: no state or action variable is called {quote(name)}; must be one of "
            f"{listed(known)}{did_you_mean(name, known)}"
        )
    variable = known.index(name)
    compare = _OPERATIONS[sign]
    if sign in ("=", "==", "!="):
        place = value_of(structure, variable, value, label)
        return lambda rows: np.asarray(compare(rows[:, variable], place))
    values = list(listed_values(structure.values[variable]))
    numbers = all(isinstance(number, int | float) for number in values)
    try:
        bound = float(value) if numbers else float(value_of(structure, variable, value, label))
    except ValueError as error:
        if isinstance(error, InvalidParameter):
            raise
        raise InvalidParameter(
            f"{label}: {name!r} has numbers as values; got {value!r} to compare them with"
        ) from None
    of_place = np.array(values if numbers else range(len(values)), dtype=np.float64)
    holds = np.asarray(compare(of_place, bound))
    return lambda rows: holds[rows[:, variable]]


def _function(structure: Structure, event: Callable[[dict[str, Any]], object], label: str) -> Holds:
    names = structure.names[: len(structure.sizes)]
    of_names = [listed_values(values) for values in structure.values[: len(structure.sizes)]]

    def holds(rows: Rows) -> NDArray[np.bool_]:
        answers = np.empty(len(rows), dtype=np.bool_)
        for k, row in enumerate(rows.tolist()):
            values = NamedValues((n, v[p]) for n, v, p in zip(names, of_names, row, strict=True))
            try:
                answers[k] = bool(event(values))
            except Exception as error:
                text = error.args[0] if isinstance(error, KeyError) and error.args else error
                raise InvalidParameter(
                    f"{label}: the function fails: {type(error).__name__}: {text}"
                ) from error
        return answers

    return holds
