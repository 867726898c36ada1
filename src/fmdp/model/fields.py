"""Values of a JSON document as a format declares them, or one line that names the place.

Every flaw is an InvalidModel: the place (`label`), the value as it stands in the file, and what is
allowed. Types are looked at strictly: true is no number, and 2.0 is no whole number.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from fmdp.errors import InvalidModel, did_you_mean


def keyed(
    value: Any, label: str, required: Sequence[str], optional: Sequence[str]
) -> dict[str, Any]:
    """A JSON object with exactly these keys."""
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
    """A JSON array, of things that are `allowed`; `what` they must be."""
    if not isinstance(value, list):
        raise InvalidModel(f"{label} is {show(value)}; must be an array")
    if allowed is not None:
        for index, item in enumerate(value):
            if not allowed(item):
                raise InvalidModel(f"{label}, entry {index} is {show(item)}; must be {what}")
    return value


def text(value: Any, label: str) -> str:
    """A JSON string."""
    if not isinstance(value, str):
        raise InvalidModel(f"{label} is {show(value)}; must be a string")
    return value


def is_object(value: Any) -> bool:
    """A JSON object."""
    return isinstance(value, dict)


def is_array(value: Any) -> bool:
    """A JSON array."""
    return isinstance(value, list)


def is_text(value: Any) -> bool:
    """A JSON string."""
    return isinstance(value, str)


def is_value(value: Any) -> bool:
    """Return whether it is a JSON string, number or truth value."""
    return isinstance(value, str | bool) or is_number(value)


def is_whole(value: Any) -> bool:
    """A JSON number without a fraction."""
    return type(value) is int


def is_number(value: Any) -> bool:
    """A JSON number that a float can hold."""
    return type(value) is float or (type(value) is int and abs(value) < 2**1023)


def show(value: Any) -> str:
    """A JSON value as it stands in the file, cut to a length that fits a message."""
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list) and (
        len(value) > 8 or any(isinstance(item, (list, dict)) for item in value)
    ):
        return f"an array of {len(value)}"
    written = json.dumps(value)
    return written if len(written) <= 60 else f"{written[:57]}..."
