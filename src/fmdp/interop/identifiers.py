"""Conversion of names to identifiers of other languages: letters, digits, underscores.

    "machine 0" -> machine_0      "2nd pump" -> _2nd_pump      "if" -> if_ if `if` is a keyword

Numbers are appended where two names would become the same identifier. Names that are identifiers
already do not change.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable


def identifier(name: str, reserved: Collection[str] = ()) -> str:
    """Return a name as an ASCII identifier."""
    made = re.sub(r"[^A-Za-z0-9_]+", "_", name)
    if not made or made[0].isdigit():
        made = f"_{made}"
    return f"{made}_" if made in reserved else made


def identifiers(names: Iterable[str], reserved: Iterable[str] = ()) -> list[str]:
    """Return one identifier per name, all different and none of them reserved."""
    names = list(names)
    keywords = set(reserved)
    # Legal names are kept; the others must differ from them.
    taken = {name for name in names if identifier(name, keywords) == name}
    made: list[str] = []
    for name in names:
        plain = identifier(name, keywords)
        if plain != name:
            number, base = 2, plain
            while plain in taken or plain in keywords:
                plain, number = f"{base}_{number}", number + 1
            taken.add(plain)
        made.append(plain)
    return made
