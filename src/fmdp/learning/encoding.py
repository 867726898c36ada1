"""Plain values for the parts of a saved agent: structure, planner, generator.

Each `..._header` function returns JSON types, and each `read_...` function checks such values and
makes the part from them. The checks do not trust the file: a generator state, for example, is
compared with the form and the ranges that NumPy expects, because NumPy itself does not check it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from fmdp._base.archives import pack
from fmdp._base.parameters import quoted
from fmdp.errors import InvalidParameter
from fmdp.model import Alike, Derived, Structure
from fmdp.model.constraints import from_plain, plain
from fmdp.model.effects import effects_from_plain, effects_plain
from fmdp.model.naming import ListedNames, Numerals, are_numerals
from fmdp.planning.plan import Planner
from fmdp.planning.policies.archive import array_in
from fmdp.planning.registry import PLANNERS

Kind = TypeVar("Kind", bool, dict[str, Any], str)

FORMAT = "fmdp-learner"
VERSION = 3
MOST_STEPS = 2**53
"""Largest count in a file: sums of counts up to here are exact as floats."""

_BIT_GENERATORS = ("PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64")
_LARGEST_IN_STATE = {"pos": 624, "buffer_pos": 4, "has_uint32": 1, "uinteger": 2**32 - 1}
"""Largest values of numbers in a generator's state, by name; 2^128 - 1 for all others."""


def pack_agent(header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], owner: str) -> bytes:
    """Return the content of a file; raise InvalidParameter if the memory has no JSON form."""
    memory = header["state"]["memory"]
    try:
        if json.loads(json.dumps(memory)) != memory:
            raise TypeError("keys that are no texts, or tuples")
        return pack(header, arrays)
    except TypeError as error:
        raise InvalidParameter(
            f"{owner} has something in its memory that cannot be saved: {error}; "
            f"numbers, texts, lists, dictionaries with texts as keys, and arrays can"
        ) from None


# ---- structures ----------------------------------------------------------------------------------


def structure_header(structure: Structure) -> dict[str, Any]:
    """Return a structure in plain values, without its classes of alike rows."""
    header = {
        field.name: _compact(getattr(structure, field.name))
        for field in fields(Structure)
        if field.name not in ("alike", "constraints", "effects", "derived")
    }
    header["constraints"] = [plain(constraint) for constraint in structure.constraints]
    if structure.derived:
        header["derived"] = [_derived_header(variable) for variable in structure.derived]
    if structure.effects is not None:
        header["effects"] = effects_plain(structure.effects)
    return header


def _derived_header(variable: Derived) -> dict[str, Any]:
    return {
        "name": variable.name,
        "values": _compact(variable.values) or variable.size,
        "scope": list(variable.scope),
        "table": variable.table.tolist(),
        "partial": variable.partial,
    }


def _read_derived(given: Any) -> Derived:
    if not isinstance(given, dict) or given.keys() != {f.name for f in fields(Derived)}:
        raise InvalidParameter(f"its 'derived' has {quoted(given)}, which is no derived variable")
    return Derived(**given)


def _compact(value: Any) -> Any:
    """Return lists for tuples, and an empty list for default names of values."""
    if isinstance(value, Numerals | ListedNames):
        return [] if are_numerals(value) else list(value.listed)
    if isinstance(value, tuple):
        return [_compact(item) for item in value]
    return value


def read_structure(header: Any, arrays: Mapping[str, NDArray[Any]]) -> Structure:
    """Return the structure of a header, with the classes of alike rows in the array "alike"."""
    values = {**as_type(header, "structure", dict)}
    constraints = values.pop("constraints", [])  # missing in older files
    if not isinstance(constraints, list):
        raise InvalidParameter(f"its 'constraints' must be a list; got {quoted(constraints)}")
    effects = values.pop("effects", None)
    derived = values.pop("derived", [])
    if not isinstance(derived, list):
        raise InvalidParameter(f"its 'derived' must be a list; got {quoted(derived)}")
    structure = Structure(
        **{name: _tuples(value) for name, value in values.items()},
        constraints=tuple(from_plain(constraint) for constraint in constraints),
        derived=tuple(map(_read_derived, derived)),
    )
    return replace(
        structure,
        alike=_alike(structure, arrays) if "alike" in arrays else None,
        effects=None if effects is None else effects_from_plain(effects),
    )


def _alike(structure: Structure, arrays: Mapping[str, NDArray[Any]]) -> Alike:
    rows = [*structure.transition_rows, *structure.reward_rows]
    classes = np.split(array_in(arrays, "alike", "i", (sum(rows),), 0), np.cumsum(rows)[:-1])
    return Alike(tuple(classes[: structure.m]), tuple(classes[structure.m :]))


