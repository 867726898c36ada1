"""A variable in a model file: its name, and its size or its values."""

from __future__ import annotations

from typing import Any, NamedTuple

from fmdp.errors import InvalidModel
from fmdp.model.fields import array, is_value, is_whole, keyed, show, text
from fmdp.model.spaces import MAX_SIZE

KEYS = ("name", "size", "values")


class FileVariable(NamedTuple):
    """A variable as read from a file; `values` is empty if only its size is given."""

    name: str
    size: int
    values: tuple[Any, ...]


def read_variable(entry: Any, label: str) -> FileVariable:
    """Return the variable of an entry, or raise InvalidModel."""
    fields = keyed(entry, label, required=("name",), optional=("size", "values"))
    name = text(fields["name"], f'{label}: "name"')
    label = f"{label} ({show(name)})"
    if "size" not in fields and "values" not in fields:
        raise InvalidModel(f'{label}: key "size" (or "values") is missing')
    listed = array(fields.get("values", []), f'{label}: "values"', is_value, "a string or a number")
    if "values" in fields and not listed:
        raise InvalidModel(f'{label}: "values" is []; must have at least one name')
    size = fields.get("size", len(listed))
    if not is_whole(size) or not 1 <= size <= MAX_SIZE:
        raise InvalidModel(
            f'{label}: "size" is {show(size)}; must be a whole number in 1..{MAX_SIZE}'
        )
    if listed and len(listed) != size:
        raise InvalidModel(f"{label} has {len(listed)} value names; must have {size}")
    return FileVariable(name, size, tuple(listed))
