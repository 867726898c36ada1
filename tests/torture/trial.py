"""One line of the table: what was tried, how often, and what went wrong."""

from __future__ import annotations

from dataclasses import dataclass

SHORT = 0.05
"""Below this scale what takes long to set up is left to the long form, or to a test of its own."""


@dataclass(frozen=True)
class Trial:
    name: str
    tried: int
    failures: tuple[str, ...] = ()
    skipped: str = ""
    """Why it could not be tried here; said in the table."""
