"""What a model consists of, as bytes, for its content hash: the same on every machine and run."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from fmdp.model.intervals import Intervals
from fmdp.model.naming import numerals
from fmdp.model.structure import Structure

HASHED = (
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
"""Fields of every structure; what a structure need not have is hashed only where it is there, so
that the hash of a model, by which stores know their runs, is that of earlier versions."""


def knowledge_parts(structure: Structure, intervals: Intervals | None) -> Iterator[bytes]:
    """What a model may say beyond its tables."""
    alike, effects = structure.alike, structure.effects
    if alike is not None:
        yield b"alike"
        for own in (*alike.transitions, *alike.rewards):
            yield own.astype("<i8", copy=False).tobytes()
    for constraint in structure.constraints:
        yield f"{type(constraint).__name__}{constraint.content()!r}".encode()
    if effects is not None:
        yield f"effects{effects.after_scopes}{effects.rewards}".encode()
        yield f"{effects.after_reward_scopes}".encode()
        for effect in effects.components:
            yield f"{effect.states}{effect.actions}".encode()
            yield effect.outcome.astype("<i8", copy=False).tobytes()
    if intervals is not None:
        yield b"intervals"
        for tables in intervals.arrays():
            for table in tables:
                yield table.astype("<f8", copy=False).tobytes()


_MANY = re.compile(r'"\\u0000(\d+)"')
_AT_ONCE = 1 << 16


def json_parts(header: dict[str, Any]) -> Iterator[str]:
    """The JSON text in parts: the names of millions of values never stand there all at once."""
    # A mark that no name can be, since names are printable; where it stands the numerals follow.
    text = json.dumps(header, sort_keys=True, default=lambda names: f"\0{len(names)}")
    for number, part in enumerate(_MANY.split(text)):
        if number % 2 == 0:
            yield part
            continue
        for first in range(0, int(part), _AT_ONCE):
            names = numerals(int(part))[first : first + _AT_ONCE]
            yield ('["' if first == 0 else '", "') + '", "'.join(names)
        yield '"]'
