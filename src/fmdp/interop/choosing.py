"""Settings behind the name of a file, and the rewards that they choose.

MODEL.prism,N=3,rewards=energy        MODEL.umb,min=energy,max-states=20000
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from fmdp.errors import InvalidParameter, did_you_mean


def settings_behind(text: str, suffix: str, forms: str) -> tuple[str, dict[str, str]]:
    """Return the path in a text and the settings behind it; `forms` says what they may be."""
    path, comma, rest = text.rpartition(f"{suffix},")
    if not comma:
        return text, {}
    settings: dict[str, str] = {}
    for part in rest.split(","):
        key, sign, value = map(str.strip, part.partition("="))
        if not sign or not key or key in settings:
            raise InvalidParameter(f"{text}: {part!r} must be {forms}, each once")
        settings[key] = value
    return path + suffix, settings


def taken_options(settings: dict[str, str], text: str) -> dict[str, Any]:
    """Remove the options of all such formats from settings, and return them as arguments."""
    most = settings.pop("max-states", None)
    if most is not None and not most.isdecimal():
        raise InvalidParameter(f"{text}: max-states must be a whole number; got {most!r}")
    return {
        "rewards": settings.pop("rewards", None),
        "minimise": settings.pop("min", None),
        "max_states": None if most is None else int(most),
    }


def check_choice(
    rewards: str | None, minimise: str | None, known: Collection[str], max_states: int | None
) -> None:
    """Raise InvalidParameter if both or unknown rewards are chosen, or no states are allowed."""
    if rewards is not None and minimise is not None:
        raise InvalidParameter(
            f"rewards={rewards} and min={minimise}: one structure is optimised; give one of them"
        )
    chosen = rewards if minimise is None else minimise
    if chosen is not None and chosen not in known:
        listed = ", ".join(map(repr, known)) or "none"
        hint = did_you_mean(chosen, known)
        raise InvalidParameter(f"there are no rewards called {chosen!r}, only {listed}{hint}")
    if max_states is not None and max_states < 1:
        raise InvalidParameter(f"max-states must be at least 1; got {max_states}")


def free_name(name: str, taken: set[str]) -> str:
    """Return a name that is not taken, and take it."""
    while name in taken:
        name += "_"
    taken.add(name)
    return name


def negative_name(name: str) -> str:
    """Return the name of the rewards of a model that minimises `name`.

    They are its negatives. `name` itself stays a quantity, so that limits and fronts refer to it.
    """
    return f"minus_{name}"


def minimising(name: str) -> str:
    """Return the remark on a model that minimises."""
    sign = "rewards are its negatives, and the least long-run average is minus the gain"
    return f"minimises {name}: {sign}"
