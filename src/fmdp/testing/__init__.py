"""For those who test: generated models, brute-force oracles, and conformance checkers.

`strategies` (needs Hypothesis) generates structures, models and optimistic tables; `oracles` has
short, slow definitions of everything that the library computes fast. Names are loaded on first
use, so that the oracles do not need Hypothesis.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fmdp.testing import oracles, strategies
    from fmdp.testing.learners import check_learner as check_learner

__all__ = ["check_learner", "oracles", "strategies"]


def __getattr__(name: str) -> Any:
    if name == "check_learner":
        return importlib.import_module("fmdp.testing.learners").check_learner
    if name in __all__:
        return importlib.import_module(f"fmdp.testing.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
