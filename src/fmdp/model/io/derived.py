"""Derived variables in model files of version 3.

    {"name": "busy", "count": {"over": ["left", "right"], "of": "up"}}
    {"name": "late", "values": ["no", "yes"], "scope": ["busy"], "map": ["no", "no", "yes"]}
    {"name": "rain", "size": 2, "scope": ["season"], "rows": [[0.2, 0.8], [0.9, 0.1]]}

"map" has one value per assignment of the scope, "rows" one distribution of a drawn variable.
"count", "any" and "all" count the variables that have one of the values "of"; "sum" adds the
values, which must be numbers. They are stored as chains of partial sums (aggregates.py), which are
written with the key "partial".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from fmdp.errors import InvalidModel
from fmdp.model.aggregates import Aggregate, All, Count, GrowingVariables, Sum
from fmdp.model.aggregates import Any as AnyOf
from fmdp.model.derived import Derived
from fmdp.model.fields import array, is_array, is_object, is_value, keyed, show, text
from fmdp.model.io.factors import read_rows, read_scope
from fmdp.model.io.variables import KEYS, read_variable
from fmdp.model.naming import are_numerals, listed_values
from fmdp.model.spaces import count, shown
from fmdp.model.structure import Structure
from fmdp.model.tables import sort_rows
from fmdp.model.variables import VariableSpace

_COUNTS: Mapping[str, Callable[..., Aggregate]] = {"count": Count, "any": AnyOf, "all": All}
_TABLES = ("map", "rows")


def read_derived(entries: Any, variables: Structure) -> Structure:
    """Return the variables of a file with its derived ones."""
    growing = GrowingVariables(variables)
    for number, entry in enumerate(array(entries, '"derived"', is_object, "an object")):
        label = f"derived variable {number}"
        bodies = [key for key in (*_TABLES, *_COUNTS, "sum") if key in entry]
        if len(bodies) != 1:
            raise InvalidModel(
                f"{label}: has {' and '.join(map(show, bodies)) or 'no table'}; must have one of "
                f"{', '.join((*_TABLES, *_COUNTS, 'sum'))}"
            )
        body = bodies[0]
        if body in _TABLES:
            growing.add(_read_table(entry, body, growing, label))
        else:
            fields = keyed(entry, label, ("name", body), ())
            name = text(fields["name"], f'{label}: "name"')
            growing.define(name, _read_aggregate(fields[body], body, growing, label))
    return growing.structure()


def _read_table(entry: Any, body: str, s: VariableSpace, label: str) -> Derived:
    keyed(entry, label, ("name", "scope", body), ("size", "values", "partial"))
    name, size, values = read_variable({k: entry[k] for k in KEYS if k in entry}, label)
    scope = read_scope(entry["scope"], s, f"{label}: scope", label)
    partial = entry.get("partial", False)
    if not isinstance(partial, bool):
        raise InvalidModel(f'{label}: "partial" is {show(partial)}; must be true or false')
    if body == "rows":
        table: Any = read_rows(entry["rows"], s, scope, size, label)
    else:
        table = _read_map(entry["map"], count(s.scope_sizes(scope)), size, values, label)
    table = sort_rows(s.all_sizes, scope, table)
    return Derived(name, values or range(size), tuple(sorted(scope)), table, partial)


def _read_map(given: Any, rows: int, size: int, values: Any, label: str) -> Any:
    """Return positions of the values of a deterministic variable, given by value or number."""
    entries = array(given, f'{label}: "map"', is_value, "a value")
    if len(entries) != rows:
        raise InvalidModel(
            f'{label}: "map" has {len(entries)} values; must have {shown(rows)}, one per '
            f"assignment of its scope"
        )
    listed = list(listed_values(values)) if values else list(range(size))
    place = {value: position for position, value in enumerate(listed)}
    for entry in entries:
        if entry not in place:
            raise InvalidModel(
                f'{label}: "map" has {show(entry)}; must be one of '
                f"{', '.join(map(str, listed[:12]))}"
            )
    return np.array([place[entry] for entry in entries], dtype=np.int64)


def _read_aggregate(given: Any, body: str, s: VariableSpace, label: str) -> Aggregate:
    needed = ("over",) if body == "sum" else ("over", "of")
    fields = keyed(given, f'{label}: "{body}"', needed, ("cap", "clip"))
    scope = read_scope(fields["over"], s, f'{label}: "over"', label)
    if not scope:
        raise InvalidModel(f'{label}: "over" is empty; must name at least one variable')
    names = [s.names[v] for v in scope]
    cap, clip = fields.get("cap"), fields.get("clip", False)
    if cap is not None and (isinstance(cap, bool) or not isinstance(cap, int | float)):
        raise InvalidModel(f'{label}: "cap" is {show(cap)}; must be a number')
    if not isinstance(clip, bool):
        raise InvalidModel(f'{label}: "clip" is {show(clip)}; must be true or false')
    if body == "sum":
        return Sum(names, cap=cap, clip=clip)
    of = fields["of"] if is_array(fields["of"]) else [fields["of"]]
    wanted = array(of, f'{label}: "of"', is_value, "a value")
    return _COUNTS[body](names, wanted, cap=cap, clip=clip)


def written_derived(s: Structure) -> list[dict[str, Any]]:
    """Return the entries of the derived variables of a structure."""
    entries = []
    for variable in s.derived:
        listed = listed_values(variable.values)
        entry: dict[str, Any] = {"name": variable.name, "size": variable.size}
        if not are_numerals(variable.values):
            entry["values"] = list(listed)
        entry["scope"] = [s.names[v] for v in variable.scope]
        if variable.partial:
            entry["partial"] = True
        if variable.deterministic:
            entry["map"] = [listed[place] for place in variable.table.tolist()]
        else:
            entry["rows"] = variable.table
        entries.append(entry)
    return entries
