"""One line of the table: what was tried, how often, and what went wrong."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Trial:
    name: str
    tried: int
    failures: tuple[str, ...] = ()
