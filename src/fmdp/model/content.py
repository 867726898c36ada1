"""The content hash of a model: the same on every machine and in every run."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from typing import Any

from fmdp.model.builder import Contents
from fmdp.model.naming import numerals

_HASHED = (
    "state_sizes",
    "action_sizes",
    "transition_scopes",
    "reward_scopes",
    "reward_ranges",
    "state_names",
    "action_names",
    "reward_names",
    "state_values",
    "action_values",
    "groups",
)
"""Fields of every structure. Optional fields are hashed only if they are set, so that hashes, by
which stores know their runs, are those of earlier versions."""
_MANY = re.compile(r'"\\u0000(\d+)"')
_AT_ONCE = 1 << 16


def content_hash(model: Contents) -> str:
    """Return the SHA-256 (hex) of everything in the model."""
    header = {
        "structure": [getattr(model.structure, field) for field in _HASHED],
        "noise": [(noise.kind, noise.scale) for noise in model.noise],
        "initial_state": model.initial_state,
        "name": model.name,
    }
    digest = hashlib.sha256()
    for text in _json_parts(header):
        digest.update(text.encode())
    for table in model.transitions + model.rewards:
        digest.update(table.astype("<f8", copy=False).tobytes())
    for part in _knowledge_parts(model):
        digest.update(part)
    return digest.hexdigest()


def _knowledge_parts(model: Contents) -> Iterator[bytes]:
    """Yield the optional contents: alike rows, derived variables, constraints and so on."""
    alike, effects = model.structure.alike, model.structure.effects
    if alike is not None:
        yield b"alike"
        for classes in (*alike.transitions, *alike.rewards):
            yield classes.astype("<i8", copy=False).tobytes()
    for variable in model.structure.derived:
        yield f"derived{variable.content!r}".encode()
    for constraint in model.structure.constraints:
        yield f"{type(constraint).__name__}{constraint.content()!r}".encode()
    if effects is not None:
        yield f"effects{effects.after_scopes}{effects.rewards}".encode()
        yield f"{effects.after_reward_scopes}".encode()
        for effect in effects.components:
            yield f"{effect.states}{effect.actions}".encode()
            yield effect.outcome.astype("<i8", copy=False).tobytes()
    for quantity in model.quantities:
        yield f"quantity{quantity.name!r}{quantity.scope}".encode()
        yield quantity.table.astype("<f8", copy=False).tobytes()
    if model.intervals is not None:
        yield b"intervals"
        for tables in model.intervals.arrays():
            for table in tables:
                yield table.astype("<f8", copy=False).tobytes()


def _json_parts(header: dict[str, Any]) -> Iterator[str]:
    """Yield the JSON text in parts, so that the names of millions of values are never all held."""
    # \0 cannot occur in names, which are printable; it marks where numerals are inserted.
    text = json.dumps(header, sort_keys=True, default=lambda names: f"\0{len(names)}")
    for number, part in enumerate(_MANY.split(text)):
        if number % 2 == 0:
            yield part
            continue
        for first in range(0, int(part), _AT_ONCE):
            names = numerals(int(part))[first : first + _AT_ONCE]
            yield ('["' if first == 0 else '", "') + '", "'.join(names)
        yield '"]'
