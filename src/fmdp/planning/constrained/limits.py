"""Limits on long-run averages: what a user gives, checked, and what a plan reports."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fmdp._base.parameters import quoted
from fmdp.errors import InvalidParameter

_TEXT = re.compile(r"\s*(?P<name>.+?)\s*(?P<sense><=|>=)\s*(?P<value>[^<>=]+?)\s*")


@dataclass(frozen=True)
class Limit:
    """A bound on the long-run average of a reward factor or a quantity."""

    name: str
    sense: str
    value: float

    @property
    def sign(self) -> float:
        """1 for an upper bound, -1 for a lower one: sign * average <= sign * value."""
        return 1.0 if self.sense == "<=" else -1.0

    def __str__(self) -> str:
        return f"{self.name}{self.sense}{self.value:g}"


def limits_of(given: Any) -> tuple[Limit, ...]:
    """Return checked limits from {name: (sense, value)}; raise InvalidParameter."""
    if given is None:
        return ()
    if not isinstance(given, Mapping):
        raise InvalidParameter(
            f"limits must be {{name: (sense, value)}}, as in {{'calls': ('<=', 0.15)}}; "
            f"got {quoted(given)}"
        )
    limits = []
    for name, pairs in given.items():
        several = isinstance(pairs, list)
        for pair in pairs if several else [pairs]:
            limits.append(_limit(name, pair))
    return tuple(limits)


def _limit(name: Any, pair: Any) -> Limit:
    if not isinstance(pair, tuple) or len(pair) != 2 or pair[0] not in ("<=", ">="):
        raise InvalidParameter(
            f"the limit of {quoted(name)} must be ('<=', value) or ('>=', value); "
            f"got {quoted(pair)}"
        )
    sense, value = pair
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not math.isfinite(value):
        raise InvalidParameter(
            f"the limit of {quoted(name)} must be a finite number; got {quoted(value)}"
        )
    return Limit(str(name), sense, float(value))


def limits_from_texts(texts: Sequence[str]) -> dict[str, list[tuple[str, float]]]:
    """Return the limits of texts such as "calls<=0.15", in the form of `limits_of`."""
    limits: dict[str, list[tuple[str, float]]] = {}
    for text in texts:
        match = _TEXT.fullmatch(text)
        try:
            value = float(match["value"]) if match else math.nan
        except ValueError:
            value = math.nan
        if match is None or not math.isfinite(value):
            raise InvalidParameter(
                f"the limit {text!r} must be NAME<=VALUE or NAME>=VALUE with a finite number"
            )
        limits.setdefault(match["name"], []).append((match["sense"], value))
    return limits
