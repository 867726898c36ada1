"""Names of a model as identifiers that other languages read: letters, digits, underscores.

    "machine 0" -> machine_0      "2nd pump" -> _2nd_pump      "if" -> if_ where `if` is a keyword

Names that become one identifier are told apart by a number: no two get the same one. Where all
names are identifiers already they stay as they are.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable


def identifier(name: str, reserved: Collection[str] = ()) -> str:
    """One name as an identifier, in ASCII."""
    made = re.sub(r"[^A-Za-z0-9_]+", "_", name)
    if not made or made[0].isdigit():
        made = f"_{made}"
    return f"{made}_" if made in reserved else made


def identifiers(names: Iterable[str], reserved: Iterable[str] = ()) -> list[str]:
    """One identifier a name, all different, none of them reserved."""
    names = list(names)
    keywords = set(reserved)
    # Who has a legal name keeps it, whatever others become.
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