def _tuples(value: Any) -> Any:
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value


def refuse_larger(structure: Structure, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Raise InvalidParameter if no array is as long as a factor, before tables are made."""
    rows = max((*structure.transition_rows, *structure.reward_rows))
    longest = max((array.size for array in arrays.values()), default=0)
    if rows > longest:
        raise InvalidParameter(
            f"a factor has {rows} rows, and the longest of its arrays {longest} entries"
        )


# ---- planners ------------------------------------------------------------------------------------


def planner_header(planner: Any) -> dict[str, Any] | None:
    """Return the name and the settings of a planner; None for None."""
    if planner is None:
        return None
    if not is_dataclass(planner) or not isinstance(planner, Planner):
        raise InvalidParameter(
            f"a learner whose planner is no fmdp.Planner cannot be saved; got {planner!r}"
        )
    settings = {field.name: getattr(planner, field.name) for field in fields(planner)}
    return {"name": PLANNERS.place(type(planner)), "settings": settings}


def read_planner(header: Mapping[str, Any]) -> Planner:
    """Return the planner of a header; its class must be imported or registered."""
    settings = {name: _tuples(value) for name, value in header["settings"].items()}
    planner: Planner = PLANNERS.find(header["name"], importing=False)(**settings)
    return planner


# ---- generators ----------------------------------------------------------------------------------


def generator_header(generator: np.random.Generator | None) -> Any:
    """Return the state of a generator in plain values; None for None."""
    if generator is None:
        return None
    state = generator.bit_generator.state
    if state["bit_generator"] not in _BIT_GENERATORS:
        raise InvalidParameter(
            f"a learner with a bit generator of one's own cannot be saved; got "
            f"{state['bit_generator']}, must be one of {', '.join(_BIT_GENERATORS)}"
        )
    return _plain(state)


def read_generator(state: Mapping[str, Any] | None) -> np.random.Generator | None:
    """Return a generator with this state."""
    if state is None:
        return None
    name = as_type(state["bit_generator"], "bit_generator", str)
    if name not in _BIT_GENERATORS:
        raise InvalidParameter(
            f"unknown bit generator {quoted(name)}; known are {', '.join(_BIT_GENERATORS)}"
        )
    bits = getattr(np.random, name)()
    # NumPy accepts any position and reads memory there.
    _check_state(state, _plain(bits.state), "generator")
    bits.state = {key: _arrays(value) for key, value in state.items()}
    return np.random.Generator(bits)


def _check_state(given: Any, example: Any, name: str) -> None:
    """Raise InvalidParameter unless a state has the form of the example, numbers within range."""
    if isinstance(example, Mapping):
        right = isinstance(given, Mapping) and given.keys() == example.keys()
        for key in example if right else ():
            _check_state(given[key], example[key], key)
    elif isinstance(example, list):
        most = 2**32 - 1 if len(example) > 4 else 2**64 - 1
        right = isinstance(given, list) and len(given) == len(example)
        right = right and all(type(number) is int and 0 <= number <= most for number in given)
    elif isinstance(example, int):
        most = _LARGEST_IN_STATE.get(name, 2**128 - 1)
        right = type(given) is int and 0 <= given <= most and (name != "inc" or given % 2 == 1)
    else:
        right = given == example
    if not right:
        raise InvalidParameter(f"the {name!r} of its generator is none; got {quoted(given)}")


def _plain(value: Any) -> Any:
    """Return lists for arrays, which the states of Philox and MT19937 contain."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value


def _arrays(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _arrays(item) for key, item in value.items()}
    return np.array(value, dtype=np.uint64) if isinstance(value, list) else value


# ---- single values -------------------------------------------------------------------------------


def as_int(value: Any, name: str, low: int = 0, high: int = MOST_STEPS) -> int:
    """Return the value; raise InvalidParameter unless it is an integer from low to high."""
    if type(value) is not int or not low <= value <= high:
        raise InvalidParameter(
            f"its {name!r} must be a whole number from {low} to {high}; got {quoted(value)}"
        )
    return value


_TYPES = {bool: "true or false", dict: "an object", str: "a text"}


def as_type(value: Any, name: str, kind: type[Kind]) -> Kind:
    """Return the value; raise InvalidParameter unless it is a bool, dict or str, as `kind` says."""
    if type(value) is not kind:
        raise InvalidParameter(f"its {name!r} must be {_TYPES[kind]}; got {quoted(value)}")
    return value
