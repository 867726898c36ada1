"""Typed values of a JSON document; errors name the place.

Every flaw is an InvalidModel with the place (`label`), the value as in the file, and what is
allowed. Types are strict: true is no number, and 2.0 is no whole number.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from fmdp.errors import InvalidModel, did_you_mean


def keyed(
    value: Any, label: str, required: Sequence[str], optional: Sequence[str]
) -> dict[str, Any]:
    """Return a JSON object that has all required keys and no unknown ones."""
    if not isinstance(value, dict):
        raise InvalidModel(f"{label} is {show(value)}; must be an object")
    known = (*required, *optional)
    for key in value:
        if key not in known:
            raise InvalidModel(
                f"{label}: unknown key {show(key)}; must be one of {', '.join(known)}"
                f"{did_you_mean(key, known)}"
            )
    for key in required:
        if key not in value:
            raise InvalidModel(f"{label}: key {show(key)} is missing")
    return value


def array(
    value: Any, label: str, allowed: Callable[[Any], bool] | None = None, what: str = ""
) -> list[Any]:
    """Return a JSON array whose items are all `allowed`; `what` says what they must be."""
    if not isinstance(value, list):
        raise InvalidModel(f"{label} is {show(value)}; must be an array")
    if allowed is not None:
        for index, item in enumerate(value):
            if not allowed(item):
                raise InvalidModel(f"{label}, entry {index} is {show(item)}; must be {what}")
    return value


def text(value: Any, label: str) -> str:
    """Return a JSON string."""
    if not isinstance(value, str):
        raise InvalidModel(f"{label} is {show(value)}; must be a string")
    return value


def is_object(value: Any) -> bool:
    """Return whether it is a JSON object."""
    return isinstance(value, dict)


def is_array(value: Any) -> bool:
    """Return whether it is a JSON array."""
    return isinstance(value, list)


def is_text(value: Any) -> bool:
    """Return whether it is a JSON string."""
    return isinstance(value, str)


def is_value(value: Any) -> bool:
    """Return whether it is a JSON string, number or boolean."""
    return isinstance(value, str | bool) or is_number(value)


def is_whole(value: Any) -> bool:
    """Return whether it is a JSON number without a fraction."""
    return type(value) is int


def is_number(value: Any) -> bool:
    """Return whether it is a JSON number that a float can hold."""
    return type(value) is float or (type(value) is int and abs(value) < 2**1023)


def show(value: Any) -> str:
    """Return a JSON value for messages, as in the file, shortened."""
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list) and (
        len(value) > 8 or any(isinstance(item, (list, dict)) for item in value)
    ):
        return f"an array of {len(value)}"
    written = json.dumps(value)
    return written if len(written) <= 60 else f"{written[:57]}..."
